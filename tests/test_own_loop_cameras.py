"""Cameras on a bare provider: a loop of one's own has what a simulation's cameras promise."""

import threading
from dataclasses import replace

import mujoco
import numpy as np
import pytest
from mujoco_rigs import BatchRig, HostRig, WarpRig
from test_simulation import SIDE, TOP, XML, expected_position, open_context, slab_position

from scene_data import SceneDataProvider, SimulationContext
from scene_data.errors import UnknownNameError
from scene_data.renderers import Camera, CameraGroup, StaleGenerationError
from scene_data.renderers.render_core.core_plan import UnsupportedPlaneError
from scene_data.renderers.render_core.status import RenderTurnError
from scene_data.renderers.transports import CameraPublicationTransport

torch = pytest.importorskip("torch")

RIGS = {
    "mujoco": HostRig,
    "mujoco_batch": BatchRig,
    "mujoco_warp": WarpRig,
    "mujoco_warp, announcing": lambda model: WarpRig(model, announces_writes=True),
}


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert [thread.name for thread in threading.enumerate() if thread not in before] == []


@pytest.fixture(params=RIGS)
def rig(request, model):
    return RIGS[request.param](model)


@pytest.fixture
def batch(model) -> BatchRig:
    return BatchRig(model)


def announce(rig) -> None:
    if isinstance(rig, WarpRig):
        rig.backend.mark_transforms_written()


def slab_at(camera: Camera) -> np.ndarray:
    return slab_position(camera.data["segmentation"].numpy())


def turns(camera_or_group) -> int:
    group = camera_or_group if isinstance(camera_or_group, CameraGroup) else camera_or_group._own
    return group.core.stats()["turns"]


class TestEveryEngine:
    def test_a_read_shows_the_present_state_whoever_wrote_it(self, rig):
        last = rig.num_envs - 1
        with Camera(TOP, SceneDataProvider(rig.backend)) as camera:
            np.testing.assert_allclose(slab_at(camera), expected_position(np.zeros(rig.num_envs)), atol=0.6)
            rig.set("qpos", last, np.array([0.6]))
            announce(rig)
            expected = np.zeros(rig.num_envs)
            expected[last] = 0.6
            np.testing.assert_allclose(slab_at(camera), expected_position(expected), atol=0.6)
            rig.reset(last)
            announce(rig)
            np.testing.assert_allclose(slab_at(camera), expected_position(np.zeros(rig.num_envs)), atol=0.6)

    def test_a_step_shows_and_the_frame_tells_the_engines_time(self, rig):
        with Camera(TOP, SceneDataProvider(rig.backend)) as camera:
            for env in range(rig.num_envs):
                rig.set("ctrl", env, np.array([1.0]))
            for _ in range(40):
                rig.step()
            announce(rig)
            info = camera.data.info
            assert info.simulation_time_ns == pytest.approx(400_000_000, rel=1e-6)  # the device counts in float32
            x = [rig.get("qpos", env)[0] for env in range(rig.num_envs)]
            assert min(x) > 0.3
            np.testing.assert_allclose(slab_at(camera), expected_position(np.array(x)), atol=0.6)

    def test_a_period_counts_in_the_engines_time(self, rig):
        with Camera(replace(TOP, update_period=0.03), SceneDataProvider(rig.backend)) as camera:
            steps = []
            for _ in range(17):
                steps.append(round(camera.data.info.simulation_time_ns / 10_000_000))
                rig.step()
                announce(rig)
            assert steps == [step - step % 3 for step in range(17)]

    def test_a_reset_cuts_a_period_short(self, rig):
        last = rig.num_envs - 1
        with Camera(replace(TOP, update_period=10.0), SceneDataProvider(rig.backend)) as camera:
            for env in range(rig.num_envs):
                rig.set("ctrl", env, np.array([1.0]))
            for _ in range(40):
                rig.step()
            announce(rig)
            moved = slab_at(camera)
            rig.step()
            announce(rig)
            np.testing.assert_array_equal(slab_at(camera), moved)
            rig.reset(last)
            announce(rig)
            assert slab_at(camera)[last] == pytest.approx(expected_position(0.0), abs=0.6)


def test_frames_are_tensors_and_know_their_camera(batch):
    with Camera(TOP, SceneDataProvider(batch.backend)) as camera:
        data = camera.data
        assert isinstance(camera, Camera)
        assert {name: (tensor.shape, tensor.dtype) for name, tensor in data.items()} == {
            "rgb": ((3, 24, 32, 3), torch.uint8),
            "depth": ((3, 24, 32, 1), torch.float32),
            "segmentation": ((3, 24, 32, 2), torch.int32),
        }
        np.testing.assert_allclose(data.info.pos_w.numpy(), np.tile((0, 0, 3), (3, 1)), atol=1e-6)
        focal = 12.0 / np.tan(np.radians(30.0))
        np.testing.assert_allclose(data.info.intrinsic_matrices[2].numpy(), [[focal, 0, 16], [0, focal, 12], [0, 0, 1]])


