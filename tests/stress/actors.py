"""Who takes part in a stress run: a producer, consumers, somebody who reconfigures, and a backend that fails."""

import random
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from patterns import VIEWS, Sight, fill

from scene_data.renderers import (
    CameraDescriptor,
    ContextIntegrityError,
    PlaneKind,
    RenderBackend,
    RenderCore,
    RenderStatus,
    RenderStatusCode,
    is_context_integrity_failure,
)

RGB, DEPTH, SEGMENTATION = PlaneKind.RGB, PlaneKind.DEPTH, PlaneKind.SEGMENTATION
RIGS = (
    (CameraDescriptor(1, "front", 16, 12, (RGB, DEPTH)), CameraDescriptor(2, "wrist", 12, 8, (RGB, SEGMENTATION))),
    (CameraDescriptor(1, "front", 20, 10, (RGB,)),),
    (CameraDescriptor(2, "wrist", 8, 8, (DEPTH, SEGMENTATION)), CameraDescriptor(3, "top", 16, 12, (RGB,), num_envs=2)),
)
"""Sets of cameras that a run changes between."""

HELD_PER_CONSUMER = 2
MAX_SLOTS = 9  # for two turns and a bit, far fewer than the consumers could hold together
MAX_BYTES = MAX_SLOTS * max(
    camera.layout(plane).byte_length for rig in RIGS for camera in rig for plane in camera.planes
)


class Snapshot:
    """All that a core asks of a snapshot, and a count of those that are not given back."""

    alive: ClassVar[Counter[str]] = Counter()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, model_generation: int, simulation_time_ns: int):
        self.model_generation = model_generation
        self.simulation_time_ns = simulation_time_ns
        self.valid = True
        self._count(1)

    def release(self) -> None:
        assert self.valid, "released twice"
        self.valid = False
        self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self.alive["snapshots"] += change


