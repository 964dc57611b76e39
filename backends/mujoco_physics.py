"""The MuJoCo engines as a SimulationContext steps them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mujoco
import mujoco.batch
import numpy as np
import warp as wp

from scene_data.backends.mujoco import MujocoSceneDataBackend
from scene_data.backends.mujoco_batch import MujocoBatchSceneDataBackend
from scene_data.backends.mujoco_data_list import MujocoDataListSceneDataBackend
from scene_data.backends.mujoco_model import find_keyframe, load_mujoco_model
from scene_data.errors import UnknownNameError
from scene_data.physics import PhysicsEngine

__all__ = ["MujocoBatchEngine", "MujocoEngine", "MujocoPhysicsCfg", "MujocoWarpEngine"]


@dataclass
class MujocoPhysicsCfg:
    """A MuJoCo model, and the engine that steps it.

    Attributes:
        model: A path to MJCF, MJB or URDF, `"demo"`, or an `mujoco.MjModel`.
        engine: `"mujoco"` (the C engine, one `MjData` per environment, for a few of them), `"mujoco_batch"` (many
            environments on CPU threads) or `"mujoco_warp"` (many environments on the device).
        num_envs: Number of environments.
        nconmax: Contacts per environment that `mujoco_warp` has room for; None is its own estimate.
        njmax: Constraint rows per environment that `mujoco_warp` has room for; None is its own estimate.
    """

    model: str | Path | mujoco.MjModel
    engine: str = "mujoco"
    num_envs: int = 1
    nconmax: int | None = None
    njmax: int | None = None

    def __post_init__(self):
        if self.engine not in _ENGINES:
            raise UnknownNameError("engine", self.engine, _ENGINES)
        if self.num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {self.num_envs}")

    def with_model(self, model: str | Path | mujoco.MjModel) -> "MujocoPhysicsCfg":
        """The same configuration for another model."""
        return replace(self, model=model)

    def create(self, device: str, timestep: float | None = None) -> PhysicsEngine:
        """Load the model and build the engine.

        Args:
            device: Where `mujoco_warp` runs; the other engines run on the CPU.
            timestep: Replaces the model's own [s].

        Raises:
            ModelLoadError: The model is missing or broken.
            ValueError: The engine does not run on `device`.
        """
        model = load_mujoco_model(self.model, timestep)
        return _ENGINES[self.engine](model, self, device)


class _MujocoModelEngine(PhysicsEngine):
    """What the engines have in common: a compiled model."""

    def __init__(self, model: mujoco.MjModel, cfg: MujocoPhysicsCfg):
        self.model = model
        self.num_envs = cfg.num_envs
        self.control_range = np.full((model.nu, 2), (-np.inf, np.inf))
        limited = model.actuator_ctrllimited.astype(bool)
        self.control_range[limited] = model.actuator_ctrlrange[limited]

    @property
    def timestep(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The model's timestep [s], which the user may change between steps."""
        return self.model.opt.timestep

    def keyframe_control(self, keyframe: str | int) -> np.ndarray:
        """The controls that a keyframe holds, shape (nu,)."""
        return self.model.key_ctrl[find_keyframe(self.model, keyframe)].copy()

    def _checked_control(self, control: np.ndarray) -> np.ndarray:
        shape = (self.num_envs, self.model.nu)
        if np.shape(control) != shape:
            raise ValueError(f"control must have shape {shape}, got {np.shape(control)}")
        return np.asarray(control)

    def _checked_envs(self, env_ids: Sequence[int] | None) -> np.ndarray:
        ids = np.arange(self.num_envs) if env_ids is None else np.asarray(env_ids, dtype=np.int64).reshape(-1)
        if ids.size and not (ids.min() >= 0 and ids.max() < self.num_envs):
            raise ValueError(f"env_ids must lie in [0, {self.num_envs}), got {ids.tolist()}")
        return ids


class MujocoEngine(_MujocoModelEngine):
    """The C engine, one `MjData` per environment.

    Attributes:
        datas: The `mujoco.MjData` of each environment.
    """

    def __init__(self, model: mujoco.MjModel, cfg: MujocoPhysicsCfg, device: str):
        _require_cpu(cfg.engine, device)
        super().__init__(model, cfg)
        self.datas = [mujoco.MjData(model) for _ in range(cfg.num_envs)]
        self.reset()
        self.backend = (
            MujocoSceneDataBackend(model, self.data)
            if cfg.num_envs == 1
            else MujocoDataListSceneDataBackend(model, self.datas)
        )

    @property
    def data(self) -> mujoco.MjData:
        """The first environment's `mujoco.MjData`."""
        return self.datas[0]

    def step(self) -> None:
        """Advance every environment by one timestep."""
        for data in self.datas:
            mujoco.mj_step(self.model, data)

    def reset(self, env_ids: Sequence[int] | None = None, keyframe: str | int | None = None) -> None:
        """Reset these environments, or all."""
        key = None if keyframe is None else find_keyframe(self.model, keyframe)
        for env in self._checked_envs(env_ids):
            if key is None:
                mujoco.mj_resetData(self.model, self.datas[env])
            else:
                mujoco.mj_resetDataKeyframe(self.model, self.datas[env], key)
            mujoco.mj_forward(self.model, self.datas[env])

    def set_control(self, control: np.ndarray) -> None:
        """Set the controls, shape (N, nu)."""
        for data, row in zip(self.datas, self._checked_control(control), strict=True):
            data.ctrl[:] = row


