"""Viewers of scene data. Those of other libraries load when they are first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scene_data.optional import optional_libraries

from .base import BaseVisualizer, VisualizerCfg

if TYPE_CHECKING:
    from .newton import NewtonVisualizer
    from .newton_cfg import NewtonVisualizerCfg
    from .rerun import RerunVisualizer
    from .rerun_cfg import RerunVisualizerCfg
    from .usd import UsdVisualizer
    from .usd_cfg import UsdVisualizerCfg
    from .viser import ViserVisualizer
    from .viser_cfg import ViserVisualizerCfg

_LAZY = {
    "RerunVisualizer": ".rerun",
    "RerunVisualizerCfg": ".rerun_cfg",
    "NewtonVisualizer": ".newton",
    "NewtonVisualizerCfg": ".newton_cfg",
    "UsdVisualizer": ".usd",
    "UsdVisualizerCfg": ".usd_cfg",
    "ViserVisualizer": ".viser",
    "ViserVisualizerCfg": ".viser_cfg",
}

__all__ = [
    "BaseVisualizer",
    "NewtonVisualizer",
    "NewtonVisualizerCfg",
    "RerunVisualizer",
    "RerunVisualizerCfg",
    "UsdVisualizer",
    "UsdVisualizerCfg",
    "ViserVisualizer",
    "ViserVisualizerCfg",
    "VisualizerCfg",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with optional_libraries(name):
        return getattr(import_module(_LAZY[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
