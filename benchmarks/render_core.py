"""What the render core itself costs, with renders that cost nothing or a fixed time: targets, figures and ratios.

- One small plane written, committed, taken as the latest and released: under 60 µs in all.
- Eight threads that take and release leases: together at least half of what one thread does.
- Physics steps per second in the free-running mode beside a slow render: at least 0.9 of those without any render, and
  the 99th percentile of `step()` never contains a render.

Ratios are medians of interleaved runs, since absolute times say more about the machine than about the code.
Run: python benchmarks/render_core.py
"""

import hashlib
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import mujoco_warp as mjw
import numpy as np
import warp as wp

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import CameraCfg
from scene_data.registry import renderers
from scene_data.renderers import FrameBoundary, PlaneKind, PlaneLayout, RenderBackend, RenderStatus, RenderStatusCode

RGB = PlaneKind.RGB
LAYOUT = PlaneLayout.rgb8(64, 48)
SLOTS = 64
ROUNDS = 7
RENDER_S = 0.1  # as software OpenGL takes

MODEL = Path(mjw.__file__).parent / "test_data" / "humanoid" / "humanoid.xml"
WORK = bytes(4 << 20)
CAMERA = CameraCfg("free", 64, 48, ("rgb",))


class SlowBackend(RenderBackend):
    """Waits as long as a slow render on another device takes, and commits what happens to be there."""

    computes = False

    def initialize(self, scene, configuration):
        return RenderStatus(RenderStatusCode.OK)

    def resize(self, configuration):
        return RenderStatus(RenderStatusCode.OK)

    def render(self, snapshot, plans, boundary):
        end = time.perf_counter() + RENDER_S
        while time.perf_counter() < end:
            if self.computes:
                hashlib.sha256(WORK)  # lets go of Python's lock
            else:
                time.sleep(RENDER_S / 10)
        for plan in plans:
            stamp = boundary.begin_capture(snapshot.model_generation, snapshot.simulation_time_ns, plan.camera_id)
            for plane in plan.planes:
                boundary.try_acquire_writer(plan.frame_generation, plane, plan.camera.layout(plane), stamp).commit()
        return RenderStatus(RenderStatusCode.OK)

    def shutdown_on_render_thread(self):
        pass


class BusyBackend(SlowBackend):
    """The same on this machine: keeps one core busy, and says something where another core is idle."""

    computes = True


def store() -> FrameBoundary:
    boundary = FrameBoundary(SLOTS, SLOTS * LAYOUT.byte_length)
    assert boundary.reconfigure(1, LAYOUT.byte_length).ok
    for _ in range(2 * SLOTS):
        one_frame(boundary)
    return boundary


def one_frame(boundary: FrameBoundary) -> None:
    stamp = boundary.begin_capture(1, 0, 1)
    with boundary.try_acquire_writer(1, RGB, LAYOUT, stamp) as writer:
        writer.commit()
    lease = boundary.acquire_latest(RGB, 1)
    assert lease is not None
    lease.release()


def seconds_per_call(call: Callable[[], None], count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - started) / count


def lease_rate(boundary: FrameBoundary, threads: int, seconds: float = 0.5) -> float:
    """Leases per second that some threads take and release together."""
    counts, stop = [0] * threads, threading.Event()

    def read(index: int) -> None:
        while not stop.is_set():
            for _ in range(50):
                lease = boundary.acquire_latest(RGB, 1)
                assert lease is not None
                lease.release()
            counts[index] += 50

    readers = [threading.Thread(target=read, args=(index,)) for index in range(threads)]
    started = time.perf_counter()
    for reader in readers:
        reader.start()
    time.sleep(seconds)
    stop.set()
    for reader in readers:
        reader.join()
    return sum(counts) / (time.perf_counter() - started)


def simulation(render_backend: str | None) -> SimulationContext:
    """The C engine, beside a slow render or without one."""
    physics, cameras = MujocoPhysicsCfg(MODEL, "mujoco"), (CAMERA,) if render_backend else ()
    cfg = SimulationCfg(physics, cameras=cameras, render_mode="free_running", render_backend=render_backend or "slow")
    return SimulationContext(cfg)


def step_times(sim: SimulationContext, seconds: float = 2 * RENDER_S) -> tuple[np.ndarray, float]:
    """How long each `step()` took, and what the stepping thread computed per step [s]."""
    times = []
    computed = time.thread_time()
    start = last = time.perf_counter()
    while last < start + seconds:
        sim.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
    return np.array(times), (time.thread_time() - computed) / len(times)


def verdict(ok: bool) -> str:
    return "met" if ok else "MISSED"


def compare_steps(render_backend: str, where: str) -> None:
    with simulation(None) as alone, simulation(render_backend) as beside:
        runs = [(step_times(alone), step_times(beside)) for _ in range(5 * ROUNDS)][ROUNDS:]  # the first ones compile
        turns = beside.stats()["render"]["turns"]
    ratio = statistics.median(a.mean() / b.mean() for (a, _), (b, _) in runs)
    computed = statistics.median(a / b for (_, a), (_, b) in runs)
    alone_rate = statistics.median(1.0 / a.mean() for (a, _), _ in runs)
    alone_p99, p99 = (
        float(np.percentile(np.concatenate([times for times, _ in column]), 99)) for column in zip(*runs, strict=True)
    )
    print(
        f"physics beside a render of {RENDER_S * 1e3:.0f} ms {where}: {ratio:.2f} of {alone_rate:,.0f} steps/s, ",
        end="",
    )
    print(f"with {turns} turns (target >= 0.9: {verdict(ratio >= 0.9)})")
    print(f"    by what the stepping thread computes, whatever else the machine does: {computed:.2f}")
    print(f"p99 of step(): {p99 * 1e6:.0f} µs, {alone_p99 * 1e6:.0f} µs without renders", end="")
    print(f" (target < a render: {verdict(p99 < RENDER_S)})")


def main() -> None:
    wp.config.quiet = True
    renderers.register("slow", SlowBackend)
    renderers.register("busy", BusyBackend)
    boundary = store()
    # What else runs on the machine only ever adds to it, so the fastest round tells what the code costs.
    per_frame = min(seconds_per_call(lambda: one_frame(boundary), 200) for _ in range(10 * ROUNDS))
    print(f"commit, latest and release of a {LAYOUT.width}x{LAYOUT.height} plane: {per_frame * 1e6:.1f} µs", end="")
    print(f" (target < 60 µs: {verdict(per_frame < 60e-6)})")

    rates = [(lease_rate(boundary, 1), lease_rate(boundary, 8)) for _ in range(ROUNDS)]
    ratio = statistics.median(eight / one for one, eight in rates)
    one, eight = (statistics.median(column) for column in zip(*rates, strict=True))
    print(f"leases: {one:,.0f}/s by one thread, {eight:,.0f}/s by eight: ratio {ratio:.2f}", end="")
    print(f" (target >= 0.5: {verdict(ratio >= 0.5)})")

    compare_steps("slow", "elsewhere")
    compare_steps("busy", "on this machine")


if __name__ == "__main__":
    main()
