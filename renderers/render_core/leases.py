"""How readers keep frames: leases, the arrays got from them, and the way a hold comes back from a finalizer."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np
import warp as wp

from scene_data.streams import WorkOrder

from .layout import FrameStamp, PlaneKind, PlaneLayout
from .slots import FrameSlot

__all__ = ["FrameLease", "Hold", "ReturnQueue", "ReturnedHold"]

_Verdict = TypeVar("_Verdict")

_DLPACK_CPU, _DLPACK_CUDA = 1, 2
_DLPACK_DO_NOT_ORDER = -1


@dataclass(slots=True)
class ReturnedHold:
    """A hold that ended, and what has to be done on CUDA before the slot is written again.

    Attributes:
        slot: What was held.
        streams: The readers' streams, by handle; their work so far has to be done.
        events: The readers' events, which have to be reached.
    """

    slot: FrameSlot
    streams: dict[Any, Any] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)


class ReturnQueue:
    """Takes holds back from finalizers, which may run anywhere, also in a thread that holds the store's lock.

    `put` and `ring` therefore take no lock: appending to a deque and putting into a SimpleQueue are safe in finalizers.
    What was put is settled by whoever takes the store's lock next.
    """

    def __init__(self):
        self._items: deque[ReturnedHold] = deque()
        self._bells: tuple[SimpleQueue[None], ...] = ()
        self._bells_lock = threading.Lock()

    def put(self, returned: ReturnedHold) -> None:
        """Take a hold back."""
        self._items.append(returned)
        self.ring()

    def ring(self) -> None:
        """Wake every waiter."""
        for bell in self._bells:
            bell.put(None)

    def drain(self) -> Iterator[ReturnedHold]:
        """What came back since the last time."""
        while self._items:
            yield self._items.popleft()

    def wait_for(
        self, judge: Callable[[], _Verdict | None], timeout: float | None, poll: float | None
    ) -> _Verdict | None:
        """Ask `judge` at each ring, and every `poll` seconds, until it has a verdict; None after the timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        bell: SimpleQueue[None] = SimpleQueue()
        with self._bells_lock:
            self._bells = (*self._bells, bell)
        try:
            while (verdict := judge()) is None:
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0.0:
                    return None
                pauses = [pause for pause in (remaining, poll) if pause is not None]
                with suppress(Empty):
                    bell.get(timeout=min(pauses, default=None))
            return verdict
        finally:
            with self._bells_lock:
                self._bells = tuple(other for other in self._bells if other is not bell)


class Hold:
    """Keeps a slot for as long as it lives. Shared by a lease and all arrays got from it."""

    __slots__ = ("_returned", "_returns")

    def __init__(self, slot: FrameSlot, returns: ReturnQueue):
        self._returned = ReturnedHold(slot)
        self._returns = returns

    def follow(self, stream: Any) -> None:
        """Note a reader's stream."""
        if stream is not None:
            self._returned.streams[stream.cuda_stream] = stream

    def read_until(self, events: list[Any]) -> None:
        """Note where readers end."""
        self._returned.events.extend(events)

    def __del__(self):
        self._returns.put(self._returned)


class _ReadOnlyBytes:
    """Exports a plane to NumPy, which makes it the base of every view and cannot write through it."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, array: Any):
        self._owner = array
        interface = dict(array.__array_interface__)
        interface["data"] = (array.ptr, True)
        self.__array_interface__ = interface


class FrameLease:
    """A committed frame that stays as it is for as long as this lease, or any array got from it, lives.

    The arrays share the frame's memory. NumPy's are read-only; torch and Warp have no such flag, so write only to a
    `clone()` of theirs. Their shape is (num_envs, height, width, channels).

    Attributes:
        stamp: When and from what the frame was made.
        plane: What its numbers mean.
        layout: Its memory layout.
    """

    def __init__(self, slot: FrameSlot, returns: ReturnQueue, order: WorkOrder):
        assert slot.arena is not None
        assert slot.stamp is not None
        assert slot.plane is not None
        assert slot.layout is not None
        self.stamp: FrameStamp = slot.stamp
        self.plane: PlaneKind = slot.plane
        self.layout: PlaneLayout = slot.layout
        self._arena = slot.arena
        self._extent = slot.extent
        self._completed = slot.completed
        self._order = order
        self._hold: Hold | None = Hold(slot, returns)

    @property
    def valid(self) -> bool:
        """Whether arrays can be got: true until `release`."""
        return self._hold is not None

    def numpy(self) -> np.ndarray:
        """Read-only NumPy array. On CUDA a copy, for which the calling thread waits.

        Raises:
            ValueError: The lease is released.
        """
        array = self.warp()
        if array.device.is_cpu:
            return np.asarray(_ReadOnlyBytes(array))
        with self._order.enqueueing():
            host = array.numpy()
        host.flags.writeable = False
        return host

    def torch(self) -> Any:
        """Torch tensor on the frame's device. On CUDA torch's current stream is ordered after the frame.

        Raises:
            ValueError: The lease is released.
        """
        return wp.to_torch(self._array(self._order.torch_stream()))

    def warp(self, stream: Any = None) -> Any:
        """Warp array on the frame's device. On CUDA `stream`, by default the current one, is ordered after the frame.

        Raises:
            ValueError: The lease is released.
        """
        return self._array(stream)

    def release(self, stream: Any = None) -> None:
        """Give the frame back, as far as this lease is concerned: arrays that are left still hold it.

        Args:
            stream: On CUDA the stream of the reader's last work on the frame, by default the current ones of Warp and
                torch; the frame's memory is not written before that work is done.
        """
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.read_until(self._order.record(self._order.current_reader_streams(stream)))

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """DLPack capsule of the frame's memory; what is made from it holds the frame."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the frame is on DLPack device {self.__dlpack_device__()}, not on {dl_device}")
        array = self._array(stream, ordered=stream != _DLPACK_DO_NOT_ORDER)
        array = wp.clone(array) if copy else array
        # A program that exits can outlive the Python that Warp's capsules call in the end; NumPy's call C.
        return np.asarray(array).__dlpack__() if array.device.is_cpu else wp.to_dlpack(array)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack device type and ordinal."""
        device = self._order.device
        return (_DLPACK_CUDA, device.ordinal) if device.is_cuda else (_DLPACK_CPU, 0)

    def __enter__(self) -> "FrameLease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _array(self, stream: Any, ordered: bool = True) -> Any:
        hold = self._hold
        if hold is None:
            raise ValueError(f"the lease of this {self.plane.value} frame is released; acquire another one")
        array = self._arena.array(self._extent, self.layout)
        array.frame_hold = hold
        if ordered:
            hold.follow(self._order.follow(self._completed, stream))
        return array
