"""What the render thread does next: at most one queued turn, and the calls that change its backend."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from .durations import Durations
from .status import FrameStatus, FrameStatusCode
from .turns import RenderTurn

__all__ = ["Call", "TurnQueue"]

_BUSY = FrameStatus(FrameStatusCode.BUSY, message="a turn is still queued or rendering")

Call = tuple[Future[Any], Callable[[], Any]]


class TurnQueue:
    """Hands turns and calls to the render thread, and the outcome of turns back.

    Attributes:
        changed: Guards everything here, and what its owner has to change together with it. Reentrant.
        turn_count: Turns that were queued.
        outcomes: How turns ended and submissions were refused, by the name of the status code.
        queue_times: How long turns were queued, those included that then were stale.
        last_turn_capture_id: Capture id in the status of the turn that ended last.
        is_stopped: No further calls or turns are taken.
    """

    def __init__(self):
        self.changed = threading.Condition()
        self.turn_count = 0
        self.outcomes: Counter[str] = Counter()
        self.queue_times = Durations()
        self.last_turn_capture_id = 0
        self.is_stopped = False
        self._calls: deque[Call] = deque()
        self._queued: RenderTurn | None = None
        self._queued_at = 0.0
        self._rendering: RenderTurn | None = None
        self._ended: FrameStatus | None = None

    def submit(self, turn: RenderTurn) -> bool:
        """Queue a turn; false when another one is queued."""
        with self.changed:
            if self._queued is not None:
                return False
            self._queued, self._queued_at = turn, time.monotonic()
            self.turn_count += 1
            self.changed.notify_all()
            return True

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a function on the render thread, before the queued turn, and return its result; None when stopped."""
        future: Future[Any] = Future()
        with self.changed:
            if self.is_stopped:
                return None
            self._calls.append((future, function))
            self.changed.notify_all()
        return future.result()

    def stop(self) -> None:
        """Take no further calls or turns, and let the render thread end."""
        with self.changed:
            self.is_stopped = True
            self.changed.notify_all()

    def next_task(self) -> Call | RenderTurn | None:
        """For the render thread: wait for a call or a turn, a call first. None when stopped and nothing is left."""
        with self.changed:
            self.changed.wait_for(lambda: self._calls or self._queued or self.is_stopped)
            if self._calls:
                return self._calls.popleft()
            self._rendering = self._queued  # in this order: in between, too, the queue is seen to be busy
            self._queued = None
            if self._rendering is not None:
                self.queue_times.note(time.monotonic() - self._queued_at)
            return self._rendering

    def end_rendering(self, status: FrameStatus) -> None:
        """For the render thread: the turn got from `next_task` ended."""
        with self.changed:
            self._rendering = None
            self._note_end(status)

    def drop_queued(self, status: FrameStatus) -> RenderTurn | None:
        """End the queued turn, if there is one, and return it."""
        with self.changed:
            turn, self._queued = self._queued, None
            if turn is not None:
                self._note_end(status)
            return turn

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or rendering."""
        return self._queued is None and self._rendering is None

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is queued or rendering; false after the timeout."""
        with self.changed:
            return self.changed.wait_for(lambda: self.is_idle, timeout)

    def finish(self, timeout: float | None) -> FrameStatus:
        """Wait until idle and take the status of the turn that ended last, OK for none; BUSY after the timeout."""
        if timeout == 0.0 and not self.is_idle:
            return _BUSY  # asked at every step of a simulation that runs freely: without the lock
        with self.changed:
            if not self.wait_until_idle(timeout):
                return _BUSY
            status, self._ended = self._ended, None
            return status or FrameStatus(FrameStatusCode.OK)

    def _note_end(self, status: FrameStatus) -> None:
        self._ended = status
        self.last_turn_capture_id = status.capture_id
        self.outcomes[status.code.name] += 1
        self.changed.notify_all()
