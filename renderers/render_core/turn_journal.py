"""What is logged of turns: that they began to fail, and that they work again; not each one of them."""

import logging

from .status import FrameStatus, FrameStatusCode

__all__ = ["TurnJournal"]

_log = logging.getLogger(__name__)


class TurnJournal:
    """Logs where one turn ends otherwise than the one before. For the render thread alone."""

    def __init__(self):
        self._last = FrameStatusCode.OK
        self._failures = 0

    def note(self, status: FrameStatus) -> None:
        """A turn that was rendered ended."""
        if not status.ok:
            self._failures += 1
            if status.code is not self._last:
                _log.warning("Turns end with %s. %s", status.code.name, status.message)
        elif self._failures:
            _log.info("Turns end well again, after %d that did not", self._failures)
            self._failures = 0
        self._last = status.code
