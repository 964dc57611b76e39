"""The topics of ROS 2 on its DDS wire, without ROS: the names, types and qualities of service that its nodes expect."""

import logging
from dataclasses import dataclass
from typing import Any, TypeVar

from cyclonedds.core import DDSException
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import array, float64, int32, sequence, uint8, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy, Qos
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from .camera_messages import Content
from .cdr import encode_cdr
from .ros2_definitions import QUEUE_DEPTHS
from .status import TransportError, TransportStatus, TransportStatusCode
from .wire import MessageType, TopicWriter, Wire

__all__ = ["DDS_TYPES", "CycloneDdsWire", "dds_topic"]

_logger = logging.getLogger(__name__)

# How long a writer waits for readers that do not keep up. History is keep-last, so it hardly ever has to.
_MAX_BLOCKING_MS = 20

_MessageClass = TypeVar("_MessageClass", bound=Any)

_OK = TransportStatus(TransportStatusCode.OK)


def _sent_as_cdr(message_class: _MessageClass) -> _MessageClass:
    """Let messages of a class be sent as the bytes in their `cdr`. The library would pack a picture byte by byte."""
    message_class.serialize = lambda self, *_, **__: self.cdr
    return message_class


@dataclass
class Time(IdlStruct, typename="builtin_interfaces::msg::dds_::Time_"):
    """`builtin_interfaces/msg/Time`."""

    sec: int32
    nanosec: uint32


@dataclass
class Header(IdlStruct, typename="std_msgs::msg::dds_::Header_"):
    """`std_msgs/msg/Header`."""

    stamp: Time
    frame_id: str


@dataclass
class RegionOfInterest(IdlStruct, typename="sensor_msgs::msg::dds_::RegionOfInterest_"):
    """`sensor_msgs/msg/RegionOfInterest`."""

    x_offset: uint32
    y_offset: uint32
    height: uint32
    width: uint32
    do_rectify: bool


@dataclass
class Vector3(IdlStruct, typename="geometry_msgs::msg::dds_::Vector3_"):
    """`geometry_msgs/msg/Vector3`."""

    x: float64
    y: float64
    z: float64


@dataclass
class Quaternion(IdlStruct, typename="geometry_msgs::msg::dds_::Quaternion_"):
    """`geometry_msgs/msg/Quaternion`."""

    x: float64
    y: float64
    z: float64
    w: float64


@dataclass
class Transform(IdlStruct, typename="geometry_msgs::msg::dds_::Transform_"):
    """`geometry_msgs/msg/Transform`."""

    translation: Vector3
    rotation: Quaternion


@dataclass
class TransformStamped(IdlStruct, typename="geometry_msgs::msg::dds_::TransformStamped_"):
    """`geometry_msgs/msg/TransformStamped`."""

    header: Header
    child_frame_id: str
    transform: Transform


@_sent_as_cdr
@dataclass
class Image(IdlStruct, typename="sensor_msgs::msg::dds_::Image_"):
    """`sensor_msgs/msg/Image`."""

    header: Header
    height: uint32
    width: uint32
    encoding: str
    is_bigendian: uint8
    step: uint32
    data: sequence[uint8]


@_sent_as_cdr
@dataclass
class CameraInfo(IdlStruct, typename="sensor_msgs::msg::dds_::CameraInfo_"):
    """`sensor_msgs/msg/CameraInfo`."""

    header: Header
    height: uint32
    width: uint32
    distortion_model: str
    d: sequence[float64]
    k: array[float64, 9]
    r: array[float64, 9]
    p: array[float64, 12]
    binning_x: uint32
    binning_y: uint32
    roi: RegionOfInterest


@_sent_as_cdr
@dataclass
class TFMessage(IdlStruct, typename="tf2_msgs::msg::dds_::TFMessage_"):
    """`tf2_msgs/msg/TFMessage`."""

    transforms: sequence[TransformStamped]


@_sent_as_cdr
@dataclass
class Clock(IdlStruct, typename="rosgraph_msgs::msg::dds_::Clock_"):
    """`rosgraph_msgs/msg/Clock`."""

    clock: Time


DDS_TYPES: dict[MessageType, Any] = {
    MessageType.IMAGE: Image,
    MessageType.CAMERA_INFO: CameraInfo,
    MessageType.TRANSFORMS: TFMessage,
    MessageType.CLOCK: Clock,
}


def dds_topic(topic: str) -> str:
    """What ROS 2 calls a topic on the wire."""
    return f"rt{topic}"


class CycloneDdsWire(Wire):
    """A participant of a DDS domain. Where it may go, CYCLONEDDS_URI says.

    Args:
        domain: ROS 2 domain.

    Raises:
        TransportError: The domain cannot be joined.
    """

    def __init__(self, domain: int):
        self._status = _OK
        try:
            self._participant: Any = DomainParticipant(domain)
        except DDSException as error:
            status = TransportStatus(TransportStatusCode.FAILED, str(error))
            raise TransportError(f"ROS 2 domain {domain} cannot be joined", status) from error

    @property
    def status(self) -> TransportStatus:
        """The last failure, until something is sent again."""
        return self._status

    def open(self, topic: str, message_type: MessageType) -> TopicWriter:
        """Offer a topic."""
        return _DdsTopic(self, self._participant, topic, message_type)

    def note(self, status: TransportStatus) -> None:
        """Say how it went."""
        if status.code is not self._status.code and not status.ok:
            _logger.warning("ROS 2: %s", status.message)
        self._status = status

    def close(self) -> None:
        """Leave the domain."""
        self._participant = None  # the library ends what nobody refers to


class _DdsTopic(TopicWriter):
    def __init__(self, wire: CycloneDdsWire, participant: Any, topic: str, message_type: MessageType):
        self._wire = wire
        self._topic = topic
        self._type = DDS_TYPES[message_type]
        reliability = Policy.Reliability.Reliable(duration(milliseconds=_MAX_BLOCKING_MS))
        qos = Qos(
            Policy.Reliability.BestEffort if message_type is MessageType.CLOCK else reliability,
            Policy.Durability.Volatile,
            Policy.History.KeepLast(QUEUE_DEPTHS[message_type]),
            Policy.DataRepresentation(use_cdrv0_representation=True),
        )
        self._writer: Any = DataWriter(participant, Topic(participant, dds_topic(topic), self._type), qos)

    @property
    def reader_count(self) -> int:
        writer = self._writer
        return writer.get_publication_matched_status().current_count if writer is not None else 0

    def encode(self, content: Content) -> Any:
        message = self._type.__new__(self._type)
        message.cdr = encode_cdr(content)
        return message

    def send(self, message: Any) -> None:
        try:
            self._writer.write(message)
            self._wire.note(_OK)
        except DDSException as error:
            self._wire.note(TransportStatus(TransportStatusCode.FAILED, f"{self._topic}: {error}"))

    def close(self) -> None:
        self._writer = None
