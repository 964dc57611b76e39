"""OpenGL contexts without a window of their own on screen: through EGL, GLFW or OSMesa, whichever works here.

A context belongs to the thread that made it. It is current inside its `with` block alone, so that what else uses
OpenGL in the process, a viewer say, is not disturbed. Nothing is shared between contexts.
"""

import ctypes
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_void_p
from functools import cache
from typing import Any

from scene_data.errors import SceneDataError, UnknownNameError

from .render_core.status import ContextIntegrityError

__all__ = ["PLATFORMS", "GlContext", "GlUnavailableError", "choose_platforms", "open_context"]

_GL_RENDERER = 0x1F01
_DISABLING = ("disable", "disabled", "off", "false", "0")

_INSTALL = (
    "On Debian and Ubuntu, one of these brings what is missing: "
    "'apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri' for egl, 'apt-get install libosmesa6' for osmesa, "
    "'apt-get install libgl1 libglx-mesa0 libgl1-mesa-dri xvfb' and 'xvfb-run' for glfw without a screen."
)


class GlUnavailableError(SceneDataError, RuntimeError):
    """No way to OpenGL works here.

    Attributes:
        failures: What went wrong, by platform.
    """

    def __init__(self, failures: dict[str, str]):
        self.failures = failures
        tried = "; ".join(f"{platform}: {reason}" for platform, reason in failures.items())
        super().__init__(f"No OpenGL context could be made ({tried}). {_INSTALL}")


