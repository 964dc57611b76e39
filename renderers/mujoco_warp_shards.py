"""Drawing one turn with MuJoCo Warp's ray tracer: the environments of a scene, split over threads.

A kernel launch on the CPU uses one core and lets go of Python's lock, so each shard of environments is drawn on a
thread of its own. Shards share the model's meshes, textures and compiled kernels; bounding volumes, poses and
image memory are their own. On CUDA there is one shard, drawn on the calling thread's stream.
"""

import copy
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import mujoco
import mujoco_warp as mjw
import warp as wp

from . import mujoco_warp_kernels as kernels
from .mujoco_warp_extra import DeviceGeometry
from .mujoco_warp_scene import GeometryBounds, ShardScene, TracerModel, on_device
from .mujoco_warp_views import CameraRig, Look, Shot, ViewTables
from .render_core.layout import PlaneKind
from .render_core.snapshots import RenderSnapshot

__all__ = ["ShardedTracer"]

# Combinations of due cameras and planes that stay ready to draw. Few occur in one run.
_MAX_VIEWS = 32

# Building compiles kernels, which Warp does not do from several threads at once.
_build_lock = threading.Lock()


@dataclass(frozen=True)
class _View:
    """What is drawn in one go: cameras of one look, ready in each shard."""

    look: Look
    tables: ViewTables
    contexts: tuple[mjw.RenderContext, ...]


@dataclass(frozen=True)
class _Target:
    """A plane's destination: the frame (N, H, W, C), and which of its view's shots goes there."""

    shot: int
    plane: PlaneKind
    frame: wp.array


