"""How new values reach a viser scene: one message for each handle, and none where there is no news."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from viser._messages import SceneNodeUpdateMessage

from .instance_poses import PlacedInstances

__all__ = ["InstanceBatch", "send_update"]

_WIRE_TYPE = SceneNodeUpdateMessage.__name__


class _ArraysUpdate(SceneNodeUpdateMessage):
    """New values of a node that are contiguous arrays, all of them.

    viser asks of every value of every message whether it is one of a dozen types, on a thread that takes the
    interpreter away from the one that steps. There is no need to ask here.
    """

    def as_serializable_dict(self, binary_buffers: list[memoryview] | None = None) -> dict[str, Any]:
        updates: dict[str, Any] = {}
        for name, values in self.updates.items():
            if binary_buffers is None:
                updates[name] = values.data
            else:
                updates[name] = {"__binary_index": len(binary_buffers), "dtype": values.dtype.str}
                binary_buffers.append(values.data)
        return {"name": self.name, "updates": updates, "owner": self.owner, "type": _WIRE_TYPE}


def send_update(handle: Any, **values: NDArray) -> None:
    """Send new values of a handle's properties as one message.

    Assigning to each would compare, cast and copy every array several times and send a message each, on the thread that
    the simulation waits for.

    Args:
        handle: The viser handle.
        values: By property, contiguous and in the type that viser sends. The arrays must not be written to any more.
    """
    node = handle._impl
    for name, value in values.items():
        setattr(node.props, name, value)
    node.api._queue_scene_message(_ArraysUpdate(node.name, values))


class InstanceBatch:
    """The instances of one group in viser.

    Args:
        handle: The batched mesh.
        index: Index of the group.
        rows: Which of all the instances are its.
        scales: Factors of the geometry's axes, `(K, 3)` float32.
    """

    def __init__(self, handle: Any, index: int, rows: slice, scales: NDArray[np.float32]):
        self.handle = handle
        self.index = index
        self._rows = rows
        self._scales = scales

    def place(self, placed: PlacedInstances) -> None:
        """Send poses, if they are new. An instance without a pose vanishes until it has one."""
        rows = self._rows
        if placed.has_turned_visible[self.index]:
            scales = np.where(placed.is_finite[rows, None], self._scales, np.float32(0.0))
            send_update(self.handle, batched_scales=scales)
        if placed.has_moved[self.index]:
            positions, wxyz = placed.positions[rows].copy(), placed.wxyz[rows].copy()
            send_update(self.handle, batched_positions=positions, batched_wxyzs=wxyz)
