"""From the commit of a frame to the other side: latency and loss of every transport, and what a stalled reader changes.

Frames are 640x480 rgb8, made by a backend that only copies, so that the transports are what is measured. Stamps are the
monotonic clock, which processes of one machine share. Run it on a quiet machine:

    python benchmarks/transports.py            # all that is installed
    python benchmarks/transports.py ros2 python
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from scene_data.renderers import (
    CameraDescriptor,
    PlaneKind,
    RenderBackend,
    RenderCore,
    RenderStatus,
    RenderStatusCode,
)
from scene_data.renderers.render_core.camera_poses import CameraView
from scene_data.renderers.render_core.publication import CameraFrames, FrameTransport
from scene_data.renderers.transports import CameraPublicationTransport, SharedMemoryReader, SharedMemoryTransport

WIDTH, HEIGHT = 640, 480
RATES_HZ = (30, 200)
SECONDS = 4.0
SETTLE_S = 1.0
SLOTS = 12
TOPIC = "/bench/cam/image_raw"
DOMAIN = 187
SEGMENT = "scene-data-benchmark"
LOOPBACK = (
    "<General><Interfaces><NetworkInterface name='lo'/></Interfaces><AllowMulticast>false</AllowMulticast></General>"
    "<Discovery><ParticipantIndex>auto</ParticipantIndex><Peers><Peer address='localhost'/></Peers></Discovery>"
)
CAMERA = CameraDescriptor(1, "cam", WIDTH, HEIGHT, (PlaneKind.RGB,))
VIEW = CameraView(np.zeros((1, 3)), np.eye(3)[None], np.array([[580.0, 580.0, WIDTH / 2, HEIGHT / 2]]))


class CopyingBackend(RenderBackend):
    """Commits one picture again and again."""

    supported_planes = frozenset({PlaneKind.RGB})

    def __init__(self):
        self._picture = np.random.default_rng(0).integers(0, 255, (1, HEIGHT, WIDTH, 3), dtype=np.uint8)

    def initialize(self, scene, configuration) -> RenderStatus:
        return RenderStatus(RenderStatusCode.OK)

    def resize(self, configuration) -> RenderStatus:
        return RenderStatus(RenderStatusCode.OK)

    def render(self, snapshot, plans, boundary) -> RenderStatus:
        for plan in plans:
            stamp = boundary.begin_capture(1, snapshot.simulation_time_ns, plan.camera_id)
            layout = CAMERA.layout(PlaneKind.RGB)
            with boundary.try_acquire_writer(plan.frame_generation, PlaneKind.RGB, layout, stamp) as writer:
                if not writer.status.ok:
                    return RenderStatus(RenderStatusCode.FRAME_SLOTS_EXHAUSTED, writer.status.message)
                writer.buffer.numpy()[:] = self._picture
                writer.commit()
        return RenderStatus(RenderStatusCode.OK)

    def shutdown_on_render_thread(self) -> None:
        pass


@dataclass
class Moment:
    """A snapshot of nothing."""

    simulation_time_ns: int = 0
    model_generation: int = 1
    valid: bool = True

    def release(self) -> None:
        pass


@dataclass
class Outcome:
    """Latencies of what arrived [ms], what was sent, and how long the sending thread was held [ms]."""

    latencies: np.ndarray
    sent: int
    held: np.ndarray

    def row(self, name: str, rate_hz: int) -> str:
        p50, p95 = np.percentile(self.latencies, (50, 95)) if len(self.latencies) else (np.nan, np.nan)
        loss = 100.0 * (1.0 - len(self.latencies) / max(1, self.sent))
        held = np.percentile(self.held, 95) if len(self.held) else np.nan
        arrival = f"p50 {p50:7.2f} ms   p95 {p95:7.2f} ms   loss {loss:5.1f} %"
        return f"{name:20} {rate_hz:4} Hz   {arrival}   hand-over p95 {held:5.2f} ms"


def publish(transport: FrameTransport, core: RenderCore, rate_hz: int, seconds: float) -> tuple[list[int], list[float]]:
    """Render and hand over at a rate; the stamps, and how long each hand-over took [ms]."""
    stamps, held = [], []
    start = time.monotonic()
    for tick in range(round(rate_hz * seconds)):
        time.sleep(max(0.0, start + tick / rate_hz - time.monotonic()))
        now = time.monotonic_ns()
        transport.look(now)
        plan = core.evaluate_demand(now, CAMERA.id)
        if not plan.consumers or not core.submit_snapshot(Moment(now), plan).ok:
            continue
        core.finish_or_cancel_render_turn()
        lease = core.acquire_latest(CAMERA.id, PlaneKind.RGB)
        if lease is None:
            continue
        begun = time.perf_counter()
        stamp = lease.stamp
        frames = CameraFrames(
            CAMERA, {PlaneKind.RGB: lease}, plan.consumers, stamp.capture_id, stamp.simulation_time_ns, None, VIEW
        )
        del lease
        for consumer in transport.deliver(frames):
            core.mark_delivered(plan, consumer)
        del frames
        held.append((time.perf_counter() - begun) * 1e3)
        stamps.append(stamp.simulation_time_ns)
    return stamps, held


class Listening:
    """A process of this very file that listens and prints a stamp and a latency per frame."""

    def __init__(self, wire: str, environment: dict[str, str]):
        command = [sys.executable, __file__, "--listen", wire]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self.latencies: dict[int, float] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            if len(words) == 2 and words[0].isdigit():
                self.latencies[int(words[0])] = float(words[1])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()


def listen(wire: str) -> None:
    """Be the other side."""

    def tell(stamp_ns: int) -> None:
        print(stamp_ns, (time.monotonic_ns() - stamp_ns) / 1e6, flush=True)

    if wire == "ros1":
        import rospy
        from sensor_msgs.msg import Image

        rospy.init_node("bench", anonymous=True, disable_signals=True)
        rospy.Subscriber(
            TOPIC, Image, lambda image: tell(image.header.stamp.to_nsec()), buff_size=2**24, tcp_nodelay=True
        )
        rospy.spin()
    elif wire == "shm":
        _listen_shared_memory(tell)
    else:
        _listen_dds(tell)


def _listen_shared_memory(tell: Callable[[int], None]) -> None:
    reader, last = SharedMemoryReader(SEGMENT, timeout=10.0), 0
    while True:
        with reader.wait("cam", PlaneKind.RGB, last) as lease:
            tell(lease.stamp.simulation_time_ns)
            last = lease.sequence


def _listen_dds(tell: Callable[[int], None]) -> None:
    from cyclonedds.core import ReadCondition, SampleState, WaitSet
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.qos import Policy, Qos
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic
    from cyclonedds.util import duration

    from scene_data.renderers.transports.ros2_cyclonedds import DDS_TYPES, dds_topic
    from scene_data.renderers.transports.topics import MessageType

    image = DDS_TYPES[MessageType.IMAGE]
    # The stamp alone: the library takes a sequence of bytes apart one by one.
    image.deserialize = classmethod(
        lambda cls, data, *_, **__: _Stamped(
            int.from_bytes(data[4:8], "little") * 10**9 + int.from_bytes(data[8:12], "little")
        )
    )
    image.deserialize_key = classmethod(lambda cls, data, *_, **__: None)
    participant = DomainParticipant(DOMAIN)
    reliable = Policy.Reliability.Reliable(duration(milliseconds=100))
    representation = Policy.DataRepresentation(use_cdrv0_representation=True)
    qos = Qos(reliable, Policy.History.KeepLast(10), representation)
    reader = DataReader(participant, Topic(participant, dds_topic(TOPIC), image), qos)
    waiting = WaitSet(participant)
    waiting.attach(ReadCondition(reader, SampleState.NotRead))
    while True:
        waiting.wait(duration(milliseconds=100))
        for sample in reader.take(10):
            if isinstance(sample, _Stamped):
                tell(sample.stamp_ns)


@dataclass
class _Stamped:
    stamp_ns: int
    sample_info: Any = None


@contextmanager
def ros_master() -> Iterator[dict[str, str]]:
    """A master on a free port, and the environment that names it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(ROS_MASTER_URI=f"http://127.0.0.1:{port}", ROS_IP="127.0.0.1")
    command = [sys.executable, "-c", "import rosmaster; rosmaster.rosmaster_main()", "--core", "-p", str(port)]
    process = subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2.0)
        yield dict(os.environ)
    finally:
        process.kill()
        process.wait()


