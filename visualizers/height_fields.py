"""Height fields whose data is changed while the simulation runs."""

from dataclasses import replace

import numpy as np

from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription
from scene_data.scene_assets import HeightFieldDescription

__all__ = ["HeightFieldWatch"]


class HeightFieldWatch:
    """Tells which height fields are other than at the last look.

    Args:
        provider: Publishes them.
        scene: As they were when the scene was described.
    """

    def __init__(self, provider: SceneDataProvider, scene: SceneDescription):
        self._provider = provider
        used = {shape.height_field for shape in scene.shapes if shape.height_field is not None}
        self._fields = {index: scene.height_fields[index] for index in sorted(used)}

    def changed(self) -> dict[int, HeightFieldDescription]:
        """The height fields that have changed since the last call, by index."""
        changed = {}
        for index, field in self._fields.items():
            heights = self._provider.get_height_field(index)
            if heights is not None and not np.array_equal(heights, field.heights):
                changed[index] = replace(field, heights=np.array(heights, dtype=np.float32))
        self._fields.update(changed)
        return changed
