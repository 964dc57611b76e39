"""Newton as a SimulationContext steps it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import newton
import numpy as np
import warp as wp

from scene_data.backends.newton import NewtonSceneDataBackend
from scene_data.backends.newton_worlds import NewtonWorlds, array_or_empty
from scene_data.errors import UnknownNameError
from scene_data.physics import PhysicsEngine

__all__ = ["NewtonEngine", "NewtonPhysicsCfg"]

wp.set_module_options({"enable_backward": False})

_SOLVERS = {
    "xpbd": newton.solvers.SolverXPBD,
    "mujoco": newton.solvers.SolverMuJoCo,
    "featherstone": newton.solvers.SolverFeatherstone,
    "semi_implicit": newton.solvers.SolverSemiImplicit,
    "vbd": newton.solvers.SolverVBD,
}
# These integrate joint coordinates, and the poses of bodies follow from them.
_JOINTS_RULE = {"mujoco", "featherstone"}


@dataclass
class NewtonPhysicsCfg:
    """A Newton model, and the solver that steps it.

    Attributes:
        model: A `newton.ModelBuilder` with one environment, which is cloned, or a finalized `newton.Model`, which has
            as many environments as it has worlds.
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

    def with_model(self, model: newton.ModelBuilder | newton.Model) -> "NewtonPhysicsCfg":
        """The same configuration for another model."""
        return replace(self, model=model)

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
        # MuJoCo finds contacts by itself.
        self._collision = newton.CollisionPipeline(model) if solver != "mujoco" else None
        self._contacts = self._collision.contacts() if self._collision else None
        forces = model.joint_dof_count // self.num_envs
        self.control_range = np.full((forces, 2), (-np.inf, np.inf))
        self._times = np.zeros(self.num_envs, np.int64)
        self._owners = _owners(model)
        self.backend = NewtonSceneDataBackend(model, lambda: self.state, joints_rule=solver in _JOINTS_RULE)

    def step(self) -> None:
        """Advance every environment by one timestep."""
        self.state.clear_forces()
        if self._collision and self._contacts:
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
        # As Newton's solvers take it: the last entry is for what belongs to no world.
        chosen = np.zeros(self.num_envs + 1, bool)
        chosen[ids] = True
        chosen[-1] = env_ids is None
        mask = wp.array(chosen, dtype=wp.bool, device=self.model.device)
        for field, owners in self._owners.items():
            _restore(owners, mask, getattr(self._initial, field), getattr(self.state, field))
        self.solver.reset(self.state, mask)
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


def _owners(model: newton.Model) -> dict[str, wp.array]:
    """World of each row of the arrays that a state consists of, or 0 where a model has no worlds."""
    worlds = NewtonWorlds(model)
    joints = array_or_empty(model.joint_world)

    def per_joint(starts: wp.array) -> np.ndarray:
        return np.repeat(joints, np.diff(array_or_empty(starts)))

    bodies, particles = array_or_empty(model.body_world), array_or_empty(model.particle_world)
    owners = {"body_q": bodies, "body_qd": bodies, "particle_q": particles, "particle_qd": particles}
    if len(joints):
        owners |= {"joint_q": per_joint(model.joint_q_start), "joint_qd": per_joint(model.joint_qd_start)}
    return {
        field: wp.array(rows if worlds.has_worlds else np.zeros_like(rows), dtype=wp.int32, device=model.device)
        for field, rows in owners.items()
        if len(rows)
    }


def _restore(owners: wp.array, mask: wp.array, initial: wp.array, present: wp.array) -> None:
    rows = [array.view(wp.float32).reshape((len(owners), -1)) for array in (initial, present)]
    wp.launch(_restore_rows, dim=rows[0].shape, inputs=[owners, mask, rows[0]], outputs=[rows[1]], device=owners.device)


@wp.kernel
def _restore_rows(
    owners: wp.array(dtype=wp.int32),
    mask: wp.array(dtype=wp.bool),
    initial: wp.array2d(dtype=wp.float32),
    present: wp.array2d(dtype=wp.float32),
):
    row, column = wp.tid()
    world = owners[row]
    if world < 0:
        world = mask.shape[0] - 1
    if mask[world]:
        present[row, column] = initial[row, column]
