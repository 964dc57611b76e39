"""Crew: the threads that share the work of a render turn."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

__all__ = ["Crew", "Effort", "Job"]

Job = Callable[[int], None]
"""What a thread does, told its number."""


class Effort:
    """How long a job took when it was run last.

    Attributes:
        seconds: The time [s]; 0 before the first run.
    """

    seconds = 0.0


class Crew:
    """Runs jobs on several threads, the calling one included. Whoever is free takes the next job.

    Jobs that let go of Python's lock, as kernel launches do, then keep that many cores busy until the last one ends,
    however unequal the jobs are.

    Args:
        size: Number of threads.
    """

    def __init__(self, size: int):
        self.size = size
        self._threads = ThreadPoolExecutor(size - 1, thread_name_prefix="render-crew") if size > 1 else None

    def run(self, jobs: Sequence[Job], efforts: Sequence[Effort] = (), first: Sequence[Job] = ()) -> None:
        """Run jobs, each with the number of the thread that took it, from 0 to `size - 1`; return when all have ended.

        Args:
            jobs: The jobs.
            efforts: What each took the last time, where they come again and again: then the longest begin first, so
                that all threads have something to do until the end. Brought up to date.
            first: Jobs that begin before all of these, in their order.

        Raises:
            Exception: What a job raised first. Jobs that nobody had begun by then are dropped.
        """
        if efforts and self.size > 1:
            pairs = sorted(zip(jobs, efforts, strict=True), key=lambda pair: -pair[1].seconds)
            jobs = [_timed(job, effort) for job, effort in pairs]
        waiting = deque((*first, *jobs))

        def work(member: int) -> None:
            try:
                while True:
                    try:
                        job = waiting.popleft()
                    except IndexError:
                        return
                    job(member)
            except BaseException:
                waiting.clear()
                raise

        futures: list[Future[None]] = []
        if self._threads is not None:
            helpers = min(self.size, len(waiting)) - 1
            futures = [self._threads.submit(work, member) for member in range(1, helpers + 1)]
        try:
            work(0)
        finally:
            wait(futures)  # whatever happens, nobody is at work after this
        for future in futures:
            future.result()

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown()


def _timed(job: Job, effort: Effort) -> Job:
    def timed(member: int) -> None:
        start = time.perf_counter()
        job(member)
        effort.seconds = time.perf_counter() - start

    return timed
