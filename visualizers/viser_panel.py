"""The controls beside the scene.

Callbacks come from viser's threads and only say how things are to be; a step compares that with how they are. Nothing
is taken back after it was read, so no click is lost that comes meanwhile.
"""

import queue
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import viser

from .layout import EnvironmentsError, parse_environments
from .viser_plots import ViserPlots

__all__ = ["FREE_VIEW", "PanelContents", "ViserPanel"]

FREE_VIEW = "free"
"""The view that nobody has placed a camera in."""

_SPEEDS = ("1/10", "1/4", "1/2", "1", "2", "5", "max")
_RATE_SECONDS = 1.0
_STATUS_SECONDS = 0.2
_NO_BODY = "none"


@dataclass(frozen=True)
class PanelContents:
    """What there is to choose from.

    Attributes:
        title: First line of the panel.
        views: Names of the cameras to look through.
        groups: Visibility groups, each with whether it is shown.
        spacing: Distance between environments [m]; None where one is shown.
        environments: Those that are shown, as text that `parse_environments` takes; None where there is one.
        num_envs: How many there are.
        cameras: Cameras whose images may be shown.
        bodies: Bodies whose position may be plotted.
        has_contacts: Whether the engine tells its contacts.
        has_plots: Whether anything is plotted.
    """

    title: str
    views: Sequence[str]
    groups: Mapping[int, bool] = field(default_factory=dict)
    spacing: float | None = None
    environments: str | None = None
    num_envs: int = 1
    cameras: Sequence[str] = ()
    bodies: Sequence[str] = ()
    has_contacts: bool = False
    has_plots: bool = False


