"""CameraGroup: cameras in a loop of one's own, which share a render core and its turns."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from scene_data.appearance import Appearance
from scene_data.camera import CameraCfg
from scene_data.provider import SceneDataProvider
from scene_data.renderers.camera_data import CameraData
from scene_data.renderers.camera_sensor import Camera
from scene_data.renderers.render_core import RenderCore
from scene_data.renderers.render_core.pipeline import RenderPipeline
from scene_data.renderers.render_core.publication import FrameTransport

__all__ = ["CameraGroup"]

TransportT = TypeVar("TransportT", bound=FrameTransport)


class CameraGroup(Mapping[str, Camera]):
    """Cameras by name, on the provider of a loop that you step yourself.

    Reading one of them in the synchronous mode renders all those in the same turn that were read since their frames.
    Nothing has to be told about steps, writes and resets: the provider's timestamps say whether the state has moved.
    The time of a frame is the provider's. Leave the group with `close()`, or use it in a `with` statement.

    Args:
        cameras: What to see, from where.
        provider: Reads the engine.
        render_backend: Name of the render backend.
        render_mode: `"synchronous"`; or `"pipelined"` or `"free_running"`, which render what `update()` finds, as a
            `SimulationContext` does after its steps.
        held_frames: Frames of each plane that you can hold beside the latest and the next one.
        max_frame_bytes: Budget of the frame store; None is what `held_frames` needs.
        physics_lock: What your loop holds while it writes to the engine; needed where another thread reads the cameras.

    Raises:
        UnknownNameError: A camera, body, data type, render backend or render mode is not known.
        ValueError: A camera asks for what the render backend does not make (the message names those that do), two have
            the same name, or the budget does not fit.
        UnmetRequirementError: The render backend needs what the engine does not offer.
        RenderTurnError: The render backend could not be set up.
    """

    def __init__(
        self,
        cameras: Sequence[CameraCfg],
        provider: SceneDataProvider,
        *,
        render_backend: str = "mujoco_warp",
        render_mode: str = "synchronous",
        held_frames: int = 2,
        max_frame_bytes: int | None = None,
        physics_lock: AbstractContextManager[Any] | None = None,
    ):
        self._pipeline = RenderPipeline(
            provider,
            cameras,
            render_backend=render_backend,
            render_mode=render_mode,
            device=str(provider.device),
            physics_lock=threading.RLock() if physics_lock is None else physics_lock,
            clock=lambda: provider.simulation_time_ns,
            max_frame_bytes=max_frame_bytes,
            held_frames=held_frames,
        )
        self._pipeline.before_step()

    @property
    def core(self) -> RenderCore:
        """The render core behind the cameras."""
        return self._pipeline.core

    @property
    def appearance(self) -> Appearance:
        """What the environments look like, to be changed in each of them: colours, textures, sizes, lights."""
        return self._pipeline.appearance

    @property
    def dropped_turns(self) -> int:
        """Turns that found the core busy, in the free-running mode."""
        return self._pipeline.dropped_turns

    def read(self) -> dict[str, CameraData]:
        """The data of all cameras by name; in the synchronous mode of one state, made in one turn.

        Raises:
            RenderTurnError, StaleGenerationError: As `Camera.data`.
        """
        return self._pipeline.read_all([camera.seat for camera in self.values()])

    def update(self) -> None:
        """The engine was stepped: render for transports, and for the render modes that do not wait for a read."""
        self._pipeline.after_step()

    def add_transport(self, transport: TransportT) -> TransportT:
        """Publish through a transport of `scene_data.renderers.transports` at each `update()`, and return it."""
        self._pipeline.add_transport(transport)
        return transport

    def remove_transport(self, transport: FrameTransport) -> None:
        """Close a transport and publish no longer through it.

        Raises:
            ValueError: It is none of this group's.
        """
        self._pipeline.remove_transport(transport)

    def close(self) -> None:
        """End the render thread and the transports; a second call does nothing. Held tensors stay valid."""
        self._pipeline.close()

    def __getitem__(self, name: str) -> Camera:
        return self._pipeline.cameras[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pipeline.cameras)

    def __len__(self) -> int:
        return len(self._pipeline.cameras)

    def __enter__(self) -> "CameraGroup":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()
