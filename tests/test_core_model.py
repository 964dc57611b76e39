"""RenderCore against a small model of its rules: whatever is called in whatever order, both say the same."""

import threading
from dataclasses import dataclass, replace
from queue import SimpleQueue

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scene_data.renderers import (
    CameraDescriptor,
    ContextIntegrityError,
    FrameStatus,
    FrameStatusCode,
    PlaneKind,
    RenderBackend,
    RenderCore,
    RenderStatus,
    RenderStatusCode,
)

Code = FrameStatusCode
RGB = PlaneKind.RGB
CAMERA = CameraDescriptor(1, "front", 4, 2, (RGB,))
DEADLINE = 10.0
RENDERS_WELL = RenderStatus(RenderStatusCode.OK)
OUTCOMES = {
    "well": (RENDERS_WELL, Code.OK),
    "miss": (RuntimeError("a miss"), Code.FRAME_UNAVAILABLE),
    "refused": (RenderStatus(RenderStatusCode.FRAME_SLOTS_EXHAUSTED), Code.FRAME_SLOTS_EXHAUSTED),
    "lost": (ContextIntegrityError("lost"), Code.BACKEND_FAILURE),
    "terminal": (RenderStatus(RenderStatusCode.TERMINAL_ERROR), Code.TERMINAL_ERROR),
}


class Snapshot:
    """What a core asks of a snapshot."""

    def __init__(self, model_generation: int):
        self.model_generation = model_generation
        self.simulation_time_ns = 0
        self.valid = True
        self.releases = 0

    def release(self) -> None:
        self.releases += 1
        self.valid = False


class SteppedBackend(RenderBackend):
    """Renders one plane per turn, and ends each render as it is told."""

    def __init__(self):
        self.started: SimpleQueue[Snapshot] = SimpleQueue()
        self.endings: SimpleQueue[object] = SimpleQueue()

    def initialize(self, scene, configuration):
        return RENDERS_WELL

    def resize(self, configuration):
        return RENDERS_WELL

    def render(self, snapshot, plans, boundary):
        self.started.put(snapshot)
        ending = self.endings.get(timeout=DEADLINE)
        stamp = boundary.begin_capture(snapshot.model_generation, 0, plans[0].camera_id)
        layout = CAMERA.layout(RGB)
        with boundary.try_acquire_writer(plans[0].frame_generation, RGB, layout, stamp) as writer:
            if ending is RENDERS_WELL:
                writer.commit()
        if isinstance(ending, Exception):
            raise ending
        return ending

    def shutdown_on_render_thread(self):
        pass

    def request_stop(self):
        self.endings.put(RENDERS_WELL)


@dataclass(frozen=True)
class Told:
    """What `finish` is going to say, and `last_turn_capture_id`."""

    code: Code | None = None
    capture_id: int = 0


