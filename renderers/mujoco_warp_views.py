"""Cameras for MuJoCo Warp's ray tracer: the rig of a configuration, and the sets of images that turns ask for.

The tracer knows the model's cameras only. It finds them through small tables in its context, so tables of our own give
it any camera: each turn's due cameras with just the planes that are due, aimed by precomputed rays.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mujoco_warp as mjw
import numpy as np
import warp as wp

from scene_data.scene import SceneDescription

from . import mujoco_warp_kernels as kernels
from .mujoco_warp_scene import TracerModel
from .render_core.camera import CameraDescriptor, Orthographic, VisualOptions
from .render_core.layout import PlaneKind
from .render_core.placement import camera_mount, camera_projection, rotation_matrices

__all__ = ["CameraRig", "Look", "Shot", "ViewTables"]


@dataclass(frozen=True)
class Shot:
    """One camera of a turn: its index in the rig and the planes that are due."""

    camera: int
    planes: tuple[PlaneKind, ...]

    @property
    def traced(self) -> tuple[bool, bool, bool]:
        """Whether the tracer must make colour, depth and objects for it."""
        return (
            PlaneKind.RGB in self.planes,
            PlaneKind.DEPTH in self.planes or PlaneKind.DISTANCE_TO_CAMERA in self.planes,
            PlaneKind.SEGMENTATION in self.planes,
        )


@dataclass(frozen=True)
class Look:
    """Visual options as far as the tracer needs a context of their own for them."""

    geom_groups: tuple[int, ...]
    textures: bool
    skybox: bool
    shadows: bool

    @classmethod
    def of(cls, options: VisualOptions, tracer: TracerModel) -> "Look":
        """The look of these options, without what the model does not have."""
        return cls(
            options.geom_groups,
            options.textures and tracer.has_textures,
            options.skybox and tracer.has_skybox,
            options.shadows,
        )

    def context(self, tracer: TracerModel) -> mjw.RenderContext:
        """A context with this look, but no bounding volumes, cameras or image memory yet."""
        context = copy.copy(tracer.context(self.geom_groups))
        context.use_textures, context.render_skybox = self.textures, self.skybox
        context.use_shadows = self.shadows
        return context


class CameraRig:
    """The cameras of one configuration as device tables.

    Attributes:
        cameras: Their descriptors; the index here is the camera's index for the tracer.
        projections: How each projects.
        uses_model_cameras: Whether any camera's pose is the engine's to say.
        has_orthographic: Whether any is orthographic, which the tracer's kernel is built for.
    """

    def __init__(self, scene: SceneDescription, cameras: Sequence[CameraDescriptor], device: wp.Device):
        self.cameras = tuple(cameras)
        self.count = len(self.cameras)
        self.device = device
        self.index_of_id = {camera.id: index for index, camera in enumerate(self.cameras)}
        self.projections = [camera_projection(camera, scene) for camera in self.cameras]
        self.has_orthographic = any(isinstance(projection, Orthographic) for projection in self.projections)
        mounts = [camera_mount(camera, scene) for camera in self.cameras]
        rows = max((len(pose) for mount in mounts for pose in mount[2:]), default=1)
        positions, rotations = np.zeros((rows, self.count, 3)), np.zeros((rows, self.count, 3, 3))
        for camera, (_, _, position, quaternion) in enumerate(mounts):
            positions[:, camera] = position
            rotations[:, camera] = rotation_matrices(quaternion)
        self.uses_model_cameras = any(mount[0] >= 0 for mount in mounts)
        self.mount_camera = wp.array([mount[0] for mount in mounts], dtype=wp.int32, device=device)
        self.mount_body = wp.array([mount[1] for mount in mounts], dtype=wp.int32, device=device)
        self.mount_position = wp.array(positions, dtype=wp.vec3, device=device)
        self.mount_rotation = wp.array(rotations, dtype=wp.mat33, device=device)

    def shots(self) -> list[Shot]:
        """All cameras with all their planes."""
        return [Shot(index, camera.planes) for index, camera in enumerate(self.cameras)]

    def pixels(self, shots: Iterable[Shot]) -> np.ndarray:
        """Pixels of colour, depth and objects (3,) that the tracer makes for these, in one environment."""
        made = [np.multiply(shot.traced, self.size(shot.camera)) for shot in shots]
        return np.array(made, dtype=np.int64).reshape(-1, 3).sum(axis=0)

    def size(self, camera: int) -> int:
        """Pixels of a camera's image."""
        return self.cameras[camera].width * self.cameras[camera].height


class ViewTables:
    """The camera tables for one combination of due cameras and planes, shared by all shards.

    Attributes:
        shots: What is due.
        first: Where each shot's colour, depth and objects begin in the tracer's images (len(shots), 3).
        first_ray: Where each shot's rays begin (len(shots),).
    """

    def __init__(self, rig: CameraRig, shots: Sequence[Shot]):
        device = rig.device
        traced = np.array([shot.traced for shot in shots], dtype=bool).reshape(-1, 3)
        sizes = np.array([rig.size(shot.camera) for shot in shots], dtype=np.int64)
        made = traced * sizes[:, None]
        self.shots = tuple(shots)
        self.pixels = made.sum(axis=0)
        self.first = np.cumsum(made, axis=0) - made
        self.first_ray = np.cumsum(sizes) - sizes
        self.ray_count = int(sizes.sum())
        self._has_orthographic = rig.has_orthographic
        self._camera = wp.array([shot.camera for shot in shots], dtype=int, device=device)
        self._resolution = wp.array(
            [(rig.cameras[shot.camera].width, rig.cameras[shot.camera].height) for shot in shots],
            wp.vec2i,
            device=device,
        )
        self._first = [wp.array(column, dtype=int, device=device) for column in self.first.T]
        self._traced = [wp.array(column, dtype=bool, device=device) for column in traced.T]
        self.ray = wp.empty(self.ray_count, dtype=wp.vec3, device=device)
        self.ray_offset = wp.empty(self.ray_count, dtype=wp.vec3, device=device)
        for shot, first_ray in zip(shots, self.first_ray, strict=True):
            camera, projection = rig.cameras[shot.camera], rig.projections[shot.camera]
            if isinstance(projection, Orthographic):
                pinhole = wp.vec4(1.0, 1.0, 0.5 * camera.width, 0.5 * camera.height)
                pixel = projection.height / camera.height
            else:
                pinhole = wp.vec4(projection.fx, projection.fy, projection.cx, projection.cy)
                pixel = 0.0
            wp.launch(
                kernels.write_rays,
                dim=(camera.height, camera.width),
                inputs=[int(first_ray), camera.width, pinhole, pixel],
                outputs=[self.ray, self.ray_offset],
                device=device,
            )

    def install(self, context: mjw.RenderContext) -> None:
        """Make `context` look through these cameras."""
        context.nrender = len(self.shots)
        context.cam_id_map, context.cam_res = self._camera, self._resolution
        context.ray, context.ray_offset, context.total_rays = self.ray, self.ray_offset, self.ray_count
        context.rgb_adr, context.depth_adr, context.seg_adr = self._first
        context.render_rgb, context.render_depth, context.render_seg = self._traced
        context.has_orthographic_camera = self._has_orthographic
