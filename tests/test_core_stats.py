"""What a core tells about itself: statistics, and a log of changes."""

import logging
import threading

import numpy as np
import pytest
from test_render_core import (
    CAMERAS,
    DEPTH,
    FRONT,
    RGB,
    Backend,
    Snapshot,
    hold_everything,
    plans_of,
    submit,
    turn,
)

from scene_data.renderers import (
    ContextIntegrityError,
    FrameStatusCode,
    PlaneLayout,
    RenderCore,
    RenderStatus,
    RenderStatusCode,
    compute_frame_byte_capacity,
    compute_frame_slot_capacity,
)
from scene_data.renderers.render_core.durations import Durations

Code = FrameStatusCode
NONE = {"count": 0, "total_s": 0.0, "p50_s": 0.0, "p95_s": 0.0, "p99_s": 0.0}


@pytest.fixture
def backend():
    return Backend()


@pytest.fixture
def core(backend):
    slots, nbytes = compute_frame_slot_capacity(CAMERAS), compute_frame_byte_capacity(CAMERAS)
    with RenderCore(backend, max_slots=slots, max_bytes=nbytes) as core:
        assert core.reconfigure(1, 1, CAMERAS, scene="scene").ok
        core.register_continuous_consumer("all")
        yield core


# -- durations


def test_durations_are_counted_and_the_latest_are_ranked():
    durations = Durations()
    assert durations.summary() == NONE
    for value in range(1, 101):
        durations.note(value / 1000.0)
    summary = durations.summary()
    assert summary["count"] == 100
    assert summary["total_s"] == pytest.approx(5.05)
    expected = np.percentile(np.arange(1, 101) / 1000.0, (50, 95, 99))
    np.testing.assert_allclose([summary["p50_s"], summary["p95_s"], summary["p99_s"]], expected)


def test_old_durations_leave_the_window_but_not_the_total():
    durations = Durations()
    for _ in range(1024):
        durations.note(1.0)
    for _ in range(1024):
        durations.note(3.0)
    summary = durations.summary()
    assert (summary["count"], summary["total_s"]) == (2048, 4096.0)
    assert summary["p50_s"] == summary["p99_s"] == 3.0


# -- statistics


def test_a_new_core_has_done_nothing(core):
    stats = core.stats()
    assert (stats["turns"], stats["turn_outcomes"], stats["captures"], stats["commits"]) == (0, {}, 0, 0)
    assert (stats["drops"], stats["evictions"], stats["blank_environments"]) == ({}, 0, {})
    assert stats["waits"] == stats["queue_times"] == stats["render_times"] == NONE
    assert (stats["storage_allocations"], stats["buffer_growths"]) == (6, 1)


def test_turns_captures_commits_and_evictions_are_counted(core):
    for _ in range(3):
        assert turn(core).ok
    stats = core.stats()
    assert (stats["turns"], stats["turn_outcomes"]) == (3, {"OK": 3})
    assert (stats["captures"], stats["commits"], stats["evictions"], stats["records"]) == (6, 9, 3, 6)
    assert stats["committed_bytes"] == core.frames.max_bytes
    assert stats["reserved_bytes"] == 0


def test_drops_are_counted_by_code(core):
    leases = hold_everything(core)
    assert turn(core).code is Code.FRAME_SLOTS_EXHAUSTED
    assert core.stats()["drops"] == {"FRAME_SLOTS_EXHAUSTED": 3}
    del leases
    frames, layout = core.frames, FRONT.layout(RGB)
    frames.try_acquire_writer(9, RGB, layout)
    frames.try_acquire_writer(1, RGB, PlaneLayout.rgb8(99, 99))
    writer = frames.try_acquire_writer(1, RGB, layout)
    assert core.reconfigure(1, 2, CAMERAS).ok
    writer.commit()
    expected = {"FRAME_SLOTS_EXHAUSTED": 3, "STALE_GENERATION": 2, "INVALID_LAYOUT": 1}
    assert core.stats()["drops"] == expected


def test_refused_submissions_are_counted_by_code(core):
    submit(core, Snapshot(model_generation=5))
    core.stop_accepting_snapshots()
    submit(core)
    assert core.stats()["turn_outcomes"] == {"STALE_GENERATION": 1, "STOPPED": 1}


def test_waits_are_counted_and_timed_where_they_wait(core):
    core.set_backpressure_policy("wait_for_slot")
    assert core.wait_for_frame_capacity(plans_of(core)).ok
    assert core.stats()["waits"] == NONE
    leases = hold_everything(core)
    release = threading.Timer(0.1, leases.clear)
    release.start()
    assert core.wait_for_frame_capacity(plans_of(core)).ok
    release.join()
    waits = core.stats()["waits"]
    assert waits["count"] == 1
    assert 0.05 < waits["p50_s"] == waits["total_s"] < 5.0


