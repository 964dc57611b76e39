"""NewtonTracer: Newton's camera sensor on a model built from the scene, drawing into frames by our conventions.

The sensor draws views and rays of our choice, so the images of a camera are drawn in tiles, some images or some rows of
one at a time, which threads share on the CPU. What it draws passes through a scratch of the size of a tile, one for
each thread.
"""

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import warp as wp
from newton.sensors import SensorCamera

from scene_data.launches import KeptLaunch
from scene_data.scene import SceneDescription

from . import newton_kernels as kernels
from .newton_planes import Images, Source, keep_resolve, sources_of
from .newton_sensor import kept_update
from .newton_stage import NewtonStage
from .newton_views import Piece, TracedEnvironments, View
from .render_core.camera import CameraDescriptor
from .render_core.camera_tables import NO_POSES, CameraTables
from .render_core.crew import Crew, Job
from .render_core.layout import PlaneKind
from .render_core.snapshots import RenderSnapshot

__all__ = ["NewtonTracer"]

_CLEAR = SensorCamera.ClearData(clear_depth=0.0)
_MOST_RESOLVES = 64


@dataclass(frozen=True)
class _Drawing:
    """How one thread draws a piece.

    Attributes:
        update: Has the sensor draw it.
        images: What that writes, as (environment, row, column).
        resolves: What makes planes of these, by the plane and the address of its frame.
    """

    update: Callable[[], None]
    images: Images
    resolves: dict[tuple[PlaneKind, int], wp.Launch] = field(default_factory=dict)


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

    def images(self, sources: Set[Source], piece: Piece) -> Images:
        """What the sensor draws a piece into, as (environment, row, column)."""
        return {source: self.take(source.output, source.dtype, piece.size) for source in sources}

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
        self._counts = len(scene.bodies), len(scene.cameras)
        self._aim_camera = KeptLaunch(kernels.aim_camera, device)
        self._stages: dict[tuple[int, ...], NewtonStage] = {}
        for camera in cameras:
            groups = camera.options.geom_groups
            if groups not in self._stages:
                self._stages[groups] = NewtonStage(scene, groups, device)
        self._crew = Crew(threads if device.is_cpu else 1)
        self._scratch = [_Scratch(device) for _ in range(self._crew.size)]
        indices = wp.array(range(scene.num_envs), dtype=wp.int32, device=device)
        environments = TracedEnvironments(indices, self.diverged, self.tables.intrinsic)
        self._views = {
            camera.id: View(index, camera, projection, environments, self._crew.size)
            for index, (camera, projection) in enumerate(zip(cameras, self.tables.projections, strict=True))
        }
        try:
            # Now rather than in the first turn, and the largest first: the others fit into its scratch.
            for view in sorted(self._views.values(), key=View.largest_piece, reverse=True):
                self._drawings(view, sources_of(view.camera.planes))
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
            # One camera after another: the sensor remembers what it was asked for last.
            self._draw_all(view, view.pinholes(snapshot), planes)
        snapshot.end_read()

    def close(self) -> None:
        """End the threads."""
        self._crew.close()

    def _aim(self, view: View, snapshot: RenderSnapshot) -> None:
        poses = snapshot.transforms, snapshot.cameras or NO_POSES
        inputs = [view.index, *self._counts, *poses, self.tables.places]
        self._aim_camera.launch(snapshot.num_envs, inputs, [view.poses, self.diverged])

    def _drawings(self, view: View, sources: frozenset[Source]) -> list[list[_Drawing]]:
        """How each piece is drawn on each thread with the rays that all environments share.

        Made before any thread begins: Warp must not compile on several at once.
        """
        stage = self._stages[view.camera.options.geom_groups]
        kept = stage.drawings
        if (view.index, sources) not in kept:
            kept[view.index, sources] = [
                [self._keep_drawing(view, sources, piece, scratch) for scratch in self._scratch]
                for piece in view.pieces
            ]
        return kept[view.index, sources]

    def _keep_drawing(self, view: View, sources: Set[Source], piece: Piece, scratch: _Scratch) -> _Drawing:
        images = scratch.images(sources, piece)
        return _Drawing(kept_update(*self._request(view, piece, piece.rays, images)), images)

    def _request(self, view: View, piece: Piece, rays: wp.array, images: Images) -> tuple[SensorCamera, dict[str, Any]]:
        """The sensor, and what it is told in order to draw a piece."""
        stage = self._stages[view.camera.options.geom_groups]
        return stage.sensor, {
            "state": stage.state,
            "camera_transforms": piece.poses,
            "camera_rays": rays,
            "world_indices": piece.environments,
            "clear_data": _CLEAR,
            "render_config": view.config,
            "sync_deformables": False,
            **{source.output: image for source, image in images.items()},
        }

    def _draw_all(self, view: View, pinholes: list[tuple[float, ...]], planes: Mapping[PlaneKind, wp.array]) -> None:
        """Draw all images of a camera: one by one, with rays of its own, where each environment projects in its way."""
        sources = sources_of(planes)
        drawings = self._drawings(view, sources)
        jobs: list[Job]
        if len(pinholes) == 1:
            view.aim(pinholes[0])
            pieces = view.pieces
            jobs = [
                lambda member, piece=piece, drawn_by=drawn_by: self._draw(view, planes, piece, drawn_by[member])
                for piece, drawn_by in zip(pieces, drawings, strict=True)
            ]
        else:
            pieces = view.images
            jobs = [
                lambda member, piece=piece, pinhole=pinhole: self._draw_through(
                    pinhole, view, planes, sources, piece, self._scratch[member]
                )
                for piece, pinhole in zip(pieces, pinholes, strict=True)
            ]
        self._crew.run(jobs, [piece.tile.effort for piece in pieces])

    def _draw_through(
        self,
        pinhole: tuple[float, ...],
        view: View,
        frames: Mapping[PlaneKind, wp.array],
        sources: Set[Source],
        piece: Piece,
        scratch: _Scratch,
    ) -> None:
        """Draw a piece with rays of its own."""
        rays, images = scratch.take("rays", wp.vec3, piece.rays.shape), scratch.images(sources, piece)
        view.cast(pinhole, rays)
        sensor, request = self._request(view, piece, rays, images)
        self._draw(view, frames, piece, _Drawing(lambda: sensor.update(**request), images))

    def _draw(self, view: View, frames: Mapping[PlaneKind, wp.array], piece: Piece, drawing: _Drawing) -> None:
        drawing.update()
        resolves = drawing.resolves
        for plane, frame in frames.items():
            # A frame is a place in the store, and there are not many.
            resolve = resolves.get((plane, frame.ptr))
            if resolve is None:
                if len(resolves) >= _MOST_RESOLVES:
                    resolves.clear()
                stage, far = self._stages[view.camera.options.geom_groups], self._scene.far
                resolve = keep_resolve(view, stage, far, plane, piece, drawing.images, frame)
                resolves[plane, frame.ptr] = resolve
            resolve.launch()
