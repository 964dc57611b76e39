"""Colours of shapes, which may be set for each environment while the simulation runs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scene_data.scene import SceneDescription, ShapeDescription

__all__ = ["ShapeColors"]


class ShapeColors:
    """The colours of a scene's shapes: the model's, in all environments, until others are set.

    Args:
        scene: The scene.

    Attributes:
        table: RGBA in [0, 1], `(N, S, 4)` float32; never written to.
    """

    def __init__(self, scene: SceneDescription):
        own = np.array([shape.rgba for shape in scene.shapes], np.float32).reshape(-1, 4)
        self._own = np.broadcast_to(own, (max(scene.num_envs, 1), *own.shape))
        self._set: NDArray[np.float32] | None = None
        self._index = {id(shape): index for index, shape in enumerate(scene.shapes)}
        self.table = self._own

    def change(self, colors: NDArray[np.float32] | None) -> bool:
        """Set the table, None is the model's; whether it is another than before."""
        if colors is self._set:
            return False
        self._set = colors
        self.table = self._own if colors is None else colors
        return True

    def of(self, shapes: Sequence[ShapeDescription], envs: NDArray[np.int64]) -> NDArray[np.float32]:
        """Colours of K shapes in E environments, environment by environment, `(E * K, 4)`."""
        columns = [self._index[id(shape)] for shape in shapes]
        return self.table[envs[:, None], columns].reshape(-1, 4)
