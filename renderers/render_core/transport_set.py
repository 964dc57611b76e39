"""TransportSet: the transports of one simulation, none of which can stop it by failing."""

import logging
from collections.abc import Callable

from .publication import FrameTransport

__all__ = ["TransportSet"]

_logger = logging.getLogger(__name__)


class TransportSet:
    """Calls transports one after the other. One that fails is logged and taken out, and the others go on."""

    def __init__(self):
        self._transports: tuple[FrameTransport, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._transports)

    def add(self, transport: FrameTransport) -> None:
        """Call it from now on."""
        self._transports = (*self._transports, transport)

    def remove(self, transport: FrameTransport) -> None:
        """Call it no longer.

        Raises:
            ValueError: It was not added, or fell out because it failed.
        """
        if not any(other is transport for other in self._transports):
            raise ValueError(f"{transport!r} is not among the transports of this simulation")
        self._transports = tuple(other for other in self._transports if other is not transport)

    def each(self, call: Callable[[FrameTransport], None]) -> None:
        """Call each transport."""
        for transport in self._transports:
            try:
                call(transport)
            except Exception:
                _logger.exception("%s failed and publishes no longer", type(transport).__name__)
                self.remove(transport)
                try:
                    transport.close()
                except Exception:
                    _logger.exception("closing %s failed", type(transport).__name__)

    def close(self) -> list[Exception]:
        """Close all, and return what was raised by those that failed to."""
        failures: list[Exception] = []
        transports, self._transports = self._transports, ()
        for transport in transports:
            try:
                transport.close()
            except Exception as failure:  # the others get their turn
                _logger.exception("closing %s failed", type(transport).__name__)
                failures.append(failure)
        return failures
