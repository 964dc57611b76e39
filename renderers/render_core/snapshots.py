"""Snapshots: copies of the scene's state, the only way from the physics thread to the render thread."""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import warp as wp

from scene_data.appearance_state import NOTHING_SET, AppearanceState
from scene_data.env_times import EnvTimes
from scene_data.formats import SceneDataFormat
from scene_data.geometry_sources import PackedGeometry
from scene_data.streams import work_order_of

from .camera_settings import NO_SETTINGS, CameraSetting
from .status import FrameStatusCode

if TYPE_CHECKING:
    from scene_data.provider import SceneDataProvider

__all__ = ["RenderSnapshot", "SnapshotPool", "SnapshotResult"]

_SLOT_COUNT = 2


class RenderSnapshot:
    """One copied state. Give it back with `release`, or drop it; its slot is then filled anew.

    Attributes:
        model_generation: Model that the state belongs to.
        simulation_time_ns: Simulation time of the state [ns].
        camera_settings: What was set about cameras at run time, by camera id; nobody writes to it or its arrays.
        extra_geometry: What sources draw in this turn, a copy on the host; None where there is nothing.
        appearance: What was set about the looks of environments; nobody writes to it or its arrays.
    """

    def __init__(self, slot: "_Slot", model_generation: int):
        self._slot: _Slot | None = slot
        self.model_generation = model_generation
        self.simulation_time_ns = 0
        self.camera_settings: Mapping[int, CameraSetting] = NO_SETTINGS
        self.extra_geometry: PackedGeometry | None = None
        self.appearance: AppearanceState = NOTHING_SET

    @property
    def valid(self) -> bool:
        """Whether the state is still held."""
        return self._slot is not None

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self._held.num_envs

    @property
    def device(self) -> wp.Device:
        """Device of the arrays."""
        return self._held.device

    @property
    def env_times(self) -> EnvTimes:
        """Simulation time of each environment."""
        return self._held.env_times

    @property
    def transforms(self) -> Any:
        """`Vec3_Matrix33` of all bodies, at index env * body_count + body."""
        return self._held.transforms

    @property
    def cameras(self) -> Any:
        """`Vec3_Matrix33` of the model's cameras, at index env * camera_count + camera; None without cameras."""
        return self._held.cameras

    @property
    def lights(self) -> Any:
        """`Vec3_Direction` of the model's lights, at index env * light_count + light; None without lights."""
        return self._held.lights

    @property
    def points(self) -> wp.array | None:
        """Points of deformable geometry vec3f, in the order in which the engine publishes them; None without any."""
        return self._held.points

    @property
    def model_looks(self) -> Mapping[str, wp.array]:
        """What the engine's model says each environment looks like, as in `SceneDataBackend.get_model_looks`."""
        return self._held.looks

    def begin_read(self) -> None:
        """Order what is enqueued from now on after the copy. On the CPU there is nothing to do."""
        self._held.begin_read()

    def end_read(self) -> None:
        """Order the next copy into this slot after what has been enqueued so far."""
        self._held.end_read()

    def release(self) -> None:
        """Give the slot back. Does nothing the second time."""
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.leased = False

    def __del__(self):
        # May run anywhere, also inside `acquire` on the same thread: it takes no lock.
        self.release()

    @property
    def _held(self) -> "_Slot":
        if self._slot is None:
            raise RuntimeError("this snapshot was released: its slot may hold another state")
        return self._slot


@dataclass(frozen=True)
class SnapshotResult:
    """Outcome of `SnapshotPool.acquire`.

    Attributes:
        code: OK, NOT_INITIALIZED, STALE_GENERATION or SNAPSHOT_POOL_EXHAUSTED.
        snapshot: The snapshot, None unless OK.
    """

    code: FrameStatusCode
    snapshot: RenderSnapshot | None = None

    @property
    def ok(self) -> bool:
        """Whether there is a snapshot."""
        return self.code is FrameStatusCode.OK


