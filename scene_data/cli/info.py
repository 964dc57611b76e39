"""`scene-data info`: what a model holds, and who can look at it."""

from collections import Counter
from dataclasses import dataclass
from itertools import groupby

import tyro
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from scene_data.registry import physics, renderers, visualizers
from scene_data.scene import WORLD, CameraDescription, SceneDescription, ShapeDescription

__all__ = ["Info", "run_info"]

_LONGEST_RUN = 8


@dataclass
class Info:
    """Show a model's bodies, shapes, cameras and paths, and what each consumer needs."""

    model: tyro.conf.Positional[str]
    """MJCF, MJB or URDF file, `demo`, or a robot description such as `g1_mj_description`."""
    engine: str = "mujoco"
    """mujoco, mujoco_batch or mujoco_warp."""
    num_envs: int = 1
    """Environments to clone."""
    every_body: bool = False
    """Also list long runs of bodies without shapes, such as the vertices of a cloth, one by one."""


def run_info(args: Info, console: Console) -> None:
    """Run the command.

    Raises:
        ValueError: Something in the arguments or the model cannot be used.
    """
    cfg = physics.get(args.engine)(args.model, engine=args.engine, num_envs=args.num_envs)
    engine = cfg.create("cpu", None)
    try:
        scene = engine.backend.describe_scene()
        console.print(_summary(scene, args, engine.timestep))
        console.print(_body_tree(scene, args.every_body), soft_wrap=True)
        if scene.cameras:
            console.print(_camera_table(scene))
        console.print(_consumer_table(scene))
    finally:
        engine.close()


def _summary(scene: SceneDescription, args: Info, timestep: float) -> Table:
    counts = {
        "bodies": scene.bodies,
        "shapes": scene.shapes,
        "meshes": scene.meshes,
        "materials": scene.materials,
        "textures": scene.textures,
        "height fields": scene.height_fields,
        "flexes": scene.flexes,
        "skins": scene.skins,
        "tendons": scene.tendons,
        "cameras": scene.cameras,
        "lights": scene.lights,
    }
    table = Table(title=f"{scene.name or args.model} on {args.engine}", show_header=False)
    table.add_row("environments", f"{scene.num_envs}")
    table.add_row("timestep", f"{timestep * 1e3:g} ms")
    table.add_row("extent", f"{scene.extent:.3g} m")
    table.add_row("transforms", f"{scene.num_envs * len(scene.bodies):,}, index env * {len(scene.bodies)} + body")
    for name, parts in counts.items():
        if parts:
            table.add_row(name, f"{len(parts):,}")
    return table


def _body_tree(scene: SceneDescription, every_body: bool) -> Tree:
    """The bodies below each other, with their paths in environment 0."""
    paths = scene.body_paths(0)
    shapes: dict[int, list[ShapeDescription]] = {}
    for shape in scene.shapes:
        shapes.setdefault(shape.body, []).append(shape)
    children: dict[int, list[int]] = {}
    for index, body in enumerate(scene.bodies):
        children.setdefault(body.parent, []).append(index)

    def is_bare(index: int) -> bool:
        return not every_body and index not in shapes and index not in children

    def add(parent: Tree, siblings: list[int]) -> None:
        for bare, run in groupby(siblings, key=is_bare):
            bodies = list(run)
            if bare and len(bodies) > _LONGEST_RUN:
                first, last = scene.bodies[bodies[0]], scene.bodies[bodies[-1]]
                parent.add(f"{first.name} ... {last.name}  [dim]{len(bodies)} bodies without shapes[/]")
                continue
            for index in bodies:
                name = scene.bodies[index].name or "(unnamed)"
                node = parent.add(f"{name}  [cyan]{paths[index]}[/]{_shapes(shapes.get(index))}")
                add(node, children.get(index, []))

    root = Tree("[bold]Bodies and shapes[/]")
    add(root, children[WORLD])
    return root


def _shapes(shapes: list[ShapeDescription] | None) -> str:
    if not shapes:
        return ""
    counts = Counter(shape.type.value for shape in shapes)
    return f"  [dim]{', '.join(kind if count == 1 else f'{count} {kind}' for kind, count in counts.items())}[/]"


def _camera_table(scene: SceneDescription) -> Table:
    table = Table("camera", "body", "projection", "path", title="Cameras")
    for camera, path in zip(scene.cameras, scene.paths(scene.cameras, 0), strict=True):
        body = scene.bodies[camera.body].name
        table.add_row(camera.name or "(unnamed)", body, _projection(camera), f"[cyan]{path}[/]")
    return table


def _projection(camera: CameraDescription) -> str:
    if camera.projection == "orthographic":
        return f"orthographic, {camera.fovy:g} m high"
    return f"perspective, {camera.fovy:.3g}° high"


def _consumer_table(scene: SceneDescription) -> Table:
    """Every registered consumer, and whether this engine offers what it needs."""
    table = Table("consumer", "kind", "needs", "here", title="Consumers")
    for registry in (renderers, visualizers):
        installed = dict(registry.installed())
        for name in registry.names():
            if name not in installed:
                table.add_row(name, registry.kind, "", "[dim]its library is not installed[/]")
                continue
            needs = sorted(getattr(installed[name], "requires", ()))
            unmet = [need for need in needs if scene.native(need) is None]
            verdict = f"[red]lacks {', '.join(unmet)}[/]" if unmet else "[green]yes[/]"
            table.add_row(name, registry.kind, ", ".join(needs) or "the scene description", verdict)
    return table
