"""What a render core tells about itself."""

from typing import TypedDict

from .durations import DurationSummary

__all__ = ["RenderStats"]


class RenderStats(TypedDict):
    """What a render core has done since it was made.

    Attributes:
        turns: Turns that were queued.
        turn_outcomes: How turns ended and submissions were refused, by the name of the status code.
        captures: Captures that were begun.
        commits: Planes that became frames.
        drops: Planes that found no room, or whose commit was refused, by the name of the status code.
        evictions: Frames that were dropped to make room.
        waits: Waits for capacity that did not end at once.
        queue_times: From the submission of a turn until the render thread picked it up.
        render_times: Spent in the backend, per turn. On CUDA the work is then enqueued, and need not be done.
        records: Frames of the generation in force.
        reserved_bytes: Length of the planes that are being written [bytes].
        committed_bytes: Length of the committed planes [bytes].
        storage_allocations: Slot objects made; stands still.
        buffer_growths: Allocations of bytes; stands still between reconfigurations.
        blank_environments: How many turns drew an environment as background because its poses were not finite, by
            environment. On CUDA reading it waits for the device.
    """

    turns: int
    turn_outcomes: dict[str, int]
    captures: int
    commits: int
    drops: dict[str, int]
    evictions: int
    waits: DurationSummary
    queue_times: DurationSummary
    render_times: DurationSummary
    records: int
    reserved_bytes: int
    committed_bytes: int
    storage_allocations: int
    buffer_growths: int
    blank_environments: dict[int, int]
