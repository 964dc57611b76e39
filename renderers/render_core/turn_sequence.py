"""TurnSequence: the turns of a simulation, step by step.

Under the physics lock: see who is due, take a snapshot, and enter the in-flight guard. Then, with the lock released:
wait for capacity, submit, finish, hand the frames out, and leave the guard.
"""

import logging
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from scene_data.geometry_sources import GeometryCapacityError, GeometrySourceError

from .admission import InFlightGuard
from .demand import RenderPlan
from .generations import Generations
from .sensors import Sensor, StateVersion
from .simulated_state import SimulatedState
from .snapshots import RenderSnapshot, SnapshotPool
from .status import FrameStatus, FrameStatusCode
from .transport_set import TransportSet
from .turn_delivery import Turn

__all__ = ["TurnSequence"]

_OK = FrameStatus(FrameStatusCode.OK)

_logger = logging.getLogger(__name__)


class TurnSequence:
    """Begins, starts and finishes turns, of which one at a time is in flight. Its owner's turn lock covers every call.

    Args:
        state: What turns show.
        generations: The cameras, and the core that renders for them.
        pool: Where snapshots come from.
        transports: Who gets frames beside the cameras.
        guard: Entered by every turn from its snapshot to its end.

    Attributes:
        dropped_turns: Turns that found the core busy, in the free-running mode.
        dropped_snapshots: Turns that found both snapshot slots in use.
    """

    def __init__(
        self,
        state: SimulatedState,
        generations: Generations,
        pool: SnapshotPool,
        transports: TransportSet,
        guard: InFlightGuard,
    ):
        self.dropped_turns = 0
        self.dropped_snapshots = 0
        self._state = state
        self._generations = generations
        self._pool = pool
        self._transports = transports
        self._guard = guard
        self._in_flight: Turn | None = None
        self._first_capture = 1
        self._geometry_failure = ""

    @property
    def has_any(self) -> bool:
        """Whether a turn was started since the model was loaded."""
        return self._generations.current.turn_count > 0

    @property
    def is_in_flight(self) -> bool:
        """Whether a turn was started and not finished."""
        return self._in_flight is not None

    # -- whole turns

    def run(self, turn: Turn | FrameStatus) -> FrameStatus:
        """Start a turn and finish it."""
        if isinstance(turn, FrameStatus):
            return turn
        status = self.start(turn)
        return self.finish() if status.ok else status

    def start_periodic(self) -> FrameStatus:
        """Start a turn for all who are due, every camera whose period is over among them."""
        self._request_cameras()
        return self.start(self.begin())

    # -- the steps of a turn

    def begin(self, camera_ids: Iterable[int] | None = None) -> Turn | FrameStatus:
        """Who is due at these cameras, or at all, and a snapshot of the present state for them.

        Returns:
            The turn, with the in-flight guard entered; or why there is none: OK where nobody is due,
            SNAPSHOT_POOL_EXHAUSTED, STOPPED during a reload, or what is wrong with the extra geometry.
        """
        core, generation, state = self._generations.core, self._generations.current, self._state
        with state.held():
            now = state.clock()
            self._transports.each(lambda transport: transport.look(now))
            ids = generation.sensors if camera_ids is None else camera_ids
            plans = tuple(plan for plan in (core.evaluate_demand(now, id) for id in ids) if plan.consumers)
            if not plans:
                return _OK
            snapshot = self._take_snapshot(now, plans)
            if isinstance(snapshot, FrameStatus):
                return snapshot
            if not self._guard.enter():
                snapshot.release()
                return FrameStatus(FrameStatusCode.STOPPED, message="The model is being reloaded.")
            snapshot.appearance = state.appearance.state
            record = generation.live.capture(snapshot)
            for_transports = (plan.camera_id for plan in plans if generation.delivery.is_for_transports(plan))
            generation.poses.capture(snapshot, for_transports)
            return Turn(plans, snapshot, now, snapshot.env_times, self._version(), record)

    def begin_where_moved(self, wanted: Collection[Sensor]) -> Turn | FrameStatus:
        """A turn for cameras whose state has moved since their frames, and for others that were read since theirs."""
        with self._state.held():
            present = self._present()
            if all(sensor.data is not None and not sensor.has_moved(*present) for sensor in wanted):
                return _OK
            due = []
            for camera_id, sensor in self._generations.current.sensors.items():
                asked = sensor in wanted
                if (asked and sensor.data is None) or ((asked or sensor.was_read) and sensor.has_moved(*present)):
                    self._generations.core.request_one_shot(sensor.consumer)
                    sensor.data, sensor.was_read = None, False
                    due.append(camera_id)
            return self.begin(due)

    def start(self, turn: Turn | FrameStatus) -> FrameStatus:
        """Wait for capacity, where the policy has it, and submit."""
        if isinstance(turn, FrameStatus):
            return turn
        core = self._generations.core
        status = core.wait_for_frame_capacity(turn.plans)
        if status.ok:
            self._first_capture = core.frames.last_capture_id + 1
            status = core.submit_snapshot(turn.snapshot, turn.plans)
        if status.ok:
            self._in_flight = turn
            self._generations.current.turn_count += 1
        else:
            turn.snapshot.release()
            self._guard.leave()
        return status

    def finish(self, timeout: float | None = None) -> FrameStatus:
        """Wait for the turn in flight and hand its frames out; BUSY when `timeout` [s] was not enough."""
        turn, generation = self._in_flight, self._generations.current
        if turn is None:
            return _OK
        status = self._generations.core.finish_or_cancel_render_turn(timeout)
        if status.code is FrameStatusCode.BUSY:
            return status
        try:
            generation.delivery.deliver(turn, self._first_capture, generation.turn_count)
        finally:
            self.abandon()
        return status

    def abandon(self) -> None:
        """Forget the turn in flight, if there is one."""
        if self._in_flight is not None:
            self._in_flight = None
            self._guard.leave()

    # -- inside

    def _request_cameras(self) -> None:
        """Make the own consumer of every camera due whose period is over."""
        with self._state.physics_lock:
            present = self._present()
            for sensor in self._generations.current.sensors.values():
                if sensor.is_period_over(*present):
                    self._generations.core.request_one_shot(sensor.consumer)

    def _take_snapshot(self, now: int, plans: Sequence[RenderPlan]) -> RenderSnapshot | FrameStatus:
        """The engine's state and the extra geometry, or why they could not be had."""
        result = self._pool.acquire(self._state.provider, self._generations.current.number, now)
        if result.snapshot is None:
            self.dropped_snapshots += result.code is FrameStatusCode.SNAPSHOT_POOL_EXHAUSTED
            return FrameStatus(result.code, message="No snapshot could be taken.")
        status = self._collect_geometry(result.snapshot, plans)
        if not status.ok:
            result.snapshot.release()
            return status
        return result.snapshot

    def _collect_geometry(self, snapshot: RenderSnapshot, plans: Sequence[RenderPlan]) -> FrameStatus:
        """Ask the sources of extra geometry, once, for the snapshot. Where one fails, nobody gets a frame."""
        try:
            snapshot.extra_geometry = self._state.geometry.collect(snapshot.num_envs)
            self._geometry_failure = ""
            return _OK
        except (GeometrySourceError, GeometryCapacityError) as error:
            is_full = isinstance(error, GeometryCapacityError)
            code = FrameStatusCode.GENERATION_CAPACITY_EXHAUSTED if is_full else FrameStatusCode.FRAME_UNAVAILABLE
            if str(error) != self._geometry_failure:  # once, and not once per step
                self._geometry_failure = str(error)
                _logger.error("%s", error)
            for plan in plans:
                self._generations.current.sensors[plan.camera_id].data = None
            return FrameStatus(code, message=str(error))

    def _present(self) -> tuple[int, StateVersion, np.ndarray | None]:
        """Time, version, and the environments' times, for which the device is waited for only where somebody asks."""
        has_periods = any(sensor.period_ns for sensor in self._generations.current.sensors.values())
        env_time_ns = self._state.provider.env_time_ns if has_periods else None
        return self._state.clock(), self._version(), env_time_ns

    def _version(self) -> StateVersion:
        return self._state.version(self._generations.current.live.settings)
