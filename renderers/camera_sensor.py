"""Camera: one camera of a simulation, or of a loop of one's own, read as tensors."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from scene_data.camera import CameraCfg
from scene_data.camera_frames import view_quaternions
from scene_data.provider import SceneDataProvider
from scene_data.renderers.camera_data import DATA_TYPES, CameraData
from scene_data.renderers.camera_seat import CameraSeat
from scene_data.renderers.frame_info import FrameInfo
from scene_data.renderers.render_core import CameraDescriptor, PlaneKind, PlaneLayout
from scene_data.renderers.render_core.camera_settings import CameraSetting
from scene_data.renderers.runtime_settings import checked_pinholes, checked_positions, checked_quaternions
from scene_data.runtime_values import checked_envs
from scene_data.simulation import SimulationContext

__all__ = ["DATA_TYPES", "Camera", "CameraCfg", "CameraData", "FrameInfo"]


class Camera:
    """One camera. In the synchronous mode its `data` always belongs to the present state.

    `sim.cameras[name]` is a camera of a simulation, and `Camera(cfg)` adds one to the simulation that was opened last;
    both end with it. `Camera(cfg, provider)` looks into a loop of your own: it brings a render core along, which ends
    with `close()` or a `with` statement. Cameras of one loop share a core and its turns in a `CameraGroup`.

    Args:
        cfg: What to see, from where.
        provider: Reads the engine of your own loop; None is the simulation that was opened last.
        render_backend: Name of the render backend, with a provider; a simulation has its own.
        held_frames: Frames of each plane that you can hold beside the latest and the next one, with a provider.
        max_frame_bytes: Budget of the frame store, with a provider; None is what `held_frames` needs.
        physics_lock: What your loop holds while it writes to the engine, with a provider; needed where another thread
            reads the camera.

    Raises:
        UnknownNameError: A camera, body, data type or render backend is not known.
        ValueError: The camera asks for what the render backend does not make (the message names those that do), its
            name is taken, the budget does not fit, or there is neither a provider nor a simulation.
        UnmetRequirementError: The render backend needs what the engine does not offer.
        RenderTurnError: The render backend could not be set up.
    """

    def __init__(
        self,
        cfg: CameraCfg,
        provider: SceneDataProvider | None = None,
        *,
        render_backend: str = "mujoco_warp",
        held_frames: int = 2,
        max_frame_bytes: int | None = None,
        physics_lock: AbstractContextManager[Any] | None = None,
    ):
        self._own: Any = None
        if provider is None:
            self._seat = _seat_in_simulation(cfg)
            return
        # A group is made of cameras.
        from scene_data.renderers.camera_group import CameraGroup

        self._own = CameraGroup(
            [cfg],
            provider,
            render_backend=render_backend,
            held_frames=held_frames,
            max_frame_bytes=max_frame_bytes,
            physics_lock=physics_lock,
        )
        self._seat = self._own[cfg.name].seat

    @classmethod
    def of(cls, seat: CameraSeat) -> "Camera":
        """The camera on a seat, for hosts of cameras."""
        camera = cls.__new__(cls)
        camera._own, camera._seat = None, seat
        return camera

    @property
    def seat(self) -> CameraSeat:
        """What the camera is to its host."""
        return self._seat

    @property
    def cfg(self) -> CameraCfg:
        """What the user asked for."""
        return self._seat.cfg

    @property
    def name(self) -> str:
        """Its name."""
        return self._seat.name

    @property
    def descriptor(self) -> CameraDescriptor:
        """What the render core knows it as."""
        return self._seat.descriptor

    def layout(self, data_type: str) -> PlaneLayout:
        """Shape and dtype of the frames that are rendered for one data type."""
        return self.descriptor.layout(self.plane(data_type))

    def plane(self, data_type: str) -> PlaneKind:
        """The plane of which the frames of one data type are made."""
        return self._seat.plane(data_type)

    @property
    def data(self) -> CameraData:
        """The latest frames; in the synchronous mode captured now if the state has moved since the last ones.

        Raises:
            StaleGenerationError: The model was reloaded since; take the camera from the simulation anew.
            RenderTurnError: The frames could not be made; the message names the budget and its holders, or what the
                render backend reports. An older frame is never handed out in their place.
        """
        return self._seat.host.read(self._seat)

    @property
    def lag(self) -> int:
        """Turns that were started after the one that `data` showed last: 0 in the synchronous mode, 1 if pipelined.

        In the free-running mode, turns that were dropped are not among them; `lag_ns` says how old the frame is.
        """
        return self._seat.host.lag(self._seat)

    @property
    def lag_ns(self) -> int:
        """Simulation time that has passed since what `data` showed last [ns]."""
        return self._seat.host.lag_ns(self._seat)

    def set_world_poses(
        self,
        positions: Any = None,
        orientations: Any = None,
        env_ids: Sequence[int] | None = None,
        convention: str = "ros",
    ) -> None:
        """Let the camera stand still at these poses, from the next frame on; whatever it was mounted on plays no role.

        Args:
            positions: In each environment's frame (n, 3), or (3,) for all [m]; None leaves the position to what said it
                so far, be it the engine.
            orientations: Quaternions (n, 4) or (4,), (x, y, z, w); None leaves the orientation likewise.
            env_ids: The n environments; None is all.
            convention: How the camera looks in its own frame: `"ros"` along +Z with -Y up, `"opengl"` along -Z with +Y
                up, `"world"` along +X with +Z up.

        Raises:
            UnknownNameError: No such convention.
            ValueError: A shape that does not fit, a value that is not finite, or no such environment.
            StaleGenerationError: The model was reloaded since.
        """
        envs = checked_envs(env_ids, self._num_envs)
        new_positions = None if positions is None else checked_positions(positions, len(envs))
        new_quaternions = None if orientations is None else checked_quaternions(orientations, len(envs), convention)
        self._change(lambda setting: setting.with_poses(envs, new_positions, new_quaternions))

    def set_world_poses_from_view(self, eyes: Any, targets: Any, env_ids: Sequence[int] | None = None) -> None:
        """Let the camera stand still at `eyes` and look at `targets`, +Z of the world upwards, from the next frame on.

        Args:
            eyes: Positions in each environment's frame (n, 3), or (3,) for all [m].
            targets: Points on the optical axes (n, 3), or (3,) for all [m].
            env_ids: The n environments; None is all.

        Raises:
            ValueError: A shape that does not fit, a value that is not finite, a target that is its eye, or no such
                environment.
            StaleGenerationError: The model was reloaded since.
        """
        envs = checked_envs(env_ids, self._num_envs)
        positions = checked_positions(eyes, len(envs))
        quaternions = view_quaternions(positions, checked_positions(targets, len(envs)))
        self._change(lambda setting: setting.with_poses(envs, positions, quaternions))

    def clear_world_poses(self, env_ids: Sequence[int] | None = None) -> None:
        """Let the camera sit again where its configuration has it, in these environments or all."""
        envs = checked_envs(env_ids, self._num_envs)
        self._change(lambda setting: setting.without_poses(envs))

    def set_intrinsic_matrices(self, matrices: Any, env_ids: Sequence[int] | None = None) -> None:
        """Project through these pinholes, from the next frame on.

        Args:
            matrices: [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] (n, 3, 3), or (3, 3) for all [pixels]; the origin is the
                top-left corner of the image, so pixel centres lie at +0.5. fx and fy may differ, and (cx, cy) be
                anywhere.
            env_ids: The n environments; None is all.

        Raises:
            ValueError: A matrix of another form, no such environment, or the camera is orthographic.
            StaleGenerationError: The model was reloaded since.
        """
        if self._seat.is_orthographic:
            raise ValueError(f"camera {self.name!r} is orthographic and has no pinhole")
        envs = checked_envs(env_ids, self._num_envs)
        pinholes = checked_pinholes(matrices, len(envs))
        self._change(lambda setting: setting.with_pinholes(envs, pinholes))

    def close(self) -> None:
        """End what the camera brought along; held tensors stay valid. One of a simulation or a group ends with that."""
        if self._own is not None:
            self._own.close()

    @property
    def _num_envs(self) -> int:
        return self.descriptor.num_envs

    def _change(self, change: Callable[[CameraSetting], CameraSetting]) -> None:
        self._seat.host.change(self._seat, change)

    def __enter__(self) -> "Camera":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()


def _seat_in_simulation(cfg: CameraCfg) -> CameraSeat:
    """The seat of a camera in the simulation that was opened last, which gets one if it has none like this."""
    simulation = SimulationContext.instance()
    if simulation is None:
        raise ValueError(
            f"camera {cfg.name!r} has nothing to look at: no simulation is open. In a loop of your own give "
            "the provider, Camera(cfg, provider)"
        )
    known = simulation.cameras.get(cfg.name)
    camera = known if known is not None and known.cfg == cfg else simulation.add_camera(cfg)
    return camera.seat