def new_core() -> RenderCore:
    nbytes = CAMERA.layout(PlaneKind.RGB).byte_length
    core = RenderCore(CopyingBackend(), max_slots=SLOTS, max_bytes=SLOTS * nbytes)
    assert core.reconfigure(1, 1, (CAMERA,), warm_slots=SLOTS).ok
    return core


def over_wire(wire: str, transport: Any, core: RenderCore, environment: dict[str, str], stalled: int) -> None:
    """Measure one wire, with so many readers that were stopped."""
    transport.start(core, {CAMERA.name: CAMERA})
    listeners = [Listening(wire, environment) for _ in range(1 + stalled)]
    try:
        while not all(listener.latencies for listener in listeners):
            publish(transport, core, 20, 0.2)
        for listener in listeners[1:]:
            listener.process.send_signal(signal.SIGSTOP)
        for rate_hz in RATES_HZ:
            publish(transport, core, rate_hz, SETTLE_S)
            stamps, held = publish(transport, core, rate_hz, SECONDS)
            time.sleep(0.5)
            arrived = [listeners[0].latencies[stamp] for stamp in stamps if stamp in listeners[0].latencies]
            name = f"{wire}, {stalled} stalled" if stalled else wire
            print(Outcome(np.array(arrived), len(stamps), np.array(held)).row(name, rate_hz), flush=True)
    finally:
        for listener in listeners:
            listener.close()
        transport.close()


