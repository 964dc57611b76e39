"""Camera frames over ROS 1, through rospy."""

import importlib
import logging
import os
import threading
import xmlrpc.client
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

from scene_data.errors import MissingDependencyError

from .camera_messages import (
    IS_BIG_ENDIAN,
    CameraInfoContent,
    ClockContent,
    Content,
    ImageContent,
    TransformContent,
)
from .status import TransportError, TransportStatus, TransportStatusCode
from .topics import MessageType, TopicTransport, TopicWriter, Wire

__all__ = ["MissingRosError", "Ros1Transport"]

_logger = logging.getLogger(__name__)

_NODE = "scene_data"
_DEPTH = 2
_WATCH_INTERVAL_S = 0.5
_MASTER_TIMEOUT_S = 2.0
_NS_PER_S = 1_000_000_000

_OK = TransportStatus(TransportStatusCode.OK)


class MissingRosError(MissingDependencyError):
    """ROS 1's Python packages, which no package index has, are not installed.

    Attributes:
        library: The module that could not be imported.
    """

    def __init__(self, library: str):
        super().__init__(library, "", "Publishing over ROS 1")
        self.args = (
            f"Publishing over ROS 1 needs {library!r}, which is not installed. Source your ROS workspace, or on Debian "
            "run: make setup-ros",
        )


class Ros1Transport(TopicTransport):
    """Publishes the cameras of one environment to a ROS 1 master.

    rospy allows one node per process, which all transports share and which stays until the process ends. The master may
    go and come back: connected subscribers are served on, and the topics are registered again with a new master.
    Each subscriber has a queue of its own in rospy, so one that does not read leaves the others alone.

    Args:
        namespace: Before the cameras' names.
        **settings: See `TopicTransport`.

    Raises:
        MissingRosError: rospy or a message package is not installed.
        TransportError: No master answers at ROS_MASTER_URI.
        ValueError: See `TopicTransport`.
    """

    def __init__(self, namespace: str = "", **settings: Any):
        self._ros = _Ros1.load()
        super().__init__(lambda: _Ros1Wire(self._ros), namespace, **settings)


@dataclass(frozen=True)
class _Ros1:
    """ROS 1's modules, imported on first use."""

    rospy: Any
    sensor_msgs: Any
    geometry_msgs: Any
    tf2_msgs: Any
    rosgraph_msgs: Any
    std_msgs: Any

    @classmethod
    def load(cls) -> "_Ros1":
        names = ("rospy", "sensor_msgs.msg", "geometry_msgs.msg", "tf2_msgs.msg", "rosgraph_msgs.msg", "std_msgs.msg")
        try:
            return cls(*(importlib.import_module(name) for name in names))
        except ModuleNotFoundError as error:
            raise MissingRosError(error.name or "rospy") from error

    def message_class(self, message_type: MessageType) -> Any:
        return {
            MessageType.IMAGE: self.sensor_msgs.Image,
            MessageType.CAMERA_INFO: self.sensor_msgs.CameraInfo,
            MessageType.TRANSFORMS: self.tf2_msgs.TFMessage,
            MessageType.CLOCK: self.rosgraph_msgs.Clock,
        }[message_type]

    def message(self, content: Content) -> Any:
        match content:
            case ImageContent():
                return self.sensor_msgs.Image(
                    header=self._header(content.stamp_ns, content.frame_id),
                    height=content.height,
                    width=content.width,
                    encoding=content.encoding,
                    is_bigendian=int(IS_BIG_ENDIAN),
                    step=content.step,
                    data=bytes(content.data),
                )
            case CameraInfoContent():
                return self.sensor_msgs.CameraInfo(
                    header=self._header(content.stamp_ns, content.frame_id),
                    height=content.height,
                    width=content.width,
                    distortion_model=content.distortion_model,
                    D=content.d,
                    K=content.k,
                    R=content.r,
                    P=content.p,
                )
            case TransformContent():
                transform = self.geometry_msgs.Transform(
                    self.geometry_msgs.Vector3(*content.translation), self.geometry_msgs.Quaternion(*content.rotation)
                )
                stamped = self.geometry_msgs.TransformStamped(
                    self._header(content.stamp_ns, content.frame_id), content.child_frame_id, transform
                )
                return self.tf2_msgs.TFMessage([stamped])
            case ClockContent():
                return self.rosgraph_msgs.Clock(self._time(content.stamp_ns))

    def _header(self, stamp_ns: int, frame_id: str) -> Any:
        return self.std_msgs.Header(stamp=self._time(stamp_ns), frame_id=frame_id)

    def _time(self, stamp_ns: int) -> Any:
        return self.rospy.Time(*divmod(stamp_ns, _NS_PER_S))


