"""Generations of cameras: what is in force from one reload to the next, and how one follows the other."""

from collections.abc import Iterable, Mapping

from scene_data.provider import SceneDataProvider

from ..camera_seat import CameraHost, CameraSeat
from ..camera_sensor import Camera
from .camera import CameraDescriptor
from .camera_poses import CameraPoses
from .camera_settings import CameraSettings
from .core import RenderCore
from .core_plan import CorePlan
from .live_cameras import LiveCameras
from .sensors import Sensor
from .snapshots import SnapshotPool
from .status import FrameStatusCode, RenderTurnError, StaleGenerationError
from .transport_set import TransportSet
from .turn_delivery import TurnDelivery

__all__ = ["Generation", "Generations"]


class Generation:
    """The cameras of one plan, for as long as it is in force.

    Args:
        number: Of the model and of the frames.
        plan: What the core was configured with.
        core: The render core, which gets a consumer for each camera.
        provider: Reads the engine of the plan's scene.
        transports: Who else gets frames.
        host: What the cameras are read through.

    Attributes:
        number: Of the model and of the frames.
        sensors: The cameras by id.
        cameras: The cameras by name, as users have them.
        live: What changes about them.
        poses: Where they were in the last turn.
        delivery: Hands them their frames.
        turn_count: Turns that were started.
    """

    def __init__(
        self,
        number: int,
        plan: CorePlan,
        core: RenderCore,
        provider: SceneDataProvider,
        transports: TransportSet,
        host: CameraHost,
    ):
        self.number = number
        self.turn_count = 0
        self.live = LiveCameras(plan.scene, plan.descriptors, provider.device)
        self.poses = CameraPoses(plan.scene, plan.descriptors)
        self.sensors: dict[int, Sensor] = {}
        for cfg, descriptor in zip(plan.cameras, plan.descriptors, strict=True):
            consumer = core.register_one_shot_consumer(cfg.name, descriptor.id)
            seat = CameraSeat(cfg, descriptor, plan.scene, host)
            self.sensors[descriptor.id] = Sensor(seat, consumer, period_ns=round(cfg.update_period * 1e9))
        self.cameras: Mapping[str, Camera] = self._cameras()
        self.delivery = TurnDelivery(core, self.sensors, transports, self.poses)
        self._core = core
        self._provider, self._backend = provider, provider.backend

    @property
    def descriptors(self) -> Mapping[str, CameraDescriptor]:
        """The cameras by name, as the core knows them."""
        return {sensor.seat.name: sensor.seat.descriptor for sensor in self.sensors.values()}

    def sensor_of(self, seat: CameraSeat) -> Sensor:
        """What is known of a camera.

        Raises:
            StaleGenerationError: It is of an earlier generation, or the provider reads another engine by now.
        """
        sensor = self.sensors.get(seat.descriptor.id)
        if sensor is None or sensor.seat is not seat or self._provider.backend is not self._backend:
            raise StaleGenerationError(seat.name)
        return sensor

    def adopt(self, sensors: Iterable[Sensor], settings: CameraSettings) -> None:
        """Let cameras of the generation before, which this one has in the same places, be what they were."""
        self.live.settings = settings
        for kept in sensors:
            sensor = self.sensors[kept.seat.descriptor.id]
            sensor.seat, sensor.data, sensor.version = kept.seat, kept.data, kept.version
        self.cameras = self._cameras()

    def unregister(self) -> None:
        """Take the cameras' consumers off the core."""
        for sensor in self.sensors.values():
            self._core.unregister_consumer(sensor.consumer)

    def end(self) -> None:
        """Have no cameras any more."""
        self.unregister()
        self.sensors, self.cameras = {}, {}

    def _cameras(self) -> Mapping[str, Camera]:
        return {sensor.seat.name: Camera.of(sensor.seat) for sensor in self.sensors.values()}


class Generations:
    """The render core of a simulation, and the generation that it serves.

    Args:
        plan: The first one.
        provider: Reads the engine.
        pool: Where the snapshots of a generation are.
        transports: Who else gets frames.
        host: What cameras are read through.
        device: Warp device of the frames.
        threads: CPU threads that drawing may use; None is all.

    Attributes:
        core: The render core.
        plan: The plan that was started last.
        current: The generation in force. Where its successor could not be started, it has no cameras.

    Raises:
        RenderTurnError: The render backend could not be set up.
    """

    def __init__(
        self,
        plan: CorePlan,
        provider: SceneDataProvider,
        pool: SnapshotPool,
        transports: TransportSet,
        host: CameraHost,
        device: str,
        threads: int | None,
    ):
        self._provider = provider
        self._pool = pool
        self._transports = transports
        self._host = host
        self._device = device
        self._threads = threads
        self._number = 0
        self.plan = plan
        self.core: RenderCore = plan.create_core(device, threads)
        try:
            self.current = self._put_in_force()
        except BaseException:
            self.core.shutdown()
            raise

    def start(self, plan: CorePlan) -> None:
        """End the present generation, and go on with a plan; nothing may be under way.

        Raises:
            RenderTurnError: The render backend could not be set up.
        """
        self.plan = plan
        self.current.end()
        if not plan.fits(self.core):
            self._replace_core()
        self.current = self._put_in_force()

    def extend(self, plan: CorePlan) -> None:
        """Go on with a plan that has further cameras behind the present ones, which stay what they are.

        Raises:
            RenderTurnError: The render backend could not be set up.
        """
        kept, settings = list(self.current.sensors.values()), self.current.live.settings
        self.start(plan)
        self.current.adopt(kept, settings)

    def _put_in_force(self) -> Generation:
        self._number += 1
        self._pool.activate(self._provider, self._number, self.plan.scene.point_ranges())
        status = self.plan.configure(self.core, self._number, self._number)
        if status.code is FrameStatusCode.GENERATION_CAPACITY_EXHAUSTED:
            # Readers hold too much of the generation before; its frames live on with the core that made them.
            self._replace_core()
            status = self.plan.configure(self.core, self._number, self._number)
        if not status.ok:
            raise RenderTurnError("The render core could not be set up", status)
        return Generation(self._number, self.plan, self.core, self._provider, self._transports, self._host)

    def _replace_core(self) -> None:
        retired, self.core = self.core, self.plan.create_core(self._device, self._threads)
        self.core.set_backpressure_policy(retired.backpressure_policy)
        retired.shutdown()
