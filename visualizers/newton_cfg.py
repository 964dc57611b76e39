"""How Newton's viewer is set up. It needs no Newton to be written down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from .base import VisualizerCfg

__all__ = ["NewtonVisualizerCfg"]


@dataclass(kw_only=True)
class NewtonVisualizerCfg(VisualizerCfg):
    """A window on this machine, or pictures without one.

    Attributes:
        width: Of the picture [pixels].
        height: Of the picture [pixels].
        headless: Whether to draw without a window, through EGL; None opens a window where there is a screen.
        record_to_video: An `.mp4` to write, with `record_fps` pictures per second of simulation time.
        record_fps: Pictures per second of simulation time in it [Hz].
        update_frequency: Pictures per second of real time in a window [Hz]; while recording, every render interval
            counts. Without a window, a picture is drawn when it is asked for.
        geom_groups: Visibility groups that are shown.
        speed: Simulation speed, as a multiple of real time; None is as fast as it can.
        start_paused: Whether the simulation waits until somebody presses the space bar.

    Raises:
        ValueError: A value that cannot be used.
    """

    visualizer_type: ClassVar[str] = "newton"
    command_line_options: ClassVar[Mapping[str, str]] = {
        "headless": "headless",
        "record": "record_to_video",
        "speed": "speed",
    }

    width: int = 1280
    height: int = 800
    headless: bool | None = None
    record_to_video: str | Path | None = None
    record_fps: float = 30.0
    update_frequency: float | None = 60.0
    geom_groups: Sequence[int] = (0, 1, 2)
    speed: float | None = None
    start_paused: bool = False
    step_timeout: float = 120.0  # without a graphics card a crowd takes long to draw

    def __post_init__(self):
        super().__post_init__()
        for name in ("width", "height"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name} must be at least 1 pixel, got {getattr(self, name)}")
        for name, unit in {"record_fps": " Hz", "speed": ""}.items():
            if (value := getattr(self, name)) is not None and not value > 0.0:
                raise ValueError(f"{name} must be above 0{unit}, got {value}")
        if self.start_paused and self.headless:
            raise ValueError("start_paused needs a window: nobody could ever press the space bar")
        if self.record_to_video is not None:
            self._check_video(Path(self.record_to_video))
            self.update_frequency = None

    def _check_video(self, path: Path) -> None:
        if path.suffix != ".mp4":
            raise ValueError(f"record_to_video is an .mp4 file, got {path.name!r}")
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder, not a file to record to")
        if self.width % 2 or self.height % 2:
            raise ValueError(f"a video has an even width and height, got {self.width} x {self.height}")
