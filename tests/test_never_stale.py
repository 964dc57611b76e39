"""The promise: every read shows the present state, and no reader changes what happens next."""

from concurrent.futures import ThreadPoolExecutor

import mujoco
import numpy as np
import pytest
import warp as wp
from mujoco_models import robot
from mujoco_rigs import BatchRig, HostRig, WarpRig, assert_fresh, expected_poses, full_state, published_poses

ENGINES = ("host", "batch", "batch_persistent", "warp")
HOST_ENGINES = ENGINES[:3]


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return robot()


def build(engine: str, model: mujoco.MjModel):
    if engine == "host":
        return HostRig(model)
    if engine == "warp":
        return WarpRig(model)
    return BatchRig(model, persistent=engine == "batch_persistent")


@pytest.fixture(params=ENGINES)
def rig(request, model):
    return build(request.param, model)


@pytest.fixture(params=HOST_ENGINES)
def host_rig(request, model):
    return build(request.param, model)


def last_env(rig) -> int:
    return rig.num_envs - 1


def wiggle(rig, env: int, seed: int = 0) -> None:
    """Write a qpos that nobody has seen, with quaternions of unit length."""
    data = mujoco.MjData(rig.model)
    data.qpos[:] = rig.get("qpos", env)
    mujoco.mj_integratePos(rig.model, data.qpos, np.random.default_rng(seed).normal(size=rig.model.nv), 0.3)
    rig.set("qpos", env, data.qpos)


def test_a_first_read_needs_no_forward(rig):
    assert_fresh(rig)


def test_after_a_step_poses_do_not_lag(rig):
    assert_fresh(rig)
    for _ in range(3):
        rig.step()
        assert_fresh(rig)


def test_after_a_write_of_qpos_without_notice(rig):
    assert_fresh(rig)
    wiggle(rig, last_env(rig))
    assert_fresh(rig)


def test_after_a_reset(rig):
    wiggle(rig, 0)
    wiggle(rig, last_env(rig), seed=1)
    assert_fresh(rig)
    rig.reset(last_env(rig))
    assert_fresh(rig)


def test_after_a_mocap_move(rig):
    assert_fresh(rig)
    rig.set("mocap_pos", last_env(rig), np.array([[1.0, -1.0, 0.25]]))
    assert_fresh(rig)
    rig.set("mocap_quat", last_env(rig), np.array([[0.5, 0.5, 0.5, 0.5]]))
    assert_fresh(rig)


def test_environments_stand_in_their_own_rows(rig):
    for env in range(rig.num_envs):
        wiggle(rig, env, seed=env)
    poses = published_poses(rig.backend)["xpos"].reshape(rig.num_envs, -1)
    assert len(np.unique(poses.round(4), axis=0)) == rig.num_envs
    assert_fresh(rig)


def test_a_reset_that_leaves_qpos_and_time_as_published(host_rig):
    # mj_resetData zeroes xpos, and qpos and time equal what was published.
    assert_fresh(host_rig)
    host_rig.reset(0)
    assert_fresh(host_rig)


def test_a_state_that_was_stepped_and_restored(host_rig):
    env = last_env(host_rig)
    assert_fresh(host_rig)
    before = {field: host_rig.get(field, env) for field in ("qpos", "qvel")}
    host_rig.step()
    host_rig.step()
    for field, value in before.items():
        host_rig.set(field, env, value)
    if isinstance(host_rig, HostRig):
        host_rig.data.time = 0.0
    else:
        host_rig.batch.bind("time")[env] = 0.0
    assert_fresh(host_rig)


def test_cameras_alone_left_behind():
    # A world without moving bodies: a reset zeroes the camera, and nothing else tells.
    rig = HostRig(
        mujoco.MjModel.from_xml_string(
            '<mujoco><worldbody><camera pos="1 2 3"/><light pos="0 0 4" dir="0 0 -1"/></worldbody></mujoco>'
        )
    )
    assert_fresh(rig)
    rig.data.cam_xpos[:] = 0
    rig.data.light_xpos[:] = 0
    assert_fresh(rig)


