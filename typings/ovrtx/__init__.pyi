"""ovrtx, untyped: it need not be installed for the checks."""

from typing import Any

def __getattr__(name: str) -> Any: ...
