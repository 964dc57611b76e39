"""The ways to draw a crowd that the render benchmarks compare: ours, and three that users would otherwise take.

Each way is a callable that draws one picture of every environment from the poses in the engine's arrays, which are up
to date, and nothing else: buffers, kernels and graphics contexts are ready. All draw the same camera of the same states
with shadows and textures.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")

import mujoco
import mujoco_warp as mjw
import newton
import numpy as np
import warp as wp
from newton.sensors import SensorCamera

from scene_data import SceneDataProvider
from scene_data.backends import MujocoWarpSceneDataBackend
from scene_data.interop.newton import build_newton_look
from scene_data.renderers import CameraDescriptor, PlaneKind, RenderBackend, RenderCore, SnapshotPool
from scene_data.renderers.render_core.capacity import compute_frame_byte_capacity, compute_frame_slot_capacity

TEST_DATA = Path(mjw.__file__).parent / "test_data"
SCENES = {
    "humanoid": (TEST_DATA / "humanoid" / "humanoid.xml", "back"),  # primitives
    "aloha": (TEST_DATA / "aloha_pot" / "scene.xml", "teleoperator_pov"),  # two arms of meshes
}
_SPREAD = {int(mujoco.mjtJoint.mjJNT_HINGE): 0.3, int(mujoco.mjtJoint.mjJNT_SLIDE): 0.01}
BURST_S, SETTLE_S = 0.1, 0.15
TWO_CORES, WHOLE_CORE, TRIES = 1.45, 1.15, 5
PLANES = {"rgb": PlaneKind.RGB, "depth": PlaneKind.DEPTH, "segmentation": PlaneKind.SEGMENTATION}


@dataclass(frozen=True)
class Picture:
    """What is drawn of each environment."""

    width: int
    height: int
    planes: tuple[str, ...]

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def byte_length(self) -> int:
        """Length of its planes, as users get them [bytes]."""
        return self.pixels * sum({"rgb": 3, "depth": 4, "segmentation": 8}[plane] for plane in self.planes)

    def __str__(self) -> str:
        return f"{self.width}x{self.height} {'+'.join(self.planes)}"


class Crowd:
    """Some environments of a scene in different poses."""

    def __init__(self, scene: str, num_envs: int):
        path, camera = SCENES[scene]
        self.num_envs = num_envs
        self.mj_model = mujoco.MjModel.from_xml_path(str(path))
        self.camera = self.mj_model.camera(camera).id
        self.states = [mujoco.MjData(self.mj_model) for _ in range(num_envs)]
        random = np.random.default_rng(0)
        for data in self.states:
            for kind, address in zip(self.mj_model.jnt_type, self.mj_model.jnt_qposadr, strict=True):
                data.qpos[address] += random.normal(0.0, _SPREAD.get(int(kind), 0.0))
            mujoco.mj_forward(self.mj_model, data)
        self.model = mjw.put_model(self.mj_model)
        self.data = mjw.make_data(self.mj_model, nworld=num_envs)
        self.data.qpos.assign(np.stack([data.qpos for data in self.states]))

    @cached_property
    def backend(self) -> MujocoWarpSceneDataBackend:
        """Publishes the poses once, since nothing is written after that."""
        backend = MujocoWarpSceneDataBackend(self.mj_model, self.model, self.data, announces_writes=True)
        backend.update_kinematics()
        return backend


class Turns:
    """Our way: snapshot, render thread and frames in the store, with a render backend of choice."""

    def __init__(self, crowd: Crowd, picture: Picture, renderer: RenderBackend):
        planes = tuple(PLANES[plane] for plane in picture.planes)
        name = crowd.mj_model.camera(crowd.camera).name
        camera = CameraDescriptor(1, name, picture.width, picture.height, planes, num_envs=crowd.num_envs)
        self.provider = SceneDataProvider(crowd.backend)
        self.pool = SnapshotPool()
        self.pool.activate(self.provider, 1)
        slots, nbytes = compute_frame_slot_capacity((camera,)), compute_frame_byte_capacity((camera,))
        self.core = RenderCore(renderer, max_slots=slots, max_bytes=nbytes, device=str(crowd.backend.device))
        status = self.core.reconfigure(1, 1, (camera,), scene=crowd.backend.describe_scene())
        assert status.ok, status
        self.core.register_continuous_consumer("benchmark", camera.id)

    def __call__(self) -> None:
        plan = self.core.evaluate_demand(0, 1)
        snapshot = self.pool.acquire(self.provider, 1).snapshot
        assert snapshot is not None
        assert self.core.submit_snapshot(snapshot, plan).ok
        status = self.core.finish_or_cancel_render_turn()
        assert status.ok, status

    def close(self) -> None:
        self.core.shutdown()


class DirectRender:
    """`mujoco_warp.render` in its users' own hands."""

    def __init__(self, crowd: Crowd, picture: Picture):
        crowd.backend  # noqa: B018  (brings the poses up to date)
        self.model, self.data = crowd.model, crowd.data
        self.context = mjw.create_render_context(
            crowd.mj_model,
            crowd.num_envs,
            cam_res=(picture.width, picture.height),
            render_rgb="rgb" in picture.planes,
            render_depth="depth" in picture.planes,
            render_seg="segmentation" in picture.planes,
            use_shadows=True,
            render_skybox=True,
            cam_active=[crowd.camera],
        )

    def __call__(self) -> None:
        mjw.refit_bvh(self.model, self.data, self.context)
        mjw.render(self.model, self.data, self.context)
        wp.synchronize_device(self.data.qpos.device)

    def close(self) -> None:
        pass


