"""Where the cameras of a configuration are, as tables on the device, and the function that kernels find it out with."""

from collections.abc import Mapping, Sequence

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.scene import SceneDescription
from scene_data.scene_parts import WORLD

from .camera import CameraDescriptor, Intrinsics, Orthographic, Pinhole, WorldPose
from .camera_settings import NO_SETTINGS, CameraSetting
from .placement import camera_mount, camera_projection, rotation_matrices

__all__ = ["CameraTables", "camera_pose", "pinholes_of"]

wp.set_module_options({"enable_backward": False})


@wp.func
def camera_pose(
    env: int,
    camera: int,
    body_count: int,
    model_camera_count: int,
    body_position: wp.array[wp.vec3],
    body_rotation: wp.array[wp.mat33],
    model_camera_position: wp.array[wp.vec3],
    model_camera_rotation: wp.array[wp.mat33],
    mount_camera: wp.array[wp.int32],
    mount_body: wp.array[wp.int32],
    mount_position: wp.array2d[wp.vec3],
    mount_rotation: wp.array2d[wp.mat33],
    pose_set: wp.array2d[wp.int32],
    set_position: wp.array2d[wp.vec3],
    set_rotation: wp.array2d[wp.mat33],
):
    """Position and rotation of a camera: the engine's or the mount's, and over them what was set at run time."""
    p = wp.vec3(0.0)
    r = wp.mat33(0.0)
    if mount_camera[camera] >= 0:
        model_camera = env * model_camera_count + mount_camera[camera]
        p = model_camera_position[model_camera]
        r = model_camera_rotation[model_camera]
    else:
        row = env % mount_position.shape[0]
        p = mount_position[row, camera]
        r = mount_rotation[row, camera]
        if mount_body[camera] >= 0:
            body = env * body_count + mount_body[camera]
            p = body_position[body] + body_rotation[body] @ p
            r = body_rotation[body] @ r
    parts = pose_set[env, camera]
    if (parts & 1) != 0:  # POSITION_SET
        p = set_position[env, camera]
    if (parts & 2) != 0:  # QUATERNION_SET
        r = set_rotation[env, camera]
    return p, r


class CameraTables:
    """The cameras of one configuration.

    Attributes:
        cameras: Their descriptors; the index here is the camera's index in every table.
        projections: How each projects, unless that is set at run time.
        uses_model_cameras: Whether any camera's pose is the engine's to say.
        mount_camera: Index of the model camera that it is, or -1 (C,).
        mount_body: Body that it is mounted on otherwise, `WORLD` for none (C,).
        mount_position: Position on that body or in the environment, for all environments or for each (1 or N, C).
        mount_rotation: Rotation on that body (1 or N, C).
        pose_set: Which parts of its pose are set at run time (N, C).
        set_position: Position that was set (N, C).
        set_rotation: Rotation that was set (N, C).
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
        self.mount_camera = wp.array([mount[0] for mount in mounts], dtype=wp.int32, device=device)
        bodies = [
            WORLD if isinstance(camera.mount, WorldPose) else mount[1]
            for camera, mount in zip(self.cameras, mounts, strict=True)
        ]
        self.mount_body = wp.array(bodies, dtype=wp.int32, device=device)
        self.mount_position = wp.array(positions, dtype=wp.vec3, device=device)
        self.mount_rotation = wp.array(rotations, dtype=wp.mat33, device=device)
        shape = (self.num_envs, self.count)
        self.pose_set = wp.zeros(shape, dtype=wp.int32, device=device)
        self.set_position = wp.zeros(shape, dtype=wp.vec3, device=device)
        self.set_rotation = wp.zeros(shape, dtype=wp.mat33, device=device)
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
        self.pose_set.assign(pose_set)
        self.set_position.assign(positions)
        self.set_rotation.assign(rotation_matrices(quaternions))
        self.intrinsic.assign(pinholes)

    def inputs(self) -> list[wp.array]:
        """What `camera_pose` takes of this, in order."""
        return [
            self.mount_camera,
            self.mount_body,
            self.mount_position,
            self.mount_rotation,
            self.pose_set,
            self.set_position,
            self.set_rotation,
        ]


def pinholes_of(projection: Intrinsics, camera: CameraDescriptor) -> NDArray[np.float64]:
    """(fx, fy, cx, cy) (N, 4) [pixels] in each environment; of parallel projections fx and fy are pixels per metre."""
    if isinstance(projection, Orthographic):
        scale = camera.height / projection.height
        projection = Pinhole(scale, scale, 0.5 * camera.width, 0.5 * camera.height)
    return projection.rows(camera.num_envs)
