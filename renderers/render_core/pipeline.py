"""RenderPipeline: what a simulation does so that its cameras show the present state.

One turn: evaluate who is due, take a snapshot under the physics lock, and, with the lock released, wait for capacity,
submit, finish and hand out the frames.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scene_data.camera import CameraCfg
from scene_data.errors import SceneDataError, UnmetRequirementError
from scene_data.provider import SceneDataProvider
from scene_data.registry import backends, renderers
from scene_data.scene import SceneDescription

from ..camera_sensor import DATA_TYPES, Camera, CameraData, FrameInfo, describe_camera
from .backend import RenderBackend
from .camera import CameraDescriptor
from .capacity import (
    FrameCapacityError,
    compute_frame_byte_capacity,
    compute_frame_slot_capacity,
    compute_warm_slot_count,
)
from .core import RenderCore
from .demand import RenderPlan
from .frames import FrameLease
from .layout import PlaneKind
from .snapshots import RenderSnapshot, SnapshotPool
from .status import FrameStatus, FrameStatusCode

__all__ = ["RenderPipeline", "RenderTurnError", "UnsupportedPlaneError"]

_MODEL_GENERATION = 1
_FRAME_GENERATION = 1

HELD_FRAMES = 2
"""Frames per plane that consumers can hold while the next one is rendered, unless a budget is given."""

StateVersion = tuple[int, ...]


class RenderTurnError(SceneDataError, RuntimeError):
    """A turn that made no frame.

    Attributes:
        status: What the render core reports.
    """

    def __init__(self, what: str, status: FrameStatus):
        self.status = status
        super().__init__(f"{what}: {status.code.name}. {status.message}".rstrip())


class UnsupportedPlaneError(SceneDataError, ValueError):
    """A camera that asks for a plane that its render backend does not make.

    Attributes:
        camera: The camera's name.
        plane: What it asks for.
        able: Names of the render backends that make it.
    """

    def __init__(self, render_backend: str, camera: str, plane: PlaneKind, able: Iterable[str]):
        self.camera = camera
        self.plane = plane
        self.able = tuple(able)
        makers = ", ".join(self.able) if self.able else "none that is installed"
        super().__init__(
            f"Camera {camera!r} asks for {plane.value!r}, which render backend {render_backend!r} does not make. "
            f"Render backends that do: {makers}."
        )


@dataclass(frozen=True)
class _Turn:
    plans: tuple[RenderPlan, ...]
    snapshot: RenderSnapshot
    simulation_time_ns: int
    env_time_ns: np.ndarray | None
    version: StateVersion


@dataclass
class _Sensor:
    """A camera's own consumer, and what it delivered last."""

    camera: Camera
    consumer: int
    data: CameraData | None = None
    version: StateVersion | None = None
    was_read: bool = False


