"""Frames for other programs: in this process, in shared memory, over ROS 1 and ROS 2, into MCAP files, in the browser.

Those to ROS and MCAP need libraries of their own, which are imported when the transport is first named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scene_data.optional import optional_libraries

from .queue import BoundedPublicationQueue, PublicationItem, PublicationWorker
from .status import TransportError, TransportStatus, TransportStatusCode

if TYPE_CHECKING:
    from .frame_consumer import ConsumerMode, FrameConsumer
    from .mcap import McapTransport
    from .python import CameraPublicationTransport
    from .ros1 import MissingRosError, Ros1Transport
    from .ros2 import Ros2Transport
    from .shared_memory import SharedMemoryTransport
    from .shared_memory_reader import SharedFrameLease, SharedMemoryReader
    from .stream import StreamTransport

_LAZY = {
    "CameraPublicationTransport": ".python",
    "ConsumerMode": ".frame_consumer",
    "FrameConsumer": ".frame_consumer",
    "McapTransport": ".mcap",
    "MissingRosError": ".ros1",
    "Ros1Transport": ".ros1",
    "Ros2Transport": ".ros2",
    "SharedFrameLease": ".shared_memory_reader",
    "SharedMemoryReader": ".shared_memory_reader",
    "SharedMemoryTransport": ".shared_memory",
    "StreamTransport": ".stream",
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
    "SharedFrameLease",
    "SharedMemoryReader",
    "SharedMemoryTransport",
    "StreamTransport",
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
