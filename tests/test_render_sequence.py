"""The steps of a turn, a reload and a teardown: their order, and who holds the physics lock at each of them."""

import threading
import time

import mujoco
import numpy as np
import pytest
from test_render_modes import DEADLINE, OTHER_XML, Gate
from test_simulation import SIDE, TOP, XML, expected_position, open_context, segmentation, slab_position

from scene_data import SimulationContext
from scene_data.renderers import FrameStatusCode, PlaneKind
from scene_data.renderers.render_core.pipeline import RenderPipeline
from scene_data.renderers.render_core.publication import FrameTransport

MODES = ("synchronous", "pipelined", "free_running")
TOP_SEGMENTATION = PlaneKind.SEGMENTATION


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(scope="module")
def other() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(OTHER_XML)


class Transport(FrameTransport):
    """Wants every frame of every camera, and keeps none."""

    def __init__(self):
        self.core = self.consumer = None

    def start(self, core, cameras):
        self.core = core
        self.consumer = core.register_continuous_consumer("transport")

    def deliver(self, frames):
        return [self.consumer]

    def stop(self):
        self.core.unregister_consumer(self.consumer)

    def close(self):
        self.stop()


class Recorder:
    """Notes calls in their order, and for each whether the calling thread holds the physics lock."""

    def __init__(self, monkeypatch, lock=None):
        self.calls: list[tuple[str, bool]] = []
        self._monkeypatch = monkeypatch
        self._lock = lock

    def watch(self, name: str, owner: object, method: str) -> None:
        original = getattr(owner, method)

        def recorded(*arguments, **options):
            self.calls.append((name, self._lock is not None and self._lock._is_owned()))
            return original(*arguments, **options)

        self._monkeypatch.setattr(owner, method, recorded)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def watch_turns(sim: SimulationContext, transport: FrameTransport, monkeypatch) -> Recorder:
    recorder = Recorder(monkeypatch, sim.physics_lock)
    pipeline: RenderPipeline = sim._pipeline
    for name, owner, method in (
        ("step", sim.physics, "step"),
        ("demand", transport, "look"),
        ("evaluate", pipeline.core, "evaluate_demand"),
        ("snapshot", pipeline.pool, "acquire"),
        ("enter", pipeline._guard, "enter"),
        ("wait", pipeline.core, "wait_for_frame_capacity"),
        ("submit", pipeline.core, "submit_snapshot"),
        ("finish", pipeline.core, "finish_or_cancel_render_turn"),
        ("publish", transport, "deliver"),
        ("delivered", pipeline.core, "mark_delivered"),
        ("leave", pipeline._guard, "leave"),
    ):
        recorder.watch(name, owner, method)
    return recorder


# -- a step


def test_a_step_goes_through_its_turn_in_order_and_off_the_lock_from_the_wait_on(model, monkeypatch):
    with open_context(model) as sim:
        transport = sim.add_transport(Transport())
        sim.step()
        recorder = watch_turns(sim, transport, monkeypatch)
        sim.step()
        assert recorder.calls == [
            ("step", True),
            ("demand", True),
            ("evaluate", True),
            ("snapshot", True),
            ("enter", True),
            ("wait", False),
            ("submit", False),
            ("finish", False),
            ("publish", False),
            ("delivered", False),
            ("leave", False),
        ]


def free_lock(sim: SimulationContext) -> bool:
    """Whether another thread gets the physics lock."""
    taken = []

    def take():
        taken.append(sim.physics_lock.acquire(timeout=DEADLINE / 2))
        if taken[0]:
            sim.physics_lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]


@pytest.mark.parametrize("blocked_in", ["render", "wait", "publish"])
def test_whoever_needs_the_physics_lock_gets_it_while_a_turn_is_blocked(model, blocked_in, monkeypatch):
    with open_context(model) as sim:
        transport = sim.add_transport(Transport())
        sim.step()
        entered, opened = threading.Event(), threading.Event()
        owner, method = {
            "render": (sim.render_core._host.backend, "render"),
            "wait": (sim.render_core, "wait_for_frame_capacity"),
            "publish": (transport, "deliver"),
        }[blocked_in]
        original = getattr(owner, method)

        def gated(*arguments):
            entered.set()
            assert opened.wait(DEADLINE)
            return original(*arguments)

        monkeypatch.setattr(owner, method, gated)
        stepper = threading.Thread(target=sim.step)
        stepper.start()
        assert entered.wait(DEADLINE)
        assert free_lock(sim)
        opened.set()
        stepper.join(DEADLINE)
        assert not stepper.is_alive()


