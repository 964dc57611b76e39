"""When a simulation renders, and what it waits for: the render modes."""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING

from .status import FrameStatus, FrameStatusCode

if TYPE_CHECKING:
    from .pipeline import RenderPipeline
    from .sensors import Sensor

__all__ = ["PACINGS", "FreeRunning", "Pacing", "Pipelined", "Synchronous"]

_OK = FrameStatus(FrameStatusCode.OK)


class Pacing(ABC):
    """A render mode. Every method is called with the pipeline's turn lock held.

    Attributes:
        spares_a_core: Whether physics steps beside the drawing, and needs a CPU core of its own.
    """

    spares_a_core = False

    @property
    def render_threads(self) -> int | None:
        """CPU threads that drawing may use where the user did not say; None is all."""
        return max(1, (os.cpu_count() or 1) - 1) if self.spares_a_core else None

    def before_step(self, pipeline: "RenderPipeline") -> None:  # noqa: B027  (most modes have nothing to do)
        """The physics is about to step."""

    @abstractmethod
    def after_step(self, pipeline: "RenderPipeline") -> FrameStatus:
        """The physics stepped: render for whom it is time, and wait for what this mode waits for."""

    @abstractmethod
    def before_read(self, pipeline: "RenderPipeline", sensors: Collection["Sensor"]) -> FrameStatus:
        """Somebody reads cameras: see to it that the `data` of each is what this mode promises."""


class Synchronous(Pacing):
    """A frame belongs to the present state: reading captures where the state has moved since the frame."""

    def after_step(self, pipeline: "RenderPipeline") -> FrameStatus:
        """Serve the consumers that are due; the cameras' own are due when they are read."""
        return pipeline.run_turn(pipeline.begin_turn())

    def before_read(self, pipeline: "RenderPipeline", sensors: Collection["Sensor"]) -> FrameStatus:
        """Capture if the state has moved, together with the cameras that were read since their last capture."""
        return pipeline.run_turn(pipeline.begin_turn_where_moved(sensors))


class Pipelined(Pacing):
    """Each step starts a turn and waits for the one before: frames lag by exactly one turn."""

    def before_step(self, pipeline: "RenderPipeline") -> None:
        """Start the turn of the initial state, so that the first step's has one to lag behind."""
        if not pipeline.has_turns:
            pipeline.request_all()
            pipeline.start_turn(pipeline.begin_turn())

    def after_step(self, pipeline: "RenderPipeline") -> FrameStatus:
        """Finish the turn of the step before, and start this step's."""
        status = pipeline.finish_turn()
        pipeline.request_all()
        started = pipeline.start_turn(pipeline.begin_turn())
        return status if started.ok else started

    def before_read(self, pipeline: "RenderPipeline", sensors: Collection["Sensor"]) -> FrameStatus:
        """Nothing to do once there is a frame; the very first one is waited for."""
        if all(sensor.data is not None for sensor in sensors):
            return _OK
        if not pipeline.has_turn_in_flight:
            pipeline.request_all()
            started = pipeline.start_turn(pipeline.begin_turn())
            if not started.ok:
                return started
        return pipeline.finish_turn()


class FreeRunning(Pacing):
    """Physics never waits: a turn that finds the core busy is dropped and counted. One CPU core is left to it."""

    spares_a_core = True

    def after_step(self, pipeline: "RenderPipeline") -> FrameStatus:
        """Start a turn unless one is under way."""
        if pipeline.finish_turn(timeout=0.0).code is FrameStatusCode.BUSY:
            pipeline.dropped_turns += 1
            return _OK
        pipeline.request_all()
        return pipeline.start_turn(pipeline.begin_turn())

    def before_read(self, pipeline: "RenderPipeline", sensors: Collection["Sensor"]) -> FrameStatus:
        """Take what has ended; only the very first frame is waited for."""
        status = pipeline.finish_turn(timeout=0.0)
        if all(sensor.data is not None for sensor in sensors):
            return _OK
        if not pipeline.has_turn_in_flight:
            pipeline.request_all()
            status = pipeline.start_turn(pipeline.begin_turn())
        return pipeline.finish_turn() if pipeline.has_turn_in_flight else status


PACINGS: dict[str, type[Pacing]] = {
    "synchronous": Synchronous,
    "pipelined": Pipelined,
    "free_running": FreeRunning,
}
"""The render modes by name."""
