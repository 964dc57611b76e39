"""Cameras as topics, over a wire that tests hold in their hands."""

import threading

import mujoco
import pytest
from test_simulation import OPTIONS, TOP, XML, open_context

from scene_data.camera import CameraCfg, WorldPose
from scene_data.renderers.transports import TransportStatus, TransportStatusCode
from scene_data.renderers.transports.status import CameraCounts
from scene_data.renderers.transports.topics import TopicTransport
from scene_data.renderers.transports.wire import MessageType, TopicWriter, Wire

WAIT_S = 20.0
STEP_NS = 10_000_000


class FakeWire(Wire):
    """Sends into a list, when it is let."""

    def __init__(self):
        self.readers: set[str] = set()
        self.topics: dict[str, MessageType] = {}
        self.sent: list[tuple[str, object]] = []
        self.let_through = threading.Event()
        self.let_through.set()
        self.sending = threading.Semaphore(0)
        self.is_closed = False

    @property
    def status(self) -> TransportStatus:
        return TransportStatus(TransportStatusCode.OK)

    def open(self, topic: str, message_type: MessageType) -> TopicWriter:
        assert topic not in self.topics
        self.topics[topic] = message_type
        return FakeTopic(self, topic)

    def close(self) -> None:
        assert not self.topics
        self.is_closed = True

    def times(self, topic: str) -> list[int]:
        return [time for name, time in self.sent if name == topic]


class FakeTopic(TopicWriter):
    def __init__(self, wire: FakeWire, topic: str):
        self._wire = wire
        self._topic = topic

    @property
    def reader_count(self) -> int:
        return int(self._topic in self._wire.readers)

    def encode(self, content) -> int:
        return content.stamp_ns // STEP_NS

    def send(self, message: int) -> None:
        self._wire.sending.release()
        assert self._wire.let_through.wait(WAIT_S)
        self._wire.sent.append((self._topic, message))

    def close(self) -> None:
        del self._wire.topics[self._topic]


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture
def wire() -> FakeWire:
    return FakeWire()


@pytest.fixture
def sim(model):
    with open_context(model, cameras=(TOP,)) as sim:
        yield sim


def test_a_send_that_hangs_holds_no_frame_and_leaves_the_latest_two_waiting(sim, wire):
    transport = sim.add_transport(TopicTransport(lambda: wire, clock=False))
    wire.readers.add("/top/image_raw")
    wire.let_through.clear()
    sim.step()
    assert wire.sending.acquire(timeout=WAIT_S)
    assert sim.render_core.frames.held_frames() == []
    for _ in range(20):
        sim.step()
    assert [count for *_, count in sim.render_core.frames.held_frames()] == [2]
    assert set(sim.render_core.stats()["turn_outcomes"]) == {"OK"}
    assert not transport.flush(0.01)
    wire.let_through.set()
    assert transport.flush(WAIT_S)
    assert wire.times("/top/image_raw") == [1, 20, 21]
    assert transport.counts() == {"top": CameraCounts(published=3, dropped=18)}


def test_what_waits_at_a_reload_does_not_go_out(sim, wire, model):
    transport = sim.add_transport(TopicTransport(lambda: wire, clock=False))
    wire.readers.add("/top/image_raw")
    wire.let_through.clear()
    for _ in range(3):
        sim.step()
    assert wire.sending.acquire(timeout=WAIT_S)
    sim.reload(model)
    wire.let_through.set()
    assert transport.flush(WAIT_S)
    assert wire.times("/top/image_raw") == [1], "only what was being sent when the model changed"
    sim.step()
    assert transport.flush(WAIT_S)
    assert wire.times("/top/image_raw") == [1, 1]


def test_when_the_last_reader_leaves_what_waits_is_dropped_and_nothing_is_rendered(sim, wire):
    transport = sim.add_transport(TopicTransport(lambda: wire, clock=False))
    wire.readers.add("/top/camera_info")
    wire.let_through.clear()
    sim.step()
    assert wire.sending.acquire(timeout=WAIT_S)
    sim.step()
    wire.readers.clear()
    captures = sim.render_core.stats()["captures"]
    sim.step()
    assert sim.render_core.stats()["captures"] == captures
    assert sim.render_core.frames.held_frames() == []
    wire.let_through.set()
    assert transport.flush(WAIT_S)
    assert wire.times("/top/camera_info") == [1]


def test_a_topic_without_readers_is_not_even_encoded(sim, wire, monkeypatch):
    transport = sim.add_transport(TopicTransport(lambda: wire, "/robot"))
    encoded: list[str] = []
    encode = FakeTopic.encode
    monkeypatch.setattr(FakeTopic, "encode", lambda self, content: encoded.append(self._topic) or encode(self, content))
    wire.readers |= {"/robot/top/depth/image", "/clock"}
    sim.step()
    assert transport.flush(WAIT_S)
    sim.remove_transport(transport)
    assert sorted(encoded) == ["/clock", "/robot/top/depth/image"]


def test_closing_sends_what_waits_and_closes_every_topic(model, wire):
    before = set(threading.enumerate())
    with open_context(model, cameras=(TOP,)) as sim:
        sim.add_transport(TopicTransport(lambda: wire))
        assert wire.topics["/tf"] is MessageType.TRANSFORMS
        wire.readers.add("/top/image_raw")
        wire.let_through.clear()
        sim.step()
        assert wire.sending.acquire(timeout=WAIT_S)
        sim.step()
        threading.Timer(0.1, wire.let_through.set).start()
    assert wire.times("/top/image_raw") == [1, 2]
    assert wire.is_closed
    for thread in set(threading.enumerate()) - before:
        thread.join(WAIT_S)
    assert set(threading.enumerate()) <= before


def test_two_cameras_of_one_name_in_ros_are_refused(model, wire):
    pose = WorldPose((0.0, 0.0, 3.0))
    cameras = [CameraCfg(name, 8, 8, mount=pose, options=OPTIONS) for name in ("a b", "a-b")]
    with open_context(model, cameras=cameras) as sim:
        with pytest.raises(ValueError, match="'a-b' is called 'a_b' in ROS, and so is another"):
            sim.add_transport(TopicTransport(lambda: wire))
        assert wire.is_closed
