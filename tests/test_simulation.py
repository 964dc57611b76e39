"""SimulationContext: the whole way from an engine to held frames, on all three MuJoCo engines."""

import gc
import threading

import mujoco
import numpy as np
import pytest

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import CameraCfg, Orthographic, VisualOptions, WorldPose
from scene_data.errors import ModelLoadError, UnknownNameError, UnmetRequirementError
from scene_data.renderers.render_core.capacity import FRAMES_PER_PLANE
from scene_data.renderers.render_core.core_plan import HELD_FRAMES

ENGINES = ("mujoco", "mujoco_batch", "mujoco_warp")

# A red slab that slides along X under a camera that looks straight down.
XML = """
<mujoco model="slab">
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <light pos="0 0 4" dir="0 0 -1"/>
    <geom name="floor" type="plane" size="4 4 0.1" rgba="0.1 0.2 0.3 1"/>
    <body name="slab" pos="0 0 0.5">
      <joint name="slide" type="slide" axis="1 0 0" damping="0"/>
      <geom name="slab" type="box" size="0.3 0.3 0.1" rgba="0.9 0.1 0.1 1"/>
    </body>
    <camera name="top" pos="0 0 3" fovy="60"/>
    <camera name="side" pos="0 -3 0.5" xyaxes="1 0 0 0 0 1"/>
  </worldbody>
  <actuator><velocity name="drive" joint="slide" kv="1000" ctrlrange="-2 2" ctrllimited="true"/></actuator>
  <keyframe><key name="right" qpos="0.8" ctrl="0.5"/></keyframe>
</mujoco>
"""
OPTIONS = VisualOptions(shadows=False, textures=False, skybox=False)
TOP = CameraCfg("top", 32, 24, ("rgb", "depth", "segmentation"), options=OPTIONS)
SIDE = CameraCfg("side", 16, 12, ("depth",), options=OPTIONS)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def open_context(model, engine="mujoco_batch", num_envs=2, cameras=(TOP,), **settings) -> SimulationContext:
    return SimulationContext(SimulationCfg(MujocoPhysicsCfg(model, engine, num_envs), cameras=cameras, **settings))


def slab_position(segmentation: np.ndarray) -> np.ndarray:
    """Where the slab stands in each image, by its segmentation [pixels from the left]; NaN where it is not seen."""
    seen = segmentation[..., 0] == 1
    columns = np.arange(segmentation.shape[2]) + 0.5
    with np.errstate(invalid="ignore"):
        return (seen * columns).sum(axis=(1, 2)) / seen.sum(axis=(1, 2))


def expected_position(x: np.ndarray) -> np.ndarray:
    """The pinhole image of the slab's upper side at x [m], 2.4 m below the camera."""
    focal = 12.0 / np.tan(np.radians(30.0))
    return 16.0 + focal * np.asarray(x) / 2.4


def write_qpos(sim: SimulationContext, engine: str, values: list[float]) -> None:
    """Write the state as a user would, without telling anybody."""
    if engine == "mujoco":
        for data, value in zip(sim.physics.datas, values, strict=True):
            data.qpos[0] = value
    elif engine == "mujoco_batch":
        sim.physics.batch.qpos[:, 0] = values
    else:
        sim.physics.data.qpos.assign(np.array(values, np.float32)[:, None])


def segmentation(sim: SimulationContext) -> np.ndarray:
    return sim.cameras["top"].data.lease("segmentation").numpy()