class ShardedTracer:
    """Draws any of a rig's cameras, in all environments.

    Args:
        tracer: The model.
        rig: The cameras.
        num_envs: Number of environments.
        max_shards: Threads to draw on, on the CPU.

    Attributes:
        diverged: 1 for each environment that the last `draw` blanked (num_envs,) int32.
    """

    def __init__(self, tracer: TracerModel, rig: CameraRig, num_envs: int, max_shards: int):
        self.tracer = tracer
        self.rig = rig
        self.diverged = wp.zeros(num_envs, dtype=wp.int32, device=tracer.device)
        count = min(max_shards, num_envs) if tracer.device.is_cpu else 1
        ends = [num_envs * shard // count for shard in range(count + 1)]
        scenes = [ShardScene(tracer, rig, first, self.diverged[first:end]) for first, end in itertools.pairwise(ends)]
        self._shards = [_Shard(scene, rig) for scene in scenes]
        self._reserved: tuple[int, ...] = ()
        self._programs: dict[Look, mjw.RenderContext] = {}
        self._views: OrderedDict[tuple[Look, tuple[Shot, ...]], _View] = OrderedDict()
        with _build_lock:
            for look, shots in self._by_look(rig.shots(), extra_geometry=False).items():
                self._create_view(look, tuple(shots))
        self._threads = ThreadPoolExecutor(count - 1, thread_name_prefix="render-shard") if count > 1 else None

    @property
    def shard_count(self) -> int:
        """Number of shards, this thread's included."""
        return len(self._shards)

    def draw(self, snapshot: RenderSnapshot, frames: Mapping[Shot, Mapping[PlaneKind, wp.array]]) -> None:
        """Draw one state.

        Args:
            snapshot: A state of this scene.
            frames: Where the planes (N, H, W, C) of each shot go. A shot may lack the frame of a plane.
        """
        self.rig.apply(snapshot.camera_settings)
        extra = self._upload_extra(snapshot)
        for shard in self._shards:
            shard.scene.dress(snapshot.appearance)
        jobs = []
        for look, shots in self._by_look(list(frames), extra is not None).items():
            targets = [
                _Target(index, plane, frame)
                for index, shot in enumerate(shots)
                for plane, frame in frames[shot].items()
            ]
            jobs.append((self._view(look, tuple(shots)), targets))
        snapshot.begin_read()
        with on_device(self.tracer.device):
            self._in_all_shards(lambda shard: self._draw_shard(shard, snapshot, extra, jobs))
        snapshot.end_read()

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown()

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

    def _by_look(self, shots: Sequence[Shot], extra_geometry: bool) -> dict[Look, list[Shot]]:
        groups: dict[Look, list[Shot]] = {}
        for shot in shots:
            options, varies = self.rig.cameras[shot.camera].options, bool(self.rig.varies[shot.camera])
            groups.setdefault(Look.of(options, self.tracer, extra_geometry, varies), []).append(shot)
        return groups

    def _view(self, look: Look, shots: tuple[Shot, ...]) -> _View:
        view = self._views.get((look, shots))
        if view is None:
            with _build_lock:
                return self._create_view(look, shots)
        self._views.move_to_end((look, shots))
        if not look.varying_rays:
            view.tables.aim()
        return view

    def _create_view(self, look: Look, shots: tuple[Shot, ...]) -> _View:
        tables = ViewTables(self.rig, shots)
        if look not in self._programs:
            # The tracer specialises its kernel on a context's first image: do that here, on one thread. The contexts
            # of all shards are copies of this one, so they come with the kernel.
            first, program = self._shards[0], look.context(self.tracer)
            first.prepare(program, look, tables)
            with on_device(self.tracer.device):
                mjw.render(first.scene.model, first.scene.fields, program)
            self._programs[look] = program
        contexts = tuple(copy.copy(self._programs[look]) for _ in self._shards)
        for shard, context in zip(self._shards, contexts, strict=True):
            shard.prepare(context, look, tables)
        view = self._views[look, shots] = _View(look, tables, contexts)
        if len(self._views) > _MAX_VIEWS:
            self._views.popitem(last=False)
        return view

    def _in_all_shards(self, work: Callable[[int], None]) -> None:
        """Run `work` for each shard, the first one on this thread."""
        futures: list[Future[None]] = []
        if self._threads is not None:
            futures = [self._threads.submit(work, shard) for shard in range(1, len(self._shards))]
        try:
            work(0)
        finally:
            wait(futures)  # whatever happens, nobody writes to a frame after this
        for future in futures:
            future.result()

    def _draw_shard(
        self,
        index: int,
        snapshot: RenderSnapshot,
        extra: DeviceGeometry | None,
        jobs: Sequence[tuple[_View, list[_Target]]],
    ) -> None:
        scene = self._shards[index].scene
        model = scene.model
        scene.place(snapshot, extra)
        refitted: set[tuple[tuple[int, ...], bool]] = set()
        for view, targets in jobs:
            context = view.contexts[index]
            if view.look.drawn not in refitted:
                mjw.refit_bvh(model, scene.fields, context)
                refitted.add(view.look.drawn)
            mjw.render(model, scene.fields, context)
            for target in targets:
                self._resolve(view.tables, context, scene, target)

    def _resolve(self, tables: ViewTables, context: mjw.RenderContext, scene: ShardScene, target: _Target) -> None:
        """Write a plane of a shard's environments into their part of the frame."""
        device, diverged = self.tracer.device, scene.diverged
        colour, depth, objects = (int(first) for first in tables.first[target.shot])
        height, width = target.frame.shape[1:3]
        pixels = height * width
        lanes = 1 if device.is_cpu else pixels
        index = tables.shots[target.shot].camera
        channels = self.rig.cameras[index].options.background
        background = wp.vec3ub(*(round(255 * channel) for channel in channels))
        match target.plane:
            case PlaneKind.RGB:
                kernel, dtype = kernels.resolve_rgb, wp.vec3ub
                inputs = [context.rgb_data, colour, diverged, lanes, background]
            case PlaneKind.RGBA:
                kernel, dtype = kernels.resolve_rgba, wp.vec4ub
                inputs = [context.rgb_data, colour, diverged, lanes, background]
            case PlaneKind.DEPTH:
                kernel, dtype = kernels.resolve_depth, wp.float32
                inputs = [context.depth_data, depth, diverged, lanes]
            case PlaneKind.DISTANCE_TO_CAMERA:
                kernel, dtype = kernels.resolve_distance, wp.float32
                lens = index, width, height, scene.intrinsic, self.rig.orthographic_pixel(index)
                inputs = [context.depth_data, depth, diverged, lanes, *lens]
            case PlaneKind.SEGMENTATION:
                kernel, dtype = kernels.resolve_segmentation, wp.vec2i
                names = int(mujoco.mjtObj.mjOBJ_GEOM), self.tracer.mj_model.ngeom, scene.slot_id
                inputs = [context.seg_data, objects, diverged, lanes, *names]
            case _:
                raise ValueError(f"the ray tracer makes no {target.plane.value!r}")
        part = target.frame[scene.first_env : scene.first_env + scene.num_envs]
        frame = wp.array(ptr=part.ptr, dtype=dtype, shape=(scene.num_envs, pixels), device=device)
        wp.launch(kernel, (scene.num_envs, lanes), inputs, [frame], device=device)


class _Shard:
    """One shard's poses, bounding volumes and image memory.

    Its views are drawn one after another, so they share the memory that the tracer draws into.
    """

    def __init__(self, scene: ShardScene, rig: CameraRig):
        self.scene = scene
        self._bounds: dict[tuple[tuple[int, ...], bool], GeometryBounds] = {}
        self._images = [
            wp.zeros(scene.num_envs * max(int(pixels), 1), dtype=dtype, device=scene.tracer.device)
            for pixels, dtype in zip(rig.pixels(rig.shots()), (wp.uint32, wp.float32, wp.vec2i), strict=True)
        ]

    def reserve(self) -> None:
        """Have the model's slots for extra geometry."""
        self.scene.reserve()
        self._bounds = {drawn: bounds for drawn, bounds in self._bounds.items() if not drawn[1]}

    def prepare(self, context: mjw.RenderContext, look: Look, tables: ViewTables) -> None:
        """Make `context` draw this shard's environments through these cameras."""
        tracer, num_envs = self.scene.tracer, self.scene.num_envs
        if look.drawn not in self._bounds:
            self._bounds[look.drawn] = GeometryBounds(tracer.context(*look.drawn), num_envs, tracer.device)
        self._bounds[look.drawn].install(context)
        tables.install(context)
        context.rgb_data, context.depth_data, context.seg_data = (
            image[: num_envs * max(int(pixels), 1)].reshape((num_envs, max(int(pixels), 1)))
            for image, pixels in zip(self._images, tables.pixels, strict=True)
        )
