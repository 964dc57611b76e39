"""A browser without a screen, for pictures of web viewers."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from scene_data.errors import SceneDataError

__all__ = ["NoBrowserError", "headless_browser"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = [
    "--headless=new",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--mute-audio",
    "--remote-debugging-port=0",
]


class NoBrowserError(SceneDataError, RuntimeError):
    """There is no browser that can take the picture."""

    def __init__(self, url: str):
        super().__init__(f"No browser has {url} open, and there is no {' or '.join(_NAMES[:3])} here to open it with.")


@contextmanager
def headless_browser(url: str) -> Iterator[None]:
    """Have a page open in a browser that nobody sees.

    Raises:
        NoBrowserError: There is none.
    """
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        raise NoBrowserError(url)
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # Chromium refuses its sandbox to root.
        sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [program, *_FLAGS, *sandbox, f"--user-data-dir={folder}", url]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            browser.terminate()
            try:
                browser.wait(10)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait()
