"""Newton's camera sensor, told once what to draw.

Its update packs some fifty arguments for its kernel, in Python, which takes a twentieth of the time of a small picture,
and which threads that draw tiles do one after another. As the arrays stay the same, the launch can be kept.
"""

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import warp as wp
from newton.sensors import SensorCamera

__all__ = ["kept_update"]

_KEEPING = threading.Lock()


class _LaunchesKept:
    """Warp, for the module of the sensor: launches of this thread are kept in place of being made.

    Attributes:
        launches: What was kept.
    """

    def __init__(self):
        self.launches: list[wp.Launch] = []
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(wp, name)

    def launch(self, *arguments: Any, **options: Any) -> None:
        if threading.get_ident() == self._thread:
            self.launches.append(wp.launch(*arguments, **options, record_cmd=True))
        else:
            wp.launch(*arguments, **options)


def kept_update(sensor: SensorCamera, request: Mapping[str, Any]) -> Callable[[], None]:
    """An update of a sensor, to be made again and again. The kernel is compiled now; nothing is drawn yet.

    Args:
        sensor: The sensor. What it draws with is not replaced by other arrays from now on; their contents may change.
        request: The arguments of `SensorCamera.update` by name, without anything to sync.

    Returns:
        What makes the update. Where that is not one launch, it is the sensor's own.
    """
    with _KEEPING:
        module: Any = sys.modules[type(sensor._render_context).__module__]
        kept = _LaunchesKept()
        module.wp = kept
        try:
            sensor.update(**request)
        finally:
            module.wp = wp
    if len(kept.launches) != 1:
        return lambda: sensor.update(**request)
    return kept.launches[0].launch
