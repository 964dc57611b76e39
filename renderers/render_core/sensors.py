"""Sensor: what a pipeline knows of one camera, and whether the frame that it has will do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..camera_data import CameraData
from ..camera_seat import CameraSeat
from ..frame_info import FrameInfo
from .layout import PlaneKind
from .leases import FrameLease

__all__ = ["Sensor", "StateVersion"]

StateVersion = tuple[Any, ...]
"""Tells one state from another: first, as one entry, what was set about cameras, geometry and looks, then time and
publications."""

# Engines on a device count time in single precision: a period may look a little shorter than it is.
_WHOLE = 0.99


@dataclass(eq=False)
class Sensor:
    """A camera's own consumer, and what it delivered last.

    Attributes:
        seat: The camera.
        consumer: Its one-shot consumer.
        data: What it delivered last.
        version: The state that `data` shows.
        turn: The turn that made it, counted from 1.
        was_read: Whether somebody has read `data`.
        period_ns: Simulation time between two frames [ns].
    """

    seat: CameraSeat
    consumer: int
    data: CameraData | None = None
    version: StateVersion | None = None
    turn: int = 0
    was_read: bool = False
    period_ns: int = 0

    def has_moved(self, now: int, version: StateVersion, env_time_ns: np.ndarray | None) -> bool:
        """Whether the state that its frame shows is over, and it is time for another."""
        return self.version != version and self.is_period_over(now, version, env_time_ns)

    def is_period_over(self, now: int, version: StateVersion, env_time_ns: np.ndarray | None) -> bool:
        """Whether its period is over, or cut short by a reset, or by what was set about cameras, geometry or looks."""
        if self.data is None or self.version is None or not self.period_ns:
            return True
        info = self.data.info
        elapsed = now - info.simulation_time_ns
        was_reset = elapsed < 0 or (env_time_ns is not None and bool((env_time_ns < info.env_time_ns).any()))
        return was_reset or elapsed >= _WHOLE * self.period_ns or self.version[0] != version[0]

    def take(
        self, leases: Mapping[PlaneKind, FrameLease], info: FrameInfo, version: StateVersion, turn: int, is_due: bool
    ) -> bool:
        """Take the frames of a turn if it is due, or if all its planes were made for others anyway.

        Returns:
            Whether it was due and has its frames.
        """
        if len(leases) < len(self.seat.descriptor.planes):
            # A frame that could not be made leaves nothing in its place: an older one must not pass for it.
            self.data = None if is_due else self.data
            return False
        if is_due or not self.period_ns:
            seat = self.seat
            by_type = {data_type: leases[seat.plane(data_type)] for data_type in seat.cfg.data_types}
            self.data = CameraData(by_type, info, seat.makers)
            self.version, self.turn = version, turn
        return is_due