def test_where_nobody_is_due_there_is_no_snapshot_and_no_turn(model, monkeypatch):
    with open_context(model) as sim:
        monkeypatch.setattr(sim._pipeline.pool, "acquire", lambda *_: pytest.fail("a snapshot was taken"))
        for _ in range(3):
            sim.step()
        assert sim.render_core.stats()["turns"] == 0


def test_a_step_without_a_free_snapshot_drops_the_turn_and_goes_on(model):
    with open_context(model) as sim:
        sim.add_transport(Transport())
        sim.step()
        pool, provider = sim._pipeline.pool, sim.get_scene_data_provider()
        held = [pool.acquire(provider, 1).snapshot for _ in range(2)]
        sim.step()
        sim.step()
        assert sim.stats()["dropped_snapshots"] == 2
        assert sim.render_core.stats()["turns"] == 1
        held.clear()
        sim.step()
        assert sim.render_core.stats()["turns"] == 2


@pytest.mark.parametrize("mode", ["pipelined", "free_running"])
def test_a_turn_shows_the_state_of_its_snapshot_whatever_the_physics_does_meanwhile(model, mode, monkeypatch):
    with open_context(model, render_mode=mode) as sim:
        sim.cameras["top"].data  # noqa: B018
        sim.render_core.finish_or_cancel_render_turn(DEADLINE)
        sim.physics.batch.qpos[:, 0] = [0.5, -0.5]
        gate = Gate(sim.render_core, monkeypatch)
        sim.render()
        assert gate.entered.wait(DEADLINE)
        sim.physics.batch.qpos[:, 0] = [-0.8, 0.8]
        sim.forward()
        gate.opened.set()
        sim.render_core.finish_or_cancel_render_turn(DEADLINE)
        frame = sim.render_core.acquire_latest(1, TOP_SEGMENTATION).numpy()
        np.testing.assert_allclose(slab_position(frame), expected_position([0.5, -0.5]), atol=0.6)


# -- a reload


def test_a_reload_goes_through_its_steps_in_order(model, other, monkeypatch):
    with open_context(model) as sim:
        transport = sim.add_transport(Transport())
        sim.step()
        pipeline = sim._pipeline
        recorder = Recorder(monkeypatch, sim.physics_lock)
        recorder.watch("plan", pipeline, "plan")
        recorder.watch("close admission", pipeline._guard, "close")
        recorder.watch("stop accepting", pipeline.core, "stop_accepting_snapshots")
        recorder.watch("cancel", pipeline.core, "request_cancel_render_turn")
        recorder.watch("finish", pipeline.core, "finish_or_cancel_render_turn")
        recorder.watch("guard is empty", pipeline._guard, "wait_empty")
        recorder.watch("unregister", transport, "stop")
        recorder.watch("swap", sim.provider, "rebind")
        recorder.watch("snapshots", pipeline.pool, "activate")
        recorder.watch("reconfigure", pipeline.core, "reconfigure")
        recorder.watch("register", transport, "start")
        recorder.watch("start accepting", pipeline.core, "start_accepting_snapshots")
        recorder.watch("open admission", pipeline._guard, "open")
        sim.reload(other)
        assert recorder.names == [
            "plan",
            "close admission",
            "stop accepting",
            "cancel",
            "finish",
            "guard is empty",
            "unregister",
            "swap",
            "snapshots",
            "reconfigure",
            "register",
            "start accepting",
            "open admission",
        ]
        under_lock = {name for name, locked in recorder.calls if locked}
        assert "swap" in under_lock
        assert under_lock <= {"swap", "snapshots"}