@pytest.mark.parametrize("engine", ENGINES)
class TestEveryEngine:
    def test_environments_come_in_order_and_a_write_is_seen_without_notice(self, model, engine):
        with open_context(model, engine) as sim:
            np.testing.assert_allclose(slab_position(segmentation(sim)), expected_position([0, 0]), atol=0.6)
            write_qpos(sim, engine, [0.6, -0.6])
            np.testing.assert_allclose(slab_position(segmentation(sim)), expected_position([0.6, -0.6]), atol=0.6)

    def test_a_partial_reset_shows_in_the_very_next_frame(self, model, engine):
        with open_context(model, engine) as sim:
            write_qpos(sim, engine, [0.6, -0.6])
            segmentation(sim)
            sim.reset(env_ids=[1])
            np.testing.assert_allclose(slab_position(segmentation(sim)), expected_position([0.6, 0.0]), atol=0.6)
            sim.reset(env_ids=[0], keyframe="right")
            np.testing.assert_allclose(slab_position(segmentation(sim)), expected_position([0.8, 0.0]), atol=0.6)

    def test_a_step_shows_the_state_after_it_and_its_time(self, model, engine):
        with open_context(model, engine) as sim:
            sim.physics.set_control(np.array([[1.0], [-1.0]]))
            for _ in range(40):
                sim.step()
            data = sim.cameras["top"].data
            assert data.info.simulation_time_ns == 400_000_000 == sim.simulation_time_ns
            if engine == "mujoco":
                x = np.array([env.qpos[0] for env in sim.physics.datas])
            elif engine == "mujoco_batch":
                x = sim.physics.batch.qpos[:, 0]
            else:
                x = sim.physics.data.qpos.numpy()[:, 0]
            assert x[0] > 0.3 > -0.3 > x[1]
            position = slab_position(data.lease("segmentation").numpy())
            np.testing.assert_allclose(position, expected_position(x), atol=0.6)
            sim.reset()
            assert sim.simulation_time_ns == 0
            assert sim.cameras["top"].data.info.simulation_time_ns == 0


def test_frames_are_tensors_of_the_stated_layout(model):
    torch = pytest.importorskip("torch")
    with open_context(model) as sim:
        data = sim.cameras["top"].data
        assert list(data) == ["rgb", "depth", "segmentation"]
        assert data.output["rgb"].dtype == torch.uint8
        assert data["rgb"].shape == (2, 24, 32, 3)
        assert data["depth"].dtype == torch.float32
        assert data["depth"].shape == (2, 24, 32, 1)
        assert data["segmentation"].shape == (2, 24, 32, 2)
        # The floor, straight ahead: 3 m along the optical axis; the slab's upper side: 2.4 m.
        assert data["depth"][0, 0, 0, 0].item() == pytest.approx(3.0, abs=1e-4)
        assert data["depth"][0, 12, 16, 0].item() == pytest.approx(2.4, abs=1e-4)
        assert data["rgb"].data_ptr() == data.lease("rgb").numpy().ctypes.data
        with pytest.raises(UnknownNameError, match="Known: rgb, depth, segmentation"):
            data["normals"]


def test_reading_twice_renders_once_and_two_cameras_share_a_turn(model):
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        top, side = sim.cameras["top"], sim.cameras["side"]
        assert top.data is top.data
        captures = sim.render_core.stats()["captures"]
        assert captures == 1
        side.data  # noqa: B018
        assert sim.render_core.stats()["captures"] == 2
        turns = sim.render_core.stats()["turns"]
        sim.step()
        assert top.data.info.simulation_time_ns == side.data.info.simulation_time_ns
        assert sim.render_core.stats()["turns"] == turns + 1
        assert sim.render_core.stats()["captures"] == 4


def test_nobody_looks_nothing_is_rendered(model):
    with open_context(model) as sim:
        for _ in range(3):
            sim.step()
        assert sim.render_core.stats()["captures"] == 0


def test_a_held_tensor_never_changes_and_an_exhausted_budget_is_an_error_that_names_it(model):
    with open_context(model, cameras=(TOP,)) as sim:
        held = []

        def hold_the_next() -> None:
            sim.step()
            held.append(sim.cameras["top"].data)

        for _ in range(FRAMES_PER_PLANE + HELD_FRAMES):
            hold_the_next()
        with pytest.raises(RuntimeError, match="FRAME_SLOTS_EXHAUSTED") as error:
            hold_the_next()
        copies = [data["rgb"].clone() for data in held]
        assert "top/rgb" in str(error.value)
        assert "budget" in str(error.value)
        assert all((data["rgb"] == copy).all() for data, copy in zip(held, copies, strict=True))
        held.clear()
        gc.collect()
        assert sim.cameras["top"].data.info.simulation_time_ns == sim.simulation_time_ns


