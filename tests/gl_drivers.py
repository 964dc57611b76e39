"""Which ways to OpenGL a machine has, and an X server for the one that needs a screen."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library

import pytest

__all__ = ["DRIVERS", "needs_gl", "screen"]

DRIVERS = {
    "egl": find_library("EGL") is not None,
    "osmesa": find_library("OSMesa") is not None,
    "glfw": find_library("GLX") is not None and shutil.which("Xvfb") is not None,
}

needs_gl = pytest.mark.skipif(not DRIVERS["egl"], reason="needs libegl1 and libegl-mesa0")


@contextmanager
def screen() -> Iterator[str]:
    """The name of a display, on an X server that draws nowhere."""
    read, write = os.pipe()
    with open(read) as ready:
        command = ["Xvfb", "-displayfd", str(write), "-screen", "0", "64x64x24", "-nolisten", "tcp"]
        server = subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL)
        os.close(write)
        try:
            yield f":{ready.readline().strip()}"
        finally:
            server.terminate()
            server.wait()
