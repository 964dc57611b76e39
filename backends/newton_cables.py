"""Rods of a Newton model as curves through the ends of their capsules."""

from typing import Any

import newton
import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.backends.newton_worlds import Deformable, NewtonWorlds, array_or_empty
from scene_data.formats import SceneDataFormat

__all__ = ["cable_batch"]


def cable_batch(model: newton.Model, worlds: NewtonWorlds) -> tuple[Any, dict[str, tuple[int, int]]] | None:
    """Describe each rod that is a chain as a polyline.

    Args:
        model: The model, whose shape arrays are borrowed.
        worlds: Its worlds.

    Returns:
        `CapsuleEndpoints`, whose `transforms` the caller binds, and the range of each rod's vertices by path: one more
        than it has capsules. None without rods.
    """
    joints = np.column_stack((array_or_empty(model.joint_parent), array_or_empty(model.joint_child)))
    rods = worlds.deformable_paths("curve")
    chains = [(path, chain) for path, rod in rods if (chain := _chain(model, joints, rod)) is not None]
    if not chains:
        return None
    ranges: dict[str, tuple[int, int]] = {}
    offset = 0
    for path, chain in chains:
        ranges[path] = (offset, len(chain))
        offset += len(chain)
    cables = SceneDataFormat.CapsuleEndpoints()
    cables.shape_body = model.shape_body
    cables.shape_transform = model.shape_transform
    cables.shape_scale = model.shape_scale
    endpoints = np.concatenate([chain for _, chain in chains])
    cables.endpoints = wp.array(endpoints, dtype=wp.vec4i, device=model.device)
    return cables, ranges


def _chain(model: newton.Model, joints: NDArray[np.int32], rod: Deformable) -> NDArray[np.int32] | None:
    """Vertices of a rod as (capsule, end, capsule, end), or None if its capsules are no chain."""
    bodies = range(rod.start, rod.end)
    capsules = [shapes[0] for body in bodies if (shapes := model.body_shapes.get(body))]
    links = set(map(tuple, joints[rod.element_start : rod.element_end].tolist()))
    consecutive = all((body, body + 1) in links for body in bodies[:-1])
    if len(capsules) != len(bodies) or not capsules or not consecutive:
        return None
    closed = (rod.end - 1, rod.start) in links
    # An end that is joined to nothing is paired with itself; the two ends of a closed rod with each other.
    before, after = (capsules[-1], capsules[0]) if closed else (capsules[0], capsules[-1])
    before_end, after_end = (1, -1) if closed else (-1, 1)
    return np.column_stack(
        (
            [before, *capsules],
            [before_end, *[1] * len(capsules)],
            [*capsules, after],
            [*[-1] * len(capsules), after_end],
        )
    ).astype(np.int32)
