"""What a host engine last published, bit by bit, so that a write is seen without a notice."""

from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

__all__ = ["PublishedArray", "borrow"]


class PublishedArray:
    """A live array of an engine, and a copy of it as it was last published.

    Bits are compared, not values: NaN equals itself, and no tolerance hides a small move. Nothing is allocated after
    construction.

    Args:
        live: The engine's array, one row per environment, `(N, ...)` float64. It may be strided between rows.
    """

    def __init__(self, live: NDArray[np.float64]):
        num_envs = live.shape[0]
        self.live = live
        self._bits = live.reshape(num_envs, -1).view(np.uint64)
        self._published = np.zeros_like(self._bits)
        self._differs = np.zeros(self._bits.shape, bool)
        self._rows = np.zeros(num_envs, bool)
        if live.size and not np.shares_memory(self._bits, live):
            raise ValueError(f"An array of shape {live.shape} and strides {live.strides} cannot be watched in place.")

    def mark_changed(self, rows: NDArray[np.bool_]) -> None:
        """Set in `rows`, `(N,)`, which environments differ from what was published; leave the others as they are."""
        if self._any_change():
            np.logical_or.reduce(self._differs, axis=1, out=self._rows)
            np.logical_or(rows, self._rows, out=rows)

    def publish(self) -> bool:
        """Take the present content as published. Returns whether it is new."""
        # Where something has moved at all, the first environment mostly has.
        np.not_equal(self._bits[:1], self._published[:1], out=self._differs[:1])
        changed = bool(self._differs[:1].any()) or self._any_change()
        if changed:
            np.copyto(self._published, self._bits)
        return changed

    def _any_change(self) -> bool:
        np.not_equal(self._bits, self._published, out=self._differs)
        return bool(np.count_nonzero(self._differs))


def borrow(array: NDArray[np.float64], dtype: Any) -> wp.array:
    """A Warp array of vectors or matrices over the engine's own memory.

    Args:
        array: `(N, count, ...)` float64, contiguous. It must stay allocated for as long as the result is used; the
            result keeps a reference to it.
        dtype: `wp.vec3d` or `wp.mat33d`.
    """
    shape = dtype._shape_
    flat = array.reshape(-1, *shape)
    borrowed = wp.array(flat, dtype=dtype, device="cpu", copy=False)
    if flat.size and borrowed.ptr != array.ctypes.data:
        raise ValueError(f"An array of shape {array.shape} and strides {array.strides} cannot be borrowed.")
    return borrowed
