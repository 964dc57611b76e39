"""The bytes that frames live in: one allocation, cut into extents."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any

import warp as wp

from .layout import PlaneLayout

__all__ = ["Arena", "Extent"]

Extent = tuple[int, int]
"""Start and length in an arena [bytes]."""

_ALIGNMENT = 16


def _aligned(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


class Arena:
    """Room for `max_slots` planes of up to `slot_byte_length`, within `max_bytes`, in one allocation.

    Where the largest planes all fit together, every plane gets an extent of that length, and any free extent fits any
    plane. Where they do not, planes are packed by their own length. Starts are aligned to 16 bytes, for which up to 15
    bytes per slot are allocated beyond `max_bytes`.
    """

    def __init__(self, max_slots: int, slot_byte_length: int, max_bytes: int, device: Any):
        self.geometry = self.geometry_of(max_slots, slot_byte_length, max_bytes)
        length, self._stride = self.geometry
        self._storage: Any = wp.empty(length, dtype=wp.uint8, device=device)
        wp.synchronize_device(device)  # CUDA pools allocate in stream order, and other streams will use it
        self._free: list[Extent] = [(0, length)]

    @staticmethod
    def geometry_of(max_slots: int, slot_byte_length: int, max_bytes: int) -> tuple[int, int]:
        """Length of the allocation [bytes], and the length of every extent or 0 where planes are packed."""
        stride = _aligned(slot_byte_length)
        if max_slots * slot_byte_length <= max_bytes:
            return max_slots * stride, stride
        return _aligned(max_bytes) + max_slots * _ALIGNMENT, 0

    def allocate(self, nbytes: int) -> Extent | None:
        """Take the smallest free extent that fits."""
        length = self._extent_length(nbytes)
        fitting = [extent for extent in self._free if extent[1] >= length]
        if not fitting:
            return None
        start, available = min(fitting, key=lambda extent: extent[1])
        self._free.remove((start, available))
        if available > length:
            insort(self._free, (start + length, available - length))
        return start, length

    def free(self, extent: Extent) -> None:
        """Give an extent back; neighbours grow together."""
        self._free = _merged(self._free, extent)

    def could_allocate(self, nbytes: int, after_freeing: Iterable[Extent] = ()) -> bool:
        """Whether some free extent would fit, were some of the taken ones free."""
        free = self._free
        for extent in after_freeing:
            free = _merged(free, extent)
        length = self._extent_length(nbytes)
        return any(available >= length for _, available in free)

    def array(self, extent: Extent, layout: PlaneLayout) -> Any:
        """Warp array of a plane in an extent. It keeps the storage alive, and so do views of it."""
        pointer = self._storage.ptr + extent[0]
        array: Any = wp.array(ptr=pointer, dtype=layout.dtype, shape=layout.shape, device=self._storage.device)
        array.frame_storage = self._storage
        return array

    def _extent_length(self, nbytes: int) -> int:
        return self._stride or _aligned(nbytes)


def _merged(free: list[Extent], extent: Extent) -> list[Extent]:
    """Sorted free extents, with one more that is joined with its neighbours."""
    start, length = extent
    after = bisect_left(free, extent)
    before = after
    if after < len(free) and free[after][0] == start + length:
        length += free[after][1]
        after += 1
    if before > 0 and sum(free[before - 1]) == start:
        before -= 1
        start, length = free[before][0], length + free[before][1]
    return [*free[:before], (start, length), *free[after:]]
