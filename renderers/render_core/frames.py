"""The frame store: a fixed budget of slots and bytes, written through writers and read through leases."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import index
from typing import Any

import warp as wp

from scene_data.streams import work_order_of

from .blanks import BlankCounter
from .brief_lock import BriefLock
from .durations import Durations, DurationSummary
from .layout import FrameStamp, PlaneKind, PlaneLayout
from .leases import FrameLease, Hold, ReturnQueue
from .slots import FrameSlot, SlotPool, SlotState
from .status import FrameStatus, FrameStatusCode
from .writers import FrameWriter

__all__ = ["FrameBoundary", "FrameLease", "FrameWriter"]

_CANCEL_POLL_S = 0.05


class FrameBoundary:
    """Where rendered planes become frames that any number of readers hold without blocking the writer.

    Slot objects exist from construction and their bytes from `reconfigure`; afterwards nothing is allocated. A writer
    that finds no room evicts the oldest frames that nobody holds. All writers of a CUDA store use one stream.

    Args:
        max_slots: Frames that exist at once, in writing, committed or held.
        max_bytes: Length of their planes together [bytes].
        device: Warp device of the frames.

    Attributes:
        device: Warp device of the frames.
        work_order: Orders work on that device.

    Raises:
        ValueError: A limit below 1, or a device that does not exist.
    """

    def __init__(self, max_slots: int, max_bytes: int, device: Any = "cpu"):
        max_slots, max_bytes = _checked("max_slots", max_slots, 1), _checked("max_bytes", max_bytes, 1)
        self.device = wp.get_device(device)
        self.work_order = work_order_of(self.device)
        self._pool = SlotPool(max_slots, max_bytes, self.work_order)
        self._returns = ReturnQueue()
        self._lock = BriefLock()
        self._stopped = False
        self._generation = 0
        self._epoch = 0  # grows with each reconfigure, also where the generation stays
        self._slot_byte_length = 0
        self._capture: FrameStamp | None = None
        self._last_capture_id = 0
        self._plane_sequences = dict.fromkeys(PlaneKind, 0)
        self._reader_events: list[Any] = []
        self._commits = 0
        self._drops: Counter[str] = Counter()
        self._waits = Durations()
        self._blanks = BlankCounter(self.work_order)

    @property
    def max_slots(self) -> int:
        """Frames that exist at once."""
        return self._pool.max_slots

    @property
    def max_bytes(self) -> int:
        """Length of their planes together [bytes]."""
        return self._pool.max_bytes

    @property
    def generation(self) -> int:
        """Frame generation in force, 0 before the first `reconfigure`."""
        return self._generation

    @property
    def last_capture_id(self) -> int:
        """The capture begun last, 0 before the first."""
        return self._last_capture_id

    @property
    def reserved_slots(self) -> int:
        """Writers that have not ended."""
        with self._lock:
            self._settle()
            return self._pool.count(SlotState.RESERVED)

    @property
    def reserved_bytes(self) -> int:
        """Length of the planes that are being written [bytes]."""
        with self._lock:
            self._settle()
            return self._pool.byte_length(SlotState.RESERVED)

    @property
    def committed_bytes(self) -> int:
        """Length of the committed planes [bytes], those of older generations that are still held included."""
        with self._lock:
            self._settle()
            return self._pool.byte_length(SlotState.RECORD, SlotState.SUPERSEDED)

    @property
    def record_count(self) -> int:
        """Frames of the generation in force."""
        return len(self._pool.records)

    @property
    def storage_allocations(self) -> int:
        """Slot objects made since construction."""
        return len(self._pool.slots)

    @property
    def buffer_growths(self) -> int:
        """Allocations of bytes made since construction."""
        return self._pool.arena_count

    @property
    def evictions(self) -> int:
        """Frames dropped to make room since construction."""
        return self._pool.evictions

    @property
    def commits(self) -> int:
        """Frames committed since construction."""
        return self._commits

    @property
    def drops(self) -> dict[str, int]:
        """Planes that found no writer or whose commit failed since construction, by the name of the status code."""
        with self._lock:
            return dict(self._drops)

    @property
    def waits(self) -> DurationSummary:
        """The waits for capacity that did not end at once."""
        with self._lock:
            return self._waits.summary()

    @property
    def blank_environments(self) -> dict[int, int]:
        """How often each environment was drawn as background because its poses were not finite."""
        return self._blanks.counts()

    def note_blank_environments(self, environments: Iterable[int]) -> None:
        """Count environments that a backend drew as background in one capture."""
        self._blanks.note(environments)

    def note_blank_flags(self, flags: Any) -> None:
        """The same for a Warp array int32 (num_envs,) on any device, not 0 for what was blank; waits for nothing."""
        self._blanks.note_flags(flags)

    def held_frames(self) -> list[tuple[int, PlaneKind, int]]:
        """How many committed frames readers hold, as (camera id, plane, count)."""
        with self._lock:
            self._settle()
            held = Counter(
                (slot.stamp.camera_id, slot.plane)
                for slot in self._pool.slots
                if slot.holds and slot.stamp is not None and slot.plane is not None
            )
        return [(camera_id, plane, count) for (camera_id, plane), count in held.items()]

    def reconfigure(self, generation: int, slot_byte_length: int, warm_slots: int = 0) -> FrameStatus:
        """Start a frame generation. The frames of the one before leave; what readers hold of them stays valid.

        Args:
            generation: At least 1, and not older than the one in force.
            slot_byte_length: Length of the largest plane [bytes].
            warm_slots: Slots of that length for which there has to be room beside what is held and in writing.

        Returns:
            OK; GENERATION_CAPACITY_EXHAUSTED when there is no room, with all as it was; STALE_GENERATION; STOPPED.

        Raises:
            ValueError: A generation or length below 1, or negative `warm_slots`.
        """
        generation = _checked("generation", generation, 1)
        length = _checked("slot_byte_length", slot_byte_length, 1)
        wanted = max(1, _checked("warm_slots", warm_slots, 0))
        with self.work_order.enqueueing(), self._lock:
            self._settle()
            if self._stopped:
                return self._refusal(FrameStatusCode.STOPPED, "the frame store is stopped")
            if generation < self._generation:
                return self._refusal(FrameStatusCode.STALE_GENERATION, f"generation {generation} is in the past")
            slots, nbytes = self._pool.room()
            if slots < wanted or nbytes < wanted * length:
                message = (
                    f"{wanted} slots of {length} bytes are wanted, but there is room for {slots} of {nbytes} bytes"
                )
                return self._refusal(FrameStatusCode.GENERATION_CAPACITY_EXHAUSTED, message)
            try:
                self._pool.start_generation(length, wanted)
            except (MemoryError, RuntimeError) as error:
                return self._refusal(FrameStatusCode.GENERATION_CAPACITY_EXHAUSTED, str(error))
            self._generation, self._slot_byte_length = generation, length
            self._epoch += 1
            self._capture = None
        self._returns.ring()
        return FrameStatus(FrameStatusCode.OK, generation=generation)

    def stop(self) -> None:
        """Refuse every further writer and commit, and end every wait with STOPPED. Frames stay readable."""
        with self._lock:
            self._stopped = True
        self._returns.ring()

    def begin_capture(self, model_generation: int, simulation_time_ns: int, camera_id: int = 0) -> FrameStamp:
        """Stamp with a new capture id, for the planes of one camera that show one state."""
        with self._lock:
            return self._begin_capture(model_generation, simulation_time_ns, camera_id)

    def try_acquire_writer(
        self, generation: int, plane: PlaneKind, layout: PlaneLayout, stamp: FrameStamp | None = None
    ) -> FrameWriter:
        """Reserve a slot, evicting the oldest unheld frames where that is needed. Never waits.

        Args:
            generation: Frame generation that the plane is for.
            plane: What will be written.
            layout: Its memory layout.
            stamp: From `begin_capture`; by default that of the capture begun last.

        Returns:
            A writer whose `status` is OK, or STOPPED, NOT_INITIALIZED, STALE_GENERATION, INVALID_LAYOUT (longer than
            the slots) or FRAME_SLOTS_EXHAUSTED (slots or bytes; the message says which).
        """
        with self.work_order.enqueueing(), self._lock:
            self._settle()
            refusal = self._check_generation(generation) or self._check_layout(layout)
            if refusal is None and stamp is not None:
                refusal = self._check_generation(stamp.frame_generation)
            if refusal is None and (shortage := self._pool.make_room(layout.byte_length)):
                refusal = self._refusal(FrameStatusCode.FRAME_SLOTS_EXHAUSTED, shortage)
            stamp = stamp or self._capture
            if refusal is not None:
                self._drops[refusal.code.name] += 1
                return FrameWriter(self, replace(refusal, plane=plane, capture_id=stamp.capture_id if stamp else 0))
            stamp = stamp or self._begin_capture(0, 0, 0)
            slot, buffer = self._pool.reserve(plane, layout)
            if self._reader_events:
                self.work_order.wait(self._reader_events)
                self._reader_events.clear()
            status = FrameStatus(FrameStatusCode.OK, stamp.capture_id, plane, generation)
            return FrameWriter(self, status, slot, Hold(slot, self._returns), buffer, stamp, self._epoch)

    def acquire_latest(self, plane: PlaneKind, camera_id: int = 0, capture_id: int = 0) -> FrameLease | None:
        """Lease on the newest frame of the generation in force, or None.

        Args:
            plane: What it shows.
            camera_id: Of which camera; 0 is any.
            capture_id: Of which capture; 0 is any.
        """
        with self._lock:
            self._settle()
            slot = next((s for s in reversed(self._pool.records) if s.shows(plane, camera_id, capture_id)), None)
            if slot is None:
                return None
            self._pool.begin_hold(slot)
        return FrameLease(slot, self._returns, self.work_order)  # what is held stays as it is without the lock

    def acquire_recent(self, camera_id: int, plane: PlaneKind, max_count: int) -> list[FrameLease]:
        """Leases on up to `max_count` newest frames of the generation in force, oldest first.

        Raises:
            ValueError: A negative `max_count`.
        """
        max_count = _checked("max_count", max_count, 0)
        with self._lock:
            self._settle()
            found = [slot for slot in self._pool.records if slot.shows(plane, camera_id)]
            return [self._lease(slot) for slot in found[max(0, len(found) - max_count) :]]

    def wait_for_capacity(
        self,
        generation: int,
        slots: int,
        nbytes: int,
        cancelled: Callable[[], bool] | Any = None,
        timeout: float | None = None,
    ) -> FrameStatus:
        """Wait until writers for some planes would find room. Nothing is reserved or evicted.

        Args:
            generation: Frame generation that the planes are for.
            slots: Number of planes.
            nbytes: Their length together [bytes].
            cancelled: Says whether to give up, asked at each wake; an event with `is_set` is taken too.
            timeout: Longest wait [s]; None is for ever.

        Returns:
            OK; STOPPED when stopped or cancelled; NOT_INITIALIZED; STALE_GENERATION; FRAME_SLOTS_EXHAUSTED after the
            timeout, and at once for what can never fit.

        Raises:
            ValueError: Negative `slots` or `nbytes`.
        """
        slots, nbytes = _checked("slots", slots, 0), _checked("nbytes", nbytes, 0)
        is_cancelled = getattr(cancelled, "is_set", cancelled)

        def judge() -> FrameStatus | None:
            if is_cancelled is not None and is_cancelled():
                return self._refusal(FrameStatusCode.STOPPED, "the wait was cancelled")
            return self._judge_capacity(generation, slots, nbytes)

        if (status := judge()) is not None:
            return status
        started = time.monotonic()
        status = self._returns.wait_for(judge, timeout, poll=None if is_cancelled is None else _CANCEL_POLL_S)
        with self._lock:
            self._waits.note(time.monotonic() - started)
        return status or self._refusal(FrameStatusCode.FRAME_SLOTS_EXHAUSTED, "no slots or bytes before the timeout")

    def notify_capacity_waiters(self) -> None:
        """Let every wait look again at its `cancelled`."""
        self._returns.ring()

    def _commit(self, writer: FrameWriter, epoch: int) -> FrameStatus:
        with self.work_order.enqueueing(), self._lock:
            self._settle()
            refusal = self._check_commit(epoch)
            if refusal is not None:
                self._drops[refusal.code.name] += 1
                return replace(writer.status, code=refusal.code, message=refusal.message)
            slot, stamp = writer._slot, writer._stamp
            assert slot is not None
            assert slot.plane is not None
            assert stamp is not None
            self._plane_sequences[slot.plane] += 1
            writer._stamp = stamp.numbered(self._plane_sequences[slot.plane])
            self.work_order.complete(slot.completed)
            self._pool.publish(slot, writer._stamp)
            self._commits += 1
            return writer.status

    def _lease_of(self, slot: FrameSlot, stamp: FrameStamp) -> FrameLease | None:
        with self._lock:
            is_there = slot.state is SlotState.RECORD and slot.stamp is stamp
            return self._lease(slot) if is_there else None

    def _judge_capacity(self, generation: int, slots: int, nbytes: int) -> FrameStatus | None:
        """Whether planes fit now (OK), later (None) or never."""
        with self._lock:
            self._settle()
            if (refusal := self._check_generation(generation)) is not None:
                return refusal
            if slots > self.max_slots:
                message = f"{slots} slots never fit in {self.max_slots}"
                return self._refusal(FrameStatusCode.FRAME_SLOTS_EXHAUSTED, message)
            if nbytes > self.max_bytes:
                message = f"{nbytes} bytes never fit in {self.max_bytes}"
                return self._refusal(FrameStatusCode.FRAME_SLOTS_EXHAUSTED, message)
            slots_left, bytes_left = self._pool.room()
            fits = slots <= slots_left and nbytes <= bytes_left
            return FrameStatus(FrameStatusCode.OK, generation=generation) if fits else None

    # What follows runs with the lock held.

    def _settle(self) -> None:
        """Account for what finalizers gave back."""
        for returned in self._returns.drain():
            if returned.events or returned.streams:
                self._reader_events += returned.events
                self._reader_events += self.work_order.record(returned.streams.values())
            self._pool.end_hold(returned.slot)

    def _lease(self, slot: FrameSlot) -> FrameLease:
        self._pool.begin_hold(slot)
        return FrameLease(slot, self._returns, self.work_order)

    def _begin_capture(self, model_generation: int, simulation_time_ns: int, camera_id: int) -> FrameStamp:
        self._last_capture_id += 1
        self._capture = FrameStamp(
            self._last_capture_id, camera_id, 0, model_generation, self._generation, simulation_time_ns
        )
        return self._capture

    def _check_generation(self, generation: int) -> FrameStatus | None:
        if self._stopped:
            return self._refusal(FrameStatusCode.STOPPED, "the frame store is stopped")
        if self._generation == 0:
            return self._refusal(FrameStatusCode.NOT_INITIALIZED, "the frame store has no generation yet")
        if generation != self._generation:
            message = f"generation {generation} is asked for, but {self._generation} is in force"
            return self._refusal(FrameStatusCode.STALE_GENERATION, message)
        return None

    def _check_commit(self, epoch: int) -> FrameStatus | None:
        if self._stopped:
            return self._refusal(FrameStatusCode.STOPPED, "the frame store is stopped")
        if epoch != self._epoch:
            message = f"generation {self._generation} began while the plane was written"
            return self._refusal(FrameStatusCode.STALE_GENERATION, message)
        return None

    def _check_layout(self, layout: PlaneLayout) -> FrameStatus | None:
        if layout.byte_length <= self._slot_byte_length:
            return None
        message = f"a plane of {layout.byte_length} bytes in slots of {self._slot_byte_length} bytes"
        return self._refusal(FrameStatusCode.INVALID_LAYOUT, message)

    def _refusal(self, code: FrameStatusCode, message: str) -> FrameStatus:
        return FrameStatus(code, generation=self._generation, message=message)


def _checked(name: str, value: int, least: int) -> int:
    value = index(value)
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value
