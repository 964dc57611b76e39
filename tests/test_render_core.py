"""The render core: one thread, one turn in flight, and a name for every failure."""

import threading
import time
import weakref
from contextlib import contextmanager

import pytest

from scene_data.renderers import (
    CameraDescriptor,
    ContextIntegrityError,
    DisabledRenderBackend,
    FrameStatus,
    FrameStatusCode,
    PlaneKind,
    RenderBackend,
    RenderCore,
    RenderStatus,
    RenderStatusCode,
    compute_frame_byte_capacity,
    compute_frame_slot_capacity,
    is_context_integrity_failure,
)

Code = FrameStatusCode
RGB, DEPTH = PlaneKind.RGB, PlaneKind.DEPTH
FRONT = CameraDescriptor(1, "front", 8, 4, (RGB, DEPTH))
WRIST = CameraDescriptor(2, "wrist", 6, 4, (RGB,))
CAMERAS = (FRONT, WRIST)
OK = RenderStatus(RenderStatusCode.OK)


class Snapshot:
    """All that a core asks of a snapshot."""

    def __init__(self, model_generation: int = 1, simulation_time_ns: int = 0):
        self.model_generation = model_generation
        self.simulation_time_ns = simulation_time_ns
        self.valid = True
        self.releases = 0

    def release(self) -> None:
        self.releases += 1
        self.valid = False


class Backend(RenderBackend):
    """Fills each plane with the capture id, and records who called what where.

    `gate` blocks a render until it is set; `script` holds what the next renders raise or return.
    """

    def __init__(self, initialize=OK, resize=OK):
        self.calls: list[tuple] = []
        self.threads: set[threading.Thread] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()
        self.script: list = []
        self.answers = {"initialize": initialize, "resize": resize}

    def note(self, *call):
        self.calls.append(call)
        self.threads.add(threading.current_thread())

    def answer(self, name):
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def initialize(self, scene, configuration):
        self.note("initialize", scene, configuration.model_generation, configuration.frame_generation)
        return self.answer("initialize")

    def resize(self, configuration):
        self.note("resize", configuration.model_generation, configuration.frame_generation)
        return self.answer("resize")

    def render(self, snapshot, plans, boundary):
        self.note("render", snapshot.simulation_time_ns, tuple(plan.camera_id for plan in plans))
        self.started.set()
        assert self.gate.wait(10.0)
        status = OK
        for plan in plans:
            stamp = boundary.begin_capture(snapshot.model_generation, snapshot.simulation_time_ns, plan.camera_id)
            for plane in plan.planes:
                with boundary.try_acquire_writer(
                    plan.frame_generation, plane, plan.camera.layout(plane), stamp
                ) as writer:
                    if not writer.status.ok:
                        status = RenderStatus(RenderStatusCode[writer.status.code.name], writer.status.message)
                        continue
                    writer.buffer.fill_(stamp.capture_id % 251)
                    writer.commit()
        action = self.script.pop(0) if self.script else status
        if isinstance(action, BaseException):
            raise action
        return action

    def shutdown_on_render_thread(self):
        self.note("shutdown")

    def request_stop(self):
        self.calls.append(("request_stop",))
        self.gate.set()

    def names(self):
        return [call[0] for call in self.calls]


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


def plans_of(core, now=0, cameras=CAMERAS):
    return [core.evaluate_demand(now, camera.id) for camera in cameras]


def submit(core, snapshot=None, cameras=CAMERAS) -> FrameStatus:
    return core.submit_snapshot(snapshot or Snapshot(), plans_of(core, cameras=cameras))


def turn(core, snapshot=None, cameras=CAMERAS) -> FrameStatus:
    status = submit(core, snapshot, cameras)
    return core.finish_or_cancel_render_turn() if status.ok else status


@pytest.fixture
def blocked(core, backend):
    """A core whose render thread is inside a render."""
    backend.gate.clear()
    assert submit(core).ok
    assert backend.started.wait(5.0)
    return core


# -- construction and threads


@pytest.mark.parametrize("wrong", [None, object(), Backend, "mujoco_warp"])
def test_only_a_render_backend_is_taken(wrong):
    before = threading.active_count()
    with pytest.raises(ValueError, match="RenderBackend"):
        RenderCore(wrong, 1, 1)
    with pytest.raises(ValueError, match="max_slots"):
        RenderCore(Backend(), 0, 1)
    with pytest.raises(ValueError, match="cuda:77"):
        RenderCore(Backend(), 1, 1, device="cuda:77")
    assert threading.active_count() == before


