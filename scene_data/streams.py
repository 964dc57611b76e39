"""The order of GPU work between threads: the one that steps physics, those that draw, and those that read.

Poses and frames are handed over while the GPU still works on them, so every hand-over orders one stream after another.
On the CPU work is done when the call returns, and the same calls do nothing. Warp's current stream belongs to the
device and not to the thread, so `STREAM_LOCK` covers every switch of it, and every look at it, together with what is
enqueued or captured in between. Only the enqueueing is serialized; the GPU work overlaps.

The provider and the `SimulationContext` take the lock themselves. Whoever steps an engine on CUDA in a loop of their
own, beside a render core, does so inside `enqueueing()`.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import warp as wp

__all__ = ["STREAM_LOCK", "CudaWorkOrder", "WorkOrder", "enqueueing", "enqueues", "work_order_of"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

STREAM_LOCK = threading.RLock()
"""Taken after the physics lock and before any lock of a render core. Nobody waits for a render while holding it."""

_NOTHING = nullcontext()


def enqueueing() -> AbstractContextManager[Any]:
    """Keeps the current streams of all devices from being switched by another thread; nothing to do without CUDA."""
    return STREAM_LOCK if wp.is_cuda_available() else _NOTHING


def enqueues(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Run a function inside `enqueueing()`."""

    @wraps(function)
    def enqueued(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        with enqueueing():
            return function(*arguments, **options)

    return enqueued


class WorkOrder:
    """Order of work on a device that finishes each call before it returns: nothing to do."""

    def __init__(self, device: Any):
        self.device = device

    @contextmanager
    def rendering(self) -> Iterator[None]:
        """Makes the render stream the current one for what is enqueued inside."""
        yield

    def enqueueing(self) -> AbstractContextManager[Any]:
        """Keeps the current stream from being switched by another thread."""
        return _NOTHING

    def new_event(self) -> Any:
        """An event that a frame keeps for good."""
        return None

    def complete(self, event: Any) -> None:
        """Let an event stand for all that was enqueued on the current stream so far."""

    def follow(self, event: Any, stream: Any = None) -> Any:
        """Order a reader's stream, by default the current one, after an event, and return it as Warp's."""
        return None

    def current_reader_streams(self, stream: Any = None) -> tuple[Any, ...]:
        """The stream that a reader names, or else the current ones of Warp and torch."""
        return ()

    def torch_stream(self) -> Any:
        """Torch's current stream in this thread, as Warp's."""
        return None

    def record(self, streams: Iterable[Any]) -> list[Any]:
        """Events that stand for all that was enqueued on some streams so far."""
        return []

    def wait(self, events: Iterable[Any]) -> None:
        """Let the current stream wait for some events; the calling thread does not wait."""


class CudaWorkOrder(WorkOrder):
    """Order of work on a CUDA device, kept by events."""

    def __init__(self, device: Any):
        super().__init__(device)
        self._render_stream = wp.Stream(device)

    @contextmanager
    def rendering(self) -> Iterator[None]:
        """Makes the render stream the current one for what is enqueued inside."""
        with STREAM_LOCK, wp.ScopedStream(self._render_stream, sync_enter=False):
            yield

    def enqueueing(self) -> AbstractContextManager[Any]:
        """Keeps the current stream from being switched by another thread."""
        return STREAM_LOCK

    def new_event(self) -> Any:
        """An event that a frame keeps for good."""
        return wp.Event(self.device)

    def complete(self, event: Any) -> None:
        """Let an event stand for all that was enqueued on the current stream so far."""
        wp.get_stream(self.device).record_event(event)

    def follow(self, event: Any, stream: Any = None) -> Any:
        """Order a reader's stream, by default the current one, after an event, and return it as Warp's."""
        with STREAM_LOCK:
            reader = wp.get_stream(self.device) if stream is None else self._as_warp_stream(stream)
            reader.wait_event(event)
        return reader

    def current_reader_streams(self, stream: Any = None) -> tuple[Any, ...]:
        """The stream that a reader names, or else the current ones of Warp and torch."""
        with STREAM_LOCK:
            if stream is not None:
                return (self._as_warp_stream(stream),)
            current = wp.get_stream(self.device)
            return (current, self.torch_stream()) if "torch" in sys.modules else (current,)

    def torch_stream(self) -> Any:
        """Torch's current stream in this thread, as Warp's."""
        return wp.stream_from_torch(wp.device_to_torch(self.device))

    def record(self, streams: Iterable[Any]) -> list[Any]:
        """Events that stand for all that was enqueued on some streams so far."""
        return [stream.record_event() for stream in streams]

    def wait(self, events: Iterable[Any]) -> None:
        """Let the current stream wait for some events; the calling thread does not wait."""
        stream = wp.get_stream(self.device)
        for event in events:
            stream.wait_event(event)

    def _as_warp_stream(self, stream: Any) -> Any:
        """Takes Warp's and torch's streams, and the handles that DLPack consumers pass."""
        if isinstance(stream, wp.Stream):
            return stream
        current = wp.get_stream(self.device)
        handle = getattr(stream, "cuda_stream", stream)
        return current if handle == current.cuda_stream else wp.Stream(self.device, cuda_stream=handle)


def work_order_of(device: Any) -> WorkOrder:
    """The order of work that a device needs."""
    return CudaWorkOrder(device) if device.is_cuda else WorkOrder(device)
