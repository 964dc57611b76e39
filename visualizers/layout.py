"""Where environments that all stand in one place are shown."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scene_data.errors import SceneDataError
from scene_data.formats import SceneDataFormat
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

__all__ = ["EnvironmentsError", "default_spacing", "environments_text", "grid_offsets", "parse_environments"]

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


class EnvironmentsError(SceneDataError, ValueError):
    """Text that does not say which environments are meant.

    Attributes:
        text: The text.
    """

    def __init__(self, text: str, num_envs: int):
        self.text = text
        super().__init__(
            f"{text!r} names no environments: write `all`, or indices and ranges below {num_envs} such as `0-3, 8`."
        )


def parse_environments(text: str, num_envs: int) -> list[int]:
    """The environments that a text names: `all`, or indices and ranges such as `0-3, 8`, in this order.

    Raises:
        EnvironmentsError: It does not name any, or some that there are not.
    """
    if text.strip().lower() == "all":
        return list(range(num_envs))
    envs: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            start = int(first)
            envs += range(start, (int(last) if dash else start) + 1)
        except ValueError:
            raise EnvironmentsError(text, num_envs) from None
    if not envs or not all(0 <= env < num_envs for env in envs):
        raise EnvironmentsError(text, num_envs)
    return list(dict.fromkeys(envs))


def environments_text(envs: Sequence[int], num_envs: int) -> str:
    """These environments as `parse_environments` reads them."""
    if list(envs) == list(range(num_envs)):
        return "all"
    runs: list[list[int]] = []
    for env in envs:
        if runs and env == runs[-1][-1] + 1:
            runs[-1].append(env)
        else:
            runs.append([env])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
