"""BriefLock: for sections of a few microseconds that many Python threads enter all the time."""

import threading
import time

__all__ = ["BriefLock"]


class BriefLock:
    """A mutual exclusion lock that waits by yielding. Not reentrant; only for `with`.

    A thread that blocks on an ordinary lock owns it as soon as it is released, before it has Python's own lock to run.
    Whoever runs meanwhile blocks on it in turn, and all threads go on at the pace of context switches. Here a waiting
    thread owns nothing until it runs.
    """

    __slots__ = ("_lock",)

    def __init__(self):
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        while not self._lock.acquire(False):
            time.sleep(0)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
