"""`scene-data export`: simulate, and write the scene with its motion as USD."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from scene_data.cli.controls import make_control
from scene_data.cli.run import RunOptions, RunTimes, add_files, rate, run_steps
from scene_data.physics import PhysicsEngine
from scene_data.provider import SceneDataProvider
from scene_data.registry import physics
from scene_data.scene import SceneDescription
from scene_data.stage_files import check_usd_suffix, usd_output

__all__ = ["Export", "run_export"]


@dataclass
class Export(RunOptions):
    """Simulate a model and write it as USD, with its meshes, materials, cameras, lights and motion.

    The first sample is the initial state. Textures go into `<OUT without suffix>_textures`, or into the `.usdz`.
    """

    model: tyro.conf.Positional[str]
    """MJCF, MJB or URDF file, `demo`, or a robot description such as `g1_mj_description`."""
    out: tyro.conf.Positional[Path]
    """The .usda, .usdc or .usdz file to write."""
    env_spacing: float = 0.0
    """Distance between neighbouring environments in metres; at 0 they share one place."""

    def __post_init__(self):
        super().__post_init__()
        if not self.env_spacing >= 0.0:
            raise ValueError(f"--env-spacing must be 0 or more, got {self.env_spacing}")
        check_usd_suffix(self.out)


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
        times = _simulate(args, engine, scene, console)
        console.print(_closing_table(args, scene, times))
    finally:
        engine.close()


def _simulate(args: Export, engine: PhysicsEngine, scene: SceneDescription, console: Console) -> RunTimes:
    from scene_data.stage import SceneStage

    control = make_control(args.control, engine, args.keyframe, args.seed)
    provider = SceneDataProvider(engine.backend)
    with usd_output(args.out) as work:
        samples_per_second = 1.0 / (engine.timestep * args.every)
        stage = SceneStage(scene, work, env_spacing=args.env_spacing, time_codes_per_second=samples_per_second)
        stage.update(provider)  # what a reader sees who asks for no time
        time_codes = iter(range(args.samples))

        def advance(step: int) -> None:
            engine.set_control(control(step))
            engine.step()

        def sample() -> None:
            stage.update(provider, float(next(time_codes)))

        times = run_steps(args, f"{args.num_envs} x {args.model}", advance, sample, console)
        stage.save()
    return times


def _closing_table(args: Export, scene: SceneDescription, times: RunTimes) -> Table:
    env_steps = args.steps * args.num_envs
    table = Table(show_header=False, title=f"{args.model} on {args.engine}")
    table.add_row("environments", f"{args.num_envs}")
    table.add_row("bodies", f"{args.num_envs * len(scene.bodies):,}")
    table.add_row("cameras", ", ".join(camera.name or camera.path_name for camera in scene.cameras) or "none")
    table.add_row("steps", f"{env_steps:,} ({rate(env_steps, times.physics)} steps/s)")
    table.add_row("samples", f"{args.samples:,} ({rate(args.samples, times.samples)} samples/s)")
    add_files(table, [args.out])
    return table
