"""What draws: the interface that every render backend implements."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scene_data.appearance_state import Randomization
from scene_data.errors import UnknownNameError

from .camera import CameraDescriptor
from .layout import PlaneKind
from .status import RenderStatus

if TYPE_CHECKING:
    from scene_data.scene import SceneDescription

    from .demand import RenderPlan
    from .frames import FrameBoundary

__all__ = ["RenderBackend", "RenderConfiguration"]


@dataclass(frozen=True)
class RenderConfiguration:
    """What a backend has to be ready to draw.

    Attributes:
        model_generation: Model in force; a snapshot of another one is never rendered.
        frame_generation: Frame layout in force; a plan of another one is never rendered.
        cameras: Every camera that a plan may ask for.
        device: Warp device of the frames.
        threads: CPU threads that drawing may use; None is as many as the backend likes.

    Raises:
        ValueError: A generation below 1, no cameras, or a repeated camera id.
    """

    model_generation: int
    frame_generation: int
    cameras: tuple[CameraDescriptor, ...]
    device: Any
    threads: int | None = None

    def __post_init__(self):
        for name in ("model_generation", "frame_generation"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.cameras:
            raise ValueError("a render configuration needs at least one camera")
        ids = [camera.id for camera in self.cameras]
        if len(set(ids)) < len(ids):
            raise ValueError(f"camera ids must be unique, but they are {ids}")

    @property
    def longest_plane(self) -> int:
        """Length of the largest plane [bytes]."""
        return max(camera.layout(plane).byte_length for camera in self.cameras for plane in camera.planes)

    def require_support_by(self, backend: "RenderBackend") -> None:
        """Check that a backend can draw every plane.

        Raises:
            UnknownNameError: It cannot; a ValueError.
        """
        for camera in self.cameras:
            for plane in camera.planes:
                if plane not in backend.supported_planes:
                    able = [kind.value for kind in PlaneKind if kind in backend.supported_planes]
                    raise UnknownNameError(f"plane of {type(backend).__name__}", plane.value, able)


class RenderBackend(ABC):
    """Draws the plans of one turn into frame writers.

    A render core calls every method on its one render thread and nowhere else, `request_stop` excepted, so a backend
    may own a graphics context without a lock. What a method raises is a failure: terminal in `initialize` and `resize`;
    in `render` a missed frame, unless it is a `ContextIntegrityError`, which is terminal too.

    Attributes:
        supported_planes: The planes that this backend can draw; every one unless a subclass says otherwise.
        supported_randomizations: What of a snapshot's `appearance` it applies; nothing unless a subclass says so.
    """

    supported_planes: frozenset[PlaneKind] = frozenset(PlaneKind)
    supported_randomizations: frozenset[Randomization] = frozenset()

    @abstractmethod
    def initialize(self, scene: "SceneDescription | None", configuration: RenderConfiguration) -> RenderStatus:
        """Build for a new model. Also called on an initialized backend, whenever the model generation changes."""

    @abstractmethod
    def resize(self, configuration: RenderConfiguration) -> RenderStatus:
        """Adapt to new cameras and frame layouts of the same model."""

    @abstractmethod
    def render(self, snapshot: Any, plans: Sequence["RenderPlan"], boundary: "FrameBoundary") -> RenderStatus:
        """Draw every plan of a turn.

        For each plan `boundary.begin_capture` is called once, and for each of its planes a writer is acquired, filled
        and committed. A plane that fails does not stop the later ones; the status then names the first failure.

        Args:
            snapshot: The state to draw, valid during the call. On CUDA the work is enqueued on Warp's current stream.
            plans: One per due camera, of the generations that were configured.
            boundary: Where the frames go.
        """

    @abstractmethod
    def shutdown_on_render_thread(self) -> None:
        """End the graphics context. The last call that a backend gets."""

    def request_stop(self) -> None:  # noqa: B027  (an override is optional)
        """Ask a render in progress to end early. The only method that other threads call; does nothing by default."""
