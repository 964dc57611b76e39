"""ROS 2 on the wire: what another process receives, whose demand renders, and readers that stall or die."""

import os
import signal
import sys
import threading
import types
from pathlib import Path

import mujoco
import numpy as np
import pytest
from listening import WAIT_S, Listener, digest, wait_until
from test_simulation import OPTIONS, SIDE, TOP, XML, open_context

from scene_data.camera import CameraCfg
from scene_data.errors import MissingDependencyError
from scene_data.renderers import PlaneKind
from scene_data.renderers.transports import CameraPublicationTransport, Ros2Transport, TransportStatusCode

STEP_NS = 10_000_000
LOOPBACK = """
<CycloneDDS><Domain id="any">
  <General>
    <Interfaces><NetworkInterface name="lo"/></Interfaces>
    <AllowMulticast>false</AllowMulticast>
  </General>
  <Discovery>
    <ParticipantIndex>auto</ParticipantIndex>
    <Peers><Peer address="localhost"/></Peers>
    <LeaseDuration>2 s</LeaseDuration>
  </Discovery>
</Domain></CycloneDDS>
"""
# Of our own, so that two runs on one machine hear nothing of each other.
DOMAIN = 1 + os.getpid() % 200


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(scope="module")
def dds():
    pytest.importorskip("cyclonedds", reason="the extra 'ros2' is not installed")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CYCLONEDDS_URI", LOOPBACK)
        environment.setenv("ROS_DOMAIN_ID", str(DOMAIN))
        yield


@pytest.fixture
def listen(dds):
    listeners = []

    def start(topic: str, type_name: str = "sensor_msgs/Image") -> Listener:
        script = Path(__file__).parent / "ros2_listener.py"
        command = [sys.executable, str(script), str(DOMAIN), topic, type_name]
        listeners.append(Listener(command, dict(os.environ)))
        return listeners[-1]

    yield start
    for listener in listeners:
        listener.kill()


def captures(sim) -> int:
    return sim.render_core.stats()["captures"]


def step_until(sim, condition, what: str) -> None:
    wait_until(condition, what, meanwhile=sim.step)


def test_another_process_receives_the_pixels(model, listen):
    with open_context(model, cameras=(TOP,)) as sim:
        ros = sim.add_transport(Ros2Transport("/robot", environment=1))
        reader = sim.add_transport(CameraPublicationTransport()).register("top", history=2)
        color = listen("/robot/top/image_raw")
        depth = listen("/robot/top/depth/image")
        raw_depth = listen("/robot/top/depth/image_raw")
        info = listen("/robot/top/camera_info", "sensor_msgs/CameraInfo")
        tf = listen("/tf", "tf2_msgs/TFMessage")
        clock = listen("/clock", "rosgraph_msgs/Clock")
        expected: dict[int, dict[PlaneKind, np.ndarray]] = {}
        listeners = (color, depth, raw_depth, info, tf, clock)

        def step() -> None:
            sim.physics.set_control(np.array([[0.0], [1.0]]))
            sim.step()
            frames = reader.acquire()
            expected[frames.simulation_time_ns] = {
                plane: lease.numpy()[1].copy() for plane, lease in frames.leases.items()
            }
            ros.flush(WAIT_S)

        wait_until(lambda: all(len(listener.heard) >= 5 for listener in listeners), "all is heard", meanwhile=step)
        assert ros.status.ok
    for stamp, frame_id, encoding, height, width, step_length, sha in color.heard:
        assert (frame_id, encoding, height, width, step_length) == ("robot/top_optical_frame", "rgb8", "24", "32", "96")
        assert sha == digest(expected[int(stamp)][PlaneKind.RGB])
    for stamp, _, encoding, _, _, step_length, sha in depth.heard:
        assert (encoding, step_length) == ("32FC1", "128")
        assert sha == digest(expected[int(stamp)][PlaneKind.DEPTH])
    for stamp, _, encoding, _, _, step_length, sha in raw_depth.heard:
        assert (encoding, step_length) == ("16UC1", "64")
        assert sha == digest(np.rint(expected[int(stamp)][PlaneKind.DEPTH] * 1000).astype(np.uint16))
    focal = 12.0 / np.tan(np.radians(30.0))
    k = [float(value) for value in info.heard[0][2:]]
    assert k == pytest.approx([focal, 0, 15.5, 0, focal, 11.5, 0, 0, 1])
    _, parent, child, *numbers = tf.heard[0]
    assert (parent, child) == ("world", "robot/top_optical_frame")
    assert [abs(float(number)) for number in numbers] == pytest.approx([0, 0, 3, 1, 0, 0, 0], abs=1e-6)
    times = [int(stamp) for (stamp,) in clock.heard]
    assert times == sorted(times)
    assert set(times) <= set(expected)


