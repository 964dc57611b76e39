"""SimulationContext: steps an engine and runs the render turns that its consumers ask for."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, TypeVar

import warp as wp

from scene_data.appearance import Appearance, Randomization
from scene_data.camera import CameraCfg
from scene_data.errors import UnknownNameError
from scene_data.extra_geometry import geometry_capacity
from scene_data.geometry_sources import GeometrySource, GeometrySources, PackedGeometry
from scene_data.physics import PhysicsEngine
from scene_data.provider import SceneDataProvider
from scene_data.registry import pipelines
from scene_data.shared_resources import SharedResources
from scene_data.simulation_cfg import CameraChoice, SimulationCfg, SimulationStats
from scene_data.streams import enqueueing
from scene_data.viewers import Viewers

__all__ = ["SimulationContext"]

TransportT = TypeVar("TransportT")

_logger = logging.getLogger(__name__)


class SimulationContext:
    """One simulation: an engine, the provider that reads it, and the cameras that look at it.

    The physics lock covers every step and every read of the engine's state; it is released while frames are rendered
    and handed out. Leave the context with `close()`, or use it in a `with` statement.

    Args:
        cfg: What to simulate.

    Raises:
        ModelLoadError: The model is missing or broken.
        UnknownNameError: A camera, device, viewer or render backend has a name that is not known.
        ValueError: A value in the configuration cannot be used. Nothing half-built is left behind.
    """

    _open: ClassVar[list["SimulationContext"]] = []

    def __init__(self, cfg: SimulationCfg):
        self.cfg = cfg
        self.physics_lock = threading.RLock()
        self._closed = False
        self._steps = 0
        self._pipeline: Any = None
        self._geometry = GeometrySources(geometry_capacity(cfg.extra_geometry_capacity))
        self._resources = SharedResources()
        self._render_callbacks: dict[str, tuple[int, Callable[[SimulationContext], None]]] = {}
        self._viewed_ns = 0
        self._is_stopped = False
        self._paused_by: threading.Thread | None = None
        self._viewers = Viewers(cfg.visualizer_cfgs)
        self.physics: PhysicsEngine = cfg.physics.create(_checked_device(cfg.device), cfg.dt)
        try:
            self.provider = SceneDataProvider(self.physics.backend)
            self._viewers.check(self.provider)
            self._appearance = Appearance(
                lambda: self.provider.backend.describe_scene(), self.physics_lock, self._require_randomization
            )
            self._pipeline = self._create_pipeline()
            SimulationContext._open.append(self)
            self._viewers.initialize(self.provider)
        except BaseException:
            self._discard()
            raise

    def _create_pipeline(self) -> Any:
        """What turns snapshots into frames; None where nobody asked for one."""
        cameras = _chosen_cameras(self.cfg.cameras, self.physics)
        if not cameras:
            return None
        return pipelines.get("render_core")(
            self.provider,
            cameras,
            render_backend=self.cfg.render_backend,
            render_mode=self.cfg.render_mode,
            device=self.cfg.device,
            render_threads=self.cfg.render_threads,
            max_frame_bytes=self.cfg.max_frame_bytes,
            held_frames=self.cfg.held_frames,
            geometry=self._geometry,
            appearance=self._appearance,
            physics_lock=self.physics_lock,
            clock=lambda: self.simulation_time_ns,
        )

    @classmethod
    def instance(cls) -> "SimulationContext | None":
        """The context that was opened last and is still open."""
        return cls._open[-1] if cls._open else None

    @classmethod
    def clear_instance(cls) -> None:
        """Close the context that `instance()` names."""
        if context := cls.instance():
            context.close()

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self.physics.num_envs

    @property
    def simulation_time_ns(self) -> int:
        """Simulation time [ns]. It only grows until a full reset; a partial reset leaves it alone."""
        return round(self._steps * self.physics.timestep * 1e9)

    @property
    def cameras(self) -> Mapping[str, Any]:
        """The cameras by name."""
        return self._pipeline.cameras if self._pipeline is not None else {}

    @property
    def appearance(self) -> Appearance:
        """What the environments look like, to be changed in each of them: colours, textures, sizes, lights."""
        return self._appearance

    @property
    def render_core(self) -> Any:
        """The RenderCore behind the cameras, None without cameras."""
        return self._pipeline.core if self._pipeline is not None else None

    @property
    def dropped_turns(self) -> int:
        """Turns that found the core busy, in the free-running mode."""
        return self._pipeline.dropped_turns if self._pipeline is not None else 0

    def stats(self) -> SimulationStats:
        """What was simulated, what diverged, and what was rendered and dropped."""
        with self.physics_lock:
            self._require_open()
            pipeline = self._pipeline
            return {
                "steps": self._steps,
                "simulation_time_ns": self.simulation_time_ns,
                "divergences": self._note_divergences(),
                "dropped_turns": self.dropped_turns,
                "dropped_snapshots": pipeline.dropped_snapshots if pipeline is not None else 0,
                "render": pipeline.core.stats() if pipeline is not None else None,
            }

    def get_scene_data_provider(self) -> SceneDataProvider:
        """The provider that consumers read."""
        return self.provider

    def get_physics_dt(self) -> float:
        """Physics timestep [s]."""
        return self.physics.timestep

    def get_rendering_dt(self) -> float:
        """Simulation time between two looks at who is due for a frame [s]."""
        return self.physics.timestep * self.cfg.render_interval

    @property
    def visualizers(self) -> tuple[Any, ...]:
        """The viewers that are open. One that failed, hung or was closed is no longer among them."""
        return tuple(self._viewers)

    def step(self, render: bool = True) -> None:
        """Advance the physics by one timestep.

        While a viewer, or another thread through `pause()`, has paused the simulation, this waits and keeps the viewers
        going. Where this thread itself called `pause()`, or `stop()` was called, it returns without a step.

        Args:
            render: Whether to serve the consumers that are due, at every `render_interval`-th step.
        """
        self._require_open()
        if not self._may_step():
            return
        if render and self._pipeline is not None:
            self._pipeline.before_step()
        with self.physics_lock, enqueueing():
            self._require_open()
            self.physics.step()
            self._steps += 1
            due = render and self._steps % self.cfg.render_interval == 0
        if due:
            self.render()

    def render(self) -> None:
        """Serve the consumers that are due for a frame of the present state, the viewers, and the render callbacks."""
        self._require_open()
        if self._pipeline is not None:
            self._pipeline.after_step()
        now = self.simulation_time_ns
        elapsed, self._viewed_ns = max(now - self._viewed_ns, 0) * 1e-9, now
        self._update_viewers(elapsed)
        self._viewers.pace(elapsed)
        for _, callback in sorted(self._render_callbacks.values(), key=lambda entry: entry[0]):
            callback(self)

    def add_render_callback(self, name: str, fn: Callable[["SimulationContext"], None], order: int = 0) -> None:
        """Have a function called with this context at the end of each `render()`.

        Args:
            name: Its name; a callback of the same name is replaced.
            fn: The function. What it raises is raised by `render()`.
            order: Lower ones are called first.
        """
        self._render_callbacks[name] = (order, fn)

    def remove_render_callback(self, name: str) -> None:
        """Call a function no more; a name that is not known is ignored."""
        self._render_callbacks.pop(name, None)

    def set_camera_view(self, eye: tuple[float, float, float], target: tuple[float, float, float]) -> None:
        """Have every viewer look from `eye` at `target` [m]."""
        self._require_open()
        self._viewers.set_camera_view(eye, target)

    def play(self) -> None:
        """Go on after `pause()` or `stop()`. A viewer that paused the simulation keeps it paused."""
        self._paused_by, self._is_stopped = None, False
        self._viewers.tell("play")

    def pause(self) -> None:
        """Let no step advance the physics until `play()`."""
        self._paused_by = threading.current_thread()
        self._viewers.tell("pause")

    def stop(self) -> None:
        """End the run: `is_running()` is False and steps do nothing, until `play()` or a full reset."""
        self._is_stopped = True
        self._viewers.tell("stop")

    def is_playing(self) -> bool:
        """Whether the program lets the physics advance; a viewer may still have paused it."""
        return not (self._closed or self._is_stopped or self._paused_by is not None)

    def is_stopped(self) -> bool:
        """Whether `stop()` was called since the last `play()` or full reset."""
        return self._is_stopped

    def is_running(self) -> bool:
        """Whether the run goes on: True until `stop()` or `close()`. Viewers that close do not end it."""
        return not (self._closed or self._is_stopped)

    def get_or_create_backend(self, cfg: Any) -> Any:
        """What equal configurations share, built with `cfg.create()` at the first call; closed with the simulation."""
        self._require_open()
        return self._resources.get_or_create(cfg)

    def close_backend(self, backend: Any) -> None:
        """Close what `get_or_create_backend` returned, before the simulation does.

        Raises:
            KeyError: It is none of this simulation's.
        """
        self._resources.release(backend)

    def _may_step(self) -> bool:
        """Wait as long as somebody else has the simulation paused; False where there is nothing to wait for."""
        while True:
            if self._closed or self._is_stopped:
                return False
            if self._paused_by is threading.current_thread():
                self._update_viewers(0.0)
                return False
            if self._paused_by is None and not self._viewers.is_paused():
                return True
            self._update_viewers(0.0)
            self._viewers.idle()

    def _update_viewers(self, dt: float) -> None:
        colors = self._appearance.state.shape_colors
        if self._viewers.update(dt, self.forward, self._refresh_poses, colors, self.cameras, self._collect_geometry):
            self.reset()

    def _refresh_poses(self) -> None:
        with self.physics_lock, enqueueing():
            self.provider.backend.update_kinematics()

    def _collect_geometry(self) -> PackedGeometry | None:
        if not len(self._geometry):
            return None
        with self.physics_lock, self.provider.consistent_read():
            return self._geometry.collect(self.num_envs)

    def add_camera(self, cfg: CameraCfg) -> Any:
        """Look through one more camera, and return it; `Camera(cfg)` does the same.

        Cameras that there are and their frames stay valid. Turns that are under way end first; transports start anew.

        Raises:
            UnknownNameError, ValueError: As at the construction. Nothing has changed then.
        """
        self._require_open()
        before = self.cfg
        self.cfg = replace(before, cameras=_with_camera(before.cameras, cfg))
        try:
            if self._pipeline is None:
                self._pipeline = self._create_pipeline()
            else:
                self._pipeline.add_cameras([cfg])
        except BaseException:
            self.cfg = before
            raise
        return self.cameras[cfg.name]

    def add_transport(self, transport: TransportT) -> TransportT:
        """Publish the cameras' frames through a transport of `scene_data.renderers.transports` too, and return it.

        It is closed with the simulation, and taken out of it when it fails.

        Raises:
            ValueError: There are no cameras.
        """
        self._require_open()
        if self._pipeline is None:
            raise ValueError("this simulation has no cameras, so there is nothing to publish")
        self._pipeline.add_transport(transport)
        return transport

    def remove_transport(self, transport: Any) -> None:
        """Close a transport and publish no longer through it.

        Raises:
            ValueError: It is none of this simulation's.
        """
        if self._pipeline is None:
            raise ValueError("this simulation has no cameras, and so no transports")
        self._pipeline.remove_transport(transport)

    def add_geometry_source(self, source: GeometrySource, name: str | None = None) -> None:
        """Draw what a function gives beside the model: contacts, frames, goals.

        It is called once per turn, on the thread that steps or reads, with the physics lock held and all poses up to
        date. A turn is due when the state has moved, and after `forward()`; what a source draws is taken to follow from
        the state. Where a source raises, or gives more than `extra_geometry_capacity`, there is no frame: reading a
        camera raises an error that says why. Sources stay over `reload`. The first turn with anything to draw
        compiles a kernel, once per machine.

        Args:
            source: Returns a `GeometryBatch`, several, or None. Its environments are as many as the simulation has.
            name: What messages call it; None is the function's name.

        Raises:
            ValueError: It is a source already, or the render backend draws no extra geometry.
        """
        with self.physics_lock:
            self._require_open()
            if self._pipeline is not None:
                self._pipeline.require("draws_extra_geometry", "extra geometry")
            self._geometry.add(source, name)

    def remove_geometry_source(self, source: GeometrySource) -> None:
        """Draw what this function gives no more.

        Raises:
            ValueError: It is no source.
        """
        with self.physics_lock:
            self._geometry.remove(source)

    def _require_randomization(self, kind: Randomization) -> None:
        self._require_open()
        if self._pipeline is not None:
            self._pipeline.require_randomization(kind)

    def forward(self) -> None:
        """Announce that the state was written from outside, and bring all poses up to it."""
        with self.physics_lock, enqueueing():
            self._require_open()
            self.physics.backend.mark_transforms_written()
            self.physics.backend.mark_geometry_written()
            self.physics.backend.update_kinematics()

    def reset(
        self,
        soft: bool = False,
        env_ids: Sequence[int] | None = None,
        keyframe: str | int | None = None,
    ) -> None:
        """Return to the initial state; the next read of a camera shows it.

        Args:
            soft: Kept for Isaac Lab's callers: there is no asset to re-initialise, both kinds are the same here.
            env_ids: Environments to reset; None resets all, and the simulation time.
            keyframe: A keyframe of the model, by name or index; None is the model's default state.
        """
        with self.physics_lock, enqueueing():
            self._require_open()
            self._note_divergences()  # the engine's own counters do not survive a reset
            self.physics.reset(env_ids, keyframe)
            self.physics.backend.mark_transforms_written()
            if env_ids is None:
                self._steps = self._viewed_ns = 0
        if env_ids is None:
            self._paused_by, self._is_stopped = None, False
            self._viewers.reset(soft)

    def reload(self, model: Any, cameras: CameraChoice | None = None) -> None:
        """Go on with another model, from its initial state.

        The new model is loaded and checked while the old one still runs; what does not fit leaves everything as it was.
        Tensors and leases of the old model stay valid; its `Camera` objects raise `StaleGenerationError`, so take them
        from `cameras` anew. The provider stays the same object and reads the new model.

        Args:
            model: What the physics configuration takes as its model.
            cameras: Cameras of the new model; None keeps the ones asked for so far.

        Raises:
            ModelLoadError: The model is missing or broken.
            UnknownNameError: A camera is not in the new model.
            ValueError: Something else in the new model or its cameras cannot be used.
        """
        self._require_open()
        choice = self.cfg.cameras if cameras is None else cameras
        cfg = replace(self.cfg, physics=self.cfg.physics.with_model(model), cameras=choice)
        physics = cfg.physics.create(cfg.device, cfg.dt)
        try:
            chosen = _chosen_cameras(choice, physics)
            plan = self._pipeline.plan(physics.backend.describe_scene(), chosen) if self._pipeline else None
        except BaseException:
            physics.close()
            raise
        retired = self.physics

        def swap_engine() -> None:
            self.cfg, self.physics, self._steps = cfg, physics, 0
            self.provider.rebind(physics.backend)
            self._appearance.forget_scene()

        if plan is not None:
            self._pipeline.reload(plan, swap_engine)
        else:
            with self.physics_lock:
                swap_engine()
        self._viewed_ns = 0
        self._viewers.reset(soft=False)
        retired.close()

    def close(self) -> None:
        """End the render thread and release the engine. A second call does nothing.

        Raises:
            ExceptionGroup: Parts that failed to close; the others were closed all the same.
        """
        with self.physics_lock:
            if self._closed:
                return
            self._closed = True
        if failures := self._close_parts():
            raise ExceptionGroup("closing the simulation failed", failures)

    def _discard(self) -> None:
        """Close a simulation that could not be built; the error that it could not be built for matters more."""
        self._closed = True
        self._close_parts()

    def _close_parts(self) -> list[Exception]:
        if self in SimulationContext._open:
            SimulationContext._open.remove(self)
        failures: list[Exception] = []
        for part in (self._pipeline, self._viewers, self._resources, self.physics):
            try:
                if part is not None:
                    part.close()
            except Exception as failure:  # every part gets its turn; what failed is raised at the end
                _logger.exception("closing %s failed", type(part).__name__)
                failures.append(failure)
        return failures

    def _note_divergences(self) -> dict[int, int]:
        counts = getattr(self.physics.backend, "divergence_counts", None)
        return {} if counts is None else {env: int(count) for env, count in enumerate(counts) if count}

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("This SimulationContext is closed; build a new one.")

    def __enter__(self) -> "SimulationContext":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()


def _chosen_cameras(choice: CameraChoice, physics: PhysicsEngine) -> Sequence[CameraCfg]:
    return choice(physics.backend.describe_scene()) if callable(choice) else choice


def _with_camera(choice: CameraChoice, cfg: CameraCfg) -> CameraChoice:
    return (lambda scene: [*choice(scene), cfg]) if callable(choice) else [*choice, cfg]


def _checked_device(device: str) -> str:
    known = [str(known) for known in wp.get_devices()]
    if device not in (*known, "cuda") or (device == "cuda" and not wp.is_cuda_available()):
        raise UnknownNameError("device", device, known)
    return device
