"""RenderCoreRenderer: Isaac Lab's renderer contract on a render core, so that a `Camera` of Isaac Lab's can use one.

Everything is synchronous here. `update_transforms` takes a snapshot, `render` and `render_batch` run one turn on it and
copy each plane once into the camera's own buffers, and when they return the frames are there.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import warp as wp

from scene_data.appearance import Appearance
from scene_data.camera_frames import to_opengl
from scene_data.errors import UnknownNameError
from scene_data.provider import SceneDataProvider
from scene_data.registry import renderers
from scene_data.scene import SceneDescription
from scene_data.simulation import SimulationContext

from .camera_data import DATA_TYPES, DERIVED
from .isaaclab_cameras import CameraRenderData, as_torch, camera_of_spec, check_output, on_host
from .isaaclab_contract import BaseRenderer, RenderBufferSpec, RendererCfg, buffer_kind, configuration
from .isaaclab_session import CameraSession
from .render_core.abilities import require_randomization
from .render_core.camera_settings import POSITION_SET, QUATERNION_SET, CameraSetting
from .render_core.core_plan import check_data_types
from .render_core.layout import PlaneKind, PlaneLayout
from .render_core.snapshots import RenderSnapshot
from .runtime_settings import checked_pinholes

__all__ = ["CameraRenderData", "RenderCoreRenderer", "RenderCoreRendererCfg"]

_SEGMENTATIONS = (PlaneKind.INSTANCE_SEGMENTATION, PlaneKind.SEMANTIC_SEGMENTATION)


class RenderCoreRenderer(BaseRenderer):
    """Renders cameras of Isaac Lab's through a render core.

    It is a subclass of Isaac Lab's `BaseRenderer` where that can be imported, and has the same members where not. All
    cameras of a batch are rendered in one turn, from one snapshot. The core is built at the first render for all
    cameras there are by then; a camera that comes or goes later builds another one.

    Call it from one thread. What cannot be rendered raises; buffers then keep what they held.

    Args:
        cfg: A `RenderCoreRendererCfg`.

    Raises:
        UnknownNameError: There is no such render backend.
    """

    def __init__(self, cfg: "RenderCoreRendererCfg"):
        self.cfg = cfg
        self._supported: Mapping[str, RenderBufferSpec] = cfg.supported_output_types()
        self._cameras: list[CameraRenderData] = []
        self._created = 0
        self._session: CameraSession | None = None
        self._settings: Mapping[int, CameraSetting] | None = None
        self._snapshot: RenderSnapshot | None = None
        self._is_closed = False

    # -- setting up

    def initialize(self) -> None:
        """Look up the provider, now that the physics is ready."""
        self._require_open()
        _ = self._provider

    def supported_output_types(self) -> dict[Any, RenderBufferSpec]:
        """Channels and dtype of each output that the render backend makes, by name."""
        return dict(self._supported)

    def prepare_stage(self, stage: Any, num_envs: int) -> None:
        """Check the number of environments; the stage itself is not needed.

        Raises:
            ValueError: The scene has another number.
        """
        self._require_open()
        if num_envs != self._scene.num_envs:
            raise ValueError(f"the stage has {num_envs} environments, but the scene data has {self._scene.num_envs}")

    def create_render_data(self, spec: Any) -> CameraRenderData:
        """Take in a camera.

        Args:
            spec: An Isaac Lab `CameraRenderSpec`, or anything that has its attributes.

        Raises:
            UnknownNameError: There is no such data type.
            UnsupportedPlaneError: The render backend does not make it; the message names those that do.
            ValueError: Another device or number of environments than the scene's, or what a render core does not do: a
                lens distortion or an image signal processor.
        """
        self._require_open()
        self._created += 1
        cfg = camera_of_spec(spec, self._created, self.cfg, self._scene.num_envs, self._provider.device)
        check_data_types(self.cfg.render_backend, renderers.get(self.cfg.render_backend), cfg)
        render_data = CameraRenderData(cfg)
        self._cameras.append(render_data)
        self._end_session()
        return render_data

    def set_outputs(self, render_data: CameraRenderData, output_data: Mapping[str, Any]) -> None:
        """Write into these buffers from now on.

        Args:
            render_data: The camera.
            output_data: Buffers (N, H, W, C) by data type: Isaac Lab's `ProxyArray`s, Warp arrays or torch tensors. An
                `rgb` that lies in the `rgba` beside it, as Isaac Lab has it, is written with it.

        Raises:
            UnknownNameError: A data type that the render backend does not make.
            ValueError: A buffer of another shape, dtype or device.
        """
        cfg = render_data.cfg
        outputs = {str(name): as_torch(buffer) for name, buffer in output_data.items()}
        for name, output in outputs.items():
            self._check_supported(name, cfg.name)
            spec = self._supported[name]
            layout = PlaneLayout(cfg.width, cfg.height, spec.channels, spec.dtype, self._scene.num_envs)
            check_output(cfg.name, name, output, layout, self._provider.device)
        if render_data.bind(outputs):
            self._end_session()

    @cached_property
    def appearance(self) -> Appearance:
        """What the environments look like, to be changed in each of them; the next capture shows it."""
        return Appearance(
            lambda: self._scene, require=lambda kind: require_randomization(self.cfg.render_backend, kind)
        )

    # -- before a capture

    def update_transforms(self) -> None:
        """Take a snapshot of the present state: all poses and points, from one moment."""
        self._drop_snapshot()
        if self._cameras:
            self._snapshot = self._open_session().take_snapshot()

    def update_geometries(self) -> None:
        """Take the snapshot again if points were written since; otherwise it holds them already."""
        if self._snapshot is None or self._open_session().points_moved(self._snapshot):
            self.update_transforms()

    def update_camera(self, render_data: CameraRenderData, positions: Any, orientations: Any, intrinsics: Any) -> None:
        """Put a camera's poses and intrinsics in force in every environment, from the next render on.

        A pose that is not finite blanks its environment. On CUDA the poses are copied to the host, and waited for.

        Args:
            render_data: The camera.
            positions: In the world frame (N,) vec3f [m].
            orientations: Quaternions (x, y, z, w) of the camera frame that looks along +X with +Z up, (N,) quatf.
            intrinsics: Matrices (N,) mat33f [pixels]; fx and fy may differ, and the centre be anywhere.

        Raises:
            ValueError: An intrinsic matrix of another form, or another number of environments.
        """
        count = self._scene.num_envs
        where = on_host(positions, (count, 3)) - self._env_origins
        turned = to_opengl(on_host(orientations, (count, 4)), "world")
        pinholes = checked_pinholes(on_host(intrinsics, (count, 3, 3)), count)
        pose_set = np.full(count, POSITION_SET | QUATERNION_SET, np.int32)
        render_data.setting = CameraSetting(
            pose_set, where.astype(np.float32), turned.astype(np.float32), pinholes.astype(np.float64)
        )
        self._settings = None

    def update_camera_intrinsics(self, render_data: CameraRenderData, intrinsics: Any, parameters: Any = None) -> None:
        """Put a camera's intrinsics in force, each environment's own, from the next render on.

        Args:
            render_data: The camera, which has poses.
            intrinsics: Matrices (N,) mat33f [pixels]; fx and fy may differ, and the centre be anywhere.
            parameters: Isaac Lab's lens parameters, which say the same and are not needed.

        Raises:
            ValueError: A matrix of another form; then all stays as it was.
            RuntimeError: The camera has no poses yet.
        """
        count = self._scene.num_envs
        pinholes = checked_pinholes(on_host(intrinsics, (count, 3, 3)), count)
        render_data.setting = render_data.require_setting().with_pinholes(np.arange(count), pinholes)
        self._settings = None

    # -- capturing

    def render(self, render_data: CameraRenderData) -> None:
        """Capture one camera. See `render_batch`."""
        self.render_batch([render_data])

    def render_batch(self, render_data: Sequence[CameraRenderData]) -> None:
        """Capture some cameras in one turn and write their outputs.

        The state is that of the last `update_transforms`, where no capture has used it yet, else the present one.

        Raises:
            RenderTurnError: The frames could not be made.
            RuntimeError: A camera has no poses yet, or the renderer is closed.
            ValueError: A camera that was cleaned up, or is another renderer's.
        """
        if not render_data:
            return
        self._require_open()
        for camera in render_data:
            if camera not in self._cameras:
                raise ValueError(f"camera {camera.cfg.name!r} is none of this renderer's, or was cleaned up")
            camera.require_setting()
        session = self._open_session()
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            snapshot = session.take_snapshot()
        snapshot.camera_settings = self._settings_of(session)
        snapshot.appearance = self.appearance.state
        captures = session.run_turn(snapshot, [camera.cfg.name for camera in render_data])
        for camera, capture_id in zip(render_data, captures, strict=True):
            camera.show(session, capture_id)

    def read_output(self, render_data: CameraRenderData, camera_data: Any) -> None:
        """Say in `camera_data.info` what the ids of segmentations mean; pixels are in the camera's buffers already."""
        if labels := render_data.labels():
            camera_data.info = {**(camera_data.info or {}), **labels}

    # -- resetting and ending

    def reset(self, render_data: CameraRenderData, env_ids: Sequence[int] | None = None) -> None:
        """Forget a snapshot of before the reset. Nothing else of one frame is left in the next."""
        self._drop_snapshot()

    def cleanup(self, render_data: CameraRenderData | None) -> None:
        """Let go of a camera; with the last one the render thread ends. Leases stay valid."""
        if render_data in self._cameras:
            self._cameras.remove(render_data)
            self._end_session()

    def close(self) -> None:
        """Let go of all cameras and end the render thread. A second call does nothing."""
        self._is_closed = True
        self._cameras.clear()
        self._end_session()

    # -- inside

    @cached_property
    def _provider(self) -> SceneDataProvider:
        if self.cfg.provider is not None:
            return self.cfg.provider()
        if self._context is None:
            raise RuntimeError("there is no provider: give the configuration one, or open a SimulationContext")
        return self._context.get_scene_data_provider()

    @cached_property
    def _context(self) -> SimulationContext | None:
        return SimulationContext.instance() if self.cfg.provider is None else None

    @cached_property
    def _scene(self) -> SceneDescription:
        return self._provider.backend.describe_scene()

    @cached_property
    def _env_origins(self) -> np.ndarray:
        origins = self.cfg.env_origins
        origins = origins() if callable(origins) else origins
        return np.zeros(3) if origins is None else on_host(origins, (self._scene.num_envs, 3))

    def _open_session(self) -> CameraSession:
        self._require_open()
        if self._session is None:
            lock = self._context.physics_lock if self._context is not None else nullcontext()
            self._session = CameraSession(self._provider, [camera.cfg for camera in self._cameras], self.cfg, lock)
        return self._session

    def _end_session(self) -> None:
        self._drop_snapshot()
        session, self._session, self._settings = self._session, None, None
        if session is not None:
            session.close()

    def _drop_snapshot(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.release()

    def _settings_of(self, session: CameraSession) -> Mapping[int, CameraSetting]:
        """The settings by camera id; the same object while nothing changes, which spares the backend their upload."""
        if self._settings is None:
            settings = {session.camera_id(camera.cfg.name): camera.setting for camera in self._cameras}
            self._settings = MappingProxyType({id: setting for id, setting in settings.items() if setting is not None})
        return self._settings

    def _check_supported(self, data_type: str, camera: str) -> None:
        if data_type not in self._supported:
            raise UnknownNameError(f"data type of camera {camera!r}", data_type, map(str, self._supported))

    def _require_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this renderer is closed")


@dataclass(frozen=True, slots=True)
class _Given:
    """Returns a provider, and hides it from Isaac Lab, which looks into all that a configuration holds."""

    provider: SceneDataProvider

    def __call__(self) -> SceneDataProvider:
        return self.provider


@configuration
class RenderCoreRendererCfg(RendererCfg):
    """Configuration of a `RenderCoreRenderer`, to be given to an Isaac Lab camera as its `renderer_cfg`.

    It is an Isaac Lab `RendererCfg` where that can be imported. Cameras with equal configurations share a renderer.
    """

    class_type: Any = RenderCoreRenderer
    """What Isaac Lab constructs from this configuration."""

    renderer_type: str = "render_core"
    """Isaac Lab's name for this kind of renderer."""

    provider: Any = field(default=None, metadata={"copy": False})
    """The `SceneDataProvider` that is rendered, or a function that returns it once the physics is ready; None is that
    of this package's open `SimulationContext`."""

    render_backend: str = "mujoco_warp"
    """Name of the render backend."""

    # Flat, since Isaac Lab writes to every dataclass that it finds inside a configuration.
    geom_groups: tuple[int, ...] = (0, 1, 2)
    """Groups of geoms and flexes that cameras show."""

    shadows: bool = True
    """Whether lights cast shadows."""

    textures: bool = True
    """Whether materials show their textures."""

    skybox: bool = True
    """Whether rays that hit nothing show the model's sky box; not of cameras with a background colour of their own."""

    background: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Colour of rays that hit nothing else, in [0, 1], of cameras without one of their own."""

    env_origins: Any = None
    """Origin of each environment in Isaac Lab's world frame (N, 3) [m], as nested tuples or a function that returns
    them; None where the scene data has its environments in that frame too."""

    depth_clipping_behavior: str = "none"
    """What distances hold outside the clipping range of the camera's spawner. `"none"`: what was measured, with `inf`
    for a miss. `"max"`: the nearest limit. `"zero"`: 0."""

    semantic_tags: Any = ()
    """(pattern, tag) pairs for `semantic_segmentation`; see `CameraCfg.semantic_tags` of this package."""

    colorize_segmentation: bool = False
    """Whether segmentations by instance and tag are colours (N, H, W, 4) uint8 instead of ids (N, H, W, 1) int32."""

    held_frames: int = 0
    """Leases on each plane that can be held beside the latest frame and the next one."""

    max_frame_bytes: int | None = None
    """Budget of the frame store [bytes]; None is what the cameras need."""

    def __post_init__(self):
        if isinstance(self.provider, SceneDataProvider):
            self.provider = _Given(self.provider)

    def __deepcopy__(self, memo: dict[int, Any]) -> "RenderCoreRendererCfg":
        return copy(self)  # a camera's configuration copies its parts, but a provider stays what it is

    def supported_output_types(self) -> dict[Any, RenderBufferSpec]:
        """Channels and dtype of each output that the render backend makes, by name."""
        able = renderers.get(self.render_backend).supported_planes
        made = {name: plane for name, plane in DATA_TYPES.items() if plane in able or DERIVED.get(plane) in able}
        return {buffer_kind(name): self._spec_of(plane) for name, plane in made.items()}

    def _spec_of(self, plane: PlaneKind) -> RenderBufferSpec:
        if plane in _SEGMENTATIONS and self.colorize_segmentation:
            return RenderBufferSpec(4, wp.uint8)
        layout = PlaneLayout.of(plane, 1, 1)
        return RenderBufferSpec(layout.channels, layout.dtype)
