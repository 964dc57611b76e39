"""Drawing one turn with MuJoCo Warp's ray tracer: the environments of a scene in shards, their images in tiles.

A kernel launch on the CPU uses one core and lets go of Python's lock, so a crew of threads shares a turn. Shards are
some environments each, with poses and bounding volumes of their own, which are brought up to date first. Then tiles are
drawn: some rows of one camera's images, in all environments of a shard. Shards share the model's meshes, textures and
compiled kernels. On CUDA there is one shard, drawn on the calling thread's stream.

The tracer draws straight into the frames, where their pixels are as large as its own. Only colours without alpha pass
through a scratch of the size of a tile, one for each thread: what is held for an environment is its frames.
"""

import copy
import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial

import mujoco_warp as mjw
import warp as wp

from . import mujoco_warp_kernels as kernels
from .mujoco_warp_extra import DeviceGeometry
from .mujoco_warp_scene import GeometryBounds, ShardScene, TracerModel, on_device
from .mujoco_warp_views import CameraRig, Look, Shot, ShotTables
from .render_core.crew import Crew, Effort
from .render_core.layout import PlaneKind
from .render_core.snapshots import RenderSnapshot
from .render_core.tiles import rays_per_tile, row_bands

__all__ = ["ShardedTracer"]

# Combinations of a camera, due planes and a look that stay ready to draw. Few occur in one run.
_MAX_VIEWS = 32

# Building compiles kernels, which Warp does not do from several threads at once.
_build_lock = threading.Lock()

_PIXEL = {
    PlaneKind.RGB: wp.vec3ub,
    PlaneKind.RGBA: wp.uint32,
    PlaneKind.DEPTH: wp.float32,
    PlaneKind.DISTANCE_TO_CAMERA: wp.float32,
    PlaneKind.SEGMENTATION: wp.vec2i,
}

# What others are made of is resolved after them: words are unpacked to RGB, and depth becomes a distance.
_RESOLVED_LAST = (PlaneKind.RGBA, PlaneKind.DEPTH)

_Planes = Mapping[PlaneKind, wp.array]


@dataclass(frozen=True)
class _Tile:
    """Some rows of a camera's images in the environments of a shard, and what the tracer needs to draw them."""

    shard: "_Shard"
    rows: slice
    context: mjw.RenderContext
    effort: Effort = field(default_factory=Effort)


@dataclass(frozen=True)
class _View:
    """An image that turns ask for, ready to be drawn."""

    look: Look
    shot: Shot
    tables: ShotTables
    tiles: tuple[_Tile, ...]


