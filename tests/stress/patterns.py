"""Frames that say by their bytes which frame they are: whoever reads one can tell that it is whole."""

import struct
import zlib
from typing import Any

import numpy as np

from scene_data.renderers import FrameLease, FrameStamp, PlaneKind

PLANE_NUMBER = {plane: number for number, plane in enumerate(PlaneKind)}


def pattern(stamp: FrameStamp, plane: PlaneKind, length: int) -> np.ndarray:
    """What a frame with this stamp consists of: its fields and their checksum, over and over, uint8 (length,)."""
    fields = struct.pack(
        "<6q",
        stamp.capture_id,
        stamp.camera_id,
        PLANE_NUMBER[plane],
        stamp.model_generation,
        stamp.frame_generation,
        stamp.simulation_time_ns,
    )
    word = fields + struct.pack("<I", zlib.crc32(fields))
    return np.resize(np.frombuffer(word, np.uint8), length)


def fill(buffer: Any, stamp: FrameStamp, plane: PlaneKind) -> None:
    """Write a frame in pieces, so that a reader who comes too early sees a torn one."""
    target = buffer.numpy().reshape(-1).view(np.uint8)
    expected = pattern(stamp, plane, target.size)
    for begin in range(0, target.size, 97):
        target[begin : begin + 97] = expected[begin : begin + 97]


def bytes_of(view: Any) -> np.ndarray:
    """The bytes of a NumPy, torch or Warp view of a whole frame."""
    host = view if isinstance(view, np.ndarray) else view.numpy()
    return np.ascontiguousarray(host).reshape(-1).view(np.uint8)


VIEWS = {
    "numpy": lambda lease: lease.numpy(),
    "torch": lambda lease: lease.torch(),
    "warp": lambda lease: lease.warp(),
    "dlpack": lambda lease: np.from_dlpack(lease),
    "reshaped": lambda lease: lease.torch().reshape(-1),
}
"""How a frame is looked at."""


class Sight:
    """A view of a frame that a consumer holds, with what it has to show for as long as it is held."""

    def __init__(self, lease: FrameLease, kind: str, keeps_lease: bool):
        self.stamp = lease.stamp
        self.plane = lease.plane
        self.kind = kind
        self.lease = lease if keeps_lease else None
        self.view = VIEWS[kind](lease)
        self._expected = pattern(lease.stamp, lease.plane, lease.layout.byte_length)
        if not keeps_lease:
            lease.release()

    def is_whole(self) -> bool:
        """Whether the view shows the frame that its stamp speaks of, every byte of it."""
        return np.array_equal(bytes_of(self.view), self._expected)
