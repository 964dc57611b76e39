"""What the render core itself costs, with renders that cost nothing or a fixed time: targets, figures and ratios.

- One small plane written, committed, taken as the latest and released: under 60 µs in all.
- Eight threads that take and release leases: together at least half of what one thread does.
- Physics steps per second in the free-running mode beside a slow render: at least 0.9 of those without any render, and
  the 99th percentile of `step()` never contains a render.

Ratios are medians of interleaved runs, since absolute times say more about the machine than about the code.
Run: python benchmarks/render_core.py
"""

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
RENDER_S = 0.05

MODEL = Path(mjw.__file__).parent / "test_data" / "humanoid" / "humanoid.xml"
CAMERA = CameraCfg("free", 64, 48, ("rgb",))


class SlowBackend(RenderBackend):
    """Waits as long as a render on another device would take, and commits what happens to be there."""

    def initialize(self, scene, configuration):
        return RenderStatus(RenderStatusCode.OK)

    def resize(self, configuration):
        return RenderStatus(RenderStatusCode.OK)

    def render(self, snapshot, plans, boundary):
        time.sleep(RENDER_S)
        for plan in plans:
            stamp = boundary.begin_capture(snapshot.model_generation, snapshot.simulation_time_ns, plan.camera_id)
            for plane in plan.planes:
                boundary.try_acquire_writer(plan.frame_generation, plane, plan.camera.layout(plane), stamp).commit()
        return RenderStatus(RenderStatusCode.OK)

    def shutdown_on_render_thread(self):
        pass


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


def step_times(renders: bool, seconds: float = 1.0) -> np.ndarray:
    """How long each `step()` of the C engine took [s], beside a slow render or without one."""
    physics, cameras = MujocoPhysicsCfg(MODEL, "mujoco"), (CAMERA,) if renders else ()
    cfg = SimulationCfg(physics, cameras=cameras, render_mode="free_running", render_backend="slow")
    with SimulationContext(cfg) as sim:
        for _ in range(200):
            sim.step()
        times = []
        end = last = time.perf_counter()
        while last < end + seconds:
            sim.step()
            now = time.perf_counter()
            times.append(now - last)
            last = now
        if renders:
            stats = sim.stats()
            assert stats["render"]["turns"] > 0.5 * seconds / RENDER_S
    return np.array(times)


def verdict(ok: bool) -> str:
    return "met" if ok else "MISSED"


def main() -> None:
    wp.config.quiet = True
    renderers.register("slow", SlowBackend)
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

    step_times(renders=True, seconds=0.2)
    runs = [(step_times(renders=False), step_times(renders=True)) for _ in range(ROUNDS)]
    ratio = statistics.median((len(beside) / beside.sum()) / (len(alone) / alone.sum()) for alone, beside in runs)
    alone_rate = statistics.median(len(alone) / alone.sum() for alone, _ in runs)
    p99 = statistics.median(float(np.percentile(beside, 99)) for _, beside in runs)
    alone_p99 = statistics.median(float(np.percentile(alone, 99)) for alone, _ in runs)
    overhead = (1.0 / ratio - 1.0) / alone_rate
    print(f"physics beside a render of {RENDER_S * 1e3:.0f} ms: {ratio:.2f} of {alone_rate:,.0f} steps/s, ", end="")
    print(f"which is {overhead * 1e6:.1f} µs per step", end="")
    print(f" (target >= 0.9: {verdict(ratio >= 0.9)})")
    print(f"p99 of step(): {p99 * 1e6:.0f} µs, {alone_p99 * 1e6:.0f} µs without renders", end="")
    print(f" (target < a render: {verdict(p99 < RENDER_S)})")


if __name__ == "__main__":
    main()