class UnstableBackend(RenderBackend):
    """Draws patterns; at times it raises, loses its context, returns nonsense, or blocks until it is asked to stop."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._threads: set[int] = set()

    def initialize(self, scene, configuration):
        self._note_thread()
        return self._prepared()

    def resize(self, configuration):
        self._note_thread()
        return self._prepared()

    def render(self, snapshot, plans, boundary):
        self._note_thread()
        assert snapshot.valid
        dice = self._random.random()
        if dice < 0.02:
            self._stop.wait(0.05)  # blocks, and recovers
        status = RenderStatus(RenderStatusCode.OK)
        for plan in plans:
            stamp = boundary.begin_capture(snapshot.model_generation, snapshot.simulation_time_ns, plan.camera_id)
            for plane in plan.planes:
                layout = plan.camera.layout(plane)
                writer = boundary.try_acquire_writer(plan.frame_generation, plane, layout, stamp)
                if not writer.status.ok:
                    status = RenderStatus(RenderStatusCode[writer.status.code.name], writer.status.message)
                    continue
                fill(writer.buffer, stamp, plane)
                if self._random.random() < 0.03:
                    raise RuntimeError("a frame that is written and never committed")
                writer.commit()
        if dice > 0.995:
            raise ContextIntegrityError("the context is gone")
        return None if dice > 0.985 else status

    def shutdown_on_render_thread(self):
        self._note_thread()
        assert len(self._threads) == 1, "more than one thread called the backend"

    def request_stop(self):
        self._stop.set()

    def _prepared(self) -> RenderStatus:
        if self._random.random() < 0.01:
            raise RuntimeError("the driver does not want to")
        return RenderStatus(RenderStatusCode.OK)

    def _note_thread(self) -> None:
        self._threads.add(threading.get_ident())


class World:
    """What the actors share.

    Attributes:
        core: The core under stress.
        stopping: Set when the run is over.
        counts: What happened, for the report.
        failures: What must not happen.
        beats: How often each actor came around; one that stands still is stuck.
    """

    def __init__(self, seed: int):
        self.core = RenderCore(UnstableBackend(seed), MAX_SLOTS, MAX_BYTES)
        self.stopping = threading.Event()
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.beats: Counter[str] = Counter()
        self.rig = RIGS[0]
        self.generations = (1, 1)
        self._seed = seed
        self._lock = threading.Lock()
        while not self.core.reconfigure(1, 1, self.rig, warm_slots=1).ok:
            self.replace_backend(random.Random(seed))
        self.core.register_continuous_consumer("everything")

    def replace_backend(self, dice: random.Random) -> None:
        """What an owner does about a terminal failure."""
        self.core.reinitialize(UnstableBackend(dice.getrandbits(32)))
        self.count("backends replaced")

    def count(self, what: str, number: int = 1) -> None:
        """Count for the report."""
        with self._lock:
            self.counts[what] += number

    def fail(self, what: str) -> None:
        """Note what must not happen."""
        self.failures.append(what)
        self.stopping.set()


def play(actor: Callable[[World, int], None], world: World, seed: int) -> None:
    """Run an actor; what it raises is a failure of the run."""
    try:
        actor(world, seed)
    except BaseException:
        world.fail(traceback.format_exc())


def produce(world: World, seed: int) -> None:
    """Step, see who is due, wait for room, submit, and at times finish, cancel or go on at once."""
    dice, core, time_ns = random.Random(seed), world.core, 0
    while not world.stopping.is_set():
        world.beats["producer"] += 1
        time_ns += 1_000_000
        model_generation, _ = world.generations
        try:
            plans = [core.evaluate_demand(time_ns, camera.id) for camera in world.rig]
        except ValueError:  # the cameras changed meanwhile
            continue
        snapshot = Snapshot(model_generation, time_ns)
        status = core.wait_for_frame_capacity(plans)
        if status.ok:
            status = core.submit_snapshot(snapshot, plans)
        if not status.ok:
            snapshot.release()
            world.stopping.wait(0.0005)
        world.count(f"submitted {status.code.name}")
        action = dice.random()
        if action < 0.5:
            status = core.finish_or_cancel_render_turn(timeout=dice.choice((0.0, 0.02, None)))
        elif action < 0.55:
            core.request_cancel_render_turn()
        if is_context_integrity_failure(status) or is_context_integrity_failure(core.status):
            world.replace_backend(dice)
    core.finish_or_cancel_render_turn(timeout=10.0)


def consume(world: World, seed: int) -> None:
    """Take, hold, look and let go in any order; every look at any moment has to find the frame whole."""
    dice, name, held = random.Random(seed), f"consumer {seed}", []
    while not world.stopping.is_set():
        world.beats[name] += 1
        held += _take(world, dice, at_most=HELD_PER_CONSUMER - len(held))
        world.count("views verified", len(held))
        for index, sight in enumerate(held):
            if not sight.is_whole():
                world.fail(f"{name} sees {sight.kind} {index} of {sight.plane} {sight.stamp} torn or changed")
        sight = None
        if held and dice.random() < 0.6:
            del held[dice.randrange(len(held))]
        if dice.random() < 0.3:
            world.stopping.wait(dice.random() * 0.01)


def _take(world: World, dice: random.Random, at_most: int) -> list[Sight]:
    camera, plane = dice.choice((0, 1, 2, 3)), dice.choice((RGB, DEPTH, SEGMENTATION))
    if dice.random() < 0.5:
        lease = world.core.acquire_latest(camera, plane)
        leases = [] if lease is None else [lease]
    else:
        leases = world.core.acquire_recent(camera, plane, dice.randrange(4))
    for lease in leases:
        if camera not in (0, lease.stamp.camera_id) or lease.plane is not plane:
            world.fail(f"asked for {plane} of camera {camera}, and got {lease.plane} {lease.stamp}")
    sequences = [lease.stamp.plane_sequence for lease in leases]
    if sequences != sorted(sequences):
        world.fail(f"recent frames are not oldest first: {sequences}")
    return [Sight(lease, dice.choice(list(VIEWS)), dice.random() < 0.5) for lease in leases[:at_most]]


def disturb(world: World, seed: int) -> None:
    """Reconfigure, change the policy, close admission, cancel."""
    dice, core = random.Random(seed), world.core
    while not world.stopping.wait(dice.random() * 0.1):
        world.beats["disturber"] += 1
        match dice.randrange(6):
            case 0 | 1:
                _reconfigure(world, dice)
            case 2 | 3:
                core.set_backpressure_policy(dice.choice(("drop", "wait_for_slot")))
            case 4:
                core.stop_accepting_snapshots()
                world.stopping.wait(0.005)
                core.start_accepting_snapshots()
            case 5:
                core.request_cancel_render_turn()
        core.stats()
    core.set_backpressure_policy("drop")


def _reconfigure(world: World, dice: random.Random) -> None:
    rig = dice.choice(RIGS)
    model, frame = world.generations
    wanted = (model + dice.randrange(2), frame + 1)
    status = world.core.reconfigure(*wanted, rig, warm_slots=dice.randrange(4))
    world.count(f"reconfigured {status.code.name}")
    if status.ok or is_context_integrity_failure(status):
        in_force = world.core.frames.generation == wanted[1]
        if in_force:
            world.rig, world.generations = rig, wanted
