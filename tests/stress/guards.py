"""What watches a stress run from outside: nothing may stand still, and nothing may be left behind."""

import faulthandler
import gc
import mmap
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

STANDSTILL_S = 60.0
"""For how long an actor may stand still before all stacks are dumped and the process ends."""


@dataclass(frozen=True)
class Resources:
    """What the process holds.

    Attributes:
        threads: Threads that are alive.
        files: File descriptors that are open.
        memory: Resident memory [bytes].
    """

    threads: frozenset[threading.Thread] = field(default_factory=lambda: frozenset(threading.enumerate()))
    files: int = field(default_factory=lambda: len(os.listdir("/proc/self/fd")))
    memory: int = field(default_factory=lambda: int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE)

    @classmethod
    def now(cls) -> "Resources":
        """After what can be collected is."""
        gc.collect()
        return cls()


@contextmanager
def watchdog() -> Iterator[Callable[[Counter[str]], None]]:
    """Dumps the stacks of all threads and ends the process, unless it is told of progress by everybody."""
    last: dict[str, tuple[int, float]] = {}
    stderr = os.dup(2)  # past pytest's capture

    def look(beats: Counter[str]) -> None:
        now = time.monotonic()
        for name, count in list(beats.items()):
            if last.get(name, (-1, 0.0))[0] != count:
                last[name] = count, now
        if last and now - min(since for _, since in last.values()) < STANDSTILL_S:
            faulthandler.dump_traceback_later(STANDSTILL_S, exit=True, file=stderr)

    faulthandler.dump_traceback_later(STANDSTILL_S, exit=True, file=stderr)
    try:
        yield look
    finally:
        faulthandler.cancel_dump_traceback_later()
        os.close(stderr)