def test_one_thread_calls_the_backend_and_ends_it(core, backend):
    assert turn(core).ok
    assert core.reconfigure(1, 2, CAMERAS).ok
    core.shutdown()
    assert backend.names() == ["initialize", "render", "resize", "request_stop", "shutdown"]
    (thread,) = backend.threads
    assert thread is not threading.current_thread()
    assert not thread.is_alive()


def test_health(backend):
    core = RenderCore(backend, 4, 10_000)
    assert core.status.code is Code.NOT_INITIALIZED
    assert core.submit_snapshot(Snapshot(), core.evaluate_demand(0, 1)).code is Code.NOT_INITIALIZED
    assert core.reconfigure(1, 1, CAMERAS).ok
    assert core.status.ok
    core.shutdown()
    assert core.status.code is Code.STOPPED


# -- turns


def test_a_turn_renders_all_due_cameras_together(core, backend):
    snapshot = Snapshot(simulation_time_ns=500)
    assert turn(core, snapshot) == FrameStatus(Code.OK, capture_id=2, generation=1)
    assert backend.calls[-1] == ("render", 500, (1, 2))
    stamps = {(camera, plane): core.acquire_latest(camera, plane).stamp for camera, plane in ((1, RGB), (1, DEPTH))}
    assert {stamp.capture_id for stamp in stamps.values()} == {1}
    assert core.acquire_latest(2, RGB).stamp.capture_id == 2
    assert core.acquire_latest(2, RGB).stamp.simulation_time_ns == 500
    assert core.acquire_latest(1, RGB, capture_id=2) is None
    assert core.last_turn_capture_id == 2
    assert snapshot.releases == 1


def test_a_single_plan_is_taken_too_and_recent_frames_are_oldest_first(core):
    for _ in range(2):
        assert core.submit_snapshot(Snapshot(), core.evaluate_demand(0, 1)).ok
        assert core.finish_or_cancel_render_turn().ok
    assert [lease.stamp.capture_id for lease in core.acquire_recent(1, RGB, 5)] == [1, 2]


def test_empty_demand_is_a_no_op(core, backend):
    core.set_consumer_enabled(1, False)
    snapshot = Snapshot()
    assert core.submit_snapshot(snapshot, plans_of(core)).ok
    assert core.submit_snapshot(snapshot, []).ok
    assert core.finish_or_cancel_render_turn().ok
    assert "render" not in backend.names()
    assert snapshot.releases == 0
    assert core.last_turn_capture_id == 0


def test_cameras_without_demand_are_left_out(core, backend):
    core.set_consumer_enabled(1, False)
    core.register_continuous_consumer("wrist", 2)
    assert turn(core).ok
    assert backend.calls[-1] == ("render", 0, (2,))


def test_a_second_queued_turn_is_busy_and_the_first_is_kept(blocked, backend):
    kept, refused = Snapshot(simulation_time_ns=1), Snapshot(simulation_time_ns=2)
    assert submit(blocked, kept).ok
    assert submit(blocked, refused).code is Code.BUSY
    backend.gate.set()
    assert blocked.finish_or_cancel_render_turn().ok
    assert [call[1] for call in backend.calls if call[0] == "render"] == [0, 1]
    assert (kept.releases, refused.releases) == (1, 0)


def test_finish_times_out_as_busy_and_cancels_nothing(blocked, backend):
    assert submit(blocked).ok
    assert blocked.finish_or_cancel_render_turn(timeout=0.02).code is Code.BUSY
    backend.gate.set()
    assert blocked.finish_or_cancel_render_turn(timeout=5.0).ok
    assert backend.names().count("render") == 2


def test_finish_returns_the_last_ended_turn_once(core, backend):
    backend.script = [RenderStatus(RenderStatusCode.FRAME_UNAVAILABLE, "no")]
    assert submit(core).ok
    assert core.finish_or_cancel_render_turn().code is Code.FRAME_UNAVAILABLE
    assert core.finish_or_cancel_render_turn().ok


@pytest.mark.parametrize("snapshot", [Snapshot(model_generation=2), Snapshot(model_generation=0)])
def test_a_stale_model_is_refused_when_queued(core, backend, snapshot):
    assert submit(core, snapshot).code is Code.STALE_GENERATION
    assert snapshot.releases == 0
    assert "render" not in backend.names()


