"""The slots of a frame store and the budget they share: what is written, committed or held, and what may be evicted."""

from enum import Enum
from typing import Any

from scene_data.streams import WorkOrder

from .arena import Arena, Extent
from .layout import FrameStamp, PlaneKind, PlaneLayout

__all__ = ["FrameSlot", "SlotPool", "SlotState"]


class SlotState(Enum):
    """What is in a slot."""

    FREE = "free"
    RESERVED = "reserved"  # being written
    RECORD = "record"  # a frame of the generation in force
    SUPERSEDED = "superseded"  # a frame of an older generation that somebody still holds


class FrameSlot:
    """One of the places for frames; reused for another frame only when nobody holds it.

    Attributes:
        completed: Event that completes the frame on CUDA, None on the CPU.
        holds: How many writers and leases hold it; arrays share the hold of their lease.
        nbytes: Length of the plane in it [bytes].
        extent: Where its bytes are in `arena`.
    """

    __slots__ = ("arena", "completed", "extent", "holds", "layout", "nbytes", "plane", "stamp", "state")

    def __init__(self, completed: Any):
        self.completed = completed
        self.clear()

    def clear(self) -> None:
        """Make it empty."""
        self.state = SlotState.FREE
        self.holds = 0
        self.nbytes = 0
        self.extent: Extent = (0, 0)
        self.arena: Arena | None = None
        self.plane: PlaneKind | None = None
        self.layout: PlaneLayout | None = None
        self.stamp: FrameStamp | None = None

    def shows(self, plane: PlaneKind, camera_id: int = 0, capture_id: int = 0) -> bool:
        """Whether it holds a frame of a plane, and of a camera and a capture where those are not 0."""
        stamp = self.stamp
        return (
            self.plane is plane
            and stamp is not None
            and camera_id in (0, stamp.camera_id)
            and capture_id in (0, stamp.capture_id)
        )


class SlotPool:
    """A fixed number of slots, and the arena that their bytes come from. Not thread-safe.

    Attributes:
        max_slots: Slots that are not free at once.
        max_bytes: Length of the planes in them together [bytes].
        slots: All of them.
        records: Those of the generation in force, oldest first.
        evictions: Frames dropped so far to make room.
        arena_count: Arenas allocated so far.
    """

    def __init__(self, max_slots: int, max_bytes: int, order: WorkOrder):
        self.max_slots = max_slots
        self.max_bytes = max_bytes
        self.slots = tuple(FrameSlot(order.new_event()) for _ in range(max_slots))
        self.records: list[FrameSlot] = []
        self.evictions = 0
        self.arena_count = 0
        self._free = list(self.slots)
        self._used_bytes = 0  # in slots that are not free
        self._held_slots = 0
        self._held_bytes = 0
        self._arena: Arena | None = None
        self._device = order.device

    def count(self, state: SlotState) -> int:
        """Slots in a state."""
        return sum(slot.state is state for slot in self.slots)

    def byte_length(self, *states: SlotState) -> int:
        """Length of the planes in slots of some states [bytes]."""
        return sum(slot.nbytes for slot in self.slots if slot.state in states)

    def room(self) -> tuple[int, int]:
        """Slots and bytes that are neither held nor being written; unheld frames count as room."""
        return self.max_slots - self._held_slots, self.max_bytes - self._held_bytes

    def start_generation(self, slot_byte_length: int, wanted_slots: int) -> None:
        """Drop all records, but those that are held stay with their holders, and provide bytes for the new frames.

        Raises:
            MemoryError, RuntimeError: The device has not enough memory; all is as it was.
        """
        self._arena = self._arena_for(slot_byte_length, wanted_slots)
        for slot in self.records:
            if slot.holds:
                slot.state = SlotState.SUPERSEDED
            else:
                self._vacate(slot)
        self.records.clear()

    def make_room(self, nbytes: int) -> str:
        """Evict what has to go for one more plane. Where that cannot help, evict nothing and say what is short."""
        if self._has_room(nbytes):
            return ""
        slots_left, bytes_left = self.room()
        if slots_left < 1:
            return f"all {self.max_slots} slots are held or being written"
        if bytes_left < nbytes:
            return f"{nbytes:,} bytes are wanted, but only {bytes_left:,} are neither held nor being written"
        if not self._could_allocate(nbytes):
            return f"{bytes_left:,} bytes are left between held frames, but not {nbytes:,} in one piece"
        position = 0
        while not self._has_room(nbytes):
            if self.records[position].holds:
                position += 1
            else:
                self._vacate(self.records.pop(position))
                self.evictions += 1
        return ""

    def reserve(self, plane: PlaneKind, layout: PlaneLayout) -> tuple[FrameSlot, Any]:
        """A slot for a plane, for which there is room, and the Warp array to write it to."""
        assert self._arena is not None
        extent = self._arena.allocate(layout.byte_length)
        assert extent is not None
        slot = self._free.pop()
        slot.state = SlotState.RESERVED
        slot.arena, slot.extent, slot.nbytes = self._arena, extent, layout.byte_length
        slot.plane, slot.layout = plane, layout
        self._used_bytes += slot.nbytes
        self.begin_hold(slot)
        return slot, self._arena.buffer(extent, layout)

    def publish(self, slot: FrameSlot, stamp: FrameStamp) -> None:
        """Turn a written slot into the newest record."""
        slot.state, slot.stamp = SlotState.RECORD, stamp
        self.records.append(slot)

    def begin_hold(self, slot: FrameSlot) -> None:
        """One holder more."""
        if slot.holds == 0:
            self._held_slots += 1
            self._held_bytes += slot.nbytes
        slot.holds += 1

    def end_hold(self, slot: FrameSlot) -> None:
        """One holder fewer; what is no record is free with its last one."""
        slot.holds -= 1
        if slot.holds == 0:
            self._held_slots -= 1
            self._held_bytes -= slot.nbytes
            if slot.state is not SlotState.RECORD:
                self._vacate(slot)

    def _has_room(self, nbytes: int) -> bool:
        assert self._arena is not None
        fits = bool(self._free) and self._used_bytes + nbytes <= self.max_bytes
        return fits and self._arena.could_allocate(nbytes)

    def _could_allocate(self, nbytes: int, count: int = 1) -> bool:
        """Whether so many planes of this length would fit once all unheld records are gone."""
        assert self._arena is not None
        return self._arena.could_allocate(nbytes, count, [slot.extent for slot in self.records if not slot.holds])

    def _vacate(self, slot: FrameSlot) -> None:
        assert slot.arena is not None
        slot.arena.free(slot.extent)
        self._used_bytes -= slot.nbytes
        slot.clear()
        self._free.append(slot)

    def _arena_for(self, slot_byte_length: int, wanted_slots: int) -> Arena:
        """The present arena where it serves the new generation too, else a new one.

        What readers hold in the old one keeps it allocated, beside the new one, until they let go.
        """
        if self._arena is not None:
            geometry = Arena.geometry_of(self.max_slots, slot_byte_length, self.max_bytes)
            if geometry == self._arena.geometry and self._could_allocate(slot_byte_length, wanted_slots):
                return self._arena
        arena = Arena(self.max_slots, slot_byte_length, self.max_bytes, self._device)
        self.arena_count += 1
        return arena
