"""Shared memory: the same promises to readers in other processes, also when one of them is killed."""

import errno
import gc
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path

import mujoco
import numpy as np
import pytest
from listening import WAIT_S, Listener, digest, wait_until
from test_simulation import SIDE, TOP, XML, open_context, write_qpos

from scene_data.cli import main
from scene_data.errors import UnknownNameError
from scene_data.renderers import FrameStamp, PlaneKind, StaleGenerationError
from scene_data.renderers.transports import (
    SharedMemoryReader,
    SharedMemoryTransport,
    TransportError,
    TransportStatusCode,
)
from scene_data.renderers.transports.shared_segment import SegmentState, SharedSegment, SharedStream

TOP_PLANES = (PlaneKind.RGB, PlaneKind.DEPTH, PlaneKind.SEGMENTATION)
STEP_NS = 10_000_000
SWEEP_S = 1.0


def files(name: str) -> list[str]:
    return [path.name for path in Path("/dev/shm").iterdir() if name in path.name]


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture
def name():
    name = f"test-{uuid.uuid4().hex}"
    yield name
    gc.collect()
    assert files(name) == []


@pytest.fixture
def sim(model, name):  # closed before the name's files are looked for
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        yield sim


@pytest.fixture
def transport(sim, name) -> SharedMemoryTransport:
    return sim.add_transport(SharedMemoryTransport(name, slots=3))


@pytest.fixture
def peers():
    started: list[Listener] = []

    def start(*arguments: object) -> Listener:
        script = str(Path(__file__).parent / "shared_memory_peer.py")
        started.append(Listener([sys.executable, script, *(str(word) for word in arguments)], dict(os.environ)))
        return started[-1]

    yield start
    for peer in started:
        peer.kill()


def segment_of(name: str, slots: int, side: int = 64) -> SharedSegment:
    return SharedSegment.create(name, [SharedStream("cam", "rgb", (1, side, side, 3), "|u1", slots)])


def put(segment: SharedSegment, number: int) -> bool:
    """A frame of one colour, which says what it is."""
    pixels = np.full(segment.streams[0].shape, number % 251, np.uint8)
    return segment.write(0, pixels, FrameStamp(number, 1, number, 1, 1, number))


def share(sim, transport) -> None:
    sim.step()
    assert transport.flush(WAIT_S)


def test_nobody_reads_nothing_is_rendered(sim, transport, name):
    sim.step()
    assert sim.render_core.stats()["captures"] == 0
    with SharedMemoryReader(name) as reader:
        sim.step()
        assert sim.render_core.stats()["captures"] == 0, "no plane was asked for yet"
        assert reader.latest("side", "depth") is None
        share(sim, transport)
        assert sim.render_core.stats()["captures"] == 1
        assert transport.counts()["side"].published == 1
        assert reader.latest("side", "depth").stamp.simulation_time_ns == 3 * STEP_NS
    sim.step()
    assert sim.render_core.stats()["captures"] == 1, "the reader is gone, but not its demand"


def test_a_lease_is_the_shared_memory_itself_and_cannot_be_written(sim, transport, name):
    reader = SharedMemoryReader(name)
    assert reader.cameras == {
        "top": (PlaneKind.RGB, PlaneKind.DEPTH, PlaneKind.SEGMENTATION),
        "side": (PlaneKind.DEPTH,),
    }
    reader.latest("top", PlaneKind.SEGMENTATION)
    share(sim, transport)
    lease = reader.latest("top", PlaneKind.SEGMENTATION)
    array = lease.numpy()
    assert (array.shape, array.dtype) == ((2, TOP.height, TOP.width, 2), np.int32)
    assert np.shares_memory(array, reader.latest("top", PlaneKind.SEGMENTATION).numpy())
    with pytest.raises(ValueError, match="read-only"):
        array[:] = 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    lease.release()
    assert not lease.valid
    with pytest.raises(ValueError, match="released"):
        lease.numpy()


def test_other_processes_get_the_pixels_and_need_no_engine(sim, transport, name, peers):
    readers = [peers("read", name, "top", plane) for plane in ("rgb", "depth", "segmentation")]
    wait_until(lambda: all(len(reader.heard) > 1 for reader in readers), "frames arrive", lambda: share(sim, transport))
    write_qpos(sim, "mujoco_batch", [0.6, -0.6])
    share(sim, transport)
    time_ns = sim.simulation_time_ns
    data = sim.cameras["top"].data
    for reader, plane in zip(readers, ("rgb", "depth", "segmentation"), strict=True):
        expected = ["frame", str(time_ns), digest(data.lease(plane).numpy())]
        wait_until(lambda reader=reader, expected=expected: expected in reader.heard, f"{plane} at {time_ns}")
        assert reader.heard[0] == ["modules"]
    assert transport.status.ok


