"""What MuJoCo's own ray casts hit through the pixel centres of a camera: an answer from outside every backend."""

from collections.abc import Sequence

import mujoco
import numpy as np

from scene_data.camera import Orthographic, Pinhole, WorldPose

__all__ = ["cast", "rays_of"]


def rays_of(
    intrinsics: Pinhole | Orthographic, width: int, height: int, pose: WorldPose | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Origins and directions (H, W, 3), in the world or without a pose in the camera frame; a direction is 1 m deep."""
    u, v = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    if isinstance(intrinsics, Orthographic):
        pixel = intrinsics.height / height
        origin = np.stack(((u - width / 2) * pixel, (height / 2 - v) * pixel, 0 * u), axis=-1)
        direction = np.stack((0 * u, 0 * u, 0 * u - 1), axis=-1)
    else:
        direction = np.stack(((u - intrinsics.cx) / intrinsics.fx, (intrinsics.cy - v) / intrinsics.fy, 0 * u - 1), -1)
        origin = np.zeros_like(direction)
    if pose is None:
        return origin, direction
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.array(pose.quaternion)[[3, 0, 1, 2]])
    rotation = matrix.reshape(3, 3)
    return origin @ rotation.T + pose.position, direction @ rotation.T


def cast(
    model: mujoco.MjModel,
    state: mujoco.MjData,
    origin: np.ndarray,
    direction: np.ndarray,
    far: float,
    groups: Sequence[int] = (0, 1, 2),
) -> tuple[np.ndarray, np.ndarray]:
    """Depth (H, W) and geom (H, W) of what is hit first in these groups, inf and -1 where nothing is before `far`."""
    visible, geom = np.isin(np.arange(mujoco.mjNGROUP), groups).astype(np.uint8), np.zeros(1, np.int32)
    depth, seen = np.full(origin.shape[:2], np.inf), np.full(origin.shape[:2], -1)
    for pixel in np.ndindex(seen.shape):
        reach = mujoco.mj_ray(model, state, origin[pixel], direction[pixel], visible, 1, -1, geom)
        if 0 <= reach < far:
            depth[pixel], seen[pixel] = reach, geom[0]
    return depth, seen
