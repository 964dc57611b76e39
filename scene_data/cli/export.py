"""`scene-data export`: simulate, and write the scene with its motion as USD."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from scene_data.cli.controls import make_control
from scene_data.physics import PhysicsEngine
from scene_data.provider import SceneDataProvider
from scene_data.registry import physics
from scene_data.scene import SceneDescription
from scene_data.stage_files import check_usd_suffix, usd_output

__all__ = ["Export", "run_export"]


@dataclass
class Export:
    """Simulate a model and write it as USD, with its meshes, materials, cameras, lights and motion.

    The first sample is the initial state. Textures go into `<OUT without suffix>_textures`, or into the `.usdz`.
    """

    model: tyro.conf.Positional[str]
    """MJCF, MJB or URDF file, or `demo`."""
    out: tyro.conf.Positional[Path]
    """The .usda, .usdc or .usdz file to write."""
    engine: str = "mujoco"
    """mujoco, mujoco_batch or mujoco_warp."""
    num_envs: int = 1
    """Environments simulated side by side."""
    steps: int = 0
    """Physics steps; 0 writes the initial state alone."""
    every: int = 10
    """Physics steps between samples."""
    env_spacing: float = 0.0
    """Distance between neighbouring environments in metres; at 0 they share one place."""
    control: str = "zero"
    """zero, random or keyframe."""
    keyframe: str | None = None
    """Keyframe to start from, by name or index; also where `--control keyframe` takes its controls from."""
    seed: int = 0
    """Seed of random controls."""
    device: str = "cpu"
    """Warp device of mujoco_warp."""

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError(f"--steps must be 0 or more, got {self.steps}")
        if self.every < 1:
            raise ValueError(f"--every must be at least 1, got {self.every}")
        if not self.env_spacing >= 0.0:
            raise ValueError(f"--env-spacing must be 0 or more, got {self.env_spacing}")
        check_usd_suffix(self.out)

    @property
    def samples(self) -> int:
        """Samples that the run writes."""
        return 1 + self.steps // self.every


@dataclass
class _Report:
    """What was done, for the closing table."""

    physics_seconds: float = 0.0
    usd_seconds: float = 0.0
    files: list[Path] = field(default_factory=list)


def run_export(args: Export, console: Console) -> None:
    """Run the command.

    Raises:
        ValueError: Something in the arguments or the model cannot be used; nothing is left behind.
        MissingDependencyError: USD is not installed.
    """
    import scene_data.stage  # noqa: F401 - a missing library is reported before anything is simulated

    cfg = physics.get(args.engine)(args.model, engine=args.engine, num_envs=args.num_envs)
    engine = cfg.create(args.device, None)
    try:
        if args.keyframe is not None:
            engine.reset(keyframe=args.keyframe)
        scene = engine.backend.describe_scene()
        report = _simulate(args, engine, scene, console)
        console.print(_closing_table(args, scene, report))
    finally:
        engine.close()


def _simulate(args: Export, engine: PhysicsEngine, scene: SceneDescription, console: Console) -> _Report:
    from scene_data.stage import SceneStage

    control = make_control(args.control, engine, args.keyframe, args.seed)
    provider = SceneDataProvider(engine.backend)
    report = _Report()
    with usd_output(args.out) as work, _progress(console) as progress:
        task = progress.add_task(f"{args.num_envs} x {args.model}", total=args.steps)
        started = time.perf_counter()
        rate = 1.0 / (engine.timestep * args.every)
        stage = SceneStage(scene, work, env_spacing=args.env_spacing, time_codes_per_second=rate)
        stage.update(provider)  # what a reader sees who asks for no time
        stage.update(provider, 0.0)
        report.usd_seconds += time.perf_counter() - started
        for step in range(args.steps):
            started = time.perf_counter()
            engine.set_control(control(step))
            engine.step()
            report.physics_seconds += time.perf_counter() - started
            if (step + 1) % args.every == 0:
                started = time.perf_counter()
                stage.update(provider, float((step + 1) // args.every))
                report.usd_seconds += time.perf_counter() - started
            progress.advance(task)
        started = time.perf_counter()
        stage.save()
        report.usd_seconds += time.perf_counter() - started
    report.files = [args.out]
    return report


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


def _closing_table(args: Export, scene: SceneDescription, report: _Report) -> Table:
    env_steps = args.steps * args.num_envs
    table = Table(show_header=False, title=f"{args.model} on {args.engine}")
    table.add_row("environments", f"{args.num_envs}")
    table.add_row("bodies", f"{args.num_envs * len(scene.bodies):,}")
    table.add_row("cameras", ", ".join(camera.name or camera.path_name for camera in scene.cameras) or "none")
    table.add_row("steps", f"{env_steps:,} ({_rate(env_steps, report.physics_seconds)} steps/s)")
    table.add_row("samples", f"{args.samples:,} ({_rate(args.samples, report.usd_seconds)} samples/s)")
    for path in report.files:
        table.add_row(str(path), f"{path.stat().st_size / 1e6:,.2f} MB")
    return table


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}" if seconds > 0.0 else "-"
