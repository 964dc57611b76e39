"""One Warp-native read path from physics to every renderer and viewer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scene_data.backend import SceneDataBackend
from scene_data.buffers import TimestampedBuffer
from scene_data.formats import SceneDataFormat

if TYPE_CHECKING:
    from scene_data.provider import SceneDataProvider
    from scene_data.scene import SceneDescription
    from scene_data.simulation import SimulationContext
    from scene_data.simulation_cfg import SimulationCfg

__all__ = [
    "SceneDataBackend",
    "SceneDataFormat",
    "SceneDataProvider",
    "SceneDescription",
    "SimulationCfg",
    "SimulationContext",
    "TimestampedBuffer",
]

# Imported on first use, so that `import scene_data` costs little more than `import warp`.
_LAZY = {
    "SceneDataProvider": "scene_data.provider",
    "SceneDescription": "scene_data.scene",
    "SimulationCfg": "scene_data.simulation_cfg",
    "SimulationContext": "scene_data.simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
