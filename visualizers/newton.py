"""Newton's viewer: a window on this machine, or pictures without one, for any engine."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scene_data.cli.tiling import tile
from scene_data.cli.video import VideoWriter
from scene_data.geometry_sources import PackedGeometry
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

from .base import BaseVisualizer, Point
from .height_fields import HeightFieldWatch
from .layout import default_spacing
from .newton_cfg import NewtonVisualizerCfg
from .newton_scene import NewtonScene
from .newton_window import GRAPHICS, NewtonWindow, has_screen
from .sampling import SampleClock

__all__ = ["NewtonVisualizer"]

_LEAST_SHADOWS = 4.0  # [m]: nearer, Newton's sun would stand inside the scene


class NewtonVisualizer(BaseVisualizer):
    """Shows the simulation in Newton's window.

    The simulation waits until its state was taken, and not until it was drawn.

    The window has Newton's keys: the space bar pauses, a full stop makes one step, F frames the model, Escape closes.
    Without a window nothing is drawn until somebody asks for a picture.

    Attributes:
        window: Newton's viewer, for what is not offered here; None before `initialize`. It belongs to a thread of its
            own.
    """

    cfg_type = NewtonVisualizerCfg

    cfg: NewtonVisualizerCfg

    def __init__(self, cfg: NewtonVisualizerCfg):
        super().__init__(cfg)
        self.window: NewtonWindow | None = None
        self._is_headless = not has_screen() if cfg.headless is None else cfg.headless
        self._scene: NewtonScene | None = None
        self._description: SceneDescription | None = None
        self._markers: PackedGeometry | None = None
        self._colors: NDArray[np.float32] | None = None
        self._height_fields: HeightFieldWatch | None = None
        self._spacing = 0.0
        self._drawing: Future | None = None
        self._drawn_since = 0.0
        self._video: VideoWriter | None = None
        self._video_clock = SampleClock(cfg.record_fps)

    @property
    def scene(self) -> NewtonScene | None:
        """The Newton model that it shows, and its state; None before `initialize`."""
        return self._scene

    def initialize(self, provider: SceneDataProvider) -> None:
        """Open the window.

        Raises:
            NoGraphicsError: There is no screen, or no driver.
            MissingDependencyError: What writes videos is not installed.
        """
        super().initialize(provider)
        GRAPHICS.acquire()
        try:
            GRAPHICS.call(self._open, provider)
            if self.cfg.record_to_video is not None:
                path = Path(self.cfg.record_to_video)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._video = VideoWriter(path, self.cfg.record_fps)
        except BaseException:
            self._release()
            raise

    def step(self, dt: float) -> None:
        """Show the present state, and record it. Without a window, only what is recorded is drawn."""
        if self.window is None:
            return
        if not self._is_headless and self._is_drawn():
            self._plot()
            GRAPHICS.call(self._take)
            self._drawing = GRAPHICS.submit(self.window.draw)
            self._drawn_since = time.monotonic()
        if self._video is not None and self._video_clock.advance(dt):
            self._video.append(self.screenshot(self.cfg.width, self.cfg.height))

    def wants_poses(self, dt: float) -> bool:
        """Whether something is drawn: in the window, unless it is behind, or for the video."""
        if self.window is None:
            return False
        is_shown = not self._is_headless and self._is_drawn()
        return is_shown or (self._video is not None and self._video_clock.is_due_after(dt))

    def close(self) -> None:
        """Close the window, and write the video."""
        super().close()
        video, self._video = self._video, None
        try:
            if video is not None:
                video.__exit__(None, None, None)
        finally:
            if self.window is not None:
                self._release()

    def reset(self, soft: bool = False) -> None:
        """Show the new model, if it is another."""
        if self.provider is None or self.window is None:
            return
        if self.provider.backend.describe_scene() is not self._description:
            self.env_ids = self._chosen_envs(max(self.provider.num_envs, 1))
            GRAPHICS.call(self._show, self.provider)

    def set_camera_view(self, eye: Point, target: Point) -> None:
        """Look from `eye` at `target` [m]. Newton's camera looks at most 89 degrees up or down."""
        super().set_camera_view(eye, target)
        if self.window is not None:
            GRAPHICS.call(self._look, eye, target)

    def is_running(self) -> bool:
        """Whether it is open, and its user has not closed the window."""
        return super().is_running() and not (self.window is not None and self.window.close_requested)

    def is_training_paused(self) -> bool:
        """Whether somebody has pressed the space bar; a single step lets one through."""
        return self.window is not None and not self.window.should_step()

    def is_rendering_paused(self) -> bool:
        """Whether somebody wants the picture to stand still."""
        return self.window is not None and self.window.is_rendering_paused()

    def real_time_factor(self) -> float | None:
        """The speed that was chosen."""
        return self.cfg.speed

    def wanted_cameras(self) -> Sequence[str]:
        """Cameras whose images are shown beside the scene, where there is a panel."""
        return tuple(self.cfg.camera_images) if self._has_panel() else ()

    def show_camera_images(self, images: Mapping[str, np.ndarray]) -> None:
        """Show images, uint8 (N, H, W, 3) by name, those of the environments that are shown side by side."""
        if self.window is None or not len(self.env_ids):
            return
        for name, image in images.items():
            GRAPHICS.call(self.window.log_image, name, tile(image[self.env_ids]))

    def wants_markers(self) -> bool:
        """Whether extra geometry is shown; without a window somebody may ask for a picture at any time."""
        return self.window is not None and self.cfg.enable_markers

    def show_markers(self, markers: PackedGeometry | None) -> None:
        """Show extra geometry in place of what was shown before."""
        self._markers = markers

    def show_shape_colors(self, colors: NDArray[np.float32] | None) -> None:
        """Draw shapes in other colours, all environments' `(N, S, 4)`; how opaque they are stays."""
        self._colors = colors

    def apply_forces(self, state: Any) -> None:
        """Add to a Newton engine's state what the user pulls at with the mouse.

        Call it where other forces are added: after they are cleared, and before the solver's step.

        Args:
            state: The `newton.State` that is stepped; `body_f` is added to.
        """
        picking = None if self.window is None or not self.window.picking_enabled else self.window.picking
        if picking is not None:
            picking.apply_force(state)

    def get_frame(self) -> NDArray[np.uint8]:
        """The picture, uint8 (height, width, 3): what the window shows, or without one the present state.

        Raises:
            RuntimeError: It is not open.
        """
        return self._picture(None)

    def screenshot(self, width: int, height: int) -> np.ndarray:
        """What the window shows, or without one the present state, uint8 (height, width, 3).

        Raises:
            RuntimeError: It is not open.
        """
        return self._picture((width, height))

    # -- inside, on the graphics thread

    def _open(self, provider: SceneDataProvider) -> None:
        cfg = self.cfg
        title = provider.backend.describe_scene().name or "scene"
        self.window = NewtonWindow(cfg.width, cfg.height, self._is_headless, cfg.start_paused, title)
        self.window.set_reset_callback(self._ask_for_reset)
        self._show(provider)

    def _show(self, provider: SceneDataProvider) -> None:
        window = self.window
        assert window is not None
        window.make_current()
        self._description = scene = provider.backend.describe_scene()
        spacing = self.cfg.env_spacing
        self._spacing = default_spacing(provider, scene) if spacing is None else spacing
        self._markers = self._colors = None
        self._height_fields = HeightFieldWatch(provider, scene)
        self._scene = self._build(provider, scene)
        reach = float(np.abs(self._scene.offsets).max()) if len(self.env_ids) else 0.0
        window.camera.near, window.camera.far = scene.near, max(scene.far, 8.0 * reach)
        if scene.free_camera.projection == "perspective":
            window.camera.fov = scene.free_camera.fovy
        extent = float(np.linalg.norm(scene.center)) + scene.extent + reach
        window.renderer.shadow_extents = max(extent, _LEAST_SHADOWS)
        self._look(*(self._camera_view or _default_view(scene, reach)))

    def _build(self, provider: SceneDataProvider, scene: SceneDescription) -> NewtonScene:
        assert self.window is not None
        return NewtonScene(self.window, provider, scene, self.env_ids, self._spacing, self.cfg.geom_groups)

    def _look(self, eye: Point, target: Point) -> None:
        assert self.window is not None
        self.window.set_camera(eye)
        self.window.camera.look_at(target)

    def _take(self) -> None:
        """Take the present state to be drawn."""
        if self.window is None or self._scene is None or self.provider is None or self._height_fields is None:
            return
        self.window.make_current()
        if changed := self._height_fields.changed():
            old = self._scene.description
            fields = tuple(changed.get(index, field) for index, field in enumerate(old.height_fields))
            self._scene = self._build(self.provider, replace(old, height_fields=fields))
        self._scene.show_colors(self._colors)
        self._scene.read()
        self._scene.show(self._markers)

    def _take_picture(self, size: tuple[int, int] | None) -> NDArray[np.uint8]:
        assert self.window is not None
        if self._is_headless or self._drawing is None:
            self._take()
        return self.window.picture(*(size or self.window.size))

    def _close_window(self) -> None:
        window, self.window = self.window, None
        self._scene = None
        if window is not None:
            window.close()

    # -- inside, on any thread

    def _is_drawn(self) -> bool:
        """Whether the last state was drawn: the simulation goes on meanwhile, and what it shows is left out."""
        if self._drawing is None:
            return True
        if self._drawing.done():
            self._drawing.result()  # what it raised is raised here
            return True
        if time.monotonic() > self._drawn_since + self.cfg.step_timeout:
            raise RuntimeError(f"drawing has taken more than {self.cfg.step_timeout:g} s")
        return False

    def _picture(self, size: tuple[int, int] | None) -> NDArray[np.uint8]:
        if self.window is None:
            raise RuntimeError("the viewer is not open")
        return GRAPHICS.call(self._take_picture, size)

    def _release(self) -> None:
        try:
            GRAPHICS.call(self._close_window)
        finally:
            GRAPHICS.release()

    def _plot(self) -> None:
        if self.window is not None and self._has_panel() and self.cfg.enable_live_plots:
            for name, value in self.cfg.live_plots.items():
                GRAPHICS.call(self.window.log_scalar, name, float(value()))

    def _has_panel(self) -> bool:
        return self.window is not None and self.window.ui is not None and self.window.ui.is_available

    def _ask_for_reset(self) -> None:
        self._reset_requested = True


def _default_view(scene: SceneDescription, reach: float) -> tuple[Point, Point]:
    """The model's own, from further away where environments are spread out."""
    free = scene.free_camera
    away = (free.position - free.lookat) * (1.0 + 2.0 * reach / free.distance)
    return _point(free.lookat + away), _point(free.lookat)


def _point(values: NDArray[np.float64]) -> Point:
    x, y, z = (float(value) for value in values)
    return x, y, z
