"""Camera frames over ROS 1, through rospy."""

import importlib
import os
from dataclasses import dataclass
from typing import Any

from scene_data.errors import MissingDependencyError

from .camera_messages import (
    IS_BIG_ENDIAN,
    CameraInfoContent,
    ClockContent,
    Content,
    ImageContent,
    TransformContent,
)
from .ros1_master import MasterWatch, Registrar
from .status import TransportStatus
from .topics import TopicTransport
from .wire import MessageType, TopicWriter, Wire

__all__ = ["MissingRosError", "Ros1Transport"]

_NODE = "scene_data"
_DEPTH = 2
_NS_PER_S = 1_000_000_000


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
        self._master = MasterWatch(os.environ.get("ROS_MASTER_URI", "http://localhost:11311"))
        if not ros.rospy.core.is_initialized():
            # Signals are the program's own; more than one simulation may run on one master.
            ros.rospy.init_node(_NODE, anonymous=True, disable_signals=True)
        self._topics: dict[str, _Ros1Topic] = {}
        self._registrar = Registrar()
        self._master.start(self._register_again)

    @property
    def status(self) -> TransportStatus:
        return self._master.status

    def open(self, topic: str, message_type: MessageType) -> TopicWriter:
        writer = _Ros1Topic(self._ros, topic, message_type, self._registrar, self._topics)
        self._topics[topic] = writer
        return writer

    def close(self) -> None:
        self._registrar.close()
        self._master.stop()

    def _register_again(self) -> None:
        """Tell a master that has forgotten us, or never knew us, what we offer."""
        caller, uri = self._ros.rospy.get_name(), self._ros.rospy.core.get_node_uri()
        for name, topic in list(self._topics.items()):
            self._master.call("registerPublisher", caller, name, topic.type_name, uri)


class _Ros1Topic(TopicWriter):
    """A topic that is on offer as soon as the master knows of it.

    rospy sends to each subscriber from a thread of its own, out of a queue of its own that drops the oldest message.
    """

    def __init__(
        self,
        ros: _Ros1,
        topic: str,
        message_type: MessageType,
        registrar: Registrar,
        topics: dict[str, "_Ros1Topic"],
    ):
        self._message_class = ros.message_class(message_type)
        self.type_name: str = self._message_class._type
        self._ros = ros
        self._topic = topic
        self._registrar = registrar
        self._topics = topics
        self._publisher: Any = None
        registrar.do(self._advertise)

    @property
    def reader_count(self) -> int:
        publisher = self._publisher
        return 0 if publisher is None else publisher.get_num_connections()

    def encode(self, content: Content) -> Any:
        return self._ros.message(content)

    def send(self, message: Any) -> None:
        publisher = self._publisher
        if publisher is not None:
            publisher.publish(message)

    def close(self) -> None:
        self._topics.pop(self._topic, None)
        self._registrar.do(self._withdraw)

    def _advertise(self) -> None:
        rospy = self._ros.rospy
        self._publisher = rospy.Publisher(self._topic, self._message_class, queue_size=_DEPTH, tcp_nodelay=True)

    def _withdraw(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.unregister()
