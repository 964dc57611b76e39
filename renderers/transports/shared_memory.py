"""Frames for other processes of this machine, which read them without a copy."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from operator import index

import numpy as np
import warp as wp

from ..render_core import CameraDescriptor, PlaneKind, RenderCore
from ..render_core.publication import CameraFrames, FrameTransport
from .queue import PublicationWorker
from .shared_segment import SegmentState, SharedSegment, SharedStream, checked_segment_name
from .status import CameraCounts, TransportStatus, TransportStatusCode

__all__ = ["SharedMemoryTransport"]

_CLOSE_TIMEOUT_S = 5.0
_MIN_SLOTS = 2  # the latest, and the next one
_OK = TransportStatus(TransportStatusCode.OK)


@dataclass(eq=False)
class _Plane:
    """One plane of a camera, and who wants it.

    Attributes:
        kind: Which plane.
        stream: Its number in the segment.
        consumer: Its consumer in the render core.
        is_enabled: Whether that consumer has demand.
    """

    kind: PlaneKind
    stream: int
    consumer: int
    is_enabled: bool = False


@dataclass(frozen=True, eq=False)
class _Item:
    """Frames to copy, where to, and the planes that were due."""

    frames: CameraFrames
    segment: SharedSegment
    planes: list[_Plane]


@dataclass(eq=False)
class _SharedCamera:
    """A camera, the worker that copies its frames, and how many found no slot."""

    name: str
    planes: list[_Plane] = field(default_factory=list)
    worker: PublicationWorker[_Item] = field(init=False)
    exhausted: int = 0
    status: TransportStatus = _OK

    def __post_init__(self):
        self.worker = PublicationWorker(f"share {self.name}", self._publish)

    def counts(self) -> CameraCounts:
        return CameraCounts(self.worker.published - self.exhausted, self.worker.queue.dropped + self.exhausted)

    def _publish(self, item: _Item) -> None:
        leases = item.frames.leases
        full = [
            plane.kind.value
            for plane in item.planes
            if not item.segment.write(plane.stream, leases[plane.kind].numpy(), leases[plane.kind].stamp)
        ]
        item.frames.release()
        if full:
            self.exhausted += 1
            message = f"Readers hold all slots of camera {self.name!r}: {', '.join(full)}."
            self.status = TransportStatus(TransportStatusCode.SLOTS_EXHAUSTED, message)
        else:
            self.status = _OK


class SharedMemoryTransport(FrameTransport):
    """Puts the frames of all environments into shared memory, for each `SharedMemoryReader` of this name.

    A plane is rendered while a reader attends to it, and copied once, by a thread of the camera's, into a slot that no
    reader holds. Where readers hold all slots the frame is dropped: `counts()` counts it, and `status` is
    SLOTS_EXHAUSTED until one finds a slot again. A reader that dies gives its slots back at once. All memory is
    reserved when the cameras are known, in /dev/shm; only this user can read it.

    Args:
        name: Under which readers find it: letters, digits, `.`, `_` and `-`.
        slots: Frames of each plane that there is room for, at least 2: the latest and the next one; the rest is what
            readers can hold beside the latest.
        interval_ns: Simulation time between frames [ns]; None is every look at who is due.

    Raises:
        ValueError: A name that cannot be, fewer than 2 slots, or an interval below 1.
    """

    def __init__(self, name: str, *, slots: int = 6, interval_ns: int | None = None):
        if index(slots) < _MIN_SLOTS:
            raise ValueError(f"slots must be at least {_MIN_SLOTS}, got {slots}")
        if interval_ns is not None and interval_ns < 1:
            raise ValueError(f"interval_ns must be at least 1, got {interval_ns}")
        self.name = checked_segment_name(name)
        self.slots = index(slots)
        self._interval_ns = interval_ns
        self._core: RenderCore | None = None
        self._segment: SharedSegment | None = None
        self._cameras: dict[str, _SharedCamera] = {}
        self._by_id: dict[int, _SharedCamera] = {}
        self._is_closed = False

    # -- what a user asks

    @property
    def status(self) -> TransportStatus:
        """How it is doing."""
        if self._is_closed:
            return TransportStatus(TransportStatusCode.STOPPED)
        found = (camera.status for camera in self._cameras.values() if not camera.status.ok)
        return next(found, _OK)

    def counts(self) -> dict[str, CameraCounts]:
        """What became of the captures, by camera; one that lacks a plane counts as dropped."""
        return {name: camera.counts() for name, camera in self._cameras.items()}

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that was handed over is shared; False when `timeout` [s], of each camera, was not enough."""
        return all(camera.worker.flush(timeout) for camera in self._cameras.values())

    # -- what a pipeline calls

    def start(self, core: RenderCore, cameras: Mapping[str, CameraDescriptor]) -> None:
        """Reserve memory for these cameras, in place of that for those before.

        Raises:
            TransportError: Another producer publishes under this name.
            OSError: There is not enough shared memory.
        """
        for name in set(self._cameras) - set(cameras):
            self._cameras.pop(name).worker.close(drain=False, timeout=_CLOSE_TIMEOUT_S)
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        wanted = [(camera, plane) for camera in cameras.values() for plane in camera.planes]
        self._segment = SharedSegment.create(self.name, (self._stream(camera, plane) for camera, plane in wanted))
        self._core = core
        self._by_id = {camera.id: self._camera(name) for name, camera in cameras.items()}
        for stream, (camera, plane) in enumerate(wanted):
            consumer = self._register(core, camera, plane)
            core.set_consumer_enabled(consumer, False)
            self._by_id[camera.id].planes.append(_Plane(plane, stream, consumer))

    def look(self, simulation_time_ns: int) -> None:
        """Let demand follow the readers."""
        core, segment = self._core, self._segment
        if core is None or segment is None:
            return
        for camera in self._by_id.values():
            for plane in camera.planes:
                if segment.has_readers(plane.stream) != plane.is_enabled:
                    plane.is_enabled = not plane.is_enabled
                    core.set_consumer_enabled(plane.consumer, plane.is_enabled)

    def deliver(self, frames: CameraFrames) -> Collection[int]:
        """Queue a camera's frames for the planes that were due."""
        camera, segment = self._by_id.get(frames.camera.id), self._segment
        if camera is None or segment is None:
            return ()
        due = [plane for plane in camera.planes if plane.consumer in frames.consumers and plane.kind in frames.leases]
        if not due or not camera.worker.queue.put(_Item(frames, segment, due)):
            return ()
        return [plane.consumer for plane in due]

    def stop(self) -> None:
        """Unregister, and refuse the frames of these cameras from now on; readers keep what they hold."""
        if self._segment is not None:
            self._segment.retire(SegmentState.STALE)
        for camera in self._by_id.values():
            with camera.worker.queue.superseding():
                self._unregister(camera)
            camera.worker.flush(_CLOSE_TIMEOUT_S)  # a copy under way, which waits for nobody
        self._core, self._by_id = None, {}

    def close(self) -> None:
        """Unregister, copy what waits, and take the name away. Readers keep what they hold."""
        if self._is_closed:
            return
        self._is_closed = True
        for camera in self._by_id.values():
            self._unregister(camera)
        self._core, self._by_id = None, {}
        for camera in self._cameras.values():
            camera.worker.close(timeout=_CLOSE_TIMEOUT_S)
        if self._segment is not None:
            self._segment.retire(SegmentState.CLOSED)
            self._segment.close()
            self._segment = None

    # -- inside

    def _stream(self, camera: CameraDescriptor, plane: PlaneKind) -> SharedStream:
        layout = camera.layout(plane)
        dtype = np.dtype(wp.dtype_to_numpy(layout.dtype)).str
        return SharedStream(camera.name, plane.value, layout.shape, dtype, self.slots)

    def _camera(self, name: str) -> _SharedCamera:
        if name not in self._cameras:
            self._cameras[name] = _SharedCamera(name)
        return self._cameras[name]

    def _register(self, core: RenderCore, camera: CameraDescriptor, plane: PlaneKind) -> int:
        name = f"{self.name}/{camera.name}"
        if self._interval_ns is None:
            return core.register_continuous_consumer(name, camera.id, (plane,))
        return core.register_cadenced_consumer(name, self._interval_ns, camera.id, (plane,))

    def _unregister(self, camera: _SharedCamera) -> None:
        planes, camera.planes = camera.planes, []
        for plane in planes:
            if self._core is not None:
                self._core.unregister_consumer(plane.consumer)
