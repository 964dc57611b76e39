"""From the description of a skin to what its points are computed from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.formats import SceneDataFormat
from scene_data.scene_assets import SkinDescription

__all__ = ["SkinCorners", "SkinInfluences", "skin_corners", "skin_influences", "skinned_points"]


@dataclass(frozen=True)
class SkinInfluences:
    """What moves each vertex of some skins; vertices and bones are counted over all of them.

    Attributes:
        offsets: Where the influences of each vertex begin `(V + 1,)`.
        bones: Bone of each influence `(n,)`.
        weights: Its weight `(n,)`.
        places: Place of the vertex in the frame of the bone's body `(n, 3)` [m].
    """

    offsets: NDArray
    bones: NDArray
    weights: NDArray
    places: NDArray


@dataclass(frozen=True)
class SkinCorners:
    """The triangles at each vertex of some skins.

    Attributes:
        offsets: Where the corners at each vertex begin `(V + 1,)`.
        others: The two vertices that follow in the triangle `(n, 2)`.
    """

    offsets: NDArray
    others: NDArray


def skinned_points(skins: Sequence[SkinDescription], num_envs: int, body_count: int, transforms: wp.array) -> Any:
    """Describe the vertices of all skins of all environments as one publication.

    Args:
        skins: Skins of one environment, at least one. Their vertices follow one another.
        num_envs: Number of environments.
        body_count: Number of bodies of one environment.
        transforms: Poses of the bodies, transformf at index `env * body_count + body`, borrowed.

    Returns:
        `SkinnedPoints` whose point `env * vertex_count + vertex` belongs to that vertex of all skins.
    """
    device = transforms.device

    def on_device(values: Any, dtype: Any) -> wp.array:
        return wp.array(np.ascontiguousarray(values), dtype=dtype, device=device)

    influences = skin_influences(skins)
    bodies = np.concatenate([skin.bone_bodies for skin in skins])
    points = SceneDataFormat.SkinnedPoints()
    points.influence_offsets = on_device(influences.offsets, wp.int32)
    points.bone_indices = on_device(influences.bones, wp.int32)
    points.bone_weights = on_device(influences.weights, wp.float32)
    points.bone_points = on_device(influences.places, wp.vec3f)
    points.bone_bodies = on_device(np.arange(num_envs)[:, None] * body_count + bodies, wp.int32)
    points.transforms = transforms
    if any(skin.inflate for skin in skins):
        corners = skin_corners(skins, [bool(skin.inflate) for skin in skins])
        inflations = np.repeat([skin.inflate for skin in skins], [len(skin.vertices) for skin in skins])
        points.inflations = on_device(inflations, wp.float32)
        points.fan_offsets = on_device(corners.offsets, wp.int32)
        points.fan_vertices = on_device(corners.others, wp.vec2i)
    return points


def skin_influences(skins: Sequence[SkinDescription]) -> SkinInfluences:
    """What moves the vertices of skins, at least one, which follow one another."""
    vertices, bones, weights, places = (np.concatenate(parts) for parts in zip(*_influences(skins), strict=True))
    order = np.argsort(vertices, kind="stable")
    return SkinInfluences(_offsets(vertices, _vertex_count(skins)), bones[order], weights[order], places[order])


def skin_corners(skins: Sequence[SkinDescription], wanted: Sequence[bool]) -> SkinCorners:
    """The triangles at the vertices of skins, which follow one another; without those of skins that are not wanted."""
    triangles = [np.zeros((0, 3), np.int32)]
    vertex_count = 0
    for skin, is_wanted in zip(skins, wanted, strict=True):
        if is_wanted:
            triangles.append(vertex_count + skin.faces)
        vertex_count += len(skin.vertices)
    faces = np.concatenate(triangles)
    corners = faces.ravel()
    others = np.stack((np.roll(faces, -1, axis=1), np.roll(faces, -2, axis=1)), axis=-1).reshape(-1, 2)
    return SkinCorners(_offsets(corners, vertex_count), others[np.argsort(corners, kind="stable")])


def _influences(skins: Sequence[SkinDescription]) -> Iterator[tuple[NDArray, NDArray, NDArray, NDArray]]:
    """Vertex, bone, weight and place in the bone's frame of the influences of each skin, counted over all skins."""
    vertex_count = bone_count = 0
    for skin in skins:
        bones = np.repeat(np.arange(len(skin.bone_bodies)), np.diff(skin.bone_offsets))
        moved = skin.vertices[skin.bone_vertices].astype(np.float64) - skin.bone_bind_positions[bones]
        places = _rotate_back(skin.bone_bind_quaternions[bones].astype(np.float64), moved)
        yield vertex_count + skin.bone_vertices, bone_count + bones, skin.bone_weights, places
        vertex_count += len(skin.vertices)
        bone_count += len(skin.bone_bodies)


def _rotate_back(quaternions: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points in frames that are rotated by these unit quaternions, both `(n, ...)`."""
    axes, scalars = -quaternions[:, :3], quaternions[:, 3:]
    return points + 2 * np.cross(axes, np.cross(axes, points) + scalars * points)


def _vertex_count(skins: Sequence[SkinDescription]) -> int:
    return sum(len(skin.vertices) for skin in skins)


def _offsets(rows: NDArray, count: int) -> NDArray:
    """Where the entries of each row begin once they are sorted by row, `(count + 1,)`."""
    return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=count))))