class RenderPipeline:
    """The cameras of one simulation, and the render core behind them.

    Do not hold the physics lock while reading a camera: a turn takes it for its snapshot.

    Args:
        provider: Reads the engine.
        cameras: What the user asked for.
        render_backend: Name of the render backend.
        device: Warp device of the frames.
        physics_lock: Covers every step of the engine; held here only while a snapshot is taken.
        clock: Simulation time [ns] of the present state.
        max_frame_bytes: Budget of the frame store; None is what `HELD_FRAMES` needs.

    Raises:
        UnknownNameError: A camera, data type or render backend has a name that is not known.
        ValueError: A camera asks for what the render backend does not make, or the budget does not fit.
        RenderTurnError: The render backend could not be set up.
    """

    def __init__(
        self,
        provider: SceneDataProvider,
        cameras: Sequence[CameraCfg],
        *,
        render_backend: str,
        device: str,
        physics_lock: threading.RLock,  # pyright: ignore[reportGeneralTypeIssues]
        clock: Callable[[], int],
        max_frame_bytes: int | None = None,
    ):
        self.provider = provider
        self._physics_lock = physics_lock
        self._clock = clock
        self._turn_lock = threading.Lock()
        self._next_capture = 1
        scene = provider.backend.describe_scene()
        backend = renderers.get(render_backend)()
        descriptors = _describe_cameras(cameras, scene)
        _check_backend(render_backend, backend, scene, descriptors)
        self.pool = SnapshotPool()
        self.pool.activate(provider, _MODEL_GENERATION)
        self.core = _create_core(backend, descriptors, scene, device, max_frame_bytes)
        self._sensors = {
            descriptor.id: _Sensor(
                Camera(cfg, descriptor, self._read),
                self.core.register_one_shot_consumer(cfg.name, descriptor.id),
            )
            for cfg, descriptor in zip(cameras, descriptors, strict=True)
        }
        self.cameras: Mapping[str, Camera] = {sensor.camera.name: sensor.camera for sensor in self._sensors.values()}

    def run_due_turn(self) -> FrameStatus:
        """Render for every consumer that is due; OK where nobody is."""
        with self._turn_lock:
            turn = self._begin_turn(self._sensors)
            return turn if isinstance(turn, FrameStatus) else self._complete_turn(turn)

    def close(self) -> None:
        """Drop the consumers, end the render thread, free the snapshots. Leases that others hold stay valid."""
        with self._turn_lock:
            for sensor in self._sensors.values():
                self.core.unregister_consumer(sensor.consumer)
                sensor.data = None
        self.core.shutdown()
        self.pool.deactivate()

    def _read(self, camera: Camera) -> CameraData:
        sensor = self._sensors[camera.descriptor.id]
        with self._turn_lock:
            with self._physics_lock, self.provider.consistent_read():
                version = self._state_version()
                if sensor.data is not None and sensor.version == version:
                    sensor.was_read = True
                    return sensor.data
                due = self._request_frames(sensor, version)
                turn = self._begin_turn(due)
            status = turn if isinstance(turn, FrameStatus) else self._complete_turn(turn)
            if sensor.data is None:
                raise RenderTurnError(f"Camera {camera.name!r} has no frame", self._with_holders(status))
            sensor.was_read = True
            return sensor.data

    def _request_frames(self, wanted: _Sensor, version: StateVersion) -> list[int]:
        """Ask for a frame of this camera, and of those that were read since their last one: one turn for all."""
        due = []
        for camera_id, sensor in self._sensors.items():
            if sensor is wanted or (sensor.was_read and sensor.version != version):
                self.core.request_one_shot(sensor.consumer)
                sensor.data, sensor.was_read = None, False
                due.append(camera_id)
        return due

    def _begin_turn(self, camera_ids: Iterable[int]) -> _Turn | FrameStatus:
        """Who is due, and a snapshot of the present state for them."""
        with self._physics_lock, self.provider.consistent_read():
            now = self._clock()
            plans = [self.core.evaluate_demand(now, camera_id) for camera_id in camera_ids]
            plans = tuple(plan for plan in plans if plan.consumers)
            if not plans:
                return FrameStatus(FrameStatusCode.OK)
            result = self.pool.acquire(self.provider, _MODEL_GENERATION, now)
            if result.snapshot is None:
                return FrameStatus(result.code, message="Both snapshot slots are in use.")
            env_time_ns = self.provider.env_time_ns
            return _Turn(plans, result.snapshot, now, env_time_ns, self._state_version())

    def _complete_turn(self, turn: _Turn) -> FrameStatus:
        """Render and hand out, without the physics lock."""
        first_capture = self._next_capture
        status = self.core.wait_for_frame_capacity(turn.plans)
        if status.ok:
            status = self.core.submit_snapshot(turn.snapshot, turn.plans)
        if not status.ok:
            turn.snapshot.release()
            return status
        status = self.core.finish_or_cancel_render_turn()
        self._next_capture = max(first_capture, self.core.last_turn_capture_id + 1)
        for plan in turn.plans:
            self._deliver(plan, turn, first_capture)
        return status

    def _deliver(self, plan: RenderPlan, turn: _Turn, first_capture: int) -> None:
        sensor = self._sensors[plan.camera_id]
        if sensor.consumer not in plan.consumers:
            return
        leases = self._leases_of_turn(plan, first_capture)
        if leases is None:
            return
        cfg = sensor.camera.cfg
        by_type = {data_type: leases[DATA_TYPES[data_type]] for data_type in cfg.data_types}
        capture_id = next(iter(leases.values())).stamp.capture_id
        sensor.data = CameraData(by_type, FrameInfo(turn.simulation_time_ns, turn.env_time_ns, capture_id))
        sensor.version = turn.version
        self.core.mark_delivered(plan, sensor.consumer)

    def _leases_of_turn(self, plan: RenderPlan, first_capture: int) -> dict[PlaneKind, FrameLease] | None:
        """The frames that the turn made for a camera; None when a plane is missing."""
        leases = {plane: self.core.acquire_latest(plan.camera_id, plane) for plane in plan.planes}
        found = {plane: lease for plane, lease in leases.items() if lease is not None}
        captures = {lease.stamp.capture_id for lease in found.values()}
        whole = len(found) == len(leases) and len(captures) == 1 and min(captures) >= first_capture
        return found if whole else None

    def _with_holders(self, status: FrameStatus) -> FrameStatus:
        """The status, with who holds frames in its message where the frame budget is what failed."""
        if status.code is not FrameStatusCode.FRAME_SLOTS_EXHAUSTED:
            return status
        frames = self.core.frames
        budget = f"The budget is {frames.max_slots} frames and {frames.max_bytes:,} bytes"
        names = {camera_id: sensor.camera.name for camera_id, sensor in self._sensors.items()}
        held = [
            f"{count} of {names.get(camera, camera)}/{plane.value}" for camera, plane, count in frames.held_frames()
        ]
        message = (
            f"{status.message} {budget}; held are {', '.join(held) or 'none'}. Release tensors or raise the budget."
        )
        return replace(status, message=message)

    def _state_version(self) -> StateVersion:
        backend = self.provider.backend
        return (
            self._clock(),
            backend.transforms_timestamp,
            backend.cameras_timestamp,
            backend.lights_timestamp,
            backend.geometry_timestamp,
        )