class MujocoBatchEngine(_MujocoModelEngine):
    """Many environments on CPU threads.

    Attributes:
        batch: The `mujoco.batch.Batch`.
    """

    def __init__(self, model: mujoco.MjModel, cfg: MujocoPhysicsCfg, device: str):
        _require_cpu(cfg.engine, device)
        super().__init__(model, cfg)
        sleeps = bool(model.opt.enableflags & (mujoco.mjtEnableBit.mjENBL_SLEEP | mujoco.mjtEnableBit.mjENBL_IPC))
        threads = min(os.cpu_count() or 1, cfg.num_envs)
        self.batch = mujoco.batch.Batch(model, cfg.num_envs, threads, persistent=sleeps)
        self._control = self.batch.bind("ctrl")
        self.reset()
        self.backend = MujocoBatchSceneDataBackend(self.batch)

    def step(self) -> None:
        """Advance every environment by one timestep."""
        self.batch.step()

    def reset(self, env_ids: Sequence[int] | None = None, keyframe: str | int | None = None) -> None:
        """Reset these environments, or all."""
        key = -1 if keyframe is None else find_keyframe(self.model, keyframe)
        ids = self._checked_envs(env_ids)
        if ids.size:
            self.batch.reset(ids, keyframe=key)

    def set_control(self, control: np.ndarray) -> None:
        """Set the controls, shape (N, nu)."""
        self._control[:] = self._checked_control(control)


class MujocoWarpEngine(_MujocoModelEngine):
    """Many environments on the device.

    A user may write `data` at any time, and a look at it would cost a device synchronisation, so its backend
    publishes anew at every read.

    Attributes:
        warp_model: The `mujoco_warp.Model`.
        data: The `mujoco_warp.Data`.
    """

    def __init__(self, model: mujoco.MjModel, cfg: MujocoPhysicsCfg, device: str):
        import mujoco_warp as mjw

        from scene_data.backends.mujoco_warp import MujocoWarpSceneDataBackend
        from scene_data.backends.mujoco_warp_model import put_model

        super().__init__(model, cfg)
        self._mjw: Any = mjw
        self._device = wp.get_device(device)
        initial = mujoco.MjData(model)
        mujoco.mj_forward(model, initial)
        with wp.ScopedDevice(self._device):
            self.warp_model = put_model(model)
            self.data = mjw.put_data(model, initial, nworld=cfg.num_envs, nconmax=cfg.nconmax, njmax=cfg.njmax)
        self._graph: wp.Graph | None = None
        self._stepped = False
        self.backend = MujocoWarpSceneDataBackend(model, self.warp_model, self.data)

    def step(self) -> None:
        """Advance every environment by one timestep; on CUDA as one graph launch."""
        with wp.ScopedDevice(self._device):
            if self._device.is_cuda and self._stepped:
                self._launch_graph()
            else:
                # The first step compiles kernels, which a capture must not meet.
                self._mjw.step(self.warp_model, self.data)
                self._stepped = True
        self.backend.mark_transforms_written()

    def _launch_graph(self) -> None:
        if self._graph is None:
            with wp.ScopedCapture() as capture:
                self._mjw.step(self.warp_model, self.data)
            self._graph = capture.graph
        wp.capture_launch(self._graph)

    def reset(self, env_ids: Sequence[int] | None = None, keyframe: str | int | None = None) -> None:
        """Reset these environments, or all."""
        mask = np.zeros(self.num_envs, dtype=bool)
        mask[self._checked_envs(env_ids)] = True
        with wp.ScopedDevice(self._device):
            self._mjw.reset_data(self.warp_model, self.data, reset=wp.array(mask, dtype=wp.bool))
            if keyframe is not None:
                key = np.where(mask, find_keyframe(self.model, keyframe), -1)
                self._mjw.reset_data_keyframe(self.warp_model, self.data, wp.array(key, dtype=wp.int32))
        self.backend.mark_transforms_written()

    def set_control(self, control: np.ndarray) -> None:
        """Set the controls, shape (N, nu)."""
        self.data.ctrl.assign(self._checked_control(control).astype(np.float32))


_ENGINES = {"mujoco": MujocoEngine, "mujoco_batch": MujocoBatchEngine, "mujoco_warp": MujocoWarpEngine}


def _require_cpu(engine: str, device: str) -> None:
    if not wp.get_device(device).is_cpu:
        raise ValueError(f"engine {engine!r} runs on the CPU, not on {device!r}; 'mujoco_warp' runs on the device.")