def test_an_announced_write_to_the_model():
    rig = HostRig(robot(cloth=False))
    assert_fresh(rig)
    rig.model.body_pos[rig.model.body("lower").id] += 0.1
    rig.model.cam_pos[rig.model.camera("head").id] += 0.1
    before = rig.backend.transforms_timestamp
    rig.backend.mark_transforms_written()
    assert rig.backend.transforms_timestamp > before
    assert_fresh(rig)


def test_unnormalised_quaternions(host_rig):
    qpos = host_rig.get("qpos", 0)
    qpos[3:7] *= 2
    host_rig.set("qpos", 0, qpos)
    assert_fresh(host_rig)


@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_writes(host_rig, seed):
    random = np.random.default_rng(seed)
    for _ in range(40):
        env = int(random.integers(host_rig.num_envs))
        act = random.choice(["step", "write", "mocap", "reset", "forward", "read part"])
        if act == "write":
            wiggle(host_rig, env, seed=int(random.integers(1000)))
        elif act == "mocap":
            host_rig.set("mocap_pos", env, random.normal(size=(1, 3)))
        elif act == "reset":
            host_rig.reset(env)
        elif act == "read part":
            host_rig.backend.get_camera_poses()
        else:
            getattr(host_rig, act)()
        if random.random() < 0.5:
            assert_fresh(host_rig)
    assert_fresh(host_rig)


def test_a_batch_that_binds_anew_is_followed(model):
    rig = BatchRig(model)
    published_poses(rig.backend)
    before = rig.backend.transforms_timestamp
    rig.batch._bound.clear()
    transforms = rig.backend.get_transforms(None)
    assert transforms.positions.ptr == rig.batch.bind("xpos").ctypes.data
    assert rig.backend.transforms_timestamp > before
    rig.step()
    assert_fresh(rig)


def test_clean_reads_publish_nothing_new(host_rig):
    backend = host_rig.backend
    published_poses(backend)
    stamps = timestamps(backend)
    published_poses(backend)
    assert timestamps(backend) == stamps
    assert not backend.kinematics_dirty


def test_nan_poses_are_published_once(host_rig):
    backend = host_rig.backend
    qpos = host_rig.get("qpos", 0)
    qpos[0] = np.nan
    host_rig.set("qpos", 0, qpos)
    published_poses(backend)
    stamps = timestamps(backend)
    published_poses(backend)
    assert timestamps(backend) == stamps


def test_time_alone_is_no_new_pose(host_rig):
    backend = host_rig.backend
    published_poses(backend)
    stamps = timestamps(backend)
    if isinstance(host_rig, HostRig):
        host_rig.data.time += 1.0
    else:
        host_rig.batch.bind("time")[:] += 1.0
    assert backend.kinematics_dirty
    published_poses(backend)
    assert timestamps(backend) == stamps
    assert backend.simulation_time_ns == 1_000_000_000


def test_only_what_moved_is_new(model):
    rig = HostRig(model)
    published_poses(rig.backend)
    before = timestamps(rig.backend)
    rig.set("mocap_pos", 0, np.array([[1.0, 1.0, 1.0]]))
    published_poses(rig.backend)
    after = timestamps(rig.backend)
    assert after["transforms"] > before["transforms"]
    assert after["cameras"] > before["cameras"]  # one of them sits on the mocap body
    assert after["lights"] == before["lights"]
    assert after["geometry"] == before["geometry"]


def test_only_written_environments_are_computed(model, monkeypatch):
    rig = BatchRig(model)
    published_poses(rig.backend)
    calls = []
    forward = rig.batch.forward
    monkeypatch.setattr(rig.batch, "forward", lambda ids, stage: (calls.append(np.array(ids)), forward(ids, stage)))
    wiggle(rig, 1)
    published_poses(rig.backend)
    assert [list(ids) for ids in calls] == [[False, True, False]]


def timestamps(backend) -> dict[str, int]:
    kinds = ("transforms", "cameras", "lights", "geometry")
    return {kind: getattr(backend, f"{kind}_timestamp") for kind in kinds}


