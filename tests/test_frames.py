"""The frame store: budgets, visibility, eviction, generations, waits."""

import gc
import threading
import time
import weakref

import pytest
import warp as wp
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scene_data.renderers import FrameBoundary, FrameStatusCode, FrameWriter, PlaneKind, PlaneLayout

RGB, DEPTH, SEGMENTATION = PlaneKind.RGB, PlaneKind.DEPTH, PlaneKind.SEGMENTATION
LAYOUT = PlaneLayout.rgb8(8, 4)
LENGTH = LAYOUT.byte_length
Code = FrameStatusCode


def store(slots: int = 3, nbytes: int | None = None, length: int = LENGTH) -> FrameBoundary:
    boundary = FrameBoundary(slots, slots * LENGTH if nbytes is None else nbytes)
    assert boundary.reconfigure(1, length).ok
    return boundary


def commit(boundary: FrameBoundary, value: int = 0, plane=RGB, layout=LAYOUT, camera_id: int = 0) -> FrameWriter:
    stamp = boundary.begin_capture(1, 100 * value, camera_id)
    writer = boundary.try_acquire_writer(boundary.generation, plane, layout, stamp)
    assert writer.status.ok, writer.status
    writer.buffer.fill_(value)
    assert writer.commit().ok
    return writer


def value_of(lease) -> int:
    pixels = lease.numpy()
    assert (pixels == pixels.flat[0]).all()
    return int(pixels.flat[0])


# -- layouts


def test_layouts_tell_shape_type_and_length():
    assert PlaneLayout.rgb8(5, 3, num_envs=2).shape == (2, 3, 5, 3)
    assert PlaneLayout.rgb8(5, 3, num_envs=2).byte_length == 2 * 3 * 5 * 3
    assert PlaneLayout.depth32f(5, 3).byte_length == 5 * 3 * 4
    assert PlaneLayout.segmentation32i(5, 3).byte_length == 5 * 3 * 2 * 4
    assert PlaneLayout(5, 3, 3, "uint8") == PlaneLayout(5, 3, 3, wp.uint8) == PlaneLayout.rgb8(5, 3)


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, 1, 1)])
def test_layouts_refuse_sizes_below_one(sizes):
    with pytest.raises(ValueError, match="at least 1"):
        PlaneLayout(*sizes, wp.uint8)
    with pytest.raises(ValueError, match="num_envs"):
        PlaneLayout(1, 1, 1, wp.uint8, num_envs=0)


def test_layouts_refuse_what_is_no_scalar():
    with pytest.raises(ValueError, match="cannot hold"):
        PlaneLayout(1, 1, 1, "no such type")


# -- construction


@pytest.mark.parametrize("limits", [(0, 1), (1, 0), (-1, 1)])
def test_limits_below_one_are_refused(limits):
    with pytest.raises(ValueError, match="at least 1"):
        FrameBoundary(*limits)


def test_unknown_device_is_refused():
    with pytest.raises(ValueError, match="cuda:77"):
        FrameBoundary(1, 1, device="cuda:77")


def test_before_the_first_generation_nothing_is_written():
    boundary = FrameBoundary(1, LENGTH)
    writer = boundary.try_acquire_writer(1, RGB, LAYOUT)
    assert writer.status.code is Code.NOT_INITIALIZED
    assert writer.buffer is None
    assert writer.commit().code is Code.NOT_INITIALIZED
    assert boundary.wait_for_capacity(1, 1, 1, timeout=0).code is Code.NOT_INITIALIZED
    assert boundary.acquire_latest(RGB) is None


# -- writing


def test_buffer_has_the_shape_and_type_of_the_layout():
    boundary = store(length=PlaneLayout.segmentation32i(8, 4, 2).byte_length, nbytes=10_000)
    for layout, dtype in (
        (PlaneLayout.rgb8(8, 4, 2), wp.uint8),
        (PlaneLayout.depth32f(8, 4, 2), wp.float32),
        (PlaneLayout.segmentation32i(8, 4, 2), wp.int32),
    ):
        with boundary.try_acquire_writer(1, RGB, layout) as writer:
            assert writer.buffer.shape == layout.shape
            assert writer.buffer.dtype is dtype