def test_frames_are_whole_and_never_change_under_a_fast_producer(name, peers):
    segment = segment_of(name, slots=16)
    readers = [peers("check", name, "cam", "rgb", 2.0) for _ in range(3)]
    number = 0
    while not all(reader.heard for reader in readers):
        number += 1
        assert put(segment, number), "three readers hold three frames each, and there are more slots"
    for reader in readers:
        _, frames, wrong = reader.heard[0]
        assert int(frames) > 100
        assert int(wrong) == 0
    segment.close()


def test_held_frames_stay_and_the_room_is_bounded(sim, transport, name):
    reader = SharedMemoryReader(name)
    reader.latest("side", "depth")
    share(sim, transport)
    first = reader.latest("side", "depth").numpy()
    share(sim, transport)
    second = reader.latest("side", "depth")
    copies = first.copy(), second.numpy().copy()
    write_qpos(sim, "mujoco_batch", [0.6, -0.6])
    for _ in range(4):
        share(sim, transport)
    assert transport.status.code is TransportStatusCode.SLOTS_EXHAUSTED
    assert "'side': depth" in transport.status.message
    assert (transport.counts()["side"].published, transport.counts()["side"].dropped) == (3, 3)
    np.testing.assert_array_equal(first, copies[0])
    np.testing.assert_array_equal(second.numpy(), copies[1])
    assert reader.latest("side", "depth").stamp.simulation_time_ns == 3 * STEP_NS
    second.release()
    share(sim, transport)
    assert transport.status.ok
    assert reader.latest("side", "depth").stamp.simulation_time_ns == 7 * STEP_NS
    np.testing.assert_array_equal(first, copies[0])


def test_a_reader_that_is_killed_gives_back_what_it_held(sim, transport, name, peers):
    attending = SharedMemoryReader(name)
    attending.latest("side", "depth")
    holder = peers("hold", name, "side", "depth", 2)
    wait_until(lambda: len(holder.heard) == 2, "two frames are held", lambda: share(sim, transport))
    for _ in range(2):
        share(sim, transport)
    assert transport.status.code is TransportStatusCode.SLOTS_EXHAUSTED
    holder.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    wait_until(lambda: transport.status.ok, "the slots are back", lambda: share(sim, transport))
    assert time.monotonic() - killed < SWEEP_S
    assert attending.latest("side", "depth").stamp.simulation_time_ns == sim.simulation_time_ns


def test_a_reader_that_is_killed_takes_its_demand_along(sim, transport, name, peers):
    holder = peers("hold", name, "side", "depth", 1)
    wait_until(lambda: holder.heard, "a frame is held", sim.step)
    holder.kill()
    before = sim.render_core.stats()["captures"]
    sim.step()
    assert sim.render_core.stats()["captures"] == before


def test_a_producer_that_is_killed(name, peers, sim):
    producer = peers("produce", name)
    reader = SharedMemoryReader(name, timeout=WAIT_S)
    lease = reader.wait("top", "rgb", timeout=WAIT_S)
    with pytest.raises(TransportError, match="NAME_IN_USE"):
        sim.add_transport(SharedMemoryTransport(name))
    assert reader.status.ok
    producer.send_signal(signal.SIGKILL)
    with pytest.raises(TransportError, match="PRODUCER_DIED") as error:
        reader.wait("top", "rgb", after=10**9, timeout=WAIT_S)
    assert error.value.status == reader.status
    assert lease.numpy().any(), "what is held outlives the producer"
    assert files(name) == [], "who notices takes the name away"
    with pytest.raises(TransportError, match="NO_PRODUCER"):
        SharedMemoryReader(name)


def test_the_name_of_a_dead_producer_is_taken_over(name, peers, sim):
    producer = peers("produce", name)
    wait_until(lambda: files(name), "the producer is there")
    producer.kill()
    assert files(name) != []
    transport = sim.add_transport(SharedMemoryTransport(name))
    reader = SharedMemoryReader(name)
    reader.latest("top", "rgb")
    share(sim, transport)
    assert reader.latest("top", "rgb").sequence == 1


def test_a_producer_killed_in_the_middle_of_a_frame_shows_no_half_of_it(name):
    segment = segment_of(name, slots=2)
    put(segment, 1)
    reader = SharedMemoryReader(name)
    assert reader.latest("cam", "rgb").stamp.capture_id == 1
    segment._headers[0, 0] = 0  # as a writer leaves a slot that it was killed in
    assert segment.hold(0) is None
    segment.close()


def test_a_frame_that_cannot_be_copied_is_none(name):
    segment = segment_of(name, slots=2)
    put(segment, 1)
    with pytest.raises(TypeError):
        segment.write(0, np.zeros(segment.streams[0].shape, np.float32), FrameStamp(2, 1, 2, 1, 1, 2))
    reader = SharedMemoryReader(name)
    assert reader.latest("cam", "rgb").stamp.capture_id == 1
    assert put(segment, 3)
    assert reader.latest("cam", "rgb").stamp.capture_id == 3
    segment.close()


