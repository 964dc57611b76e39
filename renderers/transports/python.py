"""Frames for readers in this process: each registration is a bounded history of leases with its own demand."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import index

from scene_data.errors import UnknownNameError

from ..camera_sensor import Camera
from ..render_core import CameraDescriptor, FrameCapacityError, PlaneKind, RenderCore, StaleGenerationError
from ..render_core.capacity import compute_frame_byte_capacity, compute_frame_slot_capacity
from ..render_core.publication import CameraFrames, FrameTransport
from .frame_consumer import ConsumerMode, FrameConsumer

__all__ = ["CameraPublicationTransport"]


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
    ) -> FrameConsumer:
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

    def unregister(self, consumer: FrameConsumer) -> None:
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