def test_queue_and_render_times_are_those_of_the_turns(core, backend):
    backend.gate.clear()
    submit(core)
    assert backend.started.wait(5.0)
    submit(core)
    threading.Timer(0.1, backend.gate.set).start()
    assert core.finish_or_cancel_render_turn().ok
    stats = core.stats()
    assert stats["queue_times"]["count"] == stats["render_times"]["count"] == 2
    assert stats["queue_times"]["p99_s"] > 0.05  # the second one waited for the first
    assert stats["render_times"]["p99_s"] > 0.05
    assert stats["render_times"]["p50_s"] < stats["render_times"]["total_s"]


def test_asking_changes_nothing(core):
    turn(core)
    assert core.stats() == core.stats()


# -- the log


def lines(caplog) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_changes_of_state_are_logged_with_names_and_values(core, caplog):
    caplog.set_level(logging.INFO, "scene_data")
    core.set_backpressure_policy("wait_for_slot")
    core.set_backpressure_policy("wait_for_slot")
    core.reconfigure(2, 3, [FRONT])
    core.stop_accepting_snapshots()
    core.start_accepting_snapshots()
    core.reinitialize(Backend())
    core.shutdown()
    core.shutdown()
    assert lines(caplog) == [
        ("INFO", "Backpressure policy: 'wait_for_slot', before 'drop'"),
        ("INFO", "Render core configured: model_generation=2 frame_generation=3 cameras=['front']"),
        ("INFO", "Render core accepts no snapshots"),
        ("INFO", "Render core accepts snapshots"),
        ("INFO", "Render backend replaced by Backend"),
        ("INFO", "Render core shut down after 0 turns"),
    ]


def test_turns_are_not_logged(core, caplog):
    caplog.set_level(logging.DEBUG, "scene_data")
    for _ in range(5):
        assert turn(core).ok
    assert lines(caplog) == []


def test_failing_turns_are_logged_once_and_so_is_their_end(core, backend, caplog):
    caplog.set_level(logging.INFO, "scene_data")
    backend.script = [RuntimeError("shader"), RuntimeError("shader"), RuntimeError("shader")]
    for _ in range(4):
        turn(core)
    assert lines(caplog) == [
        ("ERROR", "Backend failed to render"),
        ("WARNING", "Turns end with FRAME_UNAVAILABLE. RuntimeError: shader"),
        ("INFO", "Turns end well again, after 3 that did not"),
    ]
    assert caplog.records[0].exc_info is not None


def test_another_failure_is_logged_too(core, backend, caplog):
    caplog.set_level(logging.INFO, "scene_data")
    backend.script = [RuntimeError("shader"), RenderStatus(RenderStatusCode.FRAME_SLOTS_EXHAUSTED, "full")]
    turn(core)
    turn(core)
    assert lines(caplog)[-1] == ("WARNING", "Turns end with FRAME_SLOTS_EXHAUSTED. full")


def test_a_terminal_failure_is_an_error_and_a_refusal_a_warning(core, backend, caplog):
    caplog.set_level(logging.INFO, "scene_data")
    core.set_backpressure_policy("block")
    leases = hold_everything(core)
    core.reconfigure(1, 2, CAMERAS)
    backend.script = [ContextIntegrityError("device lost")]
    turn(core)
    del leases
    policy, generation, terminal = lines(caplog)
    assert policy[0] == "WARNING"
    assert "'drop'" in policy[1]
    assert "'block'" in policy[1]
    assert generation[0] == "WARNING"
    assert "Frame generation 2 was refused: GENERATION_CAPACITY_EXHAUSTED" in generation[1]
    expected = "Rendering ended until the backend is replaced: BACKEND_FAILURE. ContextIntegrityError: device lost"
    assert terminal == ("ERROR", expected)


def hold_and_fail(boundary, failure: Exception) -> None:
    writer = boundary.try_acquire_writer(1, DEPTH, FRONT.layout(DEPTH))
    assert writer.status.ok
    raise failure


def fail_alone(boundary, failure):
    hold_and_fail(boundary, failure)


def fail_because(boundary, failure):
    """With a cause that is the failure itself, and another one behind it."""
    try:
        hold_and_fail(boundary, KeyError("first"))
    except KeyError:
        raise failure from failure


def fail_in_a_group(boundary, failure):
    try:
        hold_and_fail(boundary, failure)
    except Exception as error:
        raise ExceptionGroup("shards", [error]) from None


@pytest.mark.parametrize("fail", [fail_alone, fail_because, fail_in_a_group])
@pytest.mark.parametrize("kind", [RuntimeError, ContextIntegrityError])
def test_who_keeps_the_exception_of_a_render_does_not_keep_its_writers(core, backend, fail, kind):
    """As a log handler does that keeps its records."""
    failure = kind("shader")
    backend.render = lambda snapshot, plans, boundary: fail(boundary, failure)
    assert not turn(core).ok
    assert failure.__traceback__ is not None
    assert core.frames.reserved_slots == 0
