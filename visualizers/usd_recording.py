"""A USD file that grows while it is recorded, in bounded memory.

While it records, the file is an index: the scene as a sublayer, and the motion as value clips, all in a folder beside
it. At the end a recording of one clip is folded into one file, and the folder goes.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
from pxr import Sdf, UsdGeom, UsdUtils, Vt

from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription
from scene_data.stage import SceneStage
from scene_data.stage_authoring import declare_motion
from scene_data.stage_motion import Motion, scene_motions

from .usd_crate import CrateTemplate
from .usd_samples import RecordedTrack

__all__ = ["UsdRecording"]

_SCENE = "scene.usdc"
_MANIFEST = "manifest.usdc"
_LEAST_SAMPLES = 2  # of a clip


class UsdRecording:
    """The files of one recording.

    Args:
        path: The file to make. Beside it, `<stem>_recording` holds the parts; of a `.usdz`, everything until the end.
        scene: What is recorded.
        envs: Which of its environments.
        env_spacing: Distance between neighbouring environments [m].
        fps: Time codes per second.
        memory_limit: Bytes of samples that are kept in memory.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(
        self,
        path: Path,
        scene: SceneDescription,
        envs: Sequence[int],
        env_spacing: float,
        fps: float,
        memory_limit: float,
    ):
        self._path = path
        self._scene = scene
        self._envs = envs
        self._fps = fps
        self._folder = path.with_name(f"{path.stem}_recording")
        # A package can only be made at the end; until then, what is in the folder can be read.
        self._is_package = path.suffix == ".usdz"
        self._index_path = self._folder / "so_far.usdc" if self._is_package else path
        self._whole_path = self._folder / f"{path.stem}.usdc" if self._is_package else path
        self._memory_limit = memory_limit
        self._motions: list[Motion] = []
        self._tracks: list[RecordedTrack] = []
        self._times: list[float] = []
        self._starts: list[float] = []
        _make_empty(self._folder)
        self._stage = SceneStage(
            scene, self._folder / _SCENE, env_spacing=env_spacing, time_codes_per_second=fps, envs=envs
        )
        self._stage.save()
        self._motion_layer = Sdf.Layer.CreateAnonymous("motion.usdc")
        self._motion_layer.timeCodesPerSecond = fps
        declare_motion(self._motion_layer, scene, envs)
        self._motion_layer.Export(str(self._folder / _MANIFEST))

    @property
    def nbytes(self) -> int:
        """What the samples in memory take [bytes]."""
        return sum(track.nbytes for track in self._tracks)

    def sample(self, provider: SceneDataProvider, time_code: float) -> None:
        """Record the present state.

        Args:
            provider: Publishes the scene.
            time_code: Where on the time line; it only grows.
        """
        if not self._motions:
            self._motions = scene_motions(self._scene, self._envs, provider)
            tracks = [track for motion in self._motions for track in motion.tracks]
            self._tracks = [RecordedTrack(track) for track in tracks if len(track.paths)]
        with provider.consistent_read():
            for motion in self._motions:
                motion.read(provider)
        is_full = len(self._times) >= _LEAST_SAMPLES and self.nbytes >= self._memory_limit
        self._record(time_code)
        if is_full:  # both clips have this sample, so that nothing stands still between them
            self._save_clip()
            self._begin_clip()
            self._record(time_code)

    def save(self) -> None:
        """Bring the file up to date, so that it can be read while the recording goes on."""
        if self._times:
            self._save_clip()
        _replace(self._index(), self._index_path)

    def close(self) -> None:
        """Make the file whole."""
        is_long = len(self._starts) > 1
        if is_long:
            self._save_clip()
            _replace(self._index(), self._whole_path)
        else:
            self._fold()
        if self._is_package:
            _package(self._whole_path, self._path)
        if self._is_package or not is_long:
            shutil.rmtree(self._folder)

    # -- inside

    def _record(self, time_code: float) -> None:
        if not self._times:
            self._starts.append(time_code)
        self._times.append(time_code)
        for track in self._tracks:
            track.sample()

    def _begin_clip(self) -> None:
        self._times = []
        for track in self._tracks:
            track.begin()

    @cached_property
    def _clip_template(self) -> CrateTemplate:
        return CrateTemplate(self._motion_layer, [path for track in self._tracks for path in track.track.paths])

    def _save_clip(self) -> None:
        with _in_one_piece(self._folder / _clip_name(len(self._starts) - 1)) as path:
            self._clip_template.write(path, self._times, [track.collect() for track in self._tracks])

    def _index(self) -> Sdf.Layer:
        """A small layer that brings scene and motion together."""
        parts = "." if self._is_package else f"./{self._folder.name}"
        index = Sdf.Layer.CreateAnonymous(f"index{self._index_path.suffix}")
        index.defaultPrim = root = self._stage.layer.defaultPrim
        for name in (UsdGeom.Tokens.upAxis, UsdGeom.Tokens.metersPerUnit):
            index.pseudoRoot.SetInfo(name, self._stage.layer.pseudoRoot.GetInfo(name))
        index.timeCodesPerSecond = index.framesPerSecond = self._fps
        index.subLayerPaths = [f"{parts}/{_SCENE}"]
        if self._starts:
            index.startTimeCode, index.endTimeCode = self._starts[0], self._times[-1]
            clips = {
                "assetPaths": Sdf.AssetPathArray([f"{parts}/{_clip_name(i)}" for i in range(len(self._starts))]),
                "active": Vt.Vec2dArray([(start, i) for i, start in enumerate(self._starts)]),
                "times": Vt.Vec2dArray([(time, time) for time in (self._starts[0], self._times[-1] + 1.0)]),
                "primPath": f"/{root}",
                "manifestAssetPath": Sdf.AssetPath(f"{parts}/{_MANIFEST}"),
            }
            Sdf.CreatePrimInLayer(index, f"/{root}").SetInfo("clips", {"default": clips})
        return index

    def _fold(self) -> None:
        """Write scene and motion as one file, and put the textures beside it."""
        whole = Sdf.Layer.CreateAnonymous("whole.usdc")
        whole.TransferContent(self._stage.layer)
        textures = self._folder / f"{Path(_SCENE).stem}_textures"
        target = self._whole_path.with_name(f"{self._whole_path.stem}_textures")
        UsdUtils.ModifyAssetPaths(whole, lambda asset: asset.replace(f"./{textures.name}/", f"./{target.name}/"))
        shutil.rmtree(target, ignore_errors=True)
        if textures.is_dir():
            os.replace(textures, target)
        if not self._times:
            _replace(whole, self._whole_path)
            return
        whole.startTimeCode, whole.endTimeCode = self._times[0], self._times[-1]
        crate = self._whole_path if self._whole_path.suffix == ".usdc" else self._folder / "whole.usdc"
        with _in_one_piece(crate) as path:
            self._write_whole(whole, path)
        if crate != self._whole_path:
            _replace(Sdf.Layer.OpenAsAnonymous(str(crate)), self._whole_path)

    def _write_whole(self, layer: Sdf.Layer, path: Path) -> None:
        """Write a layer with all that was recorded; what never changed becomes a value that always holds."""
        for recorded in self._tracks:
            track, values = recorded.track, recorded.first_values
            encoded = track.encode(values, np.arange(len(track.paths)))
            for attribute, value in zip(track.paths, encoded, strict=True):
                layer.GetAttributeAtPath(attribute).default = value
        moving = [recorded.collect().moving() for recorded in self._tracks]
        CrateTemplate(layer, [path for track in moving for path in track.paths]).write(path, self._times, moving)


def _make_empty(folder: Path) -> None:
    """An empty folder, in place of one that a recording has left, but of no other."""
    if folder.exists() and not (folder / _MANIFEST).exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is needed for the parts of the recording, but something else is in it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _clip_name(index: int) -> str:
    return f"clip_{index:05}.usdc"


@contextmanager
def _in_one_piece(path: Path) -> Iterator[Path]:
    """Where to write a file, so that whoever opens it sees the old one or the new one."""
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _replace(layer: Sdf.Layer, path: Path) -> None:
    with _in_one_piece(path) as partial:
        if not layer.Export(str(partial)):
            raise OSError(f"USD could not write {path}")


def _package(source: Path, target: Path) -> None:
    with _in_one_piece(target) as partial:
        if not UsdUtils.CreateNewUsdzPackage(Sdf.AssetPath(str(source)), str(partial)):
            raise OSError(f"USD could not pack {target}")
