"""Newton: many worlds on one device, borrowed from the caller's own states."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import newton
import warp as wp

from scene_data.backend import SceneDataBackend
from scene_data.backends.newton_cables import cable_batch
from scene_data.backends.newton_joints import AuthoredJoints
from scene_data.backends.newton_scene import describe_newton_model
from scene_data.backends.newton_worlds import NewtonWorlds
from scene_data.formats import SceneDataFormat
from scene_data.scene import SceneDescription

__all__ = ["NewtonSceneDataBackend"]


class NewtonSceneDataBackend(SceneDataBackend):
    """Publishes a `newton.State` without a copy: `body_q` as transforms, `particle_q` as points, rods as curves.

    Newton has no world body: transforms are the model's bodies in its order, which is environment-major, with whatever
    belongs to no world before or after the worlds. World `i` is environment `i`.

    **Which state.** Solvers read one state and write another, and the user swaps them. Pass a function that returns the
    present one, `lambda: self.state_0`, or assign `backend.state` after each swap; a single state that is stepped in
    place, or an even number of substeps, needs neither. Swapped arrays are found when they are read.

    **Which coordinates.** `body_q` is taken as it is, since most solvers integrate it and leave `joint_q` behind. Where
    a user writes `joint_q` instead, forward kinematics follow at the next read, once, and only for the articulations
    that were written: those whose joints were announced by `mark_joints_written`, and those whose joint coordinates
    changed since the last read while their bodies did not. A write that follows a step without a read in between cannot
    be told from the step, so announce it; or, where the solver keeps `joint_q` and derives bodies from it
    (`SolverMuJoCo`, `SolverFeatherstone`), say `joints_rule=True`, and every read evaluates all of them.

    A write on a device cannot be seen without waiting for the device. So every read publishes anew, unless the owner of
    the state promises to announce each write; then only the first read after a write does. A write announced while a
    graph is captured will be repeated by replays that run no Python: from then on every read publishes anew.

    Attributes:
        provides: What `describe_scene().native` has of the engine's own.
        simulation_time_ns: Newton keeps no time, so this is 0 until the owner of the loop sets it.

    Args:
        model: The model.
        state: A state of this model, or a function that returns the present one.
        announces_writes: Whether every step, reset and write will be followed by `mark_transforms_written` or
            `mark_joints_written`.
        joints_rule: Whether `joint_q` is the state, from which `body_q` follows.

    Raises:
        TypeError: An argument is of another type.
        ValueError: The state belongs to another model.
    """

    provides = ("newton_model",)

    def __init__(
        self,
        model: newton.Model,
        state: newton.State | Callable[[], newton.State],
        announces_writes: bool = False,
        joints_rule: bool = False,
    ):
        if not isinstance(model, newton.Model):
            raise TypeError(f"model must be a newton.Model, got {type(model).__name__}")
        self.model = model
        self.device = wp.get_device(model.device)
        self.transform_count = model.body_count
        self.transforms_timestamp = 0
        self.geometry_timestamp = 0
        self.simulation_time_ns = 0
        self.native_transform_formats = (SceneDataFormat.Transform,)
        self.native_geometry_formats = (SceneDataFormat.Points, SceneDataFormat.CapsuleEndpoints)
        self._worlds = NewtonWorlds(model)
        self.num_envs = self._worlds.num_envs
        self._joints = AuthoredJoints(model, self._worlds)
        self._announces_writes = announces_writes
        self._joints_rule = joints_rule
        self._written = True
        self._replayed = False
        self._transforms = SceneDataFormat.Transform()
        self._points = SceneDataFormat.Points()
        self.state = state
        self._borrow_arrays(self.state)
        self._joints.remember(self.state)

    # The present state

    @property
    def state(self) -> newton.State:
        """The present state. Assign the other one, or a function that returns the present one, after a swap."""
        return self._get_state()

    @state.setter
    def state(self, state: newton.State | Callable[[], newton.State]) -> None:
        get_state = state if callable(state) else lambda: state
        _check_state(self.model, get_state())
        self._get_state = get_state

    # Transforms

    @property
    def transforms(self) -> Any:
        """Poses of all bodies, `Transform` in the model's order, borrowed, or None without bodies."""
        return self._transforms if self.transform_count else None

    def get_transforms(self, output_format: Any) -> Any:
        """Publish the poses of the present state; see `SceneDataBackend.get_transforms`."""
        self.update_kinematics()
        return self.transforms

    @property
    def transform_paths(self) -> list[str]:
        """USD path of each body: `/World/envs/env_<i>/<label>`, or `/World/<label>` for what belongs to no world.

        A label's slashes stay; what names its world in front is dropped, so that worlds which are copies have the same
        names.
        """
        return self._worlds.body_paths

    def mark_transforms_written(self) -> None:
        """Announce a step, or a write to `body_q`. Within a graph's capture, it also holds for every replay."""
        self._written = True
        self._replayed |= self.device.is_capturing
        self._advance_timestamps()

    def mark_joints_written(self, env_ids: Sequence[int] | None = None) -> None:
        """Announce a write to `joint_q`: the next read computes the bodies of these environments, or of all, from it.

        Raises:
            ValueError: There is no such environment.
        """
        self._joints.announce(env_ids)
        self.mark_transforms_written()

    # Geometry

    def get_geometry_batches(self, output_format: Any = SceneDataFormat.Points) -> list[tuple[Any, dict]]:
        """Publish particles as `Points`, and rods as `CapsuleEndpoints`, both borrowed.

        Each cloth and soft body has a path, `/World/envs/env_<i>/<label>`, and so have the particles of a world that
        belong to none (`particles`), and each rod that is a chain; one that branches is seen by its shapes.
        """
        self.update_kinematics()
        return self._batches

    def mark_geometry_written(self) -> None:
        """Announce a write to particles; the same as `mark_transforms_written`."""
        self.mark_transforms_written()

    @cached_property
    def _batches(self) -> list[tuple[Any, dict[str, tuple[int, int]]]]:
        particles = self._worlds.deformable_paths("surface", "volume", "particles")
        ranges = {path: (deformable.start, deformable.end - deformable.start) for path, deformable in particles}
        batches = [(self._points, ranges)] if ranges else []
        if self._cables is not None:
            batches.append(self._cables)
        return batches

    @cached_property
    def _cables(self) -> tuple[Any, dict[str, tuple[int, int]]] | None:
        batch = cable_batch(self.model, self._worlds)
        if batch is not None:
            batch[0].transforms = self._transforms.transforms
        return batch

    # Never stale

    @property
    def kinematics_dirty(self) -> bool:
        """Whether what is published may lag the state."""
        if self._is_reconciled:
            return False
        cached = self._announces_writes and not self._replayed
        return not cached or self._written or self.device.is_capturing or self._swapped(self.state)

    def update_kinematics(self) -> None:
        """Follow a swap of states, and bring the bodies up to joint coordinates that were written."""
        if not self.kinematics_dirty:
            return
        state = self.state
        if self._swapped(state):
            self._borrow_arrays(state)
        if self._joints_rule:
            newton.eval_fk(self.model, state.joint_q, state.joint_qd, state)
        else:
            self._joints.evaluate(state)
        # What is only recorded into a graph has not happened yet.
        self._written = self.device.is_capturing
        self._advance_timestamps()

    def describe_scene(self) -> SceneDescription:
        """Describe one world and how often it is cloned, once; `native("newton_model")` is the model.

        Raises:
            ValueError: The worlds are not copies of each other, or there are moving bodies outside of them.
        """
        return self._scene

    @cached_property
    def _scene(self) -> SceneDescription:
        return describe_newton_model(self.model, self._worlds)

    def _advance_timestamps(self) -> None:
        self.transforms_timestamp += 1
        self.geometry_timestamp += 1

    def _swapped(self, state: newton.State) -> bool:
        # Objects, not addresses: the old array is kept, so its address cannot come back as another's.
        return state.body_q is not self._transforms.transforms or state.particle_q is not self._points.points

    def _borrow_arrays(self, state: newton.State) -> None:
        self._transforms.transforms = state.body_q
        self._points.points = state.particle_q
        if "_cables" in self.__dict__ and self._cables is not None:
            self._cables[0].transforms = state.body_q


def _check_state(model: newton.Model, state: Any) -> None:
    if not isinstance(state, newton.State):
        raise TypeError(f"state must be a newton.State or a function that returns one, got {type(state).__name__}")
    sizes = (
        ("bodies", model.body_count, state.body_q),
        ("particles", model.particle_count, state.particle_q),
        ("joint coordinates", model.joint_coord_count, state.joint_q),
    )
    for what, expected, array in sizes:
        if (count := 0 if array is None else len(array)) != expected:
            raise ValueError(f"state was made for another model: it has {count} {what}, the model {expected}")
