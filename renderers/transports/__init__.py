"""Frames for other programs: in this process, in shared memory, over ROS 1 and ROS 2, into MCAP files, in the browser.

Those to ROS and MCAP need libraries of their own, which are imported when the transport is first named.
"""

from typing import TYPE_CHECKING

from scene_data.optional import lazy_names

from .queue import BoundedPublicationQueue, PublicationItem, PublicationWorker
from .status import TransportError, TransportStatus, TransportStatusCode

if TYPE_CHECKING:
    from .frame_consumer import ConsumerMode, FrameConsumer
    from .mcap import McapTransport as McapTransport
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

# Without the names that need an optional library: `import *` works where it is missing.
__all__ = [
    "BoundedPublicationQueue",
    "CameraPublicationTransport",
    "ConsumerMode",
    "FrameConsumer",
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


__getattr__, __dir__ = lazy_names(__name__, _LAZY, __all__)
