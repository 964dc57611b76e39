"""Cameras that are moved and refocused while the simulation runs, and what a frame says about itself."""

import gc

import mujoco
import numpy as np
import pytest
import warp as wp
from test_simulation import (
    ENGINES,
    OPTIONS,
    SIDE,
    TOP,
    XML,
    expected_position,
    open_context,
    segmentation,
    slab_position,
    write_qpos,
)

from scene_data.camera import BodyMount, CameraCfg, Orthographic, Pinhole, WorldPose
from scene_data.renderers import StaleGenerationError
from scene_data.renderers.transports import CameraPublicationTransport

torch = pytest.importorskip("torch")

WIDTH, HEIGHT = TOP.width, TOP.height
DOWN = np.array([0.0, 0.0, 0.0, 1.0])  # how the camera `top` is turned: it looks along -Z of the world
QUARTER = np.array([0.0, 0.0, np.sin(np.pi / 4), np.cos(np.pi / 4)])  # a quarter turn about Z


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def matrix(fx: float, fy: float, cx: float, cy: float) -> np.ndarray:
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])


def slab_mask(fx: float, fy: float, cx: float, cy: float) -> np.ndarray:
    """Where the slab is in the image of a camera 2.4 m straight above the middle of its upper side."""
    u, v = np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5)
    return (np.abs((u - cx) / fx) < 0.3 / 2.4) & (np.abs((v - cy) / fy) < 0.3 / 2.4)


