"""What each render backend shows of looks that environments differ in: the right pixels, and no others."""

import numpy as np
import pytest
from looks import (
    BACKENDS,
    BALL,
    BALL_RADIUS,
    BOX,
    BOX_SIZE,
    DISTANCE,
    HEIGHT,
    NUM_ENVS,
    assert_same,
    ball_depth,
    box_mask,
    changed,
    seen,
    shoot,
    sims,
)

from scene_data import SimulationContext, registry
from scene_data.appearance import Randomization

sim_of_backend = pytest.fixture(scope="module", params=BACKENDS)(sims)


@pytest.fixture
def sim(sim_of_backend: SimulationContext) -> SimulationContext:
    sim_of_backend.appearance.reset()
    sim_of_backend.reset()
    return sim_of_backend


def needs(sim: SimulationContext, kind: Randomization) -> None:
    backend = registry.renderers.get(sim.cfg.render_backend)
    if kind not in backend.supported_randomizations:
        pytest.skip(f"{sim.cfg.render_backend} does not show {kind.value}")


def is_traced(sim: SimulationContext) -> bool:
    return sim.cfg.render_backend != "mujoco_gl"


def upper_half() -> np.ndarray:
    """Rows (H, 1) that see above the middle of both parts, without the two at the middle."""
    return (np.arange(HEIGHT) < HEIGHT // 2 - 1)[:, None]


def lower_half() -> np.ndarray:
    return upper_half()[::-1]


def test_the_scene_is_what_the_tests_take_it_for(sim):
    frames = shoot(sim)
    for env in range(NUM_ENVS):
        np.testing.assert_array_equal(seen(frames)[env] == BOX, box_mask())
        ball = seen(frames)[env] == BALL
        assert (ball & np.isfinite(ball_depth())).sum() > 0.95 * max(ball.sum(), np.isfinite(ball_depth()).sum())


class TestColors:
    def test_of_a_material_show_on_what_has_no_colour_of_its_own(self, sim):
        before = shoot(sim)
        sim.appearance.set_material_colors((0.8, 0.0, 0.4), "paint", env_ids=[1])
        after = shoot(sim)
        differs = changed(before, after, "rgb")
        np.testing.assert_array_equal(differs[1], seen(before)[1] == BOX)
        assert not differs[[0, 2]].any()
        assert_same(before, after, "depth", "segmentation")
        box = seen(before)[1] == BOX
        np.testing.assert_array_equal(after["rgb"][1, box][:, [0, 2]], before["rgb"][1, box][:, [0, 2]])
        assert not after["rgb"][1, box, 1].any()

    def test_of_a_shape_take_the_place_of_its_material_s(self, sim):
        before = shoot(sim)
        sim.appearance.set_shape_colors([[0.1, 0.2, 0.9, 1.0], [0.4, 0.3, 0.2, 1.0]], ["ball", "box"], env_ids=[2])
        after = shoot(sim)
        differs = changed(before, after, "rgb")
        np.testing.assert_array_equal(differs[2] & box_mask(), box_mask())
        assert not (differs[2] & (seen(before)[2] < 0)).any()
        assert not differs[:2].any()
        if sim.cfg.render_backend != "newton":  # half the colour is half the light; Newton's frames are not linear
            halved = before["rgb"][2, box_mask()] / 2
            np.testing.assert_allclose(after["rgb"][2, box_mask()], halved, atol=0.51)
        sim.appearance.set_material_colors((0, 0, 0), env_ids=[2])
        np.testing.assert_array_equal(shoot(sim)["rgb"], after["rgb"])

    def test_can_be_the_grey_that_mujoco_takes_for_none(self, sim):
        sim.appearance.set_shape_colors((0.5, 0.5, 0.5, 1.0), "box", env_ids=[0])
        box = shoot(sim)["rgb"][0, box_mask()]
        assert (box.max(axis=1) - box.min(axis=1) <= 1).all()
        assert (box > 50).all()

    def test_differ_in_each_environment(self, sim):
        colors = np.eye(3)
        sim.appearance.set_shape_colors(colors, "ball")
        frames = shoot(sim)
        for env in range(NUM_ENVS):
            ball = frames["rgb"][env, (seen(frames)[env] == BALL) & upper_half()].astype(int)
            np.testing.assert_array_equal(ball.argmax(axis=1), env)

    def test_given_back_are_the_model_s(self, sim):
        before = shoot(sim)
        sim.appearance.set_material_colors((0, 1, 0))
        sim.appearance.set_shape_colors((0, 0, 1), "ball")
        dressed = shoot(sim)
        sim.appearance.reset([0, 2])
        after = shoot(sim)
        np.testing.assert_array_equal(after["rgb"][[0, 2]], before["rgb"][[0, 2]])
        np.testing.assert_array_equal(after["rgb"][1], dressed["rgb"][1])
        sim.appearance.reset()
        assert_same(before, shoot(sim))


def test_what_is_transparent_altogether_is_not_seen(sim):
    needs(sim, Randomization.OPACITY)
    before = shoot(sim)
    sim.appearance.set_shape_colors((1, 1, 1, 0), "box", env_ids=[1])
    after = shoot(sim)
    assert (seen(after)[1][box_mask()] == -1).all()
    assert np.isinf(after["depth"][1, box_mask()]).all()
    for kind in before:
        np.testing.assert_array_equal(changed(before, after, kind)[1], box_mask())
        np.testing.assert_array_equal(after[kind][[0, 2]], before[kind][[0, 2]])


class TestTextures:
    def test_cover_what_is_made_of_the_material(self, sim):
        needs(sim, Randomization.TEXTURES)
        before = shoot(sim)
        sim.appearance.set_textures(["red", None, "blue"], "paint")
        after = shoot(sim)
        assert_same(before, after, "depth", "segmentation")
        np.testing.assert_array_equal(after["rgb"][1], before["rgb"][1])
        for env, kept in ((0, 0), (2, 2)):
            shown = seen(before)[env] >= 0
            expected = np.where(np.arange(3) == kept, before["rgb"][env, shown], 0)
            np.testing.assert_allclose(after["rgb"][env, shown].astype(int), expected, atol=1)
            np.testing.assert_array_equal(after["rgb"][env, ~shown], before["rgb"][env, ~shown])


class TestSizes:
    def test_of_a_box_are_exact(self, sim):
        before = shoot(sim)
        sizes = np.array([(0.15, 0.2, 0.4), BOX_SIZE, (0.45, 0.1, 0.1)])
        sim.appearance.set_shape_sizes(sizes, "box")
        after = shoot(sim)
        for env, size in enumerate(sizes):
            mask = box_mask(size)
            np.testing.assert_array_equal(seen(after)[env] == BOX, mask)
            np.testing.assert_allclose(after["depth"][env, mask], DISTANCE - size[1], rtol=1e-4)
            either = mask | box_mask()
            for kind in before:
                assert not (changed(before, after, kind)[env] & ~either).any()
        np.testing.assert_array_equal(after["rgb"][1], before["rgb"][1])

    @pytest.mark.parametrize("radius", [0.15, 0.6])
    def test_of_a_ball_follow_the_bounding_volumes(self, sim, radius):
        before = shoot(sim)
        sim.appearance.set_shape_sizes((radius, 0, 0), "ball", env_ids=[0])
        after = shoot(sim)
        depth = ball_depth(radius)
        ball, expected = seen(after)[0] == BALL, np.isfinite(depth) & ~box_mask()
        if is_traced(sim):
            np.testing.assert_array_equal(ball, expected)
            np.testing.assert_allclose(after["depth"][0, ball, 0], depth[ball], rtol=1e-3)  # rays graze the edge
        else:  # OpenGL draws polyhedra
            assert (ball & expected).sum() > 0.93 * (ball | expected).sum()
            assert np.median(np.abs(after["depth"][0, ball & expected, 0] - depth[ball & expected])) < 0.02
        for kind in before:
            np.testing.assert_array_equal(after[kind][1:], before[kind][1:])
        sim.appearance.set_shape_sizes((BALL_RADIUS, 0, 0), "ball", env_ids=[0])
        assert_same(before, shoot(sim))


class TestLights:
    @pytest.fixture(autouse=True)
    def supported(self, sim):
        needs(sim, Randomization.LIGHT_DIRECTIONS)

    def assert_lit_from_above(self, before, after, env):
        """Light that comes from straight above reaches the upper half of the ball and not the front of the box."""
        ball = seen(before)[env] == BALL
        assert (after["rgb"][env, ball & upper_half()] > 0).any(axis=-1).all()
        assert not after["rgb"][env, (ball & lower_half()) | box_mask()].any()
        assert_same(before, after, "depth", "segmentation")
        others = np.arange(NUM_ENVS) != env
        np.testing.assert_array_equal(after["rgb"][others], before["rgb"][others])

    def test_shine_in_their_direction(self, sim):
        before = shoot(sim)
        sim.appearance.set_light_directions((0, 0, -2), "sun", env_ids=[1])
        self.assert_lit_from_above(before, shoot(sim), 1)

    def test_stand_where_they_were_put(self, sim):
        sim.appearance.set_lights_active([False, True], ["sun", "lamp"])
        before = shoot(sim)
        sim.appearance.set_light_positions((1, 0, 40), "lamp", env_ids=[2])
        self.assert_lit_from_above(before, shoot(sim), 2)

    def test_follow_the_engine_again_when_given_back(self, sim):
        before = shoot(sim)
        sim.appearance.set_light_directions((0, 0, -1))
        sim.appearance.set_light_positions((0, 0, 9))
        sim.appearance.reset()
        assert_same(before, shoot(sim))

    def test_have_their_colour_where_they_shine(self, sim):
        sim.appearance.set_light_directions((0, 0, -1), "sun")
        before = shoot(sim)
        sim.appearance.set_light_colors((0.4, 0, 0.8), "sun", env_ids=[0])
        after = shoot(sim)
        assert_same(before, after, "depth", "segmentation")
        np.testing.assert_allclose(after["rgb"][0], before["rgb"][0] * np.array([0.5, 0, 1]), atol=0.51)
        np.testing.assert_array_equal(after["rgb"][1:], before["rgb"][1:])
        assert not (changed(before, after, "rgb")[0] & ~((seen(before)[0] == BALL) & ~lower_half())).any()

    def test_add_their_ambient_light_everywhere(self, sim):
        sim.appearance.set_light_directions((0, 0, -1), "sun")
        sim.appearance.set_light_colors(lights="sun", ambient=(0.25, 0.25, 0.25), env_ids=[1])
        after = shoot(sim)
        expected = 255 * 0.25 * np.array([0.8, 0.6, 0.4])
        np.testing.assert_allclose(after["rgb"][1, box_mask()], np.tile(expected, (box_mask().sum(), 1)), atol=1)
        assert not after["rgb"][0, box_mask()].any()

    def test_can_be_put_out_and_lit(self, sim):
        before = shoot(sim)
        sim.appearance.set_lights_active([[False], [True], [False]], ["sun"])
        after = shoot(sim)
        assert not after["rgb"][[0, 2]].any()
        assert_same(before, after, "depth", "segmentation")
        np.testing.assert_array_equal(after["rgb"][1], before["rgb"][1])
        sim.appearance.set_lights_active(True, "lamp", env_ids=[2])
        assert (shoot(sim)["rgb"][2, box_mask()] > 0).any(axis=-1).all()


SETTERS = {
    Randomization.MATERIAL_COLORS: lambda looks: looks.set_material_colors((0, 0, 0)),
    Randomization.SHAPE_COLORS: lambda looks: looks.set_shape_colors((0, 0, 0)),
    Randomization.OPACITY: lambda looks: looks.set_shape_colors((0, 0, 0, 0)),
    Randomization.TEXTURES: lambda looks: looks.set_textures("red"),
    Randomization.SHAPE_SIZES: lambda looks: looks.set_shape_sizes((1, 1, 1), "box"),
    Randomization.LIGHT_POSITIONS: lambda looks: looks.set_light_positions((0, 0, 1)),
    Randomization.LIGHT_DIRECTIONS: lambda looks: looks.set_light_directions((0, 0, 1)),
    Randomization.LIGHT_COLORS: lambda looks: looks.set_light_colors((0, 0, 1)),
    Randomization.LIGHT_SWITCHES: lambda looks: looks.set_lights_active(False),
}


class TestSupport:
    @pytest.mark.parametrize("kind", Randomization)
    def test_is_what_the_backend_says(self, sim, kind):
        set_it, name = SETTERS[kind], sim.cfg.render_backend
        if kind in registry.renderers.get(name).supported_randomizations:
            set_it(sim.appearance)
            return
        before = sim.appearance.state
        with pytest.raises(ValueError, match=f"'{name}' cannot change {kind.value} at run time; .*: mujoco_gl, muj"):
            set_it(sim.appearance)
        assert sim.appearance.state is before
