"""What a finished turn hands to transports, and what a transport is."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from scene_data.env_times import EnvTimes

from .camera import CameraDescriptor
from .camera_poses import CameraView
from .core import RenderCore
from .layout import PlaneKind
from .leases import FrameLease

__all__ = ["CameraFrames", "FrameTransport"]


@dataclass(frozen=True, eq=False)
class CameraFrames:
    """What one turn made of one camera.

    Attributes:
        camera: The camera.
        leases: Leases on the planes that were made, by plane; they are let go with this object, or by `release`.
        consumers: Ids of the consumers that were due.
        capture_id: Shared by the planes.
        simulation_time_ns: Simulation time of the snapshot [ns].
        env_times: Time of each environment since its own reset, for whoever asks.
        view: Poses and projection of the camera in the snapshot.
    """

    camera: CameraDescriptor
    leases: Mapping[PlaneKind, FrameLease]
    consumers: tuple[int, ...]
    capture_id: int
    simulation_time_ns: int
    env_times: EnvTimes
    view: CameraView

    def release(self) -> None:
        """Give the frames back; arrays that were got from them still hold them."""
        for lease in self.leases.values():
            lease.release()


class FrameTransport(ABC):
    """Takes frames to other programs.

    A pipeline calls its methods one at a time, on the thread that steps the simulation, so none of them may wait for
    a reader: they note what is wanted and put frames into queues. What a method raises takes the transport out of the
    simulation, which goes on.
    """

    @abstractmethod
    def start(self, core: RenderCore, cameras: Mapping[str, CameraDescriptor]) -> None:
        """Cameras are there to be published, the first or those after a reload: register consumers for them."""

    def look(self, simulation_time_ns: int) -> None:  # noqa: B027  (not every transport has demand that comes and goes)
        """Somebody is about to ask who is due: bring the demand of the consumers up to date."""

    @abstractmethod
    def deliver(self, frames: CameraFrames) -> Collection[int]:
        """Take the frames of one camera for those of its consumers that were due, and say which these are.

        The leases are the transport's own.
        """

    @abstractmethod
    def stop(self) -> None:
        """The cameras are about to go: unregister the consumers, and let nothing of these cameras go out any more."""

    @abstractmethod
    def close(self) -> None:
        """End for good: unregister, let go out what waits, and leave no thread, port or file behind."""
