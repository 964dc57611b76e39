"""The looks of a shard's environments, in the fields of a Model that MuJoCo Warp's ray tracer reads for each world."""

from collections.abc import Mapping
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
        self._envs = slice(first_env, first_env + num_envs)
        self._num_envs = num_envs
        self._device = device
        self._applied = NOTHING_SET
        self._shared: dict[str, wp.array] = dict(vars(fields))
        self._own: dict[str, wp.array] = {}
        self._followed: set[str] = set()
        nowhere = wp.zeros((0, 0), dtype=wp.vec3, device=device)
        self._poses = {"light_positions": nowhere, "light_directions": nowhere}

    def forget_geoms(self) -> None:
        """The fields of geoms were made anew, as the model has them: fill them again."""
        self._applied = replace(self._applied, shape_colors=None, shape_sizes=None)

    def apply(self, state: AppearanceState, looks: Mapping[str, wp.array]) -> None:
        """Bring the fields up to what was set, and the others to what the engine's own model has for each environment.

        Costs nothing when nothing was set since and the engine's model is the same for all.

        Args:
            state: What was set.
            looks: Fields (N, count, ...) of the engine's model, in memory that is this turn's.
        """
        if state is not self._applied:
            self._apply_state(state)
        if looks or self._followed:
            self._follow(state, looks)

    def _follow(self, state: AppearanceState, looks: Mapping[str, wp.array]) -> None:
        tables = {field: table for table, field in MODEL_FIELDS.items()}
        set_fields = {field for field, table in tables.items() if getattr(state, table) is not None}
        for field in self._followed - looks.keys() - set_fields:
            self._fill(field, None)
        self._followed = looks.keys() - set_fields
        for field in self._followed:
            self._install(field, looks[field][self._envs])

    def _apply_state(self, state: AppearanceState) -> None:
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
        shared = self._shared[field]
        if values is None and not self._has_slots(field):
            setattr(self._fields, field, shared)
            return
        rows = wp.array(self._rows(field, values), dtype=shared.dtype, device=self._device)
        own = self._own.setdefault(field, rows)
        if own is not rows:
            wp.copy(own, rows)
        self._install(field, own)

    def _install(self, field: str, rows: wp.array) -> None:
        """Have the tracer read these rows (num_envs, count, ...); what stands behind the model's geoms stays."""
        present = getattr(self._fields, field)
        if present.shape[1] == rows.shape[1]:
            setattr(self._fields, field, rows)
            return
        if present is self._shared[field] or present.shape[0] != self._num_envs:
            present = wp.array(self._for_each(present), dtype=present.dtype, device=self._device)
            setattr(self._fields, field, present)
        wp.copy(present[:, : rows.shape[1]], rows)

    def _has_slots(self, field: str) -> bool:
        """Whether there is room for extra geometry behind the model's geoms."""
        return getattr(self._fields, field).shape[1] > self._shared[field].shape[1]

    def _rows(self, field: str, values: NDArray[Any] | None) -> NDArray[Any]:
        """What a field is to hold, (num_envs, count, ...). Skins, which stand behind the geoms, stay as they are."""
        rows = self._for_each(self._shared[field])
        if values is None:
            return rows
        own = values[self._envs]
        if field == "mat_texid":
            rows[..., mujoco.mjtTextureRole.mjTEXROLE_RGB] = own
        else:
            rows[:, : own.shape[1]] = distinct_colors(self._mj_model, own) if field == "geom_rgba" else own
        return rows

    def _for_each(self, values: wp.array) -> NDArray[Any]:
        """A copy of a field on the host, with a row for each environment."""
        host = values.numpy()
        return np.array(np.broadcast_to(host, (self._num_envs, *host.shape[1:])))
