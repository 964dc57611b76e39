"""The viewers that are measured, ours and others, on one scene."""

import os
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from viewer_clients import free_port, rerun_viewer, viser_page
from viewer_crowd import Crowd

from scene_data import SceneDataProvider
from scene_data.formats import SceneDataFormat

__all__ = ["DRAWS_LATER", "PEERS", "RATE_HZ", "SUBJECTS", "Subject", "installed", "open_watched"]

RATE_HZ = 30.0
_WINDOW = (640, 400)


class Subject(Protocol):
    """A viewer that is measured.

    `update` shows the present state of the crowd, and `sent` says how many bytes have left for whoever looks.
    """

    def update(self) -> None: ...
    def sent(self) -> int: ...


class Ours:
    """One of our viewers, without a SimulationContext around it."""

    def __init__(self, crowd: Crowd, stack: ExitStack, cfg: Any, sent: Callable[[], int] = lambda: 0):
        self.viewer = cfg.create()
        self.sent = sent
        self.viewer.initialize(crowd.sim.provider)
        stack.callback(_quietly(self.viewer.close))

    def update(self) -> None:
        self.viewer.step(1.0 / RATE_HZ)


def _our_viser(crowd: Crowd, stack: ExitStack) -> Subject:
    ours = Ours(crowd, stack, _viser_cfg())
    ours.sent = stack.enter_context(viser_page(ours.viewer.address))
    return ours


def _our_rerun(crowd: Crowd, stack: ExitStack) -> Subject:
    url, sent = stack.enter_context(rerun_viewer())
    return Ours(crowd, stack, _rerun_cfg(url), sent)


def _our_newton(crowd: Crowd, stack: ExitStack) -> Subject:
    return Ours(crowd, stack, _newton_cfg())


def _our_usd(crowd: Crowd, stack: ExitStack) -> Subject:
    folder = stack.enter_context(TemporaryDirectory())
    return Ours(crowd, stack, _usd_cfg(folder), _size_of(folder))


class Mjviser:
    """mjviser's scene, given the arrays of the engine."""

    def __init__(self, crowd: Crowd, stack: ExitStack):
        import viser
        from mjviser import ViserMujocoScene

        with redirect_stdout(StringIO()):
            server = viser.ViserServer("127.0.0.1", 0, verbose=False)
        stack.callback(_quietly(server.stop))
        self._scene = ViserMujocoScene(server, crowd.model, crowd.num_envs)
        batch = crowd.sim.physics.batch  # pyright: ignore[reportAttributeAccessIssue]
        self._positions, self._rotations = batch.bind("xpos"), batch.bind("xmat")
        self.sent = stack.enter_context(viser_page(f"http://127.0.0.1:{server.get_port()}"))

    def update(self) -> None:
        envs, bodies, _ = self._positions.shape
        self._scene.update_from_arrays(self._positions, self._rotations.reshape(envs, bodies, 3, 3))


class NewtonsOwn:
    """A viewer of Newton's, on a Newton model of the scene whose state holds the poses."""

    def __init__(self, crowd: Crowd, stack: ExitStack, viewer: Any, sent: Callable[[], int] = lambda: 0):
        self._state, self._read, model = _newton_scene(crowd)
        self.viewer = viewer
        self.sent = sent
        stack.callback(_quietly(viewer.close))
        viewer.set_model(model)
        self._time = 0.0
        self.update()

    def update(self) -> None:
        self._read()
        self._time += 1.0 / RATE_HZ
        self.viewer.begin_frame(self._time)
        self.viewer.log_state(self._state)
        self.viewer.end_frame()


def _newtons_viser(crowd: Crowd, stack: ExitStack) -> Subject:
    import newton.viewer

    port = free_port()
    with redirect_stdout(StringIO()):
        viewer = newton.viewer.ViewerViser(host="127.0.0.1", port=port, verbose=False)
    subject = NewtonsOwn(crowd, stack, viewer)
    subject.sent = stack.enter_context(viser_page(f"http://127.0.0.1:{port}"))
    return subject


def _newtons_rerun(crowd: Crowd, stack: ExitStack) -> Subject:
    import newton.viewer

    url, sent = stack.enter_context(rerun_viewer())
    return NewtonsOwn(crowd, stack, newton.viewer.ViewerRerun(address=url), sent)


def _newtons_window(crowd: Crowd, stack: ExitStack) -> Subject:
    import newton.viewer

    return NewtonsOwn(crowd, stack, newton.viewer.ViewerGL(*_WINDOW))


def _newtons_usd(crowd: Crowd, stack: ExitStack) -> Subject:
    import newton.viewer

    folder = stack.enter_context(TemporaryDirectory())
    viewer = newton.viewer.ViewerUSD(str(Path(folder, "newton.usdc")), fps=int(RATE_HZ), num_frames=None)
    return NewtonsOwn(crowd, stack, viewer, _size_of(folder))


