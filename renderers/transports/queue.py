"""How a camera's frames leave: a bounded queue in which the latest wins, and the thread that empties it."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from typing import Generic, TypeVar

__all__ = ["BoundedPublicationQueue", "PublicationItem", "PublicationWorker"]

_Content = TypeVar("_Content")

_BUSY = 1
_STEP = 2

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublicationItem(Generic[_Content]):
    """Something to publish.

    Attributes:
        content: What it is.
        sequence: Publication sequence of the queue when it was put in.
    """

    content: _Content
    sequence: int


class BoundedPublicationQueue(Generic[_Content]):
    """Hands items from a thread that must not wait to one that may.

    A full queue drops its oldest item: the latest wins. The publication sequence says for which demand an item was
    made: `superseding()` sets its low bit while the demand changes and leaves it two higher, and items of an earlier
    sequence no longer go out. Thread-safe.

    Args:
        depth: Items that wait at most.

    Raises:
        ValueError: A depth below 1.
    """

    def __init__(self, depth: int = 2):
        if index(depth) < 1:
            raise ValueError(f"a publication queue needs a depth of at least 1, not {depth}")
        self.depth = index(depth)
        self._changed = threading.Condition()
        self._items: deque[PublicationItem[_Content]] = deque()
        self._sequence = 0
        self._dropped = 0
        self._closed = False
        self._unfinished = 0

    @property
    def sequence(self) -> int:
        """Publication sequence: odd while the demand changes."""
        return self._sequence

    @property
    def dropped(self) -> int:
        """Items that were put in and did not go out."""
        return self._dropped

    @property
    def is_closed(self) -> bool:
        """Whether items are refused."""
        return self._closed

    def __len__(self) -> int:
        return len(self._items)

    def put(self, content: _Content) -> bool:
        """Add an item, in place of the oldest where the queue is full. Never waits.

        Returns:
            Whether it was taken: not once the queue is closed, nor while the demand changes.
        """
        with self._changed:
            if self._closed or self._sequence & _BUSY:
                return False
            if len(self._items) == self.depth:
                self._items.popleft()
                self._dropped += 1
                self._unfinished -= 1
            self._items.append(PublicationItem(content, self._sequence))
            self._unfinished += 1
            self._changed.notify_all()
            return True

    def take(self, timeout: float | None = None) -> PublicationItem[_Content] | None:
        """The oldest item that is still wanted, waited for up to `timeout` [s]; None after it, or at the end.

        A closed queue first hands out what is left in it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed, timeout)
            return self._items.popleft() if self._items else None

    def admits(self, item: PublicationItem[_Content]) -> bool:
        """Whether an item is still wanted; to be asked right before it goes out. One that is not counts as dropped."""
        with self._changed:
            if item.sequence == self._sequence:
                return True
            self._dropped += 1
            return False

    def finish(self) -> None:
        """Say that an item that was taken has gone out, or was dropped."""
        with self._changed:
            self._unfinished -= 1
            self._changed.notify_all()

    def wait_finished(self, timeout: float | None = None) -> bool:
        """Wait until nothing waits and what was taken is finished; False when `timeout` [s] was not enough."""
        with self._changed:
            return self._changed.wait_for(lambda: self._unfinished == 0, timeout)

    @contextmanager
    def superseding(self) -> Iterator[None]:
        """While the demand changes: nothing is taken in and nothing goes out; what waits is dropped."""
        with self._changed:
            self._sequence |= _BUSY
            self._drop_all()
        try:
            yield
        finally:
            with self._changed:
                self._sequence = (self._sequence & ~_BUSY) + _STEP

    def close(self, drain: bool = True) -> None:
        """Refuse further items; the waiting ones are still handed out, or with `drain=False` dropped."""
        with self._changed:
            self._closed = True
            if not drain:
                self._drop_all()
            self._changed.notify_all()

    def _drop_all(self) -> None:
        self._dropped += len(self._items)
        self._unfinished -= len(self._items)
        self._items.clear()
        self._changed.notify_all()


class PublicationWorker(Generic[_Content]):
    """Publishes what a queue holds, on a thread of its own.

    Args:
        name: Of the thread.
        publish: Publishes one item; may wait. What it raises is logged, and the worker goes on.
        depth: Of the queue.

    Attributes:
        queue: Where items are put.
        published: Items that went out.
    """

    def __init__(self, name: str, publish: Callable[[_Content], None], depth: int = 2):
        self.queue: BoundedPublicationQueue[_Content] = BoundedPublicationQueue(depth)
        self.published = 0
        self._publish = publish
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self, drain: bool = True, timeout: float | None = None) -> bool:
        """Refuse further items, publish or drop those that wait, and end the thread.

        Args:
            drain: Whether what waits still goes out.
            timeout: Longest wait for that [s]; afterwards what is left is dropped, and a thread that hangs in its
                publication is left to end with it.

        Returns:
            Whether the thread ended.
        """
        self.queue.close(drain)
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.queue.close(drain=False)
        return not self._thread.is_alive()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that was put in is published or dropped; False when `timeout` [s] was not enough."""
        return self.queue.wait_finished(timeout)

    def _run(self) -> None:
        while (item := self.queue.take()) is not None:
            if self.queue.admits(item):
                self._publish_logged(item.content)
            del item  # or its frames would be held while the queue is empty
            self.queue.finish()

    def _publish_logged(self, content: _Content) -> None:
        try:
            self._publish(content)
            self.published += 1
        except Exception:  # whoever fails to take a frame must not end those of the next
            _logger.exception("%s failed to publish", self._thread.name)
