"""Viewers of scene data."""

__all__: list[str] = []
