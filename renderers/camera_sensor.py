"""Camera: one camera of a simulation, read as tensors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scene_data.camera import BodyMount, CameraCfg, Intrinsics, ModelCamera, Orthographic, Pinhole, WorldPose
from scene_data.errors import UnknownNameError
from scene_data.renderers.render_core import CameraDescriptor, FrameLease, PlaneKind, PlaneLayout
from scene_data.scene import SceneDescription

if TYPE_CHECKING:
    import torch

__all__ = ["DATA_TYPES", "Camera", "CameraCfg", "CameraData", "FrameInfo", "describe_camera"]

FREE_CAMERA = "free"

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


@dataclass(frozen=True)
class FrameInfo:
    """What a frame shows.

    Attributes:
        simulation_time_ns: Simulation time of the snapshot [ns].
        env_time_ns: Time of each environment since its own reset [ns], int64 (N,); None where the engine keeps none.
        capture_id: Shared by the planes of one capture.
    """

    simulation_time_ns: int
    env_time_ns: np.ndarray | None
    capture_id: int


class CameraData(Mapping[str, "torch.Tensor"]):
    """One capture of a camera: tensors by data type, and what they show.

    It holds its frames: they never change, and their place in the frame budget is free again when it and every
    tensor from it are gone.

    Attributes:
        info: Time and capture id of exactly these frames.
    """

    def __init__(self, leases: Mapping[str, FrameLease], info: FrameInfo):
        self._leases = dict(leases)
        self._tensors: dict[str, torch.Tensor] = {}
        self.info = info

    @property
    def output(self) -> "CameraData":
        """This mapping itself, under Isaac Lab's name."""
        return self

    def lease(self, data_type: str) -> FrameLease:
        """The lease on the frame of one data type, for NumPy, Warp or DLPack consumers."""
        if data_type not in self._leases:
            raise UnknownNameError("data type", data_type, self._leases)
        return self._leases[data_type]

    def __getitem__(self, data_type: str) -> "torch.Tensor":
        """The frame, shape (N, H, W, C), on the device, without a copy. Clone it before you write to it."""
        if data_type not in self._tensors:
            self._tensors[data_type] = self.lease(data_type).torch()
        return self._tensors[data_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)


class Camera:
    """One camera. In the synchronous mode its `data` always belongs to the present state.

    Attributes:
        cfg: What the user asked for.
        descriptor: What the render core knows it as.
    """

    def __init__(
        self,
        cfg: CameraCfg,
        descriptor: CameraDescriptor,
        read: Callable[["Camera"], CameraData],
        lag: Callable[["Camera"], int],
    ):
        self.cfg = cfg
        self.descriptor = descriptor
        self._read = read
        self._lag = lag

    @property
    def name(self) -> str:
        """Its name."""
        return self.cfg.name

    def layout(self, data_type: str) -> PlaneLayout:
        """Shape and dtype of the frames of one data type."""
        return self.descriptor.layout(_plane(self.cfg, data_type))

    @property
    def data(self) -> CameraData:
        """The latest frames; in the synchronous mode captured now if the state has moved since the last ones.

        Raises:
            StaleGenerationError: The model was reloaded since; take the camera from the simulation anew.
            RenderTurnError: The frames could not be made; the message names the budget and its holders, or what the
                render backend reports. An older frame is never handed out in their place.
        """
        return self._read(self)

    @property
    def lag(self) -> int:
        """Turns that were started after the one that `data` shows: 0 in the synchronous mode, 1 if pipelined."""
        return self._lag(self)


def describe_camera(cfg: CameraCfg, camera_id: int, scene: SceneDescription) -> CameraDescriptor:
    """The descriptor of what the user asked for.

    Raises:
        UnknownNameError: The name is no camera of the model, its body is none, or a data type is not known.
        ValueError: It has poses for another number of environments.
    """
    _check_mount(cfg, scene)
    mount, intrinsics = cfg.mount, cfg.intrinsics
    names = {name for camera in scene.cameras for name in (camera.name, camera.path_name) if name}
    if mount is None and cfg.name not in names:
        if cfg.name != FREE_CAMERA:
            known = [camera.name or camera.path_name for camera in scene.cameras]
            raise UnknownNameError("camera", cfg.name, [*known, FREE_CAMERA])
        free = scene.free_camera
        mount = WorldPose(tuple(free.position), tuple(free.quaternion))
        intrinsics = intrinsics or _free_intrinsics(scene, cfg)
    return CameraDescriptor(
        id=camera_id,
        name=cfg.name,
        width=cfg.width,
        height=cfg.height,
        planes=tuple(dict.fromkeys(_plane(cfg, data_type) for data_type in cfg.data_types)),
        num_envs=scene.num_envs,
        mount=mount,
        intrinsics=intrinsics,
        options=cfg.options,
    )


def _check_mount(cfg: CameraCfg, scene: SceneDescription) -> None:
    if isinstance(cfg.mount, BodyMount) and isinstance(cfg.mount.body, str):
        scene.body_index(cfg.mount.body)
    if isinstance(cfg.mount, ModelCamera) and isinstance(cfg.mount.camera, str):
        scene.camera_index(cfg.mount.camera)
    if isinstance(cfg.mount, WorldPose) and cfg.mount.num_envs not in (None, scene.num_envs):
        raise ValueError(
            f"camera {cfg.name!r} has poses for {cfg.mount.num_envs} environments, but there are {scene.num_envs}"
        )


def _plane(cfg: CameraCfg, data_type: str) -> PlaneKind:
    if data_type not in DATA_TYPES:
        raise UnknownNameError(f"data type of camera {cfg.name!r}", data_type, DATA_TYPES)
    return DATA_TYPES[data_type]


def _free_intrinsics(scene: SceneDescription, cfg: CameraCfg) -> Intrinsics:
    free = scene.free_camera
    if free.projection == "orthographic":
        return Orthographic(free.fovy)
    return Pinhole.from_fovy(free.fovy, cfg.width, cfg.height)
