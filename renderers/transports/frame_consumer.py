"""FrameConsumer: one reader in this process, and the frames that were made for it."""

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..render_core import CameraDescriptor, PlaneKind, RenderCore, StaleGenerationError
from ..render_core.publication import CameraFrames

if TYPE_CHECKING:
    from .python import CameraPublicationTransport

__all__ = ["ConsumerMode", "FrameConsumer"]


class ConsumerMode(Enum):
    """When a consumer wants a frame.

    ONE_SHOT: after each `FrameConsumer.request`. CADENCED: every `interval_ns` of simulation time. CONTINUOUS: at every
    look at who is due.
    """

    ONE_SHOT = "one_shot"
    CADENCED = "cadenced"
    CONTINUOUS = "continuous"


class FrameConsumer:
    """One reader's frames: leases on the last `history` frames that were made for it and that it has not taken.

    Every acquisition checks that the render core is the one it was registered with, that the core's frame generation
    is too, and that the lease is of that generation, and else raises `StaleGenerationError`. Iterate over it, also with
    `async for`, to get every frame; iteration ends when the consumer is unregistered. Thread-safe.

    Attributes:
        id: Its consumer id in the render core.
        name: For messages.
        camera: What it reads.
        planes: The planes it wants.
        history: Frames that it keeps at most.
        mode: When it wants a frame.
    """

    def __init__(
        self,
        transport: "CameraPublicationTransport",
        core: RenderCore,
        consumer_id: int,
        name: str,
        camera: CameraDescriptor,
        planes: tuple[PlaneKind, ...],
        history: int,
        mode: ConsumerMode,
    ):
        self.id = consumer_id
        self.name = name
        self.camera = camera
        self.planes = planes
        self.history = history
        self.mode = mode
        self._transport = transport
        self._core = weakref.ref(core)  # a retired core must not live on in the registrations that it outdates
        self._generation = core.frames.generation
        self._changed = threading.Condition()
        self._frames: deque[CameraFrames] = deque()
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._dropped = 0
        self._closed = False

    @property
    def dropped(self) -> int:
        """Frames that were displaced before they were read."""
        return self._dropped

    @property
    def closed(self) -> bool:
        """Whether it is unregistered."""
        return self._closed

    def request(self) -> None:
        """Want one frame, in the one-shot mode.

        Raises:
            StaleGenerationError: The cameras it was registered with are gone.
            ValueError: It has another mode, or is unregistered.
        """
        core = self._check_core()
        if self._closed or core is None:
            raise ValueError(f"consumer {self.name!r} is unregistered")
        core.request_one_shot(self.id)

    def acquire(self) -> CameraFrames | None:
        """The oldest frame that was not taken yet, or None. Never waits.

        Raises:
            StaleGenerationError: The cameras it was registered with are gone.
        """
        with self._changed:
            self._check_core()
            return self._take()

    def acquire_latest(self) -> CameraFrames | None:
        """The newest frame that was not taken yet, or None; older ones are passed over. Never waits.

        Raises:
            StaleGenerationError: The cameras it was registered with are gone.
        """
        with self._changed:
            self._check_core()
            while len(self._frames) > 1:
                self._frames.popleft()
                self._dropped += 1
            return self._take()

    def wait(self, timeout: float | None = None) -> CameraFrames | None:
        """The next frame, waited for up to `timeout` [s]; None after it, or once the consumer is unregistered.

        Frames are made by the thread that steps the simulation, so do not wait for ever on that one.

        Raises:
            StaleGenerationError: The cameras it was registered with are gone, also while waiting.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._frames or self._closed or not self._is_current(), timeout)
            self._check_core()
            return self._take()

    async def wait_async(self) -> CameraFrames | None:
        """The next frame, for asyncio; None once the consumer is unregistered.

        Raises:
            StaleGenerationError: The cameras it was registered with are gone, also while waiting.
        """
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                self._check_core()
                if self._frames or self._closed:
                    return self._take()
                sleeper = (loop, loop.create_future())
                self._sleepers.append(sleeper)
            try:
                await sleeper[1]
            finally:
                with self._changed:
                    if sleeper in self._sleepers:
                        self._sleepers.remove(sleeper)

    def close(self) -> None:
        """Unregister."""
        self._transport.unregister(self)

    def __iter__(self) -> Iterator[CameraFrames]:
        return self

    def __next__(self) -> CameraFrames:
        frames = self.wait()
        if frames is None:
            raise StopIteration
        return frames

    def __aiter__(self) -> AsyncIterator[CameraFrames]:
        return self

    async def __anext__(self) -> CameraFrames:
        frames = await self.wait_async()
        if frames is None:
            raise StopAsyncIteration
        return frames

    def __enter__(self) -> "FrameConsumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside

    def _put(self, frames: CameraFrames, core: RenderCore) -> bool:
        """Keep leases of one's own on the planes of a capture; False where one of them was not made."""
        leases = {}
        for plane in self.planes:
            lease = core.acquire_latest(self.camera.id, plane, frames.capture_id) if plane in frames.leases else None
            if lease is None:
                return False
            leases[plane] = lease
        with self._changed:
            if self._closed or not self._is_current():
                return False
            if len(self._frames) == self.history:
                self._frames.popleft()
                self._dropped += 1
            self._frames.append(replace(frames, leases=leases))
            self._wake()
        return True

    def _take(self) -> CameraFrames | None:
        if not self._frames:
            return None
        frames = self._frames.popleft()
        if any(lease.stamp.frame_generation != self._generation for lease in frames.leases.values()):
            raise StaleGenerationError(self.name)
        return frames

    def _is_current(self) -> bool:
        core = self._core()
        return core is not None and self._transport.is_current(core) and core.frames.generation == self._generation

    def _check_core(self) -> Any:
        """The core; raises where it or its generation is no longer the one of the registration."""
        if self._closed:
            return self._core()
        if not self._is_current():
            self._frames.clear()
            raise StaleGenerationError(self.name)
        return self._core()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
            sleepers, self._sleepers = self._sleepers, []
        for loop, future in sleepers:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, future)

    def _end(self) -> None:
        with self._changed:
            self._closed = True
            self._frames.clear()
        self._wake()


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