def test_only_commit_makes_a_frame_visible():
    boundary = store()
    writer = boundary.try_acquire_writer(1, RGB, LAYOUT)
    writer.buffer.fill_(7)
    assert boundary.acquire_latest(RGB) is None
    assert writer.lease() is None
    assert writer.commit().ok
    assert writer.buffer is None
    lease, own = boundary.acquire_latest(RGB), writer.lease()
    assert lease is not None
    assert own is not None
    assert own.stamp == lease.stamp
    assert value_of(lease) == 7


def test_second_commit_does_nothing():
    boundary = store()
    writer = commit(boundary)
    assert writer.commit().code is Code.FRAME_UNAVAILABLE
    assert boundary.record_count == 1


@pytest.mark.parametrize("end", ["close", "with", "exception", "collection"])
def test_a_writer_without_commit_gives_its_reservation_back(end):
    boundary = store(1)
    if end == "with":
        with boundary.try_acquire_writer(1, RGB, LAYOUT) as writer:
            assert boundary.reserved_slots == 1
        assert writer.buffer is None
    elif end == "exception":
        with pytest.raises(RuntimeError), boundary.try_acquire_writer(1, RGB, LAYOUT) as writer:
            raise RuntimeError
        assert writer.buffer is None
    else:
        writer = boundary.try_acquire_writer(1, RGB, LAYOUT)
        assert (boundary.reserved_slots, boundary.reserved_bytes) == (1, LENGTH)
        if end == "close":
            writer.close()
            assert writer.commit().code is Code.FRAME_UNAVAILABLE
        else:
            del writer
            gc.collect()
    assert (boundary.reserved_slots, boundary.reserved_bytes, boundary.committed_bytes) == (0, 0, 0)
    assert boundary.record_count == 0
    assert boundary.try_acquire_writer(1, RGB, LAYOUT).status.ok


def test_reserved_and_committed_bytes_are_counted_apart_by_the_planes_length():
    boundary = store(3, 3 * LENGTH)
    small = PlaneLayout.rgb8(4, 4)
    first = boundary.try_acquire_writer(1, RGB, LAYOUT)
    second = boundary.try_acquire_writer(1, RGB, small)
    assert (boundary.reserved_slots, boundary.reserved_bytes) == (2, LENGTH + small.byte_length)
    assert boundary.committed_bytes == 0
    assert first.commit().ok
    assert (boundary.reserved_slots, boundary.reserved_bytes) == (1, small.byte_length)
    assert boundary.committed_bytes == LENGTH
    second.close()
    assert (boundary.reserved_slots, boundary.reserved_bytes, boundary.committed_bytes) == (0, 0, LENGTH)


def test_writers_in_flight_never_overcommit():
    boundary = store(2)
    writers = [boundary.try_acquire_writer(1, RGB, LAYOUT) for _ in range(3)]
    assert [writer.status.code for writer in writers] == [Code.OK, Code.OK, Code.FRAME_SLOTS_EXHAUSTED]
    assert "slots" in writers[2].status.message
    by_bytes = store(8, 2 * LENGTH)
    writers = [by_bytes.try_acquire_writer(1, RGB, LAYOUT) for _ in range(3)]
    assert [writer.status.code for writer in writers] == [Code.OK, Code.OK, Code.FRAME_SLOTS_EXHAUSTED]
    assert "bytes" in writers[2].status.message