def run_ros1() -> None:
    from scene_data.renderers.transports import Ros1Transport

    with ros_master() as environment:
        for stalled in (0, 1):
            with new_core() as core:
                over_wire("ros1", Ros1Transport("/bench"), core, environment, stalled)


def run_ros2() -> None:
    from scene_data.renderers.transports import Ros2Transport

    os.environ.update(CYCLONEDDS_URI=LOOPBACK, ROS_DOMAIN_ID=str(DOMAIN))
    for stalled in (0, 1):
        with new_core() as core:
            over_wire("ros2", Ros2Transport("/bench"), core, dict(os.environ), stalled)


def run_shared_memory() -> None:
    for stalled in (0, 1):
        with new_core() as core:
            over_wire("shm", SharedMemoryTransport(SEGMENT), core, dict(os.environ), stalled)


def run_python() -> None:
    for stalled in (0, 1):
        for rate_hz in RATES_HZ:
            with ExitStack() as stack:
                core = stack.enter_context(new_core())
                transport = CameraPublicationTransport()
                transport.start(core, {CAMERA.name: CAMERA})
                stack.callback(transport.close)
                lazy = [transport.register("cam", 2) for _ in range(stalled)]
                consumer = transport.register("cam", 2)
                latencies: list[float] = []

                def read(consumer=consumer, latencies=latencies) -> None:
                    for frames in consumer:
                        latencies.append((time.monotonic_ns() - frames.simulation_time_ns) / 1e6)

                thread = threading.Thread(target=read)
                thread.start()
                stamps, held = publish(transport, core, rate_hz, SECONDS)
                time.sleep(0.1)
                transport.close()
                thread.join()
                name = f"python, {len(lazy)} stalled" if stalled else "python"
                print(Outcome(np.array(latencies), len(stamps), np.array(held)).row(name, rate_hz), flush=True)


def run_mcap() -> None:
    """The other side is the file: until a frame is in a chunk."""
    from scene_data.renderers.transports import McapTransport

    for rate_hz in RATES_HZ:
        with new_core() as core, tempfile.TemporaryDirectory() as folder:
            transport = McapTransport(Path(folder) / "run.mcap", "/bench")
            transport.start(core, {CAMERA.name: CAMERA})
            latencies: list[float] = []
            wire: Any = transport._wire
            add = wire.add

            def timed(channel, stamp_ns, sequence, message, add=add, latencies=latencies) -> None:
                add(channel, stamp_ns, sequence, message)
                if len(message) > WIDTH * HEIGHT:
                    latencies.append((time.monotonic_ns() - stamp_ns) / 1e6)

            wire.add = timed
            stamps, held = publish(transport, core, rate_hz, SECONDS)
            transport.flush(5.0)
            transport.close()
            print(Outcome(np.array(latencies), len(stamps), np.array(held)).row("mcap", rate_hz), flush=True)


RUNS: dict[str, tuple[str, Callable[[], None]]] = {
    "python": ("numpy", run_python),
    "shm": ("mmap", run_shared_memory),
    "ros1": ("rospy", run_ros1),
    "ros2": ("cyclonedds", run_ros2),
    "mcap": ("mcap", run_mcap),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transports", nargs="*", metavar="|".join(RUNS), help="default: all that is installed")
    parser.add_argument("--listen", choices=("ros1", "ros2", "shm"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.listen:
        listen(arguments.listen)
        return
    if unknown := set(arguments.transports) - set(RUNS):
        parser.error(f"unknown transports: {', '.join(sorted(unknown))}")
    for name in arguments.transports or RUNS:
        library, run = RUNS[name]
        if find_spec(library) is None:
            print(f"{name}: skipped, {library} is not installed")
        else:
            run()


if __name__ == "__main__":
    main()
