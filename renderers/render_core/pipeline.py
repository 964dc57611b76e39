"""RenderPipeline: what a simulation does so that its cameras have frames.

It composes the state that is shown, the generations of cameras, and the turns, which a render mode paces.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scene_data.appearance import Appearance, Randomization
from scene_data.camera import CameraCfg
from scene_data.errors import UnknownNameError
from scene_data.geometry_sources import GeometrySources
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

from ..camera_data import CameraData
from ..camera_seat import CameraSeat
from ..camera_sensor import Camera
from .abilities import require_ability, require_randomization
from .admission import InFlightGuard
from .camera_settings import CameraSetting
from .core import RenderCore
from .core_plan import HELD_FRAMES, CorePlan
from .generations import Generations
from .pacing import PACINGS
from .publication import FrameTransport
from .sensors import Sensor
from .simulated_state import SimulatedState
from .snapshots import SnapshotPool
from .status import FrameStatus, FrameStatusCode, RenderTurnError
from .transport_set import TransportSet
from .turn_sequence import TurnSequence

__all__ = ["RenderPipeline"]


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
        appearance: The looks of environments.
        pool: Where snapshots come from.

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
        self.appearance = appearance or Appearance(
            lambda: provider.backend.describe_scene(), physics_lock, self.require_randomization
        )
        self.pool = SnapshotPool()
        self._render_backend = render_backend
        self._max_frame_bytes = max_frame_bytes
        self._held_frames = held_frames
        self._is_closed = False
        self._turn_lock = threading.Lock()
        self._guard = InFlightGuard()
        self._pacing = PACINGS[render_mode]()
        self._transports = TransportSet()
        sources = GeometrySources(()) if geometry is None else geometry
        self._state = SimulatedState(provider, physics_lock, clock, sources, self.appearance)
        self._generations = Generations(
            self.plan(provider.backend.describe_scene(), cameras),
            provider,
            self.pool,
            self._transports,
            host=self,
            device=device,
            threads=self._pacing.render_threads if render_threads is None else render_threads,
        )
        self._turns = TurnSequence(self._state, self._generations, self.pool, self._transports, self._guard)

    @property
    def core(self) -> RenderCore:
        """The render core."""
        return self._generations.core

    @property
    def cameras(self) -> Mapping[str, Camera]:
        """The cameras by name."""
        return self._generations.current.cameras

    @property
    def dropped_turns(self) -> int:
        """Turns that found the core busy, in the free-running mode."""
        return self._turns.dropped_turns

    @property
    def dropped_snapshots(self) -> int:
        """Turns that found both snapshot slots in use."""
        return self._turns.dropped_snapshots

    # -- what a simulation calls

    def plan(self, scene: SceneDescription, cameras: Sequence[CameraCfg]) -> CorePlan:
        """What a core for these cameras has to be; raises what does not fit, and touches nothing."""
        return CorePlan.of(scene, cameras, self._render_backend, self._max_frame_bytes, self._held_frames)

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

    def add_cameras(self, cameras: Sequence[CameraCfg]) -> None:
        """Serve more cameras. Those that there are, what is set about them, and what was delivered stay as they are.

        Turns that are under way end first. Transports start anew, as after a reload.

        Raises:
            UnknownNameError, ValueError: As at the construction; nothing has changed then.
            RenderTurnError: The render backend could not be set up.
        """
        before = self._generations.plan
        plan = self.plan(before.scene, (*before.cameras, *cameras))
        self._restart(lambda: self._generations.extend(plan))

    # -- what cameras call

    def read(self, seat: CameraSeat) -> CameraData:
        """What the render mode has for a camera now; see `Camera.data`."""
        return self.read_all([seat])[seat.name]

    def read_all(self, seats: Sequence[CameraSeat]) -> dict[str, CameraData]:
        """What the render mode has for cameras now, by name; in the synchronous mode of one and the same state."""
        with self._turn_lock:
            sensors = [self._sensor_of(seat) for seat in seats]
            status = self._pacing.before_read(self._turns, sensors)
            delivered: dict[str, CameraData] = {}
            for sensor in sensors:
                if sensor.data is None:
                    told = self._generations.current.delivery.with_holders(status)
                    raise RenderTurnError(f"Camera {sensor.seat.name!r} has no frame", told)
                delivered[sensor.seat.name], sensor.was_read = sensor.data, True
            return delivered

    def lag(self, seat: CameraSeat) -> int:
        """Turns that were started after the one that a camera shows."""
        with self._turn_lock:
            sensor = self._sensor_of(seat)
            return self._generations.current.turn_count - sensor.turn if sensor.data is not None else 0

    def lag_ns(self, seat: CameraSeat) -> int:
        """Simulation time that has passed since what a camera shows [ns]."""
        with self._turn_lock:
            sensor = self._sensor_of(seat)
            return self._state.clock() - sensor.data.info.simulation_time_ns if sensor.data is not None else 0

    def change(self, seat: CameraSeat, change: Callable[[CameraSetting], CameraSetting]) -> None:
        """Change what is set about a camera, from the next snapshot on."""
        self.require("applies_camera_settings", "cameras that change at run time")
        with self._state.physics_lock:
            self._sensor_of(seat)
            self._generations.current.live.change(seat.descriptor.id, change)

    # -- what a simulation calls around steps

    def before_step(self) -> None:
        """Let the render mode do what it has to before the physics steps."""
        with self._turn_lock:
            self._pacing.before_step(self._turns)

    def after_step(self) -> FrameStatus:
        """Render for whom it is time, as the render mode has it."""
        with self._turn_lock:
            return self._pacing.after_step(self._turns)

    def add_transport(self, transport: FrameTransport) -> None:
        """Hand the frames of the turns to come to a transport too; it is closed if it cannot start."""
        with self._turn_lock:
            try:
                self._start_transport(transport)
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

        def start() -> None:
            with self._state.physics_lock:
                swap_engine()
            self._generations.start(plan)

        self._restart(start)

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
        self._generations.current.unregister()
        self.core.request_cancel_render_turn()
        self.core.shutdown()
        with self._turn_lock:
            self._turns.abandon()
            for sensor in self._generations.current.sensors.values():
                sensor.data = None
        self._guard.wait_empty()
        self.pool.deactivate()
        if failures:
            raise ExceptionGroup("closing the transports failed", failures)

    # -- inside

    def _restart(self, start_generation: Callable[[], None]) -> None:
        """Let what is under way end, and go on with another generation."""
        with self._guard.closed():
            self.core.stop_accepting_snapshots()
            self.core.request_cancel_render_turn()
            self.core.finish_or_cancel_render_turn()
            with self._turn_lock:
                self._turns.abandon()
                self._guard.wait_empty()
                self._transports.each(lambda transport: transport.stop())
                start_generation()
                self._transports.each(self._start_transport)
            self.core.start_accepting_snapshots()

    def _start_transport(self, transport: FrameTransport) -> None:
        transport.start(self.core, self._generations.current.descriptors)

    def _sensor_of(self, seat: CameraSeat) -> Sensor:
        if self._is_closed:
            closed = FrameStatus(FrameStatusCode.STOPPED, message="What renders it was closed.")
            raise RenderTurnError(f"Camera {seat.name!r} has no frame", closed)
        return self._generations.current.sensor_of(seat)