def _describe_cameras(cameras: Sequence[CameraCfg], scene: SceneDescription) -> tuple[CameraDescriptor, ...]:
    names = [cfg.name for cfg in cameras]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"camera names must be unique, but {sorted(repeated)} is given more than once")
    return tuple(describe_camera(cfg, index, scene) for index, cfg in enumerate(cameras, start=1))


def _check_backend(
    name: str, backend: RenderBackend, scene: SceneDescription, cameras: Sequence[CameraDescriptor]
) -> None:
    """Refuse what the render backend needs and the engine lacks, and planes that it does not make."""
    for need in getattr(backend, "requires", ()):
        if scene.native(need) is None:
            raise UnmetRequirementError(f"render backend {name!r}", need, _backends_providing(need))
    for camera in cameras:
        for plane in camera.planes:
            if plane not in backend.supported_planes:
                able = [other for other in renderers.names() if plane in renderers.get(other)().supported_planes]
                raise UnsupportedPlaneError(name, camera.name, plane, able)


def _backends_providing(need: str) -> list[str]:
    return [name for name in backends.names() if need in getattr(backends.get(name), "provides", ())]


def _create_core(
    backend: RenderBackend,
    cameras: tuple[CameraDescriptor, ...],
    scene: SceneDescription,
    device: str,
    max_frame_bytes: int | None,
) -> RenderCore:
    histories = [(camera.id, HELD_FRAMES) for camera in cameras]
    slots = compute_frame_slot_capacity(cameras, histories)
    needed = compute_frame_byte_capacity(cameras, histories)
    if max_frame_bytes is not None and max_frame_bytes < (least := compute_frame_byte_capacity(cameras)):
        raise FrameCapacityError(f"max_frame_bytes is {max_frame_bytes:,}, but one frame of each plane takes {least:,}")
    core = RenderCore(backend, max_slots=slots, max_bytes=max_frame_bytes or needed, device=device)
    warm = compute_warm_slot_count(cameras)
    status = core.reconfigure(_MODEL_GENERATION, _FRAME_GENERATION, cameras, scene=scene, warm_slots=warm)
    if not status.ok:
        core.shutdown()
        raise RenderTurnError("The render core could not be set up", status)
    return core
