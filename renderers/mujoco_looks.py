"""Where a MuJoCo model has what `AppearanceState` speaks of; both render backends that draw such a model need it."""

from types import MappingProxyType

import mujoco
import numpy as np
from numpy.typing import NDArray

from scene_data.appearance import Randomization

__all__ = ["MODEL_FIELDS", "MODEL_RANDOMIZATIONS", "distinct_colors"]

MODEL_FIELDS = MappingProxyType(
    {
        "material_colors": "mat_rgba",
        "shape_colors": "geom_rgba",
        "shape_sizes": "geom_size",
        "textures": "mat_texid",
        "light_ambient": "light_ambient",
        "light_diffuse": "light_diffuse",
        "light_specular": "light_specular",
        "light_switches": "light_active",
    }
)
"""Field of the model by table of the state. Skins, and flexes in OpenGL, have the colours of their materials."""

MODEL_RANDOMIZATIONS = frozenset(Randomization)
"""What can be shown with these fields and with poses of lights."""

_UNSET = np.array([0.5, 0.5, 0.5, 1.0], np.float32)
_NEXT = np.nextafter(np.float32(0.5), np.float32(1.0))


def distinct_colors(model: mujoco.MjModel, colors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Colours of geoms (..., ngeom, 4) that MuJoCo draws as they are.

    It takes one particular grey for "as the material has it": where that would be another colour, the nearest grey is
    given instead.
    """
    materials = model.geom_matid
    differs = (materials >= 0) & (model.mat_rgba[materials] != _UNSET).any(axis=-1) if model.nmat else materials >= 0
    is_mistaken = (colors == _UNSET).all(axis=-1) & differs
    if not is_mistaken.any():
        return colors
    distinct = colors.copy()
    distinct[is_mistaken, 0] = _NEXT
    return distinct