# Readers change nothing


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicit", "implicitfast", "discrete"])
@pytest.mark.parametrize("engine", HOST_ENGINES)
def test_trajectory_is_the_same_with_and_without_readers(engine, integrator):
    model = robot(integrator)
    alone, read = build(engine, model), build(engine, model)
    states = []
    for step in range(150):
        for rig in (alone, read):
            for env in range(rig.num_envs):
                rig.set("ctrl", env, np.array([np.sin(0.1 * step + env)]))
            rig.step()
        published_poses(read.backend)
        states.append([full_state(rig) for rig in (alone, read)])
    for without, with_readers in states:
        np.testing.assert_array_equal(without, with_readers)


def test_trajectory_is_the_same_on_mujoco_warp(model):
    alone, read = WarpRig(model), WarpRig(model)
    for step in range(40):
        for rig in (alone, read):
            for env in range(rig.num_envs):
                rig.set("ctrl", env, np.array([np.sin(0.1 * step + env)]))
            rig.step()
        published_poses(read.backend)
        for field in ("qpos", "qvel", "qacc_warmstart"):
            np.testing.assert_array_equal(getattr(alone.data, field).numpy(), getattr(read.data, field).numpy())


SLEEPERS = """
<mujoco>
  <option timestep="0.004" integrator="{integrator}"><flag sleep="enable"/></option>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <replicate count="3" offset=".5 0 0">
      <body pos="0 0 .11"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
    </replicate>
    <body pos="0 -1 1"><joint axis="0 1 0" damping=".1"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/></body>
    <body mocap="true"><camera/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicitfast"])
@pytest.mark.parametrize("engine", ["host", "batch_persistent"])
def test_readers_neither_wake_nor_miss_the_sleeping(engine, integrator):
    model = mujoco.MjModel.from_xml_string(SLEEPERS.format(integrator=integrator))
    alone, read = build(engine, model), build(engine, model)
    for _ in range(200):
        for rig in (alone, read):
            rig.step()
        published_poses(read.backend)
        np.testing.assert_array_equal(full_state(read), full_state(alone))
    data = read.data if engine == "host" else read.batch.get_data(0)
    # With RK4, MuJoCo wakes by itself in each step what it put to sleep in the one before.
    assert (data.tree_asleep >= 0).any() or integrator == "RK4"
    wiggle(read, 0)
    assert_fresh(read)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_read_leaves_other_bound_fields_of_a_batch_alone(model, persistent):
    rig = BatchRig(model, persistent)
    fields = [rig.batch.bind(name) for name in ("sensordata", "qacc", "qfrc_actuator")]
    for env in range(rig.num_envs):
        wiggle(rig, env, seed=env)
        rig.set("ctrl", env, np.array([env + 1.0]))
    rig.step()
    before = [field.copy() for field in fields]
    published_poses(rig.backend)
    for field, kept in zip(fields, before, strict=True):
        np.testing.assert_array_equal(field, kept)
    rig.step()
    assert not np.array_equal(fields[0], before[0])


# One state for several reads


def test_a_consistent_read_sees_one_state(rig):
    with rig.backend.consistent_read():
        before = {field: values.copy() for field, values in published_poses(rig.backend).items()}
        wiggle(rig, 0)
        assert not rig.backend.kinematics_dirty
        with rig.backend.consistent_read():
            inside = published_poses(rig.backend)
        for field, values in before.items():
            np.testing.assert_array_equal(values, inside[field])
    assert_fresh(rig)


def test_a_consistent_read_reconciles_once(rig, monkeypatch):
    published_poses(rig.backend)
    rig.step()
    forward = count_forward_kinematics(rig, monkeypatch)
    with rig.backend.consistent_read():
        assert len(forward) == 1
        published_poses(rig.backend)
        launches = count_launches(monkeypatch)
        published_poses(rig.backend)
        assert not launches
    assert len(forward) == 1


def test_another_thread_reads_what_it_wrote_during_a_consistent_read(rig):
    with rig.backend.consistent_read(), ThreadPoolExecutor(1) as other:
        wiggle(rig, 0)
        other.submit(assert_fresh, rig).result()


def test_a_read_after_a_reconciliation_elsewhere_does_not_repeat_it(rig, monkeypatch):
    def read():
        with rig.backend.consistent_read(is_reconciled=True):
            return published_poses(rig.backend)

    rig.step()
    published_poses(rig.backend)
    forward = count_forward_kinematics(rig, monkeypatch)
    with ThreadPoolExecutor(1) as other:
        poses = other.submit(read).result()
    assert not forward
    for field, values in expected_poses(rig).items():
        np.testing.assert_allclose(poses[field], values, atol=1e-6)
    wiggle(rig, 0)
    assert_fresh(rig)


def test_an_error_inside_a_consistent_read_ends_it(rig):
    with pytest.raises(RuntimeError, match="inside"), rig.backend.consistent_read():
        raise RuntimeError("inside")
    wiggle(rig, 0)
    assert_fresh(rig)


def count_forward_kinematics(rig, monkeypatch) -> list:
    """Calls of what brings poses up to the present state."""
    if isinstance(rig, HostRig):
        owner, name = mujoco, "mj_kinematics"
    elif isinstance(rig, BatchRig):
        owner, name = rig.batch, "forward"
    else:
        owner, name = rig.mjw, "kinematics"
    calls, call = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: (calls.append(name), call(*args, **kwargs))[1])
    return calls


def count_launches(monkeypatch) -> list:
    launches = []
    launch = wp.launch
    monkeypatch.setattr(wp, "launch", lambda *args, **kwargs: (launches.append(kwargs), launch(*args, **kwargs))[1])
    return launches


# mujoco_warp: announced writes, swaps, graphs


@pytest.fixture
def announcing(model):
    return WarpRig(model, announces_writes=True)


def test_without_announcements_every_read_publishes(model, monkeypatch):
    backend = WarpRig(model).backend
    backend.get_transforms(None)
    launches = count_launches(monkeypatch)
    before = backend.transforms_timestamp
    backend.get_transforms(None)
    assert launches
    assert backend.transforms_timestamp > before


def test_announced_writes_are_published_once(announcing, monkeypatch):
    backend = announcing.backend
    published_poses(backend)
    stamp = backend.transforms_timestamp
    launches = count_launches(monkeypatch)
    published_poses(backend)
    assert not launches
    assert backend.transforms_timestamp == stamp
    wiggle(announcing, 1)
    backend.mark_transforms_written()
    assert_fresh(announcing)
    launches.clear()
    published_poses(backend)
    assert not launches


def test_a_swapped_array_is_followed(announcing):
    backend, data = announcing.backend, announcing.data
    old = backend.get_transforms(None).positions
    stamp = backend.transforms_timestamp
    data.xpos = wp.zeros_like(data.xpos)
    new = backend.get_transforms(None).positions
    assert new.ptr == data.xpos.ptr != old.ptr
    assert backend.transforms_timestamp > stamp
    assert_fresh(announcing)
    data.qpos = wp.clone(data.qpos)
    wiggle(announcing, 0)
    assert_fresh(announcing)


def test_a_read_in_a_capture_is_in_the_graph(announcing):
    backend = announcing.backend
    backend.get_transforms(None)
    with wp.ScopedCapture(device="cpu") as capture:
        backend.get_transforms(None)
    wiggle(announcing, 2)
    wp.capture_launch(capture.graph)
    published = announcing.data.xpos.numpy().copy()
    backend.mark_transforms_written()
    np.testing.assert_array_equal(published, backend.get_transforms(None).positions.numpy().reshape(published.shape))
    assert_fresh(announcing)


def test_after_a_write_in_a_capture_every_read_publishes(announcing, monkeypatch):
    backend, data = announcing.backend, announcing.data
    source = wp.clone(data.qpos)
    backend.get_transforms(None)
    with wp.ScopedCapture(device="cpu") as capture:
        wp.copy(data.qpos, source)
        backend.mark_transforms_written()
    for seed in (1, 2):
        wiggle(announcing, 0, seed)
        source.assign(data.qpos)
        wp.capture_launch(capture.graph)
        assert_fresh(announcing)
    launches = count_launches(monkeypatch)
    backend.get_transforms(None)
    assert launches


def test_a_capture_does_not_count_as_published(announcing):
    backend = announcing.backend
    backend.get_transforms(None)
    wiggle(announcing, 1)
    backend.mark_transforms_written()
    with wp.ScopedCapture(device="cpu"):
        backend.get_transforms(None)
    assert_fresh(announcing)
