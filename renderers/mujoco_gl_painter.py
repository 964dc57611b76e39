"""GlPainter: one OpenGL context with a model uploaded to it, and the planes that MuJoCo's renderer draws there."""

import threading
from collections.abc import Callable, Mapping
from ctypes import c_int, c_uint, c_void_p
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from scene_data.extra_geometry import PRIMITIVES
from scene_data.geometry_sources import PackedGeometry

from .gl_contexts import GlContext, choose_platforms, open_context
from .mujoco_gl_state import PosedModel
from .render_core.camera import CameraDescriptor, Intrinsics, Orthographic, VisualOptions
from .render_core.camera_settings import CameraSetting
from .render_core.camera_tables import pinholes_of
from .render_core.layout import PlaneKind
from .render_core.placement import rotation_matrices
from .render_core.status import ContextIntegrityError

__all__ = ["GlPainter", "ProjectedCamera"]

_SEGMENT = int(mujoco.mjtRndFlag.mjRND_SEGMENT)
_ID_COLOUR = int(mujoco.mjtRndFlag.mjRND_IDCOLOR)
_SHADOW = int(mujoco.mjtRndFlag.mjRND_SHADOW)
_SKYBOX = int(mujoco.mjtRndFlag.mjRND_SKYBOX)
_HAZE = int(mujoco.mjtRndFlag.mjRND_HAZE)
_REFLECTION = int(mujoco.mjtRndFlag.mjRND_REFLECTION)
_DRAWN = int(mujoco.mjtCatBit.mjCAT_STATIC) | int(mujoco.mjtCatBit.mjCAT_DYNAMIC)
_COLOURS = frozenset({PlaneKind.RGB, PlaneKind.RGBA})
_GEOM_TYPES = [getattr(mujoco.mjtGeom, f"mjGEOM_{shape.name}") for shape in PRIMITIVES]
_OUT_OF_MEMORY, _CONTEXT_LOST = 0x0505, 0x0507
_READ_FRAMEBUFFER, _ALPHA, _UNSIGNED_BYTE = 0x8CA8, 0x1906, 0x1401

# MuJoCo finds OpenGL's functions when its first context is made, for the whole process.
_upload_lock = threading.Lock()


