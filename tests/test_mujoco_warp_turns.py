"""How turns are drawn: split over threads, in part, with diverged environments, and refused."""

import threading
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import warp as wp
from film_set import (
    DEPTH,
    DISTANCE,
    NUM_ENVS,
    RGB,
    SEG,
    few,
)
from rendering import Frames, Studio, snapshot_of

from scene_data.backends.mjcf_scene import describe_model
from scene_data.errors import UnknownNameError, UnmetRequirementError
from scene_data.renderers import mujoco_warp_shards
from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.renderers.mujoco_warp_scene import ShardScene, TracerModel
from scene_data.renderers.mujoco_warp_views import CameraRig
from scene_data.renderers.render_core.backend import RenderConfiguration
from scene_data.renderers.render_core.camera import (
    BodyMount,
    CameraDescriptor,
    ModelCamera,
    WorldPose,
)
from scene_data.renderers.render_core.layout import PlaneKind
from scene_data.renderers.render_core.status import RenderStatusCode

pytest_plugins = ("film_fixtures",)


def test_shards_are_bit_identical(model, states, cameras, frames):
    studio = Studio(MujocoWarpRenderBackend(shards=8), model, list(cameras.values()))
    assert studio.backend.shard_count == NUM_ENVS  # never more than there are environments
    sharded = studio.shoot(states)
    studio.close()
    for key, frame in frames.items():
        np.testing.assert_array_equal(sharded[key], frame)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("render-crew")]


def test_some_cameras_and_planes_equal_the_whole_turn(cameras, studio, states, frames):
    plans = [
        studio.plan(cameras["blank sky"], [RGB]),
        studio.plan(cameras["parallel"], [DISTANCE]),
        studio.plan(cameras["front"], [SEG, DEPTH]),
    ]
    for key, frame in studio.shoot(states, plans).items():
        np.testing.assert_array_equal(frame, frames[key])


def test_many_combinations_of_planes_are_forgotten_and_made_again(cameras, studio, states, frames, monkeypatch):
    monkeypatch.setattr(mujoco_warp_shards, "_MAX_VIEWS", 2)
    for planes in ([RGB], [DEPTH], [SEG], [RGB, SEG], [RGB]):
        for key, frame in studio.shoot(states, [studio.plan(cameras["front"], planes)]).items():
            np.testing.assert_array_equal(frame, frames[key])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_diverged_environment_is_blanked_and_heals(value, shards, model, states, cameras, studio, frames):
    if shards > 1:
        studio = Studio(MujocoWarpRenderBackend(shards), model, few(cameras, "front", "blank sky"))
    broken = mujoco.MjData(model)
    broken.qpos[:] = states[1].qpos
    mujoco.mj_forward(model, broken)
    broken.xpos[1, 2] = value
    plans = [studio.plan(cameras["front"]), studio.plan(cameras["blank sky"])]
    sick = studio.shoot([states[0], broken, states[2]], plans)
    np.testing.assert_array_equal(studio.backend.blank_environments, [1])
    for (camera, plane), frame in sick.items():
        np.testing.assert_array_equal(frame[[0, 2]], frames[camera, plane][[0, 2]])
    front, blank_sky = cameras["front"].id, cameras["blank sky"].id
    np.testing.assert_array_equal(sick[front, RGB][1], 0)
    np.testing.assert_array_equal(np.unique(sick[blank_sky, RGB][1].reshape(-1, 3), axis=0), [[255, 51, 0]])
    np.testing.assert_array_equal(sick[front, SEG][1], -1)
    assert np.isposinf(sick[front, DEPTH][1]).all()
    assert np.isposinf(sick[front, DISTANCE][1]).all()
    healed = studio.shoot(states, plans)
    assert studio.backend.blank_environments.size == 0
    np.testing.assert_array_equal(healed[front, RGB], frames[front, RGB])
    if shards > 1:
        studio.close()


def test_a_lost_camera_blanks_its_environment(model, states, cameras, studio):
    broken = mujoco.MjData(model)
    mujoco.mj_forward(model, broken)
    broken.cam_xmat[0, 4] = np.nan
    studio.shoot([broken, *states[1:]], [studio.plan(cameras["front"])])
    np.testing.assert_array_equal(studio.backend.blank_environments, [0])


def test_hot_turns_allocate_nothing(studio, states, cameras, monkeypatch):
    plans = [studio.plan(cameras["front"]), studio.plan(cameras["revealed"], [RGB])]
    studio.shoot(states, plans)
    snapshot = snapshot_of(studio.model, states)
    for name in ("empty", "zeros", "full", "Bvh", "Mesh", "load_module"):
        monkeypatch.setattr(wp, name, None)
    assert studio.backend.render(snapshot, plans, studio.boundary).ok


def test_frames_without_room_do_not_stop_the_others(model, states, cameras):
    studio = Studio(MujocoWarpRenderBackend(1), model, few(cameras, "front"), max_slots=1)
    status = studio.turn(states, [studio.plan(cameras["front"], [DEPTH, RGB])])
    assert status.code is RenderStatusCode.FRAME_SLOTS_EXHAUSTED
    assert studio.boundary.acquire_latest(DEPTH) is not None
    assert studio.boundary.reserved_slots == 0
    studio.close()