@wp.kernel(enable_backward=False)
def _poses_of_bodies(xpos: wp.array2d[wp.vec3], xquat: wp.array2d[wp.quat], body_q: wp.array[wp.transform]):
    env, body = wp.tid()
    q = xquat[env, body]  # MuJoCo's order: w first
    body_q[env * xpos.shape[1] + body] = wp.transform(xpos[env, body], wp.quat(q[1], q[2], q[3], q[0]))


@wp.kernel(enable_backward=False)
def _poses_of_eyes(xpos: wp.array2d[wp.vec3], xmat: wp.array2d[wp.mat33], camera: int, eyes: wp.array[wp.transform]):
    env = wp.tid()
    eyes[env] = wp.transform(xpos[env, camera], wp.quat_from_matrix(xmat[env, camera]))


class NewtonSensor:
    """Newton's `SensorCamera` on a Newton model of the scene, with a sun that casts shadows."""

    _IMAGES: Mapping[str, tuple[str, str]] = {
        "rgb": ("color_image", "allocate_image_color"),
        "depth": ("forward_depth_image", "allocate_image_depth_forward"),
        "segmentation": ("shape_index_image", "allocate_image_shape_index"),
    }

    def __init__(self, crowd: Crowd, picture: Picture):
        shown = (0, 1, 2)  # the groups that MuJoCo shows
        scene = crowd.backend.describe_scene()
        self.model: newton.Model = build_newton_look(scene, is_drawn=lambda part: part.group in shown).model
        self.state = self.model.state()
        self.crowd = crowd
        crowd.backend  # noqa: B018  (brings the poses up to date)
        self.sensor = SensorCamera(self.model)
        self.sensor.create_default_light(enable_shadows=True)
        self.eyes = wp.zeros(crowd.num_envs, dtype=wp.transformf)
        angle = float(np.deg2rad(crowd.mj_model.cam_fovy[crowd.camera]))
        self.rays = self.sensor.compute_camera_rays_pinhole(picture.width, picture.height, camera_fov=angle)
        self.images = {}
        for plane in picture.planes:
            name, maker = self._IMAGES[plane]
            self.images[name] = getattr(self.sensor, maker)(crowd.num_envs, picture.width, picture.height)
        self.config = SensorCamera.RenderConfig(enable_textures=True, enable_shadows=True)

    def __call__(self) -> None:
        data, camera = self.crowd.data, self.crowd.camera
        wp.launch(_poses_of_bodies, data.xpos.shape, [data.xpos, data.xquat], [self.state.body_q])
        wp.launch(_poses_of_eyes, self.eyes.shape, [data.cam_xpos, data.cam_xmat, camera], [self.eyes])
        self.model.bvh_refit_shapes(self.state)
        self.sensor.update(self.state, self.eyes, self.rays, **self.images, render_config=self.config)
        wp.synchronize_device(self.model.device)

    def close(self) -> None:
        pass


