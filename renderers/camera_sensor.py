"""Camera: one camera of a simulation, read as tensors."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scene_data.camera import BodyMount, CameraCfg, Intrinsics, ModelCamera, Orthographic, Pinhole, WorldPose
from scene_data.errors import UnknownNameError
from scene_data.renderers.camera_outputs import OutputMakers
from scene_data.renderers.frame_info import FrameInfo
from scene_data.renderers.render_core import CameraDescriptor, FrameLease, PlaneKind, PlaneLayout
from scene_data.renderers.render_core.camera_settings import CameraSetting
from scene_data.renderers.render_core.placement import camera_projection
from scene_data.renderers.runtime_settings import checked_pinholes, checked_positions, checked_quaternions
from scene_data.renderers.segmentation_labels import SegmentationLabels
from scene_data.runtime_values import checked_envs
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


DERIVED = {
    PlaneKind.INSTANCE_SEGMENTATION: PlaneKind.SEGMENTATION,
    PlaneKind.SEMANTIC_SEGMENTATION: PlaneKind.SEGMENTATION,
}
"""Planes that can be made of another one, where the render backend does not make them."""


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


class Camera:
    """One camera. In the synchronous mode its `data` always belongs to the present state.

    Attributes:
        cfg: What the user asked for.
        descriptor: What the render core knows it as.
        is_orthographic: Whether its projection is parallel.
        makers: Makes outputs of what is rendered for them.
    """

    def __init__(
        self,
        cfg: CameraCfg,
        descriptor: CameraDescriptor,
        scene: SceneDescription,
        *,
        read: Callable[["Camera"], CameraData],
        lag: Callable[["Camera"], int],
        change: Callable[["Camera", Callable[[CameraSetting], CameraSetting]], None],
    ):
        self.cfg = cfg
        self.descriptor = descriptor
        self.is_orthographic = isinstance(camera_projection(descriptor, scene), Orthographic)
        self.makers = OutputMakers(cfg, descriptor, scene)
        self._read = read
        self._lag = lag
        self._change = change

    @property
    def name(self) -> str:
        """Its name."""
        return self.cfg.name

    def layout(self, data_type: str) -> PlaneLayout:
        """Shape and dtype of the frames that are rendered for one data type."""
        return self.descriptor.layout(self.plane(data_type))

    def plane(self, data_type: str) -> PlaneKind:
        """The plane of which the frames of one data type are made."""
        return _rendered_plane(self.cfg, data_type, self.descriptor.planes)

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

    def set_world_poses(
        self,
        positions: Any = None,
        orientations: Any = None,
        env_ids: Sequence[int] | None = None,
        convention: str = "ros",
    ) -> None:
        """Let the camera stand still at these poses, from the next frame on; whatever it was mounted on plays no role.

        Args:
            positions: In each environment's frame (n, 3), or (3,) for all [m]; None leaves the position to what said it
                so far, be it the engine.
            orientations: Quaternions (n, 4) or (4,), (x, y, z, w); None leaves the orientation likewise.
            env_ids: The n environments; None is all.
            convention: How the camera looks in its own frame: `"ros"` along +Z with -Y up, `"opengl"` along -Z with +Y
                up, `"world"` along +X with +Z up.

        Raises:
            UnknownNameError: No such convention.
            ValueError: A shape that does not fit, a value that is not finite, or no such environment.
            StaleGenerationError: The model was reloaded since.
        """
        envs = checked_envs(env_ids, self.descriptor.num_envs)
        new_positions = None if positions is None else checked_positions(positions, len(envs))
        new_quaternions = None if orientations is None else checked_quaternions(orientations, len(envs), convention)
        self._change(self, lambda setting: setting.with_poses(envs, new_positions, new_quaternions))

    def clear_world_poses(self, env_ids: Sequence[int] | None = None) -> None:
        """Let the camera sit again where its configuration has it, in these environments or all."""
        envs = checked_envs(env_ids, self.descriptor.num_envs)
        self._change(self, lambda setting: setting.without_poses(envs))

    def set_intrinsic_matrices(self, matrices: Any, env_ids: Sequence[int] | None = None) -> None:
        """Project through these pinholes, from the next frame on.

        Args:
            matrices: [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] (n, 3, 3), or (3, 3) for all [pixels]; the origin is the
                top-left corner of the image, so pixel centres lie at +0.5. fx and fy may differ, and (cx, cy) be
                anywhere.
            env_ids: The n environments; None is all.

        Raises:
            ValueError: A matrix of another form, no such environment, or the camera is orthographic.
            StaleGenerationError: The model was reloaded since.
        """
        if self.is_orthographic:
            raise ValueError(f"camera {self.name!r} is orthographic and has no pinhole")
        envs = checked_envs(env_ids, self.descriptor.num_envs)
        pinholes = checked_pinholes(matrices, len(envs))
        self._change(self, lambda setting: setting.with_pinholes(envs, pinholes))


def describe_camera(
    cfg: CameraCfg, camera_id: int, scene: SceneDescription, supported: Collection[PlaneKind] = frozenset(PlaneKind)
) -> CameraDescriptor:
    """The descriptor of what the user asked for.

    Args:
        cfg: What that is.
        camera_id: Id of the camera in its core.
        scene: What it looks at.
        supported: Planes that the render backend makes; others are made of these where that is possible.

    Raises:
        UnknownNameError: The name is no camera of the model, its body is none, a data type is not known, or a semantic
            tag's pattern matches nothing.
        ValueError: It has poses for another number of environments.
    """
    _check_mount(cfg, scene)
    SegmentationLabels(scene, cfg.semantic_tags)  # pyright: ignore[reportArgumentType]
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
        planes=tuple(dict.fromkeys(_rendered_plane(cfg, data_type, supported) for data_type in cfg.data_types)),
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


def _rendered_plane(cfg: CameraCfg, data_type: str, available: Collection[PlaneKind]) -> PlaneKind:
    plane = _plane(cfg, data_type)
    return plane if plane in available else DERIVED.get(plane, plane)


def _free_intrinsics(scene: SceneDescription, cfg: CameraCfg) -> Intrinsics:
    free = scene.free_camera
    if free.projection == "orthographic":
        return Orthographic(free.fovy)
    return Pinhole.from_fovy(free.fovy, cfg.width, cfg.height)
