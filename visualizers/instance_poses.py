"""Poses of instances in the world: one kernel from the bodies' poses to what a viewer sends."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.formats import SceneDataFormat
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription
from scene_data.visualizers.instancing import Instances

__all__ = ["InstancePoses"]

wp.set_module_options({"enable_backward": False})


@wp.kernel
def place_instances(
    positions: wp.array(dtype=wp.vec3f),
    orientations: wp.array(dtype=wp.quatf),
    bodies: wp.array(dtype=wp.int32),
    local_positions: wp.array(dtype=wp.vec3f),
    local_orientations: wp.array(dtype=wp.quatf),
    slots: wp.array(dtype=wp.int32),
    offsets: wp.array(dtype=wp.vec3f),
    placed: wp.array(dtype=wp.vec3f),
    wxyz: wp.array(dtype=wp.vec4f),
):
    """Pose of each instance, quaternions as (w, x, y, z)."""
    i = wp.tid()
    body = bodies[i]
    q = orientations[body]
    p = positions[body] + wp.quat_rotate(q, local_positions[i]) + offsets[slots[i]]
    r = q * local_orientations[i]
    placed[i] = p
    wxyz[i] = wp.vec4f(r[3], r[0], r[1], r[2])


class InstancePoses:
    """Where the instances of some groups are, in the environments that are shown.

    Args:
        provider: Publishes the bodies' poses.
        scene: Its scene.
        groups: Instances of one environment, group by group.
        env_ids: Environments that each group is shown in, `(E,)` each.
        shown: All the environments that are shown, `(E,)`.
    """

    def __init__(
        self,
        provider: SceneDataProvider,
        scene: SceneDescription,
        groups: Sequence[Instances],
        env_ids: Sequence[NDArray[np.int64]],
        shown: NDArray[np.int64],
    ):
        self._provider = provider
        self._poses = SceneDataFormat.Vec3_Quat()
        self._device = provider.device
        body_count = len(scene.bodies)
        paths = [path for env in shown.tolist() for path in scene.body_paths(env)]
        self._mapping = provider.create_mapping(list(paths))
        self._count = len(paths)
        slot_of_env = {int(env): slot for slot, env in enumerate(shown)}
        slots, bodies, positions, quaternions = [], [], [], []
        for instances, envs in zip(groups, env_ids, strict=True):
            group_slots = np.repeat([slot_of_env[int(env)] for env in envs], len(instances)).astype(np.int64)
            slots.append(group_slots)
            bodies.append(group_slots * body_count + np.tile(instances.bodies, len(envs)))
            positions.append(np.tile(np.reshape(instances.positions, (-1, 3)), (len(envs), 1)))
            quaternions.append(np.tile(np.reshape(instances.quaternions, (-1, 4)), (len(envs), 1)))
        self.starts = np.concatenate(([0], np.cumsum([len(each) for each in slots]))).astype(int)
        self._inputs = [
            self._array(np.concatenate(bodies) if bodies else (), wp.int32),
            self._array(np.concatenate(positions) if positions else np.zeros((0, 3)), wp.vec3f),
            self._array(np.concatenate(quaternions) if quaternions else np.zeros((0, 4)), wp.quatf),
            self._array(np.concatenate(slots) if slots else (), wp.int32),
        ]
        self._offsets = self._array(np.zeros((max(len(shown), 1), 3)), wp.vec3f)
        self._placed = self._array(np.zeros((self.starts[-1], 3)), wp.vec3f)
        self._wxyz = self._array(np.zeros((self.starts[-1], 4)), wp.vec4f)

    def set_offsets(self, offsets: NDArray[np.float64]) -> None:
        """Where each environment that is shown is moved to, `(E, 3)` [m]."""
        if len(offsets):
            self._offsets.assign(np.ascontiguousarray(offsets, dtype=np.float32))

    def read(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Positions `(I, 3)` [m] and quaternions `(I, 4)`, (w, x, y, z), of all instances at present.

        Group `g` has those from `starts[g]` to `starts[g + 1]`, environment-major. The arrays are overwritten by the
        next call.
        """
        if not self._count or not self.starts[-1]:
            return np.zeros((0, 3), np.float32), np.zeros((0, 4), np.float32)
        self._provider.get_transforms(self._poses, self._mapping, count=self._count)
        wp.launch(
            place_instances,
            dim=int(self.starts[-1]),
            inputs=[self._poses.positions, self._poses.orientations, *self._inputs, self._offsets],
            outputs=[self._placed, self._wxyz],
            device=self._device,
        )
        return self._placed.numpy(), self._wxyz.numpy()

    def _array(self, values: Any, dtype: Any) -> wp.array:
        return wp.array(np.ascontiguousarray(values), dtype=dtype, device=self._device)
