"""Extra geometry in Rerun: contacts, frames, goals, and whatever else is drawn beside the model."""

import numpy as np
import rerun as rr
from numpy.typing import NDArray

from scene_data.geometry_sources import PackedGeometry
from scene_data.scene import ShapeType

from .marker_rows import MarkerRows, marker_rows
from .rerun_geometry import Geometry
from .texturing import colour_bytes

__all__ = ["RerunMarkers"]

_ROOT = "/World/markers"
_SOLID = rr.components.FillMode.Solid


class RerunMarkers:
    """What is drawn beside the model.

    Args:
        recording: Where to show it.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.
    """

    def __init__(self, recording: rr.RecordingStream, env_ids: NDArray[np.int64], offsets: NDArray[np.float64]):
        self._recording = recording
        self._env_ids = env_ids
        self._offsets = offsets
        self._shown: set[ShapeType] = set()

    @property
    def shows_any(self) -> bool:
        """Whether anything is shown at present."""
        return bool(self._shown)

    def show(self, geometry: PackedGeometry | None) -> None:
        """Show this, and nothing of what was shown before."""
        for shape, rows in marker_rows(geometry, self._env_ids, self._offsets).items():
            path = f"{_ROOT}/{shape.value}"
            if len(rows[0]):
                self._shown.add(shape)
                self._recording.log(path, _primitives(shape, rows), strict=True)
            elif shape in self._shown:
                self._shown.remove(shape)
                self._recording.log(path, rr.Clear(recursive=False), strict=True)


def _primitives(shape: ShapeType, rows: MarkerRows) -> Geometry:
    positions, quaternions, sizes, rgba = rows
    colours = colour_bytes(rgba)
    if shape is ShapeType.CAPSULE:
        # Rerun's begin at the origin.
        begins = positions - sizes[:, 1:2] * _z_axes(quaternions)
        return rr.Capsules3D(
            radii=sizes[:, 0],
            lengths=2.0 * sizes[:, 1],
            translations=begins,
            quaternions=quaternions,
            colors=colours,
            fill_mode=_SOLID,
        )
    if shape is ShapeType.CYLINDER:
        return rr.Cylinders3D(
            radii=sizes[:, 0],
            lengths=2.0 * sizes[:, 1],
            centers=positions,
            quaternions=quaternions,
            colors=colours,
            fill_mode=_SOLID,
        )
    if shape is ShapeType.BOX:
        return rr.Boxes3D(
            half_sizes=sizes, centers=positions, quaternions=quaternions, colors=colours, fill_mode=_SOLID
        )
    half_sizes = np.repeat(sizes[:, :1], 3, axis=1) if shape is ShapeType.SPHERE else sizes
    return rr.Ellipsoids3D(
        half_sizes=half_sizes, centers=positions, quaternions=quaternions, colors=colours, fill_mode=_SOLID
    )


def _z_axes(quaternions: NDArray[np.float32]) -> NDArray[np.float32]:
    x, y, z, w = quaternions.T
    return np.stack((2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)), axis=1)
