"""NewtonTracer: Newton's camera sensor on a model built from the scene, drawing into frames by our conventions.

The sensor draws views and rays of our choice, so the images of a camera are drawn in tiles, some images or some rows of
one at a time, which threads share on the CPU. What it draws passes through a scratch of the size of a tile, one for
each thread.
"""

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import warp as wp
from newton.sensors import SensorCamera
from numpy.typing import NDArray

from scene_data.scene import SceneDescription

from . import newton_kernels as kernels
from .newton_stage import GEOM, NewtonStage
from .render_core.camera import CameraDescriptor, Orthographic
from .render_core.camera_tables import NO_POSES, CameraTables, pinholes_of
from .render_core.crew import Crew, Job
from .render_core.layout import PlaneKind
from .render_core.snapshots import RenderSnapshot
from .render_core.tiles import Tile, image_tiles

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

_PIXEL = {
    PlaneKind.RGB: wp.vec3ub,
    PlaneKind.RGBA: wp.uint32,
    PlaneKind.ALBEDO: wp.vec3ub,
    PlaneKind.RGB_HDR: wp.vec3,
    PlaneKind.NORMALS: wp.vec3,
    PlaneKind.SEGMENTATION: wp.vec2i,
    PlaneKind.DEPTH: wp.float32,
    PlaneKind.DISTANCE_TO_CAMERA: wp.float32,
}

_SHADED = frozenset({PlaneKind.RGB, PlaneKind.RGBA, PlaneKind.RGB_HDR})


@dataclass(frozen=True, eq=False)
class _Environments:
    """What a tracer knows of each environment.

    Attributes:
        indices: Their numbers (N,) int32.
        diverged: 1 for each that is to be blank (N,) int32.
        intrinsic: How each camera projects in each, as in `CameraTables` (N, C).
    """

    indices: wp.array
    diverged: wp.array
    intrinsic: wp.array


class _Piece:
    """A tile of one camera's images, and what belongs to it of arrays that stay: cut out once, and not in each turn."""

    def __init__(self, tile: Tile, view: "_View", environments: _Environments):
        self.tile = tile
        self.size = tile.envs.stop - tile.envs.start, tile.rows.stop - tile.rows.start, view.camera.width
        self.pixels = slice(tile.rows.start * view.camera.width, tile.rows.stop * view.camera.width)
        self.poses = view.poses[tile.envs]
        self.rays = view.rays[tile.rows]
        self.environments = environments.indices[tile.envs]
        self.diverged = environments.diverged[tile.envs]
        self.intrinsic = environments.intrinsic[tile.envs]


class _View:
    """One camera: its place in the tables, its rays, and how its images are cut."""

    def __init__(
        self, index: int, camera: CameraDescriptor, projection: Any, environments: _Environments, threads: int
    ):
        device = environments.indices.device
        self.index = index
        self.camera = camera
        self.is_orthographic = isinstance(projection, Orthographic)
        self.configured = _distinct(pinholes_of(projection, camera))
        self._pinhole: tuple[float, ...] = ()
        self._environments = environments
        self.poses = wp.zeros(camera.num_envs, dtype=wp.transform, device=device)
        self.rays = wp.empty((camera.height, camera.width, 1, 2), dtype=wp.vec3, device=device)
        shaded = not _SHADED.isdisjoint(camera.planes)
        size = camera.num_envs, camera.height, camera.width
        tiles = image_tiles(*size, threads, is_cpu=device.is_cpu, shaded=shaded)
        self.pieces = [_Piece(tile, self, environments) for tile in tiles]
        self.config = SensorCamera.RenderConfig(
            enable_textures=camera.options.textures,
            enable_shadows=camera.options.shadows,
            enable_particles=False,
            max_distance=_MAX_DISTANCE,
        )

    @cached_property
    def images(self) -> list[_Piece]:
        """Whole images, one for each environment."""
        whole = slice(0, self.camera.height)
        tiles = [Tile(slice(env, env + 1), whole) for env in range(self.camera.num_envs)]
        return [_Piece(tile, self, self._environments) for tile in tiles]

    @cached_property
    def first_row(self) -> _Piece:
        """As little as can be drawn."""
        return _Piece(Tile(slice(0, 1), slice(0, 1)), self, self._environments)

    def pinholes(self, snapshot: RenderSnapshot) -> list[tuple[float, ...]]:
        """(fx, fy, cx, cy) in force: one for all environments, or one for each."""
        setting = snapshot.camera_settings.get(self.camera.id)
        return self.configured if setting is None else _distinct(setting.pinholes)

    def aim(self, pinhole: tuple[float, ...]) -> None:
        """Have rays for this projection, in all environments."""
        if pinhole != self._pinhole:
            self._pinhole = pinhole
            self.cast(pinhole, self.rays)

    def cast(self, pinhole: tuple[float, ...], rays: wp.array) -> None:
        """Write rays for this projection."""
        inputs = [wp.vec4(*pinhole), self.is_orthographic]
        wp.launch(kernels.write_rays, rays.shape[:2], inputs, [rays], device=rays.device)


