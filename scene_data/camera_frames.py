"""The frames in which people say how a camera is turned, and the way from one to another.

`"opengl"` looks along -Z with +Y up (MuJoCo's and USD's, and ours), `"ros"` looks along +Z with -Y up, `"world"` looks
along +X with +Z up. The names are Isaac Lab's. Quaternions are (x, y, z, w).
"""

from typing import Any

from scene_data.errors import UnknownNameError

__all__ = ["CONVENTIONS", "in_convention", "to_opengl"]

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