def test_the_budget_is_of_plane_bytes_not_of_slot_lengths():
    """Six planes of three lengths fit in exactly their bytes, over and over."""
    layouts = [PlaneLayout.rgb8(8, 4), PlaneLayout.depth32f(8, 4), PlaneLayout.segmentation32i(8, 4)]
    boundary = FrameBoundary(6, 2 * sum(layout.byte_length for layout in layouts))
    assert boundary.reconfigure(1, layouts[-1].byte_length).ok
    for turn in range(5):
        for plane, layout in zip((RGB, DEPTH, SEGMENTATION), layouts, strict=True):
            commit(boundary, turn, plane, layout)
    assert boundary.record_count == 6
    assert boundary.committed_bytes == boundary.max_bytes


def test_a_plane_longer_than_a_slot_is_an_invalid_layout():
    boundary = store()
    writer = boundary.try_acquire_writer(1, RGB, PlaneLayout.rgb8(8, 5))
    assert writer.status.code is Code.INVALID_LAYOUT
    assert writer.status.plane is RGB
    assert boundary.reserved_slots == 0


def test_stale_generation_is_refused_before_and_at_the_commit():
    boundary = store()
    assert boundary.try_acquire_writer(2, RGB, LAYOUT).status.code is Code.STALE_GENERATION
    old_stamp = boundary.begin_capture(1, 0)
    writer = boundary.try_acquire_writer(1, RGB, LAYOUT)
    assert boundary.reconfigure(2, LENGTH).ok
    assert boundary.reserved_slots == 1
    assert writer.commit().code is Code.STALE_GENERATION
    assert boundary.reserved_slots == 0
    assert boundary.record_count == 0
    assert boundary.try_acquire_writer(1, RGB, LAYOUT).status.code is Code.STALE_GENERATION
    assert boundary.try_acquire_writer(2, RGB, LAYOUT, old_stamp).status.code is Code.STALE_GENERATION


def test_a_writer_does_not_survive_a_reconfigure_to_the_same_generation():
    boundary = store()
    writer = boundary.try_acquire_writer(1, RGB, LAYOUT)
    assert boundary.reconfigure(1, LENGTH).ok
    assert writer.commit().code is Code.STALE_GENERATION


def test_stamps_number_captures_and_planes_from_one():
    boundary = store(4)
    stamp = boundary.begin_capture(7, 500, camera_id=3)
    assert (stamp.capture_id, stamp.camera_id, stamp.model_generation, stamp.frame_generation) == (1, 3, 7, 1)
    assert stamp.simulation_time_ns == 500
    for plane in (RGB, DEPTH):
        boundary.try_acquire_writer(1, plane, PlaneLayout.rgb8(2, 2), stamp).commit()
    commit(boundary)
    stamps = {(s.capture_id, plane): s for plane in (RGB, DEPTH) for s in _stamps(boundary, plane)}
    assert {key: s.plane_sequence for key, s in stamps.items()} == {(1, RGB): 1, (1, DEPTH): 1, (2, RGB): 2}
    assert stamps[1, RGB].camera_id == 3


def _stamps(boundary, plane):
    return [lease.stamp for lease in boundary.acquire_recent(0, plane, 10)]


def test_an_aborted_plane_takes_no_sequence_number():
    boundary = store()
    boundary.try_acquire_writer(1, RGB, LAYOUT).close()
    commit(boundary)
    assert _stamps(boundary, RGB)[0].plane_sequence == 1


# -- eviction


def test_the_oldest_unheld_frame_is_evicted():
    boundary = store(3)
    for value in range(3):
        commit(boundary, value)
    held = boundary.acquire_recent(0, RGB, 3)[0]
    commit(boundary, 3)
    assert [value_of(lease) for lease in boundary.acquire_recent(0, RGB, 9)] == [0, 2, 3]
    assert value_of(held) == 0


def test_a_refused_writer_evicts_nothing():
    boundary = store(3, nbytes=3 * LENGTH)
    small = PlaneLayout.rgb8(4, 4)
    for value in range(2):
        commit(boundary, value)
    lease = boundary.acquire_recent(0, RGB, 2)[1]
    commit(boundary, 2, layout=small)
    small_lease = boundary.acquire_latest(RGB)
    writer = boundary.try_acquire_writer(1, RGB, LAYOUT)
    assert writer.status.ok  # room for one where the unheld frame was
    refused = boundary.try_acquire_writer(1, RGB, LAYOUT)
    assert refused.status.code is Code.FRAME_SLOTS_EXHAUSTED
    assert boundary.record_count == 2
    del lease, small_lease


