"""What a render turn costs beside MuJoCo Warp's renderer called directly, and where its time goes.

A turn is all that a user waits for: the snapshot of the engine's state, the render thread, all planes of all
environments as committed frames. Prints ratios of interleaved runs, in the opposite order in every other round, since
absolute times say more about the machine than about the code. The breakdown is of the core-seconds of one thread.

    python benchmarks/render_turns.py
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import mujoco_warp as mjw
import warp as wp
from render_ways import Crowd, DirectRender, Picture, Turns, TwoCores, interleave, median_ratio, timed
from rich.console import Console
from rich.table import Table

from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.renderers.mujoco_warp_scene import GeometryBounds, ShardScene
from scene_data.renderers.mujoco_warp_shards import ShardedTracer
from scene_data.renderers.render_core.snapshots import SnapshotPool

ROUNDS = 40
COLOUR, DEPTH = ("rgb", "depth"), ("depth",)
CASES = (
    ("humanoid", 32, Picture(64, 64, COLOUR)),
    ("humanoid", 32, Picture(64, 64, DEPTH)),
    ("humanoid", 1, Picture(64, 64, COLOUR)),
    ("humanoid", 1, Picture(640, 480, COLOUR)),
    ("aloha", 32, Picture(64, 64, COLOUR)),
    ("aloha", 32, Picture(64, 64, DEPTH)),
)
PARTS = {
    "snapshot": (SnapshotPool, "acquire"),
    "place": (ShardScene, "place"),
    "refit": (GeometryBounds, "refit"),
    "trace": (mjw, "render"),
    "unpack": (ShardedTracer, "_resolve"),
}


def compare(console: Console) -> None:
    table = Table(title="Turns beside mujoco_warp.render (limits: one thread 0.95, all threads on 2 idle cores 1.6)")
    for name in ("scene", "environments", "picture", "mujoco_warp.render", "one thread", "all threads", "cores"):
        table.add_column(name, justify="left" if name in ("scene", "picture") else "right")
    is_quiet = TwoCores()
    for scene, num_envs, picture in CASES:
        crowd = Crowd(scene, num_envs)
        one = Turns(crowd, picture, MujocoWarpRenderBackend(1))
        every = Turns(crowd, picture, MujocoWarpRenderBackend())
        ways: dict[str, Callable[[], None]] = {"direct": DirectRender(crowd, picture), "one": one, "all": every}
        times, _, _ = interleave(ways, ROUNDS, is_quiet)
        one.close()
        every.close()
        table.add_row(
            scene,
            str(num_envs),
            str(picture),
            f"{statistics.median(timing.wall for timing in times['direct']) * 1e3:.1f} ms",
            f"{median_ratio(times['direct'], times['one']):.2f}",
            f"{median_ratio(times['direct'], times['all']):.2f}",
            f"{statistics.median(timing.cores / timing.wall for timing in times['all']):.1f}",
        )
    console.print(table)


@contextmanager
def stopwatches() -> Iterator[dict[str, float]]:
    """Core-seconds spent in the parts of a turn, as they add up."""
    spent: dict[str, float] = defaultdict(float)

    def watch(name: str, function: Callable) -> Callable:
        def watched(*args, **kwargs):
            start = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += time.thread_time() - start
                spent[f"{name} calls"] += 1

        return watched

    patches = [patch.object(owner, name, watch(part, getattr(owner, name))) for part, (owner, name) in PARTS.items()]
    for each in patches:
        each.start()
    try:
        yield spent
    finally:
        for each in patches:
            each.stop()


def parts_of(turns: Turns) -> dict[str, float]:
    """Core-seconds of a turn by part, medians over some turns. Tracing includes its launches, which are counted."""
    runs: dict[str, list[float]] = defaultdict(list)
    with stopwatches() as spent:
        for _ in range(ROUNDS):
            spent.clear()
            total = timed(turns).cores
            for part in (*PARTS, "trace calls"):
                runs[part].append(spent[part])
            runs["total"].append(total)
    return {part: statistics.median(times) for part, times in runs.items()}


def launch_seconds() -> float:
    """What it takes to launch the tracer on nothing: the arguments that Python hands over."""
    crowd, picture = Crowd("humanoid", 1), Picture(1, 1, DEPTH)
    direct = DirectRender(crowd, picture)
    times = []
    for _ in range(10 * ROUNDS):
        start = time.thread_time()
        mjw.render(direct.model, direct.data, direct.context)
        times.append(time.thread_time() - start)
    return statistics.median(times)


def break_down(console: Console) -> None:
    launch = launch_seconds()
    table = Table(title="Where the core time of a turn goes, drawn by one thread")
    columns = "rays", "shading", "unpack", "refit", "poses", "snapshot", "launches, hand-overs"
    for name in ("scene", "environments", "picture", "total", *columns):
        table.add_column(name, justify="left" if name in ("scene", "picture") else "right")
    for scene, num_envs, picture in CASES:
        crowd = Crowd(scene, num_envs)
        turns = Turns(crowd, picture, MujocoWarpRenderBackend(1))
        turns()
        parts = parts_of(turns)
        turns.close()
        shading = 0.0
        if "rgb" in picture.planes:
            depth = Turns(crowd, replace(picture, planes=DEPTH), MujocoWarpRenderBackend(1))
            depth()
            shading = max(parts["trace"] - parts_of(depth)["trace"], 0.0)
            depth.close()
        inside = sum(parts[part] for part in ("trace", "unpack", "refit", "place", "snapshot"))
        launches = launch * parts["trace calls"]
        rest = parts["total"] - inside + launches
        shares = (
            parts["trace"] - shading - launches,
            shading,
            parts["unpack"],
            parts["refit"],
            parts["place"],
            parts["snapshot"],
            rest,
        )
        table.add_row(
            scene,
            str(num_envs),
            str(picture),
            f"{parts['total'] * 1e3:.2f} ms",
            *(f"{share / parts['total']:.1%}" for share in shares),
        )
    console.print(table)


def main() -> None:
    wp.config.quiet = True
    console = Console(width=170)
    compare(console)
    break_down(console)


if __name__ == "__main__":
    main()
