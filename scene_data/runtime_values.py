"""Checks of values that are given for some environments while a simulation runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["checked_envs", "checked_rows", "on_host"]


def checked_envs(env_ids: Sequence[int] | slice | Any | None, num_envs: int) -> NDArray[np.int64]:
    """Indices of environments, from a sequence, an array, a tensor or a slice; None is all of them.

    Raises:
        ValueError: They are no indices, or not of environments that there are.
    """
    if env_ids is None:
        return np.arange(num_envs)
    if isinstance(env_ids, slice):
        return np.arange(num_envs)[env_ids]
    envs = on_host(env_ids)
    if envs.dtype == bool:
        raise ValueError("env_ids must be indices of environments, not a mask")
    envs = envs.astype(np.float64)
    if envs.ndim != 1 or (envs != np.round(envs)).any() or ((envs < 0) | (envs >= num_envs)).any():
        raise ValueError(f"env_ids must lie in [0, {num_envs}), got {envs.tolist()}")
    return envs.astype(np.int64)


def checked_rows(name: str, values: Any, count: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Finite values (count, *shape), from one for each row or one for all.

    Raises:
        ValueError: They have another shape, or are not finite.
    """
    array = on_host(values).astype(np.float64)
    if array.shape not in (shape, (count, *shape)):
        raise ValueError(f"{name} must have shape {shape} or {(count, *shape)}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array.tolist()}")
    return np.broadcast_to(array, (count, *shape))


def on_host(values: Any) -> NDArray[Any]:
    """An array in the host's memory, also of a torch tensor or a Warp array."""
    for method in ("detach", "cpu", "numpy"):
        if hasattr(values, method):
            values = getattr(values, method)()
    return np.asarray(values)
