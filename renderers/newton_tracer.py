"""NewtonTracer: Newton's camera sensor on a model built from the scene, drawing into frames by our conventions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import warp as wp
from newton.sensors import SensorCamera

from scene_data.scene import SceneDescription

from . import newton_kernels as kernels
from .newton_stage import GEOM, NewtonStage
from .render_core.camera import CameraDescriptor, Orthographic
from .render_core.camera_tables import CameraTables, pinhole_of
from .render_core.layout import PlaneKind
from .render_core.snapshots import RenderSnapshot

__all__ = ["NewtonTracer"]

# Beyond what anybody sees: each far plane of its own would compile a kernel of its own.
_MAX_DISTANCE = 1.0e6

_CLEAR = SensorCamera.ClearData(clear_depth=0.0)


@dataclass(frozen=True)
class _Source:
    """Where a plane comes from: the sensor's output and the type of its pixels."""

    output: str
    dtype: Any


_DEPTH = _Source("forward_depth_image", wp.float32)
_SOURCES = {
    PlaneKind.RGB: _Source("color_image", wp.uint32),
    PlaneKind.RGBA: _Source("color_image", wp.uint32),
    PlaneKind.ALBEDO: _Source("albedo_image", wp.uint32),
    PlaneKind.RGB_HDR: _Source("hdr_color_image", wp.vec3f),
    PlaneKind.NORMALS: _Source("normal_image", wp.vec3f),
    PlaneKind.SEGMENTATION: _Source("shape_index_image", wp.uint32),
    PlaneKind.DEPTH: _DEPTH,
    PlaneKind.DISTANCE_TO_CAMERA: _DEPTH,
}


class _View:
    """One camera: its place in the tables, its rays, and the images that the sensor draws into."""

    def __init__(self, index: int, camera: CameraDescriptor, projection: Any, device: wp.Device):
        self.index = index
        self.camera = camera
        self.is_orthographic = isinstance(projection, Orthographic)
        self.configured = pinhole_of(projection, camera)
        self._pinhole: tuple[float, ...] = ()
        self.poses = wp.zeros(camera.num_envs, dtype=wp.transform, device=device)
        self.rays = wp.empty((camera.height, camera.width, 1, 2), dtype=wp.vec3, device=device)
        self.images = {
            source.output: wp.empty((camera.num_envs, camera.height, camera.width), dtype=source.dtype, device=device)
            for source in {_DEPTH, *(_SOURCES[plane] for plane in camera.planes)}
        }
        self.config = SensorCamera.RenderConfig(
            enable_textures=camera.options.textures,
            enable_shadows=camera.options.shadows,
            enable_particles=False,
            max_distance=_MAX_DISTANCE,
        )

    def pinholes(self, snapshot: RenderSnapshot) -> list[tuple[float, ...]]:
        """(fx, fy, cx, cy) in force: one for all environments, or one for each."""
        setting = snapshot.camera_settings.get(self.camera.id)
        if setting is None:
            return [self.configured]
        each = [tuple(pinhole) for pinhole in setting.pinholes.tolist()]
        return each if len(set(each)) > 1 else each[:1]

    def cast(self, pinhole: tuple[float, ...]) -> None:
        """Have rays for this projection."""
        if pinhole != self._pinhole:
            self._pinhole = pinhole
            inputs = [wp.vec4(*pinhole), self.is_orthographic]
            wp.launch(kernels.write_rays, self.rays.shape[:2], inputs, [self.rays], device=self.rays.device)


