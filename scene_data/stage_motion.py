"""What moves on a USD stage: bodies, the cameras and lights that track them, and deformables."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import warp as wp
from numpy.typing import DTypeLike, NDArray
from pxr import Sdf

from scene_data.formats import SceneDataFormat
from scene_data.provider import SceneDataProvider
from scene_data.scene import Placed, SceneDescription
from scene_data.stage_authoring import MATRIX_OP, driven_cameras, driven_lights
from scene_data.stage_deformables import deformables
from scene_data.stage_poses import aiming_matrices, pose_matrix, rest_matrices
from scene_data.stage_samples import Track
from scene_data.usd_paths import join_path

__all__ = ["BodyMotion", "CameraMotion", "DeformableMotion", "LightMotion", "Motion", "scene_motions"]


class Motion(ABC):
    """Takes values from a provider.

    Attributes:
        tracks: What it moves, with the values that were read last; at first those at rest.
    """

    tracks: tuple[Track, ...]

    @abstractmethod
    def read(self, provider: SceneDataProvider) -> None:
        """Take the present values. Called within one consistent read, bodies first."""


def scene_motions(scene: SceneDescription, envs: Sequence[int], provider: SceneDataProvider) -> list[Motion]:
    """All that moves in these environments, in the order in which it has to be read.

    Args:
        scene: What is on the stage.
        envs: Which of its environments.
        provider: Publishes the scene.

    Raises:
        ValueError: The provider publishes another number of points for a deformable.
    """
    bodies = BodyMotion(scene, envs)
    parts = [CameraMotion(scene, envs, bodies.poses), LightMotion(scene, envs, bodies.poses)]
    return [bodies, *parts, DeformableMotion(scene, envs, provider)]


class BodyMotion(Motion):
    """The pose of every body, in its environment.

    Attributes:
        poses: Environment-major, `(len(envs) * nbody, 4, 4)` float64.
    """

    def __init__(self, scene: SceneDescription, envs: Sequence[int]):
        self._count = scene.num_envs * len(scene.bodies)
        self._chosen = _part_rows(envs, len(scene.bodies), range(len(scene.bodies)))
        rest = np.tile(rest_matrices(scene.bodies), (len(envs), 1, 1))
        self.poses = Track(_matrix_paths(scene, envs, scene.bodies), rest)
        self.tracks = (self.poses,)

    def read(self, provider: SceneDataProvider) -> None:
        """Take the poses, in one read."""
        published = SceneDataFormat.TransposedMatrix44d()
        if not provider.get_transforms(published) or len(published.matrices) != self._count:
            raise ValueError(
                f"the scene has {self._count} bodies, but {provider.transform_count} transforms are published"
            )
        matrices = published.matrices.numpy()
        self.poses.values = matrices if len(self._chosen) == self._count else matrices[self._chosen]


class _PartMotion(Motion):
    """The poses of parts that move on their bodies, relative to these."""

    def __init__(
        self,
        scene: SceneDescription,
        envs: Sequence[int],
        bodies: Track,
        parts: Sequence[Placed],
        part_bodies: Sequence[int],
        rest: NDArray[np.float64],
    ):
        self._bodies = bodies
        self._body_rows = _part_rows(range(len(envs)), len(scene.bodies), part_bodies)
        self._poses = Track(_matrix_paths(scene, envs, parts), np.tile(rest, (len(envs), 1, 1)))
        self.tracks = (self._poses,)

    def _place(self, in_env: NDArray[np.float64]) -> None:
        # A diverged body has no inverse; its parts come out as not finite, and are left alone.
        bodies = self._bodies.values[self._body_rows]
        rotations = np.swapaxes(bodies[:, :3, :3], 1, 2)
        local = in_env.copy()
        local[:, 3, :3] -= bodies[:, 3, :3]
        local[:, :, :3] = local[:, :, :3] @ rotations
        self._poses.values = local


class CameraMotion(_PartMotion):
    """Cameras that track something; the others stand still on their bodies."""

    def __init__(self, scene: SceneDescription, envs: Sequence[int], bodies: Track):
        driven = driven_cameras(scene)
        cameras = [scene.cameras[index] for index in driven]
        rest = np.array([pose_matrix(camera.position, camera.quaternion) for camera in cameras]).reshape(-1, 4, 4)
        super().__init__(scene, envs, bodies, cameras, [camera.body for camera in cameras], rest)
        self._indices = _part_rows(envs, len(scene.cameras), driven)

    def read(self, provider: SceneDataProvider) -> None:
        """Take the poses that the engine computed."""
        published = SceneDataFormat.TransposedMatrix44d()
        if len(self._indices) and provider.get_camera_poses(published):
            self._place(published.matrices.numpy()[self._indices])


class LightMotion(_PartMotion):
    """Lights that track something; the others stand still on their bodies."""

    def __init__(self, scene: SceneDescription, envs: Sequence[int], bodies: Track):
        driven = driven_lights(scene)
        lights = [scene.lights[index] for index in driven]
        rest = aiming_matrices(
            np.array([light.position for light in lights]).reshape(-1, 3),
            np.array([light.direction for light in lights]).reshape(-1, 3),
        )
        super().__init__(scene, envs, bodies, lights, [light.body for light in lights], rest)
        self._indices = _part_rows(envs, len(scene.lights), driven)

    def read(self, provider: SceneDataProvider) -> None:
        """Take the places and directions that the engine computed."""
        published = SceneDataFormat.Vec3_Direction()
        if len(self._indices) and provider.get_light_poses(published):
            positions, directions = published.positions.numpy(), published.directions.numpy()
            chosen = self._indices
            self._place(aiming_matrices(positions[chosen].astype(np.float64), directions[chosen].astype(np.float64)))


class DeformableMotion(Motion):
    """The points of all flexes, skins and tendons that the provider publishes, and their extents.

    Read in one piece, so that a device is asked once.
    """

    def __init__(self, scene: SceneDescription, envs: Sequence[int], provider: SceneDataProvider):
        published = {path: len(view) for path, view in provider.get_geometry_points().items()}
        parts = list(deformables(scene))
        moving = [
            (path, part)
            for env in envs
            for part in parts
            if (path := join_path(scene.env_path(env), part.path_name)) in published
        ]
        for path, part in moving:
            if published[path] != len(part.points):
                raise ValueError(f"{path} has {len(part.points)} points, but {published[path]} are published")
        sizes = np.array([len(part.points) for _, part in moving], np.intp)
        starts = np.cumsum(sizes) - sizes
        self._offsets = {path: int(start) for (path, _), start in zip(moving, starts, strict=True)}
        self._buffer = wp.zeros(int(sizes.sum()), dtype=wp.vec3f, device=provider.device) if moving else None
        # From here on, points are those that the prims show.
        self._order = _joined([start + part.order for (_, part), start in zip(moving, starts, strict=True)], np.intp)
        self._margins = np.array([part.margin for _, part in moving], np.float32)[:, None]
        points, extents = ([Sdf.Path(f"{path}.{name}") for path, _ in moving] for name in ("points", "extent"))
        rest = _joined([part.points[part.order] for _, part in moving], np.float32).reshape(-1, 3)
        self._points = Track(points, rest, np.array([len(part.order) for _, part in moving], np.intp))
        self._starts = self._points.starts
        self._extents = Track(extents, self._bounds(), np.full(len(moving), 2, np.intp))
        self.tracks = (self._points, self._extents)

    def read(self, provider: SceneDataProvider) -> None:
        """Take the points."""
        if self._buffer is not None:
            provider.get_geometry_points(output=self._buffer, offsets=self._offsets)
            self._points.values = self._buffer.numpy()[self._order]
            self._extents.values = self._bounds()

    def _bounds(self) -> NDArray[np.float32]:
        """The lowest and the highest corner of each, in turn, `(2 * n, 3)`."""
        if not len(self._starts):
            return np.empty((0, 3), np.float32)
        low, high = (bound.reduceat(self._points.values, self._starts) for bound in (np.minimum, np.maximum))
        return np.stack((low - self._margins, high + self._margins), axis=1).reshape(-1, 3)


def _matrix_paths(scene: SceneDescription, envs: Sequence[int], parts: Sequence[Placed]) -> list[Sdf.Path]:
    return [Sdf.Path(f"{path}.{MATRIX_OP}") for env in envs for path in scene.paths(parts, env)]


def _part_rows(envs: Sequence[int], count: int, chosen: Sequence[int]) -> NDArray[np.intp]:
    """Rows of the chosen ones of `count` parts per environment, in these environments, environment-major."""
    return (np.array(envs, np.intp)[:, None] * count + np.array(chosen, np.intp)).reshape(-1)


def _joined(arrays: list[NDArray], dtype: DTypeLike) -> NDArray:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)
