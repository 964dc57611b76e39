"""How the Rerun viewer is set up. It needs no rerun to be written down."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from .base import VisualizerCfg

__all__ = ["RerunVisualizerCfg"]

_FRAME_RATE = 30.0
_MEMORY = re.compile(r"\d+(\.\d+)?(%|[kMGT]i?B)")


@dataclass(kw_only=True)
class RerunVisualizerCfg(VisualizerCfg):
    """A Rerun viewer in the browser, a native one, a recording, or all of them at once.

    Attributes:
        app_id: Name under which Rerun keeps layouts; None is the model's name.
        web_port: Where the page is served; 0 takes a free one, None serves no page.
        grpc_port: Where pages and native viewers get the data; 0 takes a free one, None serves no data.
        bind_address: Which network both are served on; `"127.0.0.1"` is this machine alone, `"0.0.0.0"` all of them.
        open_browser: Whether to open the page in a browser here.
        connect_to: Address of a viewer that is open already, `"rerun+http://127.0.0.1:9876/proxy"`, to send the data
            to; nothing is served then.
        record_to_rrd: Write everything that is shown into this file, at `record_fps` of simulation time.
        record_fps: Updates per second of simulation time while recording [Hz].
        memory_limit: How much of the past is kept for pages that are opened late, as Rerun writes it: `"512MiB"` or
            `"10%"` of this machine's.
        update_frequency: Updates per second of real time [Hz]; while recording, `record_fps` counts instead.
        image_frequency: Images of each camera per second [Hz], of real time, or of simulation time while recording.
        speed: Simulation speed, as a multiple of real time; None is as fast as it can.
        max_trees: Up to this many visible environments have an entity for each body and each shape, at their own
            paths. Where there are more, those of all environments share one entity for each shape.
        geom_groups: Visibility groups that are shown.

    Raises:
        ValueError: A value that cannot be used, or no place to send the data to.
    """

    visualizer_type: ClassVar[str] = "rerun"
    command_line_options: ClassVar[Mapping[str, str]] = {
        "port": "web_port",
        "grpc_port": "grpc_port",
        "bind_address": "bind_address",
        "record": "record_to_rrd",
        "open_browser": "open_browser",
        "speed": "speed",
    }

    app_id: str | None = None
    web_port: int | None = 9090
    grpc_port: int | None = 9876
    bind_address: str = "127.0.0.1"
    open_browser: bool = False
    connect_to: str | None = None
    record_to_rrd: str | Path | None = None
    record_fps: float = _FRAME_RATE
    memory_limit: str = "512MiB"
    update_frequency: float | None = _FRAME_RATE
    image_frequency: float = 10.0
    speed: float | None = None
    max_trees: int = 4
    geom_groups: Sequence[int] = (0, 1, 2)

    def __post_init__(self):
        super().__post_init__()
        for name in ("web_port", "grpc_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                raise ValueError(f"{name} must lie in [0, 65535], got {port}")
        for name in ("record_fps", "image_frequency"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be above 0 Hz, got {getattr(self, name)}")
        if self.speed is not None and not self.speed > 0.0:
            raise ValueError(f"speed must be above 0, got {self.speed}")
        if not _MEMORY.fullmatch(self.memory_limit):
            raise ValueError(f"memory_limit must be like '512MiB' or '10%', got {self.memory_limit!r}")
        if self.max_trees < 0:
            raise ValueError(f"max_trees must not be negative, got {self.max_trees}")
        if self.connect_to is not None and "://" not in self.connect_to:
            raise ValueError(f"connect_to must be like 'rerun+http://127.0.0.1:9876/proxy', got {self.connect_to!r}")
        if self.grpc_port is None and self.connect_to is None and self.record_to_rrd is None:
            raise ValueError("the data has to go somewhere: give a grpc_port, connect_to or record_to_rrd")
        if self.record_to_rrd is not None:
            self.update_frequency = None
