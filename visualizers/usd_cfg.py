"""How a recording in USD is set up. It needs no USD to be written down."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from scene_data.stage_files import check_usd_suffix

from .base import VisualizerCfg

__all__ = ["UsdVisualizerCfg"]


@dataclass(kw_only=True)
class UsdVisualizerCfg(VisualizerCfg):
    """A recording of what moves, as a USD file.

    Attributes:
        path: The `.usda`, `.usdc` or `.usdz` to write. Its folder is made if need be; what is there is replaced.
        fps: Samples per second of simulation time, and time codes per second [Hz].
        save_interval: How often the file is brought up to date while it records, in real time [s]. A process that is
            killed leaves what was saved last.
        memory_limit: How much of the motion is kept in memory, roughly [MB]. What is longer becomes value clips, files
            of their own beside the recording.

    Raises:
        ValueError: There is no path, or a number that cannot be used.
        UnknownNameError: The path's suffix says no USD format.
        OSError: The path is a folder, or below something that is none.
    """

    visualizer_type: ClassVar[str] = "usd"
    command_line_options: ClassVar[Mapping[str, str]] = {"record": "path"}

    path: str | Path = ""
    fps: float = 30.0
    save_interval: float = 10.0
    memory_limit: float = 256.0
    step_timeout: float = 600.0  # a large scene, and the end of a long recording, take long to write

    def __post_init__(self):
        super().__post_init__()
        if not str(self.path):
            raise ValueError("a USD recording needs a path: --record on the command line, or cfg.path")
        self.path = Path(self.path)
        check_usd_suffix(self.path)
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder, not a file to record to")
        present = next(folder for folder in self.path.absolute().parents if folder.exists())
        if not present.is_dir():
            raise NotADirectoryError(f"{self.path} cannot be made: {present} is no folder")
        if not os.access(present, os.W_OK):
            raise PermissionError(f"{self.path} cannot be made: {present} cannot be written to")
        for name, unit in {"fps": "Hz", "save_interval": "s", "memory_limit": "MB"}.items():
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be above 0 {unit}, got {getattr(self, name)}")
