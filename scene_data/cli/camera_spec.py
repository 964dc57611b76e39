"""The `NAME:WxH[:planes]` notation for a camera on the command line."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from scene_data.camera import CameraCfg
from scene_data.errors import UnknownNameError
from scene_data.scene import SceneDescription

__all__ = ["FREE_CAMERA", "PLANE_NAMES", "CameraSpec", "camera_cfgs", "parse_camera_spec"]

FREE_CAMERA = "free"
"""The camera name that stands for MuJoCo's default free view."""

PLANE_NAMES = {"rgb": "rgb", "depth": "depth", "seg": "segmentation", "segmentation": "segmentation"}
"""Plane names of the command line, and the data types they ask for."""

_SIZE = re.compile(r"(\d+)x(\d+)")
_USAGE = "Write NAME:WIDTHxHEIGHT[:rgb,depth,seg], for example front:320x240:rgb,depth."


@dataclass(frozen=True)
class CameraSpec:
    """One camera that the user asked for.

    Attributes:
        name: A camera of the model, or `free`.
        width: Image width in pixels.
        height: Image height in pixels.
        data_types: What to render, in the order asked for.
    """

    name: str
    width: int
    height: int
    data_types: tuple[str, ...] = ("rgb",)


def camera_cfgs(texts: Iterable[str], scene: SceneDescription, size: tuple[int, int]) -> list[CameraCfg]:
    """The cameras that the user asked for, every camera of the model where that is none.

    Args:
        texts: One `NAME:WxH[:planes]` each.
        scene: The model.
        size: Width and height of the model's cameras where none is asked for [pixels].

    Raises:
        ValueError: A text cannot be read, or none is given and the model has no camera.
    """
    specs = [parse_camera_spec(text) for text in texts]
    if not specs:
        specs = [CameraSpec(camera.name or camera.path_name, *size) for camera in scene.cameras]
    if not specs:
        width, height = size
        raise ValueError(
            f"The model {scene.name!r} has no camera. Add '--camera {FREE_CAMERA}:{width}x{height}' "
            "for MuJoCo's default view."
        )
    return [CameraCfg(spec.name, spec.width, spec.height, spec.data_types) for spec in specs]


def parse_camera_spec(text: str) -> CameraSpec:
    """Read one `NAME:WxH[:planes]`.

    A camera name may itself hold colons: the size is the last part, or the last but one, that reads `WxH`.

    Raises:
        ValueError: The text does not have that form, or a size is below 1.
        UnknownNameError: A plane has a name that is not known.
    """
    parts = text.split(":")
    at = next((i for i in (len(parts) - 1, len(parts) - 2) if i >= 1 and _SIZE.fullmatch(parts[i])), None)
    if at is None or not (name := ":".join(parts[:at])):
        raise ValueError(f"Cannot read the camera {text!r}. {_USAGE}")
    width, height = (int(number) for number in parts[at].split("x"))
    if width < 1 or height < 1:
        raise ValueError(f"Camera {name!r}: the size {width}x{height} is below 1x1.")
    planes = parts[at + 1].split(",") if at + 1 < len(parts) else ["rgb"]
    return CameraSpec(name, width, height, _data_types(name, planes))


def _data_types(camera: str, planes: list[str]) -> tuple[str, ...]:
    for plane in planes:
        if plane not in PLANE_NAMES:
            raise UnknownNameError(f"plane of camera {camera!r}", plane, PLANE_NAMES)
    return tuple(dict.fromkeys(PLANE_NAMES[plane] for plane in planes))
