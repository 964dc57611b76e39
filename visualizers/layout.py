"""Where environments that all stand in one place are shown."""

import math

import numpy as np
from numpy.typing import NDArray

from scene_data.formats import SceneDataFormat
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

__all__ = ["default_spacing", "grid_offsets"]

_EXTENTS_APART = 1.25


def grid_offsets(count: int, spacing: float) -> NDArray[np.float64]:
    """Places in a square grid around the origin, row by row, `(count, 3)` [m].

    Args:
        count: Number of environments.
        spacing: Distance between neighbours [m].
    """
    columns = max(math.ceil(math.sqrt(count)), 1)
    rows = math.ceil(count / columns)
    index = np.arange(count)
    x = index % columns - 0.5 * (columns - 1)
    y = 0.5 * (rows - 1) - index // columns
    return spacing * np.stack((x, y, np.zeros(count)), axis=1).astype(np.float64)


def default_spacing(provider: SceneDataProvider, scene: SceneDescription) -> float:
    """The distance that keeps environments apart [m]; 0 where the engine has placed them apart itself."""
    poses = SceneDataFormat.Vec3_Quat()
    if scene.num_envs < 2 or not provider.get_transforms(poses):
        return 0.0
    positions = poses.positions.numpy().reshape(scene.num_envs, -1, 3)
    are_apart = np.linalg.norm(positions[1] - positions[0], axis=-1).max() > 0.5 * scene.extent
    return 0.0 if are_apart else _EXTENTS_APART * scene.extent
