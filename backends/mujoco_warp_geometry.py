"""Skins, cables and tendons of `mujoco_warp`, from poses and paths on its device."""

import mujoco_warp as mjw
import warp as wp

from scene_data.backends.mujoco_geometry import DerivedGeometry
from scene_data.scene import SceneDescription

__all__ = ["WarpGeometry"]


class WarpGeometry(DerivedGeometry):
    """What follows from body poses and tendon paths, brought up to a `mujoco_warp.Data` on request."""

    def __init__(self, scene: SceneDescription, device: wp.Device):
        super().__init__(scene, device)
        self._device = device
        self._timestamp = -1

    def refresh(self, model: mjw.Model, data: mjw.Data, timestamp: int) -> None:
        """Launch what the points follow from, if it has not been launched since this timestamp."""
        if self._timestamp == timestamp and not self._device.is_capturing:
            return
        if self.transforms is not None:
            wp.launch(
                pack_poses,
                dim=data.xpos.shape,
                inputs=[data.xpos, data.xquat],
                outputs=[self.transforms],
                device=self._device,
            )
        if self.tendons is not None:
            with wp.ScopedDevice(self._device):
                mjw.tendon(model, data)
            self.tendons.refresh(data.ten_wrapadr, data.ten_wrapnum, data.wrap_obj, data.wrap_xpos)
        # What is only recorded into a graph has not happened yet.
        self._timestamp = -1 if self._device.is_capturing else timestamp


@wp.kernel(module="unique", enable_backward=False)
def pack_poses(
    positions: wp.array2d(dtype=wp.vec3f),
    quaternions: wp.array2d(dtype=wp.quatf),
    transforms: wp.array(dtype=wp.transformf),
):
    env, body = wp.tid()
    # mujoco_warp keeps MuJoCo's order, the scalar first.
    wxyz = quaternions[env, body]
    rotation = wp.quatf(wxyz[1], wxyz[2], wxyz[3], wxyz[0])
    transforms[env * positions.shape[1] + body] = wp.transformf(positions[env, body], rotation)