class _Ros1Wire(Wire):
    def __init__(self, ros: _Ros1):
        self._ros = ros
        self._master = _MasterWatch(os.environ.get("ROS_MASTER_URI", "http://localhost:11311"))
        if not ros.rospy.core.is_initialized():
            # Signals are the program's own; more than one simulation may run on one master.
            ros.rospy.init_node(_NODE, anonymous=True, disable_signals=True)
        self._topics: dict[str, _Ros1Topic] = {}
        self._master.start(self._register_again)

    @property
    def status(self) -> TransportStatus:
        return self._master.status

    def open(self, topic: str, message_type: MessageType) -> TopicWriter:
        writer = _Ros1Topic(self._ros, topic, message_type, self._topics)
        self._topics[topic] = writer
        return writer

    def close(self) -> None:
        self._master.stop()

    def _register_again(self) -> None:
        """Tell a master that has forgotten us, or never knew us, what we offer."""
        caller, uri = self._ros.rospy.get_name(), self._ros.rospy.core.get_node_uri()
        for name, topic in list(self._topics.items()):
            self._master.call("registerPublisher", caller, name, topic.type_name, uri)


class _Ros1Topic(TopicWriter):
    def __init__(self, ros: _Ros1, topic: str, message_type: MessageType, topics: dict[str, "_Ros1Topic"]):
        message_class = ros.message_class(message_type)
        self.type_name: str = message_class._type
        self._ros = ros
        self._topic = topic
        self._topics = topics
        self._publisher = ros.rospy.Publisher(topic, message_class, queue_size=_DEPTH, tcp_nodelay=True)

    @property
    def reader_count(self) -> int:
        return self._publisher.get_num_connections()

    def encode(self, content: Content) -> Any:
        return self._ros.message(content)

    def send(self, message: Any) -> None:
        self._publisher.publish(message)

    def close(self) -> None:
        self._topics.pop(self._topic, None)
        self._publisher.unregister()


class _MasterWatch:
    """Looks after the master, on a thread of its own.

    Raises:
        TransportError: No master answers.
    """

    def __init__(self, uri: str):
        self.uri = uri
        self.status = _OK
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            self._pid = self._ask_pid()
        except OSError as error:
            raise TransportError("Publishing over ROS 1 is not possible", self._unreachable(error)) from error

    def start(self, register_again: Any) -> None:
        """Watch, and call `register_again` once a master has come back."""
        self._thread = threading.Thread(target=self._run, args=(register_again,), name="ros master watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def call(self, method: str, *arguments: Any) -> Any:
        """Ask the master.

        Raises:
            OSError: It does not answer.
        """
        transport = _TimeoutTransport(_MASTER_TIMEOUT_S)
        with xmlrpc.client.ServerProxy(self.uri, transport=transport) as master:
            try:
                code, message, value = getattr(master, method)(*arguments)
            except xmlrpc.client.Error as error:
                raise ConnectionError(str(error)) from error
        if code != 1:
            raise ConnectionError(message)
        return value

    def _run(self, register_again: Any) -> None:
        while not self._stopped.wait(_WATCH_INTERVAL_S):
            try:
                pid = self._ask_pid()
                if pid != self._pid or not self.status.ok:
                    register_again()
                    _logger.info("The ROS master at %s is back", self.uri)
                self._pid, self.status = pid, _OK
            except OSError as error:
                if self.status.ok:
                    _logger.warning("The ROS master at %s does not answer: %s", self.uri, error)
                self.status = self._unreachable(error)

    def _ask_pid(self) -> int:
        return self.call("getPid", f"/{_NODE}")

    def _unreachable(self, error: OSError) -> TransportStatus:
        host = urlparse(self.uri).netloc or self.uri
        return TransportStatus(TransportStatusCode.MASTER_UNREACHABLE, f"No ROS master answers at {host}: {error}")


class _TimeoutTransport(xmlrpc.client.Transport):
    """HTTP that does not wait for ever."""

    def __init__(self, timeout: float):
        super().__init__()
        self._timeout = timeout

    def make_connection(self, host: Any) -> Any:
        connection = super().make_connection(host)
        with suppress(AttributeError):
            connection.timeout = self._timeout
        return connection
