"""Checks of what is set about cameras at run time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scene_data.camera_frames import to_opengl

__all__ = ["checked_envs", "checked_pinholes", "checked_positions", "checked_quaternions"]


def checked_envs(env_ids: Sequence[int] | None, num_envs: int) -> NDArray[np.int64]:
    """Indices of environments; None is all of them."""
    if env_ids is None:
        return np.arange(num_envs)
    envs = _host(env_ids)
    if envs.ndim != 1 or (envs != np.round(envs)).any() or ((envs < 0) | (envs >= num_envs)).any():
        raise ValueError(f"env_ids must lie in [0, {num_envs}), got {envs.tolist()}")
    return envs.astype(np.int64)


def checked_positions(positions: Any, count: int) -> NDArray[np.float64]:
    """Positions (count, 3)."""
    return _rows("positions", positions, count, (3,))


def checked_quaternions(orientations: Any, count: int, convention: str) -> NDArray[np.float64]:
    """Unit quaternions (count, 4) of the frame that looks along -Z with +Y up."""
    quaternions = _rows("orientations", orientations, count, (4,))
    norm = np.linalg.norm(quaternions, axis=-1, keepdims=True)
    if (norm < 1e-12).any():
        raise ValueError("orientations must not be zero")
    return to_opengl(quaternions / norm, convention)


def checked_pinholes(matrices: Any, count: int) -> NDArray[np.float64]:
    """(fx, fy, cx, cy) (count, 4) of pinhole matrices."""
    k = _rows("intrinsic matrices", matrices, count, (3, 3))
    form = np.array([[1, 0, 1], [0, 1, 1], [0, 0, 0]], dtype=bool)
    if (k[:, ~form] != np.eye(3)[~form]).any():
        raise ValueError(
            f"intrinsic matrices must have the form [[fx, 0, cx], [0, fy, cy], [0, 0, 1]], got {k.tolist()}"
        )
    if (k[:, [0, 1], [0, 1]] <= 0.0).any():
        raise ValueError(f"focal lengths must be above 0, got {k[:, [0, 1], [0, 1]].tolist()}")
    return np.stack((k[:, 0, 0], k[:, 1, 1], k[:, 0, 2], k[:, 1, 2]), axis=1)


def _rows(name: str, values: Any, count: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = _host(values)
    if array.shape not in (shape, (count, *shape)):
        raise ValueError(f"{name} must have shape {shape} or {(count, *shape)}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array.tolist()}")
    return np.broadcast_to(array, (count, *shape))


def _host(values: Any) -> NDArray[np.float64]:
    """A float64 array on the host, also of torch tensors and Warp arrays."""
    for method in ("detach", "cpu", "numpy"):
        if hasattr(values, method):
            values = getattr(values, method)()
    return np.asarray(values, dtype=np.float64)
