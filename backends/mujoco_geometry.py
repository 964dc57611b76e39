"""What a MuJoCo engine publishes as points besides its flexes: skins, cables and tendons."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import warp as wp

from scene_data.backends.mujoco_tendons import TendonCurves
from scene_data.formats import SceneDataFormat
from scene_data.scene import CableDescription, SceneDescription
from scene_data.skinning import skinned_points

__all__ = ["DerivedGeometry"]


class DerivedGeometry:
    """Points that follow from body poses and tendon paths, which the engine fills in.

    Attributes:
        transforms: Poses of the bodies, transformf at index `env * nbody + body`, to be filled; None where nothing
            follows from them.
        tendons: Tendon paths, to be refreshed; None without spatial tendons.
        batches: Publications and their ranges by path: skins, cables, tendons.

    Args:
        scene: The scene and its environments.
        device: Device of the publications.
    """

    def __init__(self, scene: SceneDescription, device: wp.Device):
        self.transforms: wp.array | None = None
        self.tendons: TendonCurves | None = None
        self.batches: list[tuple[Any, dict[str, tuple[int, int]]]] = []
        body_count = len(scene.bodies)
        if scene.skins or scene.cables:
            self.transforms = wp.zeros(scene.num_envs * body_count, dtype=wp.transformf, device=device)
        if scene.skins:
            points = skinned_points(scene.skins, scene.num_envs, body_count, self.transforms)
            self._add(points, scene, ((skin.path_name, len(skin.vertices)) for skin in scene.skins))
        if scene.cables:
            points = _cable_points(scene, self.transforms)
            self._add(points, scene, ((cable.path_name, cable.point_count) for cable in scene.cables))
        if any(tendon.curves for tendon in scene.tendons):
            self.tendons = TendonCurves(scene, device)
            self._add(self.tendons.points, scene, self.tendons.curves)

    def _add(self, points: Any, scene: SceneDescription, parts: Iterable[tuple[str, int]]) -> None:
        parts = list(parts)
        starts = np.cumsum([0] + [count for _, count in parts])
        ranges = {
            f"{scene.env_path(env)}/{path_name}": (env * int(starts[-1]) + int(start), count)
            for env in range(scene.num_envs)
            for (path_name, count), start in zip(parts, starts[:-1], strict=True)
        }
        self.batches.append((points, ranges))


def _cable_points(scene: SceneDescription, transforms: Any) -> Any:
    """Polylines through the ends of the capsules of all cables of all environments."""
    device = transforms.device
    capsules = [scene.shapes[shape] for cable in scene.cables for shape in cable.shapes]
    envs = np.arange(scene.num_envs)[:, None]
    bodies = envs * len(scene.bodies) + [capsule.body for capsule in capsules]
    poses = [np.concatenate((capsule.position, capsule.quaternion)) for capsule in capsules]
    scales = [(capsule.size[0], capsule.size[1], capsule.size[0]) for capsule in capsules]
    # The capsules of later environments follow those of the first, and the signs stay.
    endpoints = envs[..., None] * (len(capsules) * np.array((1, 0, 1, 0))) + _endpoints(scene.cables)
    points = SceneDataFormat.CapsuleEndpoints()
    points.transforms = transforms
    points.shape_body = wp.array(bodies.ravel(), dtype=wp.int32, device=device)
    points.shape_transform = wp.array(np.tile(poses, (scene.num_envs, 1)), dtype=wp.transformf, device=device)
    points.shape_scale = wp.array(np.tile(scales, (scene.num_envs, 1)), dtype=wp.vec3f, device=device)
    points.endpoints = wp.array(endpoints.reshape(-1, 4), dtype=wp.vec4i, device=device)
    return points


def _endpoints(cables: Sequence[CableDescription]) -> np.ndarray:
    """The two (capsule, end) pairs that each vertex lies between; the first and last vertex of a cable lie on one."""
    vertices = []
    first = 0
    for cable in cables:
        capsules, ends = first + np.arange(len(cable.shapes)), cable.first_ends
        before = np.column_stack((capsules, -ends))
        after = np.column_stack((capsules, ends))
        vertices.append(np.hstack((np.vstack((after[:1], before)), np.vstack((after, before[-1:])))))
        first += len(capsules)
    return np.concatenate(vertices)
