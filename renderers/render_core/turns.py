"""A render turn: one snapshot and the plans that are rendered from it together."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from .backend import RenderConfiguration
from .demand import RenderPlan
from .status import FrameStatus, FrameStatusCode

__all__ = ["RenderTurn", "Snapshot", "due_plans"]


class Snapshot(Protocol):
    """What a render core asks of a snapshot; a backend may ask for more."""

    @property
    def model_generation(self) -> int:
        """Model that the state is of."""
        ...

    @property
    def simulation_time_ns(self) -> int:
        """Simulation time of the state [ns]."""
        ...

    @property
    def valid(self) -> bool:
        """Whether it still has its data."""
        ...

    def release(self) -> None:
        """Give the data back. On CUDA called with the render stream current, after the render was enqueued."""
        ...


@dataclass(frozen=True)
class RenderTurn:
    """One snapshot, and the plans of all cameras that are due.

    Attributes:
        snapshot: The state to render; owned by the core from the moment that the turn is queued.
        plans: Plans with at least one consumer, one per camera.
    """

    snapshot: Snapshot
    plans: tuple[RenderPlan, ...]

    def staleness(self, configuration: RenderConfiguration) -> FrameStatus | None:
        """Why it must not be rendered under a configuration, or None."""
        generation = configuration.frame_generation
        if self.snapshot is None or not self.snapshot.valid:
            return FrameStatus(FrameStatusCode.FRAME_UNAVAILABLE, generation=generation, message="no valid snapshot")
        model = self.snapshot.model_generation
        if model != configuration.model_generation:
            message = f"the snapshot is of model generation {model}, not of {configuration.model_generation}"
            return FrameStatus(FrameStatusCode.STALE_GENERATION, generation=generation, message=message)
        for plan in self.plans:
            if plan.frame_generation != generation:
                message = f"a plan is of frame generation {plan.frame_generation}, not of {generation}"
                return FrameStatus(FrameStatusCode.STALE_GENERATION, generation=generation, message=message)
        return None


def due_plans(plan_or_plans: RenderPlan | Iterable[RenderPlan]) -> tuple[RenderPlan, ...]:
    """The plans that somebody waits for."""
    plans = (plan_or_plans,) if isinstance(plan_or_plans, RenderPlan) else tuple(plan_or_plans)
    return tuple(plan for plan in plans if plan.consumers)
