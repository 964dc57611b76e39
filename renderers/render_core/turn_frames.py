"""TurnFrames: the frames of one turn, opened together, and committed together once they are drawn."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import warp as wp

from .demand import RenderPlan
from .layout import PlaneKind
from .snapshots import RenderSnapshot
from .status import FrameStatus, RenderStatus, RenderStatusCode
from .writers import FrameWriter

if TYPE_CHECKING:
    from .frames import FrameBoundary

__all__ = ["TurnFrames"]


class TurnFrames:
    """What a render backend has to fill in one turn. Use it in a `with` block: what is not committed then is dropped.

    A plane for which there is no room has no frame, and does not stop the others.

    Args:
        snapshot: What is drawn.
        plans: The due cameras, of the configuration in force.
        boundary: Where the frames go; one capture is begun for each plan.

    Attributes:
        frames: The writable planes (N, H, W, C) by camera id and kind.
    """

    def __init__(self, snapshot: RenderSnapshot, plans: Sequence[RenderPlan], boundary: "FrameBoundary"):
        self.frames: dict[int, dict[PlaneKind, wp.array]] = {}
        self._writers: list[FrameWriter] = []
        with ExitStack() as opened:
            for plan in plans:
                camera = plan.camera
                if camera is None:
                    raise ValueError(f"the plan for camera {plan.camera_id} does not say which camera that is")
                stamp = boundary.begin_capture(snapshot.model_generation, snapshot.simulation_time_ns, camera.id)
                for plane in plan.planes:
                    writer = boundary.try_acquire_writer(plan.frame_generation, plane, camera.layout(plane), stamp)
                    self._writers.append(opened.enter_context(writer))
                    if writer.status.ok:
                        self.frames.setdefault(camera.id, {})[plane] = writer.buffer
            self._opened = opened.pop_all()

    def __enter__(self) -> "TurnFrames":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def commit(self) -> RenderStatus:
        """Make the frames visible. The status names the first plane for which that was not to be."""
        failure: FrameStatus | None = None
        for writer in self._writers:
            status = writer.commit()
            if not status.ok and failure is None:
                failure = status
        if failure is None:
            return RenderStatus(RenderStatusCode.OK)
        codes = {code.frame_code: code for code in RenderStatusCode}
        return RenderStatus(codes.get(failure.code, RenderStatusCode.FRAME_UNAVAILABLE), failure.message)