def _distinct(pinholes: NDArray[np.float64]) -> list[tuple[float, ...]]:
    """Pinholes of all environments (N, 4), or the one that they share."""
    shared = bool((pinholes == pinholes[0]).all())
    return [tuple(pinhole) for pinhole in (pinholes[:1] if shared else pinholes).tolist()]


class _Scratch:
    """Memory of one thread, which grows to what is asked of it and then stays."""

    def __init__(self, device: wp.Device):
        self._device = device
        self._arrays: dict[str, wp.array] = {}
        self._parts: dict[tuple[str, tuple[int, ...]], wp.array] = {}

    def take(self, name: str, dtype: Any, shape: tuple[int, ...]) -> wp.array:
        """An array of any content. Arrays of one name are the same memory."""
        part = self._parts.get((name, shape))
        if part is None:
            part = self._parts[name, shape] = self._array(name, dtype, math.prod(shape)).reshape(shape)
        return part

    def _array(self, name: str, dtype: Any, count: int) -> wp.array:
        array = self._arrays.get(name)
        if array is None or array.size < count:
            array = self._arrays[name] = wp.empty(count, dtype=dtype, device=self._device)
            self._parts = {key: part for key, part in self._parts.items() if key[0] != name}
        return array[:count]


class NewtonTracer:
    """Draws any of a configuration's cameras, in all environments.

    Args:
        scene: The scene.
        cameras: The cameras.
        device: Where everything is.
        threads: Threads to draw on, on the CPU.

    Attributes:
        tables: Where the cameras are.
        diverged: 1 for each environment that the last `draw` blanked (num_envs,) int32.
    """

    def __init__(self, scene: SceneDescription, cameras: tuple[CameraDescriptor, ...], device: wp.Device, threads: int):
        self.tables = CameraTables(scene, cameras, device)
        self.diverged = wp.zeros(scene.num_envs, dtype=wp.int32, device=device)
        self._scene = scene
        self._device = device
        self._stages: dict[tuple[int, ...], NewtonStage] = {}
        for camera in cameras:
            groups = camera.options.geom_groups
            if groups not in self._stages:
                self._stages[groups] = NewtonStage(scene, groups, device)
        self._crew = Crew(threads if device.is_cpu else 1)
        self._scratch = [_Scratch(device) for _ in range(self._crew.size)]
        self._compiled: WeakKeyDictionary[SensorCamera, set[tuple[int, frozenset[_Source]]]] = WeakKeyDictionary()
        indices = wp.array(range(scene.num_envs), dtype=wp.int32, device=device)
        environments = _Environments(indices, self.diverged, self.tables.intrinsic)
        self._views = {
            camera.id: _View(index, camera, projection, environments, self._crew.size)
            for index, (camera, projection) in enumerate(zip(cameras, self.tables.projections, strict=True))
        }
        try:
            for view in self._views.values():  # now rather than in the first turn
                self._compile(view, _sources(view.camera.planes))
        except BaseException:
            self.close()
            raise

    def draw(self, snapshot: RenderSnapshot, frames: Mapping[int, Mapping[PlaneKind, wp.array]]) -> None:
        """Draw one state.

        Args:
            snapshot: The state.
            frames: Where the planes (N, H, W, C) of each camera go, by its id.
        """
        snapshot.begin_read()
        self.tables.apply(snapshot.camera_settings)
        self.diverged.zero_()
        views = [self._views[camera_id] for camera_id in frames]
        # All before the first image, which has to be blank wherever any of this meets what is not finite.
        for groups in {view.camera.options.geom_groups for view in views}:
            self._stages[groups].dress(snapshot.appearance)
            self._stages[groups].place(snapshot, self.diverged)
        for view in views:
            self._aim(view, snapshot)
        for view, planes in zip(views, frames.values(), strict=True):
            self._compile(view, _sources(planes))
            # One camera after another: the sensor remembers what it was asked for last.
            self._draw_all(view, view.pinholes(snapshot), planes)
        snapshot.end_read()

    def close(self) -> None:
        """End the threads."""
        self._crew.close()

    def _aim(self, view: _View, snapshot: RenderSnapshot) -> None:
        inputs = [
            view.index,
            len(self._scene.bodies),
            len(self._scene.cameras),
            snapshot.transforms,
            snapshot.cameras or NO_POSES,
            self.tables.places,
        ]
        wp.launch(kernels.aim_camera, snapshot.num_envs, inputs, [view.poses, self.diverged], device=self._device)

    def _compile(self, view: _View, sources: frozenset[_Source]) -> None:
        """Have the kernel for these outputs, which Warp must not compile on several threads at once."""
        stage = self._stages[view.camera.options.geom_groups]
        compiled = self._compiled.setdefault(stage.sensor, set())
        if (view.index, sources) not in compiled:
            view.aim(view.configured[0])
            self._trace(view, sources, view.first_row, view.first_row.rays, self._scratch[0])
            compiled.add((view.index, sources))

    def _draw_all(self, view: _View, pinholes: list[tuple[float, ...]], planes: Mapping[PlaneKind, wp.array]) -> None:
        """Draw all images of a camera: one by one, with rays of its own, where each environment projects in its way."""
        frames = {plane: _by_pixel(plane, frame) for plane, frame in planes.items()}
        is_shared = len(pinholes) == 1
        pieces = view.pieces if is_shared else view.images
        if is_shared:
            view.aim(pinholes[0])
        sources, own = _sources(planes), [None] * len(pieces) if is_shared else pinholes
        jobs: list[Job] = [
            lambda member, piece=piece, pinhole=pinhole: self._draw(view, frames, sources, piece, pinhole, member)
            for piece, pinhole in zip(pieces, own, strict=True)
        ]
        self._crew.run(jobs, [piece.tile.effort for piece in pieces])

    def _draw(
        self,
        view: _View,
        frames: Mapping[PlaneKind, wp.array],
        sources: Set[_Source],
        piece: _Piece,
        pinhole: tuple[float, ...] | None,
        member: int,
    ) -> None:
        """Draw a piece, with the rays that all environments share or with rays of its own."""
        scratch, rays = self._scratch[member], piece.rays
        if pinhole is not None:
            rays = scratch.take("rays", wp.vec3, rays.shape)
            view.cast(pinhole, rays)
        self._trace(view, sources, piece, rays, scratch)
        for plane, frame in frames.items():
            self._resolve(view, plane, piece, scratch, frame[piece.tile.envs, piece.pixels])

    def _trace(self, view: _View, sources: Set[_Source], piece: _Piece, rays: wp.array, scratch: _Scratch) -> None:
        """Let the sensor draw these outputs of a piece into the scratch."""
        stage = self._stages[view.camera.options.geom_groups]
        stage.sensor.update(
            stage.state,
            piece.poses,
            rays,
            **{source.output: scratch.take(source.output, source.dtype, piece.size) for source in sources},
            world_indices=piece.environments,
            clear_data=_CLEAR,
            render_config=view.config,
            sync_deformables=False,
        )

    def _resolve(self, view: _View, plane: PlaneKind, piece: _Piece, scratch: _Scratch, frame: wp.array) -> None:
        """Write a plane of a piece by our conventions."""
        camera = view.camera
        lanes = 1 if self._device.is_cpu else frame.shape[1]
        background = [round(255 * channel) for channel in camera.options.background]
        sources = _SOURCES[plane], _DEPTH
        drawn, depth = (scratch.take(source.output, source.dtype, frame.shape) for source in sources)
        common = [depth, self._scene.far, piece.diverged, lanes]
        match plane:
            case PlaneKind.DEPTH:
                kernel, inputs = kernels.resolve_depth, common
            case PlaneKind.DISTANCE_TO_CAMERA:
                lens = piece.intrinsic, view.index, view.is_orthographic, camera.width, camera.height
                kernel, inputs = kernels.resolve_distance, [*common, piece.tile.rows.start, *lens]
            case PlaneKind.RGB:
                kernel, inputs = kernels.resolve_colours, [drawn, *common, wp.vec3ub(*background)]
            case PlaneKind.ALBEDO:
                kernel, inputs = kernels.resolve_colours, [drawn, *common, wp.vec3ub()]
            case PlaneKind.RGBA:
                red, green, blue = background
                kernel, inputs = kernels.resolve_rgba, [drawn, *common, red | green << 8 | blue << 16]
            case PlaneKind.NORMALS:
                kernel, inputs = kernels.resolve_vectors, [drawn, *common, wp.vec3()]
            case PlaneKind.RGB_HDR:
                kernel, inputs = kernels.resolve_vectors, [drawn, *common, wp.vec3(*camera.options.background)]
            case PlaneKind.SEGMENTATION:
                stage = self._stages[camera.options.geom_groups]
                kernel, inputs = kernels.resolve_objects, [drawn, *common, stage.shape_object, GEOM, stage.flex]
            case _:
                raise ValueError(f"Newton's camera makes no {plane.value!r}")
        wp.launch(kernel, (frame.shape[0], lanes), inputs, [frame], device=self._device)


def _sources(planes: Iterable[PlaneKind]) -> frozenset[_Source]:
    """What the sensor has to draw for these planes."""
    return frozenset({_DEPTH, *(_SOURCES[plane] for plane in planes)})


def _by_pixel(plane: PlaneKind, frame: wp.array) -> wp.array:
    """The same memory as (environment, pixel) in the type that the plane is written in."""
    shape = frame.shape[0], frame.shape[1] * frame.shape[2]
    return wp.array(ptr=frame.ptr, dtype=_PIXEL[plane], shape=shape, device=frame.device)
