"""The frames in which people say how a camera is turned, and the way from one to another.

`"opengl"` looks along -Z with +Y up (MuJoCo's and USD's, and ours), `"ros"` looks along +Z with -Y up, `"world"` looks
along +X with +Z up. The names are Isaac Lab's. Quaternions are (x, y, z, w).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scene_data.errors import UnknownNameError

__all__ = ["CONVENTIONS", "in_convention", "to_opengl", "view_quaternions"]

CONVENTIONS: dict[str, tuple[float, float, float, float]] = {
    "opengl": (0.0, 0.0, 0.0, 1.0),
    "ros": (1.0, 0.0, 0.0, 0.0),
    "world": (0.5, -0.5, -0.5, 0.5),
}
"""How the OpenGL frame is turned in each of these frames."""


def to_opengl(quaternions: Any, convention: str) -> Any:
    """Orientations (..., 4) of an OpenGL frame, from those of a camera frame of this convention.

    Takes and gives NumPy arrays or torch tensors, also on a device.

    Raises:
        UnknownNameError: There is no such convention.
    """
    return _times(quaternions, _turn(convention))


def in_convention(quaternions: Any, convention: str) -> Any:
    """Orientations (..., 4) of a camera frame of this convention, from those of an OpenGL frame. See `to_opengl`."""
    x, y, z, w = _turn(convention)
    return _times(quaternions, (-x, -y, -z, w))


def view_quaternions(eyes: ArrayLike, targets: ArrayLike, up: ArrayLike = (0.0, 0.0, 1.0)) -> NDArray[np.float64]:
    """Orientations (..., 4) of OpenGL frames at `eyes` (..., 3) whose optical axes go through `targets` (..., 3).

    `up` (3,) is upwards in the images; where that is the direction of the view, +Y of the world is, or +Z.

    Raises:
        ValueError: An eye is its target.
    """
    eyes, back = np.asarray(eyes, float), np.asarray(eyes, float) - np.asarray(targets, float)
    distance = np.linalg.norm(back, axis=-1, keepdims=True)
    if not (distance > 0.0).all():
        same = np.broadcast_to(eyes, back.shape)[~(distance > 0.0)[..., 0]][0]
        raise ValueError(
            f"eye and target are the same point {tuple(same.tolist())}: there is no direction to look along"
        )
    back = back / distance
    right = np.cross(np.asarray(up, float), back)
    along = np.linalg.norm(right, axis=-1, keepdims=True) < 1e-9
    instead = np.where(np.abs(back[..., 1:2]) < 0.9, (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    right = np.where(along, np.cross(instead, back), right)
    right = right / np.linalg.norm(right, axis=-1, keepdims=True)
    return _quaternions(np.stack((right, np.cross(back, right), back), axis=-1))


def _turn(convention: str) -> tuple[float, float, float, float]:
    if convention not in CONVENTIONS:
        raise UnknownNameError("camera convention", convention, CONVENTIONS)
    return CONVENTIONS[convention]


def _times(left: Any, right: tuple[float, float, float, float]) -> Any:
    """Hamilton products of quaternions (..., 4) with one."""
    x, y, z, w = (left[..., i] for i in range(4))
    a, b, c, d = right
    product = left.clone() if hasattr(left, "clone") else left.copy()
    product[..., 0] = w * a + x * d + y * c - z * b
    product[..., 1] = w * b - x * c + y * d + z * a
    product[..., 2] = w * c + x * b - y * a + z * d
    product[..., 3] = w * d - x * a - y * b - z * c
    return product


def _quaternions(rotations: NDArray[np.float64]) -> NDArray[np.float64]:
    """(x, y, z, w) (..., 4) of rotation matrices (..., 3, 3): the top eigenvector of Bar-Itzhack's symmetric matrix."""
    m = np.moveaxis(rotations, (-2, -1), (0, 1))
    k = np.zeros((4, 4, *m.shape[2:]))
    k[0, 0] = m[0, 0] - m[1, 1] - m[2, 2]
    k[1, 0], k[1, 1] = m[0, 1] + m[1, 0], m[1, 1] - m[0, 0] - m[2, 2]
    k[2, 0], k[2, 1], k[2, 2] = m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], m[2, 2] - m[0, 0] - m[1, 1]
    k[3, 0], k[3, 1], k[3, 2] = m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]
    k[3, 3] = m[0, 0] + m[1, 1] + m[2, 2]
    return np.linalg.eigh(np.moveaxis(k, (0, 1), (-2, -1)))[1][..., -1]  # eigh reads the lower triangle
