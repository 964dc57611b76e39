"""Frames of another process, read where it put them."""

import threading
import time
from typing import Any

import numpy as np

from scene_data.errors import UnknownNameError

from ..render_core.layout import FrameStamp, PlaneKind
from ..render_core.status import StaleGenerationError
from .file_locks import LockFile
from .shared_segment import SegmentState, SharedSegment, checked_segment_name
from .status import TransportError, TransportStatus, TransportStatusCode

__all__ = ["SharedFrameLease", "SharedMemoryReader"]

_ATTEMPTS = 100
_POLL_S = 0.001


class SharedFrameLease:
    """A frame in shared memory that stays as it is while this lease, or any array got from it, lives.

    The hold is this process's: it ends with it, however that ends, and forked children do not have it.

    Attributes:
        stamp: When and from what the frame was made.
        plane: What its numbers mean.
        sequence: Counts the frames of this camera and plane that were published, from 1.
    """

    def __init__(self, pixels: np.ndarray, stamp: FrameStamp, plane: PlaneKind, sequence: int, hold: LockFile):
        self.stamp = stamp
        self.plane = plane
        self.sequence = sequence
        self._pixels = _HeldPixels(pixels, hold)
        self._hold: LockFile | None = hold

    @property
    def valid(self) -> bool:
        """Whether arrays can be got: true until `release`."""
        return self._hold is not None and self._hold.is_open

    def numpy(self) -> np.ndarray:
        """Read-only array (num_envs, height, width, channels), the shared memory itself.

        Raises:
            ValueError: The lease is released.
        """
        pixels = self._pixels
        if pixels is None or not self.valid:
            raise ValueError(f"the lease of this {self.plane.value} frame is released; acquire another one")
        return np.asarray(pixels)

    def release(self) -> None:
        """Give the frame back, as far as this lease is concerned: arrays that are left still hold it."""
        self._pixels = self._hold = None

    def __enter__(self) -> "SharedFrameLease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _HeldPixels:
    """Exports pixels to NumPy, which makes it the base of every view: the hold ends with the last of them."""

    __slots__ = ("__array_interface__", "_owners")

    def __init__(self, pixels: np.ndarray, hold: LockFile):
        self._owners = (pixels, hold)
        self.__array_interface__: dict[str, Any] = pixels.__array_interface__


class SharedMemoryReader:
    """Reads what a `SharedMemoryTransport` of another process publishes, without a copy. Thread-safe.

    A plane is rendered while a reader attends to it, from its first `latest` or `wait` on until the reader is closed
    or its process ends. After a reload of the model, reads raise `StaleGenerationError`: make a reader anew.

    Args:
        name: The transport's.
        timeout: How long to wait for a producer that is not there yet [s].

    Raises:
        TransportError: Nobody publishes under this name, or whoever did is dead.
        ValueError: No such name can be.
    """

    def __init__(self, name: str, timeout: float = 0.0):
        self.name = checked_segment_name(name)
        self._segment = _open_live(self.name, timeout)
        self._attendance = LockFile(self._segment.locks.path)
        self._attended: set[int] = set()
        self._lock = threading.RLock()
        self._streams = {(about.camera, about.plane): at for at, about in enumerate(self._segment.streams)}

    @property
    def cameras(self) -> dict[str, tuple[PlaneKind, ...]]:
        """Names of the cameras, and the planes of each."""
        found: dict[str, tuple[PlaneKind, ...]] = {}
        for about in self._segment.streams:
            found[about.camera] = (*found.get(about.camera, ()), PlaneKind(about.plane))
        return found

    @property
    def status(self) -> TransportStatus:
        """How the producer is doing: OK, STALE_GENERATION after a reload, PRODUCER_DIED, or STOPPED."""
        with self._lock:
            if not self._attendance.is_open:
                return TransportStatus(TransportStatusCode.STOPPED, "This reader is closed.")
            return _status_of(self._segment)

    def latest(self, camera: str, plane: PlaneKind | str) -> SharedFrameLease | None:
        """A lease on the newest frame; None where there was none yet. Never waits.

        Raises:
            UnknownNameError: No such camera or plane.
            StaleGenerationError: The cameras of this reader are gone.
            TransportError: The producer closed or died, or this reader is closed; its `status` says which.
        """
        stream = self._stream(camera, PlaneKind(plane))
        with self._lock:
            self._require_ok(camera)
            if stream not in self._attended:
                self._segment.attend(stream, self._attendance)
                self._attended.add(stream)
            return self._acquire(stream, camera)

    def wait(
        self, camera: str, plane: PlaneKind | str, after: int = 0, timeout: float | None = None
    ) -> SharedFrameLease | None:
        """A lease on the newest frame once its `sequence` is above `after`; None after `timeout` [s].

        Raises:
            UnknownNameError, StaleGenerationError, TransportError: As `latest`, also while waiting.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            lease = self.latest(camera, plane)
            if lease is not None and lease.sequence > after:
                return lease
            del lease  # or it would hold its slot while waiting for the next
            if deadline is not None and time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Attend to nothing any more. Leases and arrays stay valid."""
        with self._lock:
            self._attendance.close()
            self._segment.close()

    def __enter__(self) -> "SharedMemoryReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stream(self, camera: str, plane: PlaneKind) -> int:
        cameras = self.cameras
        if camera not in cameras:
            raise UnknownNameError("camera", camera, cameras)
        if plane not in cameras[camera]:
            raise UnknownNameError(f"plane of camera {camera!r}", plane.value, [kind.value for kind in cameras[camera]])
        return self._streams[camera, plane.value]

    def _acquire(self, stream: int, camera: str) -> SharedFrameLease | None:
        segment = self._segment
        for _ in range(_ATTEMPTS):  # another one only where the producer went all round the slots meanwhile
            slot = segment.latest_slot(stream)
            if slot is None:
                return None
            hold = segment.hold(slot)
            if hold is not None:
                self._require_ok(camera)  # again: a reload may have come before the hold
                plane = PlaneKind(segment.streams[stream].plane)
                pixels = segment.pixels(stream, slot)
                return SharedFrameLease(pixels, segment.stamp(slot), plane, segment.sequence(slot), hold)
        return None

    def _require_ok(self, camera: str) -> None:
        status = self.status
        if status.code is TransportStatusCode.STALE_GENERATION:
            raise StaleGenerationError(camera)
        if not status.ok:
            raise TransportError(f"shared memory {self.name!r}", status)


def _status_of(segment: SharedSegment) -> TransportStatus:
    has_producer = segment.has_producer  # first: a producer that closes says so before it goes
    state = segment.state
    if state is SegmentState.CLOSED:
        return TransportStatus(TransportStatusCode.STOPPED, "The producer has closed it.")
    if state is SegmentState.STALE:
        return TransportStatus(TransportStatusCode.STALE_GENERATION, "The cameras are of an earlier generation.")
    if not has_producer:
        segment.remove_abandoned()
        return TransportStatus(TransportStatusCode.PRODUCER_DIED, "The producer died without closing it.")
    return TransportStatus(TransportStatusCode.OK)


def _open_live(name: str, timeout: float) -> SharedSegment:
    deadline = time.monotonic() + timeout
    while True:
        try:
            segment = SharedSegment.open(name)
            status = _status_of(segment)
            if status.ok:
                return segment
            raise TransportError(f"shared memory {name!r}", status)
        except TransportError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_S)
