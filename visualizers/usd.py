"""The USD viewer: it shows nothing here, and records everything for any program that reads USD."""

import os
import time
from pathlib import Path

import numpy as np

from scene_data.optional import optional_libraries
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

from .base import BaseVisualizer
from .layout import default_spacing
from .sampling import SampleClock
from .usd_cfg import UsdVisualizerCfg

with optional_libraries("Recording USD"):
    from .usd_recording import UsdRecording

__all__ = ["UsdVisualizer"]

_MEGABYTE = 1 << 20
_DIGITS = 6  # of a time code
_SAVING_SHARE = 0.05  # of the time at most


class UsdVisualizer(BaseVisualizer):
    """Records a simulation as a USD file, with its cameras and lights and everything that deforms.

    The time line is that of the recording: it begins at 0 and goes on when the simulation is reset.
    """

    cfg_type = UsdVisualizerCfg

    cfg: UsdVisualizerCfg

    def __init__(self, cfg: UsdVisualizerCfg):
        super().__init__(cfg)
        self._path = Path(cfg.path)
        self._scene: SceneDescription | None = None
        self._recording: UsdRecording | None = None
        self._clock = SampleClock(cfg.fps)
        self._save_at = 0.0
        self._part = 1

    @property
    def address(self) -> str:
        """The file."""
        return os.fspath(self._path)

    def initialize(self, provider: SceneDataProvider) -> None:
        """Write the scene.

        Raises:
            OSError: The file cannot be written.
        """
        super().initialize(provider)
        self._begin(provider)

    def step(self, dt: float) -> None:
        """Record the present state, if it is time for a sample."""
        if self._recording is None or self.provider is None:
            return
        if self._clock.advance(dt):
            self._recording.sample(self.provider, round(self._clock.seconds * self.cfg.fps, _DIGITS))
            self._save_now_and_then()

    def wants_poses(self, dt: float) -> bool:
        """Whether it is time for a sample."""
        return self._clock.is_due_after(dt)

    def close(self) -> None:
        """Write the whole file."""
        super().close()
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.close()

    def reset(self, soft: bool = False) -> None:
        """Go on in another file, if the simulation has another model."""
        if self.provider is None or self._recording is None:
            return
        if self.provider.backend.describe_scene() is not self._scene:
            self._recording.close()
            self._part += 1
            self._path = Path(self.cfg.path).with_stem(f"{Path(self.cfg.path).stem}_{self._part}")
            self.env_ids = self._chosen_envs(max(self.provider.num_envs, 1))
            self._begin(self.provider)

    def _begin(self, provider: SceneDataProvider) -> None:
        self._scene = scene = provider.backend.describe_scene()
        spacing = self.cfg.env_spacing
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._recording = UsdRecording(
            self._path,
            scene,
            self.env_ids.astype(np.intp).tolist(),
            default_spacing(provider, scene) if spacing is None else spacing,
            self.cfg.fps,
            self.cfg.memory_limit * _MEGABYTE,
        )
        self._clock = SampleClock(self.cfg.fps)
        self._save_at = time.monotonic() + self.cfg.save_interval

    def _save_now_and_then(self) -> None:
        if (started := time.monotonic()) < self._save_at:
            return
        assert self._recording is not None
        self._recording.save()
        ended = time.monotonic()
        self._save_at = ended + max(self.cfg.save_interval, (ended - started) / _SAVING_SHARE)
