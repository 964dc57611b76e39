"""Checks of what is set about cameras at run time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scene_data.camera import pinhole_matrices
from scene_data.camera_frames import to_opengl
from scene_data.runtime_values import checked_rows

__all__ = ["checked_pinholes", "checked_positions", "checked_quaternions"]


def checked_positions(positions: Any, count: int) -> NDArray[np.float64]:
    """Positions (count, 3)."""
    return checked_rows("positions", positions, count, (3,))


def checked_quaternions(orientations: Any, count: int, convention: str) -> NDArray[np.float64]:
    """Unit quaternions (count, 4) of the frame that looks along -Z with +Y up."""
    quaternions = checked_rows("orientations", orientations, count, (4,))
    norm = np.linalg.norm(quaternions, axis=-1, keepdims=True)
    if (norm < 1e-12).any():
        raise ValueError("orientations must not be zero")
    return to_opengl(quaternions / norm, convention)


def checked_pinholes(matrices: Any, count: int) -> NDArray[np.float64]:
    """(fx, fy, cx, cy) (count, 4) of pinhole matrices."""
    k = pinhole_matrices(checked_rows("intrinsic matrices", matrices, count, (3, 3)))
    return np.stack((k[:, 0, 0], k[:, 1, 1], k[:, 0, 2], k[:, 1, 2]), axis=1)
