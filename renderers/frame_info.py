"""FrameInfo: what a frame shows, beside its pixels."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from scene_data.camera_frames import in_convention
from scene_data.env_times import EnvTimes
from scene_data.renderers.render_core.live_cameras import CameraRecord

if TYPE_CHECKING:
    import torch

__all__ = ["FrameInfo"]


class FrameInfo:
    """What a frame shows. Tensors are on the device of the frames; each is made when it is first asked for.

    Attributes:
        simulation_time_ns: Simulation time of the snapshot [ns].
        capture_id: Shared by the planes of one capture.
    """

    def __init__(
        self,
        simulation_time_ns: int,
        env_times: EnvTimes,
        capture_id: int,
        record: CameraRecord,
        camera_id: int,
        labels: Callable[[], dict[str, dict[int, str]]],
    ):
        self.simulation_time_ns = simulation_time_ns
        self.capture_id = capture_id
        self._env_times = env_times
        self._record = record
        self._camera_id = camera_id
        self._labels = labels

    @property
    def env_time_ns(self) -> np.ndarray | None:
        """Time of each environment since its own reset [ns], int64 (N,); None where the engine keeps none.

        On a device it is waited for here, and not when the frame is made.
        """
        return self._env_times.nanoseconds

    @cached_property
    def id_to_labels(self) -> dict[str, dict[int, str]]:
        """The table of each data type that holds ids: `{"semantic_segmentation": {2: "robot"}}`."""
        return self._labels()

    @cached_property
    def pos_w(self) -> "torch.Tensor":
        """Position of the camera in each environment's frame, float32 (N, 3) [m]."""
        return self._poses[:, :3]

    @cached_property
    def quat_w_opengl(self) -> "torch.Tensor":
        """Orientation of the frame that looks along -Z with +Y up, float32 (N, 4), (x, y, z, w)."""
        return self._poses[:, 3:]

    @cached_property
    def quat_w_ros(self) -> "torch.Tensor":
        """Orientation of the frame that looks along +Z with -Y up, float32 (N, 4), (x, y, z, w)."""
        return in_convention(self.quat_w_opengl, "ros")

    @cached_property
    def quat_w_world(self) -> "torch.Tensor":
        """Orientation of the frame that looks along +X with +Z up, float32 (N, 4), (x, y, z, w)."""
        return in_convention(self.quat_w_opengl, "world")

    @cached_property
    def intrinsic_matrices(self) -> "torch.Tensor":
        """Pinhole matrices [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] [pixels], float32 (N, 3, 3).

        The origin is the top-left corner of the image, so pixel centres lie at +0.5. Of an orthographic camera fx and
        fy are pixels per metre.
        """
        fx, fy, cx, cy = self._record.pinholes(self._camera_id).unbind(dim=1)
        matrices = fx.new_zeros((len(fx), 3, 3))
        matrices[:, 0, 0], matrices[:, 1, 1], matrices[:, 0, 2], matrices[:, 1, 2] = fx, fy, cx, cy
        matrices[:, 2, 2] = 1.0
        return matrices

    @cached_property
    def _poses(self) -> "torch.Tensor":
        return self._record.poses(self._camera_id)
