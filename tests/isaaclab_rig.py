"""Cameras that call a renderer as Isaac Lab does: Isaac Lab's own, and a stand-in for where it is not."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mujoco
import mujoco.batch
import numpy as np
import warp as wp

from scene_data import SceneDataProvider
from scene_data.backends import MujocoBatchSceneDataBackend

PEERS = Path(__file__).parent.parent / "build" / "peer"
ISAACLAB = PEERS / "isaaclab-3.0.0"
ADAPTER = "scene_data.renderers.isaaclab"

WIDTH, HEIGHT, NUM_ENVS = 16, 12, 3
CAMERA_HEIGHT, BOX_RADIUS = 3.0, 0.3
BOX_HEIGHTS = (0.4, 0.9, 1.4)
DOWN = (0.0, np.sqrt(0.5), 0.0, np.sqrt(0.5))  # a frame that looks along +X with +Z up, turned to look down

SCENE = f"""
<mujoco>
  <worldbody>
    <light pos="0 0 5" dir="0 0 -1" directional="true"/>
    <geom name="floor" type="plane" size="9 9 1" rgba="0 1 0 1"/>
    <body name="box" pos="0 0 1">
      <freejoint/>
      <geom name="box" type="box" size="{BOX_RADIUS} {BOX_RADIUS} {BOX_RADIUS}" rgba="1 0 0 1"/>
    </body>
  </worldbody>
</mujoco>
"""


class World:
    """Boxes over a floor, each at a height of its own."""

    def __init__(self, num_envs: int = NUM_ENVS):
        self.model = mujoco.MjModel.from_xml_string(SCENE)
        self.batch = mujoco.batch.Batch(self.model, num_envs, 1)
        self.qpos = self.batch.bind("qpos")
        self.provider = SceneDataProvider(MujocoBatchSceneDataBackend(self.batch))
        for env in range(num_envs):
            self.lift(env, BOX_HEIGHTS[env])

    def lift(self, env: int, height: float) -> None:
        """Put a box elsewhere, and tell nobody."""
        self.qpos[env, 2] = height


def hits_box(pinhole: Sequence[float], box_height: float, camera_height: float = CAMERA_HEIGHT) -> np.ndarray:
    """Which pixels (H, W) of a camera that looks straight down see the top of a box below it."""
    fx, fy, cx, cy = pinhole
    distance = camera_height - box_height - BOX_RADIUS
    across = np.abs(np.arange(WIDTH) + 0.5 - cx) / fx * distance <= BOX_RADIUS
    along = np.abs(np.arange(HEIGHT) + 0.5 - cy) / fy * distance <= BOX_RADIUS
    return along[:, None] & across[None, :]


def expected_depth(pinhole: Sequence[float], box_height: float, camera_height: float = CAMERA_HEIGHT) -> np.ndarray:
    """Distance along the optical axis (H, W) [m]."""
    hits = hits_box(pinhole, box_height, camera_height)
    return np.where(hits, camera_height - box_height - BOX_RADIUS, camera_height)


def matrices(pinholes: Sequence[Sequence[float]]) -> wp.array:
    """Intrinsic matrices (N,) of (fx, fy, cx, cy)."""
    return wp.array(
        [[[fx, 0, cx], [0, fy, cy], [0, 0, 1]] for fx, fy, cx, cy in pinholes], dtype=wp.mat33, device="cpu"
    )


@contextmanager
def adapter_on(isaaclab: bool) -> Iterator[ModuleType]:
    """The adapter, imported with Isaac Lab at hand or without it."""
    paths = [str(ISAACLAB), str(PEERS / "dependencies")] if isaaclab else []
    forget("isaaclab", ADAPTER)
    sys.path[:0] = paths
    try:
        yield import_module(ADAPTER)
    finally:
        for path in paths:
            sys.path.remove(path)
        forget("isaaclab", ADAPTER)


def forget(*packages: str) -> None:
    for name in [name for name in sys.modules if any(f"{name}.".startswith(package) for package in packages)]:
        del sys.modules[name]


class Rig:
    """Cameras on one renderer."""

    def __init__(self, adapter: ModuleType, world: World, **cfg: Any):
        self.world = world
        self.cfg = adapter.RenderCoreRendererCfg(provider=world.provider, **cfg)
        self.cameras: list[Any] = []
        self.renderer: Any = None

    def camera(self, data_types: Sequence[str], **cfg: Any) -> Any:
        """A camera over every box, looking down, with square pixels and a centred principal point."""
        raise NotImplementedError

    def capture(self, *cameras: Any) -> None:
        """Capture some cameras together, as a scene's update does."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class StandInCamera:
    """Calls the contract in Isaac Lab's order."""

    def __init__(self, rig: "StandInRig", data_types: Sequence[str], **cfg: Any):
        self._renderer = renderer = rig.renderer
        num_envs = rig.world.provider.num_envs
        paths = tuple(f"/World/envs/env_{env}/Camera" for env in range(num_envs))
        options = {"spawn": None, "background_color": None, "isp_cfg": None, **cfg}
        self.spec = SimpleNamespace(
            cfg=SimpleNamespace(width=WIDTH, height=HEIGHT, data_types=list(data_types), **options),
            device="cpu",
            num_instances=num_envs,
            view_count=num_envs,
            camera_prim_paths=paths,
        )
        renderer.prepare_cameras(None, self.spec)
        renderer.prepare_stage(None, num_envs)
        self._render_data = renderer.create_render_data(self.spec)
        specs = renderer.supported_output_types()
        buffers = {
            name: wp.zeros((num_envs, HEIGHT, WIDTH, specs[name].channels), dtype=specs[name].dtype, device="cpu")
            for name in data_types
        }
        output = {name: SimpleNamespace(warp=buffer, torch=wp.to_torch(buffer)) for name, buffer in buffers.items()}
        self._data = SimpleNamespace(output=output, info=dict.fromkeys(data_types))
        self.pinhole = (WIDTH, WIDTH, WIDTH / 2, HEIGHT / 2)
        self.positions = wp.array([(0, 0, CAMERA_HEIGHT)] * num_envs, dtype=wp.vec3, device="cpu")
        self.orientations = wp.array([DOWN] * num_envs, dtype=wp.quat, device="cpu")
        self.intrinsics = matrices([self.pinhole] * num_envs)
        self.update_pose()
        renderer.set_outputs(self._render_data, output)

    def update_pose(self) -> None:
        wrapped = [SimpleNamespace(warp=array) for array in (self.positions, self.orientations, self.intrinsics)]
        self._renderer.update_camera(self._render_data, *wrapped)

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        self._renderer.reset(self._render_data, env_ids)
        self.update_pose()


