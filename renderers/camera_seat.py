"""CameraSeat: a camera's place in what renders it."""

from collections.abc import Callable, Collection
from typing import Protocol

from scene_data.camera import BodyMount, CameraCfg, Intrinsics, ModelCamera, Orthographic, Pinhole, WorldPose
from scene_data.errors import UnknownNameError
from scene_data.renderers.camera_data import CameraData, rendered_plane
from scene_data.renderers.camera_outputs import OutputMakers
from scene_data.renderers.render_core import CameraDescriptor, PlaneKind
from scene_data.renderers.render_core.camera_settings import CameraSetting
from scene_data.renderers.render_core.placement import camera_projection
from scene_data.renderers.segmentation_labels import SegmentationLabels
from scene_data.scene import SceneDescription

__all__ = ["CameraHost", "CameraSeat", "describe_camera"]

FREE_CAMERA = "free"


class CameraHost(Protocol):
    """What renders cameras: each of its methods is told which one by its seat."""

    def read(self, seat: "CameraSeat") -> CameraData:
        """What the render mode has for this camera now."""
        ...

    def lag(self, seat: "CameraSeat") -> int:
        """Turns that were started after the one that this camera shows."""
        ...

    def lag_ns(self, seat: "CameraSeat") -> int:
        """Simulation time that has passed since what this camera shows [ns]."""
        ...

    def change(self, seat: "CameraSeat", change: Callable[[CameraSetting], CameraSetting]) -> None:
        """Change what is set about this camera, from the next snapshot on."""
        ...


class CameraSeat:
    """What a host knows of one of its cameras. A seat is void once its host serves another model.

    Attributes:
        cfg: What the user asked for.
        descriptor: What the render core knows it as.
        host: What renders it.
        is_orthographic: Whether its projection is parallel.
        makers: Makes outputs of what is rendered for them.
    """

    def __init__(self, cfg: CameraCfg, descriptor: CameraDescriptor, scene: SceneDescription, host: CameraHost):
        self.cfg = cfg
        self.descriptor = descriptor
        self.host = host
        self.is_orthographic = isinstance(camera_projection(descriptor, scene), Orthographic)
        self.makers = OutputMakers(cfg, descriptor, scene)

    @property
    def name(self) -> str:
        """The camera's name."""
        return self.cfg.name

    def plane(self, data_type: str) -> PlaneKind:
        """The plane of which the frames of one data type are made."""
        return rendered_plane(self.cfg, data_type, self.descriptor.planes)


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
        ValueError: It has poses or intrinsics for another number of environments.
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
        planes=tuple(dict.fromkeys(rendered_plane(cfg, data_type, supported) for data_type in cfg.data_types)),
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
    if isinstance(cfg.intrinsics, Pinhole) and cfg.intrinsics.num_envs not in (None, scene.num_envs):
        raise ValueError(
            f"camera {cfg.name!r} has intrinsics for {cfg.intrinsics.num_envs} environments, but there are "
            f"{scene.num_envs}"
        )


def _free_intrinsics(scene: SceneDescription, cfg: CameraCfg) -> Intrinsics:
    free = scene.free_camera
    if free.projection == "orthographic":
        return Orthographic(free.fovy)
    return Pinhole.from_fovy(free.fovy, cfg.width, cfg.height)
