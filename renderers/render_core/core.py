"""RenderCore: one render thread that turns snapshots into leased frames, for any number of consumers."""

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .backend import RenderBackend, RenderConfiguration
from .backend_host import BackendHost, release
from .camera import CameraDescriptor
from .core_stats import RenderStats
from .demand import DemandScheduler, RenderPlan
from .durations import Durations
from .frames import FrameBoundary
from .layout import PlaneKind
from .leases import FrameLease
from .status import FrameStatus, FrameStatusCode, RenderStatus, is_context_integrity_failure
from .turn_journal import TurnJournal
from .turn_queue import TurnQueue
from .turns import RenderTurn, Snapshot, due_plans

if TYPE_CHECKING:
    from scene_data.scene import SceneDescription

__all__ = ["RenderCore", "RenderStats"]

_log = logging.getLogger(__name__)

_DROP, _WAIT_FOR_SLOT = "drop", "wait_for_slot"
_OK = FrameStatus(FrameStatusCode.OK)
_STOPPED = FrameStatus(FrameStatusCode.STOPPED, message="the render core is shut down")
_NOT_ACCEPTING = FrameStatus(FrameStatusCode.STOPPED, message="the render core accepts no snapshots at present")
_NOT_INITIALIZED = FrameStatus(FrameStatusCode.NOT_INITIALIZED, message="the render core is not configured")