def test_a_camera_that_is_not_in_the_model(model):
    pose = WorldPose((0.0, 0.0, 3.0))
    ours = CameraCfg("ours", 32, 24, ("depth",), mount=pose, intrinsics=Orthographic(2.4), options=OPTIONS)
    free = CameraCfg("free", 32, 24, ("segmentation",), options=OPTIONS)
    with open_context(model, cameras=(ours, free)) as sim:
        depth = sim.cameras["ours"].data.lease("depth").numpy()
        # 0.1 m per pixel: the slab is 6 pixels wide.
        assert (np.abs(depth[0, 12] - 2.4) < 1e-4).sum() == 6
        assert (sim.cameras["free"].data.lease("segmentation").numpy()[..., 0] == 1).any()


def test_cameras_may_be_chosen_by_the_scene(model):
    choose = lambda scene: [CameraCfg(camera.name, 8, 8, options=OPTIONS) for camera in scene.cameras]  # noqa: E731
    with open_context(model, cameras=choose) as sim:
        assert list(sim.cameras) == ["top", "side"]


def test_instance_is_the_last_open_context(model):
    assert SimulationContext.instance() is None
    first = open_context(model, cameras=())
    second = open_context(model, cameras=())
    assert SimulationContext.instance() is second
    SimulationContext.clear_instance()
    assert SimulationContext.instance() is first
    first.close()
    first.close()
    assert SimulationContext.instance() is None
    with pytest.raises(RuntimeError, match="closed"):
        first.step()


def test_closing_ends_every_thread_and_leaves_held_frames(model):
    before = set(threading.enumerate())
    sim = open_context(model)
    rgb = sim.cameras["top"].data.lease("rgb").numpy()
    copy = rgb.copy()
    sim.close()
    assert set(threading.enumerate()) == before
    np.testing.assert_array_equal(rgb, copy)


def test_the_trajectory_is_the_same_with_and_without_cameras(model):
    def trajectory(look: bool) -> np.ndarray:
        with open_context(model) as sim:
            sim.physics.set_control(np.array([[1.0], [-0.5]]))
            states = []
            for _ in range(10):
                sim.step()
                if look:
                    sim.cameras["top"].data  # noqa: B018
                states.append(sim.physics.batch.state.copy())
            return np.array(states)

    np.testing.assert_array_equal(trajectory(look=True), trajectory(look=False))


