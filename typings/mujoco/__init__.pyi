"""MuJoCo, untyped: its classes and functions come from compiled modules that bring no stubs."""

from typing import Any

def __getattr__(name: str) -> Any: ...