class NewtonTracer:
    """Draws any of a configuration's cameras, in all environments together.

    Args:
        scene: The scene.
        cameras: The cameras.
        device: Where everything is.

    Attributes:
        tables: Where the cameras are.
        diverged: 1 for each environment that the last `draw` blanked (num_envs,) int32.
    """

    def __init__(self, scene: SceneDescription, cameras: tuple[CameraDescriptor, ...], device: wp.Device):
        self.tables = CameraTables(scene, cameras, device)
        self.diverged = wp.zeros(scene.num_envs, dtype=wp.int32, device=device)
        self._scene = scene
        self._device = device
        self._environments = wp.array(range(scene.num_envs), dtype=wp.int32, device=device)
        self._none = tuple(wp.zeros(0, dtype=dtype, device=device) for dtype in (wp.vec3, wp.mat33))
        self._stages: dict[tuple[int, ...], NewtonStage] = {}
        for camera in cameras:
            groups = camera.options.geom_groups
            if groups not in self._stages:
                self._stages[groups] = NewtonStage(scene, groups, device)
        self._views = {
            camera.id: _View(index, camera, projection, device)
            for index, (camera, projection) in enumerate(zip(cameras, self.tables.projections, strict=True))
        }
        for view in self._views.values():  # compile now rather than in the first turn
            self._trace(view, view.images, [view.configured])

    def draw(self, snapshot: RenderSnapshot, frames: Mapping[int, Mapping[PlaneKind, wp.array]]) -> None:
        """Draw one state.

        Args:
            snapshot: The state.
            frames: Where the planes (N, H, W, C) of each camera go, by its id.
        """
        snapshot.begin_read()
        self.tables.apply(snapshot.camera_settings)
        self._find_diverged(snapshot)
        placed = set()
        for camera_id, planes in frames.items():
            view = self._views[camera_id]
            groups = view.camera.options.geom_groups
            if groups not in placed:
                self._stages[groups].dress(snapshot.appearance)
                self._stages[groups].place(snapshot, self.diverged)
                placed.add(groups)
            self._aim(view, snapshot)
            pinholes = view.pinholes(snapshot)
            sources = {_DEPTH.output, *(_SOURCES[plane].output for plane in planes)}
            self._trace(view, {name: view.images[name] for name in sources}, pinholes)
            for plane, frame in planes.items():
                self._resolve(view, plane, frame)
        snapshot.end_read()

    def _find_diverged(self, snapshot: RenderSnapshot) -> None:
        self.diverged.zero_()
        bodies, cameras, points = snapshot.transforms, snapshot.cameras, snapshot.points
        vectors, matrices = self._none
        for positions, rotations in (
            (bodies.positions, bodies.orientations),
            (cameras.positions, cameras.orientations) if cameras else (vectors, matrices),
            (vectors if points is None else points, matrices),
        ):
            count = max(positions.shape[0], rotations.shape[0]) // snapshot.num_envs
            if count:
                dim, inputs = (snapshot.num_envs, count), [positions, rotations]
                wp.launch(kernels.find_diverged, dim, inputs, [self.diverged], device=self._device)

    def _aim(self, view: _View, snapshot: RenderSnapshot) -> None:
        bodies, cameras = snapshot.transforms, snapshot.cameras
        vectors, matrices = self._none
        inputs = [
            view.index,
            len(self._scene.bodies),
            len(self._scene.cameras),
            self.diverged,
            bodies.positions,
            bodies.orientations,
            cameras.positions if cameras else vectors,
            cameras.orientations if cameras else matrices,
            *self.tables.inputs(),
        ]
        wp.launch(kernels.aim_camera, snapshot.num_envs, inputs, [view.poses], device=self._device)

    def _trace(self, view: _View, images: Mapping[str, wp.array], pinholes: list[tuple[float, ...]]) -> None:
        """Let the sensor draw: all environments together, or one by one where each projects in its own way."""
        stage = self._stages[view.camera.options.geom_groups]
        for env, pinhole in enumerate(pinholes):
            part = slice(None) if len(pinholes) == 1 else slice(env, env + 1)
            view.cast(pinhole)
            stage.sensor.update(
                stage.state,
                view.poses[part],
                view.rays,
                **{name: image[part] for name, image in images.items()},
                world_indices=self._environments[part],
                clear_data=_CLEAR,
                render_config=view.config,
                sync_deformables=False,
            )

    def _resolve(self, view: _View, plane: PlaneKind, frame: wp.array) -> None:
        """Write a plane by our conventions."""
        camera, device = view.camera, self._device
        pixels = camera.height * camera.width
        lanes = 1 if device.is_cpu else pixels
        background = [round(255 * channel) for channel in camera.options.background]

        def image(source: _Source) -> wp.array:
            return view.images[source.output].reshape((camera.num_envs, pixels))

        drawn, depth = image(_SOURCES[plane]), image(_DEPTH)
        common = [depth, self._scene.far, self.diverged, lanes]
        match plane:
            case PlaneKind.DEPTH:
                kernel, dtype, inputs = kernels.resolve_depth, wp.float32, common
            case PlaneKind.DISTANCE_TO_CAMERA:
                kernel, dtype = kernels.resolve_distance, wp.float32
                inputs = [*common, self.tables.intrinsic, view.index, view.is_orthographic, camera.width, camera.height]
            case PlaneKind.RGB:
                kernel, dtype, inputs = kernels.resolve_colours, wp.vec3ub, [drawn, *common, wp.vec3ub(*background)]
            case PlaneKind.ALBEDO:
                kernel, dtype, inputs = kernels.resolve_colours, wp.vec3ub, [drawn, *common, wp.vec3ub()]
            case PlaneKind.RGBA:
                kernel, dtype = kernels.resolve_rgba, wp.uint32
                red, green, blue = background
                inputs = [drawn, *common, red | green << 8 | blue << 16]
            case PlaneKind.NORMALS:
                kernel, dtype, inputs = kernels.resolve_vectors, wp.vec3, [drawn, *common, wp.vec3()]
            case PlaneKind.RGB_HDR:
                kernel, dtype = kernels.resolve_vectors, wp.vec3
                inputs = [drawn, *common, wp.vec3(*camera.options.background)]
            case PlaneKind.SEGMENTATION:
                stage = self._stages[camera.options.geom_groups]
                kernel, dtype = kernels.resolve_objects, wp.vec2i
                inputs = [drawn, *common, stage.shape_object, GEOM, stage.flex]
            case _:
                raise ValueError(f"Newton's camera makes no {plane.value!r}")
        target = wp.array(ptr=frame.ptr, dtype=dtype, shape=(camera.num_envs, pixels), device=device)
        wp.launch(kernel, (camera.num_envs, lanes), inputs, [target], device=device)