class TestBadInput:
    """Each mistake: one error that says what and where, and nothing left behind."""

    @pytest.fixture(autouse=True)
    def _leaves_nothing_behind(self):
        before = set(threading.enumerate())
        yield
        assert set(threading.enumerate()) == before
        assert SimulationContext.instance() is None

    def test_missing_model(self, tmp_path):
        with pytest.raises(ModelLoadError, match=r"nowhere\.xml.*no such file"):
            open_context(str(tmp_path / "nowhere.xml"))

    def test_broken_model(self, tmp_path):
        (tmp_path / "broken.xml").write_text("<mujoco><worldbody><geom/></mujoco>")
        with pytest.raises(ModelLoadError, match=r"broken\.xml"):
            open_context(tmp_path / "broken.xml")

    def test_folder_as_model(self, tmp_path):
        with pytest.raises(ModelLoadError, match="folder"):
            open_context(tmp_path)

    def test_no_thread_to_draw_with(self, model):
        with pytest.raises(ValueError, match="render_threads must be at least 1, got 0"):
            open_context(model, render_threads=0)

    def test_unknown_camera(self, model):
        with pytest.raises(UnknownNameError, match="camera 'front'. Known: top, side, free"):
            open_context(model, cameras=(CameraCfg("front", 8, 8),))

    def test_model_without_cameras(self):
        bare = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
        with pytest.raises(UnknownNameError, match="camera 'front'. Known: free"):
            open_context(bare, cameras=(CameraCfg("front", 8, 8),))

    def test_camera_twice(self, model):
        with pytest.raises(ValueError, match="'top'.*more than once"):
            open_context(model, cameras=(TOP, TOP))

    def test_unknown_data_type(self, model):
        with pytest.raises(UnknownNameError, match="data type of camera 'top' 'colour'. Known: rgb"):
            open_context(model, cameras=(CameraCfg("top", 8, 8, ("colour",)),))

    def test_plane_that_the_render_backend_does_not_make(self, model):
        with pytest.raises(ValueError, match="Camera 'top' asks for 'albedo', which render backend 'mujoco_warp'"):
            open_context(model, cameras=(CameraCfg("top", 8, 8, ("albedo",)),))

    @pytest.mark.parametrize("size", [(0, 8), (8, -1)])
    def test_size_below_one(self, size):
        with pytest.raises(ValueError, match="camera 'top'.*below 1x1"):
            CameraCfg("top", *size)

    def test_size_between_pixels(self):
        with pytest.raises(ValueError, match="camera 'top'.*8.5x8 is no whole number of pixels"):
            CameraCfg("top", 8.5, 8)  # pyright: ignore[reportArgumentType]

    def test_budget_that_does_not_fit(self, model):
        with pytest.raises(ValueError, match="max_frame_bytes is 100"):
            open_context(model, max_frame_bytes=100)

    def test_unknown_engine(self, model):
        with pytest.raises(UnknownNameError, match="engine 'bullet'. Known: mujoco, mujoco_batch, mujoco_warp"):
            open_context(model, "bullet")

    def test_no_environments(self, model):
        with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
            open_context(model, num_envs=0)

    def test_unknown_render_backend(self, model):
        with pytest.raises(UnknownNameError, match="render backend 'vulkan'. Known: .*mujoco_warp"):
            open_context(model, render_backend="vulkan")

    def test_a_render_backend_that_needs_more_names_the_engines_that_have_it(self, model, monkeypatch):
        monkeypatch.setattr("scene_data.scene.SceneDescription.native", lambda self, name: None)
        with pytest.raises(
            UnmetRequirementError, match="'mujoco_warp' needs 'mujoco_model'.*: mujoco, mujoco_batch, mujoco_warp"
        ):
            open_context(model)

    def test_disabled_render_backend(self, model):
        with pytest.raises(RuntimeError, match="BACKEND_UNAVAILABLE"):
            open_context(model, render_backend="disabled")

    def test_unknown_device(self, model):
        with pytest.raises(UnknownNameError, match="device 'cuda:7'. Known: cpu"):
            open_context(model, device="cuda:7")

    def test_unknown_viewer(self, model):
        with pytest.raises(UnknownNameError, match="viewer 'str'"):
            open_context(model, visualizer_cfgs=["viser"])

    def test_unknown_render_mode(self, model):
        with pytest.raises(UnknownNameError, match="render mode 'lazy'"):
            open_context(model, render_mode="lazy")

    def test_timestep_and_interval(self, model):
        with pytest.raises(ValueError, match="dt must be above 0"):
            open_context(model, dt=0.0)
        with pytest.raises(ValueError, match="render_interval must be at least 1"):
            open_context(model, render_interval=0)

    def test_control_and_environments_of_the_wrong_size(self, model):
        with open_context(model, cameras=()) as sim:
            with pytest.raises(ValueError, match=r"control must have shape \(2, 1\), got \(3,\)"):
                sim.physics.set_control(np.zeros(3))
            with pytest.raises(ValueError, match=r"env_ids must lie in \[0, 2\), got \[2\]"):
                sim.reset(env_ids=[2])
            with pytest.raises(UnknownNameError, match="keyframe 'left'. Known: right"):
                sim.reset(keyframe="left")
