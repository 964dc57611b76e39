"""How a plane gets into the frame store: a reservation that becomes visible at its commit, or never."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .layout import FrameStamp
from .leases import FrameLease, Hold
from .slots import FrameSlot
from .status import FrameStatus, FrameStatusCode

if TYPE_CHECKING:
    from .frames import FrameBoundary

__all__ = ["FrameWriter"]


class FrameWriter:
    """One reserved slot, to be filled and committed. Ended in any other way, it gives its reservation back.

    Attributes:
        status: Whether it was granted, and if not, why; after a failed commit the reason for that.
        buffer: Writable Warp array (num_envs, height, width, channels) of the layout's dtype, with arbitrary contents
            at first; None when the writer was refused or has ended. Whoever keeps it longer must not write to it.
    """

    def __init__(
        self,
        boundary: "FrameBoundary",
        status: FrameStatus,
        slot: FrameSlot | None = None,
        hold: Hold | None = None,
        buffer: Any = None,
        stamp: FrameStamp | None = None,
        epoch: int = 0,
    ):
        self.status = status
        self.buffer = buffer
        self._boundary = boundary
        self._slot = slot
        self._hold = hold
        self._stamp = stamp
        self._epoch = epoch

    def commit(self) -> FrameStatus:
        """Make the frame visible and end the writer. On CUDA the work enqueued so far on the current stream makes it.

        Returns:
            OK with the capture id; STALE_GENERATION after a reconfigure; STOPPED; FRAME_UNAVAILABLE when the writer has
            ended before; for a refused writer its refusal.
        """
        if not self.status.ok:
            return self.status
        if self._hold is None:
            return replace(self.status, code=FrameStatusCode.FRAME_UNAVAILABLE, message="the writer has ended")
        self.status = self._boundary._commit(self, self._epoch)
        self.close()
        return self.status

    def lease(self) -> FrameLease | None:
        """Lease on the committed frame; None before the commit, and when the frame was evicted or superseded."""
        if self._slot is None or self._stamp is None:
            return None
        return self._boundary._lease_of(self._slot, self._stamp)

    def close(self) -> None:
        """End the writer; without a commit before, nothing of it becomes visible."""
        self.buffer = None
        self._hold = None

    def __enter__(self) -> "FrameWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
