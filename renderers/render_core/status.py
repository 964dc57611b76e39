"""What can go wrong, by name: the codes that frames, turns and render backends report."""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from scene_data.errors import SceneDataError

if TYPE_CHECKING:
    from .layout import PlaneKind

__all__ = [
    "ContextIntegrityError",
    "FrameStatus",
    "FrameStatusCode",
    "RenderStatus",
    "RenderStatusCode",
    "RenderTurnError",
    "StaleGenerationError",
    "is_context_integrity_failure",
]


class FrameStatusCode(Enum):
    """Outcome of an operation on frames, snapshots or turns."""

    OK = "ok"
    FRAME_UNAVAILABLE = "frame_unavailable"
    FRAME_SLOTS_EXHAUSTED = "frame_slots_exhausted"
    STALE_GENERATION = "stale_generation"
    GENERATION_CAPACITY_EXHAUSTED = "generation_capacity_exhausted"
    SNAPSHOT_POOL_EXHAUSTED = "snapshot_pool_exhausted"
    INVALID_LAYOUT = "invalid_layout"
    INVALID_POLICY = "invalid_policy"
    BUSY = "busy"
    STOPPED = "stopped"
    NOT_INITIALIZED = "not_initialized"
    BACKEND_FAILURE = "backend_failure"
    BACKEND_UNAVAILABLE = "backend_unavailable"
    TERMINAL_ERROR = "terminal_error"


class RenderStatusCode(Enum):
    """Outcome of a call to a render backend."""

    OK = "ok"
    NOT_INITIALIZED = "not_initialized"
    STOPPED = "stopped"
    STALE_MODEL_GENERATION = "stale_model_generation"
    BACKEND_FAILURE = "backend_failure"
    FRAME_UNAVAILABLE = "frame_unavailable"
    FRAME_SLOTS_EXHAUSTED = "frame_slots_exhausted"
    GENERATION_CAPACITY_EXHAUSTED = "generation_capacity_exhausted"
    BACKEND_UNAVAILABLE = "backend_unavailable"
    TERMINAL_ERROR = "terminal_error"

    @property
    def frame_code(self) -> FrameStatusCode:
        """The frame code of the same meaning."""
        if self is RenderStatusCode.STALE_MODEL_GENERATION:
            return FrameStatusCode.STALE_GENERATION
        return FrameStatusCode[self.name]


@dataclass(frozen=True)
class FrameStatus:
    """Outcome of an operation on frames, and what it concerned.

    Attributes:
        code: What happened.
        capture_id: The capture concerned, 0 for none.
        plane: The plane concerned, None for none or all.
        generation: The frame generation concerned, 0 for none.
        message: More for people; may be empty.
    """

    code: FrameStatusCode
    capture_id: int = 0
    plane: "PlaneKind | None" = None
    generation: int = 0
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the operation did what was asked."""
        return self.code is FrameStatusCode.OK


@dataclass(frozen=True)
class RenderStatus:
    """Outcome of a call to a render backend.

    Attributes:
        code: What happened.
        message: More for people; may be empty.
    """

    code: RenderStatusCode
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the backend did what was asked."""
        return self.code is RenderStatusCode.OK


_INTEGRITY_FAILURES = frozenset({"BACKEND_FAILURE", "BACKEND_UNAVAILABLE", "TERMINAL_ERROR"})


def is_context_integrity_failure(status: FrameStatus | RenderStatus | FrameStatusCode | RenderStatusCode) -> bool:
    """Whether a status means that the graphics context can no longer be trusted, as opposed to an expected miss."""
    code = status.code if isinstance(status, FrameStatus | RenderStatus) else status
    return code.name in _INTEGRITY_FAILURES


class ContextIntegrityError(SceneDataError, RuntimeError):
    """Raised by a render backend whose graphics context is gone; ends rendering until the backend is replaced.

    Attributes:
        message: What happened to the context.
    """

    def __init__(self, message: str):
        self.message = message
        super().__init__(message)


class StaleGenerationError(SceneDataError, RuntimeError):
    """A registration from before the model was reloaded or its cameras changed.

    Attributes:
        name: What was registered.
    """

    def __init__(self, name: str):
        self.name = name
        super().__init__(f"{name!r} was registered with an earlier generation of cameras; register it anew.")


class RenderTurnError(SceneDataError, RuntimeError):
    """A turn that made no frame.

    Attributes:
        status: What the render core reports.
    """

    def __init__(self, what: str, status: FrameStatus):
        self.status = status
        super().__init__(f"{what}: {status.code.name}. {status.message}".rstrip())
