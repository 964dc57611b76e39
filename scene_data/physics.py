"""What a SimulationContext needs of a physics engine that it steps itself."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from scene_data.backend import SceneDataBackend

__all__ = ["PhysicsCfg", "PhysicsEngine"]


class PhysicsEngine(ABC):
    """One engine with its environments, and the backend that publishes them.

    Attributes:
        backend: Publishes what the engine computes.
        num_envs: Number of environments.
        timestep: Simulation time of one step [s].
        control_range: Lower and upper limit of each control, shape (nu, 2); an unlimited one is (-inf, inf).
    """

    backend: SceneDataBackend
    num_envs: int
    timestep: float
    control_range: np.ndarray

    @abstractmethod
    def step(self) -> None:
        """Advance every environment by one timestep, and announce what was written."""

    @abstractmethod
    def reset(self, env_ids: Sequence[int] | None = None, keyframe: str | int | None = None) -> None:
        """Return these environments, or all, to the model's default state or to a keyframe.

        Raises:
            UnknownNameError: The model has no such keyframe.
        """

    @abstractmethod
    def set_control(self, control: np.ndarray) -> None:
        """Set the controls of all environments, shape (N, nu), in force from the next step."""

    @abstractmethod
    def keyframe_control(self, keyframe: str | int) -> np.ndarray:
        """The controls that a keyframe holds, shape (nu,).

        Raises:
            UnknownNameError: The model has no such keyframe.
        """

    def close(self) -> None:
        """Release what the engine holds."""
        return


@runtime_checkable
class PhysicsCfg(Protocol):
    """Describes an engine to create. Every engine has a configuration class of its own."""

    def with_model(self, model: Any) -> "PhysicsCfg":
        """The same configuration for another model."""
        ...

    def create(self, device: str, timestep: float | None) -> PhysicsEngine:
        """Build the engine on `device`.

        Args:
            device: A Warp device, `"cpu"` or `"cuda:0"`.
            timestep: Replaces the model's own timestep [s] where given.

        Raises:
            ModelLoadError: The model is missing or broken.
            ValueError: The configuration holds a value that the engine cannot use.
        """
        ...
