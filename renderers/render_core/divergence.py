"""Whether poses are of a healthy state, for kernels that find the environments whose state diverged."""

import warp as wp

__all__ = ["is_healthy", "is_healthy_pose"]

# MuJoCo's own bound on what a healthy state holds (mjMAXVAL). Larger values overflow in float32 bounding boxes.
MAX_VALUE = wp.constant(1.0e10)


@wp.func
def is_healthy(v: wp.vec3) -> bool:
    """Whether a vector is finite, and no larger than a healthy state has it."""
    # Comparisons with NaN are false.
    return wp.abs(v[0]) <= MAX_VALUE and wp.abs(v[1]) <= MAX_VALUE and wp.abs(v[2]) <= MAX_VALUE


@wp.func
def _is_healthy_rotation(r: wp.mat33) -> bool:
    """Whether all of a matrix is."""
    return (
        is_healthy(wp.vec3(r[0, 0], r[0, 1], r[0, 2]))
        and is_healthy(wp.vec3(r[1, 0], r[1, 1], r[1, 2]))
        and is_healthy(wp.vec3(r[2, 0], r[2, 1], r[2, 2]))
    )


@wp.func
def is_healthy_pose(position: wp.vec3, rotation: wp.mat33) -> bool:
    """Whether both are."""
    return is_healthy(position) and _is_healthy_rotation(rotation)
