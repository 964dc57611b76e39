"""`scene-data view`: simulate, and show it in a viewer, or its cameras' images on a page."""

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
from scene_data.cli.controls import Control, make_control
from scene_data.cli.pace import Pace
from scene_data.cli.policy import PolicyControl, PolicyError
from scene_data.cli.run import add_files, rate
from scene_data.cli.termination import terminable
from scene_data.registry import physics, transports, visualizers
from scene_data.simulation import SimulationContext
from scene_data.simulation_cfg import SimulationCfg

__all__ = ["View", "run_view"]

_REAL_TIME = 1.0
_STREAMED = "free:640x480"


@dataclass
class View:
    """Simulate a model and show it, until the viewer is closed or Ctrl-C is pressed."""

    model: tyro.conf.Positional[str]
    """MJCF, MJB or URDF file, `demo`, or a robot description such as `g1_mj_description`."""
    viewer: str | None = None
    """Name of a viewer; `scene-data info` lists them. By default viser, and with `--stream` none."""
    stream: bool = False
    """Show the images of `--camera`, or the free view, on a web page of this machine, with or without a viewer."""
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
    """Port of the page of `--stream`, or else of a web viewer; 0 takes a free one."""
    grpc_port: int | None = None
    """Port of the data behind Rerun's page; 0 takes a free one."""
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
    policy: Path | None = None
    """Python file that defines `policy(sim)`, which returns the controls (num_envs, nu) at each step, and, if it likes,
    `setup(sim)`."""
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
        if self.speed is not None and not self.speed > 0.0:
            raise ValueError(f"--speed must be above 0, got {self.speed}")
        if self.policy is not None:
            if self.control != "zero":
                raise ValueError("--policy and --control both say what the controls are; leave out one")
            if not self.policy.is_file():
                raise PolicyError(self.policy, "there is no such file")
        if self.viewer_name is None:
            for option in ("max_visible_envs", "grpc_port", "bind_address", "share", "record", "screenshot"):
                if getattr(self, option):
                    raise ValueError(f"--{option.replace('_', '-')} needs a viewer; name one with --viewer")

    @property
    def viewer_name(self) -> str | None:
        """The viewer, None without one."""
        return self.viewer or (None if self.stream else "viser")


def run_view(args: View, console: Console) -> None:
    """Run the command.

    Raises:
        UnknownNameError: There is no such viewer, engine, camera or keyframe.
        ValueError: Something in the arguments or the model cannot be used; nothing is left behind.
        PolicyError: The policy script cannot be used, or failed; what was recorded until then is saved.
        OSError: The port of the viewer is taken.
        TransportError: That of the stream is.
    """
    specs = [parse_camera_spec(text) for text in args.camera or ((_STREAMED,) if args.stream else ())]
    cfg = SimulationCfg(
        physics.get(args.engine)(args.model, engine=args.engine, num_envs=args.num_envs),
        device=args.device,
        cameras=[CameraCfg(spec.name, spec.width, spec.height, spec.data_types) for spec in specs],
        visualizer_cfgs=[] if args.viewer_name is None else [_viewer_cfg(args, args.viewer_name)],
        render_backend=args.render_backend,
    )
    with terminable(), SimulationContext(cfg) as sim:
        if args.keyframe is not None:
            sim.reset(keyframe=args.keyframe)
        viewers = sim.visualizers
        for viewer in viewers:
            _announce(viewer.name, viewer.address, args, console)
        if args.stream:
            _announce("stream", _add_stream(sim, args.port), args, console)
        started = time.monotonic()
        steps = _simulate(args, sim, console)
        seconds = time.monotonic() - started
        if args.screenshot is not None and sim.visualizers:
            args.screenshot.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(viewers[0].screenshot(*args.screenshot_size)).save(args.screenshot)
    console.print(_closing_table(args, steps, seconds))


def _viewer_cfg(args: View, name: str) -> Any:
    """The configuration of the viewer that was named, with the options that it has."""
    viewer_type = visualizers.get(name)
    if args.screenshot is not None and not viewer_type.takes_screenshots():
        raise ValueError(f"The viewer {name!r} takes no screenshots; leave out --screenshot.")
    cfg_type = viewer_type.cfg_type
    known = cfg_type.command_line_options
    given = {
        "port": None if args.stream else args.port,
        "grpc_port": args.grpc_port,
        "bind_address": args.bind_address,
        "share": args.share or None,
        "record": args.record,
        "speed": args.speed,
    }
    fields: dict[str, Any] = {"max_visible_envs": args.max_visible_envs}
    specs = [parse_camera_spec(text) for text in args.camera]
    fields["camera_images"] = tuple(spec.name for spec in specs if "rgb" in spec.data_types)
    for option, value in given.items():
        if value is None:
            continue
        if option not in known:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in known if name in given) or "none of them"
            raise ValueError(f"The viewer {name!r} has no --{option.replace('_', '-')}. It has: {names}.")
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


def _add_stream(sim: SimulationContext, port: int | None) -> str:
    """Serve the cameras' images; returns the address."""
    stream_type = transports.get("stream")
    return sim.add_transport(stream_type() if port is None else stream_type(port)).url


def _announce(name: str, address: str | None, args: View, console: Console) -> None:
    if address is not None:
        console.print(f"{args.model} in {name}: [bold cyan]{address}[/]", highlight=False, soft_wrap=True)


def _simulate(args: View, sim: SimulationContext, console: Console) -> int:
    """Steps until the end, the last viewer's end, Ctrl-C or SIGTERM; how many they were."""
    has_viewer = args.viewer_name is not None
    pace = None if has_viewer or args.headless else Pace(args.speed or _REAL_TIME)
    steps, time_ns = 0, sim.simulation_time_ns
    try:
        if not args.steps:
            console.print("Ctrl-C ends it.")
        control = _control(args, sim)
        sim.render()
        while (sim.visualizers or not has_viewer) and (not args.steps or steps < args.steps):
            sim.physics.set_control(control(steps))
            sim.step()
            steps += 1
            before_ns, time_ns = time_ns, sim.simulation_time_ns
            if pace is not None:
                pace.wait((time_ns - before_ns) * 1e-9)
    except KeyboardInterrupt:
        pass
    return steps


def _control(args: View, sim: SimulationContext) -> Control:
    if args.policy is not None:
        return PolicyControl(args.policy, sim)
    return make_control(args.control, sim.physics, args.keyframe, args.seed)


def _closing_table(args: View, steps: int, seconds: float) -> Table:
    env_steps = steps * args.num_envs
    table = Table(show_header=False, title=f"{args.model} on {args.engine}")
    table.add_row("environments", f"{args.num_envs}")
    table.add_row("steps", f"{env_steps:,} ({rate(env_steps, seconds)} steps/s)")
    add_files(table, [path for path in (args.record, args.screenshot) if path is not None and path.exists()])
    return table