def test_a_committed_writer_holds_nothing():
    boundary = store(1)
    writer = commit(boundary, 1)
    commit(boundary, 2)
    assert writer.lease() is None


def test_storage_stands_still_after_the_first_generation():
    boundary = store(3)
    commit(boundary)
    before = boundary.storage_allocations, boundary.buffer_growths
    for value in range(20):
        lease = commit(boundary, value).lease()
        assert lease is not None
        lease.numpy()
    assert boundary.reconfigure(2, LENGTH, warm_slots=2).ok
    commit(boundary)
    assert (boundary.storage_allocations, boundary.buffer_growths) == before


@pytest.mark.parametrize(("slots", "planes"), [(3, 3), (8, 3), (2, 1_000_000)])
def test_the_bytes_stay_within_the_budget_and_what_the_slots_need(monkeypatch, slots, planes):
    allocated = []
    empty = wp.empty
    monkeypatch.setattr(wp, "empty", lambda shape, **options: allocated.append(shape) or empty(shape, **options))
    store(slots, planes * LENGTH)
    alignment = 16 * slots
    assert sum(allocated) <= min(slots, planes) * LENGTH + alignment


def test_a_writers_buffer_keeps_its_memory_beyond_the_store():
    boundary = store(1)
    buffer = boundary.try_acquire_writer(1, RGB, LAYOUT).buffer
    storage = weakref.ref(buffer.frame_storage)
    del boundary
    gc.collect()
    assert storage() is not None
    del buffer
    assert storage() is None


def test_no_allocation_while_frames_are_written(monkeypatch):
    boundary = store(3)
    for name in ("empty", "zeros", "full", "clone"):
        monkeypatch.setattr(wp, name, lambda *_, **__: pytest.fail("storage was allocated"))
    for value in range(5):
        commit(boundary, value)


# -- reading


def test_latest_and_recent_select_by_plane_camera_and_capture():
    boundary = store(6)
    for value, camera_id in enumerate((1, 2, 1, 2), start=1):
        commit(boundary, value, camera_id=camera_id)
    assert value_of(boundary.acquire_latest(RGB)) == 4
    assert value_of(boundary.acquire_latest(RGB, camera_id=1)) == 3
    assert value_of(boundary.acquire_latest(RGB, capture_id=2)) == 2
    assert boundary.acquire_latest(RGB, camera_id=1, capture_id=2) is None
    assert boundary.acquire_latest(DEPTH) is None
    assert [value_of(lease) for lease in boundary.acquire_recent(2, RGB, 5)] == [2, 4]
    assert [value_of(lease) for lease in boundary.acquire_recent(0, RGB, 3)] == [2, 3, 4]
    assert boundary.acquire_recent(0, RGB, 0) == []
    with pytest.raises(ValueError, match="max_count"):
        boundary.acquire_recent(0, RGB, -1)


# -- generations


def test_frames_of_an_older_generation_are_never_returned_and_their_leases_stay_valid():
    boundary = store(3)
    writer = commit(boundary, 5)
    lease = boundary.acquire_latest(RGB)
    assert lease is not None
    assert boundary.reconfigure(2, LENGTH).ok
    assert boundary.generation == 2
    assert boundary.acquire_latest(RGB) is None
    assert boundary.acquire_recent(0, RGB, 5) == []
    assert writer.lease() is None
    for value in range(6):
        commit(boundary, value)
    assert lease.valid
    assert value_of(lease) == 5