class StandInRig(Rig):
    def camera(self, data_types: Sequence[str], **cfg: Any) -> StandInCamera:
        if self.renderer is None:
            self.renderer = sys.modules[ADAPTER].RenderCoreRenderer(self.cfg)
            self.renderer.initialize()
        self.cameras.append(StandInCamera(self, data_types, **cfg))
        return self.cameras[-1]

    def capture(self, *cameras: Any) -> None:
        for camera in cameras:
            self.renderer.prepare_capture(camera._render_data, camera._data, None)
        self.renderer.update_transforms()
        self.renderer.update_geometries()
        self.renderer.render_batch([camera._render_data for camera in cameras])
        for camera in cameras:
            self.renderer.read_output(camera._render_data, camera._data)

    def close(self) -> None:
        if self.renderer is not None:
            self.renderer.close()


class IsaacLabRig(Rig):
    """Isaac Lab's camera, render context and registry of renderers, on a stage in memory, without its simulation."""

    def __init__(self, adapter: ModuleType, world: World, **cfg: Any):
        super().__init__(adapter, world, **cfg)
        from isaaclab.renderers.render_context import RenderContext  # pyright: ignore[reportMissingImports]
        from isaaclab.sim import SimulationContext  # pyright: ignore[reportMissingImports]
        from pxr import Usd, UsdGeom

        self.stage = Usd.Stage.CreateInMemory()
        UsdGeom.SetStageUpAxis(self.stage, UsdGeom.Tokens.z)
        for env in range(world.provider.num_envs):
            UsdGeom.Xform.Define(self.stage, f"/World/envs/env_{env}")
        self.context = sim = object.__new__(SimulationContext)
        sim.stage, sim.cfg = self.stage, SimpleNamespace(dt=0.01)
        sim.physics_manager = SimpleNamespace(
            __name__="PhysxManager", get_device=lambda: "cpu", get_backend=lambda: "torch"
        )
        sim.vis_marker_registry = SimpleNamespace(clear_debug_vis_callback=lambda sensor: None)
        sim._clone_plan, sim._physics_step_count, sim._visual_shapes_required = None, 0, False
        sim._backend_registry = []
        sim._render_context = RenderContext(sim._backend_registry)
        SimulationContext._instance = sim
        self._simulation_class = SimulationContext

    def camera(self, data_types: Sequence[str], **cfg: Any) -> Any:
        import isaaclab.sim as sim_utils  # pyright: ignore[reportMissingImports]
        from isaaclab.sensors.camera import Camera, CameraCfg  # pyright: ignore[reportMissingImports]
        from pxr import UsdGeom

        class OnStage(Camera):
            """Initialized at once, since no simulation tells it when."""

            def _register_callbacks(self) -> None:
                pass

            def set_debug_vis(self, debug_vis: bool) -> bool:
                return False

        name = f"Camera{len(self.cameras)}"
        for env in range(self.world.provider.num_envs):
            prim = UsdGeom.Camera.Define(self.stage, f"/World/envs/env_{env}/{name}")
            prim.AddTranslateOp().Set((0.0, 0.0, CAMERA_HEIGHT))  # and looks down, as USD's cameras do
            prim.AddOrientOp(UsdGeom.XformOp.PrecisionDouble)
            prim.AddScaleOp()
            prim.GetFocalLengthAttr().Set(prim.GetHorizontalApertureAttr().Get())
        options = {"spawn": None, **cfg}
        with sim_utils.use_stage(self.stage):
            path = f"/World/envs/env_[0-9]+/{name}"
            camera: Any = OnStage(
                CameraCfg(
                    prim_path=path,
                    width=WIDTH,
                    height=HEIGHT,
                    data_types=list(data_types),
                    renderer_cfg=self.cfg,
                    **options,
                )
            )
            camera._initialize_impl()
        camera._is_initialized = True
        self.context.render_context.ensure_initialize()
        self.renderer = camera._renderer
        self.cameras.append(camera)
        return camera

    def capture(self, *cameras: Any) -> None:
        for camera in cameras:
            camera.update(0.01)
        type(cameras[0])._update_buffers_batch_impl(cameras)

    def close(self) -> None:
        for camera in self.cameras:
            camera._invalidate_initialize_callback(None)
        self.cameras.clear()
        for cfg, renderer in list(self.context._backend_registry):
            if cfg is not None:
                self.context.close_backend(renderer)
        self.context.render_context.close()
        self._simulation_class._instance = None
