"""Conversions among pose formats: one kernel body, which reads a pose from any source and writes any destination.

A pose is read as a position and an orientation in the source's own terms: quaternion, matrix or, for lights, direction,
in the source's precision. It is rewritten only where the destination differs, so that matrices never pass through a
quaternion and double precision survives into double-precision destinations.

A quaternion is made from a matrix `R` by normalising its columns and making them orthogonal, the first one first. So
scaled, sheared and flattened matrices give the rotation of their axes, and mirrored ones that of the right-handed frame
of their first two axes. Where fewer than two axes are left there is no rotation, and the result is the identity.
NaN stays NaN. Matrix destinations take the linear part as it is, scale included.

Each pair of formats is a module of its own and is compiled when it is first used.
"""

# ruff: noqa: F811 - a Warp function is overloaded by defining it again.

from functools import cache
from typing import Any

import warp as wp

from scene_data.formats import SceneDataFormat

__all__ = [
    "SCALED_FORMATS",
    "can_convert",
    "gather_kernel",
    "identity_of",
    "scatter_kernel",
    "straight_kernel",
]

SCALED_FORMATS = (SceneDataFormat.TransposedMatrix44d, SceneDataFormat.FabricMatrix44)
"""Destinations that can carry a static scale."""

_POSES = (
    SceneDataFormat.Vec3_Quat,
    SceneDataFormat.Vec3_Matrix33,
    SceneDataFormat.Transform,
    SceneDataFormat.Matrix44,
)
_PAIRS = {
    *(
        (source, target)
        for source in (*_POSES, SceneDataFormat.Vec3d_Matrix33d)
        for target in (*_POSES, *SCALED_FORMATS)
    ),
    (SceneDataFormat.Vec3d_Matrix33d, SceneDataFormat.Vec3d_Matrix33d),
    (SceneDataFormat.Vec3_Direction, SceneDataFormat.Vec3_Direction),
    (SceneDataFormat.Vec3d_Direction, SceneDataFormat.Vec3_Direction),
    (SceneDataFormat.Vec3d_Direction, SceneDataFormat.Vec3d_Direction),
}


def can_convert(source_format: Any, target_format: Any) -> bool:
    """Whether there is a conversion from one format of `SceneDataFormat` to another."""
    return (source_format, target_format) in _PAIRS


@cache
def straight_kernel(source_format: Any, target_format: Any) -> wp.Kernel:
    """Kernel (source, target) that converts each pose in place of the same index, without a scale.

    Most reads are of this kind, and what it leaves out would cost a quarter of them.
    """

    @wp.kernel(module="unique", enable_backward=False)
    def straight(source: source_format, target: target_format):
        i = wp.tid()
        write_pose(target, i, read_position(source, i), read_orientation(source, i), wp.vec3d(wp.float64(1.0)))

    return straight


@cache
def scatter_kernel(source_format: Any, target_format: Any) -> wp.Kernel:
    """Kernel (source, mapping, scales, limit, target) that runs over sources.

    `mapping`, an array, holds the target of each source, and `scales` are indexed by target; null arrays stand for the
    identity mapping and no scale. Targets that are negative or not below `limit`, their number, are skipped.
    """

    @wp.kernel(module="unique", enable_backward=False)
    def scatter(
        source: source_format,
        mapping: wp.array(dtype=wp.int32),
        scales: wp.array(dtype=wp.vec3f),
        limit: wp.int32,
        target: target_format,
    ):
        i = wp.tid()
        j = i
        if mapping:
            j = mapping[i]
        if j >= 0 and j < limit:
            write_pose(target, j, read_position(source, i), read_orientation(source, i), read_scale(scales, j))

    return scatter


@cache
def gather_kernel(source_format: Any, target_format: Any) -> wp.Kernel:
    """Kernel (source, mapping, scales, limit, target) that runs over targets.

    `mapping`, a Fabric array, holds the source of each target, and `scales` are indexed by source; a null array stands
    for no scale. Sources that are negative or not below `limit`, their number, are skipped.
    """

    @wp.kernel(module="unique", enable_backward=False)
    def gather(
        source: source_format,
        mapping: wp.fabricarray(dtype=wp.int32),
        scales: wp.array(dtype=wp.vec3f),
        limit: wp.int32,
        target: target_format,
    ):
        i = wp.tid()
        j = mapping[i]
        if j >= 0 and j < limit:
            write_pose(target, i, read_position(source, j), read_orientation(source, j), read_scale(scales, j))

    return gather


def identity_of(dtype: Any) -> Any:
    """Identity of a quaternion, transform or square matrix type, and zero of a vector type."""
    if dtype is wp.quatf:
        return wp.quat_identity()
    if dtype is wp.transformf:
        return wp.transform_identity()
    if dtype in (wp.mat33f, wp.mat33d, wp.mat44f, wp.mat44d):
        size = dtype._shape_[0]
        return dtype(*(float(row == column) for row in range(size) for column in range(size)))
    return dtype()


# Reading: position and orientation in the source's own terms.


