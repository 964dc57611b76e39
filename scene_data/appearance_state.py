"""What is set about the looks of environments at run time, as tables that nobody writes to."""

from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scene_data.scene import SceneDescription, ShapeDescription, frozen

__all__ = ["NOTHING_SET", "AppearanceState", "Looks", "Randomization"]


class Randomization(Enum):
    """What a render backend can show differently in each environment, without being built anew."""

    MATERIAL_COLORS = "material colours"
    SHAPE_COLORS = "shape colours"
    OPACITY = "opacities"
    TEXTURES = "textures"
    SHAPE_SIZES = "shape sizes"
    LIGHT_POSITIONS = "light positions"
    LIGHT_DIRECTIONS = "light directions"
    LIGHT_COLORS = "light colours"
    LIGHT_SWITCHES = "which lights are on"


@dataclass(frozen=True, eq=False)
class AppearanceState:
    """What is in force; None where nothing of that kind is set.

    Tables cover all N environments and are never written to: what did not change from one state to the next is the same
    array in both.

    Attributes:
        material_colors: `(N, M, 4)` float32.
        own_colors: `(N, S, 4)` float32: what was set for shapes themselves, NaN elsewhere.
        shape_colors: `(N, S, 4)` float32: what shapes are drawn in, after both of these.
        textures: `(N, M)` int32: texture that a material is covered with, -1 for none.
        shape_sizes: `(N, S, 3)` float32 [m].
        light_positions: `(N, L, 3)` float32, in the environment's frame [m]; NaN where the engine says it.
        light_directions: `(N, L, 3)` float32, of unit length; NaN where the engine says it.
        light_ambient, light_diffuse, light_specular: `(N, L, 3)` float32.
        light_switches: `(N, L)` bool: which lights are on.
    """

    material_colors: NDArray[np.float32] | None = None
    own_colors: NDArray[np.float32] | None = None
    shape_colors: NDArray[np.float32] | None = None
    textures: NDArray[np.int32] | None = None
    shape_sizes: NDArray[np.float32] | None = None
    light_positions: NDArray[np.float32] | None = None
    light_directions: NDArray[np.float32] | None = None
    light_ambient: NDArray[np.float32] | None = None
    light_diffuse: NDArray[np.float32] | None = None
    light_specular: NDArray[np.float32] | None = None
    light_switches: NDArray[np.bool_] | None = None


NOTHING_SET = AppearanceState()
"""What is in force before anything is set."""


class Looks:
    """What a scene's parts look like before anything is set, and how states follow from one another.

    Attributes:
        scene: The scene.
    """

    def __init__(self, scene: SceneDescription):
        self.scene = scene
        materials, shapes, lights = scene.materials, scene.shapes, scene.lights
        self._material_of = np.array([_followed_material(scene, shape) for shape in shapes], np.int64)
        self._drawn = _table([shape.rgba for shape in shapes], (4,))
        nowhere = np.full((len(lights), 3), np.nan, np.float32)
        self._initial: dict[str, NDArray[Any]] = {
            "material_colors": _table([material.rgba for material in materials], (4,)),
            "own_colors": np.full((len(shapes), 4), np.nan, np.float32),
            "textures": _table([material.textures.get("rgb", -1) for material in materials], (), np.int32),
            "shape_sizes": _table([shape.size for shape in shapes], (3,)),
            "light_positions": nowhere,
            "light_directions": nowhere,
            "light_ambient": _table([light.ambient for light in lights], (3,)),
            "light_diffuse": _table([light.diffuse for light in lights], (3,)),
            "light_specular": _table([light.specular for light in lights], (3,)),
            "light_switches": _table([light.active for light in lights], (), bool),
        }

    def alphas(self, table: str) -> NDArray[np.float32]:
        """How opaque what a table of colours speaks of is before anything is set."""
        return (self._drawn if table == "own_colors" else self._initial[table])[:, 3]

    def changed(
        self,
        state: AppearanceState,
        table: str,
        envs: NDArray[np.int64],
        columns: NDArray[np.int64],
        values: NDArray[Any],
    ) -> AppearanceState:
        """The state after a write of (len(envs), len(columns), ...) values; of colours the first channels will do."""
        initial, before = self._initial[table], getattr(state, table)
        if before is None:
            before = np.broadcast_to(initial, (self.scene.num_envs, *initial.shape))
        after = before.copy()
        channels = (slice(values.shape[2]),) if values.ndim == 3 else ()
        after[(envs[:, None], columns, *channels)] = values
        after.flags.writeable = False
        return self._with_drawn(replace(state, **{table: after}), state)

    def restored(self, state: AppearanceState, envs: NDArray[np.int64]) -> AppearanceState:
        """The state without what was set in some environments."""
        if len(np.unique(envs)) == self.scene.num_envs:
            return NOTHING_SET
        tables = {}
        for name in (field.name for field in fields(state) if field.name in self._initial):
            if (before := getattr(state, name)) is not None:
                tables[name] = before.copy()
                tables[name][envs] = self._initial[name]
                tables[name].flags.writeable = False
        return self._with_drawn(replace(state, **tables), state)

    def _with_drawn(self, state: AppearanceState, before: AppearanceState) -> AppearanceState:
        """The state with what shapes are drawn in brought up to its other tables of colours."""
        own, materials = state.own_colors, state.material_colors
        if own is before.own_colors and materials is before.material_colors:
            return state
        drawn = np.repeat(self._drawn[None], self.scene.num_envs, axis=0)
        if materials is not None:
            follows = self._material_of >= 0
            drawn[:, follows] = materials[:, self._material_of[follows]]
        if own is not None:
            drawn = np.where(np.isnan(own), drawn, own)
        drawn.flags.writeable = False
        return replace(state, shape_colors=drawn)


def _followed_material(scene: SceneDescription, shape: ShapeDescription) -> int:
    """The material whose colour a shape has; -1 where it has one of its own."""
    if shape.material is None or (shape.rgba != scene.materials[shape.material].rgba).any():
        return -1
    return shape.material


def _table(rows: list[Any], width: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
    return frozen(np.array(rows, dtype).reshape(len(rows), *width), dtype)