def test_a_state_that_stands_still_is_rendered_once(batch):
    with Camera(TOP, SceneDataProvider(batch.backend)) as camera:
        first = camera.data
        assert camera.data is first
        assert turns(camera) == 1
        batch.step()
        assert camera.data is not first
        assert turns(camera) == 2


def test_cameras_of_a_group_share_a_turn(batch):
    with CameraGroup([TOP, SIDE], SceneDataProvider(batch.backend)) as cameras:
        top, side = cameras["top"], cameras["side"]
        assert list(cameras) == ["top", "side"]
        frames = cameras.read()
        assert (frames["top"], frames["side"]) == (top.data, side.data)
        assert turns(cameras) == 1
        batch.step()
        assert top.data.info.simulation_time_ns == side.data.info.simulation_time_ns == 10_000_000
        assert turns(cameras) == 2  # both had been read, so the first read rendered both
        batch.step()
        assert {data.info.simulation_time_ns for data in cameras.read().values()} == {20_000_000}
        assert turns(cameras) == 3


def test_a_group_is_read_in_one_turn_also_where_writes_cannot_be_seen(model):
    rig = WarpRig(model)  # each read is taken for one of a new state
    with CameraGroup([TOP, SIDE], SceneDataProvider(rig.backend)) as cameras:
        for turn in range(1, 4):
            cameras.read()
            assert turns(cameras) == turn


def test_poses_and_intrinsics_are_set_as_in_a_simulation(batch):
    with Camera(TOP, SceneDataProvider(batch.backend)) as camera:
        camera.set_world_poses((0.5, 0.0, 3.0), (0, 0, 0, 1), env_ids=[1], convention="opengl")
        np.testing.assert_allclose(slab_at(camera), expected_position([0, -0.5, 0]), atol=0.6)
        camera.set_intrinsic_matrices([[20.0, 0, 10], [0, 20, 12], [0, 0, 1]], env_ids=[2])
        assert slab_at(camera)[2] == pytest.approx(10.0, abs=0.6)
        camera.clear_world_poses()
        np.testing.assert_allclose(slab_at(camera), [*expected_position([0, 0]), 10.0], atol=0.6)


def test_a_view_from_an_eye_to_a_target_has_the_target_in_the_middle_and_the_world_upright(batch):
    eyes = np.array([[0.0, 0.0, 3.0], [1.0, -2.0, 1.5], [-2.0, 0.5, 0.5]])
    targets = np.array([[0.0, 0.0, 0.5], [0.1, 0.2, 0.3], [0.0, 0.0, 0.5]])
    with Camera(TOP, SceneDataProvider(batch.backend)) as camera:
        camera.set_world_poses_from_view(torch.tensor(eyes), torch.tensor(targets))
        info = camera.data.info
        np.testing.assert_allclose(info.pos_w.numpy(), eyes, atol=1e-6)
        for env, (x, y, z, w) in enumerate(info.quat_w_opengl.double().numpy()):
            rotation = np.zeros(9)
            mujoco.mju_quat2Mat(rotation, np.array([w, x, y, z]))
            right, up, back = rotation.reshape(3, 3).T
            gaze = (targets[env] - eyes[env]) / np.linalg.norm(targets[env] - eyes[env])
            np.testing.assert_allclose(-back, gaze, atol=1e-6)
            assert abs(right[2]) < 1e-6
            assert up[2] >= -1e-6
        camera.set_world_poses_from_view((0.4, 0.0, 3.0), (0.4, 0.0, 0.0), env_ids=[1])
        assert slab_at(camera)[1] != pytest.approx(slab_at(camera)[0], abs=0.6)
        with pytest.raises(ValueError, match=r"same point \(1\.0, 2\.0, 3\.0\)"):
            camera.set_world_poses_from_view((1, 2, 3), (1, 2, 3))
        with pytest.raises(ValueError, match="env_ids"):
            camera.set_world_poses_from_view((1, 2, 3), (0, 0, 0), env_ids=[3])


def test_update_renders_in_the_pipelined_mode_with_a_lag_of_one_turn(batch):
    with CameraGroup([TOP], SceneDataProvider(batch.backend), render_mode="pipelined") as cameras:
        for step in range(1, 4):
            batch.step()
            cameras.update()
            assert (cameras["top"].lag, cameras["top"].lag_ns) == (1, 10_000_000)
            assert cameras["top"].data.info.simulation_time_ns == (step - 1) * 10_000_000


