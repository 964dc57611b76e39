"""How long things took: a bounded window of durations and its percentiles."""

from array import array
from typing import TypedDict

import numpy as np

__all__ = ["DurationSummary", "Durations"]

_WINDOW = 1024


class DurationSummary(TypedDict):
    """What durations were like.

    Attributes:
        count: How many there were since the beginning.
        total_s: All of them together [s].
        p50_s: Median of the latest ones [s]; 0 for none, like the percentiles that follow.
        p95_s: 95th percentile [s].
        p99_s: 99th percentile [s].
    """

    count: int
    total_s: float
    p50_s: float
    p95_s: float
    p99_s: float


class Durations:
    """Counts and adds up all durations, and keeps the latest 1024. Not thread-safe; noting one allocates nothing."""

    def __init__(self):
        self._count = 0
        self._total = 0.0
        self._latest = array("d", bytes(8 * _WINDOW))

    def note(self, seconds: float) -> None:
        """Add one."""
        self._latest[self._count % _WINDOW] = seconds
        self._count += 1
        self._total += seconds

    def summary(self) -> DurationSummary:
        """Count, total and percentiles, the latter by linear interpolation."""
        latest = np.array(self._latest[: min(self._count, _WINDOW)])
        p50, p95, p99 = (float(value) for value in np.percentile(latest, (50, 95, 99))) if latest.size else (0.0,) * 3
        return {"count": self._count, "total_s": self._total, "p50_s": p50, "p95_s": p95, "p99_s": p99}
