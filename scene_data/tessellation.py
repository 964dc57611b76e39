"""Primitives and height fields as triangles, for what cannot show a texture on the primitive itself."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scene_data.scene_assets import HeightFieldDescription
from scene_data.scene_parts import ShapeType

__all__ = ["Surface", "planar_texcoords", "tessellate", "tessellate_height_field"]

_SLICES = 48
_HALF_STACKS = 12


@dataclass(frozen=True, eq=False)
class Surface:
    """Triangles in the shape's frame. A vertex on a crease is there once for each side.

    Attributes:
        points: `(V, 3)` float32 [m].
        normals: One per vertex, `(V, 3)` float32, of unit length.
        faces: `(F, 3)` int32, counter-clockwise seen from outside.
    """

    points: NDArray[np.float32]
    normals: NDArray[np.float32]
    faces: NDArray[np.int32]


def tessellate(kind: ShapeType, size: NDArray[np.float64]) -> Surface:
    """The surface of a primitive.

    Args:
        kind: A primitive with finite extents.
        size: What `ShapeType` says of it [m], `(3,)`.

    Raises:
        ValueError: `kind` is no primitive.
    """
    match kind:
        case ShapeType.PLANE:
            return _plane(size)
        case ShapeType.BOX:
            return _box(size)
        case ShapeType.SPHERE:
            return _scaled(_capsule(1.0, 0.0), np.full(3, size[0]))
        case ShapeType.ELLIPSOID:
            return _scaled(_capsule(1.0, 0.0), size)
        case ShapeType.CAPSULE:
            return _capsule(size[0], size[1])
        case ShapeType.CYLINDER:
            return _cylinder(size[0], size[1])
    raise ValueError(f"{kind.value!r} is no primitive")


def tessellate_height_field(field: HeightFieldDescription) -> Surface:
    """The terrain, and the walls around it that reach down to its base."""
    rows, columns = field.heights.shape
    x = np.linspace(-field.half_extents[0], field.half_extents[0], columns)
    y = np.linspace(-field.half_extents[1], field.half_extents[1], rows)
    top = np.stack((*np.meshgrid(x, y), field.heights), axis=-1)
    slope_y, slope_x = np.gradient(field.heights.astype(np.float64), y, x)
    normals = np.stack((-slope_x, -slope_y, np.ones_like(slope_x)), axis=-1)
    parts = [_single(top.reshape(-1, 3), _unit(normals).reshape(-1, 3), _grid_faces(rows, columns))]
    south, east, north, west = top[0], top[:, -1], top[-1, ::-1], top[::-1, 0]
    for edge, normal in ((south, (0, -1, 0)), (east, (1, 0, 0)), (north, (0, 1, 0)), (west, (-1, 0, 0))):
        base = edge * (1.0, 1.0, 0.0) - (0.0, 0.0, field.base_depth)
        wall = np.concatenate((base, edge))
        parts.append(_single(wall, np.broadcast_to(normal, wall.shape), _grid_faces(2, len(edge))))
    return _joined(parts)


def planar_texcoords(
    points: NDArray[np.float32], half_extents: NDArray[np.float64], repeat: NDArray[np.float32], uniform: bool
) -> NDArray[np.float32]:
    """Project a planar texture along -Z, as MuJoCo does where a shape has no texture coordinates of its own.

    Args:
        points: `(V, 3)` [m].
        half_extents: Half the size of the shape along X and Y [m], `(2,)`; 0 where it has no end.
        repeat: How often the texture repeats along X and Y, over the shape or, if `uniform`, over two metres, `(2,)`.
        uniform: Whether the texture scales with space rather than with the shape.

    Returns:
        Coordinates with (0, 0) at the lower left corner of the image, `(V, 2)` float32.
    """
    half = np.where((half_extents > 0.0) & (not uniform), half_extents, 1.0)
    return (0.5 + 0.5 * repeat * points[:, :2] / half).astype(np.float32)


def _plane(size: NDArray[np.float64]) -> Surface:
    corners = np.array(((-1, -1, 0), (1, -1, 0), (-1, 1, 0), (1, 1, 0))) * (size[0], size[1], 0.0)
    return _single(corners, np.broadcast_to((0.0, 0.0, 1.0), (4, 3)), _grid_faces(2, 2))


def _box(size: NDArray[np.float64]) -> Surface:
    parts = []
    for axis in range(3):
        for sign in (-1.0, 1.0):
            normal, right = np.zeros(3), np.zeros(3)
            normal[axis], right[(axis + 1) % 3] = sign, 1.0
            up = np.cross(normal, right)
            corners = np.array([normal + u * right + v * up for v in (-1, 1) for u in (-1, 1)]) * size
            parts.append(_single(corners, np.broadcast_to(normal, (4, 3)), _grid_faces(2, 2)))
    return _joined(parts)


def _capsule(radius: float, half_length: float) -> Surface:
    angles = np.linspace(0.0, 0.5 * np.pi, _HALF_STACKS + 1)
    angles = np.concatenate((-angles[::-1], angles))
    normals = np.column_stack((np.cos(angles), np.sin(angles)))
    profile = radius * normals
    profile[:, 1] += np.where(np.arange(len(angles)) <= _HALF_STACKS, -half_length, half_length)
    return _revolved(profile, normals)


def _cylinder(radius: float, half_length: float) -> Surface:
    profile = np.array(((0, -1), (1, -1), (1, -1), (1, 1), (1, 1), (0, 1))) * (radius, half_length)
    normals = np.array(((0, -1), (0, -1), (1, 0), (1, 0), (0, 1), (0, 1)), dtype=float)
    return _revolved(profile, normals)


def _revolved(profile: NDArray, normals: NDArray) -> Surface:
    """Turn a profile of (radius, height) points, from the bottom to the top, around Z."""
    turn = np.linspace(0.0, 2.0 * np.pi, _SLICES + 1)
    around = np.column_stack((np.cos(turn), np.sin(turn)))

    def revolve(rows: NDArray) -> NDArray:
        ring = rows[:, None, :1] * around[None]
        height = np.broadcast_to(rows[:, None, 1:], (*ring.shape[:2], 1))
        return np.concatenate((ring, height), axis=-1).reshape(-1, 3)

    return _single(revolve(profile), revolve(normals), _grid_faces(len(profile), len(turn)))


def _grid_faces(rows: int, columns: int) -> NDArray[np.int32]:
    """Two triangles per cell of a grid whose columns run to the right and whose rows run up.

    A cell is split along the diagonal of MuJoCo's height fields, from its first corner to the last.
    """
    first = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).reshape(-1, 1)
    lower, upper = (0, 1, columns + 1), (0, columns + 1, columns)
    return (first + np.array((*lower, *upper))).reshape(-1, 3).astype(np.int32)


def _scaled(surface: Surface, scale: NDArray) -> Surface:
    return _single(surface.points * scale, _unit(surface.normals / scale), surface.faces)


def _joined(parts: list[Surface]) -> Surface:
    starts = np.cumsum([0, *(len(part.points) for part in parts[:-1])])
    return _single(
        np.concatenate([part.points for part in parts]),
        np.concatenate([part.normals for part in parts]),
        np.concatenate([part.faces + start for part, start in zip(parts, starts, strict=True)]),
    )


def _single(points: NDArray, normals: NDArray, faces: NDArray) -> Surface:
    """In single precision, without the triangles that have no area (at poles and in creases)."""
    a, b, c = (points[faces[:, corner]] for corner in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=-1)
    kept = faces[area > 1e-9 * area.max()]
    return Surface(points.astype(np.float32), normals.astype(np.float32), kept.astype(np.int32))


def _unit(vectors: NDArray) -> NDArray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
