"""Frames per second beside the renderers that users would otherwise call: ratios, by image size and environments.

Whole turns of ours, down to committed frames, against `mujoco_warp.render`, Newton's `SensorCamera` and a loop over
`mujoco.Renderer`. Each backend is compared with the tracer that it is built on, which draws the same picture. In each
cell the ways take turns at drawing for a tenth of a second, after as long without a watch, in the opposite order in
every other round, and ratios are medians over the rounds. Rounds in which the machine had less than two cores to give
are left out, as two peers at once tell that ask the machine after each way: virtual cores share a real one at times.
"Cores" is how many our turn computed on.

    python benchmarks/render_peers.py --quick
    python benchmarks/render_peers.py --scenes aloha --sizes 64x64 --environments 1 32
"""

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import tyro
import warp as wp
from render_ways import (
    SCENES,
    Crowd,
    DirectRender,
    NewtonSensor,
    Picture,
    RendererLoop,
    Timing,
    Turns,
    TwoCores,
    interleave,
    median_ratio,
)
from rich.console import Console
from rich.table import Table

from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.renderers.newton import NewtonRenderBackend

MAX_ROUNDS = 20
TARGET, TARGET_ENVS = 1.6, 32
LOOP_TARGET, LOOP_SCENE, LOOP_SIZE = 20.0, "aloha", (64, 64)

MAKERS: dict[str, Callable[[Crowd, Picture], Turns | DirectRender | NewtonSensor | RendererLoop]] = {
    "mujoco_warp.render": DirectRender,
    "ours, mujoco_warp": lambda crowd, picture: Turns(crowd, picture, MujocoWarpRenderBackend()),
    "SensorCamera": NewtonSensor,
    "ours, newton": lambda crowd, picture: Turns(crowd, picture, NewtonRenderBackend()),
    "mujoco.Renderer": RendererLoop,
}


@dataclass
class Options:
    """What to measure."""

    scenes: tuple[str, ...] = tuple(SCENES)
    """Of humanoid (primitives) and aloha (meshes)."""
    sizes: tuple[str, ...] = ("64x64", "160x120", "320x240", "640x480")
    environments: tuple[int, ...] = (1, 8, 32, 64, 256)
    planes: tuple[str, ...] = ("rgb+depth", "depth")
    """Of rgb, depth and segmentation, joined by +."""
    cell_seconds: float = 40.0
    """Time after which a cell begins no further rounds. Cells in which two take longer are left out."""
    quick: bool = False
    """A few small cells."""

    def __post_init__(self) -> None:
        if self.quick:
            self.sizes, self.environments, self.cell_seconds = ("64x64",), (1, 32), 10.0


@dataclass
class Cell:
    """One scene, picture and number of environments; without times where it was left out."""

    scene: str
    picture: Picture
    num_envs: int
    estimate: float
    times: dict[str, list[Timing]] = field(default_factory=dict)
    rounds: int = 0
    quiet_rounds: int = 0
    repeats: float = 1.0

    def rate(self, way: str) -> float:
        """Frames per second."""
        return self.num_envs / statistics.median(timing.wall for timing in self.times[way])

    def ratio(self, peer: str, ours: str, of: str = "wall") -> float:
        return median_ratio(self.times[peer], self.times[ours], of) * (self.repeats if peer == "mujoco.Renderer" else 1)

    def cores(self, ours: str) -> float:
        """Cores that our turns had."""
        return statistics.median(timing.cores / timing.wall for timing in self.times[ours])


def measure(cell: Cell, budget: float, is_quiet: Callable[[], bool]) -> None:
    """Fill in the times of a cell."""
    crowd = Crowd(cell.scene, cell.num_envs)
    ways = {name: make(crowd, cell.picture) for name, make in MAKERS.items()}
    loop = ways["mujoco.Renderer"]
    assert isinstance(loop, RendererLoop)
    cell.repeats = loop.repeats
    try:
        for way in ways.values():
            way()
        cell.times, cell.quiet_rounds, cell.rounds = interleave(ways, MAX_ROUNDS, is_quiet, budget)
    finally:
        for way in ways.values():
            way.close()