def test_update_serves_transports(batch):
    with CameraGroup([TOP], SceneDataProvider(batch.backend)) as cameras:
        transport = cameras.add_transport(CameraPublicationTransport())
        consumer = transport.register(cameras["top"], 2)
        batch.step()
        cameras.update()
        frames = consumer.acquire_latest()
        assert frames is not None
        cameras.remove_transport(transport)


class TestTheEnd:
    def test_tensors_stay_and_reading_raises(self, batch):
        camera = Camera(TOP, SceneDataProvider(batch.backend))
        tensor = camera.data["depth"]
        copy = tensor.clone()
        camera.close()
        camera.close()
        assert torch.equal(tensor, copy)
        batch.step()
        with pytest.raises(RenderTurnError):
            _ = camera.data

    def test_another_model_behind_the_provider_makes_its_cameras_stale(self, batch, model):
        provider = SceneDataProvider(batch.backend)
        with Camera(TOP, provider) as camera:
            _ = camera.data
            provider.rebind(BatchRig(model).backend)
            with pytest.raises(StaleGenerationError, match="top"):
                _ = camera.data
            with pytest.raises(StaleGenerationError, match="top"):
                camera.set_world_poses((0, 0, 2))

    @pytest.mark.parametrize(
        ("cfg", "settings", "error", "words"),
        [
            (replace(TOP, name="nowhere"), {}, UnknownNameError, "nowhere"),
            (replace(TOP, data_types=("normals",)), {}, UnsupportedPlaneError, "newton"),
            (TOP, {"render_backend": "nothing"}, UnknownNameError, "nothing"),
            (TOP, {"max_frame_bytes": 10}, ValueError, "max_frame_bytes"),
        ],
        ids=("camera", "plane", "backend", "budget"),
    )
    def test_what_cannot_be_leaves_no_thread(self, batch, cfg, settings, error, words):
        with pytest.raises(error, match=words):
            Camera(cfg, SceneDataProvider(batch.backend), **settings)


class TestInASimulation:
    def test_a_camera_joins_the_one_that_was_opened_last(self, model):
        with open_context(model) as sim:
            top = sim.cameras["top"]
            top.set_world_poses((0.5, 0.0, 3.0), (0, 0, 0, 1), convention="opengl")
            seen = top.data
            side = Camera(SIDE)
            assert side.data["depth"].shape == (2, 12, 16, 1)
            assert sim.cameras["side"].data is side.data
            assert top.data["rgb"].equal(seen["rgb"])  # what was set about it holds, and it is not stale
            np.testing.assert_allclose(slab_at(top), expected_position([-0.5, -0.5]), atol=0.6)
            sim.step()
            turns_before = sim.render_core.stats()["turns"]
            assert top.data.info.simulation_time_ns == side.data.info.simulation_time_ns == 10_000_000
            assert sim.render_core.stats()["turns"] == turns_before + 1
            sim.reload(model)
            assert set(sim.cameras) == {"top", "side"}
        with pytest.raises(RuntimeError):
            _ = side.data

    def test_one_that_it_has_already_is_that_one(self, model):
        with open_context(model) as sim:
            camera = Camera(TOP)
            assert camera.data is sim.cameras["top"].data
            with pytest.raises(ValueError, match="top"):
                Camera(replace(TOP, width=8))
            assert sim.cameras["top"].data is camera.data

    def test_one_without_cameras_gets_its_first(self, model):
        with open_context(model, cameras=()) as sim:
            np.testing.assert_allclose(slab_at(Camera(TOP)), expected_position([0, 0]), atol=0.6)
            assert list(sim.cameras) == ["top"]

    def test_chosen_cameras_are_joined_too_and_survive_a_reload(self, model):
        with open_context(model, cameras=lambda scene: [TOP]) as sim:
            Camera(SIDE)
            sim.reload(model)
            assert set(sim.cameras) == {"top", "side"}

    def test_in_the_pipelined_mode_it_lags_by_a_turn_like_the_others(self, model):
        with open_context(model, render_mode="pipelined") as sim:
            sim.step()
            side = Camera(SIDE)
            for _ in range(2):
                sim.step()
            assert side.lag == sim.cameras["top"].lag == 1
            assert side.data.info.simulation_time_ns == 20_000_000

    def test_without_a_simulation_and_without_a_provider_the_error_says_what_to_do(self):
        assert SimulationContext.instance() is None
        with pytest.raises(ValueError, match=r"Camera\(cfg, provider\)"):
            Camera(TOP)
