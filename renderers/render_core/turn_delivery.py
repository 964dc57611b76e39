"""TurnDelivery: hands the frames of a turn to cameras and transports."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scene_data.env_times import EnvTimes

from ..frame_info import FrameInfo
from .camera_poses import CameraPoses
from .core import RenderCore
from .demand import RenderPlan
from .layout import PlaneKind
from .leases import FrameLease
from .live_cameras import CameraRecord
from .publication import CameraFrames, FrameTransport
from .sensors import Sensor, StateVersion
from .snapshots import RenderSnapshot
from .status import FrameStatus, FrameStatusCode
from .transport_set import TransportSet

__all__ = ["Turn", "TurnDelivery"]


@dataclass(frozen=True)
class Turn:
    """A turn between its snapshot and its end."""

    plans: tuple[RenderPlan, ...]
    snapshot: RenderSnapshot
    simulation_time_ns: int
    env_times: EnvTimes
    version: StateVersion
    record: CameraRecord


class TurnDelivery:
    """What one generation of cameras has to do with frames once they are made.

    Args:
        core: Where the frames are.
        sensors: The cameras by id.
        transports: Who else gets frames.
        poses: Where the cameras were in the turn.
    """

    def __init__(self, core: RenderCore, sensors: Mapping[int, Sensor], transports: TransportSet, poses: CameraPoses):
        self._core = core
        self._sensors = sensors
        self._transports = transports
        self._poses = poses

    def deliver(self, turn: Turn, first_capture: int, turn_count: int) -> None:
        """Hand out what a turn made.

        Args:
            turn: The turn.
            first_capture: Captures from this one on are of the turn.
            turn_count: How many turns there were, this one included.
        """
        for plan in turn.plans:
            self._deliver(plan, turn, first_capture, turn_count)

    def is_for_transports(self, plan: RenderPlan) -> bool:
        """Whether a plan has consumers other than the camera's own."""
        return set(plan.consumers) != {self._sensors[plan.camera_id].consumer} and bool(self._transports)

    def with_holders(self, status: FrameStatus) -> FrameStatus:
        """The status, with who holds frames in its message where the frame budget is what failed."""
        if status.code is not FrameStatusCode.FRAME_SLOTS_EXHAUSTED:
            return status
        frames = self._core.frames
        names = {camera_id: sensor.seat.name for camera_id, sensor in self._sensors.items()}
        held = [f"{count} of {names[camera]}/{plane.value}" for camera, plane, count in frames.held_frames()]
        budget = f"The budget is {frames.max_slots} frames and {frames.max_bytes:,} bytes"
        holders = f"held are {', '.join(held) or 'none'}"
        return replace(status, message=f"{status.message}. {budget}; {holders}. Drop tensors, or raise the budget.")

    def _deliver(self, plan: RenderPlan, turn: Turn, first_capture: int, turn_count: int) -> None:
        leases = self._leases_of_turn(plan, first_capture)
        capture_id = max((lease.stamp.capture_id for lease in leases.values()), default=0)
        sensor = self._sensors[plan.camera_id]
        labels = sensor.seat.makers.id_to_labels
        info = FrameInfo(turn.simulation_time_ns, turn.env_times, capture_id, turn.record, plan.camera_id, labels)
        if sensor.take(leases, info, turn.version, turn_count, sensor.consumer in plan.consumers):
            self._core.mark_delivered(plan, sensor.consumer)
        if leases and self.is_for_transports(plan):
            self._deliver_to_transports(plan, turn, leases)

    def _deliver_to_transports(self, plan: RenderPlan, turn: Turn, leases: dict[PlaneKind, FrameLease]) -> None:
        camera = self._sensors[plan.camera_id].seat.descriptor
        capture_id = next(iter(leases.values())).stamp.capture_id
        view = self._poses.view(plan.camera_id)

        def deliver(transport: FrameTransport) -> None:
            # Each has leases of its own, and may release them.
            own = {
                plane: lease for plane in leases if (lease := self._core.acquire_latest(camera.id, plane, capture_id))
            }
            frames = CameraFrames(
                camera, own, plan.consumers, capture_id, turn.simulation_time_ns, turn.env_times, view
            )
            for consumer in transport.deliver(frames):
                self._core.mark_delivered(plan, consumer)

        self._transports.each(deliver)

    def _leases_of_turn(self, plan: RenderPlan, first_capture: int) -> dict[PlaneKind, FrameLease]:
        """The frames that the turn made for a camera, by plane; a plane that could not be made is missing."""
        leases = {plane: self._core.acquire_latest(plan.camera_id, plane) for plane in plan.planes}
        return {
            plane: lease
            for plane, lease in leases.items()
            if lease is not None and lease.stamp.capture_id >= first_capture
        }
