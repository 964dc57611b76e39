"""Drawing without a graphics card takes cores that the simulation needs, so it takes those that are free."""

import os
import sys
import threading
from pathlib import Path

__all__ = ["draws_in_software", "native_threads", "yield_cores"]

_SOFTWARE = ("llvmpipe", "softpipe", "swrast", "software rasterizer")
_TASKS = Path("/proc/self/task")
_LAST = 19  # the niceness of what runs when nothing else wants to


def draws_in_software(renderer: str) -> bool:
    """Whether what OpenGL calls its renderer draws on the CPU."""
    return any(name in renderer.lower() for name in _SOFTWARE)


def native_threads() -> set[int]:
    """The threads of this process by the numbers that the system gives them; empty where only Linux tells."""
    return {int(task.name) for task in _TASKS.iterdir()} if sys.platform == "linux" else set()


def yield_cores(started: set[int]) -> None:
    """Let this thread, and those of a software renderer among others, run where nothing else wants the core.

    Without the rights of an administrator there is no way back. Nothing happens where the system is not Linux, which
    alone knows priorities of threads.

    Args:
        started: Threads that may be the renderer's own, as of `native_threads`.
    """
    if sys.platform != "linux":
        return
    rasterizers = {thread for thread in started if _name(thread).startswith(_SOFTWARE)}
    for thread in {threading.get_native_id(), *rasterizers}:
        os.setpriority(os.PRIO_PROCESS, thread, _LAST)


def _name(thread: int) -> str:
    try:
        return (_TASKS / str(thread) / "comm").read_text()
    except OSError:  # it has ended
        return ""
