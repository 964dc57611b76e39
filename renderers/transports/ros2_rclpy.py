"""The topics of ROS 2 through rclpy, which publishes messages that are in CDR already as they are."""

from importlib import import_module
from typing import Any

import rclpy  # pyright: ignore[reportMissingImports]
from rclpy.context import Context  # pyright: ignore[reportMissingImports]
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy  # pyright: ignore[reportMissingImports]

from .camera_messages import Content
from .cdr import encode_cdr
from .ros2_definitions import QUEUE_DEPTHS, ROS2_TYPES
from .status import TransportStatus, TransportStatusCode
from .wire import MessageType, TopicWriter, Wire

__all__ = ["RclpyWire"]

_NODE = "scene_data"


class RclpyWire(Wire):
    """A node of its own, in a context of its own, so that the program's rclpy is left alone.

    Args:
        domain: ROS 2 domain.
    """

    def __init__(self, domain: int):
        self._context = Context()
        rclpy.init(context=self._context, domain_id=domain)
        self._node: Any = rclpy.create_node(_NODE, context=self._context)

    @property
    def status(self) -> TransportStatus:
        """Whether the context is still there."""
        return TransportStatus(TransportStatusCode.OK if self._context.ok() else TransportStatusCode.FAILED)

    def open(self, topic: str, message_type: MessageType) -> TopicWriter:
        """Offer a topic."""
        package, _, name = ROS2_TYPES[message_type].split("/")
        message_class = getattr(import_module(f"{package}.msg"), name)
        is_clock = message_type is MessageType.CLOCK
        qos = QoSProfile(
            history=HistoryPolicy.KEEP_LAST,
            depth=QUEUE_DEPTHS[message_type],
            reliability=ReliabilityPolicy.BEST_EFFORT if is_clock else ReliabilityPolicy.RELIABLE,
            durability=DurabilityPolicy.VOLATILE,
        )
        return _RclpyTopic(self._node, self._node.create_publisher(message_class, topic, qos))

    def close(self) -> None:
        """End the node and its context."""
        self._node.destroy_node()
        self._context.shutdown()


class _RclpyTopic(TopicWriter):
    def __init__(self, node: Any, publisher: Any):
        self._node = node
        self._publisher = publisher

    @property
    def reader_count(self) -> int:
        return self._publisher.get_subscription_count()

    def encode(self, content: Content) -> bytes:
        return encode_cdr(content)

    def send(self, message: bytes) -> None:
        self._publisher.publish(message)

    def close(self) -> None:
        self._node.destroy_publisher(self._publisher)
