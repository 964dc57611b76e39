"""Where each camera stood in a snapshot, and how it projected, for consumers that hand that on with the frames."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.scene import SceneDescription
from scene_data.streams import work_order_of

from .camera import CameraDescriptor, Orthographic
from .camera_settings import NO_SETTINGS, POSITION_SET, QUATERNION_SET, CameraSetting
from .camera_tables import pinholes_of
from .placement import camera_mount, camera_projection, rotation_matrices
from .snapshots import RenderSnapshot

__all__ = ["CameraPoses", "CameraView"]


@dataclass(frozen=True, eq=False)
class CameraView:
    """One camera's poses in its frame, in the camera frame of MuJoCo and OpenGL (looks along -Z, +Y is up).

    Attributes:
        positions: In each environment's world frame [m], float32 (N, 3).
        rotations: Camera frame to world frame, float32 (N, 3, 3).
        pinholes: (fx, fy, cx, cy) in each environment [pixels], pixel centres at +0.5, float64 (N, 4), read-only; None
            for a parallel projection.
    """

    positions: np.ndarray
    rotations: np.ndarray
    pinholes: NDArray[np.float64] | None


class CameraPoses:
    """Reads camera poses out of the snapshot that a turn renders.

    `capture` enqueues copies to the host while the snapshot is at hand, and `view` waits for them once the turn has
    ended. One turn at a time: a capture overwrites the one before.

    Args:
        scene: Where the cameras are.
        cameras: Those that will be asked for.
    """

    def __init__(self, scene: SceneDescription, cameras: Sequence[CameraDescriptor]):
        self._mounts = {camera.id: camera_mount(camera, scene) for camera in cameras}
        self._pinholes = {camera.id: _configured_pinholes(camera, scene) for camera in cameras}
        self._num_envs = scene.num_envs
        self._settings: Mapping[int, CameraSetting] = NO_SETTINGS
        self._bodies = _HostPoses()
        self._cameras = _HostPoses()

    def capture(self, snapshot: RenderSnapshot, camera_ids: Iterable[int]) -> None:
        """Copy what the poses of these cameras follow from."""
        self._settings = snapshot.camera_settings
        mounts = [self._mounts[camera_id] for camera_id in camera_ids]
        if any(index >= 0 for index, *_ in mounts):
            self._cameras.copy(snapshot, snapshot.cameras)
        if any(index < 0 and body > 0 for index, body, *_ in mounts):
            self._bodies.copy(snapshot, snapshot.transforms)

    def view(self, camera_id: int) -> CameraView:
        """The captured poses of a camera; their arrays are the caller's."""
        index, body, position, quaternion = self._mounts[camera_id]
        if index >= 0:
            positions, rotations = self._cameras.of(index, self._num_envs)
        else:
            local = np.broadcast_to(rotation_matrices(quaternion), (self._num_envs, 3, 3))
            offset = np.broadcast_to(position, (self._num_envs, 3))
            positions, rotations = offset, local
            if body > 0:
                origin, frame = self._bodies.of(body, self._num_envs)
                positions, rotations = origin + np.einsum("nij,nj->ni", frame, offset), frame @ local
        view = CameraView(
            np.array(positions, dtype=np.float32),
            np.array(rotations, dtype=np.float32),
            self._pinholes[camera_id],
        )
        setting = self._settings.get(camera_id)
        return view if setting is None else _with_setting(view, setting)


def _configured_pinholes(camera: CameraDescriptor, scene: SceneDescription) -> NDArray[np.float64] | None:
    projection = camera_projection(camera, scene)
    if isinstance(projection, Orthographic):
        return None
    pinholes = pinholes_of(projection, camera)
    pinholes.flags.writeable = False
    return pinholes


def _with_setting(view: CameraView, setting: CameraSetting) -> CameraView:
    """The view with what was set at run time in place of what the configuration says; its poses are changed."""
    moved, turned = ((setting.pose_set & part) != 0 for part in (POSITION_SET, QUATERNION_SET))
    view.positions[moved] = setting.positions[moved]
    view.rotations[turned] = rotation_matrices(setting.quaternions[turned])
    return view if view.pinholes is None else replace(view, pinholes=setting.pinholes)


class _HostPoses:
    """A copy on the host of the poses in a snapshot, environment-major; pinned where it comes from a GPU."""

    def __init__(self):
        self._positions: Any = None
        self._rotations: Any = None
        self._copied: Any = None

    def copy(self, snapshot: RenderSnapshot, poses: Any) -> None:
        order = work_order_of(snapshot.device)
        if self._positions is None:
            count, pinned = poses.positions.shape[0], snapshot.device.is_cuda
            self._positions = wp.empty(count, dtype=wp.vec3, device="cpu", pinned=pinned)
            self._rotations = wp.empty(count, dtype=wp.mat33, device="cpu", pinned=pinned)
            self._copied = order.new_event()
        with order.enqueueing():
            snapshot.begin_read()
            wp.copy(self._positions, poses.positions)
            wp.copy(self._rotations, poses.orientations)
            order.complete(self._copied)

    def of(self, index: int, num_envs: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions (N, 3) and rotations (N, 3, 3) at an index of each environment."""
        if self._copied is not None:
            wp.synchronize_event(self._copied)
        positions = self._positions.numpy().reshape(num_envs, -1, 3)
        rotations = self._rotations.numpy().reshape(num_envs, -1, 3, 3)
        return positions[:, index], rotations[:, index]
