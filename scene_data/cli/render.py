"""`scene-data render`: simulate, render, and write frames."""

import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from scene_data.cli.archive import CaptureArchive
from scene_data.cli.camera_spec import camera_cfgs
from scene_data.cli.colour import colour_plane
from scene_data.cli.contact_sheet import SheetBlock, draw_contact_sheet, sheet_columns
from scene_data.cli.controls import make_control
from scene_data.cli.images import ImageFolder
from scene_data.cli.publish import Publications
from scene_data.cli.run import RunOptions, RunTimes, add_files, rate, run_steps
from scene_data.cli.tiling import tile
from scene_data.cli.video import VideoWriter, require_video
from scene_data.registry import physics
from scene_data.simulation import SimulationContext
from scene_data.simulation_cfg import SimulationCfg

__all__ = ["Render", "run_render"]

_DEFAULT_SIZE = (320, 240)
_MAX_FPS = 60.0
_CONTACT_SHEET = "contact_sheet.png"


@dataclass
class Render(RunOptions):
    """Simulate a model and write what its cameras see.

    Writes an MP4 and an NPZ per camera and one contact sheet. The first capture is the initial state.
    """

    model: tyro.conf.Positional[str]
    """MJCF, MJB or URDF file, `demo`, or a robot description such as `g1_mj_description`."""
    steps: int = field(default=500, kw_only=True)
    """Physics steps; 0 captures the initial state alone."""
    camera: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME:WxH[:rgb,depth,seg]")
    ] = ()
    """A camera of the model, or `free`; may be repeated. Default: every camera of the model at 320x240."""
    out: Path = Path("out")
    """Folder to write to."""
    png: bool = False
    """Also write each image as a PNG, depth in 16 bits as millimetres."""
    render_backend: str = "mujoco_warp"
    """Who renders."""
    publish: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="ros1:/NS|ros2:/NS|mcap:FILE")
    ] = ()
    """Where else the captures of the first environment go; may be repeated."""


def run_render(args: Render, console: Console) -> None:
    """Run the command.

    Raises:
        ValueError: Something in the arguments or the model cannot be used; nothing is left behind.
        MissingDependencyError: A library is missing.
    """
    require_video()
    cfg = SimulationCfg(
        physics.get(args.engine)(args.model, engine=args.engine, num_envs=args.num_envs),
        device=args.device,
        cameras=lambda scene: camera_cfgs(args.camera, scene, _DEFAULT_SIZE),
        render_backend=args.render_backend,
    )
    with SimulationContext(cfg) as sim:
        if args.keyframe is not None:
            sim.reset(keyframe=args.keyframe)
        _simulate(args, sim, console)


def _simulate(args: Render, sim: SimulationContext, console: Console) -> None:
    control = make_control(args.control, sim.physics, args.keyframe, args.seed)
    with ExitStack() as stack:
        fps = min(_MAX_FPS, 1.0 / (sim.get_physics_dt() * args.every))
        outputs = [_CameraOutput(stack, args, camera, fps) for camera in sim.cameras.values()]
        publications = Publications(sim, args.publish)

        def advance(step: int) -> None:
            sim.physics.set_control(control(step))
            sim.step(render=False)

        def capture() -> None:
            for output in outputs:
                output.capture()
            publications.flush()

        times = run_steps(args, f"{args.num_envs} x {args.model}", advance, capture, console)
        _write_contact_sheet(args, sim, outputs)
    table = _closing_table(args, sim, outputs, times)
    publications.finish(table)
    console.print(table)


def _write_contact_sheet(args: Render, sim: SimulationContext, outputs: list["_CameraOutput"]) -> None:
    title = f"{Path(args.model).stem}, {args.num_envs} environment{'s' * (args.num_envs > 1)}"
    subtitle = f"{args.engine}, {args.steps} steps of {sim.get_physics_dt() * 1e3:g} ms, {args.control} control"
    sheet = draw_contact_sheet(title, subtitle, [output.sheet_block(args) for output in outputs])
    sheet.save(args.out / _CONTACT_SHEET)


def _closing_table(args: Render, sim: SimulationContext, outputs: list["_CameraOutput"], times: RunTimes) -> Table:
    outcomes = sim.render_core.stats()["turn_outcomes"]
    drops = [f"{count} {code}" for code, count in outcomes.items() if code != "OK"]
    env_steps, frames = args.steps * args.num_envs, sum(output.frames for output in outputs)
    table = Table(show_header=False, title=f"{args.model} on {args.engine}")
    table.add_row("environments", f"{args.num_envs}")
    table.add_row("steps", f"{env_steps:,} ({rate(env_steps, times.physics)} steps/s)")
    table.add_row("frames", f"{frames:,} ({rate(frames, times.samples)} frames/s)")
    table.add_row("captures", f"{args.samples} of {', '.join(sim.cameras)}")
    table.add_row("drops", ", ".join(drops) or "none")
    add_files(table, [*(path for output in outputs for path in output.files), args.out / _CONTACT_SHEET])
    return table


class _CameraOutput:
    """The files of one camera."""

    def __init__(self, stack: ExitStack, args: Render, camera: Any, fps: float):
        self.camera = camera
        self.frames = 0
        self.data_types = camera.cfg.data_types
        self._shown = "rgb" if "rgb" in self.data_types else self.data_types[0]
        stem = _file_stem(camera.name)
        layouts = {name: camera.layout(name) for name in self.data_types}
        planes = {name: (layout.shape, np.dtype(layout.dtype)) for name, layout in layouts.items()}
        self.archive = stack.enter_context(CaptureArchive(args.out / f"{stem}.npz", args.samples, planes))
        self.video = stack.enter_context(VideoWriter(args.out / f"{stem}.mp4", fps))
        self.images = stack.enter_context(ImageFolder(args.out / f"{stem}_png")) if args.png else None

    @property
    def files(self) -> list[Path]:
        """What it writes."""
        return [self.archive.path, self.video.path]

    def capture(self) -> None:
        """Store a capture of the present state."""
        data = self.camera.data
        planes = {name: data.lease(name).numpy() for name in self.data_types}
        self.archive.append(planes, data.info.simulation_time_ns, data.info.capture_id)
        self.video.append(tile(colour_plane(self._shown, planes[self._shown])))
        if self.images is not None:
            self.images.append(planes)
        self.frames += sum(len(plane) for plane in planes.values())

    def sheet_block(self, args: Render) -> SheetBlock:
        """What the contact sheet shows of it."""
        columns = sheet_columns(args.samples, args.num_envs)
        arrays = self.archive.arrays
        planes = {name: np.stack([arrays[name][column] for column in columns]) for name in self.data_types}
        times = [f"{arrays['simulation_time_ns'][capture] / 1e9:.2f} s" for capture, _ in columns]
        if args.num_envs > 1:
            times = [f"env {env}, {time}" for (_, env), time in zip(columns, times, strict=True)]
        return SheetBlock(self.camera.name, planes, times)


def _file_stem(camera: str) -> str:
    """A camera's name as a file name: MuJoCo allows any character in it."""
    return re.sub(r"[^\w.-]", "_", camera)