class ShardedTracer:
    """Draws any of a rig's cameras, in all environments.

    Args:
        tracer: The model.
        rig: The cameras.
        num_envs: Number of environments.
        threads: Threads to draw on, on the CPU.

    Attributes:
        diverged: 1 for each environment that the last `draw` blanked (num_envs,) int32.
    """

    def __init__(self, tracer: TracerModel, rig: CameraRig, num_envs: int, threads: int):
        self.tracer = tracer
        self.rig = rig
        self.diverged = wp.zeros(num_envs, dtype=wp.int32, device=tracer.device)
        self._num_envs = num_envs
        self._crew = Crew(threads if tracer.device.is_cpu else 1)
        count = min(self._crew.size, num_envs)
        ends = [num_envs * shard // count for shard in range(count + 1)]
        self._shards = [
            _Shard(ShardScene(tracer, rig, first, self.diverged[first:end])) for first, end in itertools.pairwise(ends)
        ]
        self._reserved: tuple[int, ...] = ()
        self._programs: dict[Look, mjw.RenderContext] = {}
        self._views: OrderedDict[tuple[Look, Shot], _View] = OrderedDict()
        self._unused = tuple(
            wp.empty((1, 1), dtype, device=tracer.device) for dtype in (wp.uint32, wp.float32, wp.vec2i)
        )
        self._scratch = [self._unused[0].flatten()] * self._crew.size
        try:
            with _build_lock:
                for shot in rig.shots():
                    self._create_view(rig.look(shot, tracer, extra_geometry=False), shot)
        except BaseException:
            self.close()
            raise

    @property
    def shard_count(self) -> int:
        """Number of shards."""
        return len(self._shards)

    def draw(self, snapshot: RenderSnapshot, frames: Mapping[Shot, _Planes]) -> None:
        """Draw one state.

        Args:
            snapshot: A state of this scene.
            frames: Where the planes (N, H, W, C) of each shot go.
        """
        self.rig.apply(snapshot.camera_settings)
        extra = self._upload_extra(snapshot)
        views = [self._view(self.rig.look(shot, self.tracer, extra is not None), shot) for shot in frames]
        drawn = {view.look.drawn for view in views}
        tiles = [
            partial(self._draw_tile, view, tile, planes)
            for view, planes in zip(views, [_by_pixel(planes) for planes in frames.values()], strict=True)
            for tile in view.tiles
        ]
        snapshot.begin_read()
        for shard in self._shards:
            shard.scene.dress(snapshot)
            shard.placed.clear()
        with on_device(self.tracer.device):
            self._crew.run(
                tiles,
                [tile.effort for view in views for tile in view.tiles],
                first=[partial(shard.place, drawn, snapshot, extra) for shard in self._shards],
            )
        snapshot.end_read()

    def close(self) -> None:
        """End the threads."""
        self._crew.close()

    def _upload_extra(self, snapshot: RenderSnapshot) -> DeviceGeometry | None:
        """The turn's extra geometry on the device, with slots for it."""
        extra = snapshot.extra_geometry
        if extra is None:
            return None
        if self._reserved != extra.capacity:
            self.tracer.reserve(extra.capacity)
            for shard in self._shards:
                shard.reserve()
            for look in [look for look in self._programs if look.extra_geometry]:
                del self._programs[look]
            for key in [key for key in self._views if key[0].extra_geometry]:
                del self._views[key]
            self._reserved = extra.capacity
        return DeviceGeometry(extra, self.tracer.device)

    def _view(self, look: Look, shot: Shot) -> _View:
        view = self._views.get((look, shot))
        if view is None:
            with _build_lock:
                return self._create_view(look, shot)
        self._views.move_to_end((look, shot))
        if not look.varying_rays:
            view.tables.aim()
        return view

    def _create_view(self, look: Look, shot: Shot) -> _View:
        tables = ShotTables(self.rig, shot)
        pixels = tables.width * tables.height
        most = rays_per_tile(
            pixels * self._num_envs, self._crew.size, is_cpu=self.tracer.device.is_cpu, shaded=shot.traced[0]
        )
        tiles = []
        for shard in self._shards:
            whole = [slice(0, tables.height)]
            bands = whole if look.varying_rays else row_bands(tables.height, tables.width * shard.scene.num_envs, most)
            for rows in bands:
                context = copy.copy(self._program(look, tables))
                shard.prepare(context, look)
                tables.install(context, rows)
                tiles.append(_Tile(shard, rows, context))
        if PlaneKind.RGB in shot.planes and PlaneKind.RGBA not in shot.planes:
            self._reserve_scratch(max(tile.context.total_rays * tile.shard.scene.num_envs for tile in tiles))
        view = self._views[look, shot] = _View(look, shot, tables, tuple(tiles))
        if len(self._views) > _MAX_VIEWS:
            self._views.popitem(last=False)
        return view

    def _program(self, look: Look, tables: ShotTables) -> mjw.RenderContext:
        """A context with the kernel for this look, to be copied.

        The tracer specialises its kernel when a context draws for the first time: do that here, on one thread.
        """
        program = self._programs.get(look)
        if program is None:
            first, program = self._shards[0], look.context(self.tracer)
            first.prepare(program, look)
            tables.install(program, slice(0, 1))
            nothing = wp.zeros(1, dtype=bool, device=self.tracer.device)
            program.render_rgb = program.render_depth = program.render_seg = nothing
            program.rgb_data, program.depth_data, program.seg_data = self._unused
            with on_device(self.tracer.device):
                mjw.render(look.model(first.scene.model), first.scene.fields, program)
            self._programs[look] = program
        return program

    def _reserve_scratch(self, words: int) -> None:
        if words > self._scratch[0].size:
            self._scratch = [
                wp.empty(words, dtype=wp.uint32, device=self.tracer.device) for _ in range(self._crew.size)
            ]

    def _draw_tile(self, view: _View, tile: _Tile, planes: _Planes, member: int) -> None:
        tile.shard.placed.wait()
        scene, context, width = tile.shard.scene, tile.context, view.tables.width
        envs = slice(scene.first_env, scene.first_env + scene.num_envs)
        pixels = slice(tile.rows.start * width, tile.rows.stop * width)
        parts = {plane: frame[envs, pixels] for plane, frame in planes.items()}
        words, depth, objects = self._unused
        if PlaneKind.RGBA in parts:
            words = parts[PlaneKind.RGBA]
        elif PlaneKind.RGB in parts:
            shape = parts[PlaneKind.RGB].shape
            words = self._scratch[member][: shape[0] * shape[1]].reshape(shape)
        depth = parts.get(PlaneKind.DEPTH, parts.get(PlaneKind.DISTANCE_TO_CAMERA, depth))
        objects = parts.get(PlaneKind.SEGMENTATION, objects)
        context.rgb_data, context.depth_data, context.seg_data = words, depth, objects
        mjw.render(scene.model, scene.fields, context)
        for plane in sorted(parts, key=_RESOLVED_LAST.__contains__):
            self._resolve(view.shot, plane, tile, parts[plane])

    def _resolve(self, shot: Shot, plane: PlaneKind, tile: _Tile, frame: wp.array) -> None:
        """Write a plane by our conventions into its part of the frame."""
        scene, context, rig = tile.shard.scene, tile.context, self.rig
        camera = rig.cameras[shot.camera]
        lanes = 1 if self.tracer.device.is_cpu else frame.shape[1]
        background = wp.vec3ub(*(round(255 * channel) for channel in camera.options.background))
        match plane:
            case PlaneKind.RGB:
                kernel, inputs = kernels.resolve_rgb, [context.rgb_data, scene.diverged, lanes, background]
            case PlaneKind.RGBA:
                kernel, inputs = kernels.resolve_rgba, [context.rgb_data, scene.diverged, lanes, background]
            case PlaneKind.DEPTH:
                kernel, inputs = kernels.resolve_depth, [context.depth_data, scene.diverged, lanes]
            case PlaneKind.DISTANCE_TO_CAMERA:
                lens = shot.camera, camera.width, camera.height, scene.intrinsic, rig.orthographic_pixel(shot.camera)
                kernel = kernels.resolve_distance
                inputs = [context.depth_data, scene.diverged, lanes, tile.rows.start, *lens]
            case PlaneKind.SEGMENTATION:
                names = self.tracer.mj_model.ngeom, self.tracer.skins.count, scene.slot_id
                kernel, inputs = kernels.resolve_segmentation, [context.seg_data, scene.diverged, lanes, *names]
            case _:
                raise ValueError(f"the ray tracer makes no {plane.value!r}")
        wp.launch(kernel, (scene.num_envs, lanes), inputs, [frame], device=self.tracer.device)


def _by_pixel(planes: _Planes) -> dict[PlaneKind, wp.array]:
    """The same memory as (environment, pixel) in the type of the planes' pixels."""
    return {
        plane: wp.array(
            ptr=frame.ptr,
            dtype=_PIXEL[plane],
            shape=(frame.shape[0], frame.shape[1] * frame.shape[2]),
            device=frame.device,
        )
        for plane, frame in planes.items()
    }


class _Shard:
    """The poses of some environments, and the bounding volumes of what is drawn of them.

    Attributes:
        placed: Whether they are those of the turn that is drawn, or could not be had.
    """

    def __init__(self, scene: ShardScene):
        self.scene = scene
        self.placed = threading.Event()
        self._bounds: dict[tuple[tuple[int, ...], bool], tuple[GeometryBounds, mjw.RenderContext]] = {}

    def reserve(self) -> None:
        """Have the model's slots for extra geometry."""
        self.scene.reserve()
        self._bounds = {drawn: bounds for drawn, bounds in self._bounds.items() if not drawn[1]}

    def prepare(self, context: mjw.RenderContext, look: Look) -> None:
        """Make `context` draw this shard's environments."""
        if look.drawn not in self._bounds:
            tracer = self.scene.tracer
            shown = copy.copy(tracer.context(*look.drawn))
            bounds = GeometryBounds(shown, self.scene.num_envs, tracer.device)
            bounds.install(shown)
            self.scene.install_skins(shown)
            self._bounds[look.drawn] = bounds, shown
        self._bounds[look.drawn][0].install(context)
        self.scene.install_skins(context)

    def place(
        self,
        drawn: Set[tuple[tuple[int, ...], bool]],
        snapshot: RenderSnapshot,
        extra: DeviceGeometry | None,
        member: int,
    ) -> None:
        """Bring poses, and the bounding volumes of what is drawn, up to a state."""
        try:
            self.scene.place(snapshot, extra)
            for groups in drawn:
                bounds, context = self._bounds[groups]
                bounds.refit(self.scene, context)
        finally:
            self.placed.set()  # whoever waits must not wait for ever; where this failed, so does the turn
