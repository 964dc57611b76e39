"""Memory that rendering takes for each environment, as the slope of a line, beside the length of the planes.

The frame store holds two frames of each plane (the latest, which somebody may hold, and the next), so twice the planes'
length is what an environment has to take. Each number of environments runs in a process of its own. Two accounts are
told: Warp's arrays, which are counted, and the resident memory of the process, which includes whatever else there is.

    python benchmarks/render_memory.py
"""

import ctypes
import gc
import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass

import numpy as np
import tyro
import warp as wp
from render_ways import Crowd, DirectRender, Picture, Turns
from rich.console import Console
from rich.table import Table

from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.renderers.newton import NewtonRenderBackend

WARM_TURNS, TURNS = 5, 40
FRAMES_PER_PLANE = 2
WAYS = {
    "ours, mujoco_warp": lambda crowd, picture: Turns(crowd, picture, MujocoWarpRenderBackend()),
    "ours, newton": lambda crowd, picture: Turns(crowd, picture, NewtonRenderBackend()),
    "mujoco_warp.render": DirectRender,
}


@dataclass
class Options:
    """What to measure."""

    scenes: tuple[str, ...] = ("humanoid", "aloha")
    sizes: tuple[str, ...] = ("64x64", "160x120")
    environments: tuple[int, ...] = (64, 128, 192, 256)
    planes: str = "rgb+depth"
    ways: tuple[str, ...] = tuple(WAYS)
    cell: str = ""
    """Measure one cell and print it as JSON: what the processes are started with."""


@dataclass(frozen=True)
class Memory:
    """What rendering added to a process [bytes]."""

    arrays: int
    frames: int
    resident: int
    growth: int
    """Resident memory that many further turns added."""


def resident() -> int:
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def array_bytes() -> int:
    """Memory of all Warp arrays that are alive and own theirs."""
    gc.collect()
    arrays = [found for found in gc.get_objects() if isinstance(found, wp.array)]
    return sum(array.capacity for array in arrays if array.deleter is not None)


def measure(way: str, scene: str, num_envs: int, picture: Picture) -> Memory:
    crowd = Crowd(scene, num_envs)
    crowd.backend.describe_scene()
    arrays, before = array_bytes(), resident()
    draw = WAYS[way](crowd, picture)
    for _ in range(WARM_TURNS):
        draw()
    added_arrays, added = array_bytes() - arrays, resident() - before
    frames = FRAMES_PER_PLANE * picture.byte_length * num_envs if isinstance(draw, Turns) else 0
    for _ in range(TURNS):
        draw()
    growth = resident() - before - added
    draw.close()
    return Memory(added_arrays, frames, added, growth)


def picture_of(size: str, planes: str) -> Picture:
    width, height = map(int, size.split("x"))
    return Picture(width, height, tuple(planes.split("+")))


def in_own_process(way: str, scene: str, num_envs: int, size: str, planes: str) -> Memory:
    cell = json.dumps([way, scene, num_envs, size, planes])
    command = [sys.executable, __file__, "--cell", cell]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    return Memory(**json.loads(output.splitlines()[-1]))


def line(counts: tuple[int, ...], sizes: list[int]) -> tuple[float, float]:
    """Slope of the best line, and how far the sizes are from it at most, as a share of the largest."""
    slope, start = np.polyfit(counts, sizes, 1)
    return float(slope), float(np.abs(np.polyval((slope, start), counts) - sizes).max() / max(1, *sizes))


def main(options: Options) -> None:
    wp.config.quiet = True
    if options.cell:
        way, scene, num_envs, size, planes = json.loads(options.cell)
        print(json.dumps(asdict(measure(way, scene, num_envs, picture_of(size, planes)))))
        return
    console = Console(width=170)
    table = Table(title=f"Memory for each environment, from lines through {options.environments} environments")
    for name in ("scene", "picture", "way"):
        table.add_column(name)
    for name in (
        "planes",
        "frames",
        "arrays beside\nthe frames",
        "of the\nplanes",
        "off the line\nat most",
        "resident",
        "off the line\nat most",
        f"growth in\n{TURNS} turns",
    ):
        table.add_column(name, justify="right")
    for scene in options.scenes:
        for size in options.sizes:
            picture = picture_of(size, options.planes)
            for way in options.ways:
                cells = [in_own_process(way, scene, count, size, options.planes) for count in options.environments]
                arrays, off = line(options.environments, [cell.arrays for cell in cells])
                held, held_off = line(options.environments, [cell.resident for cell in cells])
                frames, _ = line(options.environments, [cell.frames for cell in cells])
                beside = arrays - frames
                row = (
                    scene,
                    str(picture),
                    way,
                    f"{picture.byte_length / 1024:.1f} kB",
                    f"{frames / 1024:.1f} kB",
                    f"{beside / 1024:.1f} kB",
                    f"{beside / picture.byte_length:.1%}",
                    f"{off:.2%}",
                    f"{held / 1024:.1f} kB",
                    f"{held_off:.1%}",
                    f"{max(cell.growth for cell in cells) / 1024:.0f} kB",
                )
                table.add_row(*row)
                console.print(f"[dim]{'  '.join(row)}[/]")
    console.print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
