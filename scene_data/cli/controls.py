"""What the actuators do while the command line simulates."""

from typing import Protocol

import numpy as np

from scene_data.errors import UnknownNameError
from scene_data.physics import PhysicsEngine

__all__ = ["CONTROLS", "Control", "make_control"]

CONTROLS = ("zero", "random", "keyframe")

_HOLD_SECONDS = 0.5
_UNLIMITED = 1.0


class Control(Protocol):
    """Says what the controls are at each step."""

    def __call__(self, step: int) -> np.ndarray:
        """The controls of all environments at this step, shape (N, nu)."""
        ...


def make_control(kind: str, physics: PhysicsEngine, keyframe: str | int | None, seed: int) -> Control:
    """The control of this kind.

    Args:
        kind: `"zero"`; `"random"`: every half second each environment draws new targets within the actuators' limits,
            and moves to them smoothly; `"keyframe"`: what the keyframe holds.
        physics: The engine to be controlled.
        keyframe: The keyframe to take controls from; None is the first.
        seed: Seed of the random controls.

    Raises:
        UnknownNameError: The kind or the keyframe is not known.
    """
    shape = (physics.num_envs, len(physics.control_range))
    if kind == "zero":
        return _Constant(np.zeros(shape))
    if kind == "keyframe":
        control = physics.keyframe_control(0 if keyframe is None else keyframe)
        return _Constant(np.broadcast_to(control, shape))
    if kind == "random":
        return _Random(shape, physics.control_range, max(1, round(_HOLD_SECONDS / physics.timestep)), seed)
    raise UnknownNameError("control", kind, CONTROLS)


class _Constant:
    def __init__(self, control: np.ndarray):
        self._control = control

    def __call__(self, step: int) -> np.ndarray:
        return self._control


class _Random:
    """Waypoints drawn at regular times, joined by half cosines so that the motion has no jumps."""

    def __init__(self, shape: tuple[int, int], control_range: np.ndarray, hold: int, seed: int):
        self._random = np.random.default_rng(seed)
        self._low = np.maximum(control_range[:, 0], -_UNLIMITED)
        self._high = np.minimum(control_range[:, 1], _UNLIMITED)
        limited = np.isfinite(control_range).all(axis=1)
        self._low[limited], self._high[limited] = control_range[limited].T
        self._hold = hold
        self._start = np.broadcast_to(np.clip(0.0, self._low, self._high), shape)
        self._goal = self._draw()

    def _draw(self) -> np.ndarray:
        return self._random.uniform(self._low, self._high, self._start.shape)

    def __call__(self, step: int) -> np.ndarray:
        phase = step % self._hold
        if phase == 0 and step > 0:
            self._start, self._goal = self._goal, self._draw()
        blend = 0.5 - 0.5 * np.cos(np.pi * phase / self._hold)
        return self._start + blend * (self._goal - self._start)
