"""Which extra geometry is shown, and where: what all environments share is there once in each of them."""

import numpy as np
from numpy.typing import NDArray

from scene_data.extra_geometry import PRIMITIVES
from scene_data.geometry_sources import PackedGeometry
from scene_data.scene import ShapeType

__all__ = ["MarkerRows", "marker_rows"]

MarkerRows = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
"""Positions `(M, 3)` [m], quaternions `(M, 4)` (x, y, z, w), sizes `(M, 3)` [m] and colours `(M, 4)`."""


def marker_rows(
    geometry: PackedGeometry | None, env_ids: NDArray[np.int64], offsets: NDArray[np.float64]
) -> dict[ShapeType, MarkerRows]:
    """The primitives of each type in all the environments that are shown.

    Args:
        geometry: All that there is; None is nothing.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.
    """
    return {shape: _of_type(geometry, index, env_ids, offsets) for index, shape in enumerate(PRIMITIVES)}


def _of_type(
    geometry: PackedGeometry | None, index: int, env_ids: NDArray[np.int64], offsets: NDArray[np.float64]
) -> MarkerRows:
    if geometry is None or not len(env_ids):
        threes, fours = np.zeros((0, 3), np.float32), np.zeros((0, 4), np.float32)
        return threes, fours, threes, fours
    # What all environments share is in the blocks of environment -1.
    blocks = np.concatenate((np.zeros_like(env_ids), env_ids + 1)) * len(PRIMITIVES) + index
    begins, ends = geometry.first[blocks], geometry.first[blocks + 1]
    shifts = np.repeat(np.tile(offsets, (2, 1)), ends - begins, axis=0)
    rows = np.concatenate([np.arange(*span) for span in zip(begins.tolist(), ends.tolist(), strict=True)]).astype(int)
    placed = (geometry.positions[rows] + shifts).astype(np.float32)
    return placed, geometry.quaternions[rows], geometry.sizes[rows], geometry.rgba[rows]