@wp.func
def read_position(source: SceneDataFormat.Vec3_Quat, i: int):
    return source.positions[i]


@wp.func
def read_position(source: SceneDataFormat.Vec3_Matrix33, i: int):
    return source.positions[i]


@wp.func
def read_position(source: SceneDataFormat.Vec3d_Matrix33d, i: int):
    return source.positions[i]


@wp.func
def read_position(source: SceneDataFormat.Vec3_Direction, i: int):
    return source.positions[i]


@wp.func
def read_position(source: SceneDataFormat.Vec3d_Direction, i: int):
    return source.positions[i]


@wp.func
def read_position(source: SceneDataFormat.Transform, i: int):
    return wp.transform_get_translation(source.transforms[i])


@wp.func
def read_position(source: SceneDataFormat.Matrix44, i: int):
    m = source.matrices[i]
    return wp.vec3f(m[0, 3], m[1, 3], m[2, 3])


@wp.func
def read_orientation(source: SceneDataFormat.Vec3_Quat, i: int):
    return source.orientations[i]


@wp.func
def read_orientation(source: SceneDataFormat.Vec3_Matrix33, i: int):
    return source.orientations[i]


@wp.func
def read_orientation(source: SceneDataFormat.Vec3d_Matrix33d, i: int):
    return source.orientations[i]


@wp.func
def read_orientation(source: SceneDataFormat.Vec3_Direction, i: int):
    return source.directions[i]


@wp.func
def read_orientation(source: SceneDataFormat.Vec3d_Direction, i: int):
    return source.directions[i]


@wp.func
def read_orientation(source: SceneDataFormat.Transform, i: int):
    return wp.transform_get_rotation(source.transforms[i])


@wp.func
def read_orientation(source: SceneDataFormat.Matrix44, i: int):
    m = source.matrices[i]
    return wp.mat33f(m[0, 0], m[0, 1], m[0, 2], m[1, 0], m[1, 1], m[1, 2], m[2, 0], m[2, 1], m[2, 2])


@wp.func
def read_scale(scales: wp.array(dtype=wp.vec3f), i: int):
    if scales:
        return wp.vec3d(scales[i])
    return wp.vec3d(wp.float64(1.0))


# Orientations in the destination's terms.


@wp.func
def unit(v: wp.vec3f):
    # Unlike `wp.normalize`, which turns NaN into zero.
    length = wp.sqrt(wp.dot(v, v))
    if length == 0.0:
        return v
    return v / length


@wp.func
def to_quat(q: wp.quatf):
    return q


@wp.func
def is_rotation(x: wp.vec3f, y: wp.vec3f, z: wp.vec3f):
    """Whether three axes are those of a rotation, to single precision; not for NaN."""
    lengths = wp.abs(wp.dot(x, x) - 1.0) + wp.abs(wp.dot(y, y) - 1.0)
    angle = wp.abs(wp.dot(x, y))
    third = wp.cross(x, y) - z
    return lengths + angle + wp.dot(third, third) < 1.0e-5


@wp.func
def quat_of_rotation(m: wp.mat33f):
    """Quaternion of a rotation matrix, without a branch: random rotations would mispredict every other one.

    4 q qT is linear in the matrix, and each of its columns is the quaternion times four times one of its parts. The
    column with the largest part is taken, so that nothing cancels.
    """
    xx = 1.0 + m[0, 0] - m[1, 1] - m[2, 2]
    yy = 1.0 - m[0, 0] + m[1, 1] - m[2, 2]
    zz = 1.0 - m[0, 0] - m[1, 1] + m[2, 2]
    ww = 1.0 + m[0, 0] + m[1, 1] + m[2, 2]
    xy = m[0, 1] + m[1, 0]
    xz = m[0, 2] + m[2, 0]
    yz = m[1, 2] + m[2, 1]
    xw = m[2, 1] - m[1, 2]
    yw = m[0, 2] - m[2, 0]
    zw = m[1, 0] - m[0, 1]
    columns = wp.mat44f(xx, xy, xz, xw, xy, yy, yz, yw, xz, yz, zz, zw, xw, yw, zw, ww)
    x_or_y = wp.int32(yy > xx)
    z_or_w = 2 + wp.int32(ww > zz)
    q = columns[x_or_y + (z_or_w - x_or_y) * wp.int32(wp.max(zz, ww) > wp.max(xx, yy))]
    q = q * (1.0 / wp.sqrt(wp.dot(q, q)))
    return wp.quatf(q[0], q[1], q[2], q[3])


@wp.func
def nearest_quat(first: wp.vec3f, second: wp.vec3f, third: wp.vec3f):
    x = unit(first)
    y = unit(second)
    z = unit(third)
    axes_squared = wp.dot(x, x) + wp.dot(y, y) + wp.dot(z, z)
    if wp.isnan(axes_squared):
        return wp.quatf(axes_squared, axes_squared, axes_squared, axes_squared)
    # The first two axes decide, and a flattened one follows from the others.
    if wp.dot(x, x) == 0.0:
        x = unit(wp.cross(y, z))
    if wp.dot(y, y) == 0.0:
        y = unit(wp.cross(z, x))
    y = y - wp.dot(x, y) * x
    if wp.dot(x, x) == 0.0 or wp.dot(y, y) < 1.0e-10:
        return wp.quat_identity()
    y = unit(y)
    z = wp.cross(x, y)
    return quat_of_rotation(wp.matrix_from_cols(x, y, z))


