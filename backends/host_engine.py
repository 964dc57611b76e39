"""What the C engine and its batch have in common: arrays in host memory that are compared, and borrowed."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import mujoco
import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.backends.host_arrays import PublishedArray, borrow
from scene_data.backends.host_geometry import HostGeometry
from scene_data.backends.model_backend import ModelBackend
from scene_data.formats import SceneDataFormat

__all__ = ["HostEngineBackend"]

# What MuJoCo warns of when a state is not a number: positions, velocities and accelerations, one after the other.
_FIRST_DIVERGED, _LAST_DIVERGED = int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADQACC)


class _Publication:
    """One kind of pose: how many there are, the engine's arrays, the struct that lends them, and its timestamp."""

    def __init__(self, names: tuple[str, ...], count: int):
        self.names = names
        self.count = count
        self.timestamp = 0
        self.sources: tuple[NDArray[np.float64], ...] = ()
        self.arrays: tuple[PublishedArray, ...] = ()
        self.struct: Any = None

    def publish(self) -> None:
        """Advance the timestamp if the arrays hold anything new."""
        changed = [array.publish() for array in self.arrays]
        self.timestamp += any(changed)


class HostEngineBackend(ModelBackend):
    """Publishes poses of an engine whose data lives in host memory, in double precision, without a copy.

    Every read compares what the poses depend on (`qpos`, mocap poses, time) and the poses themselves with what was last
    published, and brings the environments that differ up to the present state. So nobody has to announce a write to the
    state; a write to the model (`model.body_pos`, ...) is announced by `mark_transforms_written`. Timestamps advance
    only when something is new.
    """

    def __init__(self, model: mujoco.MjModel, num_envs: int):
        super().__init__(model, num_envs)
        self.model = model
        self.device = wp.get_device("cpu")
        self.native_transform_formats = (SceneDataFormat.Vec3d_Matrix33d,)
        self._transforms = _Publication(("xpos", "xmat"), model.nbody)
        self._cameras = _Publication(("cam_xpos", "cam_xmat"), model.ncam)
        self._lights = _Publication(("light_xpos", "light_xdir"), model.nlight)
        self._points = _Publication(("flexvert_xpos",), model.nflexvert)
        self._publications: tuple[_Publication, ...] = (self._transforms, self._cameras, self._lights, self._points)
        self._point_publications: tuple[_Publication, ...] = (self._points,)
        self._stale = np.zeros(num_envs, bool)
        self._written = True
        self._divergences = np.zeros(num_envs, np.int64)
        self._seen_warnings = np.zeros(num_envs, np.int64)
        self._seen_times = np.full(num_envs, -np.inf)
        self._borrow_arrays()
        self._inputs = tuple(PublishedArray(array) for array in self._state_arrays())

    # What an engine says of itself

    @abstractmethod
    def _source(self, name: str) -> NDArray[np.float64]:
        """The live array of a derived field, the same object for as long as it stays where it is."""

    @abstractmethod
    def _state_arrays(self) -> tuple[NDArray[np.float64], ...]:
        """Live arrays of the state that poses depend on, one row per environment."""

    @abstractmethod
    def _times(self) -> NDArray[np.float64]:
        """Time of each environment [s], `(N,)`, live."""

    @abstractmethod
    def _warnings(self) -> NDArray[np.int32]:
        """Live warning counters, `(N, mjNWARNING)`."""

    @abstractmethod
    def _refresh(self, stale: NDArray[np.bool_]) -> None:
        """Compute the poses of these environments from their state, and nothing that the next step depends on."""

    # Transforms

    @property
    def transforms(self) -> Any:
        """Poses of all bodies, `Vec3d_Matrix33d` at index `env * nbody + body`, borrowed from the engine."""
        return self._transforms.struct

    @property
    def transforms_timestamp(self) -> int:
        """Timestamp of the transforms."""
        return self._transforms.timestamp

    def get_transforms(self, output_format: Any) -> Any:
        """Publish the poses of the present state; see `SceneDataBackend.get_transforms`."""
        self.update_kinematics()
        return self._transforms.struct

    def mark_transforms_written(self) -> None:
        """Announce a write that cannot be seen in the state, such as one to the model's own poses."""
        self._written = True
        for publication in (self._transforms, self._cameras, self._lights):
            publication.timestamp += 1

    # Cameras and lights

    @property
    def cameras_timestamp(self) -> int:
        """Timestamp of the camera poses."""
        return self._cameras.timestamp

    def get_camera_poses(self) -> Any:
        """Publish the camera poses of the present state, `Vec3d_Matrix33d`, or None without cameras."""
        self.update_kinematics()
        return self._cameras.struct

    @property
    def lights_timestamp(self) -> int:
        """Timestamp of the light poses."""
        return self._lights.timestamp

    def get_light_poses(self) -> Any:
        """Publish the light poses of the present state, `Vec3d_Direction`, or None without lights."""
        self.update_kinematics()
        return self._lights.struct

    # Geometry

    @property
    def geometry_timestamp(self) -> int:
        """Timestamp of the points."""
        return sum(publication.timestamp for publication in self._point_publications)

    @property
    def native_geometry_formats(self) -> tuple[Any, ...]:
        """Formats of what is published."""
        return (SceneDataFormat.Points, SceneDataFormat.SkinnedPoints, SceneDataFormat.CapsuleEndpoints)

    def get_geometry_batches(self, output_format: Any = SceneDataFormat.Points) -> list[tuple[Any, dict]]:
        """Publish what points follow from in the present state: flexes, skins, cables and tendons, in this order.

        Flex vertices are `Points` at index `env * nflexvert + vertex`, skins are `SkinnedPoints`, cables
        `CapsuleEndpoints`, and spatial tendons `Points`. Each is refreshed at most once per timestamp, and nothing
        before somebody asks.
        """
        self.update_kinematics()
        geometry = self._geometry
        geometry.refresh(self.geometry_timestamp)
        return geometry.batches

    def mark_geometry_written(self) -> None:
        """Announce a write that moves flex vertices and cannot be seen in the state."""
        self._written = True
        self._points.timestamp += 1

    @cached_property
    def _geometry(self) -> HostGeometry:
        """The points, from the first request on, which also is when the engine's fields for them are borrowed."""
        geometry = HostGeometry(self.describe_scene(), self._source)
        if geometry.follows_bodies:
            self._point_publications += (self._transforms,)
        if geometry.follows_tendons:
            paths = _Publication(("wrap_xpos",), self.model.nwrap)
            self._borrow(paths)
            self._publications += (paths,)
            self._point_publications += (paths,)
        if geometry.fields:
            for name in geometry.fields:
                self._source(name)
            # What an engine lends for the first time may be empty until it computes it.
            self._written = True
            self._reconcile()
        return geometry

    # Environments and time

    @property
    def simulation_time_ns(self) -> int:
        """The latest simulation time of all environments [ns]."""
        return int(np.rint(self._times().max() * 1e9))

    @property
    def env_time_ns(self) -> NDArray[np.int64]:
        """Simulation time of each environment [ns], `(N,)`, a copy."""
        return np.rint(self._times() * 1e9).astype(np.int64)

    @property
    def divergence_counts(self) -> NDArray[np.int64]:
        """How often each environment has diverged, `(N,)`, a copy: MuJoCo resets a NaN state without a word.

        Counted when somebody reads, from the engine's warning counters. A reset clears those, so several divergences of
        an environment between two reads count as one.
        """
        self._note_divergence()
        return self._divergences.copy()

    # Never stale

    @property
    def kinematics_dirty(self) -> bool:
        """Whether the poses of any environment lag its state."""
        return not self._is_reconciled and bool(self._stale_rows().any())

    def update_kinematics(self) -> None:
        """Bring body, geom, camera, light and flex poses up to the present state where they lag it."""
        if not self._is_reconciled:
            self._reconcile()

    def _reconcile(self) -> None:
        self._follow_swaps()
        stale = self._stale_rows()
        if not stale.any():
            return
        self._note_divergence()
        self._refresh(stale)
        self._written = False
        for array in self._inputs:
            array.publish()
        for publication in self._publications:
            publication.publish()

    def _stale_rows(self) -> NDArray[np.bool_]:
        self._times()
        self._stale[:] = self._written
        # The state first, which is small and differs everywhere after a step. Poses as well: a reset zeroes them, and a
        # state that was stepped and restored leaves them behind.
        for array in self._watched():
            if self._stale.all():
                break
            array.mark_changed(self._stale)
        return self._stale

    def _watched(self) -> Iterator[PublishedArray]:
        yield from self._inputs
        for publication in self._publications:
            yield from publication.arrays

    def _follow_swaps(self) -> None:
        for publication in self._publications:
            for name, source in zip(publication.names, publication.sources, strict=True):
                if self._source(name) is not source:
                    self._borrow_arrays()
                    self.mark_transforms_written()
                    self.mark_geometry_written()
                    return

    def _borrow_arrays(self) -> None:
        for publication in self._publications:
            self._borrow(publication)
        self._transforms.struct = _lend_poses(self._transforms)
        self._cameras.struct = _lend_poses(self._cameras)
        self._lights.struct = _lend_directions(self._lights)

    def _borrow(self, publication: _Publication) -> None:
        publication.sources = tuple(self._source(name) for name in publication.names)
        rows = [source.reshape(self.num_envs, *source.shape[-2:]) for source in publication.sources]
        publication.arrays = tuple(PublishedArray(array) for array in rows) if publication.count else ()

    def _note_divergence(self) -> None:
        times, warnings = self._times(), self._warnings()[:, _FIRST_DIVERGED : _LAST_DIVERGED + 1]
        if warnings.any() or self._seen_warnings.any():
            counts = warnings.sum(axis=1)
            # The engine's reset rewinds the clock, clears the counters, and counts its reason.
            rewound = times < self._seen_times
            self._divergences += np.where(rewound, counts, np.maximum(counts - self._seen_warnings, 0))
            self._seen_warnings[:] = counts
        self._seen_times[:] = times


def _lend_poses(publication: _Publication) -> Any:
    if not publication.arrays:
        return None
    struct = SceneDataFormat.Vec3d_Matrix33d()
    struct.positions = borrow(publication.arrays[0].live, wp.vec3d)
    struct.orientations = borrow(publication.arrays[1].live, wp.mat33d)
    return struct


def _lend_directions(publication: _Publication) -> Any:
    if not publication.arrays:
        return None
    struct = SceneDataFormat.Vec3d_Direction()
    struct.positions = borrow(publication.arrays[0].live, wp.vec3d)
    struct.directions = borrow(publication.arrays[1].live, wp.vec3d)
    return struct
