"""CameraData: one capture of a camera, as tensors by data type."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from scene_data.camera import CameraCfg
from scene_data.errors import UnknownNameError
from scene_data.renderers.camera_outputs import OutputMakers
from scene_data.renderers.frame_info import FrameInfo
from scene_data.renderers.render_core import FrameLease, PlaneKind

if TYPE_CHECKING:
    import torch

__all__ = ["DATA_TYPES", "DERIVED", "CameraData", "rendered_plane"]

DATA_TYPES: dict[str, PlaneKind] = {
    "rgb": PlaneKind.RGB,
    "rgba": PlaneKind.RGBA,
    "depth": PlaneKind.DEPTH,
    "distance_to_image_plane": PlaneKind.DEPTH,
    "distance_to_camera": PlaneKind.DISTANCE_TO_CAMERA,
    "normals": PlaneKind.NORMALS,
    "albedo": PlaneKind.ALBEDO,
    "rgb_hdr": PlaneKind.RGB_HDR,
    "segmentation": PlaneKind.SEGMENTATION,
    "instance_segmentation": PlaneKind.INSTANCE_SEGMENTATION,
    "semantic_segmentation": PlaneKind.SEMANTIC_SEGMENTATION,
}
"""The plane behind each data type. The names are Isaac Lab's."""


DERIVED = {
    PlaneKind.INSTANCE_SEGMENTATION: PlaneKind.SEGMENTATION,
    PlaneKind.SEMANTIC_SEGMENTATION: PlaneKind.SEGMENTATION,
}
"""Planes that can be made of another one, where the render backend does not make them."""


def rendered_plane(cfg: CameraCfg, data_type: str, available: Collection[PlaneKind]) -> PlaneKind:
    """The plane of which a data type of a camera is made, where these planes can be rendered.

    Raises:
        UnknownNameError: There is no such data type.
    """
    if data_type not in DATA_TYPES:
        raise UnknownNameError(f"data type of camera {cfg.name!r}", data_type, DATA_TYPES)
    plane = DATA_TYPES[data_type]
    return plane if plane in available else DERIVED.get(plane, plane)


class CameraData(Mapping[str, "torch.Tensor"]):
    """One capture of a camera: tensors by data type, and what they show.

    It holds its frames: they never change, and their place in the frame budget is free again when it and every
    tensor from it are gone.

    Attributes:
        info: Times, capture id, poses and intrinsics of exactly these frames.
    """

    def __init__(self, leases: Mapping[str, FrameLease], info: FrameInfo, makers: OutputMakers | None = None):
        self._leases = dict(leases)
        self._makers = makers or {}
        self._tensors: dict[str, torch.Tensor] = {}
        self.info = info

    @property
    def output(self) -> "CameraData":
        """This mapping itself, under Isaac Lab's name."""
        return self

    def lease(self, data_type: str) -> FrameLease:
        """The lease on the frame of one data type, for NumPy, Warp or DLPack consumers.

        It holds what was rendered: distances are not clipped, and where the render backend has no instances or tags
        it is the segmentation that they are made of.
        """
        if data_type not in self._leases:
            raise UnknownNameError("data type", data_type, self._leases)
        return self._leases[data_type]

    def __getitem__(self, data_type: str) -> "torch.Tensor":
        """The frame, shape (N, H, W, C), on the device. Clone it before you write to it.

        No copy is made, but for clipped distances, and for instances and tags that are made of a segmentation.
        """
        if data_type not in self._tensors:
            rendered = self.lease(data_type).torch()
            make = self._makers.get(data_type)
            self._tensors[data_type] = rendered if make is None else make(rendered)
        return self._tensors[data_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)
