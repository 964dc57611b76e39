"""Frames for other programs: in this process, over ROS 1 and ROS 2, and into MCAP files.

Every transport but the Python one needs a library of its own, which is imported when the transport is first named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scene_data.optional import optional_libraries

from .queue import BoundedPublicationQueue, PublicationItem, PublicationWorker
from .status import TransportError, TransportStatus, TransportStatusCode

if TYPE_CHECKING:
    from .mcap import McapTransport
    from .python import CameraPublicationTransport, ConsumerMode, FrameConsumer
    from .ros1 import MissingRosError, Ros1Transport
    from .ros2 import Ros2Transport

_LAZY = {
    "CameraPublicationTransport": ".python",
    "ConsumerMode": ".python",
    "FrameConsumer": ".python",
    "McapTransport": ".mcap",
    "MissingRosError": ".ros1",
    "Ros1Transport": ".ros1",
    "Ros2Transport": ".ros2",
}

__all__ = [
    "BoundedPublicationQueue",
    "CameraPublicationTransport",
    "ConsumerMode",
    "FrameConsumer",
    "McapTransport",
    "MissingRosError",
    "PublicationItem",
    "PublicationWorker",
    "Ros1Transport",
    "Ros2Transport",
    "TransportError",
    "TransportStatus",
    "TransportStatusCode",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with optional_libraries(name):
        return getattr(import_module(_LAZY[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
