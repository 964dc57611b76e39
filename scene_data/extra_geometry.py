"""Extra geometry: what a user or a plug-in draws into the frames beside the model, as batches of primitives.

Contacts, frames, goals, rays: whatever helps to see what is going on. It is drawn only; physics knows nothing of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scene_data.errors import UnknownNameError
from scene_data.scene_parts import ShapeType

__all__ = ["DEFAULT_CAPACITY", "PRIMITIVES", "Capacity", "GeometryBatch", "geometry_capacity"]

PRIMITIVES = (ShapeType.SPHERE, ShapeType.CAPSULE, ShapeType.ELLIPSOID, ShapeType.CYLINDER, ShapeType.BOX)
"""What extra geometry is made of; `GeometryBatch.types` holds indices into this."""

DEFAULT_CAPACITY = 32
"""Primitives of each type in each environment, unless a configuration says otherwise."""

Capacity = int | Mapping[ShapeType | str, int]

_GREY = (0.7, 0.7, 0.7, 1.0)


@dataclass(frozen=True, eq=False)
class GeometryBatch:
    """Primitives with poses, sizes and colours. All arrays are copied, and have M rows or are spread over them.

    Attributes:
        types: Indices into `PRIMITIVES` (M,), or `ShapeType`s or their values, or one for all.
        positions: Centres, in the frame of the environment (M, 3) [m].
        sizes: What a `ShapeType` calls its size (M, 3) [m], or one for all; numbers that a type does not have may be
            left out.
        quaternions: Orientations (M, 4), (x, y, z, w); normalized on construction. None is no rotation.
        rgba: Colours (M, 4) or (M, 3) in [0, 1]. Alpha 0 hides; how much of the rest is seen through is up to the
            render backend.
        envs: Environment of each (M,), -1 for every one. None is every one for all of them.

    Raises:
        UnknownNameError: A type that is no primitive.
        ValueError: An array of the wrong shape, a quaternion of length 0, a size below 0, or a colour outside [0, 1].
    """

    # What is given may be anything like an array; what is kept is one.
    types: Any
    positions: Any
    sizes: Any
    quaternions: Any = None
    rgba: Any = _GREY
    envs: Any = None

    def __post_init__(self):
        positions = _host(self.positions)
        count = 1 if positions.ndim < 2 else positions.shape[0]
        arrays = {
            "types": np.broadcast_to(_type_indices(self.types), (count,)).astype(np.int32),
            "positions": _rows("positions", positions, count, 3),
            "sizes": _rows("sizes", _padded_sizes(_host(self.sizes)), count, 3),
            "quaternions": _unit(_rows("quaternions", _host(_IDENTITY, self.quaternions), count, 4)),
            "rgba": _rows("rgba", _with_alpha(_host(self.rgba)), count, 4),
            "envs": np.broadcast_to(_host(-1, self.envs), (count,)).astype(np.int32),
        }
        if (arrays["sizes"] < 0.0).any():
            raise ValueError("sizes of extra geometry must not be below 0")
        if not ((arrays["rgba"] >= 0.0) & (arrays["rgba"] <= 1.0)).all():
            raise ValueError("rgba of extra geometry must lie in [0, 1]")
        if (arrays["envs"] < -1).any():
            raise ValueError("envs of extra geometry must be -1 or the index of an environment")
        for name, array in arrays.items():
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.types)

    @classmethod
    def concatenate(cls, batches: Iterable["GeometryBatch"]) -> "GeometryBatch":
        """One batch of all the primitives, in order."""
        batches = list(batches)
        if not batches:
            return cls(np.zeros(0, np.int32), np.zeros((0, 3)), np.zeros((0, 3)))
        return cls(
            **{each.name: np.concatenate([getattr(batch, each.name) for batch in batches]) for each in fields(cls)}
        )

    @classmethod
    def spheres(cls, positions: ArrayLike, radius: ArrayLike, **looks: Any) -> "GeometryBatch":
        """Spheres around `positions` (M, 3) with one radius or M [m]. `looks`: `rgba` and `envs`."""
        return cls(ShapeType.SPHERE, positions, np.atleast_1d(_host(radius))[:, None], **looks)

    @classmethod
    def boxes(cls, positions: ArrayLike, half_extents: ArrayLike, quaternions=None, **looks: Any) -> "GeometryBatch":
        """Boxes around `positions` (M, 3) with half extents (3,) or (M, 3) [m]. `looks`: `rgba` and `envs`."""
        return cls(ShapeType.BOX, positions, half_extents, quaternions, **looks)

    @classmethod
    def ellipsoids(cls, positions: ArrayLike, semi_axes: ArrayLike, quaternions=None, **looks: Any) -> "GeometryBatch":
        """Ellipsoids around `positions` (M, 3) with semi-axes (3,) or (M, 3) [m]. `looks`: `rgba` and `envs`."""
        return cls(ShapeType.ELLIPSOID, positions, semi_axes, quaternions, **looks)

    @classmethod
    def cylinders(cls, starts: ArrayLike, ends: ArrayLike, radius: ArrayLike, **looks: Any) -> "GeometryBatch":
        """Cylinders from `starts` to `ends` (M, 3) with one radius or M [m]. `looks`: `rgba` and `envs`."""
        return cls._along(ShapeType.CYLINDER, starts, ends, radius, **looks)

    @classmethod
    def capsules(cls, starts: ArrayLike, ends: ArrayLike, radius: ArrayLike, **looks: Any) -> "GeometryBatch":
        """Capsules around segments from `starts` to `ends` (M, 3) with one radius or M [m]. `looks`: as above."""
        return cls._along(ShapeType.CAPSULE, starts, ends, radius, **looks)

    @classmethod
    def lines(cls, points: ArrayLike, width: float = 0.01, **looks: Any) -> "GeometryBatch":
        """A line through `points` (M + 1, 3), as M capsules that are `width` [m] thick. `looks`: as above."""
        points = _host(points)
        return cls.capsules(points[:-1], points[1:], 0.5 * width, **looks)

    @classmethod
    def arrows(cls, starts: ArrayLike, ends: ArrayLike, width: float = 0.02, **looks: Any) -> "GeometryBatch":
        """Arrows from `starts` to `ends` (M, 3): cylinders `width` [m] thick, and ellipsoids as their heads."""
        starts, ends = np.broadcast_arrays(*np.atleast_2d(_host(starts), _host(ends)))
        length = np.linalg.norm(ends - starts, axis=1, keepdims=True)
        head = np.minimum(4.0 * width, 0.5 * length)
        neck = ends - (ends - starts) * (head / np.maximum(length, 1e-12))
        semi_axes = np.concatenate((np.full((len(head), 2), width), 0.5 * head), axis=1)
        shafts = cls.cylinders(starts, neck, 0.5 * width, **looks)
        heads = cls.ellipsoids(0.5 * (neck + ends), semi_axes, _from_z_to(ends - starts), **looks)
        return cls.concatenate((shafts, heads))

    @classmethod
    def axes(cls, positions: ArrayLike, quaternions: ArrayLike, length: float, envs=None) -> "GeometryBatch":
        """Frames at `positions` (M, 3) with orientations (M, 4): X red, Y green, Z blue, each `length` [m] long."""
        positions, quaternions = np.atleast_2d(_host(positions), _host(quaternions))
        batches = []
        for axis in range(3):
            colour, unit = np.eye(4)[3] + np.eye(4)[axis], np.eye(3)[axis]
            ends = positions + length * _rotated(_unit(quaternions), unit)
            batches.append(cls.cylinders(positions, ends, 0.04 * length, rgba=colour, envs=envs))
        return cls.concatenate(batches)

    @classmethod
    def _along(cls, shape: ShapeType, starts: ArrayLike, ends: ArrayLike, radius: ArrayLike, **looks: Any):
        starts, ends = np.broadcast_arrays(*np.atleast_2d(_host(starts), _host(ends)))
        half = 0.5 * (ends - starts)
        radii = np.broadcast_to(_host(radius), len(half))
        sizes = np.stack((radii, np.linalg.norm(half, axis=1), 0.0 * radii), axis=1)
        return cls(shape, starts + half, sizes, _from_z_to(half), **looks)


def geometry_capacity(capacity: Capacity) -> tuple[int, ...]:
    """Capacities of one environment in the order of `PRIMITIVES`.

    Args:
        capacity: One number for each type, or numbers by type; a type that is not named has none.

    Raises:
        UnknownNameError: A name that is no primitive.
        ValueError: A number below 0.
    """
    numbers = [0] * len(PRIMITIVES)
    if isinstance(capacity, Mapping):
        for shape, number in capacity.items():
            numbers[_type_index(shape)] = int(number)
    else:
        numbers = [int(capacity)] * len(PRIMITIVES)
    if min(numbers) < 0:
        raise ValueError(f"the capacity for extra geometry must not be below 0, got {capacity!r}")
    return tuple(numbers)


_IDENTITY = (0.0, 0.0, 0.0, 1.0)


def _host(values: Any, given: Any = None) -> NDArray[np.float64]:
    """`given`, or else `values`, as a float64 array on the host, also from torch tensors and Warp arrays."""
    values = values if given is None else given
    for method in ("detach", "cpu", "numpy"):
        if hasattr(values, method):
            values = getattr(values, method)()
    return np.asarray(values, dtype=np.float64)


def _rows(name: str, values: NDArray[np.float64], count: int, width: int) -> NDArray[np.float64]:
    try:
        return np.broadcast_to(values, (count, width)).astype(np.float64)
    except ValueError:
        raise ValueError(
            f"{name} of extra geometry must have shape ({count}, {width}) or ({width},), got {values.shape}"
        ) from None


def _padded_sizes(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sizes of up to three numbers (..., 1 to 3), or one radius, padded with zeros to (..., 3)."""
    sizes = np.atleast_1d(sizes)
    return np.pad(sizes, [(0, 0)] * (sizes.ndim - 1) + [(0, max(0, 3 - sizes.shape[-1]))])