class SnapshotPool:
    """Two slots of device memory for the active model generation.

    `acquire` is called by the thread that owns the physics. It allocates nothing and never waits: where both slots are
    still held, say by a slow turn, the capture is dropped. Snapshots of an earlier activation stay as they are until
    they are released.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._generation: int | None = None
        self._slots: tuple[_Slot, ...] = ()

    def activate(
        self, provider: "SceneDataProvider", generation: int, point_paths: Collection[str] | None = None
    ) -> None:
        """Allocate the slots for a scene of this size and accept this generation from now on.

        Args:
            provider: Where snapshots will be taken from.
            generation: Model generation.
            point_paths: Paths of the points that somebody draws; the others are not copied. None is all of them.
        """
        slots = tuple(_Slot(provider, point_paths) for _ in range(_SLOT_COUNT))
        with self._lock:
            self._generation, self._slots = generation, slots

    def deactivate(self) -> None:
        """Let go of the slots; those that are held live on until they are released."""
        with self._lock:
            self._generation, self._slots = None, ()

    def acquire(
        self, provider: "SceneDataProvider", generation: int, simulation_time_ns: int | None = None
    ) -> SnapshotResult:
        """Copy the present state into a free slot.

        Args:
            provider: The scene, of the size that was activated.
            generation: Model generation that the caller is stepping.
            simulation_time_ns: The state's time [ns]; None is what the provider says.
        """
        with self._lock:
            if self._generation is None:
                return SnapshotResult(FrameStatusCode.NOT_INITIALIZED)
            if generation != self._generation:
                return SnapshotResult(FrameStatusCode.STALE_GENERATION)
            slot = next((slot for slot in self._slots if not slot.leased), None)
            if slot is None:
                return SnapshotResult(FrameStatusCode.SNAPSHOT_POOL_EXHAUSTED)
            slot.leased = True
        # From here on a failure gives the slot back through the end of the snapshot.
        snapshot = RenderSnapshot(slot, generation)
        snapshot.simulation_time_ns = slot.fill(provider, simulation_time_ns)
        return SnapshotResult(FrameStatusCode.OK, snapshot)


class _Slot:
    """Memory for one state."""

    def __init__(self, provider: "SceneDataProvider", point_paths: Collection[str] | None):
        self.leased = False
        backend = provider.backend
        with provider.consistent_read():
            self.device: wp.Device = wp.get_device(provider.device)
            self.num_envs: int = provider.num_envs
            cameras, lights = backend.get_camera_poses(), backend.get_light_poses()
            self._offsets, point_count = _point_offsets(backend.get_geometry_batches(), point_paths)
        self.transforms: Any = self._allocate(SceneDataFormat.Vec3_Matrix33, provider.transform_count)
        self.cameras: Any = self._allocate(SceneDataFormat.Vec3_Matrix33, _length(cameras))
        self.lights: Any = self._allocate(SceneDataFormat.Vec3_Direction, _length(lights))
        self.points = wp.zeros(point_count, dtype=wp.vec3, device=self.device) if point_count else None
        self.looks: dict[str, wp.array] = {}
        self.env_times = EnvTimes(lambda: None)
        self._order = work_order_of(self.device)
        self._filled, self._read = self._order.new_event(), self._order.new_event()

    def fill(self, provider: "SceneDataProvider", simulation_time_ns: int | None) -> int:
        """Copy the provider's present state, all of it from one moment, and return its time [ns]."""
        with self._order.enqueueing(), provider.consistent_read():
            self._order.wait((self._read,))
            if self.transforms is not None and not provider.get_transforms(self.transforms, allow_passthrough=False):
                raise RuntimeError("the engine publishes no transforms, so there is no state to take a snapshot of")
            if self.cameras is not None:
                provider.get_camera_poses(self.cameras, allow_passthrough=False)
            if self.lights is not None:
                provider.get_light_poses(self.lights, allow_passthrough=False)
            if self.points is not None:
                provider.get_geometry_points(output=self.points, offsets=self._offsets)
            self._copy_looks(provider.backend.get_model_looks())
            self.env_times = provider.capture_env_times()
            self._order.complete(self._filled)
            return provider.simulation_time_ns if simulation_time_ns is None else int(simulation_time_ns)

    def _copy_looks(self, published: Mapping[str, wp.array]) -> None:
        """Copy arrays of the engine's model; memory is found for those that were not published so far."""
        if self.looks.keys() != published.keys():
            self.looks = {name: wp.empty_like(array) for name, array in published.items()}
        for name, array in published.items():
            wp.copy(self.looks[name], array)

    def begin_read(self) -> None:
        self._order.wait((self._filled,))

    def end_read(self) -> None:
        self._order.complete(self._read)

    def _allocate(self, layout: Any, count: int) -> Any:
        """A struct of `layout` with arrays of this length; None for an empty one."""
        if not count:
            return None
        struct = layout()
        for name, variable in layout.vars.items():
            setattr(struct, name, wp.zeros(count, dtype=variable.type.dtype, device=self.device))
        return struct


def _length(struct: Any) -> int:
    return 0 if struct is None else struct.positions.shape[0]


def _point_offsets(
    batches: list[tuple[Any, dict[str, tuple[int, int]]]], paths: Collection[str] | None
) -> tuple[dict[str, int], int]:
    """Where the points of each of these paths go when batches lie one after the other, and how many there are."""
    offsets: dict[str, int] = {}
    total = 0
    for _, published in batches:
        ranges = {path: bounds for path, bounds in published.items() if paths is None or path in paths}
        first = min((offset for offset, _ in ranges.values()), default=0)
        offsets.update({path: total + offset - first for path, (offset, _) in ranges.items()})
        total += max((offset + count for offset, count in ranges.values()), default=0) - first
    return offsets, total
