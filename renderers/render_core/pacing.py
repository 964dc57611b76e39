"""When a simulation renders, and what it waits for: the render modes."""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING

from .status import FrameStatus, FrameStatusCode

if TYPE_CHECKING:
    from .sensors import Sensor
    from .turn_sequence import TurnSequence

__all__ = ["PACINGS", "FreeRunning", "Pacing", "Pipelined", "Synchronous"]

_OK = FrameStatus(FrameStatusCode.OK)


class Pacing(ABC):
    """A render mode. Every method is called with the lock held that covers turns.

    Attributes:
        spares_a_core: Whether physics steps beside the drawing, and needs a CPU core of its own.
    """

    spares_a_core = False

    @property
    def render_threads(self) -> int | None:
        """CPU threads that drawing may use where the user did not say; None is all."""
        return max(1, (os.cpu_count() or 1) - 1) if self.spares_a_core else None

    def before_step(self, turns: "TurnSequence") -> None:  # noqa: B027  (most modes have nothing to do)
        """The physics is about to step."""

    @abstractmethod
    def after_step(self, turns: "TurnSequence") -> FrameStatus:
        """The physics stepped: render for whom it is time, and wait for what this mode waits for."""

    @abstractmethod
    def before_read(self, turns: "TurnSequence", sensors: Collection["Sensor"]) -> FrameStatus:
        """Somebody reads cameras: see to it that the `data` of each is what this mode promises."""


class Synchronous(Pacing):
    """A frame belongs to the present state: reading captures where the state has moved since the frame."""

    def after_step(self, turns: "TurnSequence") -> FrameStatus:
        """Serve the consumers that are due; the cameras' own are due when they are read."""
        return turns.run(turns.begin())

    def before_read(self, turns: "TurnSequence", sensors: Collection["Sensor"]) -> FrameStatus:
        """Capture if the state has moved, together with the cameras that were read since their last capture."""
        return turns.run(turns.begin_where_moved(sensors))


class Pipelined(Pacing):
    """Each step starts a turn and waits for the one before: frames lag by exactly one turn."""

    def before_step(self, turns: "TurnSequence") -> None:
        """Start the turn of the initial state, so that the first step's has one to lag behind."""
        if not turns.has_any:
            turns.start_periodic()

    def after_step(self, turns: "TurnSequence") -> FrameStatus:
        """Finish the turn of the step before, and start this step's."""
        status = turns.finish()
        started = turns.start_periodic()
        return status if started.ok else started

    def before_read(self, turns: "TurnSequence", sensors: Collection["Sensor"]) -> FrameStatus:
        """Nothing to do once there is a frame; the very first one is waited for."""
        if all(sensor.data is not None for sensor in sensors):
            return _OK
        if not turns.is_in_flight:
            started = turns.start_periodic()
            if not started.ok:
                return started
        return turns.finish()


class FreeRunning(Pacing):
    """Physics never waits: a turn that finds the core busy is dropped and counted. One CPU core is left to it."""

    spares_a_core = True

    def after_step(self, turns: "TurnSequence") -> FrameStatus:
        """Start a turn unless one is under way."""
        if turns.finish(timeout=0.0).code is FrameStatusCode.BUSY:
            turns.dropped_turns += 1
            return _OK
        return turns.start_periodic()

    def before_read(self, turns: "TurnSequence", sensors: Collection["Sensor"]) -> FrameStatus:
        """Take what has ended; only the very first frame is waited for."""
        status = turns.finish(timeout=0.0)
        if all(sensor.data is not None for sensor in sensors):
            return _OK
        if not turns.is_in_flight:
            status = turns.start_periodic()
        return turns.finish() if turns.is_in_flight else status


PACINGS: dict[str, type[Pacing]] = {
    "synchronous": Synchronous,
    "pipelined": Pipelined,
    "free_running": FreeRunning,
}
"""The render modes by name."""
