"""What viewers cost: an update in time and bytes, and the training that goes on beside them.

Ours and other viewers show one scene in one run: robots of 30 bodies, each with a mesh of its own. Every web viewer has
a client in another process that takes all that is sent. Updates are interleaved, one of each viewer in turn, in both
orders, and compared pair by pair; what is printed are medians. Steps are measured as windows with and without the
viewer, in turn.

    python benchmarks/viewers.py
    xvfb-run -a python benchmarks/viewers.py            # Newton's window too
    python benchmarks/viewers.py --envs 64 --viewers viser mjviser --seconds 2
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import mujoco
import numpy as np
import tyro
import warp as wp
from rich.console import Console
from rich.table import Table
from viewer_crowd import Crowd, robot
from viewer_subjects import DRAWS_LATER, PEERS, RATE_HZ, SUBJECTS, installed, open_watched

LIMIT = 0.9
_SETTLE_S = 1.0
_STEPS_BETWEEN = 4
_WARM_UP = 3
_LEAST_UPDATES = 3
_PIPE_WIDTH = 140


@dataclass
class Options:
    """Measure viewers."""

    envs: tuple[int, ...] = (1, 64, 1024)
    """Numbers of environments to update."""
    viewers: tuple[str, ...] = ()
    """Which viewers, by the names in the table; all that are installed by default."""
    updates: int = 40
    """Updates of each viewer and number of environments."""
    seconds_per_viewer: float = 20.0
    """How long the updates of one viewer and number of environments may take together; then there are fewer."""
    throughput_envs: int = 64
    """Environments beside which the steps are measured."""
    seconds: float = 1.5
    """Length of one window of steps."""
    windows: int = 8
    """Pairs of windows of each viewer; 0 measures no steps."""


@dataclass
class Updates:
    """Of one viewer: how long the caller waits, what all threads compute, and what is sent."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    first: int = 0
    before: int = 0
    after: int = 0

    @property
    def nbytes(self) -> float:
        """Bytes of one update."""
        return (self.after - self.before) / max(len(self.wall), 1)


def measure_updates(options: Options, num_envs: int, names: Sequence[str], model: mujoco.MjModel) -> dict[str, Updates]:
    """Updates of each viewer, one after the other, in both orders."""
    with ExitStack() as stack:
        crowd = Crowd(model, num_envs)
        stack.callback(crowd.sim.close)
        crowd.step()
        subjects = {name: SUBJECTS[name](crowd, stack) for name in names}
        results = {name: Updates() for name in names}
        for number in range(-_WARM_UP, options.updates):
            if number == 0:
                time.sleep(_SETTLE_S)
                for name, subject in subjects.items():
                    results[name].before = subject.sent()
            for name in names if number % 2 else reversed(names):
                result = results[name]
                if len(result.wall) >= _LEAST_UPDATES and sum(result.wall) > options.seconds_per_viewer:
                    continue
                for _ in range(_STEPS_BETWEEN):
                    crowd.step()
                crowd.sim.provider.backend.update_kinematics()
                cpu, start = time.process_time(), time.perf_counter()
                subjects[name].update()
                wall = time.perf_counter() - start
                # What other threads of the viewer still have to do belongs to this update.
                time.sleep(max(0.5 / RATE_HZ, 2.0 * wall))
                if number >= 0:
                    result.wall.append(wall)
                    result.cpu.append(time.process_time() - cpu)
                elif number == -_WARM_UP:
                    time.sleep(_SETTLE_S)
                    result.first = subjects[name].sent()
        time.sleep(_SETTLE_S)
        for name, subject in subjects.items():
            results[name].after = subject.sent()
        return results


def measure_throughput(options: Options, name: str, model: mujoco.MjModel) -> tuple[float, float]:
    """Steps per second without the viewer, and the ratio with it, medians of pairs in both orders."""
    with ExitStack() as stack:
        plain = Crowd(model, options.throughput_envs)
        stack.callback(plain.sim.close)
        watched, look = open_watched(name, model, options.throughput_envs, stack)
        alone, ratios = [], []
        for number in range(-1, options.windows):
            rates = {}
            for is_watched in (True, False) if number % 2 else (False, True):
                rates[is_watched] = _rate(*((watched, look) if is_watched else (plain, None)), options.seconds)
            if number >= 0:
                alone.append(rates[False])
                ratios.append(rates[True] / rates[False])
        return statistics.median(alone), statistics.median(ratios)


def _rate(crowd: Crowd, look: Callable[[], None] | None, seconds: float) -> float:
    steps, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        crowd.step()
        if look is not None:
            look()
        steps += 1
    return steps / elapsed


def _times_faster(name: str, results: dict[str, Updates]) -> str:
    """How many times longer the peers take, pair by pair."""
    ratios = []
    for peer in PEERS.get(name, ()):
        if peer in results:
            count = min(len(results[name].wall), len(results[peer].wall))
            pairs = np.divide(results[peer].wall[:count], results[name].wall[:count])
            ratios.append(f"{statistics.median(pairs):.1f} ({peer})")
    if name in DRAWS_LATER:
        return "(it is drawn on another thread)"
    return ", ".join(ratios)


def main() -> None:
    options = tyro.cli(Options)
    wp.config.log_level = wp.LOG_ERROR
    console, model = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH), robot()
    names = options.viewers or installed()
    if unknown := set(names) - set(SUBJECTS):
        sys.exit(f"no viewer {sorted(unknown)[0]!r}; there are {', '.join(SUBJECTS)}")
    table = Table(title="One update")
    for column in ("environments", "viewer", "ms", "CPU ms", "kB", "first kB", "times faster than"):
        table.add_column(column, justify="left" if column in ("viewer", "times faster than") else "right")
    for num_envs in options.envs:
        results = measure_updates(options, num_envs, names, model)
        for name, result in results.items():
            table.add_row(
                f"{num_envs:,}",
                name,
                f"{statistics.median(result.wall) * 1e3:.2f}",
                f"{statistics.median(result.cpu) * 1e3:.2f}",
                f"{result.nbytes / 1e3:.1f}",
                f"{result.first / 1e3:.0f}",
                _times_faster(name, results),
            )
        table.add_section()
    console.print(table)
    if not options.windows:
        return
    table = Table(title=f"Steps of {options.throughput_envs} environments, viewer at {RATE_HZ:g} Hz (limit {LIMIT})")
    for column in ("viewer", "steps/s without", "with / without"):
        table.add_column(column, justify="left" if column == "viewer" else "right")
    for name in names:
        plain, ratio = measure_throughput(options, name, model)
        table.add_row(name, f"{plain:.0f}", f"{ratio:.3f}")
    console.print(table)


if __name__ == "__main__":
    main()
