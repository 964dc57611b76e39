"""What render backends have to know of a scene: where cameras sit, how they project, and what does not fit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scene_data.errors import UnknownNameError, UnmetRequirementError
from scene_data.requirements import require_natives
from scene_data.scene import CameraDescription, SceneDescription

from .camera import BodyMount, CameraDescriptor, Intrinsics, ModelCamera, Orthographic, Pinhole, WorldPose

if TYPE_CHECKING:
    from .backend import RenderBackend
    from .snapshots import RenderSnapshot

__all__ = ["camera_mount", "camera_projection", "check_scene", "check_snapshot", "rotation_matrices"]

_DEFAULT_FOVY = 45.0


def camera_mount(camera: CameraDescriptor, scene: SceneDescription) -> tuple[int, int, np.ndarray, np.ndarray]:
    """Where a camera sits: model camera index or -1, body index, and poses on that body.

    Returns:
        Camera, body, positions (1 or N, 3) [m] and quaternions (1 or N, 4).

    Raises:
        UnknownNameError: The model has no such camera or body.
        ValueError: A pose per environment, for another number of environments.
    """
    mount = ModelCamera(camera.name) if camera.mount is None else camera.mount
    index, body = -1, 0
    position, quaternion = np.zeros((1, 3)), np.array([[0.0, 0.0, 0.0, 1.0]])
    match mount:
        case ModelCamera(name):
            index = _index("camera", name, scene.camera_index, scene.cameras)
        case BodyMount(name):
            body = _index("body", name, scene.body_index, scene.bodies)
            position, quaternion = np.atleast_2d(mount.position), np.atleast_2d(mount.quaternion)
        case WorldPose():  # body 0 is the world
            _check_count(camera, "poses", mount.num_envs)
            position, quaternion = np.atleast_2d(mount.position), np.atleast_2d(mount.quaternion)
    return index, body, position, quaternion


def camera_projection(camera: CameraDescriptor, scene: SceneDescription) -> Intrinsics:
    """How a camera projects: its own intrinsics, else the model camera's, else 45 degrees of vertical field of view.

    Where the image is wider or higher than the model camera's sensor, the sensor is cropped: pixels keep their shape.

    Raises:
        UnknownNameError: The model has no such camera.
        ValueError: Intrinsics per environment, for another number of environments.
    """
    if camera.intrinsics is not None:
        _check_count(camera, "intrinsics", getattr(camera.intrinsics, "num_envs", None))
        return camera.intrinsics
    index = camera_mount(camera, scene)[0]
    if index < 0:
        return Pinhole.from_fovy(_DEFAULT_FOVY, camera.width, camera.height)
    model_camera: CameraDescription = scene.cameras[index]
    if model_camera.projection == "orthographic":
        return Orthographic(model_camera.fovy)
    sensor_width, sensor_height = (float(length) for length in model_camera.sensor_size)
    if sensor_height == 0.0:
        return Pinhole.from_fovy(model_camera.fovy, camera.width, camera.height)
    density = max(camera.width / sensor_width, camera.height / sensor_height)  # pixels per metre of sensor
    fx, fy = (float(length) * density for length in model_camera.focal)
    right, up = (float(length) * density for length in model_camera.principal)
    return Pinhole(fx, fy, 0.5 * camera.width - right, 0.5 * camera.height - up)


def check_scene(
    backend: "RenderBackend | type[RenderBackend]",
    name: str,
    scene: SceneDescription | None,
    cameras: Sequence[CameraDescriptor],
) -> SceneDescription:
    """Check, before anything is built, that a render backend of this name can draw these cameras in this scene.

    Returns:
        The scene.

    Raises:
        UnmetRequirementError: There is no scene, or it has not what the backend `requires`.
        UnknownNameError: A camera or body is not in the scene.
        ValueError: A plane that the backend does not make, or another number of environments than the scene's.
    """
    require_natives(f"render backend {name!r}", getattr(backend, "requires", ()), scene)
    if scene is None:
        raise UnmetRequirementError(f"render backend {name!r}", "scene description", ())
    for camera in cameras:
        if camera.num_envs != scene.num_envs:
            raise ValueError(
                f"camera {camera.name!r} is for {camera.num_envs} environments, but the scene has {scene.num_envs}"
            )
        if missing := [plane.value for plane in camera.planes if plane not in backend.supported_planes]:
            raise ValueError(f"render backend {name!r} does not make {missing} of camera {camera.name!r}")
        camera_mount(camera, scene)
        camera_projection(camera, scene)
    return scene


def check_snapshot(snapshot: "RenderSnapshot", scene: SceneDescription, uses_model_cameras: bool) -> None:
    """Refuse a snapshot that is not of this scene.

    Raises:
        ValueError: It lacks poses that the scene's parts need, or has those of another number of parts.
    """
    cameras, lights, points = snapshot.cameras, snapshot.lights, snapshot.points
    for what, published, count in (
        ("body poses", snapshot.transforms and snapshot.transforms.positions, len(scene.bodies)),
        ("camera poses", cameras and cameras.positions, len(scene.cameras) if cameras or uses_model_cameras else 0),
        ("light poses", lights and lights.positions, len(scene.lights)),
        ("flex vertices", points, scene.point_count),
    ):
        found = 0 if published is None else published.shape[0]
        if found != scene.num_envs * count:
            raise ValueError(
                f"the snapshot has {found} {what}, but {scene.num_envs} environments of the scene have "
                f"{scene.num_envs * count}"
            )


def rotation_matrices(quaternions: np.ndarray) -> np.ndarray:
    """Rotation matrices (..., 3, 3) of unit quaternions (..., 4), (x, y, z, w)."""
    x, y, z, w = np.moveaxis(np.asarray(quaternions, dtype=np.float64), -1, 0)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    )
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _check_count(camera: CameraDescriptor, what: str, num_envs: int | None) -> None:
    if num_envs not in (None, camera.num_envs):
        raise ValueError(f"camera {camera.name!r} has {what} for {num_envs} environments, not for {camera.num_envs}")


def _index(kind: str, name: str | int, find, parts) -> int:
    if isinstance(name, str):
        return find(name)
    if not 0 <= name < len(parts):
        raise UnknownNameError(kind, name, (part.name or part.path_name for part in parts))
    return name
