"""Physics engines that publish scene data. Each class is imported on first use, with the library it wraps."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scene_data.optional import optional_libraries

if TYPE_CHECKING:
    from scene_data.backends.mujoco import MujocoSceneDataBackend
    from scene_data.backends.mujoco_batch import MujocoBatchSceneDataBackend
    from scene_data.backends.mujoco_data_list import MujocoDataListSceneDataBackend
    from scene_data.backends.mujoco_physics import MujocoPhysicsCfg
    from scene_data.backends.mujoco_warp import MujocoWarpSceneDataBackend
    from scene_data.backends.newton import NewtonSceneDataBackend
    from scene_data.backends.newton_physics import NewtonPhysicsCfg
    from scene_data.backends.ovphysx import OvPhysxSceneDataBackend

__all__ = [
    "MujocoBatchSceneDataBackend",
    "MujocoDataListSceneDataBackend",
    "MujocoPhysicsCfg",
    "MujocoSceneDataBackend",
    "MujocoWarpSceneDataBackend",
    "NewtonPhysicsCfg",
    "NewtonSceneDataBackend",
    "OvPhysxSceneDataBackend",
]

_MODULES = {
    "MujocoBatchSceneDataBackend": "scene_data.backends.mujoco_batch",
    "MujocoDataListSceneDataBackend": "scene_data.backends.mujoco_data_list",
    "MujocoPhysicsCfg": "scene_data.backends.mujoco_physics",
    "MujocoSceneDataBackend": "scene_data.backends.mujoco",
    "MujocoWarpSceneDataBackend": "scene_data.backends.mujoco_warp",
    "NewtonPhysicsCfg": "scene_data.backends.newton_physics",
    "NewtonSceneDataBackend": "scene_data.backends.newton",
    "OvPhysxSceneDataBackend": "scene_data.backends.ovphysx",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with optional_libraries(name):
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
