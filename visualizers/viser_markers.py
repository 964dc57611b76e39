"""Extra geometry in viser: contacts, frames, goals, and whatever else is drawn beside the model."""

from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from scene_data.geometry_sources import PackedGeometry
from scene_data.scene import ShapeType
from scene_data.tessellation import Surface, tessellate

from .instancing import capsule_part
from .marker_rows import marker_rows
from .viser_updates import send_update

__all__ = ["ViserMarkers"]


class _Batch:
    """Instances of one geometry, as many as there are at a time. Those that are not there have no size."""

    def __init__(self, server: viser.ViserServer, name: str, surface: Surface):
        self._server = server
        self._name = name
        self._surface = surface
        self._handle: Any = None
        self._capacity = 0

    def show(self, positions: NDArray, quaternions: NDArray, scales: NDArray, rgba: NDArray) -> None:
        """Show instances: `(M, 3)` [m], `(M, 4)` (x, y, z, w), `(M, 3)` and `(M, 4)`."""
        count = len(positions)
        if not count and self._handle is None:
            return
        if count > self._capacity:
            # Room for more, so that a number that changes all the time does not send the geometry all the time.
            self._capacity = 1 << max(count - 1, 15).bit_length()
            self._handle = None
        padding = ((0, self._capacity - count), (0, 0))
        instances = {
            "batched_positions": np.pad(positions, padding).astype(np.float32),
            "batched_wxyzs": np.pad(np.roll(quaternions, 1, axis=1), padding).astype(np.float32),
            "batched_scales": np.pad(scales, padding).astype(np.float32),
            "batched_colors": np.pad((rgba[:, :3] * 255.0).round().astype(np.uint8), padding),
        }
        # A page builds the mesh anew for other opacities: what is opaque has none, and what is not there keeps one.
        opacities = np.pad(rgba[:, 3].astype(np.float32), padding[0], constant_values=1.0)
        opacities = opacities if (opacities < 1.0).any() else None
        if self._handle is None:
            self._handle = self._server.scene.add_batched_meshes_simple(
                self._name,
                self._surface.points,
                self._surface.faces,
                lod="off",
                cast_shadow=False,
                batched_opacities=opacities,
                **instances,
            )
            return
        news = {name: new for name, new in instances.items() if not np.array_equal(new, getattr(self._handle, name))}
        if news:
            send_update(self._handle, **{name: np.ascontiguousarray(new) for name, new in news.items()})
        self._handle.batched_opacities = opacities


class ViserMarkers:
    """What is drawn beside the model.

    Args:
        server: Where to show it.
        root: Path of the node to put it below.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.
    """

    def __init__(self, server: viser.ViserServer, root: str, env_ids: NDArray[np.int64], offsets: NDArray[np.float64]):
        self._server = server
        self._env_ids = env_ids
        self._offsets = offsets
        self._shows_any = False
        surfaces = {
            "sphere": tessellate(ShapeType.SPHERE, np.ones(3)),
            "cylinder": tessellate(ShapeType.CYLINDER, np.ones(3)),
            "box": tessellate(ShapeType.BOX, np.ones(3)),
            "tube": capsule_part(is_cap=False),
            "cap": capsule_part(is_cap=True),
        }
        self._batches = {name: _Batch(server, f"{root}/{name}", each) for name, each in surfaces.items()}

    def show(self, geometry: PackedGeometry | None) -> None:
        """Show this, and nothing of what was shown before."""
        if geometry is None and not self._shows_any:
            return
        self._shows_any = geometry is not None
        with self._server.atomic():
            self._send(geometry)

    def _send(self, geometry: PackedGeometry | None) -> None:
        by_type = marker_rows(geometry, self._env_ids, self._offsets)
        positions, quaternions, sizes, rgba = by_type[ShapeType.CAPSULE]
        radii, halves = sizes[:, :1], sizes[:, 1:2]
        ends = halves * _z_axes(quaternions)
        flipped = _turned(quaternions)
        spheres, ellipsoids = by_type[ShapeType.SPHERE], by_type[ShapeType.ELLIPSOID]
        round_sizes = np.concatenate((np.repeat(spheres[2][:, :1], 3, axis=1), ellipsoids[2]))
        self._show("sphere", *_both(spheres[:2], ellipsoids[:2]), round_sizes, *_both(spheres[3:], ellipsoids[3:]))
        self._show("tube", positions, quaternions, np.concatenate((radii, radii, halves), axis=1), rgba)
        caps = _both((positions + ends, quaternions), (positions - ends, flipped))
        self._show("cap", *caps, np.repeat(np.tile(radii, (2, 1)), 3, axis=1), np.tile(rgba, (2, 1)))
        positions, quaternions, sizes, rgba = by_type[ShapeType.CYLINDER]
        self._show("cylinder", positions, quaternions, sizes[:, (0, 0, 1)], rgba)
        self._show("box", *by_type[ShapeType.BOX])

    def _show(self, name: str, *instances: NDArray) -> None:
        self._batches[name].show(*instances)


def _both(first: Any, second: Any) -> list[NDArray]:
    return [np.concatenate(pair) for pair in zip(first, second, strict=True)]


def _z_axes(quaternions: NDArray[np.float32]) -> NDArray[np.float32]:
    x, y, z, w = quaternions.T
    return np.stack((2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)), axis=1)


def _turned(quaternions: NDArray[np.float32]) -> NDArray[np.float32]:
    """These rotations after half a turn about X."""
    x, y, z, w = quaternions.T
    return np.stack((w, z, -y, -x), axis=1)
