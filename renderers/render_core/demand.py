"""Whether to render at all: who wants frames of a camera, and when."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import index

from scene_data.errors import UnknownNameError

from .camera import CameraDescriptor
from .layout import PlaneKind

__all__ = ["DemandScheduler", "RenderPlan"]


@dataclass(frozen=True)
class RenderPlan:
    """Who is due at one camera at one time, and what to render for them.

    Attributes:
        camera: The camera; None from a scheduler that knows none.
        planes: The planes that the due consumers asked for together, in the camera's order.
        consumers: Their ids, growing; empty when nobody is due.
        frame_generation: Frame generation that the plan is for.
        camera_id: Id of the camera.
        simulation_time_ns: When it was evaluated, which is when a cadence counts on from [ns].
    """

    camera: CameraDescriptor | None
    planes: tuple[PlaneKind, ...]
    consumers: tuple[int, ...]
    frame_generation: int
    camera_id: int = 0
    simulation_time_ns: int = 0


class _Mode(Enum):
    CADENCED = "cadenced"
    ONE_SHOT = "one-shot"
    CONTINUOUS = "continuous"


@dataclass
class _Delivery:
    """What a consumer got last from one camera.

    Attributes:
        time_ns: Simulation time of it [ns].
        rewinds: How often the camera's time had run backwards by then.
        requests: How many of the consumer's requests it answered.
    """

    time_ns: int = 0
    rewinds: int = 0
    requests: int = 0


@dataclass
class _Consumer:
    name: str
    mode: _Mode
    camera_id: int
    planes: tuple[PlaneKind, ...] | None
    interval_ns: int = 0
    enabled: bool = True
    requests: int = 0
    deliveries: dict[int, _Delivery] = field(default_factory=dict)

    def wants(self, camera_id: int, available: Sequence[PlaneKind] | None) -> bool:
        """Whether a camera has anything for it; `available` None means that the camera's planes are not known."""
        concerns_it = self.camera_id == camera_id or 0 in (self.camera_id, camera_id)
        finds_planes = self.planes is None or available is None or not set(self.planes).isdisjoint(available)
        return self.enabled and concerns_it and finds_planes

    def last_delivery(self, camera_id: int, rewinds: int) -> _Delivery:
        """What it got last; before the first delivery a cadence counts from time 0."""
        return self.deliveries.setdefault(camera_id, _Delivery(rewinds=rewinds))

    def is_due(self, now_ns: int, rewinds: int, last: _Delivery) -> bool:
        """Whether it wants a frame now."""
        if self.mode is _Mode.CONTINUOUS:
            return True
        if self.mode is _Mode.ONE_SHOT:
            return self.requests > last.requests
        return rewinds > last.rewinds or not 0 <= now_ns - last.time_ns < self.interval_ns


