"""Cached data together with the publication that it was made from."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["TimestampedBuffer", "reset_timestamps"]


@dataclass
class TimestampedBuffer:
    """A cache cell: the owner allocates, converts and stamps; the cell only remembers.

    Attributes:
        data: An array, a struct of arrays or any grouped value; None before the first allocation.
        timestamp: Publication timestamp that `data` contains; -1 means that it contains none.
    """

    data: Any = None
    timestamp: float = -1.0


def reset_timestamps(buffers: Iterable[TimestampedBuffer | None]) -> None:
    """Mark buffers as stale and keep their storage.

    Args:
        buffers: The cells to mark. None stands for a cache that nobody has asked for yet and is skipped.
    """
    for buffer in buffers:
        if buffer is not None:
            buffer.timestamp = -1.0
