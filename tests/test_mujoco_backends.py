"""What the MuJoCo backends lend, in which order, and what they refuse."""

import copy
import tracemalloc

import mujoco
import mujoco.batch
import numpy as np
import pytest
import warp as wp
from mujoco_models import robot
from mujoco_rigs import BatchRig, HostRig, WarpRig, published_poses

import scene_data.backends
from scene_data.backends.mujoco import MujocoSceneDataBackend
from scene_data.backends.mujoco_batch import MujocoBatchSceneDataBackend
from scene_data.formats import SceneDataFormat
from scene_data.provider import SceneDataProvider
from scene_data.renderers import SnapshotPool
from scene_data.streams import WorkOrder

RIGS = {"host": HostRig, "batch": BatchRig, "warp": WarpRig}


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return robot()


@pytest.fixture(params=RIGS)
def rig(request, model):
    return RIGS[request.param](model)


@pytest.fixture(params=["host", "batch"])
def host_rig(request, model):
    return RIGS[request.param](model)


def source(rig, field: str):
    """Address of the engine's own array."""
    if isinstance(rig, HostRig):
        return getattr(rig.data, field).ctypes.data
    if isinstance(rig, BatchRig):
        return rig.batch.bind(field).ctypes.data
    return getattr(rig.data, field).ptr


def test_the_engines_own_arrays_are_lent(rig):
    backend = rig.backend
    transforms, cameras, lights = backend.get_transforms(None), backend.get_camera_poses(), backend.get_light_poses()
    assert transforms.positions.ptr == source(rig, "xpos")
    assert transforms.orientations.ptr == source(rig, "xmat")
    assert cameras.positions.ptr == source(rig, "cam_xpos")
    assert cameras.orientations.ptr == source(rig, "cam_xmat")
    assert lights.positions.ptr == source(rig, "light_xpos")
    assert lights.directions.ptr == source(rig, "light_xdir")
    assert backend.transforms is transforms
    assert transforms._cls in backend.native_transform_formats
    assert transforms.positions.device == backend.device == wp.get_device("cpu")


def test_the_formats_are_the_engines(model):
    for backend in (HostRig(model).backend, BatchRig(model).backend):
        assert backend.native_transform_formats == (SceneDataFormat.Vec3d_Matrix33d,)
        assert backend.transforms.positions.dtype is wp.vec3d
    backend = WarpRig(model).backend
    assert backend.native_transform_formats == (SceneDataFormat.Vec3_Matrix33,)
    assert backend.transforms.orientations.dtype is wp.mat33f


def test_quaternions_reach_consumers_as_xyzw(rig, model):
    qpos = model.qpos0.copy()
    qpos[3:7] = (0.1, 0.2, 0.3, 0.927362)  # w first, as MuJoCo has them
    rig.set("qpos", 0, qpos)
    output = SceneDataFormat.Vec3_Quat()
    SceneDataProvider(rig.backend).get_transforms(output)
    quaternion = output.orientations.numpy()[model.body("torso").id]
    np.testing.assert_allclose(quaternion * np.sign(quaternion[3]), [0.2, 0.3, 0.927362, 0.1], atol=1e-5)


def test_counts_and_paths(rig, model):
    backend = rig.backend
    assert backend.num_envs == rig.num_envs
    assert backend.transform_count == rig.num_envs * model.nbody == len(backend.transform_paths)
    assert backend.get_transforms(None).positions.shape == (backend.transform_count,)
    last = rig.num_envs - 1
    assert backend.transform_paths[0] == "/World/envs/env_0/world"
    assert backend.transform_paths[last * model.nbody + model.body("lower").id] == f"/World/envs/env_{last}/lower"
    assert backend.camera_paths[last * model.ncam + 1] == f"/World/envs/env_{last}/torso/head"
    assert len(set(backend.transform_paths)) == backend.transform_count
    assert backend.transform_paths is backend.transform_paths


