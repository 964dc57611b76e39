"""SimulatedState: what a simulation's pictures show, and how to tell one state of it from another."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from scene_data.appearance import Appearance
from scene_data.geometry_sources import GeometrySources
from scene_data.provider import SceneDataProvider

from .camera_settings import CameraSettings
from .sensors import StateVersion

__all__ = ["SimulatedState"]


@dataclass(frozen=True, eq=False)
class SimulatedState:
    """The engine's state, and what the user drew beside it and made it look like.

    Attributes:
        provider: Reads the engine.
        physics_lock: Covers every step of the engine.
        clock: Simulation time [ns] of the present state.
        geometry: Sources of extra geometry.
        appearance: The looks of environments.
    """

    provider: SceneDataProvider
    physics_lock: AbstractContextManager[Any]
    clock: Callable[[], int]
    geometry: GeometrySources
    appearance: Appearance

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context in which the state stays the same."""
        with self.physics_lock, self.provider.consistent_read():
            yield

    def version(self, settings: CameraSettings) -> StateVersion:
        """Differs between any two states of which cameras with these settings show different pictures."""
        backend = self.provider.backend
        return (
            (settings.version, self.geometry.version, self.appearance.version),
            self.clock(),
            backend.transforms_timestamp,
            backend.cameras_timestamp,
            backend.lights_timestamp,
            backend.geometry_timestamp,
        )