def test_reconfigure_without_room_leaves_all_as_it_was():
    boundary = store(2)
    for value in range(2):
        commit(boundary, value)
    leases = boundary.acquire_recent(0, RGB, 2)
    assert boundary.reconfigure(2, LENGTH).code is Code.GENERATION_CAPACITY_EXHAUSTED
    assert boundary.generation == 1
    assert [value_of(lease) for lease in leases] == [0, 1]
    assert value_of(boundary.acquire_latest(RGB)) == 1
    leases.pop()
    assert boundary.reconfigure(2, LENGTH, warm_slots=2).code is Code.GENERATION_CAPACITY_EXHAUSTED
    assert boundary.reconfigure(2, LENGTH, warm_slots=1).ok


def test_reconfigure_counts_what_old_leases_hold_in_bytes():
    boundary = FrameBoundary(4, 4 * LENGTH)
    assert boundary.reconfigure(1, LENGTH).ok
    for value in range(3):
        commit(boundary, value)
    lease = boundary.acquire_latest(RGB)
    assert boundary.reconfigure(2, 4 * LENGTH).code is Code.GENERATION_CAPACITY_EXHAUSTED
    assert boundary.reconfigure(2, 3 * LENGTH).ok
    commit(boundary, 9, layout=PlaneLayout.rgb8(8, 12))
    assert value_of(lease) == 2
    assert boundary.committed_bytes == 4 * LENGTH


def test_slots_times_length_may_exceed_the_bytes():
    boundary = FrameBoundary(10, 2 * LENGTH)
    assert boundary.reconfigure(1, LENGTH, warm_slots=2).ok
    assert boundary.reconfigure(2, LENGTH, warm_slots=3).code is Code.GENERATION_CAPACITY_EXHAUSTED
    assert boundary.reconfigure(2, 2 * LENGTH + 1).code is Code.GENERATION_CAPACITY_EXHAUSTED


def test_generations_do_not_go_back():
    boundary = store()
    assert boundary.reconfigure(5, LENGTH).ok
    assert boundary.reconfigure(4, LENGTH).code is Code.STALE_GENERATION
    assert boundary.generation == 5


@pytest.mark.parametrize("arguments", [(0, 1), (1, 0), (1, 1, -1)])
def test_reconfigure_refuses_wrong_values(arguments):
    with pytest.raises(ValueError, match="at least"):
        FrameBoundary(1, LENGTH).reconfigure(*arguments)


# -- stop


def test_after_stop_nothing_is_written_and_all_is_readable():
    boundary = store()
    commit(boundary, 3)
    writer = boundary.try_acquire_writer(1, RGB, LAYOUT)
    boundary.stop()
    assert writer.commit().code is Code.STOPPED
    assert boundary.reserved_slots == 0
    assert boundary.try_acquire_writer(9, RGB, LAYOUT).status.code is Code.STOPPED
    assert boundary.reconfigure(2, LENGTH).code is Code.STOPPED
    assert boundary.wait_for_capacity(1, 1, 1).code is Code.STOPPED
    assert value_of(boundary.acquire_latest(RGB)) == 3


# -- waiting


def test_unheld_frames_count_as_room_and_stay():
    boundary = store(2)
    for value in range(2):
        commit(boundary, value)
    assert boundary.wait_for_capacity(1, 2, 2 * LENGTH).ok
    assert boundary.record_count == 2


def test_what_never_fits_is_exhausted_at_once():
    boundary = store(2)
    assert boundary.wait_for_capacity(1, 3, LENGTH).code is Code.FRAME_SLOTS_EXHAUSTED
    assert boundary.wait_for_capacity(1, 1, 2 * LENGTH + 1).code is Code.FRAME_SLOTS_EXHAUSTED
    assert boundary.wait_for_capacity(2, 1, 1).code is Code.STALE_GENERATION
    with pytest.raises(ValueError, match="slots"):
        boundary.wait_for_capacity(1, -1, 1)


def test_a_wait_without_room_ends_at_its_timeout():
    boundary = store(1)
    writer = boundary.try_acquire_writer(1, RGB, LAYOUT)
    started = time.monotonic()
    assert boundary.wait_for_capacity(1, 1, LENGTH, timeout=0.05).code is Code.FRAME_SLOTS_EXHAUSTED
    assert time.monotonic() - started >= 0.05
    writer.close()
    assert boundary.wait_for_capacity(1, 1, LENGTH, timeout=0.0).ok


