"""From the commit of a frame to the other side: latency and loss of every transport, and what a stalled reader changes.

Frames are 640x480 rgb8, made by a render backend that only copies, so that the transports are what is measured. Each
round takes three windows: without, with and again without a reader that is stopped (SIGSTOP) in the middle of reading.
What it changes is the ratio of the second to the mean of its neighbours; the noise is the ratio of the third to the
first. Of a file the other side is a process that follows it: a frame is there with the chunk that it is in, which the
next frame completes. Run it on a quiet machine:

    python benchmarks/transports.py                        # all that is installed
    python benchmarks/transports.py ros2 python --rounds 3
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
from typing import Any, Protocol

import mujoco
import numpy as np

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.registry import renderers
from scene_data.renderers import CameraCfg, PlaneKind, PlaneLayout, RenderBackend, RenderStatus, RenderStatusCode
from scene_data.renderers.transports import CameraPublicationTransport, SharedMemoryTransport, StreamTransport

WIDTH, HEIGHT = 640, 480
RATES_HZ = (30, 200)
FLOOD = 60  # frames that fill what the system holds for a reader that takes none
ARRIVE_S = 0.3
WAIT_S = 20.0
DOMAIN = 187
TOPIC = "/bench/cam/image_raw"
READER = Path(__file__).parent / "readers" / "transport_reader.py"
XML = """<mujoco><option timestep="0.005"/><worldbody>
<geom type="sphere" size="0.1"/><camera name="cam" pos="0 0 1"/>
</worldbody></mujoco>"""
LOOPBACK = """<CycloneDDS><Domain id="any">
<General><Interfaces><NetworkInterface name="lo"/></Interfaces><AllowMulticast>false</AllowMulticast>
<MaxMessageSize>65500B</MaxMessageSize><FragmentSize>65000B</FragmentSize></General>
<Discovery><ParticipantIndex>auto</ParticipantIndex><Peers><Peer address="localhost"/></Peers>
<LeaseDuration>60 s</LeaseDuration></Discovery>
</Domain></CycloneDDS>"""  # so long that a reader that is stopped stays one


class CopyingBackend(RenderBackend):
    """Commits one picture again and again."""

    supported_planes = frozenset({PlaneKind.RGB})
    committed: dict[int, int] = {}  # noqa: RUF012  (when each frame was there [ns], by its stamp)

    def __init__(self):
        rows, columns = np.mgrid[:HEIGHT, :WIDTH]
        self._picture = np.stack((rows // 2, columns // 3, 200 * ((rows // 40 + columns // 40) % 2)), axis=2)

    def initialize(self, scene: Any, configuration: Any) -> RenderStatus:
        return RenderStatus(RenderStatusCode.OK)

    def resize(self, configuration: Any) -> RenderStatus:
        return RenderStatus(RenderStatusCode.OK)

    def render(self, snapshot: Any, plans: Any, boundary: Any) -> RenderStatus:
        layout = PlaneLayout.rgb8(WIDTH, HEIGHT)
        for plan in plans:
            stamp = boundary.begin_capture(snapshot.model_generation, snapshot.simulation_time_ns, plan.camera_id)
            with boundary.try_acquire_writer(plan.frame_generation, PlaneKind.RGB, layout, stamp) as writer:
                if not writer.status.ok:
                    return RenderStatus(RenderStatusCode.FRAME_SLOTS_EXHAUSTED, writer.status.message)
                writer.buffer.numpy()[:] = self._picture
                if writer.commit().ok:
                    self.committed[snapshot.simulation_time_ns] = time.monotonic_ns()
        return RenderStatus(RenderStatusCode.OK)

    def shutdown_on_render_thread(self) -> None:
        pass


class Reader(Protocol):
    """One who reads: when each frame was there [ns], by its stamp."""

    arrivals: dict[int, int]

    def stall(self) -> None: ...

    def close(self) -> None: ...


class ReaderProcess:
    """Reads in a process of its own."""

    def __init__(self, wire: str, address: str):
        command = [sys.executable, str(READER), wire, address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.arrivals: dict[int, int] = {}
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            stamp, _, arrival = line.partition(" ")
            if stamp.isdigit() and arrival.strip().isdigit():  # Warp says what it loads, too
                self.arrivals[int(stamp)] = int(arrival)

    def stall(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ReaderThread:
    """Reads in this process."""

    def __init__(self, transport: CameraPublicationTransport):
        self.arrivals: dict[int, int] = {}
        self._consumer = transport.register("cam", history=2)
        self._stalled = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for frames in self._consumer:
            self.arrivals[frames.simulation_time_ns] = time.monotonic_ns()
            if self._stalled.is_set():
                return

    def stall(self) -> None:
        self._stalled.set()

    def close(self) -> None:
        self._consumer.close()
        self._thread.join()


@dataclass(frozen=True)
class Way:
    """A transport that is open, and how to read from it.

    Attributes:
        read: A new reader.
        can_stall: Whether a reader that is stopped can matter: nobody waits for who reads a file.
    """

    transport: Any
    read: Callable[[], Reader]
    can_stall: bool = True


@dataclass(frozen=True)
class Window:
    """What one look at a transport saw.

    Attributes:
        latencies: Of the frames that arrived [ms].
        committed: How many frames there were.
        steps: Duration of each `step()` [ms].
    """

    latencies: np.ndarray
    committed: int
    steps: np.ndarray

    def figures(self) -> np.ndarray:
        """p50 and p95 of the latency, and p50 and p95 of `step()` [ms]."""
        arrived = self.latencies if len(self.latencies) else np.array([np.nan])
        return np.concatenate((np.percentile(arrived, (50, 95)), np.percentile(self.steps, (50, 95))))


def drive(sim: SimulationContext, rate_hz: float, count: int) -> tuple[list[int], np.ndarray]:
    """Step at a rate of real time: the stamps, and how long each step took [ms]."""
    stamps, durations = [], np.empty(count)
    start = time.monotonic()
    for tick in range(count):
        time.sleep(max(0.0, start + tick / rate_hz - time.monotonic()))
        begun = time.perf_counter()
        sim.step()
        durations[tick] = 1e3 * (time.perf_counter() - begun)
        stamps.append(sim.simulation_time_ns)
    return stamps, durations


def look(sim: SimulationContext, reader: Reader, rate_hz: int, seconds: float) -> Window:
    stamps, steps = drive(sim, rate_hz, round(rate_hz * seconds))
    time.sleep(ARRIVE_S)
    drive(sim, rate_hz, 2)  # the next frame completes the chunk of the last
    time.sleep(ARRIVE_S)
    committed = [stamp for stamp in stamps if stamp in CopyingBackend.committed]
    arrived = [stamp for stamp in committed if stamp in reader.arrivals]
    latencies = [1e-6 * (reader.arrivals[stamp] - CopyingBackend.committed[stamp]) for stamp in arrived]
    return Window(np.array(latencies), len(committed), steps)


@contextmanager
def reading(sim: SimulationContext, way: Way) -> Iterator[Reader]:
    """A reader that has its first frame."""
    reader = way.read()
    try:
        deadline = time.monotonic() + WAIT_S
        while not reader.arrivals:
            drive(sim, 20, 4)
            assert time.monotonic() < deadline, "no frame arrives"
        yield reader
    finally:
        reader.close()


@contextmanager
def one_stalled(sim: SimulationContext, way: Way) -> Iterator[None]:
    with reading(sim, way) as reader:
        reader.stall()
        drive(sim, max(RATES_HZ), FLOOD)
        yield


def measure(name: str, sim: SimulationContext, way: Way, rounds: int, seconds: float) -> None:
    """Print the figures of one transport at each rate."""
    with reading(sim, way) as reader:
        for rate_hz in RATES_HZ:
            trios = [trio(sim, way, reader, rate_hz, seconds) for _ in range(rounds)]
            print(row(name, rate_hz, [window for first, _, last in trios for window in (first, last)]), flush=True)
            if way.can_stall:
                print(row("  beside a stalled one", rate_hz, [window for _, window, _ in trios]))
                print(changes(trios), flush=True)


def trio(sim: SimulationContext, way: Way, reader: Reader, rate_hz: int, seconds: float) -> tuple[Window, ...]:
    """Windows without, with, and again without a stalled reader."""

    def window() -> Window:
        drive(sim, rate_hz, rate_hz // 4)
        return look(sim, reader, rate_hz, seconds)

    first = window()
    if not way.can_stall:
        return first, first, window()
    with one_stalled(sim, way):
        beside = window()
    return first, beside, window()


def row(name: str, rate_hz: int, windows: list[Window]) -> str:
    p50, p95, step50, step95 = np.median([window.figures() for window in windows], axis=0)
    committed, arrived = (
        sum(counts) for counts in zip(*((w.committed, len(w.latencies)) for w in windows), strict=True)
    )
    loss = 100.0 * (1.0 - arrived / max(1, committed))
    arrival = f"p50 {p50:6.2f} ms   p95 {p95:6.2f} ms   loss {loss:4.1f} % of {committed:5}"
    return f"{name:22} {rate_hz:4} Hz   {arrival}   step() p50 {step50:5.2f} ms   p95 {step95:5.2f} ms"


def changes(trios: list[tuple[Window, ...]]) -> str:
    """What the stalled reader changes, and what nothing changes."""
    first, beside, last = np.moveaxis(np.array([[window.figures() for window in windows] for windows in trios]), 1, 0)
    ratios, noise = 2.0 * beside / (first + last), last / first
    parts = [
        f"{name} x{np.median(ratios[:, i]):.2f} (noise x{noise[:, i].min():.2f} to x{noise[:, i].max():.2f})"
        for i, name in enumerate(("p50", "p95", "step() p50", "step() p95"))
    ]
    return f"    {', '.join(parts)}"


@contextmanager
def ros_master() -> Iterator[None]:
    """A master on a free port, which this process and its children find."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(ROS_MASTER_URI=f"http://127.0.0.1:{port}", ROS_IP="127.0.0.1")
    command = [sys.executable, "-c", "import rosmaster; rosmaster.rosmaster_main()", "--core", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2.0)
        yield
    finally:
        process.kill()
        process.wait()


