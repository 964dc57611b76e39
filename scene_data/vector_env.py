"""SimulationVectorEnv: a simulation as Gymnasium's vector environment."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from scene_data.errors import UnknownNameError
from scene_data.optional import optional_libraries
from scene_data.simulation import SimulationContext
from scene_data.vector_observation import VectorObservation, of_kind, on_host
from scene_data.vector_task import VectorTask

with optional_libraries("A vector environment"):
    from gymnasium.error import ResetNeeded
    from gymnasium.spaces import Box
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space

__all__ = ["SimulationVectorEnv", "VectorTask"]

Step = tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]


class SimulationVectorEnv(VectorEnv[dict[str, Any], Any, Any]):
    """The environments of a `SimulationContext` as one `gymnasium.vector.VectorEnv`.

    An observation always belongs to the present state, the first one after a reset included, and what ended an episode
    is observed before its environment is reset. Observations are dictionaries: images by `"<camera>/<data type>"`, such
    as `"front/rgb"`, shape (N, H, W, C), and the task's `"state"`, float32 (N, k). Actions are the controls of all
    actuators, float32 (N, nu), within the actuators' control ranges.

    An environment that diverges ends its episode (`terminated`, reward 0) and is named in `info["diverged"]`.

    Args:
        sim: The simulation, in the synchronous render mode where images are observed; closed with this.
        task: What makes it a task.
        observe: Keys of the observations; None is all cameras with all their data types, and the state.
        arrays: `"numpy"`: everything returned is the caller's own. `"torch"`: tensors on the device; images are the
            frames themselves, which are read-only and count as held while they live.
        autoreset_mode: What becomes of an environment whose episode has ended. `NEXT_STEP`: the next step resets it,
            with reward 0, whatever its action. `SAME_STEP`: it is reset at once, and `info["final_obs"]` holds what it
            observed before; with images, a second rendering of all environments. `DISABLED`: the caller resets it.
        render_camera: The camera whose `rgb` images `render()` returns.

    Raises:
        UnknownNameError: A camera or key is not known.
        ValueError: The simulation's images lag its state, or the task's state has another shape.
        MissingDependencyError: torch is asked for and not installed.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012  (Gymnasium's own spelling)
    _RESET_MASK: ClassVar[str] = "reset_mask"

    def __init__(
        self,
        sim: SimulationContext,
        task: VectorTask,
        *,
        observe: Sequence[str] | None = None,
        arrays: str = "numpy",
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        render_camera: str | None = None,
    ):
        self.sim = sim
        self.task = task
        self.num_envs = sim.num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self._observation = VectorObservation(sim, self._read_state().shape[1], observe, arrays)
        if render_camera is not None and "rgb" not in _data_types(sim, render_camera):
            raise ValueError(f"render_camera {render_camera!r} has no 'rgb'")
        self._render_camera = render_camera
        self.render_mode = None if render_camera is None else "rgb_array"
        low, high = sim.physics.control_range.astype(np.float32).T
        self.single_action_space = Box(low, high, dtype=np.float32)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.single_observation_space = self._observation.space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._episode_steps = np.zeros(self.num_envs, np.int64)
        self._ended = np.zeros(self.num_envs, bool)
        self._divergences = self._count_divergences()
        self._was_reset = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start new episodes.

        Args:
            seed: Seeds the generator that initial states are drawn from; None goes on with it.
            options: `"reset_mask"`, bool (N,), names the environments to reset; by default all, and the clock.

        Returns:
            What all environments observe, also those that were not reset; and no information.

        Raises:
            ValueError: `reset_mask` is not bool of shape (N,).
        """
        super().reset(seed=seed)
        mask = (options or {}).get(self._RESET_MASK)
        if mask is None:
            self.sim.reset(keyframe=self.task.keyframe)
            self._begin_episodes(np.arange(self.num_envs))
            self._was_reset = True
        else:
            self._reset_envs(self._checked_mask(mask))
        return self._observation.read(self._read_state()), {}

    def step(self, actions: Any) -> Step:
        """Set the controls, and advance all environments by `frame_skip` physics steps.

        Args:
            actions: Controls, shape (N, nu), NumPy or torch, in force until the next step.

        Returns:
            What the environments observe now, and, each (N,), rewards, whether a state ended the episode, and whether
            the time limit did. The information holds `"final_obs"` and `"diverged"` where there is any, and, as is
            Gymnasium's custom, their masks under the same names after an underscore.

        Raises:
            ResetNeeded: There was no `reset()`, or, with autoreset disabled, an environment has ended.
            ValueError: `actions` has another shape.
        """
        self._require_running()
        self._advance(on_host(actions))
        state = self._read_state()
        ended, running = self._ended, ~self._ended
        diverged = self._find_divergences(state) & running
        rewards = np.where(running & ~diverged, on_host(self.task.reward(state, of_kind(state, actions))), 0.0)
        terminated = (self._find_terminated(state) | diverged) & running
        truncated = (self._episode_steps >= (self.task.max_episode_steps or np.inf)) & running
        finished = self._ended = terminated | truncated
        info = {"diverged": diverged, "_diverged": diverged.copy()} if diverged.any() else {}
        due = ended  # in the next-step mode, the step just made was nothing to these
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            due = finished
            if due.any():
                info.update(self._final_observations(state, due))
        if due.any():
            self._reset_envs(due)
            state = self._read_state()
        returned = self._observation.returned
        return self._observation.read(state), returned(rewards), returned(terminated), returned(truncated), info

    def render(self) -> tuple[Any, ...] | None:
        """An image of each environment, uint8 (H, W, 3), from `render_camera`; None where none was named."""
        if self._render_camera is None:
            return None
        return tuple(self.sim.cameras[self._render_camera].data.lease("rgb").numpy().copy())

    def close_extras(self, **kwargs: Any) -> None:
        """Close the simulation."""
        self.sim.close()

    # -- inside

    def _require_running(self) -> None:
        if not self._was_reset:
            raise ResetNeeded("call reset() before the first step()")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            raise ResetNeeded(
                f"environments {np.flatnonzero(self._ended).tolist()} have ended; reset them, for example by "
                "reset(options={'reset_mask': terminated | truncated})"
            )

    def _advance(self, control: np.ndarray) -> None:
        with self.sim.physics_lock:
            self.sim.physics.set_control(control)
        for _ in range(self.task.frame_skip - 1):
            self.sim.step(render=False)
        self.sim.step()
        self._episode_steps += 1

    def _read_state(self) -> Any:
        with self.sim.physics_lock, self.sim.provider.consistent_read():
            state = self.task.state(self.sim)
        shape = np.shape(state)
        if len(shape) != 2 or shape[0] != self.num_envs:
            raise ValueError(f"the task's state must have shape ({self.num_envs}, k), got {tuple(shape)}")
        return state

    def _find_terminated(self, state: Any) -> np.ndarray:
        if self.task.terminated is None:
            return np.zeros(self.num_envs, bool)
        return on_host(self.task.terminated(state)).astype(bool)

    def _find_divergences(self, state: Any) -> np.ndarray:
        """Environments that their engine has reset since the last look, or whose state is not finite."""
        counted, self._divergences = self._divergences, self._count_divergences()
        return (self._divergences != counted) | ~np.isfinite(on_host(state)).all(axis=1)

    def _count_divergences(self) -> np.ndarray:
        # Engines that let a diverged environment be do not count; their states tell.
        counts = getattr(self.sim.physics.backend, "divergence_counts", None)
        return np.zeros(self.num_envs, np.int64) if counts is None else counts

    def _final_observations(self, state: Any, ended: np.ndarray) -> dict[str, Any]:
        observation = self._observation.read(state)
        final = np.full(self.num_envs, None, dtype=object)
        for env in np.flatnonzero(ended).tolist():
            final[env] = self._observation.rows(observation, env)
        return {"final_obs": final, "_final_obs": ended.copy()}

    def _reset_envs(self, mask: np.ndarray) -> None:
        env_ids = np.flatnonzero(mask)
        self.sim.reset(env_ids=env_ids.tolist(), keyframe=self.task.keyframe)
        self._begin_episodes(env_ids)

    def _begin_episodes(self, env_ids: np.ndarray) -> None:
        if self.task.randomize is not None:
            with self.sim.physics_lock:
                self.task.randomize(self.sim, env_ids, self.np_random)
                self.sim.forward()
        self._episode_steps[env_ids] = 0
        self._ended[env_ids] = False

    def _checked_mask(self, mask: Any) -> np.ndarray:
        mask = on_host(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != bool:
            raise ValueError(f"reset_mask must be bool of shape ({self.num_envs},), got {mask.dtype} of {mask.shape}")
        return mask


def _data_types(sim: SimulationContext, camera: str) -> tuple[str, ...]:
    if camera not in sim.cameras:
        raise UnknownNameError("camera", camera, sim.cameras)
    return sim.cameras[camera].cfg.data_types
