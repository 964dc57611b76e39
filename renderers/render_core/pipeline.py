"""RenderPipeline: what a simulation does so that its cameras have frames.

A turn in order: under the physics lock, see who is due, take a snapshot, and enter the in-flight guard; then, with the
lock released, wait for capacity, submit, finish, hand the frames out, and leave the guard.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from scene_data.appearance import Appearance, Randomization
from scene_data.camera import CameraCfg
from scene_data.errors import SceneDataError, UnknownNameError
from scene_data.geometry_sources import GeometryCapacityError, GeometrySourceError, GeometrySources
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

from ..camera_data import CameraData
from ..camera_seat import CameraSeat
from ..camera_sensor import Camera
from .abilities import require_ability, require_randomization
from .admission import InFlightGuard
from .camera import CameraDescriptor
from .camera_poses import CameraPoses
from .camera_settings import CameraSetting, CameraSettings
from .core import RenderCore
from .core_plan import HELD_FRAMES, CorePlan
from .demand import RenderPlan
from .live_cameras import LiveCameras
from .pacing import PACINGS
from .publication import FrameTransport
from .sensors import Sensor, StateVersion
from .snapshots import RenderSnapshot, SnapshotPool
from .status import FrameStatus, FrameStatusCode, StaleGenerationError
from .transport_set import TransportSet
from .turn_delivery import Turn, TurnDelivery

__all__ = ["RenderPipeline", "RenderTurnError"]

_OK = FrameStatus(FrameStatusCode.OK)

_logger = logging.getLogger(__name__)


class RenderTurnError(SceneDataError, RuntimeError):
    """A turn that made no frame.

    Attributes:
        status: What the render core reports.
    """

    def __init__(self, what: str, status: FrameStatus):
        self.status = status
        super().__init__(f"{what}: {status.code.name}. {status.message}".rstrip())


class RenderPipeline:
    """The cameras of one simulation, and the render core behind them.

    Do not hold the physics lock while reading a camera: a turn takes it for its snapshot.

    Args:
        provider: Reads the engine.
        cameras: What the user asked for.
        render_backend: Name of the render backend.
        render_mode: `"synchronous"`, `"pipelined"` or `"free_running"`.
        device: Warp device of the frames.
        physics_lock: Covers every step of the engine; held here only while a snapshot is taken.
        clock: Simulation time [ns] of the present state.
        max_frame_bytes: Budget of the frame store; None is what `held_frames` needs.
        render_threads: CPU threads that drawing may use; None is what suits the render mode.
        held_frames: Frames per plane that consumers can hold beside the latest and the next one.
        geometry: Sources of extra geometry, asked once per turn.
        appearance: The looks of environments, with the physics lock as its lock; None makes them.

    Attributes:
        core: The render core.
        cameras: The cameras by name.
        appearance: The looks of environments.
        dropped_turns: Turns that found the core busy, in the free-running mode.
        dropped_snapshots: Turns that found both snapshot slots in use.

    Raises:
        UnknownNameError: A camera, data type, render mode or render backend has a name that is not known.
        ValueError: A camera asks for what the render backend does not make, or the budget does not fit.
        RenderTurnError: The render backend could not be set up.
    """

    def __init__(
        self,
        provider: SceneDataProvider,
        cameras: Sequence[CameraCfg],
        *,
        render_backend: str,
        render_mode: str,
        device: str,
        physics_lock: Any,
        clock: Callable[[], int],
        max_frame_bytes: int | None = None,
        render_threads: int | None = None,
        held_frames: int = HELD_FRAMES,
        geometry: GeometrySources | None = None,
        appearance: Appearance | None = None,
    ):
        if render_mode not in PACINGS:
            raise UnknownNameError("render mode", render_mode, PACINGS)
        self.provider = provider
        self.dropped_turns = 0
        self.dropped_snapshots = 0
        self.pool = SnapshotPool()
        self._pacing = PACINGS[render_mode]()
        self._device = device
        self._threads = self._pacing.render_threads if render_threads is None else render_threads
        self._physics_lock = physics_lock
        self._clock = clock
        self._render_backend = render_backend
        self._max_frame_bytes = max_frame_bytes
        self._held_frames = held_frames
        self._transports = TransportSet()
        self._geometry = GeometrySources(()) if geometry is None else geometry
        self._geometry_failure = ""
        self.appearance = appearance or Appearance(
            lambda: provider.backend.describe_scene(), physics_lock, self.require_randomization
        )
        self._is_closed = False
        self._guard = InFlightGuard()
        self._turn_lock = threading.Lock()
        self._in_flight: Turn | None = None
        self._turn_count = 0
        self._first_capture = 1
        self._model_generation = 0
        self._sensors: dict[int, Sensor] = {}
        self.cameras: Mapping[str, Camera] = {}
        self._plan = self.plan(provider.backend.describe_scene(), cameras)
        self.core: RenderCore = self._plan.create_core(device, self._threads)
        try:
            self._start_generation(self._plan)
        except BaseException:
            self.core.shutdown()
            raise

    # -- what a simulation calls

    def plan(self, scene: SceneDescription, cameras: Sequence[CameraCfg]) -> CorePlan:
        """What a core for these cameras has to be; raises what does not fit, and touches nothing."""
        return CorePlan.of(scene, cameras, self._render_backend, self._max_frame_bytes, self._held_frames)

    def add_cameras(self, cameras: Sequence[CameraCfg]) -> None:
        """Serve more cameras. Those that there are, what is set about them, and what was delivered stay as they are.

        Turns that are under way end first. Transports start anew, as after a reload.

        Raises:
            UnknownNameError, ValueError: As at the construction; nothing has changed then.
            RenderTurnError: The render backend could not be set up.
        """
        plan = self.plan(self._plan.scene, (*self._plan.cameras, *cameras))
        self._restart(plan, keeps_model=True)

    # -- what cameras call

    def read(self, seat: CameraSeat) -> CameraData:
        """What the render mode has for a camera now; see `Camera.data`."""
        return self.read_all([seat])[seat.name]

    def read_all(self, seats: Sequence[CameraSeat]) -> dict[str, CameraData]:
        """What the render mode has for cameras now, by name; in the synchronous mode of one and the same state."""
        with self._turn_lock:
            sensors = [self._sensor_of(seat) for seat in seats]
            status = self._pacing.before_read(self, sensors)
            delivered: dict[str, CameraData] = {}
            for sensor in sensors:
                if sensor.data is None:
                    raise RenderTurnError(
                        f"Camera {sensor.seat.name!r} has no frame", self._delivery.with_holders(status)
                    )
                delivered[sensor.seat.name], sensor.was_read = sensor.data, True
            return delivered

    def lag(self, seat: CameraSeat) -> int:
        """Turns that were started after the one that a camera shows."""
        with self._turn_lock:
            sensor = self._sensor_of(seat)
            return self._turn_count - sensor.turn if sensor.data is not None else 0

    def lag_ns(self, seat: CameraSeat) -> int:
        """Simulation time that has passed since what a camera shows [ns]."""
        with self._turn_lock:
            sensor = self._sensor_of(seat)
            return self._clock() - sensor.data.info.simulation_time_ns if sensor.data is not None else 0

    def change(self, seat: CameraSeat, change: Callable[[CameraSetting], CameraSetting]) -> None:
        """Change what is set about a camera, from the next snapshot on."""
        self.require("applies_camera_settings", "cameras that change at run time")
        with self._physics_lock:
            self._sensor_of(seat)
            self._live.change(seat.descriptor.id, change)

    # -- what a simulation calls around steps

    def before_step(self) -> None:
        """Let the render mode do what it has to before the physics steps."""
        with self._turn_lock:
            self._pacing.before_step(self)

    def after_step(self) -> FrameStatus:
        """Render for whom it is time, as the render mode has it."""
        with self._turn_lock:
            return self._pacing.after_step(self)

    def add_transport(self, transport: FrameTransport) -> None:
        """Hand the frames of the turns to come to a transport too; it is closed if it cannot start."""
        with self._turn_lock:
            try:
                transport.start(self.core, self._descriptors)
            except BaseException:
                transport.close()
                raise
            self._transports.add(transport)

    def remove_transport(self, transport: FrameTransport) -> None:
        """Close a transport and forget it.

        Raises:
            ValueError: It was not added, or fell out because it failed.
        """
        with self._turn_lock:
            self._transports.remove(transport)
        transport.close()

    def reload(self, plan: CorePlan, swap_engine: Callable[[], None]) -> None:
        """Go on with another model, whose plan is made.

        Turns that are under way end first. Leases and tensors of the model before stay valid.

        Args:
            plan: From `plan`, for the new scene.
            swap_engine: Puts the new engine behind the provider; called under the physics lock.

        Raises:
            RenderTurnError: The render backend could not be set up for the new model.
        """
        self._restart(plan, swap_engine)

    def close(self) -> None:
        """Drop the consumers, end the render thread, free the snapshots. Leases that others hold stay valid.

        A second call does nothing.

        Raises:
            ExceptionGroup: Transports that failed to close; all the rest was closed all the same.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._guard.close()
        failures = self._transports.close()  # a turn that hangs holds the turn lock
        for sensor in self._sensors.values():
            self.core.unregister_consumer(sensor.consumer)
        self.core.request_cancel_render_turn()
        self.core.shutdown()
        with self._turn_lock:
            self._abandon_turn()
            for sensor in self._sensors.values():
                sensor.data = None
        self._guard.wait_empty()
        self.pool.deactivate()
        if failures:
            raise ExceptionGroup("closing the transports failed", failures)

    # -- the steps of a turn, called by the render modes

    @property
    def has_turns(self) -> bool:
        """Whether a turn was started since the model was loaded."""
        return self._turn_count > 0

    @property
    def has_turn_in_flight(self) -> bool:
        """Whether a turn was started and not finished."""
        return self._in_flight is not None

    def request_all(self) -> None:
        """Make the own consumer of every camera due whose period is over."""
        with self._physics_lock:
            state = self._present_state()
            for sensor in self._sensors.values():
                if sensor.is_period_over(*state):
                    self.core.request_one_shot(sensor.consumer)

    def begin_turn(self, camera_ids: Iterable[int] | None = None) -> Turn | FrameStatus:
        """Who is due at these cameras, or at all, and a snapshot of the present state for them.

        Returns:
            The turn, with the in-flight guard entered; or why there is none: OK where nobody is due,
            SNAPSHOT_POOL_EXHAUSTED, STOPPED during a reload, or what is wrong with the extra geometry.
        """
        with self._physics_lock, self.provider.consistent_read():
            now = self._clock()
            self._transports.each(lambda transport: transport.look(now))
            ids = self._sensors if camera_ids is None else camera_ids
            plans = tuple(plan for plan in (self.core.evaluate_demand(now, id) for id in ids) if plan.consumers)
            if not plans:
                return _OK
            result = self.pool.acquire(self.provider, self._model_generation, now)
            if result.snapshot is None:
                self.dropped_snapshots += result.code is FrameStatusCode.SNAPSHOT_POOL_EXHAUSTED
                return FrameStatus(result.code, message="No snapshot could be taken.")
            status = self._collect_geometry(result.snapshot, plans)
            if not status.ok:
                result.snapshot.release()
                return status
            if not self._guard.enter():
                result.snapshot.release()
                return FrameStatus(FrameStatusCode.STOPPED, message="The model is being reloaded.")
            result.snapshot.appearance = self.appearance.state
            record = self._live.capture(result.snapshot)
            self._poses.capture(
                result.snapshot, (plan.camera_id for plan in plans if self._delivery.is_for_transports(plan))
            )
            return Turn(plans, result.snapshot, now, self.provider.env_time_ns, self._state_version(), record)

    def begin_turn_where_moved(self, wanted: Collection[Sensor]) -> Turn | FrameStatus:
        """A turn for cameras whose state has moved since their frames, and for others that were read since theirs."""
        with self._physics_lock, self.provider.consistent_read():
            state = self._present_state()
            if all(sensor.data is not None and not sensor.has_moved(*state) for sensor in wanted):
                return _OK
            due = []
            for camera_id, sensor in self._sensors.items():
                asked = sensor in wanted
                if (asked and sensor.data is None) or ((asked or sensor.was_read) and sensor.has_moved(*state)):
                    self.core.request_one_shot(sensor.consumer)
                    sensor.data, sensor.was_read = None, False
                    due.append(camera_id)
            return self.begin_turn(due)

    def start_turn(self, turn: Turn | FrameStatus) -> FrameStatus:
        """Wait for capacity, where the policy has it, and submit."""
        if isinstance(turn, FrameStatus):
            return turn
        status = self.core.wait_for_frame_capacity(turn.plans)
        if status.ok:
            status = self.core.submit_snapshot(turn.snapshot, turn.plans)
        if status.ok:
            self._in_flight = turn
            self._turn_count += 1
        else:
            turn.snapshot.release()
            self._guard.leave()
        return status

    def finish_turn(self, timeout: float | None = None) -> FrameStatus:
        """Wait for the turn in flight and hand its frames out; BUSY when `timeout` [s] was not enough."""
        turn = self._in_flight
        if turn is None:
            return _OK
        status = self.core.finish_or_cancel_render_turn(timeout)
        if status.code is FrameStatusCode.BUSY:
            return status
        first_capture = self._first_capture
        self._first_capture = max(first_capture, self.core.frames.last_capture_id + 1)
        try:
            self._delivery.deliver(turn, first_capture, self._turn_count)
        finally:
            self._abandon_turn()
        return status

    def run_turn(self, turn: Turn | FrameStatus) -> FrameStatus:
        """Start a turn and finish it."""
        if isinstance(turn, FrameStatus):
            return turn
        status = self.start_turn(turn)
        return self.finish_turn() if status.ok else status

    # -- inside

    def _restart(
        self, plan: CorePlan, swap_engine: Callable[[], None] | None = None, keeps_model: bool = False
    ) -> None:
        """Let what is under way end, and go on with another plan."""
        with self._guard.closed():
            self.core.stop_accepting_snapshots()
            self.core.request_cancel_render_turn()
            self.core.finish_or_cancel_render_turn()
            with self._turn_lock:
                self._abandon_turn()
                self._guard.wait_empty()
                self._transports.each(lambda transport: transport.stop())
                if swap_engine is not None:
                    with self._physics_lock:
                        swap_engine()
                kept, settings = list(self._sensors.values()), self._live.settings
                if not plan.fits(self.core):
                    self._replace_core(plan)
                self._start_generation(plan)
                if keeps_model:
                    self._keep(kept, settings)
                self._transports.each(lambda transport: transport.start(self.core, self._descriptors))
            self.core.start_accepting_snapshots()

    def _start_generation(self, plan: CorePlan) -> None:
        """Put a plan in force: snapshots, frames, cameras."""
        generation = self._model_generation + 1
        for sensor in self._sensors.values():
            self.core.unregister_consumer(sensor.consumer)
        self._sensors, self.cameras = {}, {}
        self._plan, self._backend = plan, self.provider.backend
        self.pool.activate(self.provider, generation, plan.scene.point_ranges())
        status = plan.configure(self.core, generation, generation)
        if status.code is FrameStatusCode.GENERATION_CAPACITY_EXHAUSTED:
            # Readers hold too much of the generation before; its frames live on with the core that made them.
            self._replace_core(plan)
            status = plan.configure(self.core, generation, generation)
        if not status.ok:
            raise RenderTurnError("The render core could not be set up", status)
        self._model_generation = generation
        self._turn_count = 0
        self._poses = CameraPoses(plan.scene, plan.descriptors)
        self._live = LiveCameras(plan.scene, plan.descriptors, self.provider.device)
        for cfg, descriptor in zip(plan.cameras, plan.descriptors, strict=True):
            consumer = self.core.register_one_shot_consumer(cfg.name, descriptor.id)
            seat = CameraSeat(cfg, descriptor, plan.scene, self)
            self._sensors[descriptor.id] = Sensor(seat, consumer, period_ns=round(cfg.update_period * 1e9))
        self.cameras = {sensor.seat.name: Camera.of(sensor.seat) for sensor in self._sensors.values()}
        self._delivery = TurnDelivery(self.core, self._sensors, self._transports, self._poses)

    def _keep(self, sensors: Iterable[Sensor], settings: CameraSettings) -> None:
        """Let cameras from before the present plan, which has them in the same places, be what they were."""
        self._live.settings = settings
        for kept in sensors:
            sensor = self._sensors[kept.seat.descriptor.id]
            sensor.seat, sensor.data, sensor.version = kept.seat, kept.data, kept.version
            self.cameras = {**self.cameras, kept.seat.name: Camera.of(kept.seat)}

    @property
    def _descriptors(self) -> Mapping[str, CameraDescriptor]:
        return {sensor.seat.name: sensor.seat.descriptor for sensor in self._sensors.values()}

    def _replace_core(self, plan: CorePlan) -> None:
        retired, self.core = self.core, plan.create_core(self._device, self._threads)
        self.core.set_backpressure_policy(retired.backpressure_policy)
        retired.shutdown()
        self._sensors = {}
        self._first_capture = 1

    def require(self, ability: str, what: str) -> None:
        """Check that the render backend says of itself that it has an ability.

        Raises:
            ValueError: It does not; the message names those that do.
        """
        require_ability(self._render_backend, ability, what)

    def require_randomization(self, kind: Randomization) -> None:
        """Check that the render backend can show this differently in each environment.

        Raises:
            ValueError: It cannot; the message names those that can.
        """
        require_randomization(self._render_backend, kind)

    def _collect_geometry(self, snapshot: RenderSnapshot, plans: Sequence[RenderPlan]) -> FrameStatus:
        """Ask the sources of extra geometry, once, for the snapshot. Where one fails, nobody gets a frame."""
        try:
            snapshot.extra_geometry = self._geometry.collect(snapshot.num_envs)
            self._geometry_failure = ""
            return _OK
        except (GeometrySourceError, GeometryCapacityError) as error:
            is_full = isinstance(error, GeometryCapacityError)
            code = FrameStatusCode.GENERATION_CAPACITY_EXHAUSTED if is_full else FrameStatusCode.FRAME_UNAVAILABLE
            if str(error) != self._geometry_failure:  # once, and not once per step
                self._geometry_failure = str(error)
                _logger.error("%s", error)
            for plan in plans:
                self._sensors[plan.camera_id].data = None
            return FrameStatus(code, message=str(error))

    def _sensor_of(self, seat: CameraSeat) -> Sensor:
        if self._is_closed:
            closed = FrameStatus(FrameStatusCode.STOPPED, message="What renders it was closed.")
            raise RenderTurnError(f"Camera {seat.name!r} has no frame", closed)
        sensor = self._sensors.get(seat.descriptor.id)
        if sensor is None or sensor.seat is not seat or self.provider.backend is not self._backend:
            raise StaleGenerationError(seat.name)
        return sensor

    def _abandon_turn(self) -> None:
        if self._in_flight is not None:
            self._in_flight = None
            self._guard.leave()

    def _present_state(self) -> tuple[int, StateVersion, np.ndarray | None]:
        """Time, version, and the environments' times, for which the device is waited for only where somebody asks."""
        has_periods = any(sensor.period_ns for sensor in self._sensors.values())
        return self._clock(), self._state_version(), self.provider.env_time_ns if has_periods else None

    def _state_version(self) -> StateVersion:
        backend = self.provider.backend
        return (
            (self._live.settings.version, self._geometry.version, self.appearance.version),
            self._clock(),
            backend.transforms_timestamp,
            backend.cameras_timestamp,
            backend.lights_timestamp,
            backend.geometry_timestamp,
        )
