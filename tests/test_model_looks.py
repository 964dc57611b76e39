"""Looks that the engine's own model has for each environment, as mjlab's randomization writes them."""

from typing import Any

import numpy as np
import pytest
import warp as wp
from gl_drivers import DRIVERS
from looks import BALL, BOX, assert_same, ball_depth, box_mask, changed, open_sim, seen, shoot

from scene_data import SimulationContext
from scene_data.extra_geometry import GeometryBatch
from scene_data.renderers import SnapshotPool

pytest.importorskip("torch")

BACKENDS = ("mujoco_warp", pytest.param("mujoco_gl", marks=pytest.mark.skipif(not DRIVERS["egl"], reason="needs EGL")))


@pytest.fixture(scope="module", params=BACKENDS)
def shared_sim(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUJOCO_GL", "egl")
        with open_sim(request.param, engine="mujoco_warp") as sim:
            yield sim


@pytest.fixture
def sim(shared_sim):
    """The model's fields are the same for all again afterwards."""
    model = shared_sim.physics.warp_model
    before = dict(vars(model))
    yield shared_sim
    vars(model).update(before)
    shared_sim.appearance.reset()


def expand(sim: SimulationContext, field: str) -> np.ndarray:
    """Give a field of the engine's model an entry for each environment; what is written to it is seen by the engine."""
    model: Any = sim.physics.warp_model
    shared = getattr(model, field)
    own = wp.array(np.repeat(shared.numpy(), sim.num_envs, axis=0), dtype=shared.dtype, device="cpu")
    setattr(model, field, own)
    return own.numpy()


def test_colours_of_geoms_and_materials_show(sim):
    before = shoot(sim)
    geoms, materials = expand(sim, "geom_rgba"), expand(sim, "mat_rgba")
    assert_same(before, shoot(sim))
    geoms[1, BALL] = (0.0, 0.9, 0.0, 1.0)
    materials[2, 0] = (0.0, 0.6, 0.4, 1.0)
    after = shoot(sim)
    differs = changed(before, after, "rgb")
    assert not differs[0].any()
    assert not (differs[1] & (seen(before)[1] != BALL)).any()
    assert differs[1].any()
    np.testing.assert_array_equal(differs[2], seen(before)[2] == BOX)
    assert not after["rgb"][2, box_mask(), 0].any()
    assert_same(before, after, "depth", "segmentation")


def test_sizes_and_lights_show(sim):
    before = shoot(sim)
    sizes, colors, switches = expand(sim, "geom_size"), expand(sim, "light_diffuse"), expand(sim, "light_active")
    sizes[0, BALL, 0] = 0.2
    colors[1, 0] = (0.4, 0.4, 0.4)
    switches[2] = False
    after = shoot(sim)
    expected = np.isfinite(ball_depth(0.2))
    assert (seen(after)[0] == BALL).sum() == pytest.approx(expected.sum(), rel=0.1)
    np.testing.assert_allclose(after["rgb"][1], before["rgb"][1] / 2, atol=0.51)
    assert not after["rgb"][2].any()


def test_textures_show(sim):
    before = shoot(sim)
    expand(sim, "mat_texid")[1, 0, 1] = 0  # red
    after = shoot(sim)
    assert not after["rgb"][1][..., 1:].any()
    np.testing.assert_array_equal(after["rgb"][[0, 2]], before["rgb"][[0, 2]])


def test_snapshots_have_copies(sim):
    geoms = expand(sim, "geom_rgba")
    pool = SnapshotPool()
    pool.activate(sim.provider, 1)
    snapshot = pool.acquire(sim.provider, 1).snapshot
    before = geoms.copy()
    geoms[:] = 0.0
    assert snapshot.model_looks.keys() == {"geom_rgba"}
    np.testing.assert_array_equal(snapshot.model_looks["geom_rgba"].numpy(), before)
    snapshot.release()
    np.testing.assert_array_equal(pool.acquire(sim.provider, 1).snapshot.model_looks["geom_rgba"].numpy(), geoms)


def test_what_is_set_takes_their_place_and_gives_it_back(sim):
    geoms = expand(sim, "geom_rgba")
    geoms[:, BALL] = (0.0, 0.9, 0.0, 1.0)
    green = shoot(sim)
    sim.appearance.set_shape_colors((0.9, 0.0, 0.0), "ball")
    geoms[:, BALL] = (0.0, 0.0, 0.9, 1.0)
    red = shoot(sim)
    assert not red["rgb"][..., 2][seen(red) == BALL].any()
    assert red["rgb"][..., 0][seen(red) == BALL].any()
    sim.appearance.reset()
    geoms[:, BALL] = (0.0, 0.9, 0.0, 1.0)
    assert_same(green, shoot(sim))


def test_fields_that_are_shared_again_are_the_model_s(sim):
    before = shoot(sim)
    shared = sim.physics.warp_model.geom_rgba
    expand(sim, "geom_rgba")[:, BALL] = (0, 0, 0, 1)
    assert changed(before, shoot(sim), "rgb").any()
    sim.physics.warp_model.geom_rgba = shared
    assert_same(before, shoot(sim))


def test_they_go_together_with_extra_geometry(sim):
    geoms = expand(sim, "geom_rgba")
    geoms[1, BALL] = (0.0, 0.9, 0.0, 1.0)
    before = shoot(sim)

    def draw() -> GeometryBatch:
        return GeometryBatch.spheres([(-0.8, 0, 1)], 0.2, rgba=(1, 1, 1))

    sim.add_geometry_source(draw)
    extra = shoot(sim)
    sim.remove_geometry_source(draw)
    drawn = extra["segmentation"][..., 1] == 0
    assert drawn.any(axis=(1, 2)).all()
    np.testing.assert_array_equal(extra["rgb"][~drawn], before["rgb"][~drawn])
