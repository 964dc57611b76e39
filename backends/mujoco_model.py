"""Loads the models that users name: MJCF, MJB and URDF files, robot descriptions, and the demo of this package."""

import copy
from pathlib import Path

import mujoco

from scene_data.assets import demo_model_path
from scene_data.backends.mujoco_downloads import download_model, is_downloadable
from scene_data.errors import ModelLoadError, UnknownNameError

__all__ = ["DEMO", "find_keyframe", "load_mujoco_model"]

DEMO = "demo"
"""The name of the model that ships with the package."""


def load_mujoco_model(model: str | Path | mujoco.MjModel, timestep: float | None = None) -> mujoco.MjModel:
    """Load a model.

    Args:
        model: A path to MJCF, MJB or URDF, `"demo"`, the name of a robot description such as `"g1_mj_description"`
            (downloaded), or a compiled model, which is used as it is.
        timestep: Replaces the model's own timestep [s]; a compiled model is then copied first.

    Raises:
        ModelLoadError: The file is missing, the download failed, or the compiler refuses it.
        UnknownNameError: There is no such robot description.
        MissingDependencyError: The library of robot descriptions is not installed.
        ValueError: `model` is something else.
    """
    if isinstance(model, mujoco.MjModel):
        loaded = copy.copy(model) if timestep is not None else model
    elif isinstance(model, str | Path):
        loaded = _load_file(_path_of(str(model)))
    else:
        raise ValueError(f"model must be a path, {DEMO!r} or an MjModel, not {model!r}")
    if timestep is not None:
        loaded.opt.timestep = timestep
    return loaded


def _path_of(model: str) -> Path:
    if model == DEMO:
        return demo_model_path()
    path = Path(model)
    return download_model(model) if is_downloadable(model) and not path.exists() else path


def _load_file(path: Path) -> mujoco.MjModel:
    if not path.exists():
        raise ModelLoadError(str(path), f"there is no such file. Give a path to MJCF, MJB or URDF, or {DEMO!r}.")
    if path.is_dir():
        raise ModelLoadError(str(path), "this is a folder. Give the MJCF, MJB or URDF file in it.")
    load = mujoco.MjModel.from_binary_path if path.suffix == ".mjb" else mujoco.MjModel.from_xml_path
    try:
        return load(str(path))
    except (ValueError, mujoco.FatalError) as error:
        raise ModelLoadError(str(path), str(error)) from error


def find_keyframe(model: mujoco.MjModel, keyframe: str | int) -> int:
    """The index of a keyframe, by its name or its index.

    Raises:
        UnknownNameError: The model has no such keyframe.
    """
    names = [model.key(index).name for index in range(model.nkey)]
    if isinstance(keyframe, str) and keyframe in names:
        return names.index(keyframe)
    index = int(keyframe) if isinstance(keyframe, int) or keyframe.isdecimal() else -1
    if not 0 <= index < model.nkey:
        raise UnknownNameError("keyframe", keyframe, [name or str(index) for index, name in enumerate(names)])
    return index
