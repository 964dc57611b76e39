"""Cameras for MuJoCo Warp's ray tracer: the rig of a configuration, and the images that turns ask for.

The tracer knows the model's cameras only. It finds them through small tables in its context, so tables of our own give
it any camera, with just the planes that are due. Rays are computed beforehand, which is faster by a few per cent, and
lets some rows of an image be drawn as an image of its own; where the environments' intrinsics differ, a second kernel
computes the rays of whole images as they are cast.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import mujoco
import mujoco_warp as mjw
import warp as wp

from scene_data.scene import SceneDescription

from . import mujoco_warp_kernels as kernels
from .mujoco_warp_scene import TracerModel
from .render_core.camera import CameraDescriptor, Orthographic, VisualOptions
from .render_core.camera_tables import CameraTables
from .render_core.layout import PlaneKind

__all__ = ["CameraRig", "Look", "Shot", "ShotTables"]


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
    colour: bool
    extra_geometry: bool
    varying_rays: bool

    @classmethod
    def of(
        cls, options: VisualOptions, tracer: TracerModel, colour: bool, extra_geometry: bool, varying_rays: bool
    ) -> "Look":
        """The look of these options, without what the camera, the model and the turn do not have."""
        return cls(
            options.geom_groups,
            colour and options.textures and tracer.has_textures,
            colour and options.skybox and tracer.has_skybox,
            colour and options.shadows,
            colour,
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
        if not self.colour:  # the kernel of a camera without colour comes without what shades, and its rays cost less
            context.enable_vertex_normals = context.enable_specular = context.enable_emission = False
            context.use_ambient_lighting = context.headlight_active = False
        return context

    def model(self, model: SimpleNamespace) -> SimpleNamespace:
        """What the tracer reads of a Model, as its kernel is to be built for."""
        model = copy.copy(model)
        if not self.colour:
            model.nlight = 0
        return model


class CameraRig(CameraTables):
    """The cameras of one configuration, and what the tracer reads of a Model about them.

    Attributes:
        has_orthographic: Whether any is orthographic, which the tracer's kernel is built for.
        near: Distance of the near plane [m], which the tracer aims its rays through.
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
        self.near = scene.near
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

    def look(self, shot: Shot, tracer: TracerModel, extra_geometry: bool) -> Look:
        """How a camera's images look. Which of its planes are due makes no difference, so no turn builds a kernel."""
        camera = self.cameras[shot.camera]
        colour = PlaneKind.RGB in camera.planes or PlaneKind.RGBA in camera.planes
        return Look.of(camera.options, tracer, colour, extra_geometry, bool(self.varies[shot.camera]))


class ShotTables:
    """What the tracer's context says of the one image that it draws, shared by all shards and all rows.

    Attributes:
        width: Width of the image [pixels].
        height: Its height [pixels].
    """

    def __init__(self, rig: CameraRig, shot: Shot):
        device, camera = rig.device, rig.cameras[shot.camera]
        self.width, self.height = camera.width, camera.height
        self._rig = rig
        self._shot = shot
        self._index = wp.array([shot.camera], dtype=int, device=device)
        self._start = wp.zeros(1, dtype=int, device=device)
        self._traced = [wp.array([made], dtype=bool, device=device) for made in shot.traced]
        self._ray = wp.empty(self.width * self.height, dtype=wp.vec3, device=device)
        self._ray_offset = wp.empty_like(self._ray)
        self._aimed: object = None
        self.aim()

    def aim(self) -> None:
        """Bring the rays up to the intrinsics in force, where the environments share them."""
        rig = self._rig
        if self._aimed is rig.applied:
            return
        self._aimed = rig.applied
        index = self._shot.camera
        wp.launch(
            kernels.write_rays,
            dim=(self.height, self.width),
            inputs=[
                self.width,
                self.height,
                index,
                rig.projection,
                rig.fovy,
                rig.sensor_size,
                rig.intrinsic,
                rig.near,
            ],
            outputs=[self._ray, self._ray_offset],
            device=rig.device,
        )

    def install(self, context: mjw.RenderContext, rows: slice) -> None:
        """Make `context` draw these rows of the image."""
        rays = slice(rows.start * self.width, rows.stop * self.width)
        context.nrender = 1
        context.cam_id_map = self._index
        context.cam_res = wp.array([(self.width, rows.stop - rows.start)], dtype=wp.vec2i, device=self._rig.device)
        context.ray, context.ray_offset = self._ray[rays], self._ray_offset[rays]
        context.total_rays = rays.stop - rays.start
        context.rgb_adr = context.depth_adr = context.seg_adr = self._start
        context.render_rgb, context.render_depth, context.render_seg = self._traced
        context.has_orthographic_camera = self._rig.has_orthographic
