"""What Isaac Lab's cameras know a renderer by: its own classes where it is installed, else stand-ins of their shape."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["BaseRenderer", "RenderBufferSpec", "RendererCfg", "buffer_kind", "configuration"]


class _Renderer:
    """The members of Isaac Lab's `BaseRenderer` that need not be overridden."""

    visual_material_writer: Callable[..., Any] | None = None

    def initialize(self) -> None:
        """Called once when the physics is ready."""

    def prepare_cameras(self, stage: Any, spec: Any) -> None:
        """Called for each camera before the stage is prepared."""

    def prepare_capture(self, render_data: Any, camera_data: Any, frame: Any) -> None:
        """Called before each capture, for renderers that deliver it later."""


@dataclass(frozen=True)
class _BufferSpec:
    """Layout of one output.

    Attributes:
        channels: Numbers per pixel.
        dtype: Warp scalar type of a number.
    """

    channels: int
    dtype: Any


class _Cfg:
    """Base of configurations."""


def _found(module: str, attribute: str, otherwise: Any) -> Any:
    # Only the names are known here: Isaac Lab is nothing that this package depends on.
    try:
        return getattr(import_module(f"isaaclab.{module}"), attribute)
    except ImportError:
        return otherwise


BaseRenderer: Any = _found("renderers.base_renderer", "BaseRenderer", _Renderer)
RendererCfg: Any = _found("renderers.renderer_cfg", "RendererCfg", _Cfg)
RenderBufferSpec: Any = _found("renderers.output_contract", "RenderBufferSpec", _BufferSpec)
configuration: Any = _found("utils.configclass", "configclass", dataclass)
"""Decorator of configuration classes."""

_Kind: Any = _found("renderers.output_contract", "RenderBufferKind", None)


def buffer_kind(name: str) -> Any:
    """Isaac Lab's name of an output, a string too; the plain string where it has none."""
    return _Kind(name) if _Kind is not None and name in set(_Kind) else name
