"""CameraSession: a render core for a fixed set of cameras, used one synchronous turn at a time."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from scene_data.camera import CameraCfg
from scene_data.provider import SceneDataProvider

from .camera_data import DATA_TYPES, DERIVED
from .camera_outputs import OutputMakers
from .render_core.core_plan import CorePlan
from .render_core.leases import FrameLease
from .render_core.snapshots import RenderSnapshot, SnapshotPool
from .render_core.status import FrameStatus, FrameStatusCode, RenderTurnError

if TYPE_CHECKING:
    from .isaaclab import RenderCoreRendererCfg

__all__ = ["CameraSession"]

_GENERATION = 1


class CameraSession:
    """The cameras of a renderer between two changes of their set.

    Args:
        provider: Reads the engine.
        cameras: All cameras.
        cfg: The renderer's configuration.
        physics_lock: Held while a snapshot is taken.

    Raises:
        RenderTurnError: The render backend could not be set up.
        ValueError: What is asked for does not fit the scene, the render backend or the budget.
    """

    def __init__(
        self,
        provider: SceneDataProvider,
        cameras: Sequence[CameraCfg],
        cfg: "RenderCoreRendererCfg",
        physics_lock: AbstractContextManager[Any],
    ):
        self._provider = provider
        self._physics_lock = physics_lock
        self._points_timestamp = 0
        scene = provider.backend.describe_scene()
        plan = CorePlan.of(scene, cameras, cfg.render_backend, cfg.max_frame_bytes, cfg.held_frames)
        self._descriptors = {camera.name: camera for camera in plan.descriptors}
        self._makers = {
            camera.name: OutputMakers(camera, self._descriptors[camera.name], scene) for camera in plan.cameras
        }
        self._pool = SnapshotPool()
        self._core = plan.create_core(str(provider.device))
        try:
            self._pool.activate(provider, _GENERATION, scene.point_ranges())
            status = plan.configure(self._core, _GENERATION, _GENERATION)
            if not status.ok:
                raise RenderTurnError("The render core could not be set up", status)
            for camera in plan.descriptors:
                self._core.register_continuous_consumer(camera.name, camera.id)
        except BaseException:
            self._core.shutdown()
            raise

    def camera_id(self, name: str) -> int:
        """Id of a camera in the core."""
        return self._descriptors[name].id

    def makers(self, name: str) -> OutputMakers:
        """What makes a camera's outputs of its planes, where they are not the same."""
        return self._makers[name]

    def take_snapshot(self) -> RenderSnapshot:
        """Copy the present state.

        Raises:
            RenderTurnError: Both snapshot slots are in use.
        """
        with self._physics_lock, self._provider.consistent_read():
            self._points_timestamp = self._provider.backend.geometry_timestamp
            result = self._pool.acquire(self._provider, _GENERATION)
        if result.snapshot is None:
            raise RenderTurnError("No snapshot could be taken", FrameStatus(result.code))
        return result.snapshot

    def points_moved(self, snapshot: RenderSnapshot) -> bool:
        """Whether points were written since this snapshot, the latest one, was taken."""
        if snapshot.points is None:
            return False
        with self._physics_lock, self._provider.consistent_read():
            return self._provider.backend.geometry_timestamp != self._points_timestamp

    def run_turn(self, snapshot: RenderSnapshot, names: Sequence[str]) -> list[int]:
        """Render some cameras, all their planes, and wait for it. The snapshot is released in any case.

        Returns:
            The capture of each camera.

        Raises:
            RenderTurnError: A frame could not be made.
        """
        now = snapshot.simulation_time_ns
        first = self._core.frames.last_capture_id + 1
        plans = [self._core.evaluate_demand(now, self._descriptors[name].id) for name in names]
        status = self._core.submit_snapshot(snapshot, plans)
        if status.ok:
            status = self._core.finish_or_cancel_render_turn()
        else:
            snapshot.release()
        if not status.ok:
            raise RenderTurnError(f"No frames of {', '.join(names)}", status)
        for plan in plans:
            for consumer in plan.consumers:
                self._core.mark_delivered(plan, consumer)
        captures = [self._latest_capture(name) for name in names]
        if min(captures) < first:
            raise RenderTurnError("A camera was not rendered", FrameStatus(FrameStatusCode.FRAME_UNAVAILABLE))
        return captures

    def lease(self, name: str, data_type: str, capture_id: int) -> FrameLease | None:
        """A lease on what was rendered for one data type in a capture."""
        camera, plane = self._descriptors[name], DATA_TYPES[data_type]
        rendered = plane if plane in camera.planes else DERIVED[plane]
        return self._core.acquire_latest(camera.id, rendered, capture_id)

    def close(self) -> None:
        """End the render thread; leases stay valid."""
        self._core.shutdown()
        self._pool.deactivate()

    def _latest_capture(self, name: str) -> int:
        camera = self._descriptors[name]
        lease = self._core.acquire_latest(camera.id, camera.planes[0])
        return 0 if lease is None else lease.stamp.capture_id