def test_a_stale_plan_is_refused_when_queued(core):
    plans = plans_of(core)
    assert core.reconfigure(1, 2, CAMERAS).ok
    assert core.submit_snapshot(Snapshot(), plans).code is Code.STALE_GENERATION


def test_an_invalid_snapshot_is_refused(core):
    snapshot = Snapshot()
    snapshot.valid = False
    assert submit(core, snapshot).code is Code.FRAME_UNAVAILABLE


def test_a_turn_that_went_stale_in_the_queue_never_reaches_the_backend(blocked, backend):
    snapshot = Snapshot()
    assert submit(blocked, snapshot).ok
    snapshot.model_generation = 9
    backend.gate.set()
    assert blocked.finish_or_cancel_render_turn().code is Code.STALE_GENERATION
    assert backend.names().count("render") == 1
    assert blocked.last_turn_capture_id == 0
    assert snapshot.releases == 1


def test_cancel_drops_the_queued_turn_lets_the_rendering_one_end_and_does_not_stick(blocked, backend):
    snapshot = Snapshot()
    assert submit(blocked, snapshot).ok
    blocked.request_cancel_render_turn()
    assert snapshot.releases == 1
    assert blocked.last_turn_capture_id == 0
    backend.gate.set()
    assert blocked.finish_or_cancel_render_turn().ok
    assert blocked.last_turn_capture_id == 2
    assert backend.names().count("render") == 1
    blocked.request_cancel_render_turn()
    assert turn(blocked).ok


def test_a_cancelled_turn_ends_with_stopped(blocked, backend):
    backend.script = [RenderStatus(RenderStatusCode.OK)]
    submit(blocked)
    blocked.request_cancel_render_turn()
    assert blocked.finish_or_cancel_render_turn(timeout=0.0).code is Code.BUSY
    backend.gate.set()
    assert blocked.finish_or_cancel_render_turn().ok
    assert blocked.stats()["turn_outcomes"] == {"STOPPED": 1, "OK": 1}


def test_admission_can_be_closed_and_opened(core, backend):
    core.stop_accepting_snapshots()
    assert submit(core, Snapshot(model_generation=7)).code is Code.STOPPED
    assert core.status.ok
    core.start_accepting_snapshots()
    assert turn(core).ok


# -- failures


def test_an_exception_in_a_render_is_a_missed_frame(core, backend):
    snapshot = Snapshot()
    backend.script = [RuntimeError("shader")]
    status = turn(core, snapshot)
    assert status.code is Code.FRAME_UNAVAILABLE
    assert "RuntimeError: shader" in status.message
    assert snapshot.releases == 1
    assert core.status.ok
    assert turn(core).ok


@pytest.mark.parametrize("answer", [None, "OK", True])
def test_a_render_that_returns_no_status_is_a_missed_frame(core, backend, answer):
    backend.script = [answer]
    assert turn(core).code is Code.FRAME_UNAVAILABLE
    assert core.status.ok


TERMINAL = {
    "raised": ContextIntegrityError("context lost"),
    "failure": RenderStatus(RenderStatusCode.BACKEND_FAILURE, "context lost"),
    "unavailable": RenderStatus(RenderStatusCode.BACKEND_UNAVAILABLE, "context lost"),
    "terminal": RenderStatus(RenderStatusCode.TERMINAL_ERROR, "context lost"),
}


@pytest.mark.parametrize("failure", TERMINAL)
def test_an_integrity_failure_is_terminal_until_the_backend_is_replaced(core, backend, failure):
    assert turn(core).ok
    lease = core.acquire_latest(1, RGB)
    backend.script = [TERMINAL[failure]]
    status = turn(core)
    assert is_context_integrity_failure(status)
    assert "context lost" in status.message
    assert core.status == status
    assert core.last_turn_capture_id == 0
    snapshot = Snapshot(model_generation=7)  # terminal is judged before staleness
    assert submit(core, snapshot) == status
    assert core.reconfigure(2, 2, CAMERAS) == status
    assert submit(core, snapshot) == status
    assert snapshot.releases == 0
    assert (lease.numpy() == 1).all()
    assert core.acquire_latest(1, RGB) is not None

    replacement = Backend()
    assert core.reinitialize(replacement).ok
    assert backend.names()[-1] == "shutdown"
    assert replacement.calls == [("initialize", "scene", 1, 1)]
    assert backend.threads == replacement.threads
    assert core.status.ok
    assert turn(core).ok
    assert plans_of(core)[0].consumers == (1,)