def _with_alpha(rgba: NDArray[np.float64]) -> NDArray[np.float64]:
    if rgba.shape[-1:] == (3,):
        return np.concatenate((rgba, np.ones((*rgba.shape[:-1], 1))), axis=-1)
    return rgba


def _unit(quaternions: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = np.linalg.norm(quaternions, axis=-1, keepdims=True)
    if (norm < 1e-12).any():
        raise ValueError("quaternions of extra geometry must not be zero")
    return quaternions / norm


def _rotated(quaternions: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """A vector (3,) turned by each of these unit quaternions (M, 4)."""
    axis, w = quaternions[:, :3], quaternions[:, 3:]
    twice = 2.0 * np.cross(axis, vector)
    return vector + w * twice + np.cross(axis, twice)


def _from_z_to(directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quaternions (M, 4) of the shortest turns from +Z to these directions (M, 3)."""
    length = np.linalg.norm(directions, axis=1, keepdims=True)
    x, y, z = np.moveaxis(directions / np.maximum(length, 1e-12), 1, 0)
    # The half-way quaternion is the cross and the dot product plus 1; it vanishes for -Z, where any turn about X does.
    half = np.stack((-y, x, 0.0 * z, 1.0 + z), axis=1)
    half[(np.linalg.norm(half, axis=1) < 1e-9)] = (1.0, 0.0, 0.0, 0.0)
    return half / np.linalg.norm(half, axis=1, keepdims=True)


def _type_indices(types: Any) -> NDArray[np.int32]:
    if isinstance(types, ShapeType | str):
        return np.asarray(_type_index(types), dtype=np.int32)
    if isinstance(types, Sequence):
        return np.array([_type_index(each) for each in types], dtype=np.int32)
    indices = np.asarray(types, dtype=np.int32)
    if indices.size and not 0 <= indices.min() <= indices.max() < len(PRIMITIVES):
        raise UnknownNameError(
            "primitive", int(indices.max()), [f"{i} ({shape.value})" for i, shape in enumerate(PRIMITIVES)]
        )
    return indices


def _type_index(shape: Any) -> int:
    if isinstance(shape, int) and 0 <= shape < len(PRIMITIVES):
        return shape
    values = [each.value for each in PRIMITIVES]
    value = shape.value if isinstance(shape, ShapeType) else shape
    if value not in values:
        raise UnknownNameError("primitive", value, values)
    return values.index(value)