class TestPoses:
    @pytest.mark.parametrize("engine", ENGINES)
    def test_show_in_the_next_frame_of_their_environments_alone(self, model, engine):
        with open_context(model, engine) as sim:
            before = segmentation(sim).copy()
            sim.cameras["top"].set_world_poses([[0.5, 0.0, 3.0]], [DOWN], env_ids=[1], convention="opengl")
            after = segmentation(sim)
            np.testing.assert_array_equal(after[0], before[0])
            np.testing.assert_allclose(slab_position(after)[1], expected_position(-0.5), atol=0.6)

    def test_conventions_say_the_same_in_other_words(self, model):
        turned = {
            "opengl": DOWN,
            "ros": [1.0, 0.0, 0.0, 0.0],  # about X by 180 degrees: +Z down, -Y up
            "world": [-0.5, 0.5, 0.5, 0.5],  # +X down, and +Z along the world's Y
        }
        pictures = {}
        with open_context(model, num_envs=1) as sim:
            camera = sim.cameras["top"]
            original = segmentation(sim).copy()
            for convention, quaternion in turned.items():
                camera.set_world_poses((0.3, 0.1, 2.0), quaternion, convention=convention)
                pictures[convention] = segmentation(sim).copy()
                info = camera.data.info
                for name, value in turned.items():
                    said = getattr(info, f"quat_w_{name}")[0].numpy()
                    np.testing.assert_allclose(said * np.sign(said @ value), value, atol=1e-6)
                np.testing.assert_allclose(info.pos_w.numpy(), [[0.3, 0.1, 2.0]], atol=1e-6)
        np.testing.assert_array_equal(pictures["ros"], pictures["opengl"])
        np.testing.assert_array_equal(pictures["world"], pictures["opengl"])
        assert (pictures["opengl"] != original).any()

    def test_ros_is_the_default_as_in_isaac_lab(self, model):
        with open_context(model, num_envs=1) as sim:
            before = segmentation(sim).copy()
            sim.cameras["top"].set_world_poses((0, 0, 3), (1, 0, 0, 0))
            np.testing.assert_array_equal(segmentation(sim), before)

    def test_a_part_that_is_not_given_stays_as_it_was(self, model):
        eye = CameraCfg("eye", 32, 24, ("segmentation",), mount=BodyMount("slab", (0.0, 0.0, 2.5)), options=OPTIONS)
        with open_context(model, num_envs=1, cameras=(eye,)) as sim:
            camera = sim.cameras["eye"]
            camera.set_world_poses(orientations=QUARTER, convention="opengl")
            write_qpos(sim, "mujoco_batch", [0.4])
            info = camera.data.info
            np.testing.assert_allclose(info.pos_w.numpy(), [[0.4, 0.0, 3.0]], atol=1e-6)  # it still rides on the slab
            np.testing.assert_allclose(info.quat_w_opengl.numpy(), [QUARTER], atol=1e-6)
            camera.set_world_poses(positions=(1.0, 2.0, 3.0))
            info = camera.data.info
            np.testing.assert_allclose(info.pos_w.numpy(), [[1.0, 2.0, 3.0]], atol=1e-6)
            np.testing.assert_allclose(info.quat_w_opengl.numpy(), [QUARTER], atol=1e-6)

    def test_can_be_given_back(self, model):
        with open_context(model) as sim:
            camera, before = sim.cameras["top"], segmentation(sim).copy()
            camera.set_world_poses(np.array([[1, 0, 2], [0.5, 0, 3]]), convention="opengl")
            moved = segmentation(sim).copy()
            camera.clear_world_poses(env_ids=[0])
            after = segmentation(sim)
            np.testing.assert_array_equal(after[0], before[0])
            np.testing.assert_array_equal(after[1], moved[1])

    def test_a_camera_of_a_reloaded_model_is_stale(self, model):
        with open_context(model) as sim:
            camera = sim.cameras["top"]
            camera.set_world_poses((0, 0, 2))
            sim.reload(model)
            with pytest.raises(StaleGenerationError):
                camera.set_world_poses((0, 0, 2))
            np.testing.assert_allclose(sim.cameras["top"].data.info.pos_w.numpy()[:, 2], 3.0, atol=1e-6)

    def test_pipelined_shows_them_a_turn_later(self, model):
        with open_context(model, render_mode="pipelined") as sim:
            camera = sim.cameras["top"]
            sim.step()
            sim.step()
            camera.set_world_poses((0, 0, 2.0))
            sim.step()
            assert camera.data.info.pos_w[0, 2].item() == pytest.approx(3.0)
            assert camera.lag == 1
            sim.step()
            assert camera.data.info.pos_w[0, 2].item() == pytest.approx(2.0)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"positions": np.zeros((3, 3))}, r"positions must have shape \(3,\) or \(2, 3\), got \(3, 3\)"),
            ({"positions": (np.nan, 0, 0)}, "positions must be finite"),
            ({"orientations": (0, 0, 0, 0)}, "orientations must not be zero"),
            ({"positions": (0, 0, 1), "env_ids": [2]}, r"env_ids must lie in \[0, 2\), got \[2.0\]"),
            ({"orientations": DOWN, "convention": "usd"}, "camera convention 'usd'. Known: opengl, ros, world"),
        ],
    )
    def test_what_is_no_pose_is_refused(self, model, arguments, message):
        with open_context(model) as sim, pytest.raises(ValueError, match=message):
            sim.cameras["top"].set_world_poses(**arguments)


