"""Frames for readers in this process: each registration is a bounded history of leases with its own demand."""

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from operator import index
from typing import Any

from scene_data.errors import UnknownNameError

from ..camera_sensor import Camera
from ..render_core import CameraDescriptor, FrameCapacityError, PlaneKind, RenderCore, StaleGenerationError
from ..render_core.capacity import compute_frame_byte_capacity, compute_frame_slot_capacity
from ..render_core.publication import CameraFrames, FrameTransport

__all__ = ["CameraPublicationTransport", "ConsumerMode", "FrameConsumer"]


class ConsumerMode(Enum):
    """When a consumer wants a frame.

    ONE_SHOT: after each `FrameConsumer.request`. CADENCED: every `interval_ns` of simulation time. CONTINUOUS: at every
    look at who is due.
    """

    ONE_SHOT = "one_shot"
    CADENCED = "cadenced"
    CONTINUOUS = "continuous"


class CameraPublicationTransport(FrameTransport):
    """Registers readers in this process. Add it to a simulation with `sim.add_transport`.

    Readers may live on any thread. None of them costs a second render, and one that does not read keeps no more than
    its history.
    """

    def __init__(self):
        self._lock = threading.RLock()
        self._core: RenderCore | None = None
        self._cameras: Mapping[str, CameraDescriptor] = {}
        self._consumers: dict[int, FrameConsumer] = {}

    def register(
        self,
        camera: Camera | str,
        history: int = 1,
        mode: ConsumerMode | str = ConsumerMode.CONTINUOUS,
        *,
        interval_ns: int | None = None,
        planes: Iterable[PlaneKind] | None = None,
        name: str | None = None,
    ) -> "FrameConsumer":
        """Add a reader of one camera.

        Args:
            camera: The camera, or its name.
            history: Frames that are kept until they are read, at least 1; a newer one displaces the oldest.
            mode: When a frame is wanted.
            interval_ns: Simulation time between frames [ns]; for CADENCED, and only there.
            planes: What is wanted; None is all that the camera has.
            name: For messages; None is the camera's.

        Raises:
            UnknownNameError: No such camera, plane or mode.
            FrameCapacityError: The frame store has no room for the histories on this camera together.
            StaleGenerationError: A camera from before a reload.
            ValueError: A history below 1, or an interval that does not go with the mode.
            RuntimeError: The transport is not part of a running simulation.
        """
        mode, history = _mode_of(mode), _checked_history(history)
        if (interval_ns is not None) != (mode is ConsumerMode.CADENCED):
            raise ValueError(f"interval_ns goes with mode 'cadenced' alone, got {interval_ns} for {mode.value!r}")
        with self._lock:
            core = self._running_core()
            descriptor = self._descriptor_of(camera)
            wanted = descriptor.planes if planes is None else tuple(PlaneKind(plane) for plane in planes)
            self._check_capacity(core, descriptor, history)
            name = name or descriptor.name
            consumer_id = _register(core, name, mode, interval_ns, descriptor.id, wanted)
            consumer = FrameConsumer(self, core, consumer_id, name, descriptor, wanted, history, mode)
            self._consumers[consumer_id] = consumer
            return consumer

    def unregister(self, consumer: "FrameConsumer") -> None:
        """Take a reader out, and give back what it keeps; a second call does nothing. Others' demand stays."""
        with self._lock:
            if self._consumers.pop(consumer.id, None) is not None and self._core is not None:
                self._core.unregister_consumer(consumer.id)
        consumer._end()

    # -- what a pipeline calls

    def start(self, core: RenderCore, cameras: Mapping[str, CameraDescriptor]) -> None:
        """Accept registrations for these cameras."""
        with self._lock:
            self._core, self._cameras = core, dict(cameras)

    def deliver(self, frames: CameraFrames) -> Collection[int]:
        """Hand each due reader leases of its own."""
        with self._lock:
            core = self._core
            due = [self._consumers[id] for id in frames.consumers if id in self._consumers]
        if core is None:
            return ()
        return [consumer.id for consumer in due if consumer._put(frames, core)]

    def stop(self) -> None:
        """Refuse registrations, and let every reader know that its camera is gone."""
        with self._lock:
            core, self._core, self._cameras = self._core, None, {}
            consumers, self._consumers = list(self._consumers.values()), {}
        for consumer in consumers:
            if core is not None:
                core.unregister_consumer(consumer.id)
            consumer._wake()

    def close(self) -> None:
        """End every reader."""
        with self._lock:
            consumers = list(self._consumers.values())
        for consumer in consumers:
            self.unregister(consumer)
        with self._lock:
            self._core, self._cameras = None, {}

    # -- inside

    def is_current(self, core: RenderCore) -> bool:
        """Whether the cameras are this core's."""
        return self._core is core

    def _running_core(self) -> RenderCore:
        if self._core is None:
            raise RuntimeError("this transport is not part of a running simulation: call sim.add_transport first")
        return self._core

    def _descriptor_of(self, camera: Camera | str) -> CameraDescriptor:
        name = camera if isinstance(camera, str) else camera.name
        if name not in self._cameras:
            raise UnknownNameError("camera", name, self._cameras)
        descriptor = self._cameras[name]
        if isinstance(camera, Camera) and camera.descriptor is not descriptor:
            raise StaleGenerationError(name)
        return descriptor

    def _check_capacity(self, core: RenderCore, camera: CameraDescriptor, history: int) -> None:
        histories = [(consumer.camera.id, consumer.history) for consumer in self._consumers.values()]
        histories.append((camera.id, history))
        cameras = tuple(self._cameras.values())
        slots = compute_frame_slot_capacity(cameras, histories)
        nbytes = compute_frame_byte_capacity(cameras, histories)
        if slots > core.frames.max_slots or nbytes > core.frames.max_bytes:
            raise FrameCapacityError(
                f"a history of {history} frames of camera {camera.name!r} does not fit: with it {slots} frames and "
                f"{nbytes:,} bytes are needed, but the budget is {core.frames.max_slots} and "
                f"{core.frames.max_bytes:,}. Raise SimulationCfg.held_frames."
            )


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
        transport: CameraPublicationTransport,
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


def _mode_of(mode: ConsumerMode | str) -> ConsumerMode:
    names = [known.value for known in ConsumerMode]
    value = mode.value if isinstance(mode, ConsumerMode) else str(mode).replace("-", "_")
    if value not in names:
        raise UnknownNameError("consumer mode", mode, names)
    return ConsumerMode(value)


def _checked_history(history: int) -> int:
    if index(history) < 1:
        raise ValueError(f"history must be at least 1 frame, got {history}")
    return index(history)


def _register(
    core: RenderCore,
    name: str,
    mode: ConsumerMode,
    interval_ns: int | None,
    camera_id: int,
    planes: tuple[PlaneKind, ...],
) -> int:
    if mode is ConsumerMode.CADENCED:
        return core.register_cadenced_consumer(name, interval_ns or 0, camera_id, planes)
    registering: Callable[..., int] = (
        core.register_one_shot_consumer if mode is ConsumerMode.ONE_SHOT else core.register_continuous_consumer
    )
    return registering(name, camera_id, planes)
