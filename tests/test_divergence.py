"""Diverged environments, the whole way: blanked, counted, named, healed, and of no concern to the others."""

import logging

import mujoco
import numpy as np
import pytest
from test_simulation import TOP, XML, expected_position, open_context, segmentation, slab_position

ENVS = 3
PLANES = ("rgb", "depth", "segmentation")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def planes(sim) -> dict[str, np.ndarray]:
    data = sim.cameras["top"].data
    return {plane: data.lease(plane).numpy().copy() for plane in PLANES}


def drive(sim) -> None:
    sim.physics.set_control(np.array([[0.5], [-0.5], [1.0]]))
    for _ in range(3):
        sim.step()


def make_nan(sim, env: int) -> None:
    """What an unstable simulation leaves behind, written after a step."""
    qpos = sim.physics.data.qpos.numpy()
    qpos[env] = np.nan
    sim.physics.data.qpos.assign(qpos)


def test_a_diverged_environment_is_blanked_counted_named_and_healed(model):
    with open_context(model, "mujoco_warp", ENVS) as healthy, open_context(model, "mujoco_warp", ENVS) as sim:
        for context in (healthy, sim):
            drive(context)
        make_nan(sim, 1)
        for turn in range(1, 4):
            expected, found = planes(healthy), planes(sim)
            for plane in PLANES:
                np.testing.assert_array_equal(found[plane][[0, 2]], expected[plane][[0, 2]])
            assert (found["segmentation"][1] == -1).all()
            assert np.isposinf(found["depth"][1]).all()
            assert (found["rgb"][1] == found["rgb"][1][0, 0]).all()
            assert (expected["segmentation"][1] != -1).any()
            assert sim.render_core.stats()["blank_environments"] == {1: turn}
            for context in (healthy, sim):
                context.step()
        assert healthy.stats()["render"]["blank_environments"] == {}
        for context in (healthy, sim):
            context.reset(env_ids=[1])
        expected, found = planes(healthy), planes(sim)
        for plane in PLANES:
            np.testing.assert_array_equal(found[plane], expected[plane])
        np.testing.assert_allclose(slab_position(found["segmentation"])[1], expected_position(0.0), atol=0.6)
        assert sim.stats()["render"]["blank_environments"] == {1: 3}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["mujoco", "mujoco_batch"])
@pytest.mark.parametrize("cameras", [(TOP,), ()], ids=["looked at", "never looked at"])
def test_an_engine_that_resets_what_diverged_has_it_counted(model, engine, cameras):
    with open_context(model, engine, ENVS, cameras) as healthy, open_context(model, engine, ENVS, cameras) as sim:
        for context in (healthy, sim):
            drive(context)
        if engine == "mujoco":
            sim.physics.datas[1].qvel[:] = np.nan
        else:
            sim.physics.batch.bind("qvel")[1] = np.nan
        for context in (healthy, sim):
            context.step()
        if cameras:
            np.testing.assert_array_equal(segmentation(sim)[[0, 2]], segmentation(healthy)[[0, 2]])
            np.testing.assert_allclose(slab_position(segmentation(sim))[1], expected_position(0.0), atol=0.6)
        sim.reset(env_ids=[1])
        assert sim.stats()["divergences"] == {1: 1}
        assert healthy.stats()["divergences"] == {}


def test_statistics_of_a_simulation(model):
    with open_context(model, "mujoco_batch", cameras=()) as sim:
        sim.step()
        counts = {"divergences": {}, "dropped_turns": 0, "dropped_snapshots": 0}
        assert sim.stats() == {"steps": 1, "simulation_time_ns": 10_000_000, **counts, "render": None}
    with pytest.raises(RuntimeError, match="closed"):
        sim.stats()


def test_what_is_blank_is_not_logged_turn_by_turn(model, caplog):
    with caplog.at_level(logging.DEBUG, "scene_data"), open_context(model, "mujoco_warp", ENVS) as sim:
        make_nan(sim, 1)
        planes(sim)
        caplog.clear()
        for _ in range(3):
            sim.step()
            planes(sim)
        assert caplog.messages == []
