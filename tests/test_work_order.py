"""The order of GPU work, with streams and events that only take notes: what waits for what, without a GPU."""

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import warp as wp

from scene_data import SceneDataBackend, SceneDataFormat, SceneDataProvider, streams
from scene_data.renderers import FrameBoundary, PlaneKind, PlaneLayout
from scene_data.renderers.render_core import frames as frames_module
from scene_data.streams import STREAM_LOCK, CudaWorkOrder, WorkOrder, work_order_of

RGB = PlaneKind.RGB
LAYOUT = PlaneLayout.rgb8(4, 2)


class Event:
    """Stands for the length of a stream at the time when it was recorded."""

    def __init__(self, device=None):
        self.stands_for: tuple[str, int] | None = None


class Stream:
    """A list of what was enqueued."""

    def __init__(self, name: str, handle: int):
        self.name, self.cuda_stream = name, handle
        self.work: list[object] = []

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.stands_for = self.name, len(self.work)
        return event

    def wait_event(self, event: Event) -> None:
        self.work.append(("wait", event.stands_for))


class Gpu:
    """What `CudaWorkOrder` uses of Warp: a current stream that belongs to the device, whatever the thread."""

    def __init__(self, monkeypatch):
        self.current = Stream("default", 1)
        self.render = Stream("render", 2)
        self.torch = Stream("torch", 3)
        self.others = {3: self.torch}
        self.locked: list[bool] = []
        monkeypatch.setattr(wp, "Stream", self.stream)
        monkeypatch.setattr(wp, "Event", Event)
        monkeypatch.setattr(wp, "get_stream", lambda device: self.look())
        monkeypatch.setattr(wp, "ScopedStream", self.scoped)
        monkeypatch.setattr(wp, "stream_from_torch", lambda _: self.torch)
        monkeypatch.setattr(wp, "device_to_torch", lambda _: "cuda:0")

    def stream(self, device, cuda_stream=None):
        return self.render if cuda_stream is None else self.others[cuda_stream]

    def look(self) -> Stream:
        self.locked.append(STREAM_LOCK._is_owned())
        return self.current

    @contextmanager
    def scoped(self, stream, sync_enter):
        assert not sync_enter
        self.locked.append(STREAM_LOCK._is_owned())
        before, self.current = self.current, stream
        yield
        self.current = before


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu(monkeypatch)
    monkeypatch.setattr(CudaWorkOrder, "_as_warp_stream", lambda _, stream: stream)
    return gpu


@pytest.fixture
def boundary(gpu, monkeypatch):
    """A store whose bytes lie on the CPU, and whose order is that of a GPU."""
    monkeypatch.setattr(frames_module, "work_order_of", CudaWorkOrder)
    boundary = FrameBoundary(1, LAYOUT.byte_length)
    assert boundary.reconfigure(1, LAYOUT.byte_length).ok
    return boundary


def render(boundary: FrameBoundary) -> None:
    """What the render thread does in a turn."""
    with boundary.work_order.rendering(), boundary.try_acquire_writer(1, RGB, LAYOUT) as writer:
        assert writer.status.ok
        wp.get_stream(boundary.device).work.append("draw")
        assert writer.commit().ok


def test_a_reader_comes_after_the_frame_is_complete(gpu, boundary):
    render(boundary)
    assert gpu.render.work == ["draw"]
    lease = boundary.acquire_latest(RGB)
    lease.warp()
    assert gpu.current.work == [("wait", ("render", 1))]
    reader = Stream("reader", 7)
    lease.warp(reader)
    assert reader.work == [("wait", ("render", 1))]
    lease.torch()
    assert gpu.torch.work == [("wait", ("render", 1))]


