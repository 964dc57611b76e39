"""A USD stage of a scene, and what moves it.

The modules named `stage_*` write its parts. USD is loaded with this module.
"""

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from scene_data.errors import MissingDependencyError, UnknownNameError

try:
    from pxr import Sdf, Usd
except ImportError as error:
    raise MissingDependencyError("pxr", "usd", "A USD stage") from error

from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription
from scene_data.stage_authoring import author_layer
from scene_data.stage_cameras import stage_camera_transforms, stage_num_envs
from scene_data.stage_materials import TextureFiles
from scene_data.stage_motion import Motion, scene_motions
from scene_data.stage_samples import AttributeRows

__all__ = ["SceneStage", "stage_camera_transforms", "stage_num_envs"]

_LAYER_SUFFIXES = (".usda", ".usdc")


class SceneStage:
    """A USD stage of a scene: written once from its description, then moved by a provider.

    Bodies stand at their published paths, cameras and lights on them at theirs. Metres, Z up.

    Args:
        scene: What to write.
        path: The `.usda` or `.usdc` file that `save` writes, with its textures in the folder `<stem>_textures` beside
            it; `stage_files.usd_output` makes a `.usdz` of them. None keeps the stage in memory, and the textures in a
            temporary folder that goes with this object.
        env_spacing: Distance between neighbouring environments [m]; at 0 they share one place, as in the engine.
        time_codes_per_second: Time codes of one second, of USD's own default 24.
        envs: Environments to write; None is all of them.

    Attributes:
        scene: What was written.
        layer: Where it was written to.

    Raises:
        UnknownNameError: `path` has another suffix.
        ValueError: `env_spacing` is negative, or `time_codes_per_second` not positive.
    """

    def __init__(
        self,
        scene: SceneDescription,
        path: str | Path | None = None,
        *,
        env_spacing: float = 0.0,
        time_codes_per_second: float = 24.0,
        envs: Sequence[int] | None = None,
    ):
        if not env_spacing >= 0.0:
            raise ValueError(f"env_spacing must be 0 m or more, got {env_spacing}")
        if not time_codes_per_second > 0.0:
            raise ValueError(f"time_codes_per_second must be above 0, got {time_codes_per_second}")
        self.scene = scene
        self._envs = range(scene.num_envs) if envs is None else envs
        self.layer, files = self._open_layer(path)
        author_layer(self.layer, scene, self._envs, files, env_spacing)
        self.layer.timeCodesPerSecond = self.layer.framesPerSecond = time_codes_per_second
        self._time: float | None = None
        self._motions: list[Motion] = []
        self._rows: list[AttributeRows] = []

    @cached_property
    def stage(self) -> Usd.Stage:
        """The stage. What only records motion never composes it."""
        return Usd.Stage.Open(self.layer)

    def _open_layer(self, path: str | Path | None) -> tuple[Sdf.Layer, TextureFiles]:
        if path is None:
            self._folder = tempfile.TemporaryDirectory(prefix="scene_data_textures_")
            folder = Path(self._folder.name)
            return Sdf.Layer.CreateAnonymous("scene.usdc"), TextureFiles(self.scene.textures, folder, str(folder))
        path = Path(path)
        if path.suffix not in _LAYER_SUFFIXES:
            raise UnknownNameError("USD layer format", path.name, (f"*{suffix}" for suffix in _LAYER_SUFFIXES))
        folder = path.with_name(f"{path.stem}_textures")
        return Sdf.Layer.CreateNew(str(path)), TextureFiles(self.scene.textures, folder, f"./{folder.name}")

    def update(self, provider: SceneDataProvider, time_code: float | None = None) -> None:
        """Write the present poses and points; only what changed is touched.

        Args:
            provider: Publishes the scene that this stage was written from.
            time_code: Where on the time line, not below the one before; None writes values without a time.

        Raises:
            ValueError: The provider publishes another number of transforms, or `time_code` goes back.
        """
        if time_code is not None and self._time is not None and time_code < self._time:
            raise ValueError(f"time codes only grow: {time_code} comes after {self._time}")
        if not self._motions:
            self._motions = scene_motions(self.scene, self._envs, provider)
            self._rows = [AttributeRows(self.layer, track) for motion in self._motions for track in motion.tracks]
        with provider.consistent_read():
            for motion in self._motions:
                motion.read(provider)
        with Sdf.ChangeBlock():
            for rows in self._rows:
                rows.write(time_code)
            if time_code is not None:
                self._extend_time_line(time_code)

    def save(self) -> None:
        """Write the file. ValueError if the stage has none."""
        if self.layer.anonymous:
            raise ValueError("This stage has no file to be saved to; give SceneStage a path.")
        self.layer.Save()

    def _extend_time_line(self, time: float) -> None:
        if self._time is None:
            self.layer.startTimeCode = time
        self.layer.endTimeCode = self._time = time