def test_a_failing_turn_leaves_no_reservation(model, states, cameras, studio):
    snapshot = snapshot_of(model, states[:2])
    with pytest.raises(ValueError, match="snapshot has 4 body poses, but 3 environments of the scene have 6"):
        studio.backend.render(snapshot, [studio.plan(cameras["front"])], studio.boundary)
    assert studio.boundary.reserved_slots == 0


def test_resize_changes_the_cameras(model, states, cameras, frames):
    studio = Studio(MujocoWarpRenderBackend(2), model, few(cameras, "front"))
    studio.cameras = (replace(cameras["eye"], id=7), cameras["parallel"])
    assert studio.backend.resize(RenderConfiguration(1, 1, studio.cameras, "cpu")).ok
    resized = studio.shoot(states)
    np.testing.assert_array_equal(resized[7, SEG], frames[cameras["eye"].id, SEG])
    studio.close()


def test_two_backends_draw_at_the_same_time(model, states, cameras, frames):
    pictures: list[Frames] = []

    def draw():
        studio = Studio(MujocoWarpRenderBackend(2), model, [cameras["front"], cameras["blank sky"]])
        pictures.extend(studio.shoot(states) for _ in range(3))
        studio.close()

    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pictures) == 6
    for picture in pictures:
        for key, frame in picture.items():
            np.testing.assert_array_equal(frame, frames[key])


def test_a_diverged_environment_keeps_out_of_the_bounding_volumes(model, states, cameras):
    broken = mujoco.MjData(model)
    broken.xpos[:], broken.cam_xpos[:], broken.light_xpos[:] = np.nan, np.inf, np.nan
    description, diverged = describe_model(model, NUM_ENVS), wp.zeros(NUM_ENVS, dtype=wp.int32, device="cpu")
    tracer = TracerModel(description, wp.get_device("cpu"))
    rig = CameraRig(description, list(cameras.values()), tracer.device)
    scene = ShardScene(tracer, rig, 0, diverged)
    scene.place(snapshot_of(model, [states[0], broken, states[2]]))
    np.testing.assert_array_equal(diverged.numpy(), [0, 1, 0])
    for name in ("geom_xpos", "geom_xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir"):
        placed = getattr(scene.fields, name).numpy()
        assert np.isfinite(placed).all()
        if name.startswith("geom"):
            expected = getattr(states[2], name).reshape(placed[2].shape)
            np.testing.assert_allclose(placed[2], expected, atol=1e-6)


def refusal(model: mujoco.MjModel, camera: CameraDescriptor) -> tuple[Exception, str]:
    """What `validate` raises for a camera, and what `initialize` says."""
    scene = describe_model(model, NUM_ENVS)
    backend = MujocoWarpRenderBackend()
    with pytest.raises(ValueError) as raised:  # noqa: PT011  (the tests look at the message)
        backend.validate(scene, [camera])
    status = backend.initialize(scene, RenderConfiguration(1, 1, (camera,), "cpu"))
    assert status.code is RenderStatusCode.BACKEND_FAILURE
    return raised.value, status.message


def test_an_unknown_camera_is_refused_with_the_known_ones(model):
    error, message = refusal(model, CameraDescriptor(1, "frnt", 8, 8, (RGB,), NUM_ENVS))
    assert isinstance(error, UnknownNameError)
    assert str(error) == "Unknown camera 'frnt'. Known: front, sensor, eye."
    assert str(error) in message
    error, _ = refusal(model, CameraDescriptor(1, "x", 8, 8, (RGB,), NUM_ENVS, mount=ModelCamera(3)))
    assert str(error) == "Unknown camera 3. Known: front, sensor, eye."


def test_an_unknown_body_is_refused_with_the_known_ones(model):
    error, _ = refusal(model, CameraDescriptor(1, "x", 8, 8, (RGB,), NUM_ENVS, mount=BodyMount("rovr")))
    assert str(error) == "Unknown body 'rovr'. Known: world, rover."


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        (CameraDescriptor(1, "front", 8, 8, (PlaneKind.NORMALS,), NUM_ENVS), "does not make ['normals']"),
        (CameraDescriptor(1, "front", 8, 8, (RGB,), 2), "is for 2 environments, but the scene has 3"),
        (
            CameraDescriptor(1, "x", 8, 8, (RGB,), NUM_ENVS, mount=WorldPose(((0, 0, 1), (0, 0, 2)))),
            "has poses for 2 environments, not for 3",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(camera, message, model):
    error, status = refusal(model, camera)
    assert message in str(error)
    assert message in status


def test_a_scene_without_a_mujoco_model_is_refused(model):
    scene = replace(describe_model(model, 1), natives={})
    with pytest.raises(UnmetRequirementError, match="needs 'mujoco_model'"):
        MujocoWarpRenderBackend().validate(scene, [])


def test_zero_shards_are_refused():
    with pytest.raises(ValueError, match="shards must be at least 1, got 0"):
        MujocoWarpRenderBackend(shards=0)


def test_calls_before_initialize_are_refused(model, cameras):
    backend = MujocoWarpRenderBackend()
    assert (
        backend.resize(RenderConfiguration(1, 1, (cameras["front"],), "cpu")).code is RenderStatusCode.NOT_INITIALIZED
    )
    assert backend.render(None, [], None).code is RenderStatusCode.NOT_INITIALIZED
    backend.shutdown_on_render_thread()
