"""Cameras of a USD stage: how ours are written, and how anybody's are found."""

import math
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from pxr import Gf, Usd, UsdGeom

from scene_data.scene_parts import CameraDescription

__all__ = ["define_camera", "stage_camera_transforms", "stage_num_envs"]

_ENVS = "/World/envs"
_ENV_NAME = re.compile(r"env_(\d+)")
_PATH_IN_ENV = re.compile(r"/World/envs/env_(\d+)(?=/)")
# Apertures and focal lengths are tenths of the stage's unit, the metre.
_TENTHS = 10.0
_SENSOR_HEIGHT = 0.024
_DEFAULT_ASPECT = 4.0 / 3.0


def define_camera(stage: Usd.Stage, path: str, camera: CameraDescription, near: float, far: float) -> UsdGeom.Camera:
    """Write a camera's projection; its pose is the caller's.

    A model that gives no sensor gives no width either: its own resolution says the aspect ratio, else it is 4:3.

    Args:
        stage: Where to define it.
        path: Its path.
        camera: What it is like.
        near: Distance of the near clipping plane [m].
        far: Distance of the far clipping plane [m].
    """
    defined = UsdGeom.Camera.Define(stage, path)
    defined.CreateClippingRangeAttr(Gf.Vec2f(near, far))
    width, height = (float(length) for length in camera.sensor_size)
    pixels = [int(count) for count in camera.resolution]
    aspect = pixels[0] / pixels[1] if min(pixels) > 1 else _DEFAULT_ASPECT
    shift_x, shift_y = 0.0, 0.0
    if camera.projection == "orthographic":
        defined.CreateProjectionAttr(UsdGeom.Tokens.orthographic)
        focal, height = _SENSOR_HEIGHT, camera.fovy
        width = height * aspect
    elif width > 0.0 and height > 0.0:
        focal, focal_y = (float(length) for length in camera.focal)
        shift_x, shift_y = (float(offset) for offset in camera.principal)
        # USD has one focal length: pixels that are not square become a sensor of another height.
        # The principal point moves the picture to the right and down, which moves the window right and down.
        height, shift_y = height * focal / focal_y, -shift_y * focal / focal_y
    else:
        height = _SENSOR_HEIGHT
        width = height * aspect
        focal = 0.5 * height / math.tan(0.5 * math.radians(camera.fovy))
    defined.CreateFocalLengthAttr(focal * _TENTHS)
    defined.CreateHorizontalApertureAttr(width * _TENTHS)
    defined.CreateVerticalApertureAttr(height * _TENTHS)
    defined.CreateHorizontalApertureOffsetAttr(shift_x * _TENTHS)
    defined.CreateVerticalApertureOffsetAttr(shift_y * _TENTHS)
    return defined


def stage_num_envs(stage: Usd.Stage | None) -> int:
    """Number of environments: one more than the highest `<i>` of the prims `/World/envs/env_<i>`, 0 without any."""
    if stage is None or not (root := stage.GetPrimAtPath(_ENVS)):
        return 0
    names = (_ENV_NAME.fullmatch(prim.GetName()) for prim in root.GetFilteredChildren(Usd.TraverseInstanceProxies()))
    return max((int(match[1]) + 1 for match in names if match), default=0)


def stage_camera_transforms(stage: Usd.Stage | None, time: float | None = None) -> dict[str, Any] | None:
    """World poses of all visible cameras of a stage, whoever wrote it, inside instances too.

    Args:
        stage: The stage.
        time: Time code to look at; None is the stage's default values.

    Returns:
        `order`: path of each camera with `env_%d` for its environment; `positions` [m] and `orientations`
        (quaternions (x, y, z, w) of a frame that looks along -Z with +Y up): for each camera a list over the
        environments, with None where one lacks it; and `num_envs`. A camera outside of `/World/envs` counts for
        environment 0. None without a stage.
    """
    if stage is None:
        return None
    time_code = Usd.TimeCode.Default() if time is None else Usd.TimeCode(time)
    # USD takes a stage that says nothing for centimetres; simulators mean metres.
    metres = UsdGeom.GetStageMetersPerUnit(stage) if UsdGeom.StageHasAuthoredMetersPerUnit(stage) else 1.0
    found = list(_visible_cameras(stage, time_code))
    num_envs = max(stage_num_envs(stage), 1 if found else 0)
    poses = UsdGeom.XformCache(time_code)
    positions: dict[str, list[list[float] | None]] = {}
    orientations: dict[str, list[list[float] | None]] = {}
    for prim in found:
        path = str(prim.GetPath())
        match = _PATH_IN_ENV.match(path)
        camera = f"{_ENVS}/env_%d{path[match.end() :]}" if match else path
        env = int(match[1]) if match else 0
        matrix = poses.GetLocalToWorldTransform(prim)
        rotation = matrix.RemoveScaleShear().ExtractRotationQuat().GetNormalized()
        position = matrix.ExtractTranslation() * metres
        positions.setdefault(camera, [None] * num_envs)[env] = list(position)
        orientations.setdefault(camera, [None] * num_envs)[env] = [*rotation.GetImaginary(), rotation.GetReal()]
    return {
        "order": list(positions),
        "positions": list(positions.values()),
        "orientations": list(orientations.values()),
        "num_envs": num_envs,
    }


def _visible_cameras(stage: Usd.Stage, time: Usd.TimeCode) -> Iterator[Usd.Prim]:
    """Breadth first, which puts the cameras nearest to the root first."""
    everything = Usd.TraverseInstanceProxies()
    with_cameras = _prototypes_with_cameras(stage)
    prims = deque([stage.GetPseudoRoot()])
    while prims:
        prim = prims.popleft()
        imageable = UsdGeom.Imageable(prim)
        if imageable and imageable.GetVisibilityAttr().Get(time) == UsdGeom.Tokens.invisible:
            continue
        if prim.IsA(UsdGeom.Camera):
            yield prim
        if not prim.IsInstance() or prim.GetPrototype().GetPath() in with_cameras:
            prims.extend(prim.GetFilteredChildren(everything))


def _prototypes_with_cameras(stage: Usd.Stage) -> set[Any]:
    """Paths of the prototypes that are worth a look: a thousand instances without a camera share one answer."""
    everything = Usd.TraverseInstanceProxies()
    return {
        prototype.GetPath()
        for prototype in stage.GetPrototypes()
        if any(prim.IsA(UsdGeom.Camera) for prim in Usd.PrimRange(prototype, everything))
    }