def waiting(boundary: FrameBoundary, **options):
    """A wait for one slot in another thread: the thread, and the list that gets its status."""
    result = []
    thread = threading.Thread(
        target=lambda: result.append(boundary.wait_for_capacity(boundary.generation, 1, LENGTH, **options))
    )
    thread.start()
    time.sleep(0.05)
    assert not result
    return thread, result


@pytest.mark.parametrize("how", ["release", "collection", "array", "stop", "cancel", "reconfigure"])
def test_what_ends_a_wait(how):
    boundary = store(2)
    for value in range(2):
        commit(boundary, value)
    leases = boundary.acquire_recent(0, RGB, 2)
    array = leases[0].numpy()
    cancelled = threading.Event()
    # With `cancelled`, a wait also looks around by itself, which would hide a bell that does not ring.
    options = {"cancelled": cancelled.is_set} if how == "cancel" else {}
    if how == "array":
        leases[0].release()
    else:
        del array
    thread, result = waiting(boundary, **options)
    if how == "release":
        leases[0].release()
    elif how == "collection":
        leases.pop(0)
    elif how == "array":
        del array
    elif how == "stop":
        boundary.stop()
    elif how == "cancel":
        cancelled.set()
        boundary.notify_capacity_waiters()
    else:
        leases.pop(0)
        assert boundary.reconfigure(2, LENGTH).ok
    thread.join(5.0)
    expected = {"stop": {Code.STOPPED}, "cancel": {Code.STOPPED}, "reconfigure": {Code.OK, Code.STALE_GENERATION}}
    assert {status.code for status in result} <= expected.get(how, {Code.OK})
    assert len(result) == 1


def test_a_cancelled_event_is_noticed_without_a_notice():
    boundary = store(1)
    writer = boundary.try_acquire_writer(1, RGB, LAYOUT)
    cancelled = threading.Event()
    thread, result = waiting(boundary, cancelled=cancelled)
    cancelled.set()
    thread.join(5.0)
    assert result[0].code is Code.STOPPED
    writer.close()


def test_a_finalizer_that_runs_under_the_lock_does_not_deadlock():
    """The collector may run anywhere, so also while this thread holds the store's lock."""
    boundary = store(2)
    commit(boundary, 1)
    lease = boundary.acquire_latest(RGB)
    assert lease is not None
    cycle = [lease.numpy()]
    cycle.append(cycle)
    del lease
    with boundary._lock:
        del cycle
        gc.collect()
    assert boundary.held_frames() == []


# -- a small model


def test_a_generation_begins_in_the_pieces_between_what_is_held():
    """Two slots need not lie side by side; another arena would keep the bytes of both for as long as one is held."""
    boundary = FrameBoundary(4, 3 * LENGTH)
    assert boundary.reconfigure(1, LENGTH).ok
    writers = [boundary.try_acquire_writer(1, RGB, LAYOUT) for _ in range(3)]
    middle = sorted(writers, key=lambda writer: writer.buffer.ptr)[1]
    for writer in writers:
        if writer is not middle:
            writer.close()
    assert boundary.reconfigure(2, LENGTH, warm_slots=2).ok
    assert boundary.buffer_growths == 1
    middle.buffer.fill_(1)
    for value in (2, 3):
        commit(boundary, value)
    assert [value_of(lease) for lease in boundary.acquire_recent(0, RGB, 3)] == [2, 3]
    assert (middle.buffer.numpy() == 1).all()
    middle.close()