class RendererLoop:
    """A loop over `mujoco.Renderer`, on OpenGL. Each environment takes as long as any other, so a few stand for all."""

    MAX_ENVS = 2

    def __init__(self, crowd: Crowd, picture: Picture):
        self.states = crowd.states[: self.MAX_ENVS]
        self.repeats = crowd.num_envs / len(self.states)
        """How often the measured time passes for the whole crowd."""
        self.camera = crowd.camera
        self.renderer = mujoco.Renderer(crowd.mj_model, picture.height, picture.width)
        self.modes = [
            {
                "rgb": lambda: None,
                "depth": self.renderer.enable_depth_rendering,
                "segmentation": self.renderer.enable_segmentation_rendering,
            }[plane]
            for plane in picture.planes
        ]

    def __call__(self) -> None:
        for data in self.states:
            self.renderer.update_scene(data, self.camera)
            for mode in self.modes:
                self.renderer.disable_depth_rendering()
                self.renderer.disable_segmentation_rendering()
                mode()
                self.renderer.render()

    def close(self) -> None:
        self.renderer.close()


@dataclass(frozen=True)
class Timing:
    """One call, or the mean of several."""

    wall: float
    """Seconds on the clock."""
    cores: float
    """Seconds that all threads of the process computed."""


def timed(way: Callable[[], None]) -> Timing:
    """One call."""
    wall, cores = time.perf_counter(), time.process_time()
    way()
    return Timing(time.perf_counter() - wall, time.process_time() - cores)


def burst(way: Callable[[], None]) -> Timing:
    """The median of calls for a while, after some that find caches, and a second core, as other ways left them."""
    start = time.perf_counter()
    calls = [timed(way)]
    while (elapsed := time.perf_counter() - start) < SETTLE_S + BURST_S:
        if elapsed < SETTLE_S:
            calls.clear()
        calls.append(timed(way))
    return Timing(statistics.median(call.wall for call in calls), statistics.median(call.cores for call in calls))


class TwoCores:
    """Tells whether the machine has two whole cores to give at present; virtual ones share real ones at times.

    One peer is then as fast as it ever was, and two at once are little slower.
    """

    def __init__(self):
        crowd = Crowd("humanoid", 16)
        self._peers = [NewtonSensor(crowd, Picture(64, 64, ("depth",))) for _ in range(2)]
        self._other = ThreadPoolExecutor(1)
        self._best = float("inf")
        for peer in self._peers:
            peer()

    def __call__(self) -> bool:
        both = burst(self._together).wall
        alone = min(timed(self._peers[0]).wall for _ in range(3))
        self._best = min(self._best, alone)
        return 2.0 * alone / both >= TWO_CORES and alone <= WHOLE_CORE * self._best

    def _together(self) -> None:
        other = self._other.submit(self._peers[1])
        self._peers[0]()
        other.result()


def interleave(
    ways: Mapping[str, Callable[[], None]], rounds: int, is_quiet: Callable[[], bool], seconds: float = float("inf")
) -> tuple[dict[str, list[Timing]], int, int]:
    """Times of all ways, a burst of each in each round, and in the opposite order in every other round.

    A burst is repeated while the machine is not quiet, a few times.

    Args:
        ways: What is measured.
        rounds: How many rounds at most.
        is_quiet: Whether the machine is quiet at the moment.
        seconds: No further pair of rounds begins after this time.

    Returns:
        The times in rounds that were quiet all along, or in all rounds if none was; how many were quiet, of how many.
    """
    kept: list[dict[str, Timing]] = []
    others: list[dict[str, Timing]] = []
    end = time.monotonic() + seconds
    for index in range(rounds):
        if index and index % 2 == 0 and time.monotonic() > end:
            break
        order = list(ways.items())
        times, was_quiet = {}, True
        for name, way in order if index % 2 == 0 else reversed(order):
            for _ in range(TRIES):
                times[name] = burst(way)
                if is_now := is_quiet():
                    break
            was_quiet = was_quiet and is_now
        (kept if was_quiet else others).append(times)
    return {name: [times[name] for times in kept or others] for name in ways}, len(kept), len(kept) + len(others)


def median_ratio(peer: list[Timing], ours: list[Timing], of: str = "wall") -> float:
    """How many times as fast as a peer we are: the median over the rounds, in each of which both ran."""
    return statistics.median(getattr(a, of) / getattr(b, of) for a, b in zip(peer, ours, strict=True))