class ProjectedCamera:
    """A camera, what its projection needs, and room for what is read back.

    Attributes:
        descriptor: The camera.
        near, far: Distance of the clipping planes [m].
        pinhole: (fx, fy, cx, cy) in force once it is in use, in pixels; of an orthographic camera fx and fy are pixels
            per metre.
    """

    def __init__(self, descriptor: CameraDescriptor, projection: Intrinsics, near: float, far: float):
        width, height = descriptor.width, descriptor.height
        self.descriptor = descriptor
        self.near, self.far = near, far
        self.rect = mujoco.MjrRect(0, 0, width, height)
        self.colours = np.empty((height, width, 3), np.uint8)
        self.coverage = np.empty((height, width), np.uint8)
        self.depths = np.empty((height, width), np.float32)
        self.is_orthographic = isinstance(projection, Orthographic)
        self._configured = pinholes_of(projection, descriptor)
        self.pinhole: tuple[float, ...] = ()

    def use(self, setting: CameraSetting | None, env: int) -> None:
        """Project as was set at run time, or else as configured."""
        pinholes = self._configured if setting is None else setting.pinholes
        self.pinhole = tuple(pinholes[env].tolist())

    def aim(self, gl_camera: Any, position: NDArray[np.float64], rotation: NDArray[np.float64]) -> None:
        """Set one of the visualizer's cameras."""
        fx, fy, cx, cy = self.pinhole
        depth = 1.0 if self.is_orthographic else self.near  # where the window through which one sees is measured
        left, right = -depth * cx / fx, depth * (self.descriptor.width - cx) / fx
        bottom, top = -depth * (self.descriptor.height - cy) / fy, depth * cy / fy
        gl_camera.pos[:], gl_camera.forward[:], gl_camera.up[:] = position, -rotation[:, 2], rotation[:, 1]
        gl_camera.frustum_center, gl_camera.frustum_width = 0.5 * (left + right), 0.5 * (right - left)
        gl_camera.frustum_bottom, gl_camera.frustum_top = bottom, top
        gl_camera.frustum_near, gl_camera.frustum_far = self.near, self.far
        gl_camera.orthographic = int(self.is_orthographic)

    def metric(self, raw: NDArray[np.float32]) -> NDArray[np.float64]:
        """Distance along the optical axis [m] of depth buffer values, 1 at the near plane and 0 at the far one.

        In the driver the projection has single precision. It is undone with the numbers that it was made with, which
        is 50 times as exact as with the true ones.
        """
        if self.is_orthographic:
            return self.far - raw.astype(float) * (self.far - self.near)
        near, far = np.float32(self.near), np.float32(self.far)
        half = np.float32(0.5)
        scale = half * (far + near) / (far - near) - half
        shift = far * near / (far - near)
        return float(shift) / (raw.astype(float) + float(scale))

    def euclidean(self, depth: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distance from the camera [m] of points at these depths (H, W) [m]."""
        fx, fy, cx, cy = self.pinhole
        height, width = depth.shape
        right, down = (np.arange(width) + 0.5 - cx) / fx, (np.arange(height)[:, None] + 0.5 - cy) / fy
        spread = 1.0 if self.is_orthographic else depth
        return np.sqrt((right * spread) ** 2 + (down * spread) ** 2 + depth**2)


class GlPainter:
    """Draws one camera at a time. All methods run on the thread that made it.

    Args:
        posed: What is drawn.
        platform: Way to OpenGL; None is what `MUJOCO_GL` says, or the first that works.
        effects: Whether reflections and haze are drawn.

    Attributes:
        platform: The way that is used.
        renderer: What draws, in the driver's own words.

    Raises:
        GlUnavailableError: There is no way to OpenGL.
    """

    def __init__(self, posed: PosedModel, platform: str | None = None, effects: bool = False):
        self._posed = posed
        self._effects = effects
        model = posed.model
        self._has_skybox = bool((model.tex_type == int(mujoco.mjtTexture.mjTEXTURE_SKYBOX)).any())
        self._drawn: Any = self._visualizer_scene(0)
        self._options: Any = mujoco.MjvOption()
        self._options.sitegroup[:] = 0
        self._options.tendongroup[:] = 0
        self._free_camera: Any = mujoco.MjvCamera()
        self._free_camera.type = mujoco.mjtCamera.mjCAMERA_USER
        self._mjr: Any = None
        self._bind_framebuffer: Callable[..., Any]
        self._read_pixels: Callable[..., Any]
        self.renderer = ""
        self._context = open_context(choose_platforms(platform), self._upload)
        self.platform = self._context.platform

    def resize(self, width: int, height: int) -> None:
        """Make room for images up to this size [pixels]."""
        with self._context:
            mujoco.mjr_resizeOffscreen(width, height, self._mjr)
            if (self._mjr.offWidth, self._mjr.offHeight) != (width, height):
                raise RuntimeError(f"OpenGL ({self.renderer}) has no room for images of {width}x{height}")

    def draw(self, camera: ProjectedCamera, frames: Mapping[PlaneKind, NDArray[Any]]) -> None:
        """Draw planes (H, W, C) of a camera in the environment that was posed last.

        Raises:
            ContextIntegrityError: The context is lost.
        """
        descriptor = camera.descriptor
        with self._context:
            self._update(camera)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._mjr)
            if not _COLOURS.issuperset(frames):
                self._draw_geometry(camera, frames)
            if not _COLOURS.isdisjoint(frames):
                self._draw_colours(camera, descriptor.options, frames)
            self._check_errors()

    def close(self) -> None:
        """Free what was uploaded and end the context, also where it is lost."""
        try:
            with self._context:
                self._mjr.free()
        except ContextIntegrityError:
            pass  # what it held went with it
        self._context.close()

    def _upload(self, context: GlContext) -> None:
        """Upload the model, and check that what is drawn can be read back."""
        with _upload_lock:
            self._mjr = mujoco.MjrContext(self._posed.model, mujoco.mjtFontScale.mjFONTSCALE_50)
        self._mjr.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._mjr)
        patch, pixels = mujoco.MjrRect(0, 0, 2, 2), np.zeros((2, 2, 3), np.uint8)
        mujoco.mjr_rectangle(patch, 0.2, 0.4, 0.6, 1.0)
        mujoco.mjr_readPixels(pixels, None, patch, self._mjr)
        if np.abs(pixels - np.array([51.0, 102.0, 153.0])).max() > 1.0:
            self._mjr.free()
            raise OSError("what is drawn cannot be read back")
        self._bind_framebuffer = context.function("glBindFramebuffer", None, c_uint, c_uint)
        self._read_pixels = context.function("glReadPixels", None, c_int, c_int, c_int, c_int, c_uint, c_uint, c_void_p)
        self.renderer = context.renderer

    def _update(self, camera: ProjectedCamera) -> None:
        """Collect what the camera sees, as the visualizer has it."""
        options, groups = camera.descriptor.options, np.zeros(mujoco.mjNGROUP, np.uint8)
        groups[[group for group in options.geom_groups if 0 <= group < mujoco.mjNGROUP]] = 1
        for visible in (self._options.geomgroup, self._options.flexgroup, self._options.skingroup):
            visible[:] = groups
        self._options.flags[mujoco.mjtVisFlag.mjVIS_TEXTURE] = options.textures
        posed = self._posed
        host, env = posed.present
        camera.use(host.camera_settings.get(camera.descriptor.id), env)
        extra = host.extra_geometry if options.extra_geometry else None
        if extra is not None and self._room < sum(extra.capacity):
            self._drawn = self._visualizer_scene(sum(extra.capacity))
        pose = posed.camera_pose(camera.descriptor)
        for eye in self._drawn.camera:
            camera.aim(eye, *pose)
        mujoco.mjv_updateScene(posed.model, posed.data, self._options, None, self._free_camera, _DRAWN, self._drawn)
        if self._drawn.status:
            raise RuntimeError(f"the scene has more to draw than the {self._drawn.maxgeom} parts of the model")
        if extra is not None:
            self._append(extra, env)

    def _visualizer_scene(self, extra_parts: int) -> Any:
        """A scene with room for the model's parts and for this much beside them."""
        model = self._posed.model
        self._room = extra_parts
        drawn = mujoco.MjvScene(model, model.ngeom + model.nflex + model.nskin + extra_parts + 1)
        drawn.flags[_REFLECTION] = self._effects
        return drawn

    def _append(self, extra: PackedGeometry, env: int) -> None:
        """Add an environment's extra geometry to what is drawn: under its own ids, and of no type of object."""
        kinds = len(PRIMITIVES)
        for block in (*range(kinds), *range((env + 1) * kinds, (env + 2) * kinds)):
            for index in range(extra.first[block], extra.first[block + 1]):
                if extra.rgba[index, 3] == 0.0:
                    continue
                part = self._drawn.geoms[self._drawn.ngeom]
                mujoco.mjv_initGeom(
                    part,
                    _GEOM_TYPES[block % kinds],
                    extra.sizes[index].astype(float),
                    extra.positions[index].astype(float),
                    rotation_matrices(extra.quaternions[index]).ravel(),
                    extra.rgba[index],
                )
                part.category = mujoco.mjtCatBit.mjCAT_DECOR
                part.objtype, part.objid = mujoco.mjtObj.mjOBJ_UNKNOWN, extra.ids[index]
                part.segid = self._drawn.ngeom
                self._drawn.ngeom += 1

    def _draw_geometry(self, camera: ProjectedCamera, frames: Mapping[PlaneKind, NDArray[Any]]) -> None:
        """Depth and objects: drawn without smoothing, so that each pixel is what its centre sees."""
        flags = self._drawn.flags
        flags[_SEGMENT] = flags[_ID_COLOUR] = 1
        mujoco.mjr_render(camera.rect, self._drawn, self._mjr)
        flags[_SEGMENT] = flags[_ID_COLOUR] = 0
        wants_objects = PlaneKind.SEGMENTATION in frames
        wants_depth = any(plane in frames for plane in (PlaneKind.DEPTH, PlaneKind.DISTANCE_TO_CAMERA))
        mujoco.mjr_readPixels(
            camera.colours if wants_objects else None,
            camera.depths if wants_depth else None,
            camera.rect,
            self._mjr,
        )
        if wants_depth:
            raw = camera.depths[::-1]
            depth = np.where(raw > 0.0, camera.metric(raw), np.inf)
            if PlaneKind.DEPTH in frames:
                frames[PlaneKind.DEPTH][..., 0] = depth
            if PlaneKind.DISTANCE_TO_CAMERA in frames:
                reached = np.isfinite(depth)
                distance = camera.euclidean(np.where(reached, depth, 0.0))
                frames[PlaneKind.DISTANCE_TO_CAMERA][..., 0] = np.where(reached, distance, np.inf)
        if wants_objects:
            colours = camera.colours[::-1].astype(np.int32)
            frames[PlaneKind.SEGMENTATION][:] = self._objects()[colours @ np.array([1, 1 << 8, 1 << 16], np.int32)]

    def _objects(self) -> NDArray[np.int32]:
        """Object id and type by colour of the segmentation; colour 0 is the background."""
        count = self._drawn.ngeom
        objects = np.full((count + 1, 2), -1, np.int32)
        for part in self._drawn.geoms[:count]:
            if part.segid >= 0:
                objects[part.segid + 1] = part.objid, part.objtype
        return objects

    def _draw_colours(
        self, camera: ProjectedCamera, options: VisualOptions, frames: Mapping[PlaneKind, NDArray[Any]]
    ) -> None:
        flags = self._drawn.flags
        flags[_SHADOW], flags[_SKYBOX], flags[_HAZE] = options.shadows, options.skybox, options.skybox and self._effects
        mujoco.mjr_render(camera.rect, self._drawn, self._mjr)
        mujoco.mjr_readPixels(camera.colours, None, camera.rect, self._mjr)
        colours = camera.colours[::-1]
        has_background = any(options.background) and not (options.skybox and self._has_skybox)
        if has_background or PlaneKind.RGBA in frames:
            covered = self._coverage(camera)
            if has_background:
                # MuJoCo draws on black; the background shows where that is not covered.
                behind = np.round((255.0 - covered[..., None]) * np.array(options.background))
                colours = np.minimum(colours + behind, 255.0).astype(np.uint8)
            if PlaneKind.RGBA in frames:
                frames[PlaneKind.RGBA][..., :3], frames[PlaneKind.RGBA][..., 3] = colours, covered
        if PlaneKind.RGB in frames:
            frames[PlaneKind.RGB][:] = colours

    def _coverage(self, camera: ProjectedCamera) -> NDArray[np.uint8]:
        """How much of each pixel (H, W) of the image that was read last is covered, from 0 to 255."""
        self._bind_framebuffer(_READ_FRAMEBUFFER, self._mjr.offFBO_r or self._mjr.offFBO)
        height, width = camera.coverage.shape
        self._read_pixels(0, 0, width, height, _ALPHA, _UNSIGNED_BYTE, camera.coverage.ctypes.data)
        return camera.coverage[::-1]

    def _check_errors(self) -> None:
        code = mujoco.mjr_getError()
        if code in (_OUT_OF_MEMORY, _CONTEXT_LOST):
            raise ContextIntegrityError(f"OpenGL ({self.renderer}) reports error {code:#x}: the context is lost")
        if code:
            raise RuntimeError(f"OpenGL ({self.renderer}) reports error {code:#x}")
