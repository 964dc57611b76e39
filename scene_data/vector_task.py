"""VectorTask: what makes a simulation a task to learn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scene_data.simulation import SimulationContext

__all__ = ["VectorTask"]

Array = Any
"""A NumPy array or a torch tensor, whichever the task's own functions work with."""


@dataclass(frozen=True)
class VectorTask:
    """What makes a simulation a task: functions over the state of all N environments at once.

    Attributes:
        state: Reads what rewards and ends follow from, shape (N, k), NumPy or torch, from the simulation. Poses that
            the engine derives are up to date when it is called.
        reward: Rewards, shape (N,), of arriving in a state, (N, k), with the controls that led there, (N, nu), which
            come as the same kind of array.
        terminated: Whether a state ends its episode, bool (N,); None never does.
        randomize: Writes the initial state of the environments `env_ids`, which were just reset, into the engine's
            arrays, drawing from the generator and from nothing else. None leaves the model's default state.
        keyframe: The model's keyframe to reset to, by name or index; None is its default state.
        frame_skip: Physics steps per environment step, at least 1.
        max_episode_steps: Environment steps after which an episode is truncated; None never does.

    Raises:
        ValueError: `frame_skip` or `max_episode_steps` is below 1.
    """

    state: Callable[[SimulationContext], Array]
    reward: Callable[[Array, Array], Array]
    terminated: Callable[[Array], Array] | None = None
    randomize: Callable[[SimulationContext, np.ndarray, np.random.Generator], None] | None = None
    keyframe: str | int | None = None
    frame_skip: int = 1
    max_episode_steps: int | None = None

    def __post_init__(self):
        if self.frame_skip < 1:
            raise ValueError(f"frame_skip must be at least 1 physics step, got {self.frame_skip}")
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise ValueError(f"max_episode_steps must be at least 1, got {self.max_episode_steps}")
