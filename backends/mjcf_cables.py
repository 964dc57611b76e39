"""Cables in a compiled model: chains of capsules on ball joints, as older files' composite cables compile to.

A cable is a chain of at least three bodies. Each carries one geom and that is a capsule, all of one radius; each but
the first hangs from the one before it by one ball joint; and each capsule begins where the one before it ends, to
within the radius. Where two bodies hang from one in this way, the chain ends. What MuJoCo compiles to a flex of
dimension 1 is described as a flex.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import commonprefix

import mujoco
import numpy as np
from numpy.typing import NDArray

from scene_data.backends.mjcf_assets import drawn_rgba, index_or_none, name_of
from scene_data.scene import CableDescription, frozen

__all__ = ["CapsuleChain", "describe_cables", "find_cables"]

_MIN_LENGTH = 3
_COMPOSITE_SUFFIX = "B_"


@dataclass(frozen=True)
class CapsuleChain:
    """A cable before it has a path.

    Attributes:
        name: What its bodies' names have in common, possibly empty.
        bodies: Bodies along the chain.
        geoms: The capsule of each.
        first_ends: Which end of each comes first, 1 for +Z and -1 for -Z.
    """

    name: str
    bodies: tuple[int, ...]
    geoms: tuple[int, ...]
    first_ends: tuple[int, ...]


def find_cables(model: mujoco.MjModel) -> tuple[CapsuleChain, ...]:
    """Every cable, in the order of their first bodies."""
    capsules = _lone_capsules(model)
    links: dict[int, list[tuple[int, int, int]]] = {}
    for body in capsules:
        if (joint := _joint_to_parent(model, capsules, body)) is not None:
            links.setdefault(int(model.body_parentid[body]), []).append((body, *joint))
    followers = {body: found[0] for body, found in links.items() if len(found) == 1}
    chains = []
    taken: set[int] = set()
    for body in capsules:
        if body not in taken and (ends := _follow(body, followers)):
            taken.update(ends)
            if len(ends) >= _MIN_LENGTH:
                bodies = tuple(ends)
                geoms = tuple(capsules[body] for body in bodies)
                chains.append(CapsuleChain(_common_name(model, bodies), bodies, geoms, tuple(ends.values())))
    return tuple(chains)


def describe_cables(
    model: mujoco.MjModel, cables: Sequence[CapsuleChain], path_names: Sequence[str]
) -> tuple[CableDescription, ...]:
    """Describe cables with their paths."""
    return tuple(
        CableDescription(
            name=cable.name,
            path_name=path_name,
            bodies=frozen(cable.bodies, np.int32),
            shapes=frozen(cable.geoms, np.int32),
            first_ends=frozen(cable.first_ends, np.int32),
            radius=float(model.geom_size[cable.geoms[0], 0]),
            material=index_or_none(model.geom_matid[cable.geoms[0]]),
            rgba=drawn_rgba(model, model.geom_rgba[cable.geoms[0]], model.geom_matid[cable.geoms[0]]),
            group=int(model.geom_group[cable.geoms[0]]),
        )
        for cable, path_name in zip(cables, path_names, strict=True)
    )


def _lone_capsules(model: mujoco.MjModel) -> dict[int, int]:
    """The capsule of each body that carries nothing else."""
    bodies = np.flatnonzero(model.body_geomnum == 1)
    geoms = model.body_geomadr[bodies]
    is_capsule = model.geom_type[geoms] == mujoco.mjtGeom.mjGEOM_CAPSULE
    return {int(body): int(geom) for body, geom in zip(bodies[is_capsule], geoms[is_capsule], strict=True) if body}


def _joint_to_parent(model: mujoco.MjModel, capsules: dict[int, int], body: int) -> tuple[int, int] | None:
    """Which end of the parent's capsule is joined to which of this body's, or None if that is no cable's joint."""
    parent = int(model.body_parentid[body])
    joints = model.jnt_type[model.jnt_bodyid == body]
    if parent not in capsules or joints.tolist() != [mujoco.mjtJoint.mjJNT_BALL]:
        return None
    before, after = capsules[parent], capsules[body]
    radius = model.geom_size[before, 0]
    if not np.isclose(radius, model.geom_size[after, 0]):
        return None
    on_parent = model.body_pos[body] + _ends(model, after) @ _matrix(model.body_quat[body]).T
    distances = np.linalg.norm(_ends(model, before)[:, None] - on_parent, axis=-1)
    nearest = np.unravel_index(distances.argmin(), distances.shape)
    if distances[nearest] > radius:
        return None
    out, into = (1 - 2 * int(end) for end in nearest)
    return out, into


def _ends(model: mujoco.MjModel, geom: int) -> NDArray[np.float64]:
    """Both ends of a capsule in its body's frame, first the one at +Z, `(2, 3)`."""
    half = _matrix(model.geom_quat[geom])[:, 2] * model.geom_size[geom, 1]
    return model.geom_pos[geom] + np.stack((half, -half))


def _matrix(quaternion: NDArray[np.float64]) -> NDArray[np.float64]:
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, quaternion)
    return matrix.reshape(3, 3)


def _follow(body: int, followers: dict[int, tuple[int, int, int]]) -> dict[int, int]:
    """First end of each body from this one on, for as long as capsules are passed from one end to the other."""
    ends: dict[int, int] = {}
    into = 0
    while (link := followers.get(body)) is not None and (not into or link[1] == -into):
        ends[body] = -link[1]
        body, _, into = link
    if ends:
        ends[body] = into
    return ends


def _common_name(model: mujoco.MjModel, bodies: Sequence[int]) -> str:
    names = [name_of(model, mujoco.mjtObj.mjOBJ_BODY, body) for body in bodies]
    # Characters are meant, not folders.
    return commonprefix(names).removesuffix(_COMPOSITE_SUFFIX).rstrip("_-/")  # noqa: RUF071