class ViserPanel:
    """What people can set, and what they are told.

    Args:
        server: Where to show it.
        contents: What there is to choose from.
        speed: Simulation speed at the start, as a multiple of real time; None is as fast as it can.
        is_paused: Whether the simulation waits for somebody to press play.

    Attributes:
        is_paused: Whether somebody has paused the simulation.
        reset_wanted: Whether somebody asked for a reset.
        views_wanted: Client and name of the views that were asked for.
        groups: Visibility groups, each with whether it is to be shown.
        spacing: The distance between environments [m]; None where one is shown.
        env_ids: The environments that were asked for; None before anybody did.
        shows_frames: Whether body frames are to be shown.
        shows_contacts: Whether contacts are to be shown.
        plotted_body: The body whose position is plotted, or None.
        plots: The plots, or None.
    """

    def __init__(self, server: viser.ViserServer, contents: PanelContents, speed: float | None, is_paused: bool):
        self._gui = server.gui
        self._single_steps: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.is_paused = is_paused
        self.reset_wanted = False
        self.views_wanted: list[tuple[int, str]] = []
        self.groups = dict(contents.groups)
        self.spacing = contents.spacing
        self.env_ids: list[int] | None = None
        self.shows_frames = False
        self.shows_contacts = False
        self.plotted_body: str | None = None
        self.plots: ViserPlots | None = None
        self._rate_since: tuple[float, float] | None = None
        self._rate = float("nan")
        self._status_due = 0.0
        self._images: dict[str, Any] = {}
        self._cameras = tuple(contents.cameras)
        self._gui.configure_theme(show_logo=False, show_share_button=False)
        self._gui.main_panel.dock_right()
        self._status = self._gui.add_markdown(f"**{contents.title}**")
        self._title = contents.title
        self._add_simulation(speed)
        self._add_scene(contents)
        self._show_images: Any = None
        self._camera_folder: Any = self._gui.add_folder("Cameras") if self._cameras else None
        if self._cameras:
            self._add_images_switch()
        if contents.has_plots:
            self._add_plots(contents.bodies)

    @property
    def speed(self) -> float | None:
        """Simulation speed that was asked for, as a multiple of real time; None is as fast as it can."""
        return _factor(self._speed.value)

    @property
    def cameras_wanted(self) -> tuple[str, ...]:
        """Cameras whose images are to be shown."""
        return self._cameras if self._show_images is not None and self._show_images.value else ()

    def ask_for_step(self) -> None:
        """Let one step through while paused, as the button does."""
        self._single_steps.put(None)

    def take_single_step(self) -> bool:
        """Whether a step was asked for since; it is taken off."""
        try:
            self._single_steps.get_nowait()
        except queue.Empty:
            return False
        return True

    def set_paused(self, is_paused: bool) -> None:
        """Pause or go on, as the button does."""
        self.is_paused = is_paused
        self._play.label = "Play" if is_paused else "Pause"
        self._play.icon = viser.Icon.PLAYER_PLAY if is_paused else viser.Icon.PLAYER_PAUSE
        self._step.disabled = not is_paused

    def show_status(self, seconds: float, num_shown: int, num_envs: int) -> None:
        """Tell the simulation time [s], how fast it passes, and how many environments are shown."""
        now = time.monotonic()
        if self._rate_since is None or seconds < self._rate_since[1]:
            self._rate_since = (now, seconds)
        elif now - self._rate_since[0] >= _RATE_SECONDS:
            self._rate = (seconds - self._rate_since[1]) / (now - self._rate_since[0])
            self._rate_since = (now, seconds)
        if now < self._status_due:
            return
        self._status_due = now + _STATUS_SECONDS
        rate = "" if np.isnan(self._rate) else f" at {self._rate:.2f} x real time"
        envs = f"{num_shown} of {num_envs} environments" if num_envs > 1 else "1 environment"
        self._status.content = f"**{self._title}**\n\n{seconds:.2f} s{rate}  \n{envs}"

    def show_image(self, name: str, image: np.ndarray) -> None:
        """Show an image, uint8 (H, W, 3), under this name."""
        if name in self._images:
            self._images[name].image = image
        else:
            with self._camera_folder:
                self._images[name] = self._gui.add_image(image, label=name, format="jpeg", jpeg_quality=80)

    def _add_simulation(self, speed: float | None) -> None:
        gui = self._gui
        with gui.add_folder("Simulation"):
            self._play = gui.add_button("Pause", icon=viser.Icon.PLAYER_PAUSE)
            self._step = gui.add_button("Step", icon=viser.Icon.PLAYER_TRACK_NEXT, disabled=True)
            reset = gui.add_button("Reset", icon=viser.Icon.PLAYER_SKIP_BACK)
            offered = sorted({*_SPEEDS, _text(speed)}, key=lambda text: _factor(text) or np.inf)
            self._speed = gui.add_dropdown("Speed", tuple(offered), initial_value=_text(speed))
        self.set_paused(self.is_paused)

        @self._play.on_click
        def _(_: Any) -> None:
            self.set_paused(not self.is_paused)

        @self._step.on_click
        def _(_: Any) -> None:
            self.ask_for_step()

        @reset.on_click
        def _(_: Any) -> None:
            self.reset_wanted = True

    def _add_scene(self, contents: PanelContents) -> None:
        gui = self._gui
        with gui.add_folder("Scene"):
            view = gui.add_dropdown("View", tuple(contents.views), initial_value=contents.views[0])
            if contents.environments is not None:
                self._add_environments(contents.environments, contents.num_envs)
            if contents.spacing is not None:
                self._add_spacing(contents.spacing)
            for group, is_shown in contents.groups.items():
                self._add_group_switch(group, is_shown)
            self._add_overlay_switches(contents.has_contacts)

        @view.on_update
        def _(event: Any) -> None:
            if event.client_id is not None:
                self.views_wanted.append((event.client_id, view.value))

    def _add_spacing(self, spacing: float) -> None:
        slider = self._gui.add_slider("Spacing", 0.0, max(10.0, 3.0 * spacing), 0.1, round(spacing, 1))

        @slider.on_update
        def _(_: Any) -> None:
            self.spacing = float(slider.value)

    def _add_environments(self, shown: str, num_envs: int) -> None:
        text = self._gui.add_text("Environments", shown, hint="all, or indices and ranges such as 0-3, 8")

        @text.on_update
        def _(_: Any) -> None:
            # Half of what is being typed need not make sense.
            try:
                self.env_ids = parse_environments(text.value, num_envs)
            except EnvironmentsError:
                return

    def _add_overlay_switches(self, has_contacts: bool) -> None:
        frames = self._gui.add_checkbox("Body frames", False)

        @frames.on_update
        def _(_: Any) -> None:
            self.shows_frames = bool(frames.value)

        if has_contacts:
            contacts = self._gui.add_checkbox("Contacts", False)

            @contacts.on_update
            def _(_: Any) -> None:
                self.shows_contacts = bool(contacts.value)

    def _add_images_switch(self) -> None:
        with self._camera_folder:
            self._show_images = self._gui.add_checkbox("Show images", True)

        @self._show_images.on_update
        def _(_: Any) -> None:
            for image in self._images.values():
                image.visible = self._show_images.value

    def _add_plots(self, bodies: Sequence[str]) -> None:
        folder = self._gui.add_folder("Plots", expand_by_default=False)
        self.plots = ViserPlots(self._gui, folder)
        if not bodies:
            return
        with folder:
            body = self._gui.add_dropdown("Position of", (_NO_BODY, *bodies), initial_value=_NO_BODY)

        @body.on_update
        def _(_: Any) -> None:
            self.plotted_body = None if body.value == _NO_BODY else body.value

    def _add_group_switch(self, group: int, is_shown: bool) -> None:
        switch = self._gui.add_checkbox(f"Group {group}", is_shown)

        @switch.on_update
        def _(_: Any) -> None:
            self.groups[group] = bool(switch.value)


def _factor(speed: str) -> float | None:
    if speed == "max":
        return None
    numerator, _, denominator = speed.partition("/")
    return float(numerator) / float(denominator or 1.0)


def _text(speed: float | None) -> str:
    if speed is None:
        return "max"
    return next((text for text in _SPEEDS if _factor(text) == speed), f"{speed:g}")
