"""Poses of instances in the world: one kernel from the bodies' poses to what a viewer sends, and what has moved."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.formats import SceneDataFormat
from scene_data.launches import KeptLaunch
from scene_data.provider import SceneDataProvider
from scene_data.scene import WORLD, SceneDescription
from scene_data.visualizers.instancing import Instances

__all__ = ["InstancePoses", "PlacedInstances"]

wp.set_module_options({"enable_backward": False})


@wp.kernel
def place_instances(
    positions: wp.array(dtype=wp.vec3f),
    orientations: wp.array(dtype=wp.quatf),
    bodies: wp.array(dtype=wp.int32),
    local_positions: wp.array(dtype=wp.vec3f),
    local_orientations: wp.array(dtype=wp.quatf),
    slots: wp.array(dtype=wp.int32),
    groups: wp.array(dtype=wp.int32),
    is_shown: wp.array(dtype=wp.bool),
    offsets: wp.array(dtype=wp.vec3f),
    placed: wp.array(dtype=wp.vec3f),
    wxyz: wp.array(dtype=wp.vec4f),
    is_finite: wp.array(dtype=wp.bool),
    has_moved: wp.array(dtype=wp.bool),
    has_turned_visible: wp.array(dtype=wp.bool),
):
    """Pose of each instance that is shown, quaternions as (w, x, y, z), and the groups that differ from before."""
    i = wp.tid()
    group = groups[i]
    if not is_shown[group]:
        return
    p = local_positions[i]
    r = local_orientations[i]
    body = bodies[i]
    if body >= 0:
        q = orientations[body]
        p = positions[body] + wp.quat_rotate(q, p)
        r = q * r
    p += offsets[slots[i]]
    turn = wp.vec4f(r[3], r[0], r[1], r[2])
    finite = wp.isfinite(p) and wp.isfinite(turn)
    if not finite:
        p = wp.vec3f(0.0, 0.0, 0.0)
        turn = wp.vec4f(1.0, 0.0, 0.0, 0.0)
    if finite != is_finite[i]:
        is_finite[i] = finite
        has_turned_visible[group] = True
    if not (p == placed[i] and turn == wxyz[i]):
        placed[i] = p
        wxyz[i] = turn
        has_moved[group] = True


@dataclass(frozen=True, eq=False)
class PlacedInstances:
    """Where all instances are. Group `g` has those from `starts[g]` to `starts[g + 1]`, environment-major.

    The arrays are lent until the next read.

    Attributes:
        positions: `(I, 3)` float32 [m].
        wxyz: Quaternions (w, x, y, z), `(I, 4)` float32.
        is_finite: Whether each has a pose at all, `(I,)`; those that have none are at the origin.
        has_moved: Groups in which a pose is another than at the last read, `(G,)`.
        has_turned_visible: Groups in which `is_finite` is another than at the last read, `(G,)`.
    """

    positions: NDArray[np.float32]
    wxyz: NDArray[np.float32]
    is_finite: NDArray[np.bool_]
    has_moved: NDArray[np.bool_]
    has_turned_visible: NDArray[np.bool_]


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
            in_env = np.tile(np.asarray(instances.bodies, np.int64), len(envs))
            bodies.append(np.where(in_env == WORLD, WORLD, group_slots * body_count + in_env))
            positions.append(np.tile(np.reshape(instances.positions, (-1, 3)), (len(envs), 1)))
            quaternions.append(np.tile(np.reshape(instances.quaternions, (-1, 4)), (len(envs), 1)))
        counts = [len(each) for each in slots]
        self.starts = np.concatenate(([0], np.cumsum(counts))).astype(int)
        self._inputs = [
            self._array(np.concatenate(bodies) if bodies else (), wp.int32),
            self._array(np.concatenate(positions) if positions else np.zeros((0, 3)), wp.vec3f),
            self._array(np.concatenate(quaternions) if quaternions else np.zeros((0, 4)), wp.quatf),
            self._array(np.concatenate(slots) if slots else (), wp.int32),
            self._array(np.repeat(np.arange(len(counts)), counts), wp.int32),
        ]
        self._is_shown = np.ones(len(counts), bool)
        self._shown = self._array(self._is_shown, wp.bool)
        self._offsets = self._array(np.zeros((max(len(shown), 1), 3)), wp.vec3f)
        self._placed = self._array(np.zeros((self.starts[-1], 3)), wp.vec3f)
        self._wxyz = self._array(np.zeros((self.starts[-1], 4)), wp.vec4f)
        self._is_finite = self._array(np.ones(self.starts[-1], bool), wp.bool)
        self._has_moved = self._array(np.zeros(len(counts), bool), wp.bool)
        self._has_turned_visible = self._array(np.zeros(len(counts), bool), wp.bool)
        self._place = KeptLaunch(place_instances, self._device)
        self._instance_count = int(self.starts[-1])
        self._seen: int | None = None

    def set_offsets(self, offsets: NDArray[np.float64]) -> None:
        """Where each environment that is shown is moved to, `(E, 3)` [m]."""
        if len(offsets):
            self._offsets.assign(np.ascontiguousarray(offsets, dtype=np.float32))
            self._seen = None

    def show(self, group: int, is_shown: bool) -> None:
        """Whether the instances of a group are looked at. Those that are not stay where they were; at first all are."""
        if self._is_shown[group] != is_shown:
            self._is_shown[group] = is_shown
            self._shown.assign(self._is_shown)
            self._seen = None

    def read(self) -> PlacedInstances | None:
        """All instances at present; None where nothing was published, shown or hidden since the last read."""
        if not self.starts[-1]:
            return None
        if self._count:
            self._provider.get_transforms(self._poses, self._mapping, count=self._count)
        if self._seen == (timestamp := self._provider.backend.transforms_timestamp):
            return None
        self._has_moved.zero_()
        self._has_turned_visible.zero_()
        arrays = (self._placed, self._wxyz, self._is_finite, self._has_moved, self._has_turned_visible)
        inputs = [self._poses.positions, self._poses.orientations, *self._inputs, self._shown, self._offsets]
        self._place.launch(self._instance_count, inputs, arrays)
        self._seen = timestamp
        return PlacedInstances(*(array.numpy() for array in arrays))

    def _array(self, values: Any, dtype: Any) -> wp.array:
        return wp.array(np.ascontiguousarray(values), dtype=dtype, device=self._device)