def open_python(stack: ExitStack) -> Way:
    transport = CameraPublicationTransport()
    return Way(transport, lambda: ReaderThread(transport))


def open_shared_memory(stack: ExitStack) -> Way:
    name = f"scene-data-benchmark-{os.getpid()}"
    return Way(SharedMemoryTransport(name, slots=8), lambda: ReaderProcess("shm", name))


def open_ros1(stack: ExitStack) -> Way:
    from scene_data.renderers.transports import Ros1Transport

    stack.enter_context(ros_master())
    return Way(Ros1Transport("/bench"), lambda: ReaderProcess("ros1", TOPIC))


def open_ros2(stack: ExitStack) -> Way:
    from scene_data.renderers.transports import Ros2Transport

    os.environ.update(CYCLONEDDS_URI=LOOPBACK)
    return Way(Ros2Transport("/bench", domain_id=DOMAIN), lambda: ReaderProcess("ros2", f"{DOMAIN}:{TOPIC}"))


def open_mcap(stack: ExitStack) -> Way:
    from scene_data.renderers.transports import McapTransport

    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "run.mcap"
    return Way(McapTransport(path, "/bench"), lambda: ReaderProcess("mcap", str(path)), can_stall=False)


def open_stream(stack: ExitStack) -> Way:
    transport = StreamTransport(0, rate_hz=None)
    return Way(transport, lambda: ReaderProcess("stream", transport.url))


