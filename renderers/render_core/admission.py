"""InFlightGuard: lets a reload know when no turn is under way, without holding the physics lock for it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["InFlightGuard"]


class InFlightGuard:
    """Counts the turns that run without the physics lock, and can be closed to new ones."""

    def __init__(self):
        self._changed = threading.Condition()
        self._count = 0
        self._is_open = True

    @property
    def count(self) -> int:
        """Turns under way."""
        return self._count

    def enter(self) -> bool:
        """Begin a turn; False where admission is closed, and then there is nothing to leave."""
        with self._changed:
            if self._is_open:
                self._count += 1
            return self._is_open

    def leave(self) -> None:
        """End a turn."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Admit no further turn."""
        with self._changed:
            self._is_open = False

    def open(self) -> None:
        """Admit turns again."""
        with self._changed:
            self._is_open = True

    def wait_empty(self, timeout: float | None = None) -> bool:
        """Wait until no turn is under way; False when `timeout` [s] was not enough."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Closed inside the block, and open again after it."""
        self.close()
        try:
            yield
        finally:
            self.open()
