"""Warp, untyped: its annotations do not describe what kernels may do (`mat33f` has no `[]` or `*`, for one)."""

from typing import Any

def __getattr__(name: str) -> Any: ...