class GlContext(ABC):
    """One OpenGL context, current inside its `with` block.

    Attributes:
        platform: `"egl"`, `"glfw"` or `"osmesa"`.

    Raises:
        OSError: The library is missing, or refuses.
    """

    platform: str

    def __enter__(self) -> "GlContext":
        if not self._make_current():
            raise ContextIntegrityError(
                f"the OpenGL context ({self.platform}) is lost: it can no longer be made current"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    @property
    def renderer(self) -> str:
        """What draws, in the driver's own words. The context must be current."""
        get_string = self.function("glGetString", c_char_p, c_uint)
        return (get_string(_GL_RENDERER) or b"unknown").decode(errors="replace")

    def function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """One of OpenGL's functions, by its C types. The context must be current, here and when it is called."""
        address = self._address(name)
        if not address:
            raise OSError(f"OpenGL has no {name}")
        return ctypes.CFUNCTYPE(result, *arguments)(address)

    @abstractmethod
    def close(self) -> None:
        """End the context, on the thread that made it."""

    @abstractmethod
    def _make_current(self) -> bool: ...

    @abstractmethod
    def _release(self) -> None: ...

    @abstractmethod
    def _address(self, function: str) -> int: ...


class EglContext(GlContext):
    """On a graphics card, or on Mesa's software renderer, without an X server.

    The environment variable `MUJOCO_EGL_DEVICE_ID` chooses among several devices by index.
    """

    platform = "egl"

    def __init__(self):
        self._egl, self._display, config = _egl_display()
        # What is bound, like what is current, belongs to the thread.
        self._egl.eglBindAPI(0x30A2)  # OpenGL, not OpenGL ES
        self._context = self._egl.eglCreateContext(self._display, config, None, None)
        if not self._context:
            raise OSError(f"no context, EGL error {self._egl.eglGetError():#x}")

    def close(self) -> None:
        """End the context."""
        self._release()
        self._egl.eglDestroyContext(self._display, self._context)
        self._egl.eglReleaseThread()

    def _make_current(self) -> bool:
        return bool(self._egl.eglMakeCurrent(self._display, None, None, self._context))

    def _release(self) -> None:
        self._egl.eglMakeCurrent(self._display, None, None, None)

    def _address(self, function: str) -> int:
        return self._egl.eglGetProcAddress(function.encode())


class OsMesaContext(GlContext):
    """On Mesa's off-screen software renderer."""

    platform = "osmesa"

    def __init__(self):
        self._mesa = _load("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so")
        _declare(self._mesa, "OSMesaCreateContextExt", c_void_p, c_uint, c_int, c_int, c_int, c_void_p)
        _declare(self._mesa, "OSMesaMakeCurrent", c_int, c_void_p, c_void_p, c_uint, c_int, c_int)
        _declare(self._mesa, "OSMesaDestroyContext", None, c_void_p)
        _declare(self._mesa, "OSMesaGetProcAddress", c_void_p, c_char_p)
        rgba, depth_bits, stencil_bits, accumulation_bits = 0x1908, 24, 8, 0
        self._context = self._mesa.OSMesaCreateContextExt(rgba, depth_bits, stencil_bits, accumulation_bits, None)
        if not self._context:
            raise OSError("no context")
        # It must have somewhere to draw, though drawing goes to buffers of MuJoCo's own.
        self._pixels = (ctypes.c_uint8 * (4 * 16 * 16))()

    def close(self) -> None:
        """End the context."""
        self._release()
        self._mesa.OSMesaDestroyContext(self._context)
        self._context = None

    def _make_current(self) -> bool:
        unsigned_byte = 0x1401
        return bool(self._mesa.OSMesaMakeCurrent(self._context, self._pixels, unsigned_byte, 16, 16))

    def _release(self) -> None:
        self._mesa.OSMesaMakeCurrent(None, None, 0, 0, 0)

    def _address(self, function: str) -> int:
        return self._mesa.OSMesaGetProcAddress(function.encode())


class GlfwContext(GlContext):
    """On an X server or a Wayland compositor, through a hidden window.

    GLFW is never terminated, since a viewer in the same process may use it too.
    """

    platform = "glfw"

    def __init__(self):
        if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            raise OSError("neither DISPLAY nor WAYLAND_DISPLAY is set")
        import glfw

        self._glfw: Any = glfw
        with _glfw_lock:
            if not glfw.init():
                raise OSError(f"GLFW does not start: {_glfw_error(glfw)}")
            glfw.default_window_hints()
            glfw.window_hint(glfw.VISIBLE, False)
            self._window = glfw.create_window(16, 16, "scene-data", None, None)
            glfw.default_window_hints()  # hints belong to the process
            if not self._window:
                raise OSError(f"no window: {_glfw_error(glfw)}")

    def close(self) -> None:
        """End the context and its window."""
        self._release()
        with _glfw_lock:
            self._glfw.destroy_window(self._window)
            self._window = None

    def _make_current(self) -> bool:
        if self._window is None:
            return False
        self._glfw.make_context_current(self._window)
        return self._glfw.get_current_context() is not None

    def _release(self) -> None:
        self._glfw.make_context_current(None)

    def _address(self, function: str) -> int:
        return self._glfw.get_proc_address(function)


PLATFORMS: dict[str, Callable[[], GlContext]] = {"egl": EglContext, "glfw": GlfwContext, "osmesa": OsMesaContext}
"""Ways to OpenGL, in the order in which they are tried."""

_glfw_lock = threading.Lock()
_egl_lock = threading.Lock()


def choose_platforms(wanted: str | None = None) -> tuple[str, ...]:
    """Which platforms to try, in order.

    Args:
        wanted: The one to use. None is what the environment variable `MUJOCO_GL` names, or all of them.

    Raises:
        UnknownNameError: There is no platform of this name.
        GlUnavailableError: `MUJOCO_GL` turns OpenGL off.
    """
    name = (wanted or os.environ.get("MUJOCO_GL", "")).lower().strip()
    if wanted is None and name in _DISABLING:
        raise GlUnavailableError({"MUJOCO_GL": f"is {name!r}, which turns OpenGL off"})
    if wanted is None and name in ("", "enable", "enabled", "on", "true", "1"):
        return tuple(PLATFORMS)
    name = "glfw" if name == "glx" else name
    if name not in PLATFORMS:
        raise UnknownNameError("OpenGL platform", name, PLATFORMS)
    return (name,)


def open_context(platforms: Sequence[str], check: Callable[[GlContext], None]) -> GlContext:
    """The first context that passes a check, not current yet.

    Args:
        platforms: What to try, in order.
        check: Called with each context made current; whatever it raises rules the context out.

    Raises:
        GlUnavailableError: None did.
    """
    failures: dict[str, str] = {}
    for platform in platforms:
        context = None
        try:
            context = PLATFORMS[platform]()
            with context:
                check(context)
        except Exception as error:
            failures[platform] = str(error) or type(error).__name__
            if context is not None:
                context.close()
        else:
            return context
    raise GlUnavailableError(failures)


def _load(*names: str) -> ctypes.CDLL:
    """The first of these libraries that is there."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError(f"{names[0]} is not installed")


def _declare(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> None:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments


def _egl_display() -> tuple[ctypes.CDLL, int, int]:
    """The library, the display and its configuration: one display for the process, which ends with it.

    To terminate a display would end every context on it, also those of others.
    """
    with _egl_lock:
        return _make_egl_display()


@cache
def _make_egl_display() -> tuple[ctypes.CDLL, int, int]:
    egl = _load("libEGL.so.1", "libEGL.so")
    _declare(egl, "eglGetProcAddress", c_void_p, c_char_p)
    _declare(egl, "eglInitialize", c_uint, c_void_p, c_void_p, c_void_p)
    _declare(egl, "eglChooseConfig", c_uint, c_void_p, POINTER(c_int), POINTER(c_void_p), c_int, POINTER(c_int))
    _declare(egl, "eglBindAPI", c_uint, c_uint)
    _declare(egl, "eglCreateContext", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
    _declare(egl, "eglMakeCurrent", c_uint, c_void_p, c_void_p, c_void_p, c_void_p)
    _declare(egl, "eglDestroyContext", c_uint, c_void_p, c_void_p)
    _declare(egl, "eglReleaseThread", c_uint)
    _declare(egl, "eglGetError", c_int)
    for display in _egl_displays(egl):
        if not (display and egl.eglInitialize(display, None, None)):
            continue
        # 8 bits of red, green, blue and alpha, 24 of depth, 8 of stencil; for pixel buffers and for OpenGL
        # fmt: off
        wanted = (c_int * 17)(
            0x3024, 8, 0x3023, 8, 0x3022, 8, 0x3021, 8, 0x3025, 24, 0x3026, 8, 0x3033, 0x1, 0x3040, 0x8, 0x3038
        )
        # fmt: on
        configs, count = (c_void_p * 1)(), c_int()
        if egl.eglChooseConfig(display, wanted, configs, 1, byref(count)) and count.value:
            return egl, display, configs[0]
    raise OSError("no EGL device has a driver for OpenGL")


def _egl_displays(egl: ctypes.CDLL) -> list[int]:
    """A display on each device, and Mesa's without one."""
    query = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    get_display = egl.eglGetProcAddress(b"eglGetPlatformDisplayEXT")
    if not get_display:
        raise OSError("EGL cannot make displays without an X server")
    display_of = ctypes.CFUNCTYPE(c_void_p, c_uint, c_void_p, c_void_p)(get_display)
    devices, count = (c_void_p * 64)(), c_int()
    if query:
        ctypes.CFUNCTYPE(c_uint, c_int, POINTER(c_void_p), POINTER(c_int))(query)(64, devices, byref(count))
    device_platform, surfaceless_platform = 0x313F, 0x31DD
    chosen = os.environ.get("MUJOCO_EGL_DEVICE_ID")
    if chosen is not None:
        if not (chosen.isdecimal() and int(chosen) < count.value):
            raise OSError(f"MUJOCO_EGL_DEVICE_ID is {chosen!r}, but the EGL devices are 0 to {count.value - 1}")
        return [display_of(device_platform, devices[int(chosen)], None)]
    found = [display_of(device_platform, devices[index], None) for index in range(count.value)]
    return [*found, display_of(surfaceless_platform, None, None)]


def _glfw_error(glfw: Any) -> str:
    code, message = glfw.get_error()
    return message.decode(errors="replace") if message else f"error {code:#x}"
