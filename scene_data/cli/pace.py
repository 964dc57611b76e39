"""Real time for a run that no viewer paces."""

import time

__all__ = ["Pace"]

_CATCH_UP_SECONDS = 0.25


class Pace:
    """Holds a simulation to a multiple of real time.

    One that is too slow runs as fast as it can, and does not hurry later to make up for it.

    Args:
        speed: The multiple.
    """

    def __init__(self, speed: float):
        self._speed = speed
        self._until = time.monotonic()

    def wait(self, seconds: float) -> None:
        """Wait until this much more simulation time [s] may have passed."""
        now = time.monotonic()
        self._until = max(self._until, now - _CATCH_UP_SECONDS) + seconds / self._speed
        if (ahead := self._until - now) > 0.0:
            time.sleep(ahead)