class RenderCore:
    """Renders snapshots into frames on a thread of its own, and knows who wants which.

    One turn is rendered and at most one is queued. A turn's generations are checked when it is queued and again when
    the render thread picks it up. A failure of the graphics context is terminal until `reinitialize`; frames committed
    before stay readable. Expected misses are returned as a FrameStatus and never raised. Thread-safe; also a context
    manager that shuts down.

    Args:
        render_backend: Draws; called on the render thread alone.
        max_slots: Frames that exist at once, in writing, committed or held.
        max_bytes: Length of their planes together [bytes].
        device: Warp device of the frames.
        threads: CPU threads that drawing may use; None is as many as the backend likes.

    Attributes:
        frames: The frame store.

    Raises:
        ValueError: No RenderBackend, a limit below 1, or a device that does not exist.
    """

    def __init__(
        self,
        render_backend: RenderBackend,
        max_slots: int,
        max_bytes: int,
        device: Any = "cpu",
        threads: int | None = None,
    ):
        _check_backend(render_backend)
        self.frames = FrameBoundary(max_slots, max_bytes, device)
        self._threads = threads
        self._demand = DemandScheduler()
        self._host = BackendHost(render_backend, self.frames)
        self._queue = TurnQueue()
        self._changed = self._queue.changed  # guards what follows
        self._terminal: FrameStatus | None = None
        self._configuration: RenderConfiguration | None = None
        self._scene: SceneDescription | None = None
        self._is_accepting = True
        self._policy = _DROP
        self._render_times = Durations()
        self._journal = TurnJournal()
        self._wait_epoch = 0  # grows with everything that ends the waits for capacity
        self._reconfiguring = threading.Lock()  # held by one reconfiguration at a time; submissions are BUSY meanwhile
        self._thread = threading.Thread(target=self._run, name="render-core", daemon=True)
        self._thread.start()

    # -- state

    @property
    def status(self) -> FrameStatus:
        """Health of the core: OK, NOT_INITIALIZED, STOPPED or the terminal failure; never the last turn's outcome."""
        with self._changed:
            return self._health() or _OK

    @property
    def last_turn_capture_id(self) -> int:
        """The last capture that the last ended turn began; 0 after a cancelled, stale or terminal turn."""
        return self._queue.last_turn_capture_id

    @property
    def backpressure_policy(self) -> str:
        """What a turn without room does: "drop" ends it, "wait_for_slot" lets the submitting side wait before it."""
        return self._policy

    def set_backpressure_policy(self, policy: str) -> FrameStatus:
        """Choose "drop" or "wait_for_slot"; anything else is INVALID_POLICY, and the policy stays.

        A change back to "drop" ends the waits for capacity with STOPPED.
        """
        if policy not in (_DROP, _WAIT_FOR_SLOT):
            message = f"unknown policy {policy!r}; known are {_DROP!r} and {_WAIT_FOR_SLOT!r}"
            _log.warning("Backpressure policy stays %r: %s", self._policy, message)
            return FrameStatus(FrameStatusCode.INVALID_POLICY, message=message)
        with self._changed:
            before, self._policy = self._policy, policy
        if policy != before:
            _log.info("Backpressure policy: %r, before %r", policy, before)
        if policy == _DROP:
            self._end_capacity_waits()
        return _OK

    def stats(self) -> RenderStats:
        """What the core has done since it was made; see `RenderStats`. Cheap, but not free: ask it as people look."""
        frames = self.frames
        with self._changed:
            queue = self._queue
            turns, outcomes, queue_times = queue.turn_count, dict(queue.outcomes), queue.queue_times.summary()
            render_times = self._render_times.summary()
        return {
            "turns": turns,
            "turn_outcomes": outcomes,
            "captures": frames.last_capture_id,
            "commits": frames.commits,
            "drops": frames.drops,
            "evictions": frames.evictions,
            "waits": frames.waits,
            "queue_times": queue_times,
            "render_times": render_times,
            "records": frames.record_count,
            "reserved_bytes": frames.reserved_bytes,
            "committed_bytes": frames.committed_bytes,
            "storage_allocations": frames.storage_allocations,
            "buffer_growths": frames.buffer_growths,
            "blank_environments": frames.blank_environments,
        }

    # -- configuration

    def reconfigure(
        self,
        model_generation: int,
        frame_generation: int,
        cameras: Iterable[CameraDescriptor],
        scene: "SceneDescription | None" = None,
        warm_slots: int = 0,
    ) -> FrameStatus:
        """Start a model or frame generation, once nothing is queued or rendering. Submissions are BUSY meanwhile.

        The backend is initialized when the model generation changes and resized otherwise. Ends the waits for capacity
        with STOPPED. Consumers stay registered, and leases on earlier frames stay valid.

        Args:
            model_generation: Of the snapshots to come, at least 1.
            frame_generation: Of the plans to come, at least 1 and not older than the one in force.
            cameras: All cameras, with unique ids and planes that the backend supports.
            scene: What a new model looks like, for backends that build from it.
            warm_slots: Slots of the largest plane for which there has to be room beside what is held.

        Returns:
            OK; STOPPED or the terminal failure, with all as it was; GENERATION_CAPACITY_EXHAUSTED or STALE_GENERATION,
            with all as it was; or the failure of the backend, which is terminal.

        Raises:
            ValueError: A generation below 1, no cameras, a repeated id, or an unsupported plane.
        """
        configuration = RenderConfiguration(
            model_generation, frame_generation, tuple(cameras), self.frames.device, self._threads
        )
        configuration.require_support_by(self._host.backend)
        with self._reconfiguring:
            if (refusal := self._wait_until_idle()) is not None:
                return refusal
            status = self.frames.reconfigure(frame_generation, configuration.longest_plane, warm_slots)
            if not status.ok:
                _log.warning(
                    "Frame generation %d was refused: %s. %s", frame_generation, status.code.name, status.message
                )
                return status
            with self._changed:
                is_new_model = self._configuration is None or self._configuration.model_generation != model_generation
                self._scene = scene if is_new_model or scene is not None else self._scene
                self._configuration = configuration
            self._demand.reconfigure(frame_generation, configuration.cameras)
            status = self._prepare_backend()
        if status.ok:
            _log.info(
                "Render core configured: model_generation=%d frame_generation=%d cameras=%s",
                model_generation,
                frame_generation,
                [camera.name for camera in configuration.cameras],
            )
        return status

    def reinitialize(self, render_backend: RenderBackend) -> FrameStatus:
        """Replace the backend, which ends a terminal failure. The old one is shut down on the render thread first.

        Waits until nothing is queued or rendering. Where generations are configured, the new backend is initialized
        for them; a failure of that is terminal again.

        Raises:
            ValueError: No RenderBackend, or one that does not support the configured planes.
        """
        _check_backend(render_backend)
        with self._reconfiguring:
            refusal = self._wait_until_idle()
            if refusal is not None and refusal.code is FrameStatusCode.STOPPED:
                return refusal
            if self._configuration is not None:
                self._configuration.require_support_by(render_backend)
            self._queue.call(lambda: self._host.replace(render_backend))
            with self._changed:
                self._terminal = None
            _log.info("Render backend replaced by %s", type(render_backend).__name__)
            return self._prepare_backend()

    def shutdown(self) -> None:
        """Stop for good: ask the backend to end, drop the queued turn, and join the render thread.

        Frames stay readable. Does nothing the second time.
        """
        with self._changed:
            is_first = not self._queue.is_stopped
            self._queue.stop()
        self._drop_queued("the render core is shut down")
        if is_first:
            self._host.request_stop()
            self._end_capacity_waits()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self.frames.stop()
        if is_first:
            _log.info("Render core shut down after %d turns", self._queue.turn_count)

    def __enter__(self) -> "RenderCore":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # -- consumers

    def register_cadenced_consumer(
        self, name: str, interval_ns: int, camera_id: int = 0, planes: Iterable[PlaneKind] | None = None
    ) -> int:
        """Add a consumer that is due every `interval_ns`. See `DemandScheduler.register_cadenced`."""
        return self._demand.register_cadenced(name, interval_ns, camera_id, planes)

    def register_one_shot_consumer(
        self, name: str, camera_id: int = 0, planes: Iterable[PlaneKind] | None = None
    ) -> int:
        """Add a consumer that is due after each request. See `DemandScheduler.register_one_shot`."""
        return self._demand.register_one_shot(name, camera_id, planes)

    def register_continuous_consumer(
        self, name: str, camera_id: int = 0, planes: Iterable[PlaneKind] | None = None
    ) -> int:
        """Add a consumer that is always due. See `DemandScheduler.register_continuous`."""
        return self._demand.register_continuous(name, camera_id, planes)

    def unregister_consumer(self, consumer_id: int) -> None:
        """Forget a consumer. See `DemandScheduler.unregister`."""
        self._demand.unregister(consumer_id)

    def request_one_shot(self, consumer_id: int) -> None:
        """Make a one-shot consumer due. See `DemandScheduler.request_one_shot`."""
        self._demand.request_one_shot(consumer_id)

    def set_consumer_enabled(self, consumer_id: int, enabled: bool) -> None:
        """Let a consumer be due, or never. See `DemandScheduler.set_enabled`."""
        self._demand.set_enabled(consumer_id, enabled)

    def evaluate_demand(self, simulation_time_ns: int, camera_id: int) -> RenderPlan:
        """Who is due at a camera. See `DemandScheduler.evaluate`."""
        return self._demand.evaluate(simulation_time_ns, camera_id)

    def mark_delivered(self, plan: RenderPlan, consumer_id: int) -> None:
        """Note that a consumer got its frames. See `DemandScheduler.mark_delivered`."""
        self._demand.mark_delivered(plan, consumer_id)

    # -- turns

    def wait_for_frame_capacity(self, plan_or_plans: RenderPlan | Iterable[RenderPlan]) -> FrameStatus:
        """Under "wait_for_slot", wait until the planes of some plans find room; OK at once under "drop".

        Call it without the physics lock. Cancellation, a reconfiguration, `stop_accepting_snapshots`, a terminal
        failure, a change back to "drop" and `shutdown` end the wait with STOPPED.
        """
        plans = due_plans(plan_or_plans)
        with self._changed:
            if (refusal := self._admission()) is not None:
                return refusal
            if self._policy == _DROP or not plans:
                return _OK
            epoch = self._wait_epoch
        lengths = [plan.camera.layout(plane).byte_length for plan in plans if plan.camera for plane in plan.planes]
        return self.frames.wait_for_capacity(
            plans[0].frame_generation, len(lengths), sum(lengths), cancelled=lambda: self._wait_epoch != epoch
        )

    def submit_snapshot(self, snapshot: Snapshot, plan_or_plans: RenderPlan | Iterable[RenderPlan]) -> FrameStatus:
        """Queue a turn that renders a snapshot for all due cameras. Never waits.

        A queued turn owns the snapshot and releases it however the turn ends. Where no turn is queued, because the
        submission is refused or nobody is due, the snapshot stays the caller's.

        Returns:
            OK, also for plans without consumers, which queue nothing; STOPPED; the terminal failure; NOT_INITIALIZED;
            STALE_GENERATION; FRAME_UNAVAILABLE for an invalid snapshot; BUSY while another turn is queued.
        """
        plans = due_plans(plan_or_plans)
        with self._changed:
            refusal = self._admission() or self._health()
            if refusal is None and not plans:
                return _OK
            turn = RenderTurn(snapshot, plans)
            refusal = refusal or self._staleness(turn)
            if refusal is None and (self._reconfiguring.locked() or not self._queue.submit(turn)):
                refusal = FrameStatus(FrameStatusCode.BUSY, message="another turn is queued, or a reconfiguration")
            if refusal is not None:
                self._queue.outcomes[refusal.code.name] += 1
                return refusal
            return FrameStatus(FrameStatusCode.OK, generation=self.frames.generation)

    def finish_or_cancel_render_turn(self, timeout: float | None = None) -> FrameStatus:
        """Wait until nothing is queued or rendering.

        Args:
            timeout: Longest wait [s]; None is for ever.

        Returns:
            The status of the last turn that ended since the last call, OK when there was none; BUSY after the timeout,
            with nothing cancelled.
        """
        return self._queue.finish(timeout)

    def request_cancel_render_turn(self) -> None:
        """Drop the queued turn, let the rendering one end, and end the waits for capacity. Later turns are welcome."""
        self._end_capacity_waits()
        self._drop_queued("the turn was cancelled")

    def stop_accepting_snapshots(self) -> None:
        """Refuse submissions with STOPPED until `start_accepting_snapshots`, and end the waits for capacity."""
        with self._changed:
            self._is_accepting = False
        _log.info("Render core accepts no snapshots")
        self._end_capacity_waits()

    def start_accepting_snapshots(self) -> None:
        """Accept submissions again."""
        with self._changed:
            self._is_accepting = True
        _log.info("Render core accepts snapshots")

    # -- frames

    def acquire_latest(self, camera_id: int, plane: PlaneKind, capture_id: int = 0) -> FrameLease | None:
        """Lease on a camera's newest frame. See `FrameBoundary.acquire_latest`."""
        return self.frames.acquire_latest(plane, camera_id, capture_id)

    def acquire_recent(self, camera_id: int, plane: PlaneKind, max_count: int) -> list[FrameLease]:
        """Leases on a camera's newest frames, oldest first. See `FrameBoundary.acquire_recent`."""
        return self.frames.acquire_recent(camera_id, plane, max_count)

    # -- the render thread

    def _run(self) -> None:
        while (task := self._queue.next_task()) is not None:
            if isinstance(task, RenderTurn):
                self._render(task)
            else:
                future, function = task
                future.set_result(function())
        self._host.end()

    def _render(self, turn: RenderTurn) -> None:
        with self._changed:
            refusal = self._health() or self._staleness(turn)
        if refusal is not None:
            release(turn)
            self._queue.end_rendering(refusal)
            return
        captures_before, started = self.frames.last_capture_id, time.monotonic()
        status = self._frame_status(self._host.render(turn))
        with self._changed:
            self._render_times.note(time.monotonic() - started)
        if is_context_integrity_failure(status):
            self._fail(status)
        else:
            self._journal.note(status)
            if self.frames.last_capture_id > captures_before:
                status = replace(status, capture_id=self.frames.last_capture_id)
        self._queue.end_rendering(status)

    def _prepare_backend(self) -> FrameStatus:
        configuration, scene = self._configuration, self._scene
        if configuration is None:
            return _OK
        result = self._queue.call(lambda: self._host.prepare(scene, configuration))
        if result is None:
            return _STOPPED
        status = self._frame_status(result)
        if not status.ok and not is_context_integrity_failure(status):
            message = f"the backend could not be prepared: {status.code.name}. {status.message}"
            status = replace(status, code=FrameStatusCode.TERMINAL_ERROR, message=message)
        if not status.ok:
            self._fail(status)
        return status

    def _fail(self, status: FrameStatus) -> None:
        with self._changed:
            self._terminal = status
        _log.error("Rendering ended until the backend is replaced: %s. %s", status.code.name, status.message)
        self._end_capacity_waits()

    # -- what is refused, and why

    def _wait_until_idle(self) -> FrameStatus | None:
        """Wait until nothing is queued or rendering, and say what then forbids a change, if anything."""
        self._end_capacity_waits()
        with self._changed:
            self._queue.wait_until_idle()
            return self._failure()

    def _failure(self) -> FrameStatus | None:
        return _STOPPED if self._queue.is_stopped else self._terminal

    def _health(self) -> FrameStatus | None:
        not_initialized = _NOT_INITIALIZED if self._configuration is None else None
        return self._failure() or not_initialized

    def _admission(self) -> FrameStatus | None:
        return self._failure() if self._is_accepting or self._queue.is_stopped else _NOT_ACCEPTING

    def _staleness(self, turn: RenderTurn) -> FrameStatus | None:
        return turn.staleness(self._configuration) if self._configuration is not None else None

    def _end_capacity_waits(self) -> None:
        with self._changed:
            self._wait_epoch += 1
        self.frames.notify_capacity_waiters()

    def _drop_queued(self, reason: str) -> None:
        status = FrameStatus(FrameStatusCode.STOPPED, generation=self.frames.generation, message=reason)
        if (turn := self._queue.drop_queued(status)) is not None:
            release(turn)

    def _frame_status(self, status: RenderStatus) -> FrameStatus:
        return FrameStatus(status.code.frame_code, generation=self.frames.generation, message=status.message)


def _check_backend(backend: RenderBackend) -> None:
    if not isinstance(backend, RenderBackend):
        raise ValueError(f"a render core needs a RenderBackend, not {backend!r}")
