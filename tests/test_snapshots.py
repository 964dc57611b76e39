import gc

import mujoco
import mujoco.batch
import numpy as np
import pytest
import warp as wp
from rendering import StateBackend

from scene_data import SceneDataBackend, SceneDataProvider
from scene_data.backends import MujocoBatchSceneDataBackend, MujocoSceneDataBackend
from scene_data.renderers.render_core.snapshots import SnapshotPool
from scene_data.renderers.render_core.status import FrameStatusCode

XML = """
<mujoco>
  <worldbody>
    <light name="lamp" pos="0 0 3" mode="trackcom"/>
    <body name="ball" pos="0 0 1">
      <freejoint/>
      <geom size="0.1"/>
      <camera name="eye" pos="0 -1 0" mode="track"/>
    </body>
    <flexcomp name="cloth" type="grid" count="3 3 1" spacing=".2 .2 .2" pos="0 0 2" radius=".02" dim="2">
      <edge equality="true"/>
    </flexcomp>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture
def data(model) -> mujoco.MjData:
    return mujoco.MjData(model)


@pytest.fixture
def provider(model, data) -> SceneDataProvider:
    return SceneDataProvider(MujocoSceneDataBackend(model, data))


@pytest.fixture
def pool(provider) -> SnapshotPool:
    pool = SnapshotPool()
    pool.activate(provider, 5)
    return pool


def take(pool: SnapshotPool, provider: SceneDataProvider, generation: int = 5):
    snapshot = pool.acquire(provider, generation).snapshot
    assert snapshot is not None
    return snapshot


def test_a_snapshot_is_a_copy_of_the_present_state(model, data, provider, pool):
    data.qpos[:3] = 1, 2, 3
    data.time = 0.25
    snapshot = take(pool, provider)
    assert (snapshot.model_generation, snapshot.simulation_time_ns, snapshot.num_envs) == (5, 250_000_000, 1)
    assert snapshot.device == wp.get_device("cpu")
    fresh = mujoco.MjData(model)
    fresh.qpos[:] = data.qpos
    mujoco.mj_forward(model, fresh)
    data.qpos[:3] = 7, 8, 9
    mujoco.mj_forward(model, data)
    for array, field in (
        (snapshot.transforms.positions, "xpos"),
        (snapshot.transforms.orientations, "xmat"),
        (snapshot.cameras.positions, "cam_xpos"),
        (snapshot.cameras.orientations, "cam_xmat"),
        (snapshot.lights.positions, "light_xpos"),
        (snapshot.lights.directions, "light_xdir"),
        (snapshot.points, "flexvert_xpos"),
    ):
        np.testing.assert_allclose(array.numpy().ravel(), getattr(fresh, field).ravel(), atol=1e-6, err_msg=field)


def test_environments_follow_one_another(model):
    batch = mujoco.batch.Batch(model, nsim=3, nthread=1, persistent=True)
    batch.bind("qpos")[:, 0] = [0.1, 0.2, 0.3]
    batch.bind("time")[:] = [0.5, 0.0, 1.5]
    provider = SceneDataProvider(MujocoBatchSceneDataBackend(batch))
    pool = SnapshotPool()
    pool.activate(provider, 1)
    snapshot = take(pool, provider, 1)
    assert snapshot.num_envs == 3
    np.testing.assert_array_equal(snapshot.env_times.nanoseconds, [500_000_000, 0, 1_500_000_000])
    bodies = snapshot.transforms.positions.numpy().reshape(3, model.nbody, 3)
    np.testing.assert_allclose(bodies[:, model.body("ball").id, 0], [0.1, 0.2, 0.3], rtol=1e-6)
    points = snapshot.points.numpy().reshape(3, model.nflexvert, 3)
    np.testing.assert_allclose(points, batch.bind("flexvert_xpos").reshape(points.shape), atol=1e-6)


def test_a_third_snapshot_has_to_wait_for_a_release(provider, pool):
    first, second = take(pool, provider), take(pool, provider)
    refused = pool.acquire(provider, 5)
    assert (refused.ok, refused.code, refused.snapshot) == (False, FrameStatusCode.SNAPSHOT_POOL_EXHAUSTED, None)
    first.release()
    assert not first.valid
    assert second.valid
    assert pool.acquire(provider, 5).ok
    first.release()  # again: must not free what the slot holds now
    second.release()


def test_releasing_twice_frees_nothing_else(provider, pool):
    first, second = take(pool, provider), take(pool, provider)
    first.release()
    third = take(pool, provider)
    first.release()
    assert pool.acquire(provider, 5).code is FrameStatusCode.SNAPSHOT_POOL_EXHAUSTED
    assert second.valid
    assert third.valid


def test_a_dropped_snapshot_is_released(provider, pool):
    kept = [take(pool, provider), take(pool, provider)]
    kept.pop()
    gc.collect()
    assert pool.acquire(provider, 5).ok


def test_a_released_snapshot_shows_nothing(provider, pool):
    snapshot = take(pool, provider)
    snapshot.release()
    for name in ("transforms", "cameras", "lights", "points", "env_times", "num_envs", "device"):
        with pytest.raises(RuntimeError, match="was released"):
            getattr(snapshot, name)


def test_only_the_active_generation_is_served(provider, pool):
    assert pool.acquire(provider, 4).code is FrameStatusCode.STALE_GENERATION
    assert pool.acquire(provider, 6).code is FrameStatusCode.STALE_GENERATION
    pool.deactivate()
    assert pool.acquire(provider, 5).code is FrameStatusCode.NOT_INITIALIZED
    assert SnapshotPool().acquire(provider, 5).code is FrameStatusCode.NOT_INITIALIZED


def test_old_snapshots_survive_a_new_activation(model, provider, pool):
    old = [take(pool, provider), take(pool, provider)]
    before = old[0].transforms.positions.numpy().copy()
    states = [mujoco.MjData(model) for _ in range(4)]
    other = SceneDataProvider(StateBackend(model, states))
    pool.activate(other, 6)
    new = [take(pool, other, 6), take(pool, other, 6)]
    assert all(snapshot.valid for snapshot in old + new)
    np.testing.assert_array_equal(old[0].transforms.positions.numpy(), before)
    old[0].release()
    assert pool.acquire(other, 6).code is FrameStatusCode.SNAPSHOT_POOL_EXHAUSTED
    pool.deactivate()
    np.testing.assert_array_equal(old[1].transforms.positions.numpy(), before)


def test_slots_are_used_again_and_nothing_is_allocated(provider, pool, monkeypatch):
    take(pool, provider).release()
    for name in ("zeros", "empty", "full"):
        monkeypatch.setattr(wp, name, None)
    addresses = set()
    for _ in range(5):
        pair = take(pool, provider), take(pool, provider)
        addresses |= {snapshot.transforms.positions.ptr for snapshot in pair}
        del pair
    assert len(addresses) == 2


def test_a_failing_read_gives_its_slot_back(provider, pool, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no lights")

    monkeypatch.setattr(provider, "get_light_poses", fail)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no lights"):
            pool.acquire(provider, 5)
    monkeypatch.undo()
    first, second = take(pool, provider), take(pool, provider)
    assert first.valid
    assert second.valid


def test_a_snapshot_is_of_one_moment(provider, pool, data, monkeypatch):
    """The engine moves on between two of the snapshot's reads; the snapshot does not."""
    read_cameras = provider.get_camera_poses

    def move_then_read(*arguments, **options):
        data.qpos[2] += 1.0
        return read_cameras(*arguments, **options)

    monkeypatch.setattr(provider, "get_camera_poses", move_then_read)
    snapshot = take(pool, provider)
    ball = snapshot.transforms.positions.numpy()[1]
    np.testing.assert_allclose(snapshot.cameras.positions.numpy()[0] - ball, [0, -1, 0], atol=1e-6)


def test_the_caller_may_say_what_time_it_is(provider, pool):
    result = pool.acquire(provider, 5, simulation_time_ns=42)
    assert result.snapshot.simulation_time_ns == 42


def test_a_backend_with_transforms_alone_will_do(model):
    class Plain(SceneDataBackend):
        transforms = StateBackend(model, [mujoco.MjData(model)]).transforms
        transform_count = model.nbody
        num_envs = 1

    provider, pool = SceneDataProvider(Plain()), SnapshotPool()
    pool.activate(provider, 1)
    snapshot = take(pool, provider, 1)
    assert (snapshot.cameras, snapshot.lights, snapshot.points) == (None, None, None)
    assert snapshot.env_times.nanoseconds is None
    assert snapshot.transforms.positions.shape == (model.nbody,)
