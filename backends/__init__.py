"""Physics engines that publish scene data. Each class is imported on first use, with the library it wraps."""

from typing import TYPE_CHECKING

from scene_data.optional import lazy_names

if TYPE_CHECKING:
    from scene_data.backends.mujoco import MujocoSceneDataBackend
    from scene_data.backends.mujoco_batch import MujocoBatchSceneDataBackend
    from scene_data.backends.mujoco_data_list import MujocoDataListSceneDataBackend
    from scene_data.backends.mujoco_physics import MujocoPhysicsCfg
    from scene_data.backends.mujoco_warp import MujocoWarpSceneDataBackend
    from scene_data.backends.newton import NewtonSceneDataBackend as NewtonSceneDataBackend
    from scene_data.backends.newton_physics import NewtonPhysicsCfg as NewtonPhysicsCfg
    from scene_data.backends.ovphysx import OvPhysxSceneDataBackend as OvPhysxSceneDataBackend

# Without the names that need an optional library: `import *` works where it is missing.
__all__ = [
    "MujocoBatchSceneDataBackend",
    "MujocoDataListSceneDataBackend",
    "MujocoPhysicsCfg",
    "MujocoSceneDataBackend",
    "MujocoWarpSceneDataBackend",
]

_LAZY = {
    "MujocoBatchSceneDataBackend": ".mujoco_batch",
    "MujocoDataListSceneDataBackend": ".mujoco_data_list",
    "MujocoPhysicsCfg": ".mujoco_physics",
    "MujocoSceneDataBackend": ".mujoco",
    "MujocoWarpSceneDataBackend": ".mujoco_warp",
    "NewtonPhysicsCfg": ".newton_physics",
    "NewtonSceneDataBackend": ".newton",
    "OvPhysxSceneDataBackend": ".ovphysx",
}


__getattr__, __dir__ = lazy_names(__name__, _LAZY, __all__)