@wp.func
def to_quat(m: wp.mat33f):
    x = wp.vec3f(m[0, 0], m[1, 0], m[2, 0])
    y = wp.vec3f(m[0, 1], m[1, 1], m[2, 1])
    z = wp.vec3f(m[0, 2], m[1, 2], m[2, 2])
    if is_rotation(x, y, z):
        # What engines publish; the rest is for matrices that somebody wrote.
        return quat_of_rotation(m)
    return nearest_quat(x, y, z)


@wp.func
def to_quat(m: wp.mat33d):
    return to_quat(wp.mat33f(m))


@wp.func
def to_mat33f(q: wp.quatf):
    return wp.quat_to_matrix(q)


@wp.func
def to_mat33f(m: wp.mat33f):
    return m


@wp.func
def to_mat33f(m: wp.mat33d):
    return wp.mat33f(m)


@wp.func
def to_mat33d(q: wp.quatf):
    return wp.quat_to_matrix(wp.quatd(wp.float64(q[0]), wp.float64(q[1]), wp.float64(q[2]), wp.float64(q[3])))


@wp.func
def to_mat33d(m: wp.mat33f):
    return wp.mat33d(m)


@wp.func
def to_mat33d(m: wp.mat33d):
    return m


@wp.func
def to_row_matrix(position: Any, orientation: Any, scale: wp.vec3d):
    # diag(scale) @ R.T over the translation.
    p = wp.vec3d(position)
    r = to_mat33d(orientation)
    return wp.mat44d(
        scale[0] * r[0, 0],
        scale[0] * r[1, 0],
        scale[0] * r[2, 0],
        wp.float64(0.0),
        scale[1] * r[0, 1],
        scale[1] * r[1, 1],
        scale[1] * r[2, 1],
        wp.float64(0.0),
        scale[2] * r[0, 2],
        scale[2] * r[1, 2],
        scale[2] * r[2, 2],
        wp.float64(0.0),
        p[0],
        p[1],
        p[2],
        wp.float64(1.0),
    )


# Writing: only the matrices for row vectors carry a scale.


@wp.func
def write_pose(target: SceneDataFormat.Vec3_Quat, i: int, position: Any, orientation: Any, scale: wp.vec3d):
    target.positions[i] = wp.vec3f(position)
    target.orientations[i] = to_quat(orientation)


@wp.func
def write_pose(target: SceneDataFormat.Vec3_Matrix33, i: int, position: Any, orientation: Any, scale: wp.vec3d):
    target.positions[i] = wp.vec3f(position)
    target.orientations[i] = to_mat33f(orientation)


@wp.func
def write_pose(target: SceneDataFormat.Vec3d_Matrix33d, i: int, position: Any, orientation: Any, scale: wp.vec3d):
    target.positions[i] = wp.vec3d(position)
    target.orientations[i] = to_mat33d(orientation)


@wp.func
def write_pose(target: SceneDataFormat.Transform, i: int, position: Any, orientation: Any, scale: wp.vec3d):
    target.transforms[i] = wp.transformf(wp.vec3f(position), to_quat(orientation))


@wp.func
def write_pose(target: SceneDataFormat.Matrix44, i: int, position: Any, orientation: Any, scale: wp.vec3d):
    p = wp.vec3f(position)
    r = to_mat33f(orientation)
    target.matrices[i] = wp.matrix_from_rows(
        wp.vec4f(r[0, 0], r[0, 1], r[0, 2], p[0]),
        wp.vec4f(r[1, 0], r[1, 1], r[1, 2], p[1]),
        wp.vec4f(r[2, 0], r[2, 1], r[2, 2], p[2]),
        wp.vec4f(0.0, 0.0, 0.0, 1.0),
    )


@wp.func
def write_pose(target: SceneDataFormat.TransposedMatrix44d, i: int, position: Any, orientation: Any, scale: wp.vec3d):
    target.matrices[i] = to_row_matrix(position, orientation, scale)


@wp.func
def write_pose(target: SceneDataFormat.FabricMatrix44, i: int, position: Any, orientation: Any, scale: wp.vec3d):
    target.matrices[i] = to_row_matrix(position, orientation, scale)


@wp.func
def write_pose(target: SceneDataFormat.Vec3_Direction, i: int, position: Any, orientation: Any, scale: wp.vec3d):
    target.positions[i] = wp.vec3f(position)
    target.directions[i] = wp.vec3f(orientation)


@wp.func
def write_pose(target: SceneDataFormat.Vec3d_Direction, i: int, position: Any, orientation: Any, scale: wp.vec3d):
    target.positions[i] = wp.vec3d(position)
    target.directions[i] = wp.vec3d(orientation)