class TestIntrinsics:
    LENSES = ((20.0, 30.0, 13.0, 17.5), (35.0, 15.0, 20.5, 6.0))

    @pytest.mark.parametrize("engine", ["mujoco_batch", "mujoco_warp"])
    def test_are_exact_and_each_environment_has_its_own(self, model, engine):
        types = ("segmentation", "depth", "distance_to_camera")
        top = CameraCfg("top", WIDTH, HEIGHT, types, options=OPTIONS)
        with open_context(model, engine, cameras=(top,)) as sim:
            camera = sim.cameras["top"]
            camera.data  # noqa: B018
            camera.set_intrinsic_matrices(torch.tensor(np.stack([matrix(*lens) for lens in self.LENSES])))
            data = camera.data
            for env, (fx, fy, cx, cy) in enumerate(self.LENSES):
                mask = slab_mask(fx, fy, cx, cy)
                np.testing.assert_array_equal(data["segmentation"][env, ..., 0].numpy() == 1, mask)
                depth = np.where(mask, 2.4, 3.0)
                np.testing.assert_allclose(data["depth"][env, ..., 0].numpy(), depth, rtol=1e-5)
                u, v = np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5)
                length = depth * np.sqrt(1 + ((u - cx) / fx) ** 2 + ((v - cy) / fy) ** 2)
                np.testing.assert_allclose(data["distance_to_camera"][env, ..., 0].numpy(), length, rtol=1e-5)
                np.testing.assert_allclose(data.info.intrinsic_matrices[env].numpy(), matrix(fx, fy, cx, cy), rtol=1e-6)

    def test_of_some_environments_leave_the_others_alone(self, model):
        with open_context(model) as sim:
            before = segmentation(sim).copy()
            sim.cameras["top"].set_intrinsic_matrices(matrix(*self.LENSES[0]), env_ids=[1])
            after = segmentation(sim)
            np.testing.assert_array_equal(after[0], before[0])
            np.testing.assert_array_equal(after[1, ..., 0] == 1, slab_mask(*self.LENSES[0]))

    def test_equal_those_of_a_camera_that_was_made_with_them(self, model):
        pose, lens = WorldPose((0.2, 0.1, 3.0)), Pinhole(25.0, 40.0, 10.0, 20.0)
        made = CameraCfg("made", WIDTH, HEIGHT, TOP.data_types, mount=pose, intrinsics=lens, options=OPTIONS)
        with open_context(model, cameras=(TOP, made)) as sim:
            top = sim.cameras["top"]
            top.set_world_poses(pose.position, pose.quaternion, convention="opengl")
            top.set_intrinsic_matrices(matrix(lens.fx, lens.fy, lens.cx, lens.cy))
            for data_type in TOP.data_types:
                assert torch.equal(top.data[data_type], sim.cameras["made"].data[data_type])

    def test_nothing_is_built_or_compiled(self, model, monkeypatch):
        with open_context(model) as sim:
            camera = sim.cameras["top"]
            varying = np.stack([matrix(*lens) for lens in self.LENSES])
            camera.set_intrinsic_matrices(varying)
            camera.data  # noqa: B018  (the one kernel for intrinsics that differ is there from now on)
            programs = sim.render_core._host.backend._tracer._programs
            assert len(programs) == 2
            for name in ("Bvh", "Mesh", "load_module", "force_load"):
                monkeypatch.setattr(wp, name, None)
            for matrices in (matrix(*self.LENSES[0]), varying[::-1], matrix(*self.LENSES[1]), varying):
                camera.set_intrinsic_matrices(matrices)
                camera.set_world_poses([[0, 0, 3], [0.1, 0, 3]])
                assert (camera.data["segmentation"][..., 0] == 1).any()
            assert len(programs) == 2

    def test_change_with_what_is_due_meanwhile(self, model):
        """Rays that are ready for other combinations of cameras follow too."""
        with open_context(model, cameras=(TOP, SIDE)) as sim:
            top, side = sim.cameras["top"], sim.cameras["side"]
            masks = {lens: slab_mask(*lens) for lens in self.LENSES}
            for lens in self.LENSES * 2:
                top.set_intrinsic_matrices(matrix(*lens))
                np.testing.assert_array_equal(segmentation(sim)[0, ..., 0] == 1, masks[lens])  # with `side`, or alone
                if lens == self.LENSES[0]:
                    side.data  # noqa: B018

    @pytest.mark.parametrize(
        ("matrices", "message"),
        [
            (np.eye(4), r"intrinsic matrices must have shape \(3, 3\) or \(2, 3, 3\), got \(4, 4\)"),
            ([[20, 1, 16], [0, 20, 12], [0, 0, 1]], "must have the form"),
            (matrix(0, 20, 16, 12), "focal lengths must be above 0"),
        ],
    )
    def test_what_is_no_pinhole_is_refused(self, model, matrices, message):
        with open_context(model) as sim, pytest.raises(ValueError, match=message):
            sim.cameras["top"].set_intrinsic_matrices(matrices)

    def test_an_orthographic_camera_has_none(self, model):
        flat = CameraCfg(
            "flat", 32, 24, ("depth",), mount=WorldPose((0, 0, 3)), intrinsics=Orthographic(2.4), options=OPTIONS
        )
        with open_context(model, cameras=(flat,)) as sim:
            with pytest.raises(ValueError, match="camera 'flat' is orthographic and has no pinhole"):
                sim.cameras["flat"].set_intrinsic_matrices(np.eye(3))
            np.testing.assert_allclose(sim.cameras["flat"].data.info.intrinsic_matrices[0], matrix(10, 10, 16, 12))

    def test_a_render_backend_that_cannot_says_so(self, model, monkeypatch):
        from scene_data.renderers import MujocoWarpRenderBackend

        monkeypatch.setattr(MujocoWarpRenderBackend, "applies_camera_settings", False)
        with open_context(model) as sim, pytest.raises(ValueError, match="'mujoco_warp' has no cameras that change"):
            sim.cameras["top"].set_world_poses((0, 0, 1))


