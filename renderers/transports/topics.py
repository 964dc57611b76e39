"""Cameras as topics on a wire: what is published where, who listens, and the thread of each camera."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..render_core import CameraDescriptor, PlaneKind, RenderCore
from ..render_core.publication import CameraFrames, FrameTransport
from .camera_messages import (
    IMAGE_STREAMS,
    ClockContent,
    Content,
    ImageStream,
    camera_info,
    camera_transform,
    image,
    optical_frame,
    ros_name,
)
from .queue import PublicationWorker
from .status import CameraCounts, TransportStatus, TransportStatusCode
from .wire import MessageType, TopicWriter, Wire

__all__ = ["TopicTransport"]

_CLOSE_TIMEOUT_S = 5.0


@dataclass(eq=False)
class _Plane:
    """One plane of a camera, and who listens to it.

    Attributes:
        kind: Which plane.
        streams: The images made of it, and where they go.
        info: Where their camera info goes.
        consumer: Its consumer in the render core, 0 while there is none.
        is_enabled: Whether that consumer has demand.
    """

    kind: PlaneKind
    streams: Sequence[tuple[ImageStream, TopicWriter]]
    info: TopicWriter
    consumer: int = 0
    is_enabled: bool = False

    def has_readers(self) -> bool:
        return any(writer.reader_count for writer in (self.info, *(writer for _, writer in self.streams)))


@dataclass(frozen=True, eq=False)
class _Item:
    """Frames to publish, and the planes that they are published for."""

    frames: CameraFrames
    planes: Sequence[_Plane]


@dataclass(eq=False)
class _CameraTopics:
    """A camera's topics, and the worker that serves them."""

    name: str
    frame_id: str
    planes: list[_Plane] = field(default_factory=list)
    worker: PublicationWorker[_Item] = field(init=False)