@pytest.mark.parametrize("answer", [RuntimeError("no GL"), RenderStatus(RenderStatusCode.BACKEND_UNAVAILABLE, "no GL")])
def test_a_failure_to_initialize_is_terminal(answer):
    with RenderCore(Backend(initialize=answer), 4, 10_000) as core:
        status = core.reconfigure(1, 1, CAMERAS)
        assert is_context_integrity_failure(status)
        assert "no GL" in status.message
        assert core.status == status
        assert core.reinitialize(Backend()).ok
        assert core.status.ok


@pytest.mark.parametrize("answer", [ValueError("size"), RenderStatus(RenderStatusCode.FRAME_UNAVAILABLE, "size"), None])
def test_a_failure_to_resize_is_terminal(core, backend, answer):
    backend.answers["resize"] = answer
    status = core.reconfigure(1, 2, CAMERAS)
    assert is_context_integrity_failure(status)
    assert submit(core) == status


def test_a_turn_queued_behind_a_terminal_one_is_dropped(blocked, backend):
    backend.script = [ContextIntegrityError("gone")]
    snapshot = Snapshot()
    assert submit(blocked, snapshot).ok
    backend.gate.set()
    assert blocked.finish_or_cancel_render_turn() == blocked.status
    assert backend.names().count("render") == 1
    assert snapshot.releases == 1


def test_render_codes_map_to_the_frame_codes_of_their_meaning():
    for code in RenderStatusCode:
        expected = "STALE_GENERATION" if code.name == "STALE_MODEL_GENERATION" else code.name
        assert code.frame_code is Code[expected]
        assert is_context_integrity_failure(code) == is_context_integrity_failure(code.frame_code)
    integrity = {code.name for code in Code if is_context_integrity_failure(code)}
    assert integrity == {"BACKEND_FAILURE", "BACKEND_UNAVAILABLE", "TERMINAL_ERROR"}
    assert is_context_integrity_failure(FrameStatus(Code.TERMINAL_ERROR))
    assert not is_context_integrity_failure(RenderStatus(RenderStatusCode.FRAME_SLOTS_EXHAUSTED))


def test_the_disabled_backend_is_unavailable():
    with RenderCore(DisabledRenderBackend(), 4, 10_000) as core:
        assert core.reconfigure(1, 1, CAMERAS).code is Code.BACKEND_UNAVAILABLE
        assert core.status.code is Code.BACKEND_UNAVAILABLE


# -- configuration


def test_initialize_for_a_new_model_resize_for_new_frames(core, backend):
    assert core.reconfigure(1, 2, CAMERAS).ok
    assert core.reconfigure(2, 3, CAMERAS, scene="other").ok
    assert [call for call in backend.calls if call[0] != "render"] == [
        ("initialize", "scene", 1, 1),
        ("resize", 1, 2),
        ("initialize", "other", 2, 3),
    ]


def test_reconfigure_without_room_leaves_all_as_it_was(backend):
    nbytes = WRIST.layout(RGB).byte_length
    with RenderCore(backend, max_slots=1, max_bytes=nbytes) as core:
        assert core.reconfigure(1, 1, [WRIST]).ok
        core.register_continuous_consumer("all")
        assert turn(core, cameras=[WRIST]).ok
        lease = core.acquire_latest(2, RGB)
        assert core.reconfigure(2, 2, [WRIST]).code is Code.GENERATION_CAPACITY_EXHAUSTED
        assert backend.names() == ["initialize", "render"]
        assert core.evaluate_demand(0, 2).frame_generation == 1
        lease.release()
        assert turn(core, cameras=[WRIST]).ok


def test_wrong_configurations_are_errors(core, backend):
    calls = list(backend.calls)
    for arguments, message in (
        ((0, 1, CAMERAS), "model_generation"),
        ((1, 0, CAMERAS), "frame_generation"),
        ((1, 2, ()), "at least one camera"),
        ((1, 2, (FRONT, FRONT)), "unique"),
    ):
        with pytest.raises(ValueError, match=message):
            core.reconfigure(*arguments)
    backend.supported_planes = frozenset({RGB})
    with pytest.raises(ValueError, match=r"Backend 'depth'.*rgb"):
        core.reconfigure(1, 2, CAMERAS)
    with pytest.raises(ValueError, match="RenderBackend"):
        core.reinitialize(object())
    with pytest.raises(ValueError, match="camera id"):
        core.evaluate_demand(0, 9)
    assert backend.calls == calls
    assert turn(core).ok