def test_flex_vertices_are_points(rig, model):
    points, ranges = rig.backend.get_geometry_batches()[0]
    assert points._cls is SceneDataFormat.Points
    assert points.points.dtype is wp.vec3f
    assert points.points.shape == (rig.num_envs * model.nflexvert,)
    last = rig.num_envs - 1
    assert ranges[f"/World/envs/env_{last}/cloth"] == (last * model.nflexvert, model.nflexvert)
    assert len(ranges) == rig.num_envs


def test_points_are_copied_only_when_asked_for(host_rig, monkeypatch):
    backend = host_rig.backend
    copies = []
    copyto = np.copyto
    monkeypatch.setattr(np, "copyto", lambda *a, **k: (copies.append(a[0].dtype), copyto(*a, **k)))
    host_rig.step()
    backend.get_transforms(None)
    assert np.float32 not in copies
    first = backend.get_geometry_batches()[0][0].points
    assert copies.count(np.float32) == 1
    assert backend.get_geometry_batches()[0][0].points is first
    assert copies.count(np.float32) == 1


def test_clean_reads_allocate_nothing_of_the_models_size():
    big = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body mocap="true"/><replicate count="3000" offset="1 0 0"><body/></replicate></worldbody>'
        "</mujoco>"
    )
    rig = HostRig(big)
    rig.backend.get_transforms(None)
    tracemalloc.start()
    rig.backend.get_transforms(None)
    rig.data.mocap_pos[0] += 1
    rig.backend.get_transforms(None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < big.nbody * 3  # bytes: not even a flag per coordinate


def test_without_cameras_lights_and_flexes(request):
    bare = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    for backend in (HostRig(bare).backend, BatchRig(bare).backend):
        assert backend.get_camera_poses() is None
        assert backend.get_light_poses() is None
        assert backend.get_geometry_batches() == []
        assert backend.camera_paths == []
        assert backend.transform_count == 2 * backend.num_envs


def test_an_empty_model():
    backend = HostRig(mujoco.MjModel.from_xml_string("<mujoco/>")).backend
    np.testing.assert_array_equal(backend.get_transforms(None).orientations.numpy(), np.eye(3)[None])


def test_times(rig):
    rig.step()
    rig.step()
    np.testing.assert_array_equal(rig.backend.env_time_ns, [8_000_000] * rig.num_envs)
    assert rig.backend.env_time_ns.dtype == np.int64
    assert rig.backend.simulation_time_ns == 8_000_000
    rig.reset(0)
    assert rig.backend.env_time_ns[0] == 0
    assert rig.backend.simulation_time_ns == (8_000_000 if rig.num_envs > 1 else 0)


def test_captured_times_stay_those_of_their_moment(rig):
    rig.step()
    captured = rig.backend.capture_env_times()
    rig.step()
    np.testing.assert_array_equal(captured.nanoseconds, [4_000_000] * rig.num_envs)
    assert captured.nanoseconds is captured.nanoseconds


def test_captured_times_are_read_after_what_noted_them(model):
    """With a double of the order that streams of a GPU have; there is none here."""
    done = []

    class Order(WorkOrder):
        def new_event(self):
            return "noted"

        def complete(self, event):
            done.append(("complete", event))

        def wait(self, events):
            done.append(("wait", *events))

    rig = WarpRig(model)
    rig.backend._work_order = Order(rig.backend.device)
    captured = rig.backend.capture_env_times()
    assert done == [("complete", "noted")]
    np.testing.assert_array_equal(captured.nanoseconds, [0] * rig.num_envs)
    assert done == [("complete", "noted"), ("wait", "noted")]


def test_a_snapshot_does_not_wait_for_a_device(model, monkeypatch):
    rig = WarpRig(model, announces_writes=True)
    rig.step()
    rig.backend.mark_transforms_written()
    provider, pool = SceneDataProvider(rig.backend), SnapshotPool()
    pool.activate(provider, 1)

    def wait(array):
        raise AssertionError("an array was read on the host")

    with monkeypatch.context() as reading:
        reading.setattr(wp.array, "numpy", wait)
        snapshot = pool.acquire(provider, 1, simulation_time_ns=4_000_000).snapshot
    np.testing.assert_array_equal(snapshot.env_times.nanoseconds, [4_000_000] * rig.num_envs)


def timestamps(backend) -> list[int]:
    return [getattr(backend, f"{kind}_timestamp") for kind in ("transforms", "cameras", "lights", "geometry")]


def test_timestamps_only_grow(rig):
    seen = timestamps(rig.backend)
    for act in (rig.step, rig.backend.mark_transforms_written, rig.backend.mark_geometry_written, lambda: rig.reset(0)):
        act()
        published_poses(rig.backend)
        now = timestamps(rig.backend)
        assert all(isinstance(stamp, int) for stamp in now)
        assert all(new >= old for new, old in zip(now, seen, strict=True))
        seen = now


def test_marks_advance_timestamps_at_once(rig):
    published_poses(rig.backend)
    before = timestamps(rig.backend)
    rig.backend.mark_transforms_written()
    rig.backend.mark_geometry_written()
    assert all(new > old for new, old in zip(timestamps(rig.backend), before, strict=True))


def test_the_scene_is_described_once(rig, model):
    scene = rig.backend.describe_scene()
    assert scene is rig.backend.describe_scene()
    assert scene.num_envs == rig.num_envs
    assert scene.native("mujoco_model") is model


@pytest.mark.filterwarnings("ignore")
def test_divergences_are_counted_by_environment(host_rig):
    backend, last = host_rig.backend, host_rig.num_envs - 1
    expected = np.zeros(host_rig.num_envs, int)
    for _ in range(3):
        host_rig.step()
        published_poses(backend)
        host_rig.set("qvel", last, np.full(host_rig.model.nv, np.nan))
        host_rig.step()
        published_poses(backend)
        expected[last] += 1
        np.testing.assert_array_equal(backend.divergence_counts, expected)
        np.testing.assert_array_equal(backend.divergence_counts, expected)
    host_rig.reset(last)
    host_rig.step()
    np.testing.assert_array_equal(backend.divergence_counts, expected)


def test_data_of_another_model_is_refused(model):
    other = mujoco.MjModel.from_xml_string("<mujoco/>")
    with pytest.raises(ValueError, match="data was made for another model: it has 1 bodies and 0 coordinates"):
        MujocoSceneDataBackend(model, mujoco.MjData(other))
    MujocoSceneDataBackend(copy.copy(model), mujoco.MjData(model))


def test_arguments_of_another_type_are_refused(model):
    data = mujoco.MjData(model)
    with pytest.raises(TypeError, match=r"model must be a mujoco\.MjModel, got MjData"):
        MujocoSceneDataBackend(data, model)
    with pytest.raises(TypeError, match=r"data must be a mujoco\.MjData, got NoneType"):
        MujocoSceneDataBackend(model, None)
    with pytest.raises(TypeError, match=r"batch must be a mujoco\.batch\.Batch, got MjModel"):
        MujocoBatchSceneDataBackend(model)


def test_mujoco_warp_arguments_are_checked(model):
    from scene_data.backends.mujoco_warp import MujocoWarpSceneDataBackend

    rig = WarpRig(model)
    with pytest.raises(TypeError, match=r"model must be a mujoco_warp\.Model, got MjModel"):
        MujocoWarpSceneDataBackend(model, model, rig.data)
    with pytest.raises(TypeError, match=r"data must be a mujoco_warp\.Data, got MjData"):
        MujocoWarpSceneDataBackend(model, rig.device_model, mujoco.MjData(model))
    bodies = model.nbody
    with pytest.raises(ValueError, match=rf"differ in their bodies: {bodies - 16}, {bodies} and {bodies}"):
        MujocoWarpSceneDataBackend(robot(cloth=False), rig.device_model, rig.data)


def test_classes_are_imported_by_name():
    assert scene_data.backends.MujocoSceneDataBackend is MujocoSceneDataBackend
    assert scene_data.backends.MujocoBatchSceneDataBackend is MujocoBatchSceneDataBackend
    assert "MujocoWarpSceneDataBackend" in dir(scene_data.backends)
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = scene_data.backends.Nonsense
