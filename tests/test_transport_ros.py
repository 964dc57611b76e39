"""ROS 1 and ROS 2 alike: what another process receives, whose demand renders, and readers that stall, die or crowd."""

import os
import signal
import threading
import tracemalloc

import mujoco
import numpy as np
import pytest
from listening import WAIT_S, digest, wait_until
from ros_rigs import RIGS, Rig
from test_simulation import OPTIONS, SIDE, TOP, XML, open_context

from scene_data.camera import CameraCfg
from scene_data.renderers import PlaneKind
from scene_data.renderers.transports import CameraPublicationTransport

STEP_NS = 10_000_000


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(scope="module", params=list(RIGS))
def ros(request):
    with RIGS[request.param]() as rig:
        yield rig


@pytest.fixture
def listen(ros):
    listeners = []

    def start(topic: str, type_name: str = "sensor_msgs/Image"):
        listeners.append(ros.listen(topic, type_name))
        return listeners[-1]

    yield start
    for listener in listeners:
        listener.kill()


def captures(sim) -> int:
    return sim.render_core.stats()["captures"]


def step_until(sim, condition, what: str) -> None:
    wait_until(condition, what, meanwhile=sim.step)


def test_another_process_receives_the_pixels(model, ros, listen):
    with open_context(model, cameras=(TOP,)) as sim:
        transport = sim.add_transport(ros.transport("/robot", environment=1))
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
            transport.flush(WAIT_S)

        wait_until(lambda: all(len(listener.heard) >= 5 for listener in listeners), "all is heard", meanwhile=step)
        assert transport.status.ok
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


def test_no_subscriber_no_render_and_demand_follows_those_who_come_and_go(model, ros, listen):
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        transport = sim.add_transport(ros.transport("/demand"))
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
        step_until(
            sim, lambda: not transport._cameras["top"].planes[1].has_readers(), "the killed subscriber is noticed"
        )
        sim.step()
        count = captures(sim)
        for _ in range(5):
            sim.step()
        assert captures(sim) == count
        again = listen("/demand/top/image_raw")
        step_until(sim, lambda: again.heard, "a subscriber that comes later is served")
        assert transport.status.ok


def test_a_subscriber_that_never_reads_slows_nobody_and_costs_no_more_than_its_queue(model, ros, listen):
    camera = CameraCfg("top", 320, 240, ("rgb",), options=OPTIONS)
    nbytes = 3 * camera.width * camera.height
    with open_context(model, num_envs=1, cameras=(camera,)) as sim:
        transport = sim.add_transport(ros.transport("/stalled"))
        stalled, lively = listen("/stalled/top/image_raw"), listen("/stalled/top/image_raw")
        step_until(sim, lambda: stalled.heard and lively.heard, "both listen")

        def publish(count: int) -> None:
            for _ in range(count):
                sim.step()
                assert transport.flush(WAIT_S), "the stalled subscriber holds the worker"

        threads = set(threading.enumerate())
        stalled.send_signal(signal.SIGSTOP)
        count = len(lively.heard)
        publish(40)  # far more than a socket's buffers hold
        tracemalloc.start()
        try:
            publish(40)
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Both subscribers have a queue of two, and two more are on their way.
        assert kept < 10 * nbytes, "frames pile up for the stalled subscriber"
        step_until(sim, lambda: len(lively.heard) >= count + 72, "frames go on")
        assert set(threading.enumerate()) <= threads
        assert set(sim.render_core.stats()["turn_outcomes"]) == {"OK"}
        assert transport.status.ok
        assert transport.counts()["top"].dropped == 0
        sim.remove_transport(transport)  # with one that still does not read
        wait_until(lambda: not any("top" in thread.name for thread in threading.enumerate()), "its threads end")


def test_topics_and_demand_outlive_a_reload(model, ros, listen):
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        transport = sim.add_transport(ros.transport("/reloaded"))
        listener = listen("/reloaded/top/image_raw")
        step_until(sim, lambda: listener.heard, "frames arrive")
        sim.step()
        sim.reload(model, cameras=(CameraCfg("top", 16, 8, options=OPTIONS),))
        assert "/reloaded/side/depth/image" not in transport.topics
        before = len(listener.heard)
        step_until(sim, lambda: listener.heard[-1][3:5] == ["8", "16"], "frames of the new model arrive")
        sizes = [tuple(words[3:5]) for words in listener.heard[before:]]
        assert sizes == sorted(sizes, reverse=True), "an old frame after a new one"


class Crowd:
    """Many who subscribe, look at two images and leave, again and again.

    Attributes:
        visits: The widths that each saw.
    """

    def __init__(self, ros: Rig, topic: str, size: int):
        self.visits: list[list[int]] = []
        self._failures: list[Exception] = []
        self._ros = ros
        self._topic = topic
        self._left = threading.Event()
        self._threads = [threading.Thread(target=self._come_and_go) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def has_made(self, visits: int) -> bool:
        if self._failures:
            raise ExceptionGroup("subscribers failed", self._failures)
        return len(self.visits) >= visits

    def leave(self, sim, transport) -> None:
        self._left.set()
        step_until(sim, lambda: not any(thread.is_alive() for thread in self._threads), "all leave")
        plane = transport._cameras["top"].planes[0]
        step_until(sim, lambda: not plane.has_readers() and not plane.is_enabled, "it is noticed that all are gone")

    def _come_and_go(self) -> None:
        try:
            while not self._left.is_set():
                subscriber = self._ros.subscribe(self._topic)
                try:
                    self.visits.append([subscriber.next()[1] for _ in range(2)])
                finally:
                    subscriber.close()
        except Exception as error:
            self._failures.append(error)


def test_twenty_subscribers_that_come_and_go_during_reloads(model, ros):
    def camera(width: int) -> CameraCfg:
        return CameraCfg("top", width, 8, ("rgb",), options=OPTIONS)

    with open_context(model, num_envs=1, cameras=(camera(16),)) as sim:
        transport = sim.add_transport(ros.transport("/crowded"))
        first = Crowd(ros, "/crowded/top/image_raw", 1)
        step_until(sim, lambda: first.has_made(2), "the first is served")
        first.leave(sim, transport)
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        crowd = Crowd(ros, "/crowded/top/image_raw", 20)
        try:
            for width in (18, 20, 22, 24):
                visits = len(crowd.visits) + 20
                step_until(sim, lambda visits=visits: crowd.has_made(visits), "twenty are served")
                sim.reload(model, cameras=(camera(width),))
            step_until(sim, lambda: [24, 24] in crowd.visits and crowd.has_made(1), "the last model is seen")
        finally:
            crowd.leave(sim, transport)
        assert crowd.has_made(80)
        assert all(visit == sorted(visit) for visit in crowd.visits), "an old frame after a new one"
        assert {width for visit in crowd.visits for width in visit} == {16, 18, 20, 22, 24}
        count = captures(sim)
        sim.step()
        assert captures(sim) == count
        assert set(sim.render_core.stats()["turn_outcomes"]) == {"OK"}
        assert transport.status.ok
        wait_until(lambda: threading.active_count() <= threads, "their threads end")
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files, "their connections are closed")