def test_reconfigure_waits_until_nothing_is_queued_or_rendering(blocked, backend):
    assert submit(blocked).ok
    done = []
    thread = threading.Thread(target=lambda: done.append(blocked.reconfigure(1, 2, CAMERAS)))
    thread.start()
    time.sleep(0.05)
    assert not done
    assert submit(blocked).code is Code.BUSY
    backend.gate.set()
    thread.join(5.0)
    assert done[0].ok
    assert backend.names() == ["initialize", "render", "render", "resize"]


# -- backpressure


def test_policies(core):
    assert core.backpressure_policy == "drop"
    assert core.set_backpressure_policy("wait_for_slot").ok
    assert core.set_backpressure_policy("block").code is Code.INVALID_POLICY
    assert core.backpressure_policy == "wait_for_slot"


def hold_everything(core):
    """Leases on two frames of each of the three planes, which is all that the budget has."""
    leases = []
    for _ in range(2):
        assert turn(core).ok
        leases += [core.acquire_latest(1, RGB), core.acquire_latest(1, DEPTH), core.acquire_latest(2, RGB)]
    return leases


def test_under_drop_nothing_waits_and_a_turn_without_room_says_so(core):
    leases = hold_everything(core)
    assert core.wait_for_frame_capacity(plans_of(core)).ok
    status = turn(core)
    assert status.code is Code.FRAME_SLOTS_EXHAUSTED
    assert "slots" in status.message
    assert core.status.ok
    assert [lease.stamp.capture_id for lease in leases] == [1, 1, 2, 3, 3, 4]


def test_a_plane_that_fails_does_not_stop_the_later_ones(core):
    leases = hold_everything(core)
    del leases[2]  # one of the wrist: room for its plane, not for those of the front camera
    assert turn(core).code is Code.FRAME_SLOTS_EXHAUSTED
    assert core.acquire_latest(2, RGB).stamp.capture_id == core.last_turn_capture_id


ENDS = {
    "release": (lambda core, leases: leases.clear(), Code.OK),
    "cancel": (lambda core, leases: core.request_cancel_render_turn(), Code.STOPPED),
    "closed": (lambda core, leases: core.stop_accepting_snapshots(), Code.STOPPED),
    "drop": (lambda core, leases: core.set_backpressure_policy("drop"), Code.STOPPED),
    "shutdown": (lambda core, leases: core.shutdown(), Code.STOPPED),
    "reload": (lambda core, leases: core.reconfigure(2, 2, CAMERAS), Code.STOPPED),
}


@pytest.mark.parametrize("how", ENDS)
def test_what_ends_a_wait_for_capacity(core, how):
    leases = hold_everything(core)
    assert core.set_backpressure_policy("wait_for_slot").ok
    plans = plans_of(core)
    result = []
    thread = threading.Thread(target=lambda: result.append(core.wait_for_frame_capacity(plans)))
    thread.start()
    time.sleep(0.05)
    assert not result
    action, expected = ENDS[how]
    action(core, leases)
    thread.join(5.0)
    assert [status.code for status in result] == [expected]


def test_a_wait_after_a_cancel_waits_again(core):
    core.set_backpressure_policy("wait_for_slot")
    core.request_cancel_render_turn()
    assert core.wait_for_frame_capacity(plans_of(core)).ok


# -- shutdown


def test_shutdown_unblocks_a_render_drops_the_queue_and_joins(blocked, backend):
    queued = Snapshot()
    assert submit(blocked, queued).ok
    assert blocked.acquire_latest(2, RGB) is None
    blocked.shutdown()
    blocked.shutdown()
    assert blocked.acquire_latest(2, RGB).stamp.capture_id == 2  # the render in progress could end
    assert backend.names()[-2:] == ["request_stop", "shutdown"]
    assert backend.names().count("render") == 1
    assert queued.releases == 1
    assert submit(blocked).code is Code.STOPPED
    assert blocked.reconfigure(2, 2, CAMERAS).code is Code.STOPPED
    assert blocked.reinitialize(Backend()).code is Code.STOPPED
    assert blocked.wait_for_frame_capacity(()).code is Code.STOPPED
    assert blocked.finish_or_cancel_render_turn(timeout=1.0).ok  # of the turn that ended last, which was rendered
    assert blocked.status.code is Code.STOPPED


