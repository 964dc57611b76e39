"""Bridges to other frameworks, imported by name: `scene_data.interop.isaaclab`, `scene_data.interop.mjlab`."""

__all__: list[str] = []
