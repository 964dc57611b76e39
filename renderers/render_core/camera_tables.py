"""Where the cameras of a configuration are, as tables on the device, and the function that kernels find it out with."""

from collections.abc import Mapping, Sequence

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.formats import SceneDataFormat
from scene_data.scene import SceneDescription
from scene_data.scene_parts import WORLD

from .camera import CameraDescriptor, Intrinsics, Orthographic, Pinhole, WorldPose
from .camera_settings import NO_SETTINGS, CameraSetting
from .placement import camera_mount, camera_projection, rotation_matrices

__all__ = ["NO_POSES", "CameraPlaces", "CameraTables", "camera_pose", "pinholes_of"]

wp.set_module_options({"enable_backward": False})

NO_POSES = SceneDataFormat.Vec3_Matrix33()
"""What `camera_pose` takes where a snapshot has no bodies, or no cameras."""


@wp.struct
class CameraPlaces:
    """Where C cameras are in N environments."""

    mount_camera: wp.array(dtype=wp.int32)
    """Index of the model camera that it is, or -1 (C,)."""
    mount_body: wp.array(dtype=wp.int32)
    """Body that it is mounted on otherwise, `WORLD` for none (C,)."""
    mount_position: wp.array2d(dtype=wp.vec3)
    """Position on that body or in the environment, for all environments or for each (1 or N, C)."""
    mount_rotation: wp.array2d(dtype=wp.mat33)
    """Rotation on that body or in the environment (1 or N, C)."""
    pose_set: wp.array2d(dtype=wp.int32)
    """Which parts of its pose are set at run time (N, C)."""
    set_position: wp.array2d(dtype=wp.vec3)
    """Position that was set (N, C)."""
    set_rotation: wp.array2d(dtype=wp.mat33)
    """Rotation that was set (N, C)."""


@wp.func
def camera_pose(
    env: int,
    camera: int,
    body_count: int,
    model_camera_count: int,
    bodies: SceneDataFormat.Vec3_Matrix33,
    model_cameras: SceneDataFormat.Vec3_Matrix33,
    places: CameraPlaces,
):
    """Position and rotation of a camera: the engine's or the mount's, and over them what was set at run time."""
    p = wp.vec3(0.0)
    r = wp.mat33(0.0)
    if places.mount_camera[camera] >= 0:
        model_camera = env * model_camera_count + places.mount_camera[camera]
        p = model_cameras.positions[model_camera]
        r = model_cameras.orientations[model_camera]
    else:
        row = env % places.mount_position.shape[0]
        p = places.mount_position[row, camera]
        r = places.mount_rotation[row, camera]
        if places.mount_body[camera] >= 0:
            body = env * body_count + places.mount_body[camera]
            p = bodies.positions[body] + bodies.orientations[body] @ p
            r = bodies.orientations[body] @ r
    parts = places.pose_set[env, camera]
    if (parts & 1) != 0:  # POSITION_SET
        p = places.set_position[env, camera]
    if (parts & 2) != 0:  # QUATERNION_SET
        r = places.set_rotation[env, camera]
    return p, r


class CameraTables:
    """The cameras of one configuration.

    Attributes:
        cameras: Their descriptors; the index here is the camera's index in every table.
        projections: How each projects, unless that is set at run time.
        uses_model_cameras: Whether any camera's pose is the engine's to say.
        places: What `camera_pose` reads.
        intrinsic: (fx, fy, width / 2 - cx, height / 2 - cy) of each (N, C) [pixels].
        varies: Whether its intrinsics differ among the environments (C,) bool, on the host.
        applied: The settings that are in force.
    """

    def __init__(self, scene: SceneDescription, cameras: Sequence[CameraDescriptor], device: wp.Device):
        self.cameras = tuple(cameras)
        self.count = len(self.cameras)
        self.num_envs = scene.num_envs
        self.device = device
        self.projections: list[Intrinsics] = [camera_projection(camera, scene) for camera in self.cameras]
        mounts = [camera_mount(camera, scene) for camera in self.cameras]
        rows = max((len(pose) for mount in mounts for pose in mount[2:]), default=1)
        positions, rotations = np.zeros((rows, self.count, 3)), np.zeros((rows, self.count, 3, 3))
        for camera, (_, _, position, quaternion) in enumerate(mounts):
            positions[:, camera] = position
            rotations[:, camera] = rotation_matrices(quaternion)
        self.uses_model_cameras = any(mount[0] >= 0 for mount in mounts)
        bodies = [
            WORLD if isinstance(camera.mount, WorldPose) else mount[1]
            for camera, mount in zip(self.cameras, mounts, strict=True)
        ]
        shape = (self.num_envs, self.count)
        self.places = places = CameraPlaces()
        places.mount_camera = wp.array([mount[0] for mount in mounts], dtype=wp.int32, device=device)
        places.mount_body = wp.array(bodies, dtype=wp.int32, device=device)
        places.mount_position = wp.array(positions, dtype=wp.vec3, device=device)
        places.mount_rotation = wp.array(rotations, dtype=wp.mat33, device=device)
        places.pose_set = wp.zeros(shape, dtype=wp.int32, device=device)
        places.set_position = wp.zeros(shape, dtype=wp.vec3, device=device)
        places.set_rotation = wp.zeros(shape, dtype=wp.mat33, device=device)
        self.intrinsic = wp.zeros(shape, dtype=wp.vec4, device=device)
        self.varies = np.zeros(self.count, dtype=bool)
        self.applied: Mapping[int, CameraSetting] | None = None
        self.apply(NO_SETTINGS)

    def apply(self, settings: Mapping[int, CameraSetting]) -> None:
        """Put in force what was set at run time, by camera id. Costs nothing when nothing was set since."""
        if settings is self.applied:
            return
        self.applied = settings
        pose_set = np.zeros((self.num_envs, self.count), np.int32)
        positions, quaternions = np.zeros((*pose_set.shape, 3)), np.zeros((*pose_set.shape, 4))
        pinholes = np.zeros((*pose_set.shape, 4))
        for index, camera in enumerate(self.cameras):
            setting = settings.get(camera.id)
            if setting is None:
                pinholes[:, index] = pinholes_of(self.projections[index], camera)
                continue
            pose_set[:, index] = setting.pose_set
            positions[:, index], quaternions[:, index] = setting.positions, setting.quaternions
            pinholes[:, index] = setting.pinholes
        centres = np.array([(0.5 * camera.width, 0.5 * camera.height) for camera in self.cameras]).reshape(-1, 2)
        pinholes[..., 2:] = centres - pinholes[..., 2:]
        self.varies = (pinholes != pinholes[:1]).any(axis=(0, 2))
        self.places.pose_set.assign(pose_set)
        self.places.set_position.assign(positions)
        self.places.set_rotation.assign(rotation_matrices(quaternions))
        self.intrinsic.assign(pinholes)


def pinholes_of(projection: Intrinsics, camera: CameraDescriptor) -> NDArray[np.float64]:
    """(fx, fy, cx, cy) (N, 4) [pixels] in each environment; of parallel projections fx and fy are pixels per metre."""
    if isinstance(projection, Orthographic):
        scale = camera.height / projection.height
        projection = Pinhole(scale, scale, 0.5 * camera.width, 0.5 * camera.height)
    return projection.rows(camera.num_envs)