WAYS: dict[str, tuple[str, Callable[[ExitStack], Way]]] = {
    "python": ("numpy", open_python),
    "shm": ("mmap", open_shared_memory),
    "ros1": ("rospy", open_ros1),
    "ros2": ("cyclonedds", open_ros2),
    "mcap": ("mcap", open_mcap),
    "stream": ("PIL", open_stream),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transports", nargs="*", metavar="|".join(WAYS), help="default: all that is installed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each window")
    arguments = parser.parse_args()
    if unknown := set(arguments.transports) - set(WAYS):
        parser.error(f"unknown transports: {', '.join(sorted(unknown))}")
    renderers.register("copying", CopyingBackend)
    physics = MujocoPhysicsCfg(mujoco.MjModel.from_xml_string(XML), "mujoco", 1)
    camera = CameraCfg("cam", WIDTH, HEIGHT, ("rgb",))
    for name in arguments.transports or WAYS:
        library, open_way = WAYS[name]
        if find_spec(library) is None:
            print(f"{name}: skipped, {library} is not installed")
            continue
        cfg = SimulationCfg(physics, cameras=(camera,), render_backend="copying", held_frames=8)
        with ExitStack() as stack, SimulationContext(cfg) as sim:
            way = open_way(stack)
            sim.add_transport(way.transport)
            measure(name, sim, way, arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
