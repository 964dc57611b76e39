"""How the viser viewer is set up. It needs no viser to be written down."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from .base import VisualizerCfg

__all__ = ["ViserVisualizerCfg"]

_FRAME_RATE = 30.0


@dataclass(kw_only=True)
class ViserVisualizerCfg(VisualizerCfg):
    """A viewer in the browser.

    Attributes:
        port: Where the page is served; 0 takes a free one.
        bind_address: Which network it is served on; `"127.0.0.1"` is this machine alone, `"0.0.0.0"` is all of them.
        share: Whether to ask viser's servers for a public address, too.
        open_browser: Whether to open the page in a browser here.
        label: Title of the page; None is the model's name.
        record_to_viser: Write everything that is shown into this file at the end, at `record_fps` of simulation time.
        record_fps: Pictures per second of simulation time in it [Hz].
        update_frequency: Updates per second of real time [Hz]; while recording, every render interval counts.
        image_frequency: Images of cameras per second of real time [Hz].
        speed: Simulation speed at the start, as a multiple of real time; None is as fast as it can.
        start_paused: Whether the simulation waits until somebody presses play.

    Raises:
        ValueError: A number that cannot be used.
    """

    visualizer_type: ClassVar[str] = "viser"
    command_line_options: ClassVar[Mapping[str, str]] = {
        "port": "port",
        "bind_address": "bind_address",
        "record": "record_to_viser",
        "open_browser": "open_browser",
        "speed": "speed",
        "share": "share",
    }

    port: int = 8080
    bind_address: str = "127.0.0.1"
    share: bool = False
    open_browser: bool = False
    label: str | None = None
    record_to_viser: str | Path | None = None
    record_fps: float = _FRAME_RATE
    update_frequency: float | None = _FRAME_RATE
    image_frequency: float = 10.0
    speed: float | None = None
    start_paused: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must lie in [0, 65535], got {self.port}")
        for name in ("record_fps", "image_frequency"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be above 0 Hz, got {getattr(self, name)}")
        if self.speed is not None and not self.speed > 0.0:
            raise ValueError(f"speed must be above 0, got {self.speed}")
        if self.record_to_viser is not None:
            self.update_frequency = None