class TestGenerations:
    def test_a_reload_makes_readers_stale(self, sim, transport, name, model):
        reader = SharedMemoryReader(name)
        reader.latest("top", "rgb")
        share(sim, transport)
        held = reader.latest("top", "rgb").numpy()
        copy = held.copy()
        sim.reload(model)
        assert reader.status.code is TransportStatusCode.STALE_GENERATION
        for read in (reader.latest, reader.wait):
            with pytest.raises(StaleGenerationError, match="'top'"):
                read("top", "rgb")
        anew = SharedMemoryReader(name)
        assert anew.latest("top", "rgb") is None, "a frame from before the reload"
        write_qpos(sim, "mujoco_batch", [0.6, -0.6])
        share(sim, transport)
        assert anew.latest("top", "rgb").stamp.model_generation == 2
        np.testing.assert_array_equal(held, copy)
        assert len(files(name)) == 1

    def test_a_reload_between_the_look_and_the_hold(self, name, monkeypatch):
        segment = segment_of(name, slots=2)
        put(segment, 1)
        reader = SharedMemoryReader(name)
        hold = reader._segment.hold

        def late(slot: int):
            segment.retire(SegmentState.STALE)
            return hold(slot)

        monkeypatch.setattr(reader._segment, "hold", late)
        with pytest.raises(StaleGenerationError):
            reader.latest("cam", "rgb")
        segment.close()

    def test_twenty_readers_that_come_and_go_during_reloads(self, sim, transport, name, model):
        stop, seen, failures = threading.Event(), [], []

        def read() -> None:
            while not stop.is_set():
                try:
                    with SharedMemoryReader(name) as reader:
                        generations = set()
                        for _ in range(2):
                            lease = reader.wait("side", "depth", timeout=0.02)
                            if lease is not None:
                                generations.add(lease.stamp.model_generation)
                        seen.append(generations)
                except (StaleGenerationError, TransportError):
                    pass
                except Exception as error:
                    failures.append(error)
                    return

        threads = [threading.Thread(target=read) for _ in range(20)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            for _ in range(4):
                sim.step()
            sim.reload(model)
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
        assert failures == []
        assert any(seen)
        assert max(map(len, seen)) == 1, "one reader saw frames of two generations"


def test_closing(sim, transport, name):
    reader, closed = SharedMemoryReader(name), SharedMemoryReader(name)
    reader.latest("side", "depth")
    share(sim, transport)
    lease = reader.latest("side", "depth")
    closed.close()
    closed.close()
    with pytest.raises(TransportError, match="This reader is closed"):
        closed.latest("side", "depth")
    sim.remove_transport(transport)
    assert transport.status.code is reader.status.code is TransportStatusCode.STOPPED
    assert files(name) == []
    with pytest.raises(TransportError, match="The producer has closed it"):
        reader.latest("side", "depth")
    reader.close()
    assert np.isfinite(lease.numpy()).any(), "a lease outlives its reader"
    before = len(os.listdir("/proc/self/fd"))
    del reader, closed
    lease.release()
    del lease
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < before


def test_a_forked_child_holds_nothing(name):
    segment = segment_of(name, slots=2)
    put(segment, 1)
    reader = SharedMemoryReader(name)
    lease = reader.latest("cam", "rgb")
    child = os.fork()
    if child == 0:
        os._exit(0 if not lease.valid and not reader.status.ok and signal.pause() is None else 1)
    try:
        assert put(segment, 2)
        assert not put(segment, 3)
        lease.release()
        wait_until(lambda: put(segment, 3), "the slot is free though the child lives")
        segment.close()
        assert files(name) == []
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child thought that it had a lease"


def test_from_the_command_line(name, tmp_path, capsys):
    main(
        [
            "render",
            "demo",
            "--steps",
            "2",
            "--camera",
            "front:32x24:rgb",
            "--out",
            str(tmp_path),
            "--publish",
            f"shm:{name}",
        ]
    )
    assert "0 captures published, 0 dropped" in capsys.readouterr().out, "nobody read"


def test_mistakes(sim, transport, name):
    with pytest.raises(ValueError, match="cannot name shared memory"):
        SharedMemoryTransport("../passwd")
    with pytest.raises(ValueError, match="slots must be at least 2, got 1"):
        SharedMemoryTransport(name, slots=1)
    with pytest.raises(ValueError, match="interval_ns must be at least 1, got 0"):
        SharedMemoryTransport(name, interval_ns=0)
    with pytest.raises(TransportError, match="NO_PRODUCER"):
        SharedMemoryReader("nobody")
    reader = SharedMemoryReader(f"/{name}")
    with pytest.raises(UnknownNameError, match="camera 'back'. Known: top, side"):
        reader.latest("back", "rgb")
    with pytest.raises(UnknownNameError, match="plane of camera 'side' 'rgb'. Known: depth"):
        reader.latest("side", "rgb")


def test_more_than_there_is_memory_for(sim, name):
    with pytest.raises(OSError) as error:  # noqa: PT011  (its number is what matters)
        sim.add_transport(SharedMemoryTransport(name, slots=10**9))
    assert error.value.errno in (errno.ENOSPC, errno.ENOMEM)
    sim.step()