def test_stopped_is_judged_before_terminal(core, backend):
    backend.script = [ContextIntegrityError("gone")]
    turn(core)
    core.stop_accepting_snapshots()
    assert submit(core).code is Code.STOPPED
    core.shutdown()
    assert core.status.code is Code.STOPPED


def test_frames_stay_readable_after_shutdown(core):
    assert turn(core).ok
    core.shutdown()
    assert (core.acquire_latest(1, RGB).numpy() == 1).all()


def test_a_backend_that_fails_at_its_end_does_not_hinder_the_shutdown(core, backend, monkeypatch):
    def fail():
        raise RuntimeError("driver")

    monkeypatch.setattr(backend, "shutdown_on_render_thread", fail)
    monkeypatch.setattr(backend, "request_stop", fail)
    core.shutdown()
    assert core.status.code is Code.STOPPED


def test_nothing_keeps_a_core_alive_after_its_shutdown(backend):
    core = RenderCore(backend, 1, 10)
    core.shutdown()
    alive = weakref.ref(core)
    del core
    assert alive() is None


# -- stress


@pytest.fixture
def core_with_histories(backend):
    """A core with room for two frames of each plane that readers hold, whatever else goes on."""
    histories = [(camera.id, 2) for camera in CAMERAS]
    slots, nbytes = compute_frame_slot_capacity(CAMERAS, histories), compute_frame_byte_capacity(CAMERAS, histories)
    with RenderCore(backend, max_slots=slots, max_bytes=nbytes) as core:
        assert core.reconfigure(1, 1, CAMERAS).ok
        core.register_continuous_consumer("all")
        yield core


@contextmanager
def running(function, arguments, stop):
    """A thread for each of the arguments; all end with the block, whatever happens in it."""
    threads = [threading.Thread(target=function, args=each) for each in arguments]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(10.0)


def test_consumers_read_whole_frames_while_physics_drops_what_is_busy(core_with_histories):
    """Every plane is filled with its capture id, so a torn or reused frame shows."""
    core = core_with_histories
    stop = threading.Event()
    failures = []

    def consume(camera_id, plane):
        while not stop.is_set():
            leases = core.acquire_recent(camera_id, plane, 2)
            failures.extend(x.stamp for x in leases if not (x.numpy() == x.stamp.capture_id % 251).all())
            del leases

    codes = set()
    with running(consume, [(1, RGB), (1, DEPTH), (2, RGB)], stop):
        for step in range(100):
            snapshot = Snapshot(simulation_time_ns=step)
            status = submit(core, snapshot)
            codes.add(status.code)
            if step % 10 == 0:
                codes.add(core.finish_or_cancel_render_turn().code)
            if step == 50:
                assert core.reconfigure(1, 2, CAMERAS).ok
        core.finish_or_cancel_render_turn()
    assert not failures
    assert codes <= {Code.OK, Code.BUSY, Code.FRAME_SLOTS_EXHAUSTED}
    stats = core.stats()
    assert stats["turns"] + stats["turn_outcomes"].get("BUSY", 0) == 100
    assert core.frames.held_frames() == []


# -- fan-out, cancellation and finishing


def test_any_number_of_consumers_share_one_render_and_one_frame(core, backend):
    for name in "abc":
        core.register_continuous_consumer(name, 2)
    assert turn(core, cameras=[WRIST]).ok
    leases = [core.acquire_latest(2, RGB) for _ in range(40)]
    assert {lease.warp().ptr for lease in leases} == {leases[0].warp().ptr}
    assert backend.names().count("render") == 1
    leases.pop().release()
    assert all((lease.numpy() == 1).all() for lease in leases)


def test_a_reader_that_holds_a_frame_keeps_nobody_waiting(core):
    assert turn(core).ok
    held = core.acquire_latest(2, RGB)
    for _ in range(5):
        assert turn(core).ok
        assert core.acquire_latest(2, RGB).stamp.capture_id == core.last_turn_capture_id
    assert held.stamp.capture_id == 2


