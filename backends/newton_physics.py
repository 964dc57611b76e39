"""Newton as a SimulationContext steps it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import newton
import numpy as np
import warp as wp

from scene_data.backends.newton import NewtonSceneDataBackend
from scene_data.errors import UnknownNameError
from scene_data.physics import PhysicsEngine

__all__ = ["NewtonEngine", "NewtonPhysicsCfg"]

_SOLVERS = {
    "xpbd": newton.solvers.SolverXPBD,
    "mujoco": newton.solvers.SolverMuJoCo,
    "featherstone": newton.solvers.SolverFeatherstone,
    "semi_implicit": newton.solvers.SolverSemiImplicit,
    "vbd": newton.solvers.SolverVBD,
}
# These integrate joint coordinates, and the poses of bodies follow from them.
_JOINTS_RULE = {"mujoco", "featherstone"}
_STATE_FIELDS = {
    "body": ("body_q", "body_qd"),
    "particle": ("particle_q", "particle_qd"),
    "joint_coord": ("joint_q",),
    "joint_dof": ("joint_qd",),
}


@dataclass
class NewtonPhysicsCfg:
    """A Newton model, and the solver that steps it.

    Attributes:
        model: A `newton.ModelBuilder` with one environment, which is cloned, or a finalized `newton.Model`, which has as
            many environments as it has worlds.
        solver: `"xpbd"`, `"mujoco"`, `"featherstone"`, `"semi_implicit"` or `"vbd"`.
        num_envs: Number of environments that a builder is cloned into.
        timestep: Simulation time of one step [s].
        ground: Whether a builder's environments stand on a plane, which belongs to none of them.
    """

    model: newton.ModelBuilder | newton.Model
    solver: str = "xpbd"
    num_envs: int = 1
    timestep: float = 1 / 240
    ground: bool = False

    def __post_init__(self):
        if self.solver not in _SOLVERS:
            raise UnknownNameError("solver", self.solver, _SOLVERS)
        if self.num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {self.num_envs}")
        if not self.timestep > 0:
            raise ValueError(f"timestep must be positive, got {self.timestep}")

    def create(self, device: str, timestep: float | None = None) -> "NewtonEngine":
        """Build the engine.

        Args:
            device: Where a builder's model is put; a finalized model is there already.
            timestep: Replaces the configured one [s].

        Raises:
            ValueError: A finalized model is on another device or has other environments than `num_envs`.
            TypeError: `model` is something else.
        """
        return NewtonEngine(self._build(device), self.solver, self.timestep if timestep is None else timestep)

    def _build(self, device: str) -> newton.Model:
        if isinstance(self.model, newton.Model):
            if wp.get_device(self.model.device) != wp.get_device(device):
                raise ValueError(f"The model is on {self.model.device}, not on {device}.")
            if self.num_envs not in (1, self.model.world_count):
                raise ValueError(f"The model has {self.model.world_count} worlds, not {self.num_envs}.")
            return self.model
        if not isinstance(self.model, newton.ModelBuilder):
            kind = type(self.model).__name__
            raise TypeError(f"model must be a newton.ModelBuilder or a newton.Model, got {kind}")
        builder = newton.ModelBuilder()
        if self.ground:
            builder.add_ground_plane()
        builder.replicate(self.model, self.num_envs)
        if self.solver == "vbd":
            builder.color()
        return builder.finalize(device=device)


class NewtonEngine(PhysicsEngine):
    """Newton's worlds on one device.

    Controls are the generalized forces of all degrees of freedom (`joint_f`) [N or N m].

    Attributes:
        model: The `newton.Model`.
        state: The present `newton.State`.
        solver: The solver.
    """

    def __init__(self, model: newton.Model, solver: str, timestep: float):
        self.model = model
        self.num_envs = max(model.world_count, 1)
        self.timestep = timestep
        self.state, self._next = model.state(), model.state()
        newton.eval_fk(model, model.joint_q, model.joint_qd, self.state)
        self._initial = model.state()
        self._initial.assign(self.state)
        self.solver = _SOLVERS[solver](model)
        self._control = model.control()
        self._collision = None if solver == "mujoco" else newton.CollisionPipeline(model)
        self._contacts = None if self._collision is None else self._collision.contacts()
        dofs = model.joint_dof_count // self.num_envs
        limits = model.joint_effort_limit.numpy()[:dofs] if dofs else np.zeros(0)
        self.control_range = np.column_stack((-limits, limits))
        self._times = np.zeros(self.num_envs, np.int64)
        self.backend = NewtonSceneDataBackend(model, lambda: self.state, joints_rule=solver in _JOINTS_RULE)

    def step(self) -> None:
        """Advance every environment by one timestep."""
        self.state.clear_forces()
        if self._collision is not None:
            self._collision.collide(self.state, self._contacts)
        self.solver.step(self.state, self._next, self._control, self._contacts, self.timestep)
        self.state, self._next = self._next, self.state
        self._times += round(self.timestep * 1e9)
        self._publish()

    def reset(self, env_ids: Sequence[int] | None = None, keyframe: str | int | None = None) -> None:
        """Return these environments, or all, to the model's state."""
        if keyframe is not None:
            raise UnknownNameError("keyframe", keyframe, ())
        ids = np.arange(self.num_envs) if env_ids is None else np.asarray(env_ids, dtype=np.int64).reshape(-1)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.num_envs:
            raise ValueError(f"env_ids must lie in [0, {self.num_envs}), got {ids.tolist()}")
        for kind, fields in _STATE_FIELDS.items():
            starts = self._starts(kind)
            for field in fields:
                initial, present = getattr(self._initial, field), getattr(self.state, field)
                for env in ids if initial is not None else ():
                    wp.copy(present, initial, int(starts[env]), int(starts[env]), int(starts[env + 1] - starts[env]))
        self._times[ids] = 0
        self._publish()

    def set_control(self, control: np.ndarray) -> None:
        """Set the generalized forces, shape (N, nu)."""
        shape = (self.num_envs, len(self.control_range))
        if np.shape(control) != shape:
            raise ValueError(f"control must have shape {shape}, got {np.shape(control)}")
        if self._control.joint_f is not None:
            self._control.joint_f.assign(np.asarray(control, np.float32).reshape(-1))

    def keyframe_control(self, keyframe: str | int) -> np.ndarray:
        """Newton's models have no keyframes."""
        raise UnknownNameError("keyframe", keyframe, ())

    def _publish(self) -> None:
        self.backend.env_time_ns = self._times.copy()
        self.backend.simulation_time_ns = int(self._times.max())
        self.backend.mark_transforms_written()

    def _starts(self, kind: str) -> Any:
        starts = getattr(self.model, f"{kind}_world_start", None)
        if self.model.world_count > 1 or starts is None:
            return starts.numpy()
        return starts.numpy()
