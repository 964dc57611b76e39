"""The point that each format stands for, and the kernels that write such points where a reader wants them."""

from functools import cache
from typing import Any

import warp as wp

from scene_data.formats import SceneDataFormat

# ruff: noqa: F811 - a Warp function is overloaded by defining it again.

__all__ = ["fabric_kernel", "gather_kernel", "point_count"]


def point_count(source: Any) -> int:
    """Number of points that a publication stands for.

    Raises:
        ValueError: If no points can be read from its format.
    """
    if source._cls is SceneDataFormat.SkinnedPoints:
        return source.bone_bodies.shape[0] * (source.influence_offsets.shape[0] - 1)
    if source._cls not in _COUNTED_FIELD:
        raise ValueError(f"Points cannot be read from {source._cls.__name__}.")
    return getattr(source, _COUNTED_FIELD[source._cls]).shape[0]


_COUNTED_FIELD = {
    SceneDataFormat.Points: "points",
    SceneDataFormat.WeightedPoints: "indices",
    SceneDataFormat.CapsuleEndpoints: "endpoints",
}
"""The array that has a row for every point."""


@cache
def gather_kernel(source_format: Any) -> wp.Kernel:
    """Kernel that writes point `sources[i]` to `output[targets[i]]`.

    Where `sources` or `targets` is None, rows count from `first_source` or `first_target`.
    """

    @wp.kernel(module="unique", enable_backward=False)
    def gather(
        source: source_format,
        sources: wp.array(dtype=wp.int32),
        first_source: int,
        targets: wp.array(dtype=wp.int32),
        first_target: int,
        output: wp.array(dtype=wp.vec3f),
    ):
        i = wp.tid()
        j = first_source + i
        k = first_target + i
        if sources:
            j = sources[i]
        if targets:
            k = targets[i]
        output[k] = read_point(source, j)

    return gather


@cache
def fabric_kernel(source_format: Any) -> wp.Kernel:
    """Kernel that writes point `sources[i]` to Fabric storage, at row `targets[i][0]` and place `targets[i][1]`.

    Where `sources` is None, points count from `first_source`.
    """

    @wp.kernel(module="unique", enable_backward=False)
    def gather_into_fabric(
        source: source_format,
        sources: wp.array(dtype=wp.int32),
        first_source: int,
        targets: wp.array(dtype=wp.vec2i),
        output: wp.fabricarrayarray(dtype=wp.vec3f),
    ):
        i = wp.tid()
        j = first_source + i
        if sources:
            j = sources[i]
        output[targets[i][0]][targets[i][1]] = read_point(source, j)

    return gather_into_fabric


@wp.func
def read_point(source: SceneDataFormat.Points, i: int):
    return source.points[i]


@wp.func
def read_point(source: SceneDataFormat.WeightedPoints, i: int):
    point = wp.vec3f()
    for node in range(4):
        point += source.weights[i, node] * source.points[source.indices[i, node]]
    return point


@wp.func
def capsule_end(source: SceneDataFormat.CapsuleEndpoints, shape: int, sign: int):
    end = wp.vec3f(0.0, 0.0, float(sign) * source.shape_scale[shape][1])
    on_body = wp.transform_point(source.shape_transform[shape], end)
    return wp.transform_point(source.transforms[source.shape_body[shape]], on_body)


@wp.func
def read_point(source: SceneDataFormat.CapsuleEndpoints, i: int):
    ends = source.endpoints[i]
    return 0.5 * (capsule_end(source, ends[0], ends[1]) + capsule_end(source, ends[2], ends[3]))


@wp.func
def blend_bones(source: SceneDataFormat.SkinnedPoints, copy: int, vertex: int):
    point = wp.vec3f()
    for influence in range(source.influence_offsets[vertex], source.influence_offsets[vertex + 1]):
        body = source.bone_bodies[copy, source.bone_indices[influence]]
        placed = wp.transform_point(source.transforms[body], source.bone_points[influence])
        point += source.bone_weights[influence] * placed
    return point


@wp.func
def read_point(source: SceneDataFormat.SkinnedPoints, i: int):
    vertex_count = source.influence_offsets.shape[0] - 1
    copy = i // vertex_count
    vertex = i - copy * vertex_count
    point = blend_bones(source, copy, vertex)
    if source.inflations:
        # The other corners are blended again rather than waited for: a second launch would cost more.
        normal = wp.vec3f()
        for corner in range(source.fan_offsets[vertex], source.fan_offsets[vertex + 1]):
            fan = source.fan_vertices[corner]
            second = blend_bones(source, copy, fan[0])
            third = blend_bones(source, copy, fan[1])
            normal += wp.cross(second - point, third - point)
        point += source.inflations[vertex] * wp.normalize(normal)
    return point