def test_no_reader_no_render_and_demand_follows_those_who_come_and_go(model, listen):
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        ros = sim.add_transport(Ros2Transport("/demand"))
        for _ in range(5):
            sim.step()
        assert captures(sim) == 0
        listener = listen("/demand/top/depth/image")
        step_until(sim, lambda: len(listener.heard) >= 3, "frames arrive")
        core = sim.render_core
        assert core.acquire_latest(1, PlaneKind.DEPTH) is not None
        assert core.acquire_latest(1, PlaneKind.RGB) is None, "a plane that nobody listens to was rendered"
        assert core.acquire_latest(2, PlaneKind.DEPTH) is None, "a camera that nobody listens to was rendered"
        listener.send_signal(signal.SIGKILL)
        step_until(sim, lambda: not ros._cameras["top"].planes[1].has_readers(), "the killed reader is noticed")
        sim.step()
        count = captures(sim)
        for _ in range(5):
            sim.step()
        assert captures(sim) == count
        again = listen("/demand/top/image_raw")
        step_until(sim, lambda: again.heard, "a reader that comes later is served")
        assert ros.status.ok


def test_a_reader_that_never_reads_slows_nobody(model, listen):
    camera = CameraCfg("top", 160, 120, ("rgb",), options=OPTIONS)
    with open_context(model, cameras=(camera,)) as sim:
        ros = sim.add_transport(Ros2Transport("/stalled"))
        stalled, lively = listen("/stalled/top/image_raw"), listen("/stalled/top/image_raw")
        step_until(sim, lambda: stalled.heard and lively.heard, "both listen")
        stalled.send_signal(signal.SIGSTOP)
        count = len(lively.heard)
        for _ in range(60):
            sim.step()
            assert ros.flush(WAIT_S), "the stalled reader holds the worker"
        # It is heard from until its lease is over, and served no worse after that.
        step_until(sim, lambda: len(lively.heard) >= count + 60, "frames go on")
        assert set(sim.render_core.stats()["turn_outcomes"]) == {"OK"}
        assert ros.status.ok


def test_topics_and_demand_outlive_a_reload(model, listen):
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        ros = sim.add_transport(Ros2Transport("/reloaded"))
        listener = listen("/reloaded/top/image_raw")
        step_until(sim, lambda: listener.heard, "frames arrive")
        sim.step()
        sim.reload(model, cameras=(CameraCfg("top", 16, 8, options=OPTIONS),))
        assert "/reloaded/side/depth/image" not in ros.topics
        before = len(listener.heard)
        step_until(sim, lambda: listener.heard[-1][3:5] == ["8", "16"], "frames of the new model arrive")
        sizes = [tuple(words[3:5]) for words in listener.heard[before:]]
        assert sizes == sorted(sizes, reverse=True), "an old frame after a new one"


def test_nothing_is_left_of_a_closed_transport(model, dds):
    with open_context(model, cameras=(TOP,)) as sim:
        before = set(threading.enumerate())
        ros = sim.add_transport(Ros2Transport("/short"))
        sim.remove_transport(ros)
        assert set(threading.enumerate()) == before
        assert ros.status.code is TransportStatusCode.STOPPED


@pytest.mark.parametrize("domain", [-1, 233])
def test_domains_that_do_not_exist(domain):
    with pytest.raises(ValueError, match=f"from 0 to 232, not {domain}"):
        Ros2Transport(domain_id=domain)