class TopicTransport(FrameTransport):
    """Publishes the cameras of one environment as ROS topics over some wire.

    A plane is rendered while somebody listens to one of its images or to its camera info. Each camera has a thread of
    its own that encodes and sends; the frames are given back before anything is sent.

    Args:
        open_wire: Opens what carries the topics, once the other arguments are checked; closed with the transport.
        namespace: Before the cameras' names, for example `"/robot"`.
        environment: Which environment is published.
        interval_ns: Simulation time between frames [ns]; None is every look at who is due.
        world_frame: Name of the environment's world frame in transforms.
        clock: Whether simulation time is published on `/clock`.

    Raises:
        ValueError: A namespace that is no ROS name, or a negative environment.
    """

    def __init__(
        self,
        open_wire: Callable[[], Wire],
        namespace: str = "",
        *,
        environment: int = 0,
        interval_ns: int | None = None,
        world_frame: str = "world",
        clock: bool = True,
    ):
        if environment < 0:
            raise ValueError(f"environment must not be negative, got {environment}")
        if interval_ns is not None and interval_ns < 1:
            raise ValueError(f"interval_ns must be at least 1, got {interval_ns}")
        self.namespace = _checked_namespace(namespace)
        self.environment = environment
        self.world_frame = world_frame
        self._interval_ns = interval_ns
        self._core: RenderCore | None = None
        self._writers: dict[str, TopicWriter] = {}
        self._cameras: dict[str, _CameraTopics] = {}
        self._by_id: dict[int, _CameraTopics] = {}
        self._last_clock_ns: int | None = None
        self._is_closed = False
        self._wire = open_wire()
        try:
            self._transforms = self._open("/tf", MessageType.TRANSFORMS)
            self._clock = self._open("/clock", MessageType.CLOCK) if clock else None
        except BaseException:
            self._wire.close()
            raise
        self._clock_worker = PublicationWorker("publish clock", self._publish_clock) if clock else None

    # -- what a user asks

    @property
    def status(self) -> TransportStatus:
        """How it is doing."""
        return TransportStatus(TransportStatusCode.STOPPED) if self._is_closed else self._wire.status

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the topics on offer."""
        return tuple(sorted(self._writers))

    def counts(self) -> dict[str, CameraCounts]:
        """What became of the frames, by camera."""
        return {
            name: CameraCounts(topics.worker.published, topics.worker.queue.dropped)
            for name, topics in self._cameras.items()
        }

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that was handed over went out; False when `timeout` [s], of each camera, was not enough.

        For programs that would rather wait than lose a frame. Live ones never call it.
        """
        return all(topics.worker.flush(timeout) for topics in self._cameras.values())

    # -- what a pipeline calls

    def start(self, core: RenderCore, cameras: Mapping[str, CameraDescriptor]) -> None:
        """Offer the topics of these cameras; those of cameras that are no longer there go.

        Raises:
            ValueError: There is no such environment, or two cameras have one name in ROS.
        """
        names = _ros_names(cameras.values(), self.environment)
        for name in set(self._cameras) - set(cameras):
            self._cameras.pop(name).worker.close(drain=False, timeout=_CLOSE_TIMEOUT_S)
        before, self._writers = self._writers, {}
        for shared in ("/tf", "/clock"):
            if shared in before:
                self._writers[shared] = before[shared]
        for name, camera in cameras.items():
            self._offer(camera, names[name], before)
        for topic, writer in before.items():
            if topic not in self._writers:
                writer.close()
        self._core = core
        self._by_id = {camera.id: self._cameras[name] for name, camera in cameras.items()}
        for camera in cameras.values():
            for plane in self._by_id[camera.id].planes:
                plane.consumer = self._register(core, camera, plane)
                core.set_consumer_enabled(plane.consumer, False)

    def look(self, simulation_time_ns: int) -> None:
        """Let demand follow the readers, and tell the time."""
        core = self._core
        if core is None:
            return
        for topics in self._by_id.values():
            changes = [plane for plane in topics.planes if plane.has_readers() != plane.is_enabled]
            for plane in changes:
                plane.is_enabled = not plane.is_enabled
                core.set_consumer_enabled(plane.consumer, plane.is_enabled)
            if changes and not any(plane.is_enabled for plane in topics.planes):
                with topics.worker.queue.superseding():
                    pass  # nobody is left who would want what waits
        if self._clock_worker is not None and simulation_time_ns != self._last_clock_ns:
            self._last_clock_ns = simulation_time_ns
            self._clock_worker.queue.put(ClockContent(simulation_time_ns))

    def deliver(self, frames: CameraFrames) -> Collection[int]:
        """Queue a camera's frames for the planes that were due."""
        topics = self._by_id.get(frames.camera.id)
        if topics is None:
            return ()
        due = [plane for plane in topics.planes if plane.consumer in frames.consumers and plane.kind in frames.leases]
        if not due or not topics.worker.queue.put(_Item(frames, due)):
            return ()
        return [plane.consumer for plane in due]

    def stop(self) -> None:
        """Unregister, and let nothing of these cameras go out any more. The topics stay on offer."""
        core, self._core = self._core, None
        topics_before, self._by_id = self._by_id, {}
        for topics in topics_before.values():
            with topics.worker.queue.superseding():
                self._unregister(core, topics)

    def close(self) -> None:
        """Unregister, send what waits for up to five seconds, and close the topics and the wire."""
        if self._is_closed:
            return
        core, self._core = self._core, None
        for topics in self._by_id.values():
            self._unregister(core, topics)
        self._by_id = {}
        workers = [topics.worker for topics in self._cameras.values()]
        if self._clock_worker is not None:
            workers.append(self._clock_worker)  # pyright: ignore[reportArgumentType]
        for worker in workers:
            worker.close(timeout=_CLOSE_TIMEOUT_S)
        self._is_closed = True
        try:
            for writer in self._writers.values():
                writer.close()
        finally:
            self._wire.close()

    # -- inside

    def _open(self, topic: str, message_type: MessageType) -> TopicWriter:
        writer = self._writers[topic] = self._wire.open(topic, message_type)
        return writer

    def _offer(self, camera: CameraDescriptor, name: str, before: Mapping[str, TopicWriter]) -> None:
        topics = self._cameras.get(camera.name)
        if topics is None:
            topics = _CameraTopics(name, optical_frame(name, self.namespace))
            topics.worker = PublicationWorker(f"publish {name}", lambda item: self._publish(topics, item))
            self._cameras[camera.name] = topics

        def writer_of(folder: str, topic: str, message_type: MessageType) -> TopicWriter:
            path = "/" + "/".join(part for part in (self.namespace[1:], name, folder, topic) if part)
            if path in before:
                self._writers[path] = before[path]
            return self._writers[path] if path in self._writers else self._open(path, message_type)

        topics.planes = []
        for kind in camera.planes:
            streams = [
                (stream, writer_of(stream.folder, stream.topic, MessageType.IMAGE))
                for stream in IMAGE_STREAMS
                if stream.plane is kind
            ]
            if streams:
                info = writer_of(streams[0][0].folder, "camera_info", MessageType.CAMERA_INFO)
                topics.planes.append(_Plane(kind, streams, info))

    def _register(self, core: RenderCore, camera: CameraDescriptor, plane: _Plane) -> int:
        name = f"{self.namespace}/{camera.name}"
        if self._interval_ns is None:
            return core.register_continuous_consumer(name, camera.id, (plane.kind,))
        return core.register_cadenced_consumer(name, self._interval_ns, camera.id, (plane.kind,))

    def _unregister(self, core: RenderCore | None, topics: _CameraTopics) -> None:
        for plane in topics.planes:
            if core is not None and plane.consumer:
                core.unregister_consumer(plane.consumer)
            plane.consumer, plane.is_enabled = 0, False

    def _publish(self, topics: _CameraTopics, item: _Item) -> None:
        messages = self._encode(topics, item)
        item.frames.release()
        for writer, message in messages:
            writer.send(message)

    def _encode(self, topics: _CameraTopics, item: _Item) -> list[tuple[TopicWriter, Any]]:
        frames, frame_id = item.frames, topics.frame_id
        transform = camera_transform(frames, self.environment, self.world_frame, frame_id)
        info = camera_info(frames, self.environment, frame_id)
        contents: list[tuple[TopicWriter, Content]] = [(self._transforms, transform)]
        for plane in item.planes:
            contents.append((plane.info, info))
            contents += [
                (writer, image(frames, stream, self.environment, frame_id))
                for stream, writer in plane.streams
                if writer.reader_count
            ]
        return [(writer, writer.encode(content)) for writer, content in contents if writer.reader_count]

    def _publish_clock(self, content: ClockContent) -> None:
        if self._clock is not None and self._clock.reader_count:
            self._clock.send(self._clock.encode(content))


def _checked_namespace(namespace: str) -> str:
    parts = [part for part in namespace.split("/") if part]
    for part in parts:
        if ros_name(part) != part:
            raise ValueError(
                f"the namespace {namespace!r} is no ROS name: {part!r} has to be letters, digits and single "
                f"underscores, a letter first, such as {ros_name(part)!r}"
            )
    return "".join(f"/{part}" for part in parts)


def _ros_names(cameras: Iterable[CameraDescriptor], environment: int) -> dict[str, str]:
    names: dict[str, str] = {}
    for camera in cameras:
        if environment >= camera.num_envs:
            raise ValueError(f"environment {environment} is to be published, but there are {camera.num_envs}")
        name = ros_name(camera.name)
        if name in names.values():
            raise ValueError(f"camera {camera.name!r} is called {name!r} in ROS, and so is another; rename one")
        names[camera.name] = name
    return names
