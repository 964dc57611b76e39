"""Cameras for MuJoCo Warp's ray tracer: the rig of a configuration, and the sets of images that turns ask for.

The tracer knows the model's cameras only. It finds them through small tables in its context, so tables of our own give
it any camera: each turn's due cameras with just the planes that are due. Their rays are computed beforehand, which is
faster by a few per cent; where the environments' intrinsics differ, a second kernel computes them as they are cast.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from scene_data.scene import SceneDescription

from . import mujoco_warp_kernels as kernels
from .mujoco_warp_scene import TracerModel
from .render_core.camera import CameraDescriptor, Orthographic, VisualOptions
from .render_core.camera_tables import CameraTables
from .render_core.layout import PlaneKind

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
            PlaneKind.RGB in self.planes or PlaneKind.RGBA in self.planes,
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
    extra_geometry: bool
    varying_rays: bool

    @classmethod
    def of(cls, options: VisualOptions, tracer: TracerModel, extra_geometry: bool, varying_rays: bool) -> "Look":
        """The look of these options, without what the model and the turn do not have."""
        return cls(
            options.geom_groups,
            options.textures and tracer.has_textures,
            options.skybox and tracer.has_skybox,
            options.shadows,
            options.extra_geometry and extra_geometry,
            varying_rays,
        )

    @property
    def drawn(self) -> tuple[tuple[int, ...], bool]:
        """What is drawn, for which bounding volumes are needed: groups, and whether extra geometry is."""
        return self.geom_groups, self.extra_geometry

    def context(self, tracer: TracerModel) -> mjw.RenderContext:
        """A context with this look, but no bounding volumes, cameras or image memory yet."""
        context = copy.copy(tracer.context(*self.drawn))
        context.use_textures, context.render_skybox = self.textures, self.skybox
        context.use_shadows = self.shadows
        context.use_precomputed_rays = not self.varying_rays
        return context


class CameraRig(CameraTables):
    """The cameras of one configuration, and what the tracer reads of a Model about them.

    Attributes:
        has_orthographic: Whether any is orthographic, which the tracer's kernel is built for.
        projection: The tracer's number for how each projects (C,).
        fovy: What the images of orthographic cameras cover vertically (1, C) [m].
        sensor_size: Width and height of each image (C,): lengths on the sensor are pixels.
    """

    def __init__(self, scene: SceneDescription, cameras: Sequence[CameraDescriptor], device: wp.Device):
        super().__init__(scene, cameras, device)
        self.index_of_id = {camera.id: index for index, camera in enumerate(self.cameras)}
        heights = [p.height if isinstance(p, Orthographic) else 0.0 for p in self.projections]
        sizes = [(camera.width, camera.height) for camera in self.cameras]
        kinds = mujoco.mjtProjection
        numbers = [int(kinds.mjPROJ_ORTHOGRAPHIC if height else kinds.mjPROJ_PERSPECTIVE) for height in heights]
        self.has_orthographic = any(heights)
        self.projection = wp.array(numbers, dtype=int, device=device)
        self.fovy = wp.array([heights], dtype=float, device=device)
        self.sensor_size = wp.array(sizes, dtype=wp.vec2, device=device)

    def orthographic_pixel(self, camera: int) -> float:
        """Edge length of a pixel of an orthographic camera [m], 0 for others."""
        projection = self.projections[camera]
        return projection.height / self.cameras[camera].height if isinstance(projection, Orthographic) else 0.0

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

        self._ray = wp.empty(self.ray_count, dtype=wp.vec3, device=device)
        self._ray_offset = wp.empty(self.ray_count, dtype=wp.vec3, device=device)
        self._rig = rig
        self._aimed: object = None
        self.aim()

    def aim(self) -> None:
        """Bring the rays up to the intrinsics in force, where the environments share them."""
        rig = self._rig
        if self._aimed is rig.applied:
            return
        self._aimed = rig.applied
        for shot, first_ray in zip(self.shots, self.first_ray, strict=True):
            camera = rig.cameras[shot.camera]
            wp.launch(
                kernels.write_rays,
                dim=(camera.height, camera.width),
                inputs=[
                    int(first_ray),
                    camera.width,
                    camera.height,
                    shot.camera,
                    rig.intrinsic,
                    rig.orthographic_pixel(shot.camera),
                ],
                outputs=[self._ray, self._ray_offset],
                device=rig.device,
            )

    def install(self, context: mjw.RenderContext) -> None:
        """Make `context` look through these cameras."""
        context.nrender = len(self.shots)
        context.cam_id_map, context.cam_res = self._camera, self._resolution
        context.ray, context.ray_offset, context.total_rays = self._ray, self._ray_offset, self.ray_count
        context.rgb_adr, context.depth_adr, context.seg_adr = self._first
        context.render_rgb, context.render_depth, context.render_seg = self._traced
        context.has_orthographic_camera = self._has_orthographic
