"""EnvTimes: how far each environment was at one moment, read from the device when somebody asks."""

from collections.abc import Callable
from functools import cached_property

import numpy as np

__all__ = ["EnvTimes"]


class EnvTimes:
    """Times of the environments at the moment at which this was made.

    Args:
        read: Gives them, int64 (N,) [ns], or None where the environments share one time. It may wait for a device.
    """

    def __init__(self, read: Callable[[], np.ndarray | None]):
        self._read = read

    @cached_property
    def nanoseconds(self) -> np.ndarray | None:
        """Simulation time of each environment [ns], int64 (N,); None where they share one. May wait for a device."""
        return self._read()
