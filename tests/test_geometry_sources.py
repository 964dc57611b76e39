"""Geometry sources of a simulation: when they are asked, what the frames show, and what happens when they fail."""

import mujoco
import numpy as np
import pytest
from test_simulation import TOP, XML, open_context, write_qpos

from scene_data.camera import CameraCfg, VisualOptions
from scene_data.errors import UnknownNameError
from scene_data.extra_geometry import GeometryBatch
from scene_data.renderers.render_core.status import FrameStatusCode

UNKNOWN = int(mujoco.mjtObj.mjOBJ_UNKNOWN)
MODES = ("synchronous", "pipelined", "free_running")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def extra_pixels(sim, name: str = "top") -> np.ndarray:
    """How many pixels of each environment show extra geometry."""
    segmentation = sim.cameras[name].data.lease("segmentation").numpy()
    return ((segmentation[..., 1] == UNKNOWN) & (segmentation[..., 0] >= 0)).sum(axis=(1, 2))


def ball(envs=None, x: float = 0.0) -> GeometryBatch:
    return GeometryBatch.spheres((x, 0, 1.5), 0.2, rgba=(0, 1, 0), envs=envs)


@pytest.mark.parametrize("engine", ["mujoco_batch", "mujoco_warp"])
def test_a_source_is_asked_once_per_turn_and_sees_the_present_state(model, engine):
    calls = []
    with open_context(model, engine, cameras=(TOP, CameraCfg("side", 16, 12, ("segmentation",)))) as sim:

        def follow() -> GeometryBatch:
            slab = sim.provider.backend.get_transforms(None).positions.numpy().reshape(2, -1, 3)[:, 1]
            calls.append(slab[:, 0].copy())
            return GeometryBatch.spheres(slab + np.array([0, 0, 1]), 0.1, envs=[0, 1])

        for camera in sim.cameras.values():  # from now on they share turns
            camera.data  # noqa: B018
        turns = sim.render_core.stats()["turns"]
        sim.add_geometry_source(follow)
        write_qpos(sim, engine, [0.4, -0.4])
        data, _ = sim.cameras["top"].data, sim.cameras["side"].data
        # MuJoCo Warp's state cannot be compared without waiting for it, so there each read is a turn of its own.
        assert len(calls) == sim.render_core.stats()["turns"] - turns == (2 if engine == "mujoco_warp" else 1)
        np.testing.assert_allclose(calls[0], [0.4, -0.4], atol=1e-6)
        seen = data.lease("segmentation").numpy()[..., 1] == UNKNOWN
        columns = [np.nonzero(env)[1].mean() + 0.5 for env in seen]
        # 1.5 m below the camera a metre is 12 / tan(30 degrees) / 1.5 pixels.
        np.testing.assert_allclose(columns, 16 + np.array([0.4, -0.4]) * 12 / np.tan(np.radians(30)) / 1.5, atol=0.6)


def test_adding_and_removing_shows_in_the_next_frame(model):
    with open_context(model) as sim:
        np.testing.assert_array_equal(extra_pixels(sim), 0)
        source = lambda: ball(envs=1)  # noqa: E731
        sim.add_geometry_source(source)
        before = sim.cameras["top"].data
        assert extra_pixels(sim)[0] == 0 < extra_pixels(sim)[1]
        assert sim.cameras["top"].data is before
        sim.remove_geometry_source(source)
        np.testing.assert_array_equal(extra_pixels(sim), 0)


def test_what_follows_from_nothing_is_announced(model):
    where = [0.0]
    with open_context(model) as sim:
        sim.add_geometry_source(lambda: ball(x=where[0]))
        first = sim.cameras["top"].data
        where[0] = 5.0
        assert sim.cameras["top"].data is first
        sim.forward()
        np.testing.assert_array_equal(extra_pixels(sim), 0)


def test_a_camera_can_leave_it_out(model):
    blind = VisualOptions(shadows=False, textures=False, skybox=False, extra_geometry=False)
    side = CameraCfg("side", 32, 24, ("segmentation",), options=blind)
    with open_context(model, cameras=(TOP, side)) as sim:
        sim.add_geometry_source(ball)
        assert (extra_pixels(sim) > 0).all()
        np.testing.assert_array_equal(extra_pixels(sim, "side"), 0)


@pytest.mark.parametrize("mode", MODES)
def test_what_does_not_fit_is_an_error_that_says_so_and_heals(model, mode, caplog):
    many = [3]
    with open_context(model, render_mode=mode, extra_geometry_capacity={"sphere": 3}) as sim:
        sim.add_geometry_source(lambda: GeometryBatch.spheres(np.tile([0, 0, 1.5], (many[0], 1)), 0.1, envs=1))
        sim.step()
        assert extra_pixels(sim)[1] > 0
        many[0] = 4
        sim.step()
        sim.step()
        with pytest.raises(RuntimeError, match="4 of type 'sphere' in environment 1, where .* room for 3") as error:
            sim.cameras["top"].data  # noqa: B018
        assert error.value.status.code is FrameStatusCode.GENERATION_CAPACITY_EXHAUSTED
        assert [record.levelname for record in caplog.records] == ["ERROR"]  # once, not once per step
        assert sim.render_core.status.ok
        many[0] = 2
        sim.step()
        assert extra_pixels(sim)[1] > 0


def test_a_type_without_room_is_named(model):
    with open_context(model, extra_geometry_capacity={"sphere": 3}) as sim:
        sim.add_geometry_source(lambda: GeometryBatch.boxes((0, 0, 1), (1, 1, 1)))
        with pytest.raises(RuntimeError, match="1 of type 'box' in environment 0, where there is room for 0"):
            sim.cameras["top"].data  # noqa: B018


@pytest.mark.parametrize("mode", MODES)
def test_a_source_that_raises_is_named_and_physics_goes_on(model, mode):
    def broken() -> GeometryBatch:
        raise KeyError("goal")

    with open_context(model, render_mode=mode) as sim:
        sim.add_geometry_source(broken, "goals")
        for _ in range(3):
            sim.step()
        with pytest.raises(RuntimeError, match="The geometry source 'goals' failed: KeyError: 'goal'") as error:
            sim.cameras["top"].data  # noqa: B018
        assert error.value.status.code is FrameStatusCode.FRAME_UNAVAILABLE
        sim.remove_geometry_source(broken)
        sim.step()
        np.testing.assert_array_equal(extra_pixels(sim), 0)


def test_sources_stay_over_a_reload(model):
    with open_context(model) as sim:
        sim.add_geometry_source(ball)
        assert (extra_pixels(sim) > 0).all()
        sim.reload(model)
        assert (extra_pixels(sim) > 0).all()


def test_an_unused_source_costs_no_slot(model):
    with open_context(model) as sim:
        sim.add_geometry_source(list)
        np.testing.assert_array_equal(extra_pixels(sim), 0)
        backend = sim.render_core._host.backend
        assert backend._model.slots.count == 0
        sim.add_geometry_source(ball)
        extra_pixels(sim)
        assert backend._model.slots.count == 5 * 32


def test_a_render_backend_that_draws_none_is_refused(model, monkeypatch):
    from scene_data.renderers import MujocoWarpRenderBackend

    monkeypatch.setattr(MujocoWarpRenderBackend, "draws_extra_geometry", False)
    with open_context(model) as sim, pytest.raises(ValueError, match="'mujoco_warp' has no extra geometry"):
        sim.add_geometry_source(ball)


def test_a_capacity_that_is_none_is_refused(model):
    with pytest.raises(UnknownNameError, match="primitive 'cone'"):
        open_context(model, extra_geometry_capacity={"cone": 3})
