"""Viewers of scene data. Those of other libraries load when they are first asked for."""

from typing import TYPE_CHECKING

from scene_data.optional import lazy_names

from .base import BaseVisualizer, VisualizerCfg

if TYPE_CHECKING:
    from .newton import NewtonVisualizer as NewtonVisualizer
    from .newton_cfg import NewtonVisualizerCfg
    from .rerun import RerunVisualizer as RerunVisualizer
    from .rerun_cfg import RerunVisualizerCfg
    from .usd import UsdVisualizer as UsdVisualizer
    from .usd_cfg import UsdVisualizerCfg
    from .viser import ViserVisualizer as ViserVisualizer
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

# Without the names that need an optional library: `import *` works where it is missing.
__all__ = [
    "BaseVisualizer",
    "NewtonVisualizerCfg",
    "RerunVisualizerCfg",
    "UsdVisualizerCfg",
    "ViserVisualizerCfg",
    "VisualizerCfg",
]


__getattr__, __dir__ = lazy_names(__name__, _LAZY, __all__)