def cells(options: Options, console: Console) -> list[Cell]:
    """Measure everything there is time for, small cells first: they tell how long the others would take."""
    done: list[Cell] = []
    is_quiet = TwoCores()
    for scene, planes in product(options.scenes, options.planes):
        per_ray = 0.0
        for size, num_envs in sorted(product(options.sizes, options.environments), key=lambda item: _rays(*item)):
            width, height = map(int, size.split("x"))
            picture = Picture(width, height, tuple(planes.split("+")))
            cell = Cell(scene, picture, num_envs, estimate=3 * per_ray * picture.pixels * num_envs)
            if cell.estimate <= options.cell_seconds:
                console.print(f"[dim]{scene} {picture} in {num_envs} environments[/]", end="\r")
                measure(cell, options.cell_seconds, is_quiet)
                tracers = [name for name in cell.times if name != "mujoco.Renderer"]
                seconds = sum(statistics.median(timing.wall for timing in cell.times[name]) for name in tracers)
                per_ray = seconds / (picture.pixels * num_envs)
            done.append(cell)
            gc.collect()
    return done


def _rays(size: str, num_envs: int) -> int:
    width, height = map(int, size.split("x"))
    return width * height * num_envs


def table_of(cells: list[Cell]) -> Table:
    table = Table(title="Times as fast, and in parentheses the ratio of the core-seconds of a frame")
    for name in ("scene", "picture", "environments"):
        table.add_column(name, no_wrap=True)
    for name in (
        "ours, mujoco_warp\nframes/s (cores)",
        "beside\nmujoco_warp.render",
        "beside loop over\nmujoco.Renderer",
        "beside Newton's\nSensorCamera",
        "ours, newton\nframes/s (cores)",
        "beside Newton's\nSensorCamera",
        "quiet\nrounds",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in cells:
        about = cell.scene, str(cell.picture), str(cell.num_envs)
        if not cell.times:
            table.add_row(*about, f"left out: about {cell.estimate:.0f} s", style="dim")
            continue
        warp, newton = "ours, mujoco_warp", "ours, newton"

        def beside(peer: str, ours: str, cell: Cell = cell) -> str:
            return f"{cell.ratio(peer, ours):.2f} ({cell.ratio(peer, ours, 'cores'):.2f})"

        table.add_row(
            *about,
            f"{cell.rate(warp):,.0f} ({cell.cores(warp):.1f})",
            beside("mujoco_warp.render", warp),
            f"{cell.ratio('mujoco.Renderer', warp):.0f}",
            beside("SensorCamera", warp),
            f"{cell.rate(newton):,.0f} ({cell.cores(newton):.1f})",
            beside("SensorCamera", newton),
            f"{cell.quiet_rounds} of {cell.rounds}",
        )
    return table


def verdicts(cells: list[Cell]) -> list[str]:
    """What became of the targets."""
    said = []
    many = [cell for cell in cells if cell.quiet_rounds and cell.num_envs >= TARGET_ENVS]
    for peer, ours in (("mujoco_warp.render", "ours, mujoco_warp"), ("SensorCamera", "ours, newton")):
        if many:
            ratios = [cell.ratio(peer, ours) for cell in many]
            cores = statistics.median(cell.cores(ours) for cell in many)
            said.append(
                f"{ours}, from {TARGET_ENVS} environments on: {min(ratios):.2f} to {max(ratios):.2f} times {peer} on "
                f"{cores:.1f} cores (target {TARGET} on 2: {'met' if min(ratios) >= TARGET else 'MISSED'})"
            )
    size = "x".join(map(str, LOOP_SIZE))
    small = [cell for cell in cells if cell.times and cell.scene == LOOP_SCENE]
    small = [cell for cell in small if (cell.picture.width, cell.picture.height) == LOOP_SIZE]
    for coloured in (True, False):
        ratios = [
            cell.ratio("mujoco.Renderer", "ours, mujoco_warp")
            for cell in small
            if ("rgb" in cell.picture.planes) is coloured
        ]
        if ratios:
            target = f" (target {LOOP_TARGET:.0f}: {'met' if min(ratios) >= LOOP_TARGET else 'MISSED'})"
            what = "in colour" if coloured else "without colour, which spares OpenGL its shadows"
            said.append(
                f"{LOOP_SCENE} at {size}, {what}: {min(ratios):.0f} to {max(ratios):.0f} times the loop"
                f"{target if coloured else ''}"
            )
    if shared := sum(1 for cell in cells if cell.times and not cell.quiet_rounds):
        said.append(f"{shared} cells had no round with two cores, and are not judged")
    left_out = [cell for cell in cells if not cell.times]
    if left_out:
        said.append(f"left out for want of time: {len(left_out)} of {len(cells)} cells; see --cell-seconds")
    said.append(f"the loop was timed in up to {RendererLoop.MAX_ENVS} environments and multiplied up")
    return said


def main(options: Options) -> None:
    wp.config.quiet = True
    console = Console(width=190)
    measured = cells(options, console)
    console.print(table_of(measured))
    for line in verdicts(measured):
        console.print(line)


if __name__ == "__main__":
    main(tyro.cli(Options))
