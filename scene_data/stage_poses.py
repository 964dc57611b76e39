"""Poses as USD writes them: double-precision matrices for row vectors, with the translation in the last row."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scene_data.scene_parts import BodyDescription

__all__ = ["aiming_matrices", "env_offsets", "pose_matrix", "rest_matrices"]


def pose_matrix(position: ArrayLike, quaternion: ArrayLike) -> NDArray[np.float64]:
    """The pose as a matrix `(4, 4)`, from a position `(3,)` and a unit quaternion (x, y, z, w)."""
    x, y, z, w = np.asarray(quaternion, dtype=np.float64)
    matrix = np.eye(4)
    matrix[:3, :3] = (
        (1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w)),
        (2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w)),
        (2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)),
    )
    matrix[3, :3] = position
    return matrix


def aiming_matrices(positions: NDArray, directions: NDArray) -> NDArray[np.float64]:
    """Poses `(n, 4, 4)` at `positions` (n, 3) whose -Z, the way a USD light shines, lies along `directions` (n, 3)."""
    back = -directions / np.linalg.norm(directions, axis=-1, keepdims=True)
    # Any right will do: take the one that is well away from the axis.
    aside = np.where(np.abs(back[:, 2:]) < 0.9, (0.0, 0.0, 1.0), (0.0, 1.0, 0.0))
    right = np.cross(aside, back)
    right /= np.linalg.norm(right, axis=-1, keepdims=True)
    matrices = np.tile(np.eye(4), (len(positions), 1, 1))
    matrices[:, 0, :3], matrices[:, 1, :3], matrices[:, 2, :3] = right, np.cross(back, right), back
    matrices[:, 3, :3] = positions
    return matrices


def rest_matrices(bodies: Sequence[BodyDescription]) -> NDArray[np.float64]:
    """Poses of the bodies in their environment, in the default configuration, `(nbody, 4, 4)`."""
    matrices = np.empty((len(bodies), 4, 4))
    for index, body in enumerate(bodies):  # a parent stands before its children
        local = pose_matrix(body.position, body.quaternion)
        matrices[index] = local @ matrices[body.parent] if body.parent >= 0 else local
    return matrices


def env_offsets(num_envs: int, spacing: float) -> NDArray[np.float64]:
    """Where the environments stand, `(num_envs, 3)`: a square grid around the origin, `spacing` metres apart."""
    columns = int(np.ceil(np.sqrt(num_envs)))
    rows = -(-num_envs // columns)
    row, column = np.divmod(np.arange(num_envs), columns)
    offsets = np.zeros((num_envs, 3))
    offsets[:, 0] = (row - 0.5 * (rows - 1)) * spacing
    offsets[:, 1] = (column - 0.5 * (columns - 1)) * spacing
    return offsets
