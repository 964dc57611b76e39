"""Spatial tendons as polylines of fixed length, whatever their paths wrap around at the moment."""

from functools import cache
from typing import Any

import numpy as np
import warp as wp

from scene_data.formats import SceneDataFormat
from scene_data.scene import SceneDescription

__all__ = ["TendonCurves"]

_PULLEY = wp.constant(-2)


class TendonCurves:
    """The points of all spatial tendons of all environments, `Points`, environment-major.

    Args:
        scene: Scene with at least one spatial tendon.
        device: Device of the points.
    """

    def __init__(self, scene: SceneDescription, device: Any):
        spatial = [(index, tendon) for index, tendon in enumerate(scene.tendons) if tendon.is_spatial]
        sizes = [tendon.branch_sizes for _, tendon in spatial]
        starts = np.concatenate(([0], np.cumsum(np.concatenate(sizes))))
        self.curves = [curve for _, tendon in spatial for curve in tendon.curves]
        self.points: Any = SceneDataFormat.Points()
        self.points.points = wp.zeros(scene.num_envs * int(starts[-1]), dtype=wp.vec3f, device=device)
        self._shape = (scene.num_envs, len(spatial))
        self._tendons = wp.array([index for index, _ in spatial], dtype=wp.int32, device=device)
        first_branches = np.concatenate(([0], np.cumsum([len(tendon_sizes) for tendon_sizes in sizes])))
        self._first_branches = wp.array(first_branches, dtype=wp.int32, device=device)
        self._starts = wp.array(starts, dtype=wp.int32, device=device)

    def refresh(self, first_points: wp.array, point_counts: wp.array, objects: wp.array, positions: wp.array) -> None:
        """Write the points from the engine's paths, by one launch.

        Args:
            first_points: `ten_wrapadr`, int32 of shape (num_envs, tendon_count).
            point_counts: `ten_wrapnum`, likewise.
            objects: `wrap_obj`, vec2i of shape (num_envs, wrap_count).
            positions: `wrap_xpos` [m], two points in each, vectors of six of shape (num_envs, wrap_count).
        """
        wp.launch(
            _curves_kernel(positions.dtype),
            dim=self._shape,
            inputs=[
                self._tendons,
                self._first_branches,
                self._starts,
                first_points,
                point_counts,
                objects,
                positions,
            ],
            outputs=[self.points.points],
            device=self.points.points.device,
        )


@cache
def _curves_kernel(pair: Any) -> wp.Kernel:
    @wp.kernel(module="unique", enable_backward=False)
    def write_curves(
        tendons: wp.array(dtype=wp.int32),
        first_branches: wp.array(dtype=wp.int32),
        starts: wp.array(dtype=wp.int32),
        first_points: wp.array2d(dtype=wp.int32),
        point_counts: wp.array2d(dtype=wp.int32),
        objects: wp.array2d(dtype=wp.vec2i),
        positions: wp.array2d(dtype=pair),
        points: wp.array(dtype=wp.vec3f),
    ):
        env, i = wp.tid()
        total = starts[starts.shape[0] - 1]
        tendon = tendons[i]
        first = first_points[env, tendon]
        branch = first_branches[i]
        slot = starts[branch]
        point = wp.vec3f()
        for k in range(first, first + point_counts[env, tendon]):
            half = k % 2
            if objects[env, k // 2][half] == _PULLEY:
                # Nothing is left over where a branch has no points at all: it has no slots either.
                while slot < starts[branch + 1]:
                    points[env * total + slot] = point
                    slot += 1
                branch += 1
            else:
                ends = positions[env, k // 2]
                point = wp.vec3f(float(ends[3 * half]), float(ends[3 * half + 1]), float(ends[3 * half + 2]))
                points[env * total + slot] = point
                slot += 1
        while slot < starts[branch + 1]:
            points[env * total + slot] = point
            slot += 1

    return write_curves