class DemandScheduler:
    """Knows the consumers of frames and evaluates, per camera, which of them are due.

    A cadenced consumer is due once its interval has passed since its last delivery, the first time since simulation
    time 0, and at once when simulation time has run backwards. A one-shot consumer is due after each request, a
    continuous one always. `mark_delivered` is the only thing that advances a cadence or answers a request, so whoever
    is not served stays due. A consumer of every camera (`camera_id` 0) is counted for each camera by itself.
    Registrations survive `reconfigure`. Thread-safe.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._consumers: dict[int, _Consumer] = {}  # in the order of their ids
        self._last_id = 0
        self._cameras: Mapping[int, CameraDescriptor] = {}
        self._frame_generation = 0
        self._clocks: dict[int, tuple[int, int]] = {}  # camera id -> latest time, times that it ran backwards

    def reconfigure(self, frame_generation: int, cameras: Iterable[CameraDescriptor] = ()) -> None:
        """Plan for a new frame generation; with cameras, for these and no other."""
        with self._lock:
            self._frame_generation = index(frame_generation)
            self._cameras = {camera.id: camera for camera in cameras}

    def register_cadenced(
        self, name: str, interval_ns: int, camera_id: int = 0, planes: Iterable[PlaneKind] | None = None
    ) -> int:
        """Add a consumer that wants a frame every `interval_ns` of simulation time.

        Args:
            name: For people.
            interval_ns: Time between deliveries [ns], at least 1.
            camera_id: The camera that it wants frames of; 0 is every camera.
            planes: What it wants; None is all that the camera has.

        Returns:
            The consumer's id.

        Raises:
            ValueError: An interval below 1, no planes, or a camera or plane that is not known.
        """
        interval_ns = index(interval_ns)
        if interval_ns < 1:
            raise ValueError(f"consumer {name!r} has interval_ns={interval_ns}, which must be at least 1")
        return self._register(name, _Mode.CADENCED, camera_id, planes, interval_ns)

    def register_one_shot(self, name: str, camera_id: int = 0, planes: Iterable[PlaneKind] | None = None) -> int:
        """Add a consumer that wants a frame after each `request_one_shot`. See `register_cadenced`."""
        return self._register(name, _Mode.ONE_SHOT, camera_id, planes)

    def register_continuous(self, name: str, camera_id: int = 0, planes: Iterable[PlaneKind] | None = None) -> int:
        """Add a consumer that always wants a frame. See `register_cadenced`."""
        return self._register(name, _Mode.CONTINUOUS, camera_id, planes)

    def unregister(self, consumer_id: int) -> None:
        """Forget a consumer.

        Raises:
            ValueError: No such consumer.
        """
        with self._lock:
            self._consumer(consumer_id)
            del self._consumers[consumer_id]

    def request_one_shot(self, consumer_id: int) -> None:
        """Make a one-shot consumer due until it is served.

        Raises:
            ValueError: No such consumer, or one of another mode.
        """
        with self._lock:
            consumer = self._consumer(consumer_id)
            if consumer.mode is not _Mode.ONE_SHOT:
                raise ValueError(f"consumer {consumer.name!r} is {consumer.mode.value}, so it takes no requests")
            consumer.requests += 1

    def set_enabled(self, consumer_id: int, enabled: bool) -> None:
        """Let a consumer be due, or never.

        Raises:
            ValueError: No such consumer.
        """
        with self._lock:
            self._consumer(consumer_id).enabled = bool(enabled)

    def evaluate(self, simulation_time_ns: int, camera_id: int) -> RenderPlan:
        """Who is due at a camera; changes nothing about who is due.

        Raises:
            ValueError: A camera that is not among the configured ones.
        """
        now_ns = index(simulation_time_ns)
        with self._lock:
            camera = self._camera(camera_id)
            rewinds_before, rewinds = self._observe(camera_id, now_ns)
            available = camera.planes if camera is not None else None
            due = {
                consumer_id: consumer
                for consumer_id, consumer in self._consumers.items()
                if consumer.wants(camera_id, available)
                and consumer.is_due(now_ns, rewinds, consumer.last_delivery(camera_id, rewinds_before))
            }
            return RenderPlan(
                camera, _union(due.values(), available), tuple(due), self._frame_generation, camera_id, now_ns
            )

    def mark_delivered(self, plan: RenderPlan, consumer_id: int) -> None:
        """Note that a consumer got the frames of a plan. One that was unregistered since is passed over.

        Raises:
            ValueError: A plan of another frame generation, or one in which the consumer is not.
        """
        with self._lock:
            if plan.frame_generation != self._frame_generation:
                raise ValueError(
                    f"the plan is of frame generation {plan.frame_generation}, not of {self._frame_generation}"
                )
            if consumer_id not in plan.consumers:
                raise ValueError(f"consumer {consumer_id} is not in the plan, which has {list(plan.consumers)}")
            consumer = self._consumers.get(consumer_id)
            if consumer is not None:
                rewinds = self._clocks.get(plan.camera_id, (0, 0))[1]
                consumer.deliveries[plan.camera_id] = _Delivery(plan.simulation_time_ns, rewinds, consumer.requests)

    def _register(
        self,
        name: str,
        mode: _Mode,
        camera_id: int,
        planes: Iterable[PlaneKind] | None,
        interval_ns: int = 0,
    ) -> int:
        camera_id = index(camera_id)
        chosen = None if planes is None else tuple(PlaneKind(plane) for plane in planes)
        if camera_id < 0:
            raise ValueError(f"consumer {name!r} has camera_id={camera_id}, which must not be negative")
        if chosen == ():
            raise ValueError(f"consumer {name!r} asks for no planes")
        with self._lock:
            camera = self._camera(camera_id) if camera_id else None
            for plane in chosen or ():
                if camera is not None and plane not in camera.planes:
                    raise UnknownNameError(f"plane of camera {camera.name!r}", plane.value, _names(camera.planes))
            self._last_id += 1
            self._consumers[self._last_id] = _Consumer(name, mode, camera_id, chosen, interval_ns)
            return self._last_id

    def _camera(self, camera_id: int) -> CameraDescriptor | None:
        if not self._cameras:
            return None
        if camera_id not in self._cameras:
            raise UnknownNameError("camera id", camera_id, map(str, self._cameras))
        return self._cameras[camera_id]

    def _consumer(self, consumer_id: int) -> _Consumer:
        if consumer_id not in self._consumers:
            raise UnknownNameError("consumer id", consumer_id, map(str, self._consumers))
        return self._consumers[consumer_id]

    def _observe(self, camera_id: int, now_ns: int) -> tuple[int, int]:
        """Note a camera's time, and say how often it had run backwards before and has now."""
        latest, before = self._clocks.get(camera_id, (now_ns, 0))
        rewinds = before + (now_ns < latest)
        self._clocks[camera_id] = now_ns, rewinds
        return before, rewinds


def _union(consumers: Iterable[_Consumer], available: Sequence[PlaneKind] | None) -> tuple[PlaneKind, ...]:
    order = tuple(PlaneKind) if available is None else tuple(available)
    wanted: set[PlaneKind] = set()
    for consumer in consumers:
        wanted.update(consumer.planes if consumer.planes is not None else (available or ()))
    return tuple(plane for plane in order if plane in wanted)


def _names(planes: Iterable[PlaneKind]) -> list[str]:
    return [plane.value for plane in planes]
