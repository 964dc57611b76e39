"""Readers in this process: who gets which frame, what a registration outlives, and what it does not."""

import asyncio
import gc
import threading
import weakref

import mujoco
import numpy as np
import pytest
from listening import WAIT_S, wait_until
from test_simulation import OPTIONS, SIDE, TOP, XML, expected_position, open_context, slab_position, write_qpos

from scene_data.camera import BodyMount, CameraCfg, Pinhole, WorldPose
from scene_data.errors import UnknownNameError
from scene_data.renderers import FrameCapacityError, PlaneKind, StaleGenerationError
from scene_data.renderers.render_core.publication import FrameTransport
from scene_data.renderers.transports import CameraPublicationTransport, FrameConsumer

STEP_NS = 10_000_000


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture
def sim(model):
    with open_context(model, cameras=(TOP, SIDE), held_frames=8) as sim:
        yield sim


@pytest.fixture
def transport(sim) -> CameraPublicationTransport:
    return sim.add_transport(CameraPublicationTransport())


def captures(sim) -> int:
    return sim.render_core.stats()["captures"]


def times(consumer: FrameConsumer) -> list[int]:
    """Simulation times of what waits to be read, in steps."""
    found = []
    while (frames := consumer.acquire()) is not None:
        found.append(frames.simulation_time_ns // STEP_NS)
    return found


def in_thread(function) -> tuple[threading.Thread, list]:
    outcome: list = []

    def run() -> None:
        try:
            outcome.append(function())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_nobody_registered_nothing_rendered(sim, transport):
    sim.step()
    assert captures(sim) == 0


def test_many_readers_cost_one_render_and_get_the_state_after_the_step(sim, transport):
    readers = [transport.register("top") for _ in range(5)]
    write_qpos(sim, "mujoco_batch", [0.6, -0.6])
    sim.step()
    assert captures(sim) == 1
    for reader in readers:
        frames = reader.acquire()
        assert frames.simulation_time_ns == STEP_NS
        assert set(frames.leases) == {PlaneKind.RGB, PlaneKind.DEPTH, PlaneKind.SEGMENTATION}
        segmentation = frames.leases[PlaneKind.SEGMENTATION].numpy()
        np.testing.assert_allclose(slab_position(segmentation), expected_position([0.6, -0.6]), atol=0.6)
        assert reader.acquire() is None


def test_a_reader_gets_the_planes_it_asked_for_and_no_other_is_rendered(sim, transport):
    reader = transport.register("top", planes=(PlaneKind.DEPTH,))
    sim.step()
    assert set(reader.acquire().leases) == {PlaneKind.DEPTH}
    assert sim.render_core.acquire_latest(1, PlaneKind.RGB) is None


def test_one_shot_gets_one_frame_per_request(sim, transport):
    reader = transport.register("side", mode="one-shot")
    sim.step()
    assert captures(sim) == 0
    reader.request()
    sim.step()
    sim.step()
    assert times(reader) == [2]
    assert captures(sim) == 1


def test_cadenced_gets_a_frame_per_interval(sim, transport):
    reader = transport.register("side", history=4, mode="cadenced", interval_ns=3 * STEP_NS)
    for _ in range(10):
        sim.step()
    assert times(reader) == [3, 6, 9]
    assert captures(sim) == 3


def test_a_cadenced_reader_keeps_its_frames_beside_a_fast_one(sim, transport):
    slow = transport.register("side", history=2, mode="cadenced", interval_ns=4 * STEP_NS)
    fast = transport.register("side")
    for _ in range(10):
        sim.step()
    assert times(slow) == [4, 8]
    assert times(fast) == [10]
    assert fast.dropped == 9


def test_a_history_keeps_the_latest_and_counts_what_it_displaces(sim, transport):
    reader = transport.register("side", history=3)
    for _ in range(5):
        sim.step()
    assert reader.dropped == 2
    assert times(reader) == [3, 4, 5]
    for _ in range(2):
        sim.step()
    assert reader.acquire_latest().simulation_time_ns == 7 * STEP_NS
    assert reader.acquire() is None


def test_unregistering_one_leaves_the_demand_of_the_others(sim, transport):
    first, second = transport.register("side"), transport.register("side", history=4)
    sim.step()
    first.close()
    first.close()
    sim.step()
    assert first.closed
    assert first.acquire() is None
    assert times(second) == [1, 2]
    second.close()
    sim.step()
    assert captures(sim) == 2


def test_what_one_reader_releases_the_others_still_have(sim, transport):
    first, second = transport.register("top"), transport.register("top")
    sim.step()
    data = sim.cameras["top"].data
    first.acquire().release()
    assert data.lease("rgb").valid
    data.lease("rgb").release()
    assert second.acquire().leases[PlaneKind.RGB].valid


def test_a_held_frame_never_changes(sim, transport):
    reader = transport.register("top")
    sim.step()
    held = reader.acquire().leases[PlaneKind.SEGMENTATION].numpy()
    copy = held.copy()
    write_qpos(sim, "mujoco_batch", [0.7, 0.7])
    for _ in range(20):
        sim.step()
    np.testing.assert_array_equal(held, copy)
    assert not np.array_equal(reader.acquire().leases[PlaneKind.SEGMENTATION].numpy(), copy)


class TestHistoryIsValidatedFirst:
    @pytest.mark.parametrize("history", [0, -1])
    def test_below_one(self, sim, transport, history):
        with pytest.raises(ValueError, match=f"at least 1 frame, got {history}"):
            transport.register("top", history)
        sim.step()
        assert captures(sim) == 0

    def test_beyond_the_budget(self, sim, transport):
        with pytest.raises(FrameCapacityError, match=r"history of 9 .*'top'.*SimulationCfg\.held_frames"):
            transport.register("top", 9)
        first = transport.register("top", 6)
        with pytest.raises(FrameCapacityError, match="history of 3"):
            transport.register("top", 3)
        first.close()
        transport.register("top", 3)

    def test_unknown_names(self, sim, transport):
        with pytest.raises(UnknownNameError, match="camera 'back'. Known: top, side"):
            transport.register("back")
        with pytest.raises(UnknownNameError, match="mode 'often'. Known: one_shot, cadenced, continuous"):
            transport.register("top", mode="often")
        with pytest.raises(UnknownNameError, match="plane of camera 'side' 'rgb'. Known: depth"):
            transport.register("side", planes=(PlaneKind.RGB,))
        with pytest.raises(ValueError, match="interval_ns goes with mode 'cadenced'"):
            transport.register("top", mode="cadenced")
        with pytest.raises(ValueError, match="interval_ns goes with mode 'cadenced'"):
            transport.register("top", interval_ns=1)
        sim.step()
        assert captures(sim) == 0

    def test_outside_a_simulation(self):
        with pytest.raises(RuntimeError, match="add_transport"):
            CameraPublicationTransport().register("top")


class TestGenerations:
    def test_a_reload_on_the_same_core(self, sim, transport, model):
        reader = transport.register("top", history=2)
        sim.step()
        sim.step()
        kept = reader.acquire()
        copy = kept.leases[PlaneKind.RGB].numpy().copy()
        camera, core = sim.cameras["top"], sim.render_core
        sim.reload(model)
        assert sim.render_core is core
        for read in (reader.acquire, reader.acquire_latest, reader.wait, reader.request, reader.__next__):
            with pytest.raises(StaleGenerationError, match="'top'"):
                read()
        with pytest.raises(StaleGenerationError):
            transport.register(camera)
        np.testing.assert_array_equal(kept.leases[PlaneKind.RGB].numpy(), copy)
        sim.step()
        assert captures(sim) == 2, "the old registration still has demand"
        anew = transport.register(sim.cameras["top"])
        sim.step()
        assert anew.acquire().leases[PlaneKind.RGB].stamp.model_generation == 2

    def test_another_core(self, sim, transport, model):
        reader = transport.register("top")
        sim.step()
        core = weakref.ref(sim.render_core)
        sim.reload(model, cameras=(CameraCfg("top", 64, 48, options=OPTIONS),))
        assert sim.render_core is not core()
        with pytest.raises(StaleGenerationError):
            reader.acquire()
        gc.collect()
        assert core() is None, "a stale registration keeps the retired core alive"

    def test_a_new_generation_of_the_same_core_that_nobody_told_of(self, sim, transport):
        reader = transport.register("top")
        sim.step()
        core = sim.render_core
        configuration = core._configuration
        assert core.reconfigure(1, 2, configuration.cameras).ok
        with pytest.raises(StaleGenerationError):
            reader.acquire()

    def test_a_lease_of_another_generation(self, sim, transport):
        reader = transport.register("top")
        sim.step()
        reader._generation = sim.render_core.frames._generation = 7
        with pytest.raises(StaleGenerationError):
            reader.acquire()

    def test_a_waiting_reader_hears_of_a_reload(self, sim, transport, model):
        thread, outcome = in_thread(transport.register("top").wait)
        sim.reload(model)
        thread.join(WAIT_S)
        assert isinstance(outcome[0], StaleGenerationError)

    def test_twenty_readers_that_come_and_go_during_reloads(self, sim, transport, model):
        stop = threading.Event()
        seen: list[tuple[int, int]] = []
        before = set(threading.enumerate())

        def read() -> None:
            while not stop.is_set():
                try:
                    # What is registered here is of the generation in force, or refused.
                    with transport.register("side", history=1, planes=(PlaneKind.DEPTH,)) as reader:
                        frames = reader.wait(0.5)
                        if frames is not None:
                            stamp = frames.leases[PlaneKind.DEPTH].stamp
                            seen.append((reader._generation, stamp.frame_generation))
                except (StaleGenerationError, RuntimeError, FrameCapacityError):
                    pass

        threads = [threading.Thread(target=read) for _ in range(20)]
        for thread in threads:
            thread.start()
        try:
            for reload in range(1, 5):
                for _ in range(10):
                    sim.step()
                wait_until(lambda reload=reload: len(seen) > 5 * reload, "the readers get frames", sim.step)
                sim.reload(model)
        finally:
            stop.set()
            for thread in threads:
                thread.join(WAIT_S)
        assert set(threading.enumerate()) == before
        assert len(seen) > 20
        assert all(registered == stamped for registered, stamped in seen)
        turns = captures(sim)
        sim.step()
        assert captures(sim) == turns


class TestWaiting:
    def test_a_thread_waits_for_the_next_frame(self, sim, transport):
        thread, outcome = in_thread(transport.register("side").wait)
        sim.step()
        thread.join(WAIT_S)
        assert outcome[0].simulation_time_ns == STEP_NS

    def test_a_timeout_gives_none(self, sim, transport):
        assert transport.register("side").wait(timeout=0.01) is None

    def test_iteration_gives_every_frame_and_ends_with_the_registration(self, sim, transport):
        reader = transport.register("side", history=4)
        for _ in range(3):
            sim.step()
        taken = threading.Semaphore(0)

        def read() -> list[int]:
            found = []
            for frames in reader:
                found.append(frames.simulation_time_ns // STEP_NS)
                taken.release()
            return found

        thread, outcome = in_thread(read)
        for _ in range(3):
            assert taken.acquire(timeout=WAIT_S)
        reader.close()
        thread.join(WAIT_S)
        assert outcome == [[1, 2, 3]]

    def test_asyncio(self, sim, transport, model):
        reader = transport.register("side", history=4)
        waiting = threading.Event()

        async def read() -> list:
            found = []
            asyncio.get_running_loop().call_later(0.05, waiting.set)  # after the loop went to sleep in the reader
            try:
                async for frames in reader:
                    found.append(frames.simulation_time_ns // STEP_NS)  # noqa: PERF401  (it ends in an exception)
            except StaleGenerationError:
                found.append("stale")
            return found

        thread, outcome = in_thread(lambda: asyncio.run(read()))
        assert waiting.wait(WAIT_S)
        for step in range(1, 3):
            sim.step()
            while len(reader._frames) or not reader._sleepers:
                assert thread.is_alive(), outcome
            assert step == sim.simulation_time_ns // STEP_NS
        sim.reload(model)
        thread.join(WAIT_S)
        assert outcome == [[1, 2, "stale"]]

    def test_closing_the_simulation_ends_every_wait(self, model):
        before = set(threading.enumerate())
        sim = open_context(model)
        transport = sim.add_transport(CameraPublicationTransport())
        reader = transport.register("top")
        thread, outcome = in_thread(lambda: list(reader))
        sim.close()
        thread.join(WAIT_S)
        assert outcome == [[]]
        assert set(threading.enumerate()) == before


def test_a_reader_that_never_reads_costs_the_others_nothing(model):
    with open_context(model, cameras=(TOP,), held_frames=2) as sim:
        transport = sim.add_transport(CameraPublicationTransport())
        lazy, eager = transport.register("top"), transport.register("top")
        for step in range(1, 30):
            sim.step()
            assert eager.acquire().simulation_time_ns == step * STEP_NS
            assert sim.cameras["top"].data.info.simulation_time_ns == step * STEP_NS
        assert lazy.dropped == 28
        assert sim.render_core.stats()["captures"] == 29
        assert set(sim.render_core.stats()["turn_outcomes"]) == {"OK"}


@pytest.mark.parametrize("mode", ["pipelined", "free_running"])
def test_every_render_mode_serves_readers(model, mode):
    with open_context(model, cameras=(TOP,), render_mode=mode) as sim:
        reader = sim.add_transport(CameraPublicationTransport()).register("top")
        for _ in range(5):
            sim.step()
            sim.render_core.finish_or_cancel_render_turn(WAIT_S)
        frames = reader.acquire()
        assert frames.simulation_time_ns == 4 * STEP_NS


def test_frames_come_with_the_pose_and_projection_of_their_camera(model):
    quarter = np.sqrt(0.5)
    on_slab = CameraCfg("on_slab", 8, 8, ("depth",), mount=BodyMount("slab", (0.0, 0.0, 1.0)), options=OPTIONS)
    turned = WorldPose((0.0, 0.0, 3.0), (0.0, 0.0, quarter, quarter))
    placed = CameraCfg("placed", 8, 8, ("depth",), mount=turned, intrinsics=Pinhole(5, (6, 7), 3, 2), options=OPTIONS)
    with open_context(model, cameras=(TOP, on_slab, placed)) as sim:
        transport = sim.add_transport(CameraPublicationTransport())
        readers = {name: transport.register(name) for name in sim.cameras}
        write_qpos(sim, "mujoco_batch", [0.6, -0.6])
        sim.render()
        views = {name: reader.acquire().view for name, reader in readers.items()}
    np.testing.assert_allclose(views["top"].positions, [[0, 0, 3], [0, 0, 3]], atol=1e-6)
    np.testing.assert_allclose(views["top"].rotations, [np.eye(3), np.eye(3)], atol=1e-6)
    focal = 12.0 / np.tan(np.radians(30.0))
    np.testing.assert_allclose(views["top"].pinholes, [[focal, focal, 16, 12]] * 2)
    np.testing.assert_allclose(views["on_slab"].positions, [[0.6, 0, 1.5], [-0.6, 0, 1.5]], atol=1e-6)
    np.testing.assert_allclose(views["placed"].rotations[1], [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-6)
    np.testing.assert_array_equal(views["placed"].pinholes, [[5, 6, 3, 2], [5, 7, 3, 2]])


class Failing(FrameTransport):
    """Fails in one of its methods."""

    def __init__(self, where: str):
        self.where = where
        self.closed = 0
        self.core = None

    def start(self, core, cameras) -> None:
        self.core = core
        self._fail("start")
        self.consumer = core.register_continuous_consumer("failing")

    def look(self, simulation_time_ns) -> None:
        self._fail("look")

    def deliver(self, frames):
        self._fail("deliver")
        return (self.consumer,)

    def stop(self) -> None:
        self._fail("stop")

    def close(self) -> None:
        self.closed += 1
        self._fail("close")

    def _fail(self, where: str) -> None:
        if where == self.where:
            raise OSError(f"no {where}")


@pytest.mark.parametrize("where", ["look", "deliver", "stop"])
def test_a_transport_that_fails_is_taken_out_and_the_others_go_on(sim, transport, model, where, caplog):
    failing = sim.add_transport(Failing(where))
    reader = transport.register("side")
    sim.step()
    assert reader.acquire().simulation_time_ns == STEP_NS
    sim.reload(model)
    assert failing.closed == 1
    assert "Failing failed and publishes no longer" in caplog.text
    reader = transport.register("side")
    sim.step()
    assert reader.acquire() is not None


def test_a_transport_that_cannot_start_is_not_added(sim):
    with pytest.raises(OSError, match="no start"):
        sim.add_transport(Failing("start"))
    sim.step()


def test_a_transport_that_cannot_close_does_not_keep_the_rest_open(model):
    before = set(threading.enumerate())
    sim = open_context(model)
    sim.add_transport(Failing("close"))
    with pytest.raises(ExceptionGroup, match="closing the simulation failed"):
        sim.close()
    assert set(threading.enumerate()) == before


def test_a_simulation_without_cameras_has_nothing_to_publish(model):
    with open_context(model, cameras=()) as sim, pytest.raises(ValueError, match="no cameras"):
        sim.add_transport(CameraPublicationTransport())


def test_a_transport_may_be_taken_out(sim, transport):
    reader = transport.register("side")
    sim.remove_transport(transport)
    assert reader.closed
    sim.step()
    assert captures(sim) == 0
