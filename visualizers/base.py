"""What every viewer is: a configuration, and an object that a simulation initializes, steps and closes."""

import html
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scene_data.geometry_sources import PackedGeometry
from scene_data.provider import SceneDataProvider
from scene_data.registry import visualizers
from scene_data.requirements import check_requirements

__all__ = ["BaseVisualizer", "VisualizerCfg"]

Point = tuple[float, float, float]

_NOTEBOOK_HEIGHT = 600


@dataclass(kw_only=True)
class VisualizerCfg:
    """What viewers have in common. A subclass names its viewer in `visualizer_type`.

    Attributes:
        eye: Where the camera starts [m]; None, with `lookat`, is the model's own default view.
        lookat: What it looks at [m].
        max_visible_envs: How many environments are shown at most; None is all of them.
        visible_env_indices: Which environments are shown, in this order; those that do not exist are left out. None is
            the first ones.
        update_frequency: Updates per second of real time [Hz]; None is one at every render interval.
        env_spacing: Distance between neighbours in the grid that environments are laid out in, for the eye only [m].
            None chooses it by the size of the model where the environments would all stand in one place, else 0.
        enable_markers: Whether extra geometry (contacts, frames, goals, ...) is shown.
        enable_live_plots: Whether `live_plots` are shown.
        live_plots: Functions that return the present value of a scalar, by name.
        camera_images: Cameras of the simulation whose images are shown beside the scene.
        step_timeout: How long an update may take before the viewer counts as hung and is dropped [s]. The first one, in
            which it may compile, has two minutes more, and initialization has no limit.

    Raises:
        ValueError: A number that cannot be used.
    """

    visualizer_type: ClassVar[str] = ""
    command_line_options: ClassVar[Mapping[str, str]] = {}
    """The field behind each option of `scene-data view` that only some viewers have, such as `"port"`."""

    eye: Point | None = None
    lookat: Point | None = None
    max_visible_envs: int | None = None
    visible_env_indices: Sequence[int] | None = None
    update_frequency: float | None = None
    env_spacing: float | None = None
    enable_markers: bool = True
    enable_live_plots: bool = True
    live_plots: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    camera_images: Sequence[str] = ()
    step_timeout: float = 10.0

    def __post_init__(self):
        _check(self, "max_visible_envs", lambda value: value >= 0, "must not be negative")
        _check(self, "update_frequency", lambda value: value > 0.0, "must be above 0 Hz")
        _check(self, "env_spacing", lambda value: value >= 0.0, "must not be negative")
        _check(self, "step_timeout", lambda value: value > 0.0, "must be above 0 s")
        if (self.eye is None) != (self.lookat is None):
            raise ValueError("eye and lookat are given together, or neither of them")
        if self.eye is not None and self.lookat is not None:
            _check_view(self.eye, self.lookat)

    def create(self) -> "BaseVisualizer":
        """The viewer. A configuration whose viewer is not registered overrides this.

        Raises:
            UnknownNameError: No viewer has this name.
            MissingDependencyError: A library that it needs is not installed.
        """
        return visualizers.get(self.visualizer_type)(self)


