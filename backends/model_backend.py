"""What all engines that run an `MjModel` share: names, paths, and reads that see one state."""

from functools import cached_property

import mujoco
import numpy as np
from numpy.typing import NDArray

from scene_data.backend import SceneDataBackend
from scene_data.backends.mjcf_scene import describe_model
from scene_data.scene import SceneDescription

__all__ = ["ModelBackend"]


class ModelBackend(SceneDataBackend):
    """Base of the backends of one model in several environments.

    Attributes:
        mj_model: The model.
        num_envs: Number of environments N.
        transform_count: Number of transforms, `N * nbody`.
        provides: What `describe_scene().native` has of the engine's own.
    """

    provides = ("mujoco_model",)

    def __init__(self, mj_model: mujoco.MjModel, num_envs: int):
        self.mj_model = mj_model
        self.num_envs = num_envs
        self.transform_count = num_envs * mj_model.nbody

    @cached_property
    def transform_paths(self) -> list[str]:
        """USD path of each body, environment-major."""
        scene = self.describe_scene()
        return [path for env in range(self.num_envs) for path in scene.body_paths(env)]

    @cached_property
    def camera_paths(self) -> list[str]:
        """USD path of each camera, environment-major."""
        scene = self.describe_scene()
        return [path for env in range(self.num_envs) for path in scene.paths(scene.cameras, env)]

    @property
    def simulation_time_ns(self) -> int:
        """The latest simulation time of all environments [ns]."""
        return int(self.env_time_ns.max())

    def describe_scene(self) -> SceneDescription:
        """Describe the model and its environments, once."""
        return self._scene

    def get_height_field(self, index: int) -> NDArray[np.float32]:
        """The heights that the model holds at present, `(rows, columns)` [m]."""
        model = self.mj_model
        first, shape = int(model.hfield_adr[index]), (int(model.hfield_nrow[index]), int(model.hfield_ncol[index]))
        data = self._height_field_data()[first : first + shape[0] * shape[1]].reshape(shape)
        return data * np.float32(model.hfield_size[index, 2])

    def _height_field_data(self) -> NDArray[np.float32]:
        """Where the engine keeps the data of all height fields, in units of their heights."""
        return self.mj_model.hfield_data

    @cached_property
    def _scene(self) -> SceneDescription:
        return describe_model(self.mj_model, self.num_envs)

    @cached_property
    def _point_ranges(self) -> dict[str, tuple[int, int]]:
        return self.describe_scene().point_ranges()
