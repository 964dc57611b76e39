"""CorePlan: what a render core has to be for some cameras, decided and checked before anything is touched."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scene_data.camera import CameraCfg
from scene_data.errors import SceneDataError
from scene_data.registry import renderers
from scene_data.requirements import require_natives
from scene_data.scene import SceneDescription

from ..camera_data import rendered_plane
from ..camera_seat import describe_camera
from ..disabled import DisabledRenderBackend
from .backend import RenderBackend
from .camera import CameraDescriptor
from .capacity import (
    FrameCapacityError,
    compute_frame_byte_capacity,
    compute_frame_slot_capacity,
    compute_warm_slot_count,
)
from .core import RenderCore
from .status import FrameStatus

__all__ = ["HELD_FRAMES", "CorePlan", "UnsupportedPlaneError", "check_data_types"]

HELD_FRAMES = 2
"""Frames per plane that consumers can hold beside the latest and the next one, unless told otherwise."""


class UnsupportedPlaneError(SceneDataError, ValueError):
    """A camera that asks for what its render backend does not make.

    Attributes:
        camera: The camera's name.
        data_type: What it asks for.
        able: Names of the render backends that make it.
    """

    def __init__(self, render_backend: str, camera: str, data_type: str, able: Iterable[str]):
        self.camera = camera
        self.data_type = data_type
        self.able = tuple(able)
        makers = ", ".join(self.able) if self.able else "none that is installed"
        super().__init__(
            f"Camera {camera!r} asks for {data_type!r}, which render backend {render_backend!r} does not make. "
            f"Render backends that do: {makers}."
        )


@dataclass(frozen=True)
class CorePlan:
    """A render core that is not built yet.

    Attributes:
        scene: What it renders.
        cameras: What the user asked for.
        descriptors: The same cameras as the core knows them.
        render_backend: Name of the render backend.
        max_slots: Budget of frames.
        max_bytes: Budget of their bytes.
    """

    scene: SceneDescription
    cameras: tuple[CameraCfg, ...]
    descriptors: tuple[CameraDescriptor, ...]
    render_backend: str
    max_slots: int
    max_bytes: int

    @classmethod
    def of(
        cls,
        scene: SceneDescription,
        cameras: Sequence[CameraCfg],
        render_backend: str,
        max_frame_bytes: int | None,
        held_frames: int = HELD_FRAMES,
    ) -> "CorePlan":
        """Decide and check everything.

        Raises:
            UnknownNameError: A camera, body, data type or render backend is not known.
            UnmetRequirementError: The render backend needs what the engine does not offer.
            UnsupportedPlaneError: A camera asks for what the render backend does not make.
            FrameCapacityError: The budget is too small for one frame of each plane, or too large to count.
            ValueError: A camera name is given twice.
        """
        names = [cfg.name for cfg in cameras]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"camera names must be unique, but {repeated} is given more than once")
        supported = renderers.get(render_backend).supported_planes
        descriptors = tuple(describe_camera(cfg, index, scene, supported) for index, cfg in enumerate(cameras, start=1))
        _check_backend(render_backend, renderers.get(render_backend), scene, cameras)
        histories = [(camera.id, held_frames) for camera in descriptors]
        needed = compute_frame_byte_capacity(descriptors, histories)
        least = sum(camera.layout(plane).byte_length for camera in descriptors for plane in camera.planes)
        if max_frame_bytes is not None and max_frame_bytes < least:
            raise FrameCapacityError(
                f"max_frame_bytes is {max_frame_bytes:,}, but one frame of each plane takes {least:,} bytes"
            )
        slots = compute_frame_slot_capacity(descriptors, histories)
        return cls(scene, tuple(cameras), descriptors, render_backend, slots, max_frame_bytes or needed)

    def create_core(self, device: str, threads: int | None = None) -> RenderCore:
        """A core within the budget, whose backend may use so many threads; `configure` is the next call."""
        backend: RenderBackend = renderers.get(self.render_backend)()
        return RenderCore(backend, self.max_slots, self.max_bytes, device, threads)

    def fits(self, core: RenderCore) -> bool:
        """Whether a core has the budget of this plan."""
        return (core.frames.max_slots, core.frames.max_bytes) == (self.max_slots, self.max_bytes)

    def configure(self, core: RenderCore, model_generation: int, frame_generation: int) -> FrameStatus:
        """Start these generations on a core."""
        warm = compute_warm_slot_count(self.descriptors)
        return core.reconfigure(model_generation, frame_generation, self.descriptors, scene=self.scene, warm_slots=warm)


def _check_backend(
    name: str, backend: type[RenderBackend], scene: SceneDescription, cameras: Sequence[CameraCfg]
) -> None:
    require_natives(f"render backend {name!r}", getattr(backend, "requires", ()), scene)
    for camera in cameras:
        check_data_types(name, backend, camera)


def check_data_types(name: str, backend: type[RenderBackend], camera: CameraCfg) -> None:
    """Check that a render backend makes what a camera asks for.

    Raises:
        UnknownNameError: There is no such data type.
        UnsupportedPlaneError: The backend does not make it; the message names those that do.
    """
    for data_type in camera.data_types:
        if not _makes(backend, camera, data_type):
            makers = [
                other
                for other, able in renderers.installed()
                if able is not DisabledRenderBackend and _makes(able, camera, data_type)
            ]
            raise UnsupportedPlaneError(name, camera.name, data_type, makers)


def _makes(backend: type[RenderBackend], camera: CameraCfg, data_type: str) -> bool:
    return rendered_plane(camera, data_type, backend.supported_planes) in backend.supported_planes
