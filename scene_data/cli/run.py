"""What the commands that simulate have in common: their options, the loop with its progress bar, and the rates."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

__all__ = ["RunOptions", "RunTimes", "add_files", "rate", "run_steps"]


@dataclass(kw_only=True)
class RunOptions:
    """Options of a simulated run."""

    engine: str = "mujoco"
    """mujoco, mujoco_batch or mujoco_warp."""
    num_envs: int = 1
    """Environments simulated side by side."""
    steps: int = 0
    """Physics steps; with 0 only the initial state is written."""
    every: int = 10
    """Physics steps between two samples."""
    control: str = "zero"
    """zero, random or keyframe."""
    keyframe: str | None = None
    """Keyframe to start from, by name or index; also where `--control keyframe` takes its controls from."""
    seed: int = 0
    """Seed of random controls."""
    device: str = "cpu"
    """Warp device of mujoco_warp and of the frames."""

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError(f"--steps must be 0 or more, got {self.steps}")
        if self.every < 1:
            raise ValueError(f"--every must be at least 1, got {self.every}")

    @property
    def samples(self) -> int:
        """Samples of the run: the initial state, and one after every `every` steps."""
        return 1 + self.steps // self.every


@dataclass
class RunTimes:
    """Where the time went [s]."""

    physics: float = 0.0
    samples: float = 0.0


def run_steps(
    options: RunOptions, label: str, advance: Callable[[int], None], sample: Callable[[], None], console: Console
) -> RunTimes:
    """Simulate, sampling the initial state and then after every `options.every` steps.

    Args:
        options: How far and how often.
        label: What the progress bar says.
        advance: Sets the controls of a step, counted from 0, and takes it.
        sample: Writes the present state.
        console: Where the bar is drawn.
    """
    times = RunTimes()
    with _progress(console) as progress:
        task = progress.add_task(label, total=options.steps)
        times.samples += _seconds(sample)
        for step in range(options.steps):
            times.physics += _seconds(lambda: advance(step))  # noqa: B023 - called at once
            if (step + 1) % options.every == 0:
                times.samples += _seconds(sample)
            progress.advance(task)
    return times


def rate(count: int, seconds: float) -> str:
    """A count per second, for people."""
    return f"{count / seconds:,.0f}" if seconds > 0.0 else "-"


def add_files(table: Table, files: list[Path]) -> None:
    """A row per file with its size."""
    for path in files:
        table.add_row(str(path), f"{path.stat().st_size / 1e6:,.2f} MB")


def _seconds(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