SUBJECTS: dict[str, Callable[[Crowd, ExitStack], Subject]] = {
    "viser": _our_viser,
    "mjviser": Mjviser,
    "newton's viser": _newtons_viser,
    "rerun": _our_rerun,
    "newton's rerun": _newtons_rerun,
    "newton": _our_newton,
    "newton's window": _newtons_window,
    "usd": _our_usd,
    "newton's usd": _newtons_usd,
}

PEERS = {
    "viser": ("mjviser", "newton's viser"),
    "rerun": ("newton's rerun",),
    "newton": ("newton's window",),
    "usd": ("newton's usd",),
}
"""Ours, and what each is measured against."""

DRAWS_LATER = ("newton",)
"""Those whose `update` returns before anything is drawn, so that its time says nothing about drawing."""

_LIBRARIES = {"viser": "viser", "rerun": "rerun", "newton": "newton", "usd": "pxr", "mjviser": "mjviser"}


def installed() -> tuple[str, ...]:
    """The viewers that can be measured here; windows need a screen, which `xvfb-run` gives."""
    names = []
    for name in SUBJECTS:
        library = _LIBRARIES.get(name, "newton")
        needs_screen = name in ("newton", "newton's window")
        if find_spec(library) is not None and not (needs_screen and not os.environ.get("DISPLAY")):
            names.append(name)
    return tuple(names)


def open_watched(name: str, model: Any, num_envs: int, stack: ExitStack) -> tuple[Crowd, Callable[[], None] | None]:
    """A crowd with a viewer at `RATE_HZ`, and what has to be called after each step for it, if anything.

    A simulation runs our viewers by itself.
    """
    if name in PEERS:
        return _with_ours(name, model, num_envs, stack), None
    crowd = Crowd(model, num_envs)
    stack.callback(crowd.sim.close)
    subject = SUBJECTS[name](crowd, stack)
    return crowd, _at_rate(crowd, subject)


def _with_ours(name: str, model: Any, num_envs: int, stack: ExitStack) -> Crowd:
    match name:
        case "viser":
            cfg = _viser_cfg()
        case "rerun":
            cfg = _rerun_cfg(stack.enter_context(rerun_viewer())[0])
        case "newton":
            cfg = _newton_cfg()
        case _:
            cfg = _usd_cfg(stack.enter_context(TemporaryDirectory()))
    crowd = Crowd(model, num_envs, [cfg])
    stack.callback(_quietly(crowd.sim.close))
    if name == "viser":
        stack.enter_context(viser_page(crowd.sim.visualizers[0].address))
    return crowd


def _at_rate(crowd: Crowd, subject: Subject) -> Callable[[], None]:
    import time

    due = 0.0

    def look() -> None:
        nonlocal due
        if (now := time.perf_counter()) >= due:
            due = max(due + 1.0 / RATE_HZ, now)
            crowd.sim.provider.backend.update_kinematics()
            subject.update()

    return look


def _viser_cfg() -> Any:
    from scene_data.visualizers import ViserVisualizerCfg

    return ViserVisualizerCfg(port=0, update_frequency=RATE_HZ, enable_live_plots=False)


def _rerun_cfg(url: str) -> Any:
    from scene_data.visualizers import RerunVisualizerCfg

    return RerunVisualizerCfg(connect_to=url, update_frequency=RATE_HZ)


def _newton_cfg() -> Any:
    from scene_data.visualizers import NewtonVisualizerCfg

    return NewtonVisualizerCfg(width=_WINDOW[0], height=_WINDOW[1], headless=False, update_frequency=RATE_HZ)


def _usd_cfg(folder: str) -> Any:
    from scene_data.visualizers import UsdVisualizerCfg

    return UsdVisualizerCfg(path=Path(folder, "ours.usdc"), fps=RATE_HZ, update_frequency=RATE_HZ)


@cache
def _newton_model(crowd: Crowd) -> Any:
    from scene_data.interop.newton import build_newton_look

    return build_newton_look(
        crowd.sim.provider.backend.describe_scene(), "cpu", is_drawn=lambda part: part.group < 3
    ).model


def _newton_scene(crowd: Crowd) -> tuple[Any, Callable[[], Any], Any]:
    """A Newton state, what brings it up to the crowd's, and the model."""
    model = _newton_model(crowd)
    state = model.state()
    poses = SceneDataFormat.Transform()
    poses.transforms = state.body_q
    provider = SceneDataProvider(crowd.sim.physics.backend)
    return state, lambda: provider.get_transforms(poses, allow_passthrough=False), model


def _size_of(folder: str) -> Callable[[], int]:
    return lambda: sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _quietly(call: Callable[[], None]) -> Callable[[], None]:
    def quiet() -> None:
        with redirect_stdout(StringIO()):
            call()

    return quiet
