"""A USD file that grows while it is recorded, in bounded memory.

While it records, the file is an index: the scene as a sublayer, and the motion as value clips, all in a folder beside
it. At the end a recording of one clip is folded into one file, and the folder goes.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pxr import Sdf, UsdGeom, UsdUtils, Vt

from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription
from scene_data.stage import SceneStage
from scene_data.stage_authoring import declare_motion

__all__ = ["UsdRecording"]

_SCENE = "scene.usdc"
_MANIFEST = "manifest.usdc"
_BYTES_PER_SAMPLE = 256  # of a pose, with what USD needs around it
_BYTES_PER_POINT = 12


class UsdRecording:
    """The files of one recording.

    Args:
        path: The file to make. Beside it, `<stem>_recording` holds the parts; of a `.usdz`, everything until the end.
        scene: What is recorded.
        envs: Which of its environments.
        env_spacing: Distance between neighbouring environments [m].
        fps: Time codes per second.
        memory_limit: Bytes of samples that are kept in memory, roughly.

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
        self._samples_per_clip = max(int(memory_limit / _bytes_of_a_sample(scene, len(envs))), 2)
        self._clip: Sdf.Layer | None = None
        self._clip_samples = 0
        self._starts: list[float] = []
        self._end = 0.0
        _make_empty(self._folder)
        self._stage = SceneStage(
            scene, self._folder / _SCENE, env_spacing=env_spacing, time_codes_per_second=fps, envs=envs
        )
        self._stage.save()
        self._new_layer().Export(str(self._folder / _MANIFEST))

    def sample(self, provider: SceneDataProvider, time_code: float) -> None:
        """Record the present state.

        Args:
            provider: Publishes the scene.
            time_code: Where on the time line; it only grows.
        """
        if self._clip is None:
            self._begin_clip(provider, time_code)
        elif self._clip_samples >= self._samples_per_clip:
            # Both clips have this sample, so that nothing stands still between them.
            self._stage.update(provider, time_code)
            self._save_clip()
            self._begin_clip(provider, time_code)
        self._stage.update(provider, time_code)
        self._clip_samples += 1
        self._end = time_code

    def save(self) -> None:
        """Bring the file up to date, so that it can be read while the recording goes on."""
        if self._clip is not None:
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

    def _new_layer(self) -> Sdf.Layer:
        layer = Sdf.Layer.CreateAnonymous("motion.usdc")
        layer.timeCodesPerSecond = self._fps
        declare_motion(layer, self._scene, self._envs)
        return layer

    def _begin_clip(self, provider: SceneDataProvider, time_code: float) -> None:
        self._clip = self._new_layer()
        self._clip_samples = 0
        self._starts.append(time_code)
        self._stage.continue_in(self._clip, provider)

    def _save_clip(self) -> None:
        assert self._clip is not None
        _replace(self._clip, self._folder / _clip_name(len(self._starts) - 1))

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
            index.startTimeCode, index.endTimeCode = self._starts[0], self._end
            clips = {
                "assetPaths": Sdf.AssetPathArray([f"{parts}/{_clip_name(i)}" for i in range(len(self._starts))]),
                "active": Vt.Vec2dArray([(start, i) for i, start in enumerate(self._starts)]),
                "times": Vt.Vec2dArray([(time, time) for time in (self._starts[0], self._end + 1.0)]),
                "primPath": f"/{root}",
                "manifestAssetPath": Sdf.AssetPath(f"{parts}/{_MANIFEST}"),
            }
            Sdf.CreatePrimInLayer(index, f"/{root}").SetInfo("clips", {"default": clips})
        return index

    def _fold(self) -> None:
        """Write scene and motion as one file, and put the textures beside it."""
        whole = Sdf.Layer.CreateAnonymous(f"whole{self._whole_path.suffix}")
        whole.TransferContent(self._stage.layer)
        if self._clip is not None:
            whole.startTimeCode, whole.endTimeCode = self._starts[0], self._end
            _move_samples(self._clip, whole)
        textures = self._folder / f"{Path(_SCENE).stem}_textures"
        target = self._whole_path.with_name(f"{self._whole_path.stem}_textures")
        UsdUtils.ModifyAssetPaths(whole, lambda asset: asset.replace(f"./{textures.name}/", f"./{target.name}/"))
        shutil.rmtree(target, ignore_errors=True)
        if textures.is_dir():
            os.replace(textures, target)
        _replace(whole, self._whole_path)


def _make_empty(folder: Path) -> None:
    """An empty folder, in place of one that a recording has left, but of no other."""
    if folder.exists() and not (folder / _MANIFEST).exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is needed for the parts of the recording, but something else is in it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _bytes_of_a_sample(scene: SceneDescription, env_count: int) -> int:
    """What one sample takes at most."""
    poses = len(scene.bodies) + len(scene.cameras) + len(scene.lights)
    points = scene.point_count + sum(len(skin.vertices) for skin in scene.skins)
    return max(env_count, 1) * (poses * _BYTES_PER_SAMPLE + points * _BYTES_PER_POINT)


def _clip_name(index: int) -> str:
    return f"clip_{index:05}.usdc"


def _move_samples(source: Sdf.Layer, target: Sdf.Layer) -> None:
    """Move all samples; what never changed becomes a value that always holds."""
    paths: list[Sdf.Path] = []
    source.Traverse(Sdf.Path.absoluteRootPath, lambda path: paths.append(path) if path.IsPropertyPath() else None)
    with Sdf.ChangeBlock():
        for path in paths:
            times = source.ListTimeSamplesForPath(path)
            if not times:
                continue
            target.GetAttributeAtPath(path).default = source.QueryTimeSample(path, times[0])
            if len(times) > 1:
                for time in times:
                    target.SetTimeSample(path, time, source.QueryTimeSample(path, time))


def _replace(layer: Sdf.Layer, path: Path) -> None:
    """Write a layer to a file in one piece: whoever opens it sees the old one or the new one."""
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    if not layer.Export(str(partial)):
        raise OSError(f"USD could not write {path}")
    os.replace(partial, path)


def _package(source: Path, target: Path) -> None:
    partial = target.with_name(f".{target.stem}.partial.usdz")
    if not UsdUtils.CreateNewUsdzPackage(Sdf.AssetPath(str(source)), str(partial)):
        raise OSError(f"USD could not pack {target}")
    os.replace(partial, target)
