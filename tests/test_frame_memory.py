"""A frame store takes its memory once: nothing is allocated, and nothing grows, however long it runs."""

import gc
import tracemalloc

import pytest
from test_render_core import RGB, WRIST, Backend, Snapshot, plans_of

from scene_data.renderers import (
    FrameBoundary,
    PlaneLayout,
    RenderCore,
    compute_frame_byte_capacity,
    compute_frame_slot_capacity,
)

TURNS = 10_000


@pytest.fixture
def core():
    slots, nbytes = compute_frame_slot_capacity([WRIST]), compute_frame_byte_capacity([WRIST])
    with RenderCore(Backend(), max_slots=slots, max_bytes=nbytes) as core:
        assert core.reconfigure(1, 1, [WRIST]).ok
        core.register_continuous_consumer("all")
        yield core


def run_turns(core: RenderCore, count: int) -> None:
    backend = core._host.backend
    for step in range(count):
        assert core.submit_snapshot(Snapshot(1, step), plans_of(core, step, [WRIST])).ok
        assert core.finish_or_cancel_render_turn().ok
        for lease in core.acquire_recent(2, RGB, 2):
            lease.numpy()
        backend.calls.clear()
    gc.collect()


def test_ten_thousand_turns_allocate_nothing_that_stays(core):
    run_turns(core, 1_100)  # the windows of the statistics fill up
    frames = core.frames
    stood = frames.storage_allocations, frames.buffer_growths
    tracemalloc.start()
    try:
        run_turns(core, 200)
        before = tracemalloc.get_traced_memory()[0]
        run_turns(core, TURNS)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert (frames.storage_allocations, frames.buffer_growths) == stood == (frames.max_slots, 1)
    assert grown < 8 * 1024  # less than a byte per turn
    assert core.stats()["commits"] == TURNS + 1_300


def test_readers_alone_leave_nothing_behind():
    layout = PlaneLayout.rgb8(4, 4)
    boundary = FrameBoundary(2, 2 * layout.byte_length)
    assert boundary.reconfigure(1, layout.byte_length).ok
    boundary.try_acquire_writer(1, RGB, layout).commit()
    tracemalloc.start()
    try:
        for turn in range(6_000):
            if turn == 1_000:
                before = tracemalloc.get_traced_memory()[0]
            boundary.acquire_latest(RGB).release()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 4 * 1024


def test_limits_are_fixed_and_slots_are_there_from_construction():
    boundary = FrameBoundary(3, 100)
    assert (boundary.storage_allocations, boundary.buffer_growths) == (3, 0)
    for name in ("max_slots", "max_bytes"):
        with pytest.raises(AttributeError):
            setattr(boundary, name, 1_000)
    assert boundary.reconfigure(1, 20).ok
    assert (boundary.storage_allocations, boundary.buffer_growths) == (3, 1)
