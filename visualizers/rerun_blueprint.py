"""How Rerun shows the data at first: the scene, the images beside it, the plots below, and nothing in the way."""

from collections.abc import Sequence

import numpy as np
import rerun.blueprint as rrb
from numpy.typing import NDArray

from scene_data.scene import SceneDescription

from .base import Point

__all__ = ["PLOTS", "SIM_TIME", "STEP", "default_view", "make_blueprint"]

SIM_TIME = "sim_time"
"""The timeline of simulation time."""

STEP = "step"
"""The timeline that counts updates and only grows."""

PLOTS = "/plots"
"""What the plots hang below."""

_SKY = (228, 233, 238)
_MAX_IMAGES = 8


def make_blueprint(
    name: str, eye: Point, target: Point, images: Sequence[str], has_plots: bool, timeline: str = SIM_TIME
) -> rrb.Blueprint:
    """The layout.

    Args:
        name: What the scene is called.
        eye: Where one looks from [m].
        target: What one looks at [m].
        images: Entities of cameras, each with an image.
        has_plots: Whether there are plots.
        timeline: The time that is followed.
    """
    controls = rrb.EyeControls3D(kind=rrb.Eye3DKind.Orbital, position=eye, look_target=target, eye_up=(0.0, 0.0, 1.0))
    scene = rrb.Spatial3DView(
        origin="/World",
        contents="/World/**",
        name=name,
        background=_SKY,
        line_grid=rrb.LineGrid3D(visible=False),
        eye_controls=controls,
    )
    beside: list[rrb.Spatial2DView | rrb.TimeSeriesView] = [
        rrb.Spatial2DView(origin=path, contents=f"{path}/**", name=path.rsplit("/", 1)[-1])
        for path in images[:_MAX_IMAGES]
    ]
    if has_plots:
        beside.append(rrb.TimeSeriesView(origin=PLOTS, contents=f"{PLOTS}/**", name="plots"))
    layout = rrb.Horizontal(scene, rrb.Vertical(*beside), column_shares=[3, 1]) if beside else scene
    return rrb.Blueprint(
        layout,
        rrb.TimePanel(timeline=timeline, state="collapsed", play_state="following"),
        auto_layout=False,
        auto_views=False,
        collapse_panels=True,
    )


def default_view(scene: SceneDescription, offsets: NDArray[np.float64]) -> tuple[Point, Point]:
    """Where one looks from and what at [m]: the model's own view, from further away where environments are spread out.

    Args:
        scene: The scene.
        offsets: Where each environment is moved to [m], `(E, 3)`.
    """
    free = scene.free_camera
    reach = float(np.abs(offsets).max()) if len(offsets) else 0.0
    eye = free.lookat + (free.position - free.lookat) * (1.0 + 2.0 * reach / free.distance)
    return _point(eye), _point(free.lookat)


def _point(values: NDArray[np.float64]) -> Point:
    x, y, z = (float(value) for value in values)
    return x, y, z
