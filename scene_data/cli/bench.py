"""`scene-data bench`: how fast a model is simulated, read and rendered on this machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import tyro
import warp as wp
from rich.console import Console
from rich.table import Table

from scene_data.cli.camera_spec import camera_cfgs
from scene_data.cli.controls import make_control
from scene_data.cli.run import rate
from scene_data.formats import SceneDataFormat
from scene_data.registry import physics
from scene_data.simulation import SimulationContext
from scene_data.simulation_cfg import SimulationCfg

__all__ = ["Bench", "run_bench"]

_DEFAULT_SIZE = (64, 64)
_FEWEST_ROUNDS = 3


@dataclass
class Bench:
    """Measure how fast a model is simulated, read and rendered on this machine.

    Each round takes a step, a step whose transforms are read, and a step whose camera frames are read, in turn, so that
    whatever else the machine does falls on all three alike.
    """

    model: tyro.conf.Positional[str] = "demo"
    """MJCF, MJB or URDF file, `demo`, or a robot description such as `g1_mj_description`."""
    engine: str = field(default="mujoco_batch", kw_only=True)
    """mujoco, mujoco_batch or mujoco_warp."""
    num_envs: int = 64
    """Environments simulated side by side."""
    camera: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME:WxH[:rgb,depth,seg]")
    ] = ()
    """A camera of the model, or `free`; may be repeated. Default: every camera of the model at 64x64."""
    seconds: float = 5.0
    """How long to measure."""
    control: str = "random"
    """zero, random or keyframe."""
    seed: int = 0
    """Seed of random controls."""
    render_backend: str = "mujoco_warp"
    """Who renders."""
    device: str = "cpu"
    """Warp device of mujoco_warp and of the frames."""

    def __post_init__(self):
        if not 0.0 < self.seconds < float("inf"):
            raise ValueError(f"--seconds must be above 0, got {self.seconds}")


def run_bench(args: Bench, console: Console) -> None:
    """Run the command.

    Raises:
        ValueError: Something in the arguments or the model cannot be used; nothing is left behind.
        MissingDependencyError: A library is missing.
    """
    cfg = SimulationCfg(
        physics.get(args.engine)(args.model, engine=args.engine, num_envs=args.num_envs),
        device=args.device,
        cameras=lambda scene: camera_cfgs(args.camera, scene, _DEFAULT_SIZE),
        render_backend=args.render_backend,
    )
    with SimulationContext(cfg) as sim:
        console.print(_report(args, sim, _measure(args, sim, console)))


def _measure(args: Bench, sim: SimulationContext, console: Console) -> np.ndarray:
    """Seconds of a step, of one with its transforms, and of one with its frames, shape (rounds, 3)."""
    control = make_control(args.control, sim.physics, None, args.seed)
    poses = SceneDataFormat.Transform()
    steps = 0

    def step() -> None:
        nonlocal steps
        sim.physics.set_control(control(steps))
        sim.step(render=False)
        steps += 1

    def step_and_read() -> None:
        step()
        sim.provider.get_transforms(poses)

    def step_and_render() -> None:
        step()
        for camera in sim.cameras.values():
            for data_type in camera.cfg.data_types:
                camera.data.lease(data_type).release()

    calls = (step, step_and_read, step_and_render)
    with console.status("compiling and warming up"):
        for call in calls:
            _seconds(call, args.device)
    rounds = []
    with console.status(f"measuring for {args.seconds:g} s"):
        until = time.perf_counter() + args.seconds
        while time.perf_counter() < until or len(rounds) < _FEWEST_ROUNDS:
            rounds.append([_seconds(call, args.device) for call in calls])
    return np.array(rounds)


def _seconds(call: Callable[[], None], device: str) -> float:
    started = time.perf_counter()
    call()
    wp.synchronize_device(device)
    return time.perf_counter() - started


def _report(args: Bench, sim: SimulationContext, times: np.ndarray) -> Table:
    planes = {camera.name: [camera.layout(name) for name in camera.cfg.data_types] for camera in sim.cameras.values()}
    images = sim.num_envs * len(planes)
    plane_bytes = sum(layout.byte_length for layouts in planes.values() for layout in layouts)
    read, render = times[:, 1] - times[:, 0], times[:, 2] - times[:, 0]
    table = Table(title=f"{sim.num_envs} x {args.model} on {args.engine}, rendered by {args.render_backend}")
    for column in ("", "median", "p95", "a second"):
        table.add_column(column, justify="right" if column else "left")
    table.add_column("of these")
    table.add_row("step", *_figures(times[:, 0], sim.num_envs), "environment steps")
    table.add_row("+ transforms", *_figures(read, sim.provider.transform_count), "transforms")
    table.add_row("+ frames", *_figures(render, images), f"images of {', '.join(planes)}")
    table.add_row("step with frames", *_figures(times[:, 2], sim.num_envs), "environment steps")
    table.caption = f"{len(times)} rounds; a set of frames takes {plane_bytes / 1e6:,.2f} MB"
    return table


def _figures(seconds: np.ndarray, count: int) -> tuple[str, str, str]:
    """Median and 95th percentile in milliseconds, and how many are had in a second at the median."""
    median, p95 = np.percentile(seconds, (50, 95))
    return f"{median * 1e3:,.3f} ms", f"{p95 * 1e3:,.3f} ms", rate(count, median)