class CoreModel(RuleBasedStateMachine):
    """One turn renders, one is queued, and every refusal has its rank: stopped, terminal, stale, busy."""

    @initialize()
    def create(self):
        self.backend = SteppedBackend()
        self.core = RenderCore(self.backend, 4, 4 * CAMERA.layout(RGB).byte_length)
        assert self.core.reconfigure(1, 1, [CAMERA]).ok
        self.consumer = self.core.register_continuous_consumer("one")
        self.generations = (1, 1)
        self.accepting = True
        self.terminal: Code | None = None
        self.rendering: Snapshot | None = None
        self.queued: Snapshot | None = None
        self.told = Told()
        self.captures = 0
        self.frames: list[int] = []
        self.given: list[Snapshot] = []

    def teardown(self):
        if hasattr(self, "core"):
            self.core.shutdown()
            assert self.core.status.code is Code.STOPPED
            assert all(snapshot.releases == 1 for snapshot in self.given)

    def submit(self, snapshot: Snapshot, stale_plan: bool = False) -> FrameStatus:
        plan = self.core.evaluate_demand(0, CAMERA.id)
        return self.core.submit_snapshot(snapshot, replace(plan, frame_generation=99) if stale_plan else plan)

    def end(self, code: Code, capture_id: int = 0) -> None:
        self.told = Told(code, capture_id)

    @rule(model_offset=st.sampled_from([0, 0, 0, 1]), stale_plan=st.sampled_from([False, False, False, True]))
    def submits(self, model_offset, stale_plan):
        snapshot = Snapshot(self.generations[0] + model_offset)
        code = self.submit(snapshot, stale_plan).code
        if not self.accepting:
            assert code is Code.STOPPED
        elif self.terminal is not None:
            assert code is self.terminal
        elif model_offset or stale_plan:
            assert code is Code.STALE_GENERATION
        elif self.queued is not None:
            assert code is Code.BUSY
        else:
            assert code is Code.OK
            self.given.append(snapshot)
            self.queued = snapshot
            self.pick_up()
            return
        assert snapshot.releases == 0

    @rule()
    def submits_for_nobody(self):
        self.core.set_consumer_enabled(self.consumer, False)
        snapshot = Snapshot(self.generations[0])
        expected = (Code.OK if self.terminal is None else self.terminal) if self.accepting else Code.STOPPED
        assert self.submit(snapshot).code is expected
        assert snapshot.releases == 0
        self.core.set_consumer_enabled(self.consumer, True)

    def pick_up(self):
        """The render thread takes the queued turn as soon as it is free."""
        while self.rendering is None and self.queued is not None:
            snapshot, self.queued = self.queued, None
            if self.terminal is not None:
                self.end(self.terminal)
            else:
                assert self.backend.started.get(timeout=DEADLINE) is snapshot
                self.rendering = snapshot

    @precondition(lambda self: self.rendering is not None)
    @rule(outcome=st.sampled_from(sorted(OUTCOMES)))
    def render_ends(self, outcome):
        ending, code = OUTCOMES[outcome]
        snapshot, self.rendering = self.rendering, None
        self.captures += 1
        self.backend.endings.put(ending)
        if outcome in ("lost", "terminal"):
            self.terminal = code
            self.end(code)
        else:
            self.end(code, self.captures)
        if outcome == "well":
            self.frames.append(self.captures)
        self.pick_up()
        if self.rendering is None:
            code = self.core.finish_or_cancel_render_turn(timeout=DEADLINE).code
            assert code is self.told.code
            self.told = replace(self.told, code=None)
        assert snapshot.releases == 1

    @rule()
    def finishes(self):
        status = self.core.finish_or_cancel_render_turn(timeout=0.0)
        if self.rendering is not None:
            assert status.code is Code.BUSY
        else:
            assert status.code is (self.told.code or Code.OK)
            self.told = replace(self.told, code=None)

    @rule()
    def cancels(self):
        self.core.request_cancel_render_turn()
        if self.queued is not None:
            assert self.queued.releases == 1
            self.queued = None
            self.end(Code.STOPPED)

    @rule(accepting=st.booleans())
    def opens_or_closes(self, accepting):
        if accepting:
            self.core.start_accepting_snapshots()
        else:
            self.core.stop_accepting_snapshots()
        self.accepting = accepting

    @precondition(lambda self: self.rendering is None)
    @rule(is_new_model=st.booleans())
    def reconfigures(self, is_new_model):
        model, frame = self.generations
        wanted = (model + is_new_model, frame + 1)
        code = self.core.reconfigure(*wanted, [CAMERA]).code
        if self.terminal is not None:
            assert code is self.terminal
            return
        assert code is Code.OK
        self.generations = wanted
        self.frames.clear()

    @precondition(lambda self: self.rendering is None)
    @rule()
    def gets_another_backend(self):
        self.backend = SteppedBackend()
        assert self.core.reinitialize(self.backend).ok
        self.terminal = None

    @invariant()
    def agrees(self):
        core = self.core
        assert core.status.code is (self.terminal or Code.OK)
        assert core.last_turn_capture_id == self.told.capture_id
        assert core.frames.generation == self.generations[1]
        assert core.frames.reserved_slots == 0
        leases = core.acquire_recent(CAMERA.id, RGB, 9)
        assert [lease.stamp.capture_id for lease in leases] == self.frames[-4:]
        assert {lease.stamp.model_generation for lease in leases} <= {self.generations[0]}
        assert sum(thread.name == "render-core" for thread in threading.enumerate()) == 1


TestCoreModel = CoreModel.TestCase
TestCoreModel.settings = settings(max_examples=40, stateful_step_count=25)
