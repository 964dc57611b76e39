"""Which environments were drawn as background, and how often: counted where the flags are, read when somebody asks."""

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import warp as wp

from scene_data.launches import KeptLaunch
from scene_data.streams import WorkOrder

__all__ = ["BlankCounter"]


@wp.kernel(module="unique", enable_backward=False)
def _count_flags(flags: wp.array[wp.int32], counts: wp.array[wp.int64]):
    env = wp.tid()
    if flags[env] != 0:
        counts[env] = counts[env] + wp.int64(1)


class BlankCounter:
    """Counts, per environment, the captures that show it blank because its poses were not finite. Thread-safe."""

    def __init__(self, order: WorkOrder):
        self._order = order
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()
        self._device_counts: Any = None
        self._count: Any = None
        self._counted = order.new_event()

    def note(self, environments: Iterable[int]) -> None:
        """Count these environments."""
        with self._lock:
            self._counts.update(int(environment) for environment in environments)

    def note_flags(self, flags: Any) -> None:
        """Count the environments whose flag is not 0, on the device and without waiting for it.

        Args:
            flags: Warp array int32 (num_envs,), as it is after what was enqueued on the current stream so far.
        """
        with self._order.enqueueing(), self._lock:
            if self._device_counts is None or self._device_counts.shape != flags.shape:
                self._collect()
                self._device_counts = wp.zeros(flags.shape[0], dtype=wp.int64, device=flags.device)
                self._count = KeptLaunch(_count_flags, flags.device)
            self._count.launch(flags.shape[0], [flags], [self._device_counts])
            self._order.complete(self._counted)

    def counts(self) -> dict[int, int]:
        """How often each environment was blank, those that never were left out. On CUDA this waits for the device."""
        with self._order.enqueueing(), self._lock:
            self._collect()
            return {environment: self._counts[environment] for environment in sorted(self._counts)}

    def _collect(self) -> None:
        """Move what the device counted to the host."""
        if self._device_counts is None:
            return
        self._order.follow(self._counted)
        counts = self._device_counts.numpy()  # on the CPU a view
        for environment in np.flatnonzero(counts):
            self._counts[int(environment)] += int(counts[environment])
        self._device_counts.zero_()
        self._order.complete(self._counted)
