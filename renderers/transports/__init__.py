"""Frames for other programs: in this process, over ROS 1 and ROS 2, and into MCAP files.

Every transport but the Python one needs a library of its own, which is imported when the transport is first named.
"""

from importlib import import_module
from typing import Any

from .queue import BoundedPublicationQueue, PublicationItem, PublicationWorker

_LAZY: dict[str, str] = {}

__all__ = [
    "BoundedPublicationQueue",
    "PublicationItem",
    "PublicationWorker",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
