"""ROS 1: what another process receives, whose demand renders, and what happens when a side goes away."""

import signal
import threading

import mujoco
import numpy as np
import pytest
from listening import WAIT_S, digest, wait_until
from ros1_rig import Master
from test_simulation import OPTIONS, SIDE, TOP, XML, open_context

from scene_data.camera import CameraCfg
from scene_data.renderers import PlaneKind
from scene_data.renderers.transports import (
    CameraPublicationTransport,
    Ros1Transport,
    TransportError,
    TransportStatusCode,
)

for package in ("rospy", "rosmaster", "sensor_msgs", "tf2_msgs", "geometry_msgs", "rosgraph_msgs"):
    pytest.importorskip(package, reason="ROS 1's Python packages are not installed; see `make setup-ros`")

STEP_NS = 10_000_000


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(scope="module")
def master():
    master = Master()
    master.start()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ROS_MASTER_URI", master.uri)
        environment.setenv("ROS_IP", "127.0.0.1")
        yield master
    master.kill()


@pytest.fixture
def listen(master):
    listeners = []

    def start(topic: str, type_name: str = "sensor_msgs/Image"):
        listeners.append(master.listen(topic, type_name))
        return listeners[-1]

    yield start
    for listener in listeners:
        listener.kill()


def captures(sim) -> int:
    return sim.render_core.stats()["captures"]


def step_until(sim, condition, what: str) -> None:
    wait_until(condition, what, meanwhile=sim.step)


def test_another_process_receives_the_pixels(model, master, listen):
    with open_context(model, cameras=(TOP,)) as sim:
        ros = sim.add_transport(Ros1Transport("/robot", environment=1))
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
        assert max(expected) > 20 * STEP_NS or len(expected) >= 5
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


def test_no_subscriber_no_render_and_demand_follows_those_who_come_and_go(model, listen):
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        ros = sim.add_transport(Ros1Transport("/demand"))
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
        step_until(sim, lambda: not ros._cameras["top"].planes[1].has_readers(), "the killed subscriber is noticed")
        sim.step()
        count = captures(sim)
        for _ in range(5):
            sim.step()
        assert captures(sim) == count
        again = listen("/demand/top/image_raw")
        step_until(sim, lambda: again.heard, "a subscriber that comes later is served")
        assert ros.status.ok


def test_a_subscriber_that_never_reads_slows_nobody(model, listen):
    camera = CameraCfg("top", 320, 240, ("rgb",), options=OPTIONS)
    with open_context(model, cameras=(camera,)) as sim:
        ros = sim.add_transport(Ros1Transport("/stalled"))
        stalled, lively = listen("/stalled/top/image_raw"), listen("/stalled/top/image_raw")
        step_until(sim, lambda: stalled.heard and lively.heard, "both listen")
        stalled.send_signal(signal.SIGSTOP)
        count, steps = len(lively.heard), 0
        # 230 kB each: far more than a socket's buffers hold.
        for _ in range(60):
            sim.step()
            assert ros.flush(WAIT_S), "the stalled subscriber holds the worker"
            steps += 1
        wait_until(lambda: lively.heard[-1][0] == str(sim.simulation_time_ns), "the last frame arrives")
        assert len(lively.heard) - count >= 0.9 * steps
        assert set(sim.render_core.stats()["turn_outcomes"]) == {"OK"}
        assert ros.counts()["top"].dropped == 0


def test_topics_and_demand_outlive_a_reload(model, listen):
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        ros = sim.add_transport(Ros1Transport("/reloaded"))
        listener = listen("/reloaded/top/image_raw")
        step_until(sim, lambda: listener.heard, "frames arrive")
        sim.step()
        sim.reload(model, cameras=(CameraCfg("top", 16, 8, options=OPTIONS),))
        assert "/reloaded/side/depth/image" not in ros.topics
        before = len(listener.heard)
        step_until(sim, lambda: listener.heard[-1][3:5] == ["8", "16"], "frames of the new model arrive")
        sizes = [tuple(words[3:5]) for words in listener.heard[before:]]
        assert sizes == sorted(sizes, reverse=True), "an old frame after a new one"


def test_the_master_is_killed_and_restarted(model, master, listen):
    with open_context(model, cameras=(TOP,)) as sim:
        ros = sim.add_transport(Ros1Transport("/patient"))
        listener = listen("/patient/top/image_raw")
        step_until(sim, lambda: listener.heard, "frames arrive")
        master.kill()
        step_until(sim, lambda: ros.status.code is TransportStatusCode.MASTER_UNREACHABLE, "the loss is noticed")
        assert f"127.0.0.1:{master.port}" in ros.status.message
        count = len(listener.heard)
        step_until(sim, lambda: len(listener.heard) > count + 3, "the connected subscriber is served on")
        master.start()
        step_until(sim, lambda: ros.status.ok, "the return is noticed")
        newcomer = listen("/patient/top/image_raw")
        step_until(sim, lambda: newcomer.heard, "a subscriber of the new master finds us")


def test_nothing_is_left_of_a_closed_transport(model, master):
    with open_context(model, cameras=(TOP,)) as sim:
        sim.add_transport(Ros1Transport("/first"))  # rospy's node stays
        before = set(threading.enumerate())
        second = sim.add_transport(Ros1Transport("/second"))
        assert "/second/top/image_raw" in second.topics
        sim.remove_transport(second)
        wait_until(lambda: set(threading.enumerate()) <= before, "the threads end")
        assert second.status.code is TransportStatusCode.STOPPED
        import rosgraph

        published = [topic for topic, _ in rosgraph.Master("/test").getPublishedTopics("/")]
        assert "/first/top/image_raw" in published
        assert "/second/top/image_raw" not in published


def test_no_master_is_an_error_that_says_where(master, monkeypatch):
    before = set(threading.enumerate())
    monkeypatch.setenv("ROS_MASTER_URI", "http://127.0.0.1:1")
    with pytest.raises(TransportError, match=r"MASTER_UNREACHABLE.*127\.0\.0\.1:1"):
        Ros1Transport("/robot")
    assert set(threading.enumerate()) == before
