"""Viewers: what shows one simulation to people, each viewer at its own rate, and none able to stop it by failing."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from scene_data.errors import SceneDataError
from scene_data.provider import SceneDataProvider
from scene_data.registry import visualizers
from scene_data.requirements import check_requirements
from scene_data.viewer_thread import ViewerHangError, ViewerThread

__all__ = ["Viewers"]

_logger = logging.getLogger(__name__)

_IDLE_SECONDS = 1.0 / 60.0
_CATCH_UP_SECONDS = 0.25
_STEP_TIMEOUT = 10.0
_FIRST_UPDATE_GRACE = 120.0

Point = tuple[float, float, float]
_Reading = Callable[[], AbstractContextManager[Any]]


class _Viewing:
    """One viewer on its thread, and when it was updated last."""

    def __init__(self, viewer: Any):
        self.viewer = viewer
        self.name = _name(viewer)
        cfg = getattr(viewer, "cfg", None)
        frequency = getattr(cfg, "update_frequency", None)
        self._period = 1.0 / frequency if frequency else 0.0
        self._due_at = 0.0
        self._elapsed = 0.0
        self._has_shown_anything = False
        self._colors: Any = None
        self.thread = ViewerThread(self.name, getattr(cfg, "step_timeout", _STEP_TIMEOUT))

    @property
    def elapsed(self) -> float:
        """Simulation time since its last update [s]."""
        return self._elapsed

    def is_due(self, dt: float) -> bool:
        """Count the simulation time that has passed, and say whether it is time for an update."""
        self._elapsed += dt
        return time.monotonic() >= self._due_at

    def make_due(self) -> None:
        """Have the next update come at once."""
        self._due_at = 0.0

    def timeout(self) -> float:
        """How long the update that was started may take [s]; the first may compile."""
        grace, self._has_shown_anything = 0.0 if self._has_shown_anything else _FIRST_UPDATE_GRACE, True
        return self.thread.timeout + grace

    def start_update(self, news: "_News", has_markers: bool) -> Future:
        """Have its thread update it; the result says whether it is still open."""
        # From the time at which it was due, so that the rate holds on average; not so far back that it has to hurry.
        now = time.monotonic()
        self._due_at = max(self._due_at + self._period, now)
        elapsed, self._elapsed = self._elapsed, 0.0
        return self.thread.submit(self._update, elapsed, news, has_markers)

    def _update(self, dt: float, news: "_News", has_markers: bool) -> bool:
        viewer = self.viewer
        if getattr(viewer, "is_closed", False) or not viewer.is_running():
            return False
        if news.colors is not self._colors:
            self._colors = news.colors
            if hear := getattr(viewer, "show_shape_colors", None):
                hear(news.colors)
        if news.images:
            if hear := getattr(viewer, "show_camera_infos", None):
                hear(news.infos)
            viewer.show_camera_images(news.images)
        if has_markers:
            viewer.show_markers(news.markers)
        with news.reading():
            viewer.step(0.0 if viewer.is_rendering_paused() else dt)
        return True


class Viewers:
    """The viewers of one simulation.

    A viewer that raises, hangs or is closed is logged by its name and dropped; the others and the simulation go on.

    Args:
        cfgs: A configuration for each, with a `visualizer_type` and `create()`.

    Raises:
        UnknownNameError: A viewer has a name that is not known.
        MissingDependencyError: A library that a viewer needs is not installed.
    """

    def __init__(self, cfgs: Sequence[Any]):
        self._paced_until = 0.0
        self._viewings: list[_Viewing] = []
        self._provider: SceneDataProvider | None = None
        # Every name is looked up before anything is built.
        creators = [_creator(cfg) for cfg in cfgs]
        self._created = [create() for create in creators]

    def __len__(self) -> int:
        return len(self._viewings)

    def __iter__(self) -> Iterator[Any]:
        return (viewing.viewer for viewing in self._viewings)

    def check(self, provider: SceneDataProvider) -> None:
        """Check that the engine offers what each viewer needs.

        Raises:
            UnmetRequirementError: It does not.
        """
        for viewer in self._created:
            check_requirements(f"viewer {_name(viewer)!r}", getattr(viewer, "requires", ()), provider)

    def initialize(self, provider: SceneDataProvider) -> None:
        """Build what each viewer shows; where one fails, all are closed and its error is raised."""
        created, self._created = self._created, []
        self._provider = provider
        try:
            for viewer in created:
                viewing = _Viewing(viewer)
                self._viewings.append(viewing)
                # Without a limit: it may compile, and the program has not begun yet.
                viewing.thread.submit(viewer.initialize, provider).result()
        except BaseException:
            for viewing in tuple(self._viewings):
                self._drop(viewing)
            raise

    def update(
        self,
        dt: float,
        forward: Callable[[], None],
        refresh: Callable[[], None],
        colors: Any,
        cameras: Mapping[str, Any],
        collect_markers: Callable[[], Any],
    ) -> bool:
        """Show the present state in those viewers that are due.

        Args:
            dt: Simulation time since the last call [s].
            forward: Announces writes, called where a viewer cannot do without.
            refresh: Brings poses up to date, called where a viewer will read them: on the thread that steps, which has
                the engine's data at hand, and once for all of them.
            colors: What shapes are drawn in, `(N, S, 4)`; None is the model's own.
            cameras: The simulation's cameras by name.
            collect_markers: Returns the extra geometry, None where there is none.

        Returns:
            Whether somebody asked for a reset.
        """
        due = [viewing for viewing in self._viewings if viewing.is_due(dt)]
        if not due:
            return False
        if any(self._ask_all(due, "requires_forward_before_step", False)):
            forward()
        wanted = {name for names in self._ask_all(due, "wanted_cameras", ()) for name in names}
        marking = [viewing for viewing in due if self._ask(viewing, "wants_markers", False)]
        are_reading = [self._ask(viewing, "wants_poses", True, viewing.elapsed) for viewing in due]
        images, infos = _camera_frames(cameras, wanted)
        markers = _markers(collect_markers) if marking else None
        reading: _Reading = nullcontext
        if any(are_reading):  # after all that others do on this thread: nobody compares again
            refresh()
            reading = self._read_refreshed
        due = [viewing for viewing in due if viewing in self._viewings]
        news = _News(colors, images, infos, markers, reading)
        updates = [(viewing, viewing.start_update(news, viewing in marking)) for viewing in due]
        for viewing, update in updates:
            self._finish(viewing, update, viewing.timeout())
        return any(self._ask_all(tuple(self._viewings), "consume_reset_request", False))

    def is_paused(self) -> bool:
        """Whether somebody wants the simulation to wait; asks every viewer once."""
        return any(self._ask_all(tuple(self._viewings), "is_training_paused", False))

    def idle(self) -> None:
        """Pass a moment of a pause, real time."""
        self._paced_until = 0.0
        time.sleep(_IDLE_SECONDS)

    def pace(self, dt: float) -> None:
        """Wait until `dt` [s] of simulation time may have passed at the slowest speed that a viewer asks for."""
        factors = [factor for factor in self._ask_all(tuple(self._viewings), "real_time_factor", None) if factor]
        if not factors:
            self._paced_until = 0.0
            return
        now = time.monotonic()
        # A simulation that is too slow runs as fast as it can, and does not hurry later to make up for it.
        is_late = now - self._paced_until > _CATCH_UP_SECONDS
        self._paced_until = (now if is_late else self._paced_until) + dt / min(factors)
        if (ahead := self._paced_until - now) > 0.0:
            time.sleep(ahead)

    def set_camera_view(self, eye: Point, target: Point) -> None:
        """Have every viewer look from `eye` at `target` [m]."""
        self._tell("set_camera_view", eye, target)

    def reset(self, soft: bool) -> None:
        """Tell every viewer of a reset, and have it show the state at the next update."""
        self._tell("reset", soft)
        for viewing in self._viewings:
            viewing.make_due()

    def tell(self, event: str) -> None:
        """Tell every viewer of `"play"`, `"pause"` or `"stop"`."""
        self._tell(event)

    def close(self) -> None:
        """Close every viewer.

        Raises:
            ExceptionGroup: Viewers that failed to close; the others were closed all the same.
        """
        failures = [failure for viewing in tuple(self._viewings) if (failure := self._drop(viewing))]
        if failures:
            raise ExceptionGroup("closing the viewers failed", failures)

    def _read_refreshed(self) -> AbstractContextManager[Any]:
        """Reads of what this thread, which waits for them, has brought up to date."""
        assert self._provider is not None
        return self._provider.consistent_read(is_reconciled=True)

    def _tell(self, method: str, *arguments: Any) -> None:
        for viewing in tuple(self._viewings):
            if hear := getattr(viewing.viewer, method, None):
                self._finish(viewing, viewing.thread.submit(hear, *arguments), is_update=False)

    def _ask_all(self, viewings: Sequence[_Viewing], question: str, default: Any) -> list[Any]:
        """What these viewers answer, each of which is asked."""
        return [self._ask(viewing, question, default) for viewing in viewings]

    def _ask(self, viewing: _Viewing, question: str, default: Any, *arguments: Any) -> Any:
        """What a viewer answers; one that does not know the question, raises, or was dropped gives the default."""
        if viewing not in self._viewings:
            return default
        ask = getattr(viewing.viewer, question, None)
        try:
            return default if ask is None else ask(*arguments)
        except Exception:  # whatever it is, the simulation goes on
            self._fail(viewing)
            return default

    def _fail(self, viewing: _Viewing) -> None:
        _logger.exception("The viewer %r failed; the simulation goes on without it.", viewing.name)
        self._drop(viewing)

    def _finish(self, viewing: _Viewing, call: Future, timeout: float | None = None, is_update: bool = True) -> None:
        try:
            is_open = viewing.thread.result(call, timeout) or not is_update
        except ViewerHangError as error:
            _logger.error("%s It is left behind; the simulation goes on without it.", error)
            self._viewings.remove(viewing)
            viewing.thread.submit(viewing.viewer.close)  # once it wakes, if it ever does
            viewing.thread.end_later()
            return
        except Exception:
            self._fail(viewing)
        else:
            if not is_open:
                _logger.info("The viewer %r was closed.", viewing.name)
                self._drop(viewing)

    def _drop(self, viewing: _Viewing) -> Exception | None:
        """Close a viewer and forget it; the failure, if it failed to close, is logged and returned."""
        self._viewings.remove(viewing)
        try:
            viewing.thread.call(viewing.viewer.close)
        except Exception as failure:  # whatever it is, the others have to be closed too
            _logger.exception("Closing the viewer %r failed.", viewing.name)
            return failure
        finally:
            viewing.thread.end()
        return None


def _name(viewer: Any) -> str:
    return getattr(viewer, "name", None) or type(viewer).__name__


def _creator(cfg: Any) -> Callable[[], Any]:
    create = getattr(cfg, "create", None)
    if create is None:
        viewer = visualizers.get(getattr(cfg, "visualizer_type", type(cfg).__name__))
        return lambda: viewer(cfg)
    return create


def _markers(collect: Callable[[], Any]) -> Any:
    """The extra geometry; None where it cannot be had."""
    try:
        return collect()
    except SceneDataError as error:  # what is wrong with it is raised where frames are read; viewers go without it
        _logger.warning("No extra geometry for the viewers: %s", error)
        return None


class _News(NamedTuple):
    """What there is to show beside the poses, and how those are read."""

    colors: Any
    images: Mapping[str, np.ndarray]
    infos: Mapping[str, Any]
    markers: Any
    reading: _Reading


def _camera_frames(cameras: Mapping[str, Any], wanted: set[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Images of the wanted cameras, as far as there are any, and what each shows beside its pixels."""
    images, infos = {}, {}
    for name in sorted(wanted & set(cameras)):
        try:
            data = cameras[name].data
            images[name], infos[name] = data.lease("rgb").numpy(), data.info
        except (SceneDataError, ValueError) as error:  # a frame that could not be made is missing, and no more
            _logger.warning("No image of camera %r for the viewers: %s", name, error)
    return images, infos
