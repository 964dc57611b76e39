"""The model that MuJoCo Warp simulates, made from one that the C engine compiled."""

import copy
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

__all__ = ["put_model"]


def put_model(model: mujoco.MjModel) -> Any:
    """`mujoco_warp.put_model`, also for a height field that only decorates a scene with flexes.

    MuJoCo Warp 4.0 refuses a model with both, since it has no collision between them, also where the height field
    collides with nothing. Such a field is a box while the collision tables are built, and itself again afterwards.

    Raises:
        ValueError: MuJoCo Warp cannot simulate the model; the message says what it lacks.
    """
    collision_model = copy.copy(model)
    collision_model.geom_type[_decorative_height_fields(model)] = mujoco.mjtGeom.mjGEOM_BOX
    try:
        warp_model = mjw.put_model(collision_model)
    except NotImplementedError as error:
        raise ValueError(
            f"engine 'mujoco_warp' cannot simulate this model: {error} "
            "The engines 'mujoco' and 'mujoco_batch' simulate every MuJoCo model."
        ) from error
    warp_model.geom_type = wp.array(model.geom_type, dtype=int)
    return warp_model


def _decorative_height_fields(model: mujoco.MjModel) -> np.ndarray:
    """Which geoms are height fields that touch nothing, (ngeom,) bool."""
    paired = np.isin(np.arange(model.ngeom), np.concatenate((model.pair_geom1, model.pair_geom2)))
    untouched = (model.geom_contype == 0) & (model.geom_conaffinity == 0) & ~paired
    return (model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD) & untouched
