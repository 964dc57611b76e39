"""Geometry of an engine in host memory: flex vertices in single precision, and what follows from poses and paths."""

from collections.abc import Callable
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.backends.mujoco_geometry import DerivedGeometry
from scene_data.formats import SceneDataFormat
from scene_data.scene import SceneDescription

__all__ = ["HostGeometry"]

_POSE_FIELDS = ("xpos", "xquat")
_PATH_FIELDS = ("ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos")


class HostGeometry:
    """Publications of all points, brought up to the engine's arrays on request.

    Args:
        scene: The scene and its environments.
        source: Function that gives the live array of a derived field by name, as it is at the moment.

    Attributes:
        batches: Publications and their ranges by path: flexes first, then skins, cables and tendons.
        follows_bodies: Whether anything follows from body poses.
        follows_tendons: Whether anything follows from tendon paths.
        fields: Names of the fields that are read for these.
    """

    def __init__(self, scene: SceneDescription, source: Callable[[str], NDArray]):
        self._source = source
        self._num_envs = scene.num_envs
        self._timestamp = -1
        self._vertices = np.zeros((scene.num_envs * scene.point_count, 3), np.float32)
        self._derived = DerivedGeometry(scene, wp.get_device("cpu"))
        self.batches: list[tuple[Any, dict[str, tuple[int, int]]]] = list(self._derived.batches)
        if scene.point_count:
            points = SceneDataFormat.Points()
            points.points = wp.array(self._vertices, dtype=wp.vec3f, device="cpu", copy=False)
            self.batches.insert(0, (points, scene.point_ranges()))
        self.follows_bodies = self._derived.transforms is not None
        self.follows_tendons = self._derived.tendons is not None
        self.fields = (_POSE_FIELDS if self.follows_bodies else ()) + (_PATH_FIELDS if self.follows_tendons else ())

    def refresh(self, timestamp: int) -> None:
        """Bring the publications up to this timestamp, if they are not."""
        if self._timestamp == timestamp:
            return
        if len(self._vertices):
            np.copyto(self._vertices, self._source("flexvert_xpos").reshape(-1, 3), casting="same_kind")
        if self._derived.transforms is not None:
            poses = self._derived.transforms.numpy()
            poses[:, :3] = self._source("xpos").reshape(-1, 3)
            # MuJoCo's quaternions have the scalar first.
            quaternions = self._source("xquat").reshape(-1, 4)
            poses[:, 3:6] = quaternions[:, 1:]
            poses[:, 6] = quaternions[:, 0]
        if self._derived.tendons is not None:
            self._derived.tendons.refresh(*map(self._borrow_paths, _PATH_FIELDS))
        self._timestamp = timestamp

    def _borrow_paths(self, name: str) -> wp.array:
        field = self._source(name)
        if name == "wrap_xpos":
            return wp.array(field.reshape(self._num_envs, -1, 6), dtype=wp.spatial_vectord, device="cpu", copy=False)
        if name == "wrap_obj":
            return wp.array(field.reshape(self._num_envs, -1, 2), dtype=wp.vec2i, device="cpu", copy=False)
        return wp.array(field.reshape(self._num_envs, -1), dtype=wp.int32, device="cpu", copy=False)
