"""The looks of a shard's environments, in the fields of a Model that MuJoCo Warp's ray tracer reads for each world."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.appearance_state import NOTHING_SET, AppearanceState

from .mujoco_looks import MODEL_FIELDS, distinct_colors

__all__ = ["ShardAppearance"]

wp.set_module_options({"enable_backward": False})


@wp.kernel
def _place_lights(
    set_position: wp.array2d[wp.vec3],
    set_direction: wp.array2d[wp.vec3],
    position: wp.array2d[wp.vec3],
    direction: wp.array2d[wp.vec3],
):
    """Put lights where they were set to be; NaN stands for where they are anyway, and so does an empty array."""
    env, light = wp.tid()
    if set_position.shape[0] > 0:
        p = set_position[env, light]
        if not wp.isnan(p[0]):
            position[env, light] = p
    if set_direction.shape[0] > 0:
        d = set_direction[env, light]
        if not wp.isnan(d[0]):
            direction[env, light] = d


class ShardAppearance:
    """Keeps the fields of one shard at what is in force. Until something is set, they are the model's own for all.

    Args:
        mj_model: The model.
        fields: The shard's fields. Those that environments differ in are replaced by arrays of the shard's own.
        first_env: First environment of the shard.
        num_envs: Number of its environments.
        device: Where the fields are.
    """

    def __init__(
        self, mj_model: mujoco.MjModel, fields: SimpleNamespace, first_env: int, num_envs: int, device: wp.Device
    ):
        self._mj_model = mj_model
        self._fields = fields
        self._shared: dict[str, wp.array] = {field: getattr(fields, field) for field in MODEL_FIELDS.values()}
        self._envs = slice(first_env, first_env + num_envs)
        self._num_envs = num_envs
        self._device = device
        self._applied = NOTHING_SET
        nowhere = wp.zeros((0, 0), dtype=wp.vec3, device=device)
        self._poses = {"light_positions": nowhere, "light_directions": nowhere}

    def forget_geoms(self) -> None:
        """The fields of geoms were made anew, as the model has them: fill them again."""
        self._applied = replace(self._applied, shape_colors=None, shape_sizes=None)

    def apply(self, state: AppearanceState) -> None:
        """Bring the fields up to a state. Costs nothing when nothing was set since."""
        if state is self._applied:
            return
        for table, field in MODEL_FIELDS.items():
            values = getattr(state, table)
            if values is not getattr(self._applied, table):
                self._fill(field, values)
        for table in self._poses:
            values = getattr(state, table)
            if values is not getattr(self._applied, table):
                wp.load_module(__name__, device=self._device)
                rows = np.zeros((0, 0, 3)) if values is None else values[self._envs]
                self._poses[table] = wp.array(rows, dtype=wp.vec3, device=self._device)
        self._applied = state

    def place_lights(self, position: wp.array, direction: wp.array) -> None:
        """Put the shard's lights (num_envs, nlight) where they were set to be."""
        if any(poses.size for poses in self._poses.values()):
            wp.launch(
                _place_lights, position.shape, [*self._poses.values()], [position, direction], device=self._device
            )

    def _fill(self, field: str, values: NDArray[Any] | None) -> None:
        """Write the shard's rows of a table into a field, or give it back to the model."""
        shared, present = self._shared[field], getattr(self._fields, field)
        count = shared.shape[1]
        if values is None and present.shape[1] == count:
            setattr(self._fields, field, shared)
            return
        rows = wp.array(self._rows(field, values), dtype=shared.dtype, device=self._device)
        if present is shared:
            setattr(self._fields, field, rows)
        else:  # there may be slots for extra geometry behind the model's geoms
            wp.copy(present[:, :count], rows)

    def _rows(self, field: str, values: NDArray[Any] | None) -> NDArray[Any]:
        """What a field is to hold, (num_envs, count, ...). Skins, which stand behind the geoms, stay as they are."""
        rows = np.repeat(self._shared[field].numpy(), self._num_envs, axis=0)
        if values is None:
            return rows
        own = values[self._envs]
        if field == "mat_texid":
            rows[..., mujoco.mjtTextureRole.mjTEXROLE_RGB] = own
        else:
            rows[:, : own.shape[1]] = distinct_colors(self._mj_model, own) if field == "geom_rgba" else own
        return rows
