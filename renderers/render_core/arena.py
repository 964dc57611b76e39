"""The bytes that frames live in: one allocation, cut into extents."""

from bisect import bisect_left, insort
from collections.abc import Collection
from typing import Any

import warp as wp

from .layout import PlaneLayout

__all__ = ["Arena", "Extent"]

Extent = tuple[int, int]
"""Start and length in an arena [bytes]."""

_ALIGNMENT = 16


class Arena:
    """Room for `max_slots` planes of up to `slot_byte_length`, within `max_bytes`, in one allocation.

    Where the largest planes all fit together, every plane gets an extent of that length, and any free extent fits any
    plane. Where they do not, planes are packed by their own length. Starts are aligned to 16 bytes, for which up to 15
    bytes per slot are allocated beyond `max_bytes`.

    On CUDA the allocation lies outside of the memory pool: a pool frees in the order of one stream, while this memory
    may only go once the readers on all streams are done, for which freeing plain memory waits.
    """

    def __init__(self, max_slots: int, slot_byte_length: int, max_bytes: int, device: Any):
        self.geometry = self.geometry_of(max_slots, slot_byte_length, max_bytes)
        length, stride = self.geometry
        with wp.ScopedMempool(device, False):
            self._storage: Any = wp.empty(length, dtype=wp.uint8, device=device)
        self._extents = _EqualExtents(length, stride) if stride else _PackedExtents(length)
        self._buffers: dict[tuple[Extent, PlaneLayout], Any] = {}

    @staticmethod
    def geometry_of(max_slots: int, slot_byte_length: int, max_bytes: int) -> tuple[int, int]:
        """Length of the allocation [bytes], and the length of every extent or 0 where planes are packed."""
        stride = _aligned(slot_byte_length)
        if max_slots * slot_byte_length <= max_bytes:
            return max_slots * stride, stride
        return _aligned(max_bytes) + max_slots * _ALIGNMENT, 0

    def allocate(self, nbytes: int) -> Extent | None:
        """Take a free extent that fits."""
        return self._extents.allocate(nbytes)

    def free(self, extent: Extent) -> None:
        """Give an extent back."""
        self._extents.free(extent)

    def could_allocate(self, nbytes: int, count: int = 1, after_freeing: Collection[Extent] = ()) -> bool:
        """Whether so many planes of up to this length would fit, were some of the taken extents free."""
        return self._extents.could_allocate(nbytes, count, after_freeing)

    def array(self, extent: Extent, layout: PlaneLayout) -> Any:
        """New Warp array of a plane in an extent. It keeps the storage alive, and so do views of it."""
        pointer = self._storage.ptr + extent[0]
        array: Any = wp.array(ptr=pointer, dtype=layout.dtype, shape=layout.shape, device=self._storage.device)
        array.frame_storage = self._storage
        return array

    def buffer(self, extent: Extent, layout: PlaneLayout) -> Any:
        """The same as a shared array, made once where the extents repeat."""
        key = (extent, layout)
        buffer = self._buffers.get(key)
        if buffer is None:
            buffer = self.array(extent, layout)
            if self.geometry[1]:
                self._buffers[key] = buffer
        return buffer


class _EqualExtents:
    """Extents of one length: any of them fits."""

    def __init__(self, length: int, stride: int):
        self._free: list[Extent] = [(start, stride) for start in range(0, length, stride)]

    def allocate(self, nbytes: int) -> Extent | None:
        return self._free.pop() if self._free else None

    def free(self, extent: Extent) -> None:
        self._free.append(extent)

    def could_allocate(self, nbytes: int, count: int, after_freeing: Collection[Extent]) -> bool:
        return len(self._free) + len(after_freeing) >= count


class _PackedExtents:
    """Extents of the lengths that are asked for, the smallest free one that fits; free neighbours grow together."""

    def __init__(self, length: int):
        self._free: list[Extent] = [(0, length)]

    def allocate(self, nbytes: int) -> Extent | None:
        length = _aligned(nbytes)
        fitting = [extent for extent in self._free if extent[1] >= length]
        if not fitting:
            return None
        start, available = min(fitting, key=lambda extent: extent[1])
        self._free.remove((start, available))
        if available > length:
            insort(self._free, (start + length, available - length))
        return start, length

    def free(self, extent: Extent) -> None:
        self._free = _merged(self._free, extent)

    def could_allocate(self, nbytes: int, count: int, after_freeing: Collection[Extent]) -> bool:
        free = self._free
        for extent in after_freeing:
            free = _merged(free, extent)
        length = _aligned(nbytes)
        return sum(available // length for _, available in free) >= count


def _aligned(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


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
