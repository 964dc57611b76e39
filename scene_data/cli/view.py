"""`scene-data view`: simulate, and show it in a viewer."""

import os
import sys
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from PIL import Image
from rich.console import Console
from rich.table import Table

from scene_data.camera import CameraCfg
from scene_data.cli.camera_spec import parse_camera_spec
from scene_data.cli.controls import make_control
from scene_data.cli.run import add_files, rate
from scene_data.registry import physics, visualizers
from scene_data.simulation import SimulationContext
from scene_data.simulation_cfg import SimulationCfg

__all__ = ["View", "run_view"]

_REAL_TIME = 1.0


@dataclass
class View:
    """Simulate a model and show it, until the viewer is closed or Ctrl-C is pressed."""

    model: tyro.conf.Positional[str]
    """MJCF, MJB or URDF file, or `demo`."""
    viewer: str = "viser"
    """Name of a viewer; `scene-data info` lists them."""
    engine: str = "mujoco"
    """mujoco, mujoco_batch or mujoco_warp."""
    num_envs: int = 1
    """Environments simulated side by side."""
    steps: int = 0
    """Physics steps; 0 goes on without an end."""
    speed: float | None = None
    """Multiple of real time; by default 1, and as fast as possible where it is only recorded."""
    max_visible_envs: int | None = None
    """How many environments are shown at most."""
    camera: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME:WxH")] = ()
    """A camera of the model, or `free`, whose image is shown beside the scene; may be repeated."""
    port: int | None = None
    """Port of a web viewer; 0 takes a free one."""
    bind_address: str | None = None
    """Network address of a web viewer: 127.0.0.1 is this machine alone, 0.0.0.0 all networks."""
    share: bool = False
    """Ask the web viewer's makers for a public address."""
    record: Path | None = None
    """File to record to."""
    headless: bool = False
    """Open neither a window nor a browser."""
    screenshot: Path | None = None
    """Write a picture of what the viewer shows at the end."""
    screenshot_size: tuple[int, int] = (1280, 800)
    """Its width and height [pixels]."""
    control: str = "zero"
    """zero, random or keyframe."""
    keyframe: str | None = None
    """Keyframe to start from, by name or index; also where `--control keyframe` takes its controls from."""
    seed: int = 0
    """Seed of random controls."""
    device: str = "cpu"
    """Warp device of mujoco_warp and of the frames."""
    render_backend: str = "mujoco_warp"
    """Who renders the images of `--camera`."""

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError(f"--steps must be 0 or more, got {self.steps}")
        if self.headless and not self.steps:
            raise ValueError("--headless needs --steps: nobody is there to end it")


def run_view(args: View, console: Console) -> None:
    """Run the command.

    Raises:
        UnknownNameError: There is no such viewer, engine, camera or keyframe.
        ValueError: Something in the arguments or the model cannot be used; nothing is left behind.
        OSError: The port is taken.
    """
    specs = [parse_camera_spec(text) for text in args.camera]
    cfg = SimulationCfg(
        physics.get(args.engine)(args.model, engine=args.engine, num_envs=args.num_envs),
        device=args.device,
        cameras=[CameraCfg(spec.name, spec.width, spec.height) for spec in specs],
        visualizer_cfgs=[_viewer_cfg(args)],
        render_backend=args.render_backend,
    )
    with SimulationContext(cfg) as sim:
        if args.keyframe is not None:
            sim.reset(keyframe=args.keyframe)
        (viewer,) = sim.visualizers
        _announce(viewer, args, console)
        started = time.monotonic()
        steps = _simulate(args, sim)
        seconds = time.monotonic() - started
        if args.screenshot is not None and sim.visualizers:
            args.screenshot.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(viewer.screenshot(*args.screenshot_size)).save(args.screenshot)
    console.print(_closing_table(args, steps, seconds))


def _viewer_cfg(args: View) -> Any:
    """The configuration of the viewer that was named, with the options that it has."""
    cfg_type = visualizers.get(args.viewer).cfg_type
    known = cfg_type.command_line_options
    given = {
        "port": args.port,
        "bind_address": args.bind_address,
        "share": args.share or None,
        "record": args.record,
        "speed": args.speed,
    }
    fields: dict[str, Any] = {"max_visible_envs": args.max_visible_envs}
    fields["camera_images"] = tuple(parse_camera_spec(text).name for text in args.camera)
    for option, value in given.items():
        if value is None:
            continue
        if option not in known:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in known if name in given) or "none of them"
            raise ValueError(f"The viewer {args.viewer!r} has no --{option.replace('_', '-')}. It has: {names}.")
        fields[known[option]] = value
    if "speed" in known and args.speed is None and not args.headless:
        fields[known["speed"]] = _REAL_TIME
    if "headless" in known:
        fields[known["headless"]] = args.headless
    if "open_browser" in known:
        fields[known["open_browser"]] = not args.headless and _has_browser()
    return cfg_type(**fields)


def _has_browser() -> bool:
    """Whether there is a browser here, and a screen for it."""
    has_screen = sys.platform in ("darwin", "win32") or any(os.environ.get(v) for v in ("DISPLAY", "WAYLAND_DISPLAY"))
    is_remote = bool(os.environ.get("SSH_CONNECTION"))
    if not has_screen or is_remote:
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _announce(viewer: Any, args: View, console: Console) -> None:
    if (address := viewer.address) is not None:
        console.print(f"{args.model} in {viewer.name}: [bold cyan]{address}[/]", highlight=False, soft_wrap=True)
    if not args.steps:
        console.print("Ctrl-C ends it.")


def _simulate(args: View, sim: SimulationContext) -> int:
    """Steps until the end, the last viewer's end, or Ctrl-C; how many they were."""
    control = make_control(args.control, sim.physics, args.keyframe, args.seed)
    steps = 0
    try:
        sim.render()
        while sim.visualizers and (not args.steps or steps < args.steps):
            sim.physics.set_control(control(steps))
            sim.step()
            steps += 1
    except KeyboardInterrupt:
        pass
    return steps


def _closing_table(args: View, steps: int, seconds: float) -> Table:
    env_steps = steps * args.num_envs
    table = Table(show_header=False, title=f"{args.model} on {args.engine}")
    table.add_row("environments", f"{args.num_envs}")
    table.add_row("steps", f"{env_steps:,} ({rate(env_steps, seconds)} steps/s)")
    add_files(table, [path for path in (args.record, args.screenshot) if path is not None and path.exists()])
    return table
