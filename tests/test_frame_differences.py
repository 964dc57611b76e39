"""After a change, the next frame differs where it must and only there: state, poses and intrinsics of cameras.

Colours, sizes and lights are in `test_appearance_backends.py`.
"""

import mujoco
import numpy as np
import pytest
from looks import (
    BACKENDS,
    BALL,
    BOX,
    BOX_SIZE,
    DISTANCE,
    FOCAL,
    HEIGHT,
    NUM_ENVS,
    WIDTH,
    assert_same,
    box_mask,
    changed,
    seen,
    shoot,
    sims,
)
from ray_casting import cast, rays_of

from scene_data import SimulationContext
from scene_data.camera import Pinhole, WorldPose

sim_of_backend = pytest.fixture(scope="module", params=BACKENDS)(sims)

LENS = Pinhole(FOCAL, FOCAL, 0.5 * WIDTH, 0.5 * HEIGHT)
LEVEL = (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5))  # how the camera `front` is turned: it looks along +Y


@pytest.fixture
def sim(sim_of_backend: SimulationContext) -> SimulationContext:
    sim = sim_of_backend
    sim.appearance.reset()
    sim.reset()
    sim.cameras["front"].clear_world_poses()
    sim.cameras["front"].set_intrinsic_matrices(matrix(LENS))
    return sim


def matrix(lens: Pinhole) -> np.ndarray:
    return np.array([[lens.fx, 0, lens.cx], [0, lens.fy, lens.cy], [0, 0, 1]])


def move_box(sim: SimulationContext, env: int, position: tuple[float, float, float]) -> None:
    """Write the state as a user would, without telling anybody."""
    sim.physics.batch.qpos[env, :3] = position


def assert_shows(sim: SimulationContext, frames: dict[str, np.ndarray], env: int, lens: Pinhole, pose: WorldPose):
    """An environment looks as rays through the pixel centres find it, but for edges that OpenGL draws otherwise."""
    model = sim.provider.backend.describe_scene().native("mujoco_model")
    state = mujoco.MjData(model)
    mujoco.mj_forward(model, state)
    depth, geoms = cast(model, state, *rays_of(lens, WIDTH, HEIGHT, pose), far=20.0)
    agrees = seen(frames)[env] == geoms
    assert agrees.mean() > (0.985 if sim.cfg.render_backend == "mujoco_gl" else 0.9995)
    hit = agrees & (geoms >= 0)
    assert hit.sum() > 100
    error = np.abs(frames["depth"][env, ..., 0][hit] - depth[hit])
    assert np.quantile(error, 0.95) < (2e-2 if sim.cfg.render_backend == "mujoco_gl" else 1e-3)


class TestState:
    def test_a_body_that_moves_changes_where_it_was_and_where_it_is(self, sim):
        before = shoot(sim)
        centre = (-0.4, 0.1, 1.2)
        move_box(sim, 1, centre)
        after = shoot(sim)
        was = seen(before)[1] == BOX
        now = seen(after)[1] == BOX
        np.testing.assert_array_equal(was, box_mask())
        front = box_mask(BOX_SIZE, centre)  # two more sides show now
        assert (now & front).sum() == front.sum()
        for kind in before:
            differs = changed(before, after, kind)
            assert not (differs[1] & ~(was | now)).any()
            assert not differs[[0, 2]].any()
        assert changed(before, after, "segmentation")[1][was ^ now].all()
        assert changed(before, after, "depth")[1][was | now].all()

    def test_a_step_in_which_nothing_moves_changes_nothing(self, sim):
        before = sim.cameras["front"].data
        copy = {kind: before[kind].numpy().copy() for kind in before}
        sim.forward()
        assert sim.cameras["front"].data is not before
        assert_same(copy, shoot(sim))

    def test_a_reset_of_one_environment_leaves_the_others(self, sim):
        start = shoot(sim)
        for env in range(NUM_ENVS):
            move_box(sim, env, (0.0, 0.0, 1.3 + 0.1 * env))
        moved = shoot(sim)
        sim.reset(env_ids=[2])
        after = shoot(sim)
        for kind in start:
            np.testing.assert_array_equal(after[kind][:2], moved[kind][:2])
            np.testing.assert_array_equal(after[kind][2], start[kind][2])


class TestCamera:
    def test_that_is_moved_shows_its_environment_from_there(self, sim):
        before = shoot(sim)
        pose = WorldPose((0.7, -2.0, 1.1), LEVEL)
        sim.cameras["front"].set_world_poses([pose.position], [pose.quaternion], [1], convention="opengl")
        after = shoot(sim)
        for kind in before:
            assert changed(before, after, kind)[1].any()
            np.testing.assert_array_equal(after[kind][[0, 2]], before[kind][[0, 2]])
        assert_shows(sim, after, 1, LENS, pose)

    def test_that_is_refocused_projects_through_its_pinhole(self, sim):
        same = shoot(sim)
        sim.cameras["front"].set_intrinsic_matrices([matrix(Pinhole(40.0, 40.0, 32.0, 24.0))], [0])
        before = shoot(sim)
        # Where environments first differ, MuJoCo Warp casts rays with a kernel of its own, which rounds in its own way.
        for kind in ("rgb", "segmentation"):
            np.testing.assert_array_equal(before[kind][1:], same[kind][1:])
        np.testing.assert_allclose(before["depth"][1:], same["depth"][1:], rtol=1e-5)
        lens = Pinhole(30.0, 70.0, 20.0, 30.5)
        sim.cameras["front"].set_intrinsic_matrices([matrix(lens)], [0])
        after = shoot(sim)
        for kind in before:
            assert changed(before, after, kind)[0].any()
            np.testing.assert_array_equal(after[kind][1:], before[kind][1:])
        assert_shows(sim, after, 0, lens, WorldPose((0, -DISTANCE, 1), LEVEL))

    def test_that_is_given_back_sees_what_it_saw(self, sim):
        before = shoot(sim)
        sim.cameras["front"].set_world_poses((0.5, -2, 1.5))
        sim.cameras["front"].set_intrinsic_matrices(matrix(Pinhole(30, 30, 30, 30)), [1])
        shoot(sim)
        sim.cameras["front"].clear_world_poses()
        sim.cameras["front"].set_intrinsic_matrices(matrix(LENS))
        assert_same(before, shoot(sim))


def test_changes_of_every_kind_at_once_stay_in_their_environments(sim):
    before = shoot(sim)
    sim.appearance.set_shape_colors((0.1, 0.9, 0.1), "ball", [0])
    move_box(sim, 1, (0.2, 0.0, 1.0))
    sim.cameras["front"].set_world_poses([(0.0, -2.5, 1.0)], [LEVEL], [2], convention="opengl")
    after = shoot(sim)
    np.testing.assert_array_equal(after["depth"][0], before["depth"][0])
    ball = seen(before)[0] == BALL
    assert not (changed(before, after, "rgb")[0] & ~ball).any()
    moved = (seen(before)[1] == BOX) | (seen(after)[1] == BOX)
    assert not (changed(before, after, "rgb")[1] & ~moved).any()
    assert not (changed(before, after, "depth")[1] & ~moved).any()
    assert (after["depth"][2][box_mask()] < before["depth"][2][box_mask()]).all()