class TestInfo:
    @pytest.mark.parametrize("render_mode", ["synchronous", "pipelined"])
    def test_a_frame_of_an_engine_on_a_device_is_made_without_waiting_for_it(self, model, monkeypatch, render_mode):
        with open_context(model, "mujoco_warp", render_mode=render_mode) as sim:
            sim.step()
            assert sim.cameras["top"].data["depth"].isfinite().any()

            def wait(array):
                raise AssertionError("an array was read on the host")

            with monkeypatch.context() as stepping:
                stepping.setattr(wp.array, "numpy", wait)
                for _ in range(2):
                    sim.step()
                    data = sim.cameras["top"].data
                    assert data["depth"].isfinite().any()
            np.testing.assert_allclose(data.info.env_time_ns, data.info.simulation_time_ns, atol=5)

    @pytest.mark.parametrize("engine", ENGINES)
    def test_tells_poses_and_time_of_that_very_frame(self, model, engine):
        eye = CameraCfg("eye", 8, 8, ("depth",), mount=BodyMount("slab", (0, 0, 1), tuple(QUARTER)), options=OPTIONS)
        with open_context(model, engine, cameras=(eye, SIDE)) as sim:
            sim.physics.set_control(np.array([[1.0], [-1.0]]))
            held = []
            for _ in range(3):
                sim.step()
                bodies = sim.provider.backend.get_transforms(None).positions.numpy()
                held.append((sim.cameras["eye"].data, bodies.copy()))
            for step, (data, bodies) in enumerate(held, start=1):
                assert data.info.simulation_time_ns == step * 10_000_000
                np.testing.assert_allclose(data.info.env_time_ns, step * 10_000_000, atol=5)  # float32 in MuJoCo Warp
                slab = bodies.reshape(2, -1, 3)[:, 1]
                np.testing.assert_allclose(data.info.pos_w.numpy(), slab + np.array([0, 0, 1]), atol=1e-6)
                np.testing.assert_allclose(data.info.quat_w_opengl.numpy(), [QUARTER] * 2, atol=1e-6)
            assert (held[0][0].info.pos_w != held[2][0].info.pos_w).any()
            side = sim.cameras["side"].data.info
            rotation = np.zeros(9)
            mujoco.mju_quat2Mat(rotation, side.quat_w_opengl[1].numpy()[[3, 0, 1, 2]].astype(float))
            np.testing.assert_allclose(rotation.reshape(3, 3), [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-6)
            focal = 0.5 * SIDE.height / np.tan(np.radians(22.5))
            np.testing.assert_allclose(side.intrinsic_matrices[0], matrix(focal, focal, 8, 6), rtol=1e-6)

    def test_tensors_are_copies_and_memory_is_used_again(self, model):
        with open_context(model) as sim:
            camera = sim.cameras["top"]
            position = camera.data.info.pos_w
            free = sim._pipeline._generations.current.live._free
            for x in range(4):
                camera.set_world_poses((float(x), 0, 3))
                camera.data  # noqa: B018
            gc.collect()
            assert len(free) <= 2
            np.testing.assert_allclose(position.numpy(), [[0, 0, 3]] * 2)
            assert camera.data.info.pos_w is camera.data.info.pos_w


def test_transports_are_told_what_was_set(model):
    focal = 0.5 * HEIGHT / np.tan(np.radians(30.0))
    configured = [focal, focal, 0.5 * WIDTH, 0.5 * HEIGHT]
    with open_context(model) as sim:
        reader = sim.add_transport(CameraPublicationTransport()).register("top")
        sim.cameras["top"].set_world_poses([[0.5, 0, 2]], [QUARTER], env_ids=[1], convention="opengl")
        sim.render()
        np.testing.assert_allclose(reader.acquire().view.pinholes, [configured] * 2)
        sim.cameras["top"].set_intrinsic_matrices(matrix(20, 30, 13, 17.5), env_ids=[1])
        sim.render()
        view = reader.acquire().view
    np.testing.assert_allclose(view.positions, [[0, 0, 3], [0.5, 0, 2]], atol=1e-6)
    np.testing.assert_allclose(view.rotations, [np.eye(3), [[0, -1, 0], [1, 0, 0], [0, 0, 1]]], atol=1e-6)
    np.testing.assert_allclose(view.pinholes, [configured, [20, 30, 13, 17.5]])


class TestUpdatePeriod:
    CFG = CameraCfg("top", 8, 8, ("depth",), options=OPTIONS, update_period=0.03)

    def test_reads_between_are_the_frame_before(self, model):
        with open_context(model, cameras=(self.CFG,)) as sim:
            times = []
            for _ in range(8):
                times.append(sim.cameras["top"].data.info.simulation_time_ns // 1_000_000)
                sim.step()
            assert times == [0, 0, 0, 30, 30, 30, 60, 60]
            assert sim.render_core.stats()["captures"] == 3

    @pytest.mark.parametrize("mode", ["pipelined", "free_running"])
    def test_steps_between_render_nothing(self, model, mode):
        with open_context(model, cameras=(self.CFG,), render_mode=mode) as sim:
            sim.cameras["top"].data  # noqa: B018
            for _ in range(9):
                sim.step()
                sim.render_core.finish_or_cancel_render_turn()
            assert sim.render_core.stats()["captures"] <= 4

    def test_a_reset_of_one_environment_is_seen_at_once(self, model):
        with open_context(model, cameras=(self.CFG,)) as sim:
            sim.step()
            first = sim.cameras["top"].data
            sim.step()
            assert sim.cameras["top"].data is first
            sim.reset(env_ids=[1])
            assert sim.cameras["top"].data.info.simulation_time_ns == 20_000_000
            sim.reset()
            assert sim.cameras["top"].data.info.simulation_time_ns == 0

    def test_a_move_of_the_camera_is_seen_at_once(self, model):
        with open_context(model, cameras=(self.CFG,)) as sim:
            sim.cameras["top"].data  # noqa: B018
            sim.cameras["top"].set_world_poses((0, 0, 2.5))
            assert sim.cameras["top"].data.info.pos_w[0, 2].item() == pytest.approx(2.5)

    @pytest.mark.parametrize("period", [-0.1, np.inf, np.nan])
    def test_must_be_a_time(self, period):
        with pytest.raises(ValueError, match="update period"):
            CameraCfg("top", 8, 8, update_period=period)