class StoreModel(RuleBasedStateMachine):
    """Slots and bytes against plain counting. All planes of one length, so that any free place fits."""

    @initialize(slots=st.integers(1, 4), planes=st.integers(1, 4))
    def create(self, slots, planes):
        self.boundary = FrameBoundary(slots, planes * LENGTH)
        assert self.boundary.reconfigure(1, LENGTH).ok
        self.capacity = min(slots, planes)
        self.generation = 1
        self.next_value = 1
        self.records: list[int] = []
        self.superseded = 0
        self.writers: list[tuple[FrameWriter, int, int]] = []
        self.leases: list[tuple[object, int, int]] = []

    def held(self) -> set[tuple[int, int]]:
        return {(generation, value) for _, generation, value in self.leases}

    def room(self) -> int:
        return self.capacity - len(self.held()) - len(self.writers)

    @rule()
    def acquire_writer(self):
        writer = self.boundary.try_acquire_writer(self.generation, RGB, LAYOUT)
        if self.room() < 1:
            assert writer.status.code is Code.FRAME_SLOTS_EXHAUSTED
            return
        assert writer.status.ok
        old = [generation for generation, _ in self.held() if generation != self.generation]
        while len(self.records) + len(self.writers) + len(old) >= self.capacity:
            self.records.remove(next(v for v in self.records if (self.generation, v) not in self.held()))
        writer.buffer.fill_(self.next_value)
        self.writers.append((writer, self.generation, self.next_value))
        self.next_value = self.next_value % 250 + 1

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), commits=st.booleans())
    def end_writer(self, data, commits):
        writer, generation, value = self.writers.pop(data.draw(st.integers(0, len(self.writers) - 1)))
        if not commits:
            writer.close()
        elif generation == self.generation:
            assert writer.commit().ok
            self.records.append(value)
        else:
            assert writer.commit().code is Code.STALE_GENERATION

    @precondition(lambda self: self.records)
    @rule(as_array=st.booleans())
    def hold_latest(self, as_array):
        lease = self.boundary.acquire_latest(RGB)
        assert lease is not None
        self.leases.append((lease.numpy() if as_array else lease, self.generation, self.records[-1]))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def let_go(self, data):
        self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))

    @rule(warm=st.integers(0, 3))
    def reconfigure(self, warm):
        status = self.boundary.reconfigure(self.generation + 1, LENGTH, warm)
        if self.room() < max(1, warm):
            assert status.code is Code.GENERATION_CAPACITY_EXHAUSTED
            return
        assert status.ok
        self.generation += 1
        self.records.clear()

    @invariant()
    def agrees(self):
        boundary = self.boundary
        old = sum(generation != self.generation for generation, _ in self.held())
        assert boundary.reserved_slots == len(self.writers)
        assert boundary.record_count == len(self.records)
        assert boundary.committed_bytes == LENGTH * (len(self.records) + old)
        assert boundary.reserved_bytes + boundary.committed_bytes <= boundary.max_bytes
        assert boundary.buffer_growths == 1
        for holder, _, value in self.leases:
            pixels = holder if hasattr(holder, "flags") else holder.numpy()
            assert (pixels == value).all()


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=60, stateful_step_count=30)


# -- threads


def test_readers_never_see_a_torn_or_changing_frame():
    boundary = store(6)
    stop = threading.Event()
    failures = []

    def write():
        try:
            for value in range(1500):
                with boundary.try_acquire_writer(1, RGB, LAYOUT, boundary.begin_capture(1, value)) as writer:
                    if writer.status.ok:
                        writer.buffer.numpy()[...] = value % 251
                        writer.commit()
        finally:
            stop.set()

    def read():
        kept = []
        while not stop.is_set():
            lease = boundary.acquire_latest(RGB)
            if lease is None:
                continue
            kept.append((lease.numpy(), lease.stamp.simulation_time_ns % 251))
            del lease
            for pixels, value in kept:
                if not (pixels == value).all():
                    failures.append((value, pixels.copy()))
            if len(kept) > 2:
                kept.pop(0)

    threads = [threading.Thread(target=write), *(threading.Thread(target=read) for _ in range(3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert not failures
    gc.collect()
    assert boundary.held_frames() == []
    assert boundary.reserved_slots == 0
