"""What changes about the cameras of a configuration while it is in force: settings, and poses from turn to turn."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.formats import SceneDataFormat
from scene_data.launches import KeptLaunch
from scene_data.scene import SceneDescription
from scene_data.streams import WorkOrder, work_order_of

from .camera import CameraDescriptor
from .camera_settings import CameraSetting, CameraSettings
from .camera_tables import NO_POSES, CameraPlaces, CameraTables, camera_pose, pinholes_of

if TYPE_CHECKING:
    import torch

    from .snapshots import RenderSnapshot

__all__ = ["CameraRecord", "LiveCameras"]

wp.set_module_options({"enable_backward": False})


@wp.kernel
def _record_poses(
    body_count: int,
    model_camera_count: int,
    bodies: SceneDataFormat.Vec3_Matrix33,
    model_cameras: SceneDataFormat.Vec3_Matrix33,
    places: CameraPlaces,
    poses: wp.array2d[wp.transformf],
):
    """World poses of all cameras in all environments."""
    camera, env = wp.tid()
    p, r = camera_pose(env, camera, body_count, model_camera_count, bodies, model_cameras, places)
    poses[camera, env] = wp.transformf(p, wp.quat_from_matrix(r))


class LiveCameras:
    """The cameras of one configuration while it is in force. Its owner's lock covers every call.

    Args:
        scene: Where the cameras are.
        cameras: Their descriptors.
        device: Device of the snapshots.

    Attributes:
        settings: What is set about them at run time.
    """

    def __init__(self, scene: SceneDescription, cameras: Sequence[CameraDescriptor], device: Any):
        self.settings = CameraSettings()
        self._counts = len(scene.bodies), len(scene.cameras)
        self._tables = CameraTables(scene, cameras, wp.get_device(device))
        self._index_of_id = {camera.id: index for index, camera in enumerate(self._tables.cameras)}
        self._record = KeptLaunch(_record_poses, self._tables.device)
        self._order = work_order_of(self._tables.device)
        self._free: deque[_PoseMemory] = deque()

    def pinholes(self, camera_id: int) -> NDArray[np.float64]:
        """(fx, fy, cx, cy) in each environment (N, 4) [pixels], of a camera's configuration."""
        index = self._index_of_id[camera_id]
        return pinholes_of(self._tables.projections[index], self._tables.cameras[index])

    def change(self, camera_id: int, change: Callable[[CameraSetting], CameraSetting]) -> None:
        """Change what is set about a camera, from the next snapshot on."""
        setting = self.settings.current.get(camera_id)
        if setting is None:
            setting = CameraSetting.initial(self.pinholes(camera_id))
        self.settings.put(camera_id, change(setting))

    def capture(self, snapshot: "RenderSnapshot") -> "CameraRecord":
        """Put the settings in force into a snapshot, and record where the cameras are in it. Waits for nothing."""
        tables, order = self._tables, self._order
        snapshot.camera_settings = settings = self.settings.current
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _PoseMemory((tables.count, tables.num_envs), order, tables.device)
        with order.enqueueing():
            tables.apply(settings)
            snapshot.begin_read()
            order.wait((memory.read,))
            poses = snapshot.transforms or NO_POSES, snapshot.cameras or NO_POSES
            self._record.launch((tables.count, tables.num_envs), [*self._counts, *poses, tables.places], [memory.poses])
            order.complete(memory.written)
        return CameraRecord(memory, self._free, settings, self._index_of_id, self)


class CameraRecord:
    """Where the cameras were in one snapshot, and how they projected. Its memory is used again when it is gone.

    Attributes:
        settings: What was set about the cameras.
    """

    def __init__(
        self,
        memory: "_PoseMemory",
        free: "deque[_PoseMemory]",
        settings: Mapping[int, CameraSetting],
        index_of_id: Mapping[int, int],
        cameras: LiveCameras,
    ):
        self.settings = settings
        self._memory = memory
        self._free = free
        self._index_of_id = index_of_id
        self._cameras = cameras

    def __del__(self):
        # May run anywhere: appending to a deque takes no lock.
        self._free.append(self._memory)

    def poses(self, camera_id: int) -> "torch.Tensor":
        """Position and quaternion (x, y, z, w) of the camera frame, which looks along -Z (N, 7), on the device."""
        return self._memory.copy(self._index_of_id[camera_id])

    def pinholes(self, camera_id: int) -> "torch.Tensor":
        """(fx, fy, cx, cy) [pixels] in each environment (N, 4) float32, on the device."""
        import torch

        setting = self.settings.get(camera_id)
        pinholes = self._cameras.pinholes(camera_id) if setting is None else setting.pinholes
        return torch.tensor(pinholes, dtype=torch.float32, device=wp.device_to_torch(self._memory.poses.device))


class _PoseMemory:
    """Poses of all cameras (C, N), and the events between who writes and who reads them."""

    def __init__(self, shape: tuple[int, int], order: WorkOrder, device: wp.Device):
        self.poses = wp.zeros(shape, dtype=wp.transformf, device=device)
        self.written, self.read = order.new_event(), order.new_event()
        self._order = order

    def copy(self, camera: int) -> "torch.Tensor":
        stream = self._order.torch_stream()
        if stream is None:
            return wp.to_torch(self.poses)[camera].clone()
        stream.wait_event(self.written)
        copy = wp.to_torch(self.poses)[camera].clone()
        stream.record_event(self.read)
        return copy