def test_a_cancel_before_any_turn_and_after_one_changes_nothing(core):
    core.request_cancel_render_turn()
    assert core.finish_or_cancel_render_turn().ok
    assert turn(core).ok
    core.request_cancel_render_turn()
    assert core.last_turn_capture_id == 2
    assert core.finish_or_cancel_render_turn().ok
    assert turn(core).ok
    assert core.last_turn_capture_id == 4


def test_a_cancel_during_a_render_lets_it_end_and_keeps_its_frames(blocked, backend):
    blocked.request_cancel_render_turn()
    backend.gate.set()
    assert blocked.finish_or_cancel_render_turn().ok
    assert blocked.acquire_latest(2, RGB).stamp.capture_id == 2


def test_a_queued_turn_that_is_cancelled_after_the_rendering_one_ended_reports_stopped(blocked, backend):
    backend.script = [ContextIntegrityError("gone")]
    assert submit(blocked).ok
    blocked.request_cancel_render_turn()
    assert blocked.last_turn_capture_id == 0
    backend.gate.set()
    assert is_context_integrity_failure(blocked.finish_or_cancel_render_turn())
    assert blocked.last_turn_capture_id == 0


def test_several_threads_may_finish_and_one_of_them_gets_the_status(blocked, backend):
    backend.script = [RuntimeError("shader")]
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(blocked.finish_or_cancel_render_turn(5.0).code))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert results == []
    backend.gate.set()
    for thread in threads:
        thread.join(5.0)
    assert sorted(code.name for code in results) == ["FRAME_UNAVAILABLE", "OK", "OK", "OK"]


def test_a_policy_that_changes_to_and_fro_during_a_wait_ends_it(core):
    leases = hold_everything(core)
    core.set_backpressure_policy("wait_for_slot")
    result = []
    thread = threading.Thread(target=lambda: result.append(core.wait_for_frame_capacity(plans_of(core))))
    thread.start()
    time.sleep(0.05)
    assert core.set_backpressure_policy("wait_for_slot").ok
    assert core.set_backpressure_policy("block").code is Code.INVALID_POLICY
    time.sleep(0.05)
    assert result == []
    core.set_backpressure_policy("drop")
    core.set_backpressure_policy("wait_for_slot")
    thread.join(5.0)
    assert [status.code for status in result] == [Code.STOPPED]
    assert len(leases) == 6


def test_a_terminal_failure_ends_a_wait_for_capacity(core, backend):
    leases = hold_everything(core)
    core.set_backpressure_policy("wait_for_slot")
    result = []
    plans = plans_of(core)
    thread = threading.Thread(target=lambda: result.append(core.wait_for_frame_capacity(plans)))
    thread.start()
    time.sleep(0.05)
    backend.script = [ContextIntegrityError("gone")]
    assert submit(core).ok
    thread.join(5.0)
    assert [status.code for status in result] == [Code.STOPPED]
    assert is_context_integrity_failure(core.wait_for_frame_capacity(plans))
    assert len(leases) == 6


def test_a_wait_reserves_and_evicts_nothing_and_leaves_the_pool_as_it_is(core):
    for _ in range(2):
        assert turn(core).ok
    frames = core.frames
    before = (frames.record_count, frames.committed_bytes, frames.evictions, frames.buffer_growths)
    core.set_backpressure_policy("wait_for_slot")
    assert core.wait_for_frame_capacity(plans_of(core)).ok
    assert (frames.record_count, frames.committed_bytes, frames.evictions, frames.buffer_growths) == before
    assert (frames.reserved_slots, frames.reserved_bytes) == (0, 0)


def test_a_requirement_that_can_never_fit_is_refused_at_once(backend):
    with RenderCore(backend, max_slots=2, max_bytes=10_000) as core:
        assert core.reconfigure(1, 1, CAMERAS).ok
        core.register_continuous_consumer("all")
        core.set_backpressure_policy("wait_for_slot")
        status = core.wait_for_frame_capacity(plans_of(core))
        assert status.code is Code.FRAME_SLOTS_EXHAUSTED
        assert "3 slots never fit in 2" in status.message


def test_a_consumer_that_is_not_told_of_a_delivery_stays_due(core):
    consumer = core.register_one_shot_consumer("python", 2)
    core.request_one_shot(consumer)
    assert turn(core).ok
    plan = core.evaluate_demand(0, 2)
    assert consumer in plan.consumers
    core.mark_delivered(plan, consumer)
    assert consumer not in core.evaluate_demand(0, 2).consumers
