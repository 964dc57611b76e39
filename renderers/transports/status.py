"""How a transport is doing, by name and in numbers."""

from dataclasses import dataclass
from enum import Enum

from scene_data.errors import SceneDataError

__all__ = ["CameraCounts", "TransportError", "TransportStatus", "TransportStatusCode"]


class TransportStatusCode(Enum):
    """Health of a transport.

    MASTER_UNREACHABLE: the ROS 1 master does not answer; connected subscribers are served, new ones cannot find us.
    DISK_FULL and WRITE_FAILED: the file takes no more, and is readable up to its last chunk. FAILED: a middleware
    reported what has no name of its own. PORT_IN_USE: another program listens there. STOPPED: closed.

    In shared memory, SLOTS_EXHAUSTED: readers hold all the room for frames. NAME_IN_USE: another producer has the name.
    NO_PRODUCER: nobody has it. PRODUCER_DIED: whoever had it ended without closing. STALE_GENERATION: the cameras were
    replaced.
    """

    OK = "ok"
    MASTER_UNREACHABLE = "master_unreachable"
    DISK_FULL = "disk_full"
    WRITE_FAILED = "write_failed"
    FAILED = "failed"
    SLOTS_EXHAUSTED = "slots_exhausted"
    NAME_IN_USE = "name_in_use"
    NO_PRODUCER = "no_producer"
    PRODUCER_DIED = "producer_died"
    STALE_GENERATION = "stale_generation"
    PORT_IN_USE = "port_in_use"
    STOPPED = "stopped"


@dataclass(frozen=True)
class TransportStatus:
    """Health of a transport, and what it has to say about it.

    Attributes:
        code: What is the matter.
        message: More for people; may be empty.
    """

    code: TransportStatusCode
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether all is well."""
        return self.code is TransportStatusCode.OK


@dataclass(frozen=True)
class CameraCounts:
    """What became of a camera's frames.

    Attributes:
        published: Captures that went out.
        dropped: Captures that did not: a newer one displaced them, or nobody wanted them any more.
    """

    published: int
    dropped: int


class TransportError(SceneDataError, RuntimeError):
    """A transport that cannot be opened.

    Attributes:
        status: Why.
    """

    def __init__(self, what: str, status: TransportStatus):
        self.status = status
        super().__init__(f"{what}: {status.code.name}. {status.message}".rstrip())
