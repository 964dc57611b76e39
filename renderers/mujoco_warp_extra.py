"""Extra geometry for MuJoCo Warp's ray tracer: slots behind the model's geoms, and what a turn puts into them.

The tracer fixes the type of each geom when it builds its bounding volumes and its kernel, so slots are reserved type by
type. There are none until a turn brings extra geometry; the first one that does compiles a kernel that knows all types.
"""

import mujoco_warp as mjw
import numpy as np
import warp as wp

from scene_data.extra_geometry import PRIMITIVES
from scene_data.geometry_sources import PackedGeometry

__all__ = ["DeviceGeometry", "ExtraSlots"]

_GEOM_TYPES = np.array([int(mjw.GeomType[shape.name]) for shape in PRIMITIVES], dtype=np.int32)


class ExtraSlots:
    """Which slots there are, in each environment.

    Args:
        capacity: Slots by type, in the order of `PRIMITIVES`.
        device: Where the tables go.

    Attributes:
        capacity: Slots by type.
        count: Slots of all types.
        types: The tracer's geom type of each slot (count,) int32.
        type_of_slot: Index into `PRIMITIVES` of each slot (count,).
        rank_of_slot: How many slots of its type lie before each (count,).
    """

    def __init__(self, capacity: tuple[int, ...], device: wp.Device):
        self.capacity = capacity
        kinds = np.repeat(np.arange(len(capacity)), capacity).astype(np.int32)
        ranks = np.concatenate([np.arange(number) for number in (0, *capacity)]).astype(np.int32)
        self.count = kinds.size
        self.types = _GEOM_TYPES[kinds]
        self.type_of_slot = wp.array(kinds, dtype=wp.int32, device=device)
        self.rank_of_slot = wp.array(ranks, dtype=wp.int32, device=device)


class DeviceGeometry:
    """The extra geometry of one turn on the device.

    Attributes:
        source: What was uploaded.
        arrays: Blocks, positions, quaternions, sizes, colours and ids, as `place_extra` takes them.
    """

    def __init__(self, source: PackedGeometry, device: wp.Device):
        self.source = source
        self.arrays = [
            wp.array(values, dtype=dtype, device=device)
            for values, dtype in (
                (source.first, wp.int32),
                (source.positions, wp.vec3),
                (source.quaternions, wp.quat),
                (source.sizes, wp.vec3),
                (source.rgba, wp.vec4),
                (source.ids, wp.int32),
            )
        ]
