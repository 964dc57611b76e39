"""Extra geometry in Newton's viewer: contacts, frames, goals, and whatever else is drawn beside the model."""

import newton
import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.extra_geometry import PRIMITIVES
from scene_data.geometry_sources import PackedGeometry
from scene_data.scene import ShapeType

from .newton_window import NewtonWindow

__all__ = ["NewtonMarkers"]

_ROOT = "/markers"
_UNITS = {
    ShapeType.SPHERE: (newton.GeoType.SPHERE, (1.0,), (0, 0, 0)),
    ShapeType.ELLIPSOID: (newton.GeoType.SPHERE, (1.0,), (0, 1, 2)),
    ShapeType.CYLINDER: (newton.GeoType.CYLINDER, (1.0, 1.0), (0, 0, 1)),
    ShapeType.BOX: (newton.GeoType.BOX, (1.0, 1.0, 1.0), (0, 1, 2)),
    ShapeType.CAPSULE: (newton.GeoType.CAPSULE, (1.0, 1.0), (0, 0, 1)),
}
"""Newton's type and the size of the one geometry of each type, and which length of a primitive scales each axis."""


class NewtonMarkers:
    """What is drawn beside the model.

    Args:
        window: Where to draw it.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.
    """

    def __init__(self, window: NewtonWindow, env_ids: NDArray[np.int64], offsets: NDArray[np.float64]):
        self._window = window
        self._env_ids = env_ids
        self._offsets = offsets
        self._shown: set[ShapeType] = set()

    def show(self, geometry: PackedGeometry | None) -> None:
        """Show this, and nothing of what was shown before."""
        for index, shape in enumerate(PRIMITIVES):
            rows, shifts = self._rows(geometry, index)
            if geometry is not None and len(rows):
                self._show(shape, geometry, rows, shifts)
            elif shape in self._shown:
                self._window.log_instances(_name(shape), _unit(shape), None, None, None, None, hidden=True)
                self._shown.discard(shape)

    def _show(self, shape: ShapeType, geometry: PackedGeometry, rows: NDArray[np.intp], shifts: NDArray) -> None:
        window = self._window
        kind, size, lengths = _UNITS[shape]
        if _unit(shape) not in window.objects:
            window.log_geo(_unit(shape), kind, size, 0.0, True, hidden=True)
        places = np.concatenate((geometry.positions[rows] + shifts, geometry.quaternions[rows]), axis=1)
        draw = window.log_capsules if shape is ShapeType.CAPSULE else window.log_instances
        draw(
            _name(shape),
            _unit(shape),
            self._array(places, wp.transformf),
            self._array(geometry.sizes[rows][:, list(lengths)], wp.vec3f),
            self._array(geometry.rgba[rows, :3], wp.vec3f),
            self._array(np.tile((0.5, 0.0, 0.0, 0.0), (len(rows), 1)), wp.vec4f),
            opacities=self._array(geometry.rgba[rows, 3], wp.float32),
        )
        self._shown.add(shape)

    def _rows(self, geometry: PackedGeometry | None, index: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Rows of one type in all environments that are shown, and how far each is moved."""
        if geometry is None or not len(self._env_ids):
            return np.zeros(0, np.intp), np.zeros((0, 3))
        # What every environment shows is there once for each.
        envs = np.concatenate((np.full(len(self._env_ids), -1), self._env_ids))
        shifts = np.tile(self._offsets, (2, 1))
        blocks = (envs + 1) * len(PRIMITIVES) + index
        counts = geometry.first[blocks + 1] - geometry.first[blocks]
        starts = np.repeat(geometry.first[blocks] - (np.cumsum(counts) - counts), counts)
        return (starts + np.arange(len(starts))).astype(np.intp), np.repeat(shifts, counts, axis=0)

    def _array(self, values: NDArray, dtype: object) -> wp.array:
        return wp.array(np.ascontiguousarray(values, dtype=np.float32), dtype=dtype, device=self._window.device)


def _name(shape: ShapeType) -> str:
    return f"{_ROOT}/{shape.value}"


def _unit(shape: ShapeType) -> str:
    return f"{_ROOT}/units/{shape.value}"