def test_a_domain_in_the_environment_that_is_no_number(monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", "seven")
    with pytest.raises(ValueError, match="not 'seven'"):
        Ros2Transport()


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setattr("scene_data.renderers.transports.ros2.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "scene_data.renderers.transports.ros2_cyclonedds", raising=False)
    monkeypatch.setitem(sys.modules, "cyclonedds.core", None)
    with pytest.raises(MissingDependencyError, match=r"scene-data\[ros2\]"):
        Ros2Transport()


class FakeRclpy(types.ModuleType):
    """As much of rclpy as is called, by its documentation."""

    def __init__(self):
        super().__init__("rclpy")
        self.published: list[tuple[str, bytes]] = []
        self.log: list[tuple] = []
        self.subscribers: set[str] = set()
        rclpy = self

        class Context:
            def __init__(self):
                self.up = False

            def ok(self):
                return self.up

            def shutdown(self):
                self.up = False

        class Publisher:
            def __init__(self, topic):
                self.topic = topic

            def get_subscription_count(self):
                return int(self.topic in rclpy.subscribers)

            def publish(self, message):
                assert isinstance(message, bytes)
                rclpy.published.append((self.topic, message))

        class Node:
            def create_publisher(self, message_class, topic, qos):
                rclpy.log.append((topic, message_class, qos["reliability"], qos["depth"]))
                return Publisher(topic)

            def destroy_publisher(self, publisher):
                rclpy.log.append(("destroyed", publisher.topic))

            def destroy_node(self):
                rclpy.log.append(("destroyed", "node"))

        def init(context, domain_id):
            context.up = True
            rclpy.log.append(("domain", domain_id))

        self.init = init
        self.create_node = lambda name, context: Node()
        self.context = types.SimpleNamespace(Context=Context)
        policy = types.SimpleNamespace(KEEP_LAST="keep", RELIABLE="reliable", BEST_EFFORT="best", VOLATILE="volatile")
        self.qos = types.SimpleNamespace(
            QoSProfile=dict, HistoryPolicy=policy, ReliabilityPolicy=policy, DurabilityPolicy=policy
        )

    def install(self, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "rclpy", self)
        for name in ("context", "qos"):
            module = types.ModuleType(f"rclpy.{name}")
            module.__dict__.update(vars(getattr(self, name)))
            monkeypatch.setitem(sys.modules, f"rclpy.{name}", module)
        for package, name in (
            ("sensor_msgs", "Image"),
            ("sensor_msgs", "CameraInfo"),
            ("tf2_msgs", "TFMessage"),
            ("rosgraph_msgs", "Clock"),
        ):
            module = sys.modules.get(f"fake {package}") or types.ModuleType(f"{package}.msg")
            monkeypatch.setitem(sys.modules, f"fake {package}", module)
            setattr(module, name, f"{package}/{name}")
            monkeypatch.setitem(sys.modules, f"{package}.msg", module)
            monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
        monkeypatch.setattr("scene_data.renderers.transports.ros2.find_spec", lambda name: name == "rclpy")
        monkeypatch.delitem(sys.modules, "scene_data.renderers.transports.ros2_rclpy", raising=False)


def test_rclpy_is_used_where_it_is(model, monkeypatch):
    rclpy = FakeRclpy()
    rclpy.install(monkeypatch)
    with open_context(model, cameras=(TOP,)) as sim:
        ros = sim.add_transport(Ros2Transport("/robot", domain_id=5))
        assert ("domain", 5) in rclpy.log
        assert ("/robot/top/image_raw", "sensor_msgs/Image", "reliable", 2) in rclpy.log
        assert ("/clock", "rosgraph_msgs/Clock", "best", 1) in rclpy.log
        sim.step()
        assert captures(sim) == 0
        rclpy.subscribers.add("/robot/top/image_raw")
        sim.step()
        assert ros.flush(WAIT_S)
        assert ros.status.ok
        rgb = sim.cameras["top"].data.lease("rgb").numpy()[0]
        ((topic, message),) = rclpy.published
        assert topic == "/robot/top/image_raw"
        assert message[:4] == b"\x00\x01\x00\x00"
        assert message.rstrip(b"\x00").endswith(rgb.tobytes().rstrip(b"\x00"))
    assert rclpy.log[-1] == ("destroyed", "node")
