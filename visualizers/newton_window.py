"""What Newton's viewer draws into: a window, or a picture where there is no screen.

The library that opens windows has one state for the whole process, and is not made for several threads. So one thread
does all the drawing, whoever asks for it, and ends with the last viewer.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scene_data.errors import SceneDataError
from scene_data.optional import optional_libraries
from scene_data.viewer_thread import ViewerThread

from .drawing_priority import draws_in_software, native_threads, yield_cores

with optional_libraries("Newton's viewer"):
    import pyglet
    from newton.viewer import Picking, ViewerGL

__all__ = ["GRAPHICS", "NewtonWindow", "NoGraphicsError", "has_screen"]

_INSTALL_EGL = "'apt-get install libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri' lets it draw without a window"
_INSTALL_X = (
    "'apt-get install libgl1 libglx-mesa0 libgl1-mesa-dri xvfb' and 'xvfb-run' give it a screen to open its window on, "
    "and headless=True (--headless) needs none"
)
_FOREVER = threading.TIMEOUT_MAX
_EXPOSURE = 1.0  # Newton's own, 1.6, lets colours fade to white


class NoGraphicsError(SceneDataError, RuntimeError):
    """A machine, or a process, in which Newton's viewer cannot draw.

    Attributes:
        headless: Whether it was to draw without a window.
        reason: What is in its way.
    """

    def __init__(self, headless: bool, reason: str):
        self.headless = headless
        self.reason = reason
        what = "draw without a window" if headless else "open a window"
        super().__init__(f"Newton's viewer cannot {what}: {reason}")


class _GraphicsThread:
    """The thread that draws, for as long as somebody needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._thread: ViewerThread | None = None

    def acquire(self) -> None:
        """Start it, if it does not run."""
        with self._lock:
            if self._thread is None:
                self._thread = ViewerThread("graphics", _FOREVER)
            self._users += 1

    def release(self) -> None:
        """End it, if nobody else needs it."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._thread is not None:
                self._thread.end()
                self._thread = None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Have a call made on it."""
        thread = self._thread
        if thread is None:
            raise RuntimeError("the viewer is not open")
        return thread.submit(function, *arguments)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call on it, and wait for what it returns."""
        return self.submit(function, *arguments).result()


GRAPHICS = _GraphicsThread()


def has_screen() -> bool:
    """Whether there is a screen to open a window on."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY"))


class NewtonWindow(ViewerGL):
    """Newton's viewer, of which there may be several. Every call is made on the `GRAPHICS` thread.

    Where there is no graphics card, that thread and the renderer's own run on cores that the simulation leaves free.

    Args:
        width: Of the picture [pixels].
        height: Of the picture [pixels].
        headless: Whether it draws without a window.
        paused: Whether the simulation is to wait at first.
        title: Of the window.

    Attributes:
        close_requested: Whether its user closed the window; it is there until `close`.

    Raises:
        NoGraphicsError: It cannot draw here.
    """

    close_requested = False

    def __init__(self, width: int, height: int, headless: bool, paused: bool, title: str):
        _choose_mode(headless)
        threads = native_threads()
        try:
            super().__init__(width, height, headless=headless, paused=paused)
        except Exception as error:  # whatever the drivers raise, the reader has to know what to install
            place = "" if headless else f" (DISPLAY is {os.environ.get('DISPLAY')!r})"
            cure = _INSTALL_EGL if headless else _INSTALL_X
            raise NoGraphicsError(headless, f"{error}{place}. {cure}.") from error
        if draws_in_software(self.renderer.window.context.get_info().get_renderer()):
            yield_cores(native_threads() - threads)
        self.pick_from(None)
        self.renderer.exposure = _EXPOSURE
        self.renderer.window.push_handlers(on_close=self._ask_to_close)
        self.renderer.set_title(title)
        if self.ui is not None and self.ui.is_available:
            self.ui.io.set_ini_filename("")  # or it leaves a file with its layout wherever the user works

    def pick_from(self, model: Any | None) -> None:
        """Let the user pull at bodies of a Newton model, which has those that are shown. None ends it."""
        self.picking_enabled = model is not None
        if model is not None:
            self.picking = Picking(model, world_offsets=self.world_offsets)

    def take(self, state: Any, seconds: float) -> None:
        """Take a state to draw. Nothing of it is read later."""
        self.begin_frame(seconds)
        if not self.is_rendering_paused():
            self.log_state(state)

    def draw(self) -> None:
        """Draw what was taken, after the user's events were heard."""
        self.make_current()
        self.end_frame()

    def make_current(self) -> None:
        """Have what is called next be about this window, not another one."""
        self.renderer.window.switch_to()

    def picture(self, width: int, height: int) -> NDArray[np.uint8]:
        """A picture of what was taken last, in any size, uint8 (height, width, 3)."""
        self.make_current()
        window = self.renderer.window
        if (width, height) == self.size:
            return self._picture_of_this_size()
        # A window manager need not grant a size, but the picture that is shown in the window may have any.
        window.get_framebuffer_size = lambda: (width, height)
        try:
            self._follow_size()
            return self._picture_of_this_size()
        finally:
            del window.get_framebuffer_size
            self._follow_size()

    @property
    def size(self) -> tuple[int, int]:
        """Width and height [pixels]."""
        return self.renderer.window.get_framebuffer_size()

    def close(self) -> None:
        """Close it and release what it has."""
        self.make_current()
        super().close()

    def on_key_press(self, symbol: int, modifiers: int) -> None:
        """Newton's keys, of which Escape closes this window alone."""
        if self.gui is not None:
            self.gui.handle_key_press(symbol, close_fn=self._ask_to_close)

    def _ask_to_close(self) -> bool:
        self.close_requested = True
        return True  # heard: the window stays until everything in it is released

    def _follow_size(self) -> None:
        self.renderer.resize(*self.size)
        self.on_resize(*self.size)

    def _picture_of_this_size(self) -> NDArray[np.uint8]:
        self.renderer.render(self.camera, self.objects, self.lines, self.wireframe_shapes, self.arrows)
        return self.get_frame().numpy()


def _choose_mode(headless: bool) -> None:
    """Set what cannot be changed once the first window, or picture in its place, was opened in a process."""
    if "pyglet.window" in sys.modules:
        if bool(pyglet.options["headless"]) != headless:
            chosen = "pictures without windows" if pyglet.options["headless"] else "windows"
            raise NoGraphicsError(
                headless, f"this process has chosen {chosen} before, and cannot change that any more."
            )
        return
    if not headless and not has_screen():
        raise NoGraphicsError(headless, f"there is no screen (DISPLAY is not set). {_INSTALL_X}.")
    pyglet.options["headless"] = headless
    # It would belong to the thread that imports it.
    pyglet.options["shadow_window"] = False