@pytest.mark.parametrize("end", ["released", "released on a stream", "dropped"])
def test_a_slot_is_written_anew_only_after_its_readers(gpu, boundary, end):
    render(boundary)
    reader = Stream("reader", 7)
    lease = boundary.acquire_latest(RGB)
    array = lease.warp(reader)
    reader.work.append("read")
    if end == "released on a stream":
        reader.work.append("read more")
        lease.release(reader)
    elif end == "released":
        lease.release()
    del array, lease
    render(boundary)
    waits, draw = gpu.render.work[1:-1], gpu.render.work[-1]
    assert draw == "draw"
    assert ("wait", ("reader", len(reader.work))) in waits
    if end == "released":
        assert ("wait", ("default", 0)) in waits


def test_readers_on_streams_of_their_own_are_all_waited_for(gpu, boundary):
    render(boundary)
    readers = [Stream(f"reader {index}", 10 + index) for index in range(3)]
    arrays = [boundary.acquire_latest(RGB).warp(reader) for reader in readers]
    for reader in readers:
        reader.work.append("read")
    del arrays
    render(boundary)
    waits = {entry[1][0] for entry in gpu.render.work if entry != "draw"}
    assert waits == {reader.name for reader in readers}


def test_nobody_looks_at_the_current_stream_without_the_lock(gpu, boundary):
    render(boundary)
    lease = boundary.acquire_latest(RGB)
    lease.warp()
    lease.torch()
    lease.release()
    render(boundary)
    assert all(gpu.locked)


def test_the_render_stream_is_current_inside_a_turn_alone(gpu, boundary):
    default = gpu.current
    with boundary.work_order.rendering():
        assert gpu.current is gpu.render
        taken = threading.Event()
        other = threading.Thread(target=lambda: (STREAM_LOCK.acquire(), taken.set(), STREAM_LOCK.release()))
        other.start()
        assert not taken.wait(0.05)
    other.join(5.0)
    assert taken.is_set()
    assert gpu.current is default


def test_on_the_cpu_the_same_calls_do_nothing():
    order = work_order_of(wp.get_device("cpu"))
    assert type(order) is WorkOrder
    with order.rendering(), order.enqueueing():
        order.complete(order.new_event())
        order.wait(order.record(order.current_reader_streams()))
    assert order.follow(None) is None


# -- what enqueues outside of a render core


class Lock:
    """Counts how deep it is held."""

    def __init__(self):
        self.depth = 0

    def __enter__(self):
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1


@pytest.fixture
def lock(monkeypatch):
    lock = Lock()
    monkeypatch.setattr(streams, "STREAM_LOCK", lock)
    monkeypatch.setattr(wp, "is_cuda_available", lambda: True)
    return lock


def test_conversions_and_reconciliations_of_the_provider_hold_the_lock(lock, monkeypatch):
    depths: list[int] = []

    class Backend(SceneDataBackend):
        transform_count = 2
        transforms_timestamp = 1

        @property
        def transforms(self):
            depths.append(lock.depth)
            source = SceneDataFormat.Transform()
            source.transforms = wp.zeros(2, dtype=wp.transformf, device="cpu")
            return source

    launch = wp.launch
    monkeypatch.setattr(wp, "launch", lambda *args, **options: depths.append(lock.depth) or launch(*args, **options))
    provider = SceneDataProvider(Backend())
    depths.clear()
    output = SceneDataFormat.Vec3_Quat()
    assert provider.get_transforms(output)
    assert len(depths) >= 2
    assert all(depth > 0 for depth in depths)
    with provider.consistent_read():
        assert lock.depth == 0  # held while the engine reconciles, and not by who reads
    np.testing.assert_array_equal(output.positions.numpy(), np.zeros((2, 3)))


def test_steps_of_a_simulation_hold_the_lock(lock):
    mujoco = pytest.importorskip("mujoco")
    from test_simulation import XML, open_context

    with open_context(mujoco.MjModel.from_xml_string(XML), cameras=()) as sim:
        depths = []
        physics = sim.physics
        sim.physics = SimpleNamespace(
            step=lambda: depths.append(lock.depth),
            reset=lambda *_: depths.append(lock.depth),
            backend=physics.backend,
            timestep=0.01,
            close=physics.close,
        )
        sim.step()
        sim.reset()
        assert depths == [1, 1]