class BaseVisualizer(ABC):
    """One viewer. Its life: construct, `initialize`, `step` again and again, `close`.

    A `SimulationContext` makes all these calls from one thread that the viewer has for itself, apart from the questions
    (`is_...`, `requires_...`, `consume_...`), which must return at once.

    Attributes:
        requires: What it needs of the engine beyond the `SceneDescription`: `"usd_stage"`, `"newton_model"` or
            `"mujoco_model"`.
        cfg_type: The configuration that it is created from where it is asked for by name.
        cfg: What the user asked for.
        provider: What it reads, None before `initialize`.
        env_ids: The environments that it shows, in order, int64 of shape (E,).
    """

    requires: ClassVar[tuple[str, ...]] = ()
    cfg_type: ClassVar[type[VisualizerCfg]] = VisualizerCfg

    def __init__(self, cfg: VisualizerCfg):
        self.cfg = cfg
        self.provider: SceneDataProvider | None = None
        self.env_ids = np.zeros(0, dtype=np.int64)
        self._is_closed = False
        self._reset_requested = False
        self._camera_view = None if cfg.eye is None or cfg.lookat is None else (cfg.eye, cfg.lookat)

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.cfg.visualizer_type or type(self).__name__

    @property
    def address(self) -> str | None:
        """Where people look at it: a URL or a file, None where it opens a window."""
        return None

    @property
    def is_initialized(self) -> bool:
        """Whether it has something to read."""
        return self.provider is not None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def initialize(self, provider: SceneDataProvider) -> None:
        """Build what it shows. A subclass calls this first.

        Raises:
            UnmetRequirementError: The engine does not offer what `requires` names.
        """
        check_requirements(f"viewer {self.name!r}", self.requires, provider)
        self.provider = provider
        self.env_ids = self._chosen_envs(max(provider.num_envs, 1))

    @abstractmethod
    def step(self, dt: float) -> None:
        """Show the present state. All viewers that are updated together read the same one.

        Args:
            dt: Simulation time since the last call [s]; 0 while paused.
        """

    def close(self) -> None:
        """Release everything. A second call does nothing."""
        self._is_closed = True

    def is_running(self) -> bool:
        """Whether it is open. False once its user closed it."""
        return not self._is_closed

    def is_training_paused(self) -> bool:
        """Whether its user wants the simulation to wait. Asked once before each physics step."""
        return False

    def is_rendering_paused(self) -> bool:
        """Whether its user wants the picture to stand still; it is stepped with 0 s then."""
        return False

    def reset(self, soft: bool = False) -> None:  # noqa: B027 - nothing to do unless overridden
        """The simulation was reset; after a hard one the model may be another."""

    def set_camera_view(self, eye: Point, target: Point) -> None:
        """Look from `eye` at `target` [m]; before `initialize` it is kept until then.

        Raises:
            ValueError: They are the same point.
        """
        _check_view(eye, target)
        self._camera_view = (eye, target)

    def requires_forward_before_step(self) -> bool:
        """Whether `SimulationContext.forward()` has to come before `step`. Never for what reads the provider."""
        return False

    def wants_poses(self, dt: float) -> bool:
        """Whether the next `step(dt)` would read poses, so that they are brought up to date once for all viewers."""
        return True

    def get_visualized_env_ids(self) -> list[int]:
        """The environments that it shows, in order."""
        return self.env_ids.tolist()

    def consume_reset_request(self) -> bool:
        """Whether its user asked for a reset since the last call."""
        requested, self._reset_requested = self._reset_requested, False
        return requested

    def real_time_factor(self) -> float | None:
        """How fast the simulation may run at most, as a multiple of real time; None is as fast as it can."""
        return None

    def wanted_cameras(self) -> Sequence[str]:
        """Cameras whose images it would show at the next `step`."""
        return ()

    def show_camera_infos(self, infos: Mapping[str, Any]) -> None:  # noqa: B027 - nothing to do unless overridden
        """Hear where the cameras were and how they projected, `FrameInfo` by name, before `show_camera_images`."""

    def show_camera_images(self, images: Mapping[str, np.ndarray]) -> None:  # noqa: B027 - nothing to do unless overridden
        """Show images of cameras, uint8 (N, H, W, 3) by name, all environments. The arrays are lent."""

    def wants_markers(self) -> bool:
        """Whether it would show extra geometry at the next `step`."""
        return False

    def show_markers(self, markers: PackedGeometry | None) -> None:  # noqa: B027 - nothing to do unless overridden
        """Show extra geometry in place of what was shown before; None is nothing."""

    def show_shape_colors(self, colors: NDArray[np.float32] | None) -> None:  # noqa: B027 - nothing to do unless overridden
        """Hear that shapes have other colours from the next `step` on, those that `sim.appearance` sets.

        Args:
            colors: RGBA in [0, 1], `(N, S, 4)`, for all environments and all shapes of the scene description; never
                written to. None is the model's own.
        """

    @classmethod
    def takes_screenshots(cls) -> bool:
        """Whether there is a `screenshot` to be had of it."""
        return cls.screenshot is not BaseVisualizer.screenshot

    def screenshot(self, width: int, height: int) -> np.ndarray:
        """What the viewer shows at present, uint8 (height, width, 3). Called from any thread, between steps.

        Raises:
            NotImplementedError: This viewer takes no pictures.
        """
        raise NotImplementedError(f"the viewer {self.name!r} takes no screenshots")

    def _repr_html_(self) -> str | None:
        """What a notebook shows of it: the page, where it has one that is open."""
        if self.is_closed or self.address is None or not self.address.startswith("http"):
            return None
        style = f"width: 100%; height: {_NOTEBOOK_HEIGHT}px; border: none"
        return f'<iframe src="{html.escape(self.address)}" style="{style}" allow="fullscreen"></iframe>'

    def play(self) -> None:  # noqa: B027 - nothing to do unless overridden
        """The simulation goes on."""

    def pause(self) -> None:  # noqa: B027 - nothing to do unless overridden
        """The simulation was paused by the program."""

    def stop(self) -> None:  # noqa: B027 - nothing to do unless overridden
        """The simulation was stopped by the program."""

    def _chosen_envs(self, num_envs: int) -> np.ndarray:
        """The environments to show."""
        chosen = range(num_envs) if self.cfg.visible_env_indices is None else self.cfg.visible_env_indices
        existing = [env for env in dict.fromkeys(chosen) if 0 <= env < num_envs]
        return np.array(existing[: self.cfg.max_visible_envs], dtype=np.int64)


def _check(cfg: VisualizerCfg, name: str, is_valid: Callable[[Any], bool], complaint: str) -> None:
    value = getattr(cfg, name)
    if value is not None and not is_valid(value):
        raise ValueError(f"{name} {complaint}, got {value}")


def _check_view(eye: Point, target: Point) -> None:
    points = [np.asarray(point, dtype=float) for point in (eye, target)]
    if any(point.shape != (3,) or not np.isfinite(point).all() for point in points):
        raise ValueError(f"a camera view is two points (x, y, z), got {eye!r} and {target!r}")
    if (points[0] == points[1]).all():
        raise ValueError(f"the camera cannot stand at the point that it looks at, {tuple(eye)}")
