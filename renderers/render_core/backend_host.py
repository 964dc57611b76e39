"""How a render core calls its backend: whatever that raises becomes a status."""

import logging
import traceback
from typing import Any

from .backend import RenderBackend, RenderConfiguration
from .frames import FrameBoundary
from .status import ContextIntegrityError, RenderStatus, RenderStatusCode
from .turns import RenderTurn

__all__ = ["BackendHost", "release"]

_log = logging.getLogger(__name__)


class BackendHost:
    """Calls a render backend and turns whatever it raises into a status. Called on the render thread alone.

    Attributes:
        backend: The backend in use.
    """

    def __init__(self, backend: RenderBackend, frames: FrameBoundary):
        self.backend = backend
        self._frames = frames
        self._order = frames.work_order
        self._model_generation = 0
        self._logged = ""  # the failure of the latest renders, which is logged once

    def prepare(self, scene: Any, configuration: RenderConfiguration) -> RenderStatus:
        """Initialize for a new model, or resize for new frames of the same one. Every failure is terminal."""
        is_new_model = configuration.model_generation != self._model_generation
        try:
            with self._order.rendering():
                if is_new_model:
                    status = self.backend.initialize(scene, configuration)
                else:
                    status = self.backend.resize(configuration)
        except Exception as error:
            _log.exception("%s failed to prepare", type(self.backend).__name__)
            return RenderStatus(RenderStatusCode.BACKEND_FAILURE, _describe(error))
        if not isinstance(status, RenderStatus):
            return RenderStatus(RenderStatusCode.BACKEND_FAILURE, f"the backend returned {status!r}, no RenderStatus")
        if status.ok:
            self._model_generation = configuration.model_generation
        return status

    def render(self, turn: RenderTurn) -> RenderStatus:
        """Render a turn and release its snapshot."""
        with self._order.rendering():
            try:
                status = self.backend.render(turn.snapshot, turn.plans, self._frames)
            except ContextIntegrityError as error:
                status = RenderStatus(RenderStatusCode.BACKEND_FAILURE, _describe(error))
                _clear_frames(error)
            except Exception as error:
                self._log_once(error)
                status = RenderStatus(RenderStatusCode.FRAME_UNAVAILABLE, _describe(error))
                _clear_frames(error)
            else:
                self._logged = ""
            release(turn)
        if not isinstance(status, RenderStatus):
            return RenderStatus(RenderStatusCode.FRAME_UNAVAILABLE, f"the backend returned {status!r}, no RenderStatus")
        return status

    def _log_once(self, error: Exception) -> None:
        description = _describe(error)
        if description != self._logged:
            _log.exception("%s failed to render", type(self.backend).__name__)
        self._logged = description

    def replace(self, backend: RenderBackend) -> None:
        """End the backend and take another one."""
        self.end()
        self.backend = backend
        self._model_generation = 0

    def request_stop(self) -> None:
        """Ask a render in progress to end. The one method for other threads."""
        try:
            self.backend.request_stop()
        except Exception:
            _log.exception("%s failed to take a stop request", type(self.backend).__name__)

    def end(self) -> None:
        """Let the backend end its graphics context."""
        try:
            with self._order.rendering():
                self.backend.shutdown_on_render_thread()
        except Exception:
            _log.exception("%s failed to shut down", type(self.backend).__name__)


def release(turn: RenderTurn) -> None:
    """Give a turn's snapshot back; a failure of that must not end the render thread."""
    try:
        turn.snapshot.release()
    except Exception:
        _log.exception("A snapshot could not be released")


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _clear_frames(error: BaseException) -> None:
    """End the writers that a failed render left open: whoever keeps its exception, say a log, must not keep them."""
    errors, seen = [error], {id(error)}
    while errors:
        error = errors.pop()
        traceback.clear_frames(error.__traceback__)
        for other in (error.__cause__, error.__context__, *getattr(error, "exceptions", ())):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                errors.append(other)
