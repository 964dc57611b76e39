"""How new values reach a viser scene: one message for each handle, and none where there is no news."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from viser._messages import SceneNodeUpdateMessage

from .instance_poses import PlacedInstances

__all__ = ["InstanceBatch", "send_update"]


def send_update(handle: Any, **values: NDArray) -> None:
    """Send new values of a handle's properties as one message.

    Assigning to each would compare, cast and copy every array several times and send a message each, on the thread that
    the simulation waits for.

    Args:
        handle: The viser handle.
        values: By property, in the type and layout that viser sends. The arrays must not be written to any more.
    """
    node = handle._impl
    for name, value in values.items():
        setattr(node.props, name, value)
    node.api._queue_scene_message(SceneNodeUpdateMessage(node.name, dict(values)))


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
        self._index = index
        self._rows = rows
        self._scales = scales
        self._owes_poses = self._owes_scales = False

    def place(self, placed: PlacedInstances) -> None:
        """Send poses if they are new; if the batch is hidden, once it is shown. An instance without a pose vanishes."""
        self._owes_poses |= bool(placed.has_moved[self._index])
        self._owes_scales |= bool(placed.has_turned_visible[self._index])
        if self.handle.visible:
            self._send(placed)

    def show(self, is_shown: bool, placed: PlacedInstances) -> None:
        """Show or hide the batch, which has been told of these poses."""
        if is_shown:
            self._send(placed)
        self.handle.visible = is_shown

    def _send(self, placed: PlacedInstances) -> None:
        rows = self._rows
        if self._owes_scales:
            scales = np.where(placed.is_finite[rows, None], self._scales, np.float32(0.0))
            send_update(self.handle, batched_scales=scales)
        if self._owes_poses:
            send_update(self.handle, batched_positions=placed.positions[rows], batched_wxyzs=placed.wxyz[rows])
        self._owes_poses = self._owes_scales = False
