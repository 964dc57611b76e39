"""What the C engine and its batch have in common: arrays in host memory that are compared, and borrowed."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import mujoco
import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.backend import SceneDataBackend
from scene_data.backends.host_arrays import PublishedArray, borrow
from scene_data.backends.mjcf_scene import describe_model
from scene_data.formats import SceneDataFormat
from scene_data.scene import SceneDescription

__all__ = ["HostEngineBackend"]

_DIVERGED = [
    int(warning)
    for warning in (
        mujoco.mjtWarning.mjWARN_BADQPOS,
        mujoco.mjtWarning.mjWARN_BADQVEL,
        mujoco.mjtWarning.mjWARN_BADQACC,
    )
]


class _Publication:
    """One kind of pose: the engine's arrays, the struct that lends them, and its timestamp."""

    def __init__(self, names: tuple[str, ...], timestamp: int = 0):
        self.names = names
        self.timestamp = timestamp
        self.sources: tuple[NDArray[np.float64], ...] = ()
        self.arrays: tuple[PublishedArray, ...] = ()
        self.struct: Any = None

    def publish(self) -> None:
        """Advance the timestamp if the arrays hold anything new."""
        changed = [array.publish() for array in self.arrays]
        self.timestamp += any(changed)


class HostEngineBackend(SceneDataBackend):
    """Publishes poses of an engine whose data lives in host memory, in double precision, without a copy.

    Every read compares what the poses depend on (`qpos`, mocap poses, time) and the poses themselves with what was last
    published, and brings the environments that differ up to the present state. So nobody has to announce a write to the
    state; a write to the model (`model.body_pos`, ...) is announced by `mark_transforms_written`. Timestamps advance
    only when something is new.
    """

    def __init__(self, model: mujoco.MjModel, num_envs: int):
        self.model = model
        self.num_envs = num_envs
        self.device = wp.get_device("cpu")
        self.native_transform_formats = (SceneDataFormat.Vec3d_Matrix33d,)
        self.transform_count = num_envs * model.nbody
        self._transforms = _Publication(("xpos", "xmat"))
        self._cameras = _Publication(("cam_xpos", "cam_xmat"))
        self._lights = _Publication(("light_xpos", "light_xdir"))
        self._points = _Publication(("flexvert_xpos",))
        self._publications = (self._transforms, self._cameras, self._lights, self._points)
        self._stale = np.zeros(num_envs, bool)
        self._written = True
        self._readers = 0
        self._copied_points = -1
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

    @cached_property
    def transform_paths(self) -> list[str]:
        """USD path of each body, environment-major."""
        scene = self.describe_scene()
        return [path for env in range(self.num_envs) for path in scene.body_paths(env)]

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

    @cached_property
    def camera_paths(self) -> list[str]:
        """USD path of each camera, environment-major."""
        scene = self.describe_scene()
        return [path for env in range(self.num_envs) for path in scene.paths(scene.cameras, env)]

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
        """Timestamp of the flex vertices."""
        return self._points.timestamp

    def get_geometry_batches(self, output_format: Any = SceneDataFormat.Points) -> list[tuple[Any, dict]]:
        """Publish the flex vertices of the present state, `Points` at index `env * nflexvert + vertex`.

        They are copied to single precision, at most once per timestamp.
        """
        self.update_kinematics()
        if not self.model.nflexvert:
            return []
        if self._copied_points != self._points.timestamp:
            np.copyto(self._single_points, self._points.arrays[0].live, casting="same_kind")
            self._copied_points = self._points.timestamp
        return [self._points_batch]

    def mark_geometry_written(self) -> None:
        """Announce a write that moves flex vertices and cannot be seen in the state."""
        self._written = True
        self._points.timestamp += 1

    @cached_property
    def _single_points(self) -> NDArray[np.float32]:
        return np.zeros((self.num_envs, self.model.nflexvert, 3), np.float32)

    @cached_property
    def _points_batch(self) -> tuple[Any, dict[str, tuple[int, int]]]:
        points = SceneDataFormat.Points()
        points.points = wp.array(self._single_points.reshape(-1, 3), dtype=wp.vec3f, device=self.device, copy=False)
        return points, self.describe_scene().point_ranges()

    # Environments and time

    @property
    def env_time_ns(self) -> NDArray[np.int64]:
        """Simulation time of each environment [ns], `(N,)`, a copy."""
        return np.rint(self._times() * 1e9).astype(np.int64)

    @property
    def simulation_time_ns(self) -> int:
        """The latest simulation time of all environments [ns]."""
        return int(self.env_time_ns.max())

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
        return not self._readers and bool(self._stale_rows().any())

    def update_kinematics(self) -> None:
        """Bring body, geom, camera, light and flex poses up to the present state where they lag it."""
        if self._readers:
            return
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

    @contextmanager
    def consistent_read(self) -> Iterator[None]:
        """Let several reads see one state: reconcile once, on the outermost entry."""
        self.update_kinematics()
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1

    def describe_scene(self) -> SceneDescription:
        """Describe the model and its environments, once."""
        return self._scene

    @cached_property
    def _scene(self) -> SceneDescription:
        return describe_model(self.model, self.num_envs)

    def _stale_rows(self) -> NDArray[np.bool_]:
        self._times()
        self._stale[:] = self._written
        for array in self._inputs:
            array.mark_changed(self._stale)
        for publication in self._publications:
            # Poses as well: a reset zeroes them, and a state that was stepped and restored leaves them behind.
            for array in publication.arrays:
                array.mark_changed(self._stale)
        return self._stale

    def _follow_swaps(self) -> None:
        for publication in self._publications:
            for name, source in zip(publication.names, publication.sources, strict=True):
                if self._source(name) is not source:
                    self._borrow_arrays()
                    self.mark_transforms_written()
                    self.mark_geometry_written()
                    return

    def _borrow_arrays(self) -> None:
        model = self.model
        counts = (model.nbody, model.ncam, model.nlight, model.nflexvert)
        for publication, count in zip(self._publications, counts, strict=True):
            publication.sources = tuple(self._source(name) for name in publication.names)
            rows = [source.reshape(self.num_envs, *source.shape[-2:]) for source in publication.sources]
            publication.arrays = tuple(PublishedArray(array) for array in rows) if count else ()
        self._transforms.struct = _lend_poses(self._transforms)
        self._cameras.struct = _lend_poses(self._cameras)
        self._lights.struct = _lend_directions(self._lights)

    def _note_divergence(self) -> None:
        times = self._times()
        warnings = self._warnings()[:, _DIVERGED].sum(axis=1)
        # The engine's reset rewinds the clock, clears the counters, and counts its reason.
        rewound = times < self._seen_times
        self._divergences += np.where(rewound, warnings, np.maximum(warnings - self._seen_warnings, 0))
        self._seen_warnings[:] = warnings
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