def test_while_a_reload_closes_admission_turns_are_refused(model):
    with open_context(model) as sim:
        sim.add_transport(Transport())
        with sim._pipeline._guard.closed():
            assert sim._pipeline.after_step().code is FrameStatusCode.STOPPED
            assert sim._pipeline._guard.count == 0
        assert sim._pipeline.after_step().ok
        assert sim.stats()["dropped_snapshots"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_reload_to_other_cameras_while_leases_are_held_and_turns_go_on(model, other, mode):
    """Sizes, cameras and model change under a thread that steps and reads without a pause."""
    with open_context(model, cameras=(TOP,), render_mode=mode) as sim:
        sim.step()
        held = sim.cameras["top"].data
        copy = held.lease("rgb").numpy().copy()
        stop, failures = threading.Event(), []

        def use():
            while not stop.is_set():
                try:
                    sim.step()
                    [camera.data for camera in sim.cameras.values()]
                except RuntimeError as error:  # a camera of the model before
                    failures.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        try:
            for _ in range(3):
                sim.reload(other, cameras=(TOP,))
                sim.reload(model, cameras=(TOP, SIDE))
        finally:
            stop.set()
            thread.join(DEADLINE)
        assert not thread.is_alive()
        np.testing.assert_array_equal(held.lease("rgb").numpy(), copy)
        sim.reload(other, cameras=(TOP,))
        sim.step()
        sim.reset()
        assert sim.render_core.finish_or_cancel_render_turn(DEADLINE) is not None
        if mode == "synchronous":
            np.testing.assert_allclose(slab_position(segmentation(sim)), expected_position([0.5, 0.5]), atol=0.6)
        assert {type(failure).__name__ for failure in failures} <= {"StaleGenerationError", "RenderTurnError"}


# -- a teardown


def test_a_teardown_goes_through_its_steps_in_order(model, monkeypatch):
    sim = open_context(model)
    transport = sim.add_transport(Transport())
    sim.step()
    recorder = Recorder(monkeypatch)
    recorder.watch("consumers", transport, "close")
    recorder.watch("cameras", sim.render_core, "unregister_consumer")
    recorder.watch("cancel", sim.render_core, "request_cancel_render_turn")
    recorder.watch("shutdown", sim.render_core, "shutdown")
    recorder.watch("request stop", sim.render_core._host.backend, "request_stop")
    recorder.watch("context", sim.render_core._host.backend, "shutdown_on_render_thread")
    recorder.watch("snapshots", sim._pipeline.pool, "deactivate")
    recorder.watch("engine", sim.physics, "close")
    lease = sim.render_core.acquire_latest(1, TOP_SEGMENTATION)
    sim.close()
    order = recorder.names
    first = [order.index(name) for name in dict.fromkeys(order)]
    assert list(dict.fromkeys(order)) == [
        "consumers",
        "cameras",
        "cancel",
        "shutdown",
        "request stop",
        "context",
        "snapshots",
        "engine",
    ]
    assert first == sorted(first)
    assert lease.numpy().shape[0] == 2


def test_a_teardown_ends_a_wait_for_capacity(model):
    before = set(threading.enumerate())
    sim = open_context(model)
    assert sim.render_core.set_backpressure_policy("wait_for_slot").ok
    held = []
    for _ in range(4):
        sim.step()
        held.append(sim.cameras["top"].data)
    sim.step()
    failures = []

    def read():
        try:
            sim.cameras["top"].data  # noqa: B018
        except RuntimeError as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.2)
    assert reader.is_alive()
    sim.close()
    reader.join(DEADLINE)
    assert [failure.status.code for failure in failures] == [FrameStatusCode.STOPPED]
    assert set(threading.enumerate()) == before
    assert len(held) == 4


def test_a_teardown_attempts_each_step_and_raises_what_failed_together(model, monkeypatch):
    before = set(threading.enumerate())
    sim = open_context(model)
    transport = sim.add_transport(Transport())
    sim.step()
    closed = []

    def fail():
        raise OSError("port")

    def close():
        closed.append("engine")
        raise ValueError("engine")

    monkeypatch.setattr(transport, "close", fail)
    monkeypatch.setattr(sim.physics, "close", close)
    with pytest.raises(ExceptionGroup) as raised:
        sim.close()
    assert raised.group_contains(OSError, match="port")
    assert raised.group_contains(ValueError, match="engine")
    assert closed == ["engine"]
    assert set(threading.enumerate()) == before
    assert SimulationContext.instance() is None
