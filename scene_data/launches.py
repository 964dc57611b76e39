"""Launches that are made again and again, with their arguments packed once."""

from collections.abc import Sequence
from typing import Any

import warp as wp

__all__ = ["KeptLaunch"]

_MOST_KEPT = 4


class KeptLaunch:
    """Launches a kernel, mostly with the same arguments as before.

    Warp packs every argument of every launch anew, in Python, which takes longer than a small kernel runs. What was
    packed for the last few sets of arguments is kept here, and the arguments with it.

    Args:
        kernel: The kernel.
        device: Where it runs.
    """

    def __init__(self, kernel: wp.Kernel, device: wp.Device):
        self._kernel = kernel
        self._device = device
        self._kept: dict[tuple[Any, ...], tuple[wp.Launch, Any]] = {}

    def launch(self, dim: int | tuple[int, ...], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Launch the kernel on the current stream.

        Args:
            dim: Number of threads.
            inputs: As `wp.launch` takes them. Arguments that are the same objects are taken for the same, so a struct
                must keep the arrays that it has; what arrays contain may change.
            outputs: The same.
        """
        key = dim, *map(id, inputs), *map(id, outputs)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) == _MOST_KEPT:
                self._kept.clear()
            command = wp.launch(self._kernel, dim, inputs, outputs, device=self._device, record_cmd=True)
            # Nothing else has the id of an object for as long as that is kept.
            kept = self._kept[key] = command, (*inputs, *outputs)
        kept[0].launch()
