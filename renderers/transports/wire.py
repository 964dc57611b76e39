"""What carries topics: a middleware, or a file."""

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any

from .camera_messages import Content
from .status import TransportStatus

__all__ = ["MessageType", "TopicWriter", "Wire"]


class MessageType(Enum):
    """What a topic carries, by ROS's names."""

    IMAGE = "sensor_msgs/Image"
    CAMERA_INFO = "sensor_msgs/CameraInfo"
    TRANSFORMS = "tf2_msgs/TFMessage"
    CLOCK = "rosgraph_msgs/Clock"


class TopicWriter(ABC):
    """One topic of a middleware. Thread-safe."""

    @property
    @abstractmethod
    def reader_count(self) -> int:
        """How many listen; asked often, and must not wait."""

    @abstractmethod
    def encode(self, content: Content) -> Any:
        """What `send` takes. It shares no memory with the content, and the call waits for nobody."""

    @abstractmethod
    def send(self, message: Any) -> None:
        """Send what was encoded; may wait."""

    @abstractmethod
    def close(self) -> None:
        """Offer the topic no longer."""


class Wire(ABC):
    """A middleware, or a file, that carries topics."""

    @abstractmethod
    def open(self, topic: str, message_type: MessageType) -> TopicWriter:
        """Offer a topic; its name is absolute."""

    @property
    @abstractmethod
    def status(self) -> TransportStatus:
        """How it is doing."""

    @abstractmethod
    def close(self) -> None:
        """End it, after its topics were closed."""
