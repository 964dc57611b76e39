"""Everybody at once: no frame is torn or changes while it is held, nobody is stuck, and nothing is left behind."""

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("torch")

from actors import MAX_SLOTS, Snapshot, World, consume, disturb, play, produce
from guards import Resources, watchdog

CONSUMERS = 32
PATIENCE_S = 60.0
NOTHING: Mapping[str, int] = {}
MEMORY_MARGIN = 16 << 20  # what the allocators of NumPy, torch and the C library keep for later [bytes]


@pytest.fixture(autouse=True)
def _silence(caplog):
    """Pytest would keep the record of each failure in memory."""
    caplog.set_level(logging.CRITICAL, "scene_data")


@pytest.fixture
def switch_interval(request):
    before = sys.getswitchinterval()
    sys.setswitchinterval(request.param)
    yield request.param
    sys.setswitchinterval(before)


@pytest.mark.parametrize("switch_interval", [0.005, 1e-6], indirect=True, ids=["usual", "hasty"])
def test_for_seconds(switch_interval):
    enough = {"commits": 21, "views verified": 101}
    figures = run(3.0, 7, enough)
    assert all(figures[name] >= count for name, count in enough.items()), figures


@pytest.mark.soak
@pytest.mark.parametrize("switch_interval", [0.005, 1e-6], indirect=True, ids=["usual", "hasty"])
def test_for_minutes(switch_interval, capsys):
    seconds = float(os.environ.get("SOAK_SECONDS", "600")) / 2
    report(run(seconds, seed=time.time_ns() & 0xFFFF), capsys)


def run(seconds: float, seed: int, enough: Mapping[str, int] = NOTHING) -> dict[str, Any]:
    """Let everybody loose, for longer where that was not enough, and check what must hold at the end."""
    run_for(0.5, seed)  # what loads once, loads here
    before = Resources.now()
    figures = run_for(seconds, seed, enough)
    after = Resources.now()
    assert after.threads == before.threads
    assert after.files == before.files
    assert after.memory - before.memory < MEMORY_MARGIN
    return {**figures, "memory growth [MB]": round((after.memory - before.memory) / 1e6, 1), "seed": seed}


def run_for(seconds: float, seed: int, enough: Mapping[str, int] = NOTHING) -> dict[str, Any]:
    Snapshot.alive.clear()
    world = World(seed)
    actors = [
        threading.Thread(target=play, args=(actor, world, seed + index), name=f"{actor.__name__}-{index}")
        for index, actor in enumerate([produce, disturb, *[consume] * CONSUMERS])
    ]
    with watchdog() as look:
        deadline = time.monotonic() + seconds
        for actor in actors:
            actor.start()
        while not world.stopping.is_set():
            figures = figures_of(world)
            is_enough = all(figures[name] >= count for name, count in enough.items())
            if time.monotonic() > deadline + (0.0 if is_enough else PATIENCE_S):
                break
            look(world.beats)
            time.sleep(0.1)
        world.stopping.set()
        for actor in actors:
            actor.join()
        world.core.shutdown()
    assert world.failures == []
    frames = world.core.frames
    assert frames.held_frames() == []
    assert frames.reserved_slots == 0
    assert frames.reserved_bytes == 0
    assert frames.storage_allocations == MAX_SLOTS
    assert frames.committed_bytes <= frames.max_bytes
    assert Snapshot.alive["snapshots"] == 0
    return figures_of(world)


def figures_of(world: World) -> dict[str, Any]:
    stats = world.core.stats()
    kept = ("turns", "captures", "commits", "evictions", "drops", "waits", "queue_times", "render_times")
    return {"views verified": 0, **{name: stats[name] for name in kept}, **dict(sorted(world.counts.items()))}


def report(figures: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print()
        for name, value in figures.items():
            print(f"    {name}: {value}")
