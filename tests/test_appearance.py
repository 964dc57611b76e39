"""The looks of environments as users set them: when they show, for whom, how they are named, and what is refused."""

import mujoco
import numpy as np
import pytest
import warp as wp
from looks import BALL, BOX, FRONT, NUM_ENVS, XML, assert_same, box_mask, changed, open_sim, seen, shoot

from scene_data import SceneDataProvider, SimulationCfg, SimulationContext
from scene_data.appearance import Appearance
from scene_data.appearance_state import NOTHING_SET
from scene_data.backends import MujocoPhysicsCfg, MujocoSceneDataBackend
from scene_data.backends.mjcf_scene import describe_model
from scene_data.camera import CameraCfg
from scene_data.errors import UnknownNameError
from scene_data.extra_geometry import GeometryBatch
from scene_data.renderers import CameraGroup

torch = pytest.importorskip("torch")

GREEN = (0.0, 1.0, 0.0)


@pytest.fixture(scope="module")
def shared_sim():
    with open_sim() as sim:
        yield sim


@pytest.fixture
def sim(shared_sim):
    shared_sim.appearance.reset()
    return shared_sim


@pytest.fixture
def looks() -> Appearance:
    """Looks that nobody draws: two environments of a scene with parts of every kind."""
    model = mujoco.MjModel.from_xml_string(
        """
        <mujoco>
          <asset>
            <material name="steel" rgba="0.1 0.2 0.3 1"/><material name="brass"/>
            <texture name="wood" type="2d" builtin="flat" width="4" height="4"/>
            <texture name="sky" type="skybox" builtin="flat" width="4" height="24"/>
            <mesh name="tip" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/>
          </asset>
          <worldbody>
            <light name="sun"/>
            <geom name="floor" type="plane" size="1 1 .1"/>
            <body name="arm">
              <geom name="own" type="sphere" size=".1" material="steel" rgba="1 0 0 1"/>
              <geom type="capsule" size=".1 .2" material="steel"/>
              <geom name="tip" type="mesh" mesh="tip" material="brass"/>
            </body>
          </worldbody>
        </mujoco>
        """
    )
    scene = describe_model(model, 2)
    return Appearance(lambda: scene)


class TestWhen:
    def test_the_next_read_shows_it_and_held_frames_stay(self, sim):
        held = sim.cameras["front"].data
        copy = held["rgb"].clone()
        sim.appearance.set_shape_colors(GREEN, "box")
        assert sim.cameras["front"].data is not held
        assert torch.equal(held["rgb"], copy)
        assert (sim.cameras["front"].data["rgb"] != copy).any()

    def test_a_read_without_a_change_is_the_same_frame(self, sim):
        sim.appearance.set_shape_colors(GREEN, "box")
        first = sim.cameras["front"].data
        assert sim.cameras["front"].data is first
        sim.appearance.reset()
        assert sim.cameras["front"].data is not first

    def test_an_update_period_is_cut_short(self):
        slow = CameraCfg("front", 16, 12, ("rgb",), options=FRONT.options, update_period=10.0)
        with open_sim(cameras=(slow,)) as sim:
            before = sim.cameras["front"].data["rgb"]
            sim.step()
            assert sim.cameras["front"].data["rgb"] is before
            sim.appearance.set_shape_colors(GREEN)
            assert (sim.cameras["front"].data["rgb"] != before).any()

    def test_a_turn_in_flight_keeps_what_it_began_with(self):
        with open_sim(render_mode="pipelined") as sim:
            sim.step()
            sim.step()
            before = shoot(sim)["rgb"]
            sim.step()  # its turn is under way now
            sim.appearance.set_shape_colors(GREEN)
            sim.step()
            assert sim.cameras["front"].lag == 1
            np.testing.assert_array_equal(shoot(sim)["rgb"], before)
            sim.step()
            assert (shoot(sim)["rgb"] != before).any()

    def test_free_running_turns_are_of_one_look_or_the_other(self):
        with open_sim(render_mode="free_running") as sim:
            before = shoot(sim)["rgb"]
            sim.appearance.set_shape_colors(GREEN)
            shown = set()
            for _ in range(6):
                sim.step()
                sim.render_core.finish_or_cancel_render_turn()
                rgb = shoot(sim)["rgb"]
                is_old = np.array_equal(rgb, before)
                assert is_old or (rgb[box(rgb.shape)][:, [0, 2]] == 0).all()
                shown.add(is_old)
            assert False in shown

    def test_resets_of_the_physics_leave_it(self, sim):
        sim.appearance.set_shape_colors(GREEN, "box")
        before = shoot(sim)
        sim.reset()
        sim.reset(env_ids=[1])
        assert_same(before, shoot(sim))

    def test_another_model_begins_with_its_own_looks(self):
        with open_sim() as sim:
            before = shoot(sim)
            looks = sim.appearance
            looks.set_shape_colors(GREEN, "box")
            sim.reload(sim.cfg.physics.model)
            assert sim.appearance is looks
            assert looks.state is NOTHING_SET
            assert_same(before, shoot(sim))
            looks.set_shape_colors(GREEN, "ball", [0])
            np.testing.assert_array_equal(changed(before, shoot(sim), "rgb")[0] & box_mask(), np.zeros_like(box_mask()))

    def test_nothing_is_launched_where_nothing_is_set(self, sim, monkeypatch):
        def launches() -> list[str]:
            launched = []
            launch = wp.launch
            with monkeypatch.context() as patch:
                patch.setattr(
                    wp, "launch", lambda kernel, *a, **k: launched.append(kernel.key) or launch(kernel, *a, **k)
                )
                patch.setattr(wp, "copy", None)
                sim.forward()
                sim.cameras["front"].data  # noqa: B018
            return sorted(launched)

        sim.forward()
        sim.cameras["front"].data  # noqa: B018
        unset = launches()
        sim.appearance.set_shape_colors(GREEN, "box")
        sim.cameras["front"].data  # noqa: B018
        assert launches() == unset
        sim.appearance.set_light_positions((0, 0, 3), "lamp")
        sim.cameras["front"].data  # noqa: B018
        assert len(launches()) > len(unset)
        sim.appearance.reset()
        sim.cameras["front"].data  # noqa: B018
        assert launches() == unset


def box(shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(box_mask(), shape[:3])


class TestInLoopsOfOnesOwn:
    def test_a_group_of_cameras_has_looks_too(self):
        model = mujoco.MjModel.from_xml_string(XML)
        provider = SceneDataProvider(MujocoSceneDataBackend(model, mujoco.MjData(model)))
        with CameraGroup([FRONT], provider) as cameras:
            before = cameras["front"].data["rgb"].clone()
            cameras.appearance.set_shape_colors(GREEN, "box")
            after = cameras["front"].data["rgb"]
            np.testing.assert_array_equal((after != before).any(-1)[0].numpy(), box_mask())

    def test_a_group_refuses_what_its_render_backend_cannot_show(self):
        model = mujoco.MjModel.from_xml_string(XML)
        provider = SceneDataProvider(MujocoSceneDataBackend(model, mujoco.MjData(model)))
        refused = pytest.raises(ValueError, match="'newton' cannot change textures at run time")
        with CameraGroup([FRONT], provider, render_backend="newton") as cameras, refused:
            cameras.appearance.set_textures("red")


class TestWithExtraGeometry:
    def test_looks_and_extra_geometry_share_the_fields_of_geoms(self):
        with open_sim() as sim:
            sim.appearance.set_shape_colors(GREEN, "box", [1])
            sim.appearance.set_shape_sizes((0.1, 0.1, 0.1), "box", [2])
            dressed = shoot(sim)

            def draw() -> GeometryBatch:
                return GeometryBatch.spheres([(-0.8, 0, 1)], 0.2, rgba=(1, 1, 1))

            sim.add_geometry_source(draw)
            extra = shoot(sim)
            drawn = extra["segmentation"][..., 1] == 0
            assert drawn.any(axis=(1, 2)).all()
            for kind in dressed:
                np.testing.assert_array_equal(extra[kind][~drawn], dressed[kind][~drawn])
            sim.appearance.reset()
            plain = shoot(sim)
            sim.remove_geometry_source(draw)
            bare = shoot(sim)
            for kind in bare:
                np.testing.assert_array_equal(plain[kind][~drawn], bare[kind][~drawn])
            np.testing.assert_array_equal(seen(bare)[1] == BOX, box_mask())


class TestSelection:
    @pytest.mark.parametrize(
        "env_ids",
        [
            [2, 0],
            np.array([2, 0]),
            torch.tensor([2, 0]),
            wp.array([2, 0], dtype=int, device="cpu"),
            slice(None, None, -2),
        ],
    )
    def test_environments_come_in_any_form(self, sim, env_ids):
        before = shoot(sim)
        sim.appearance.set_shape_colors(torch.tensor([[1.0, 0, 0], [0, 0, 1.0]]), "box", env_ids)
        after = shoot(sim)
        np.testing.assert_array_equal(after["rgb"][1], before["rgb"][1])
        assert after["rgb"][2, box_mask(), 0].all()
        assert not after["rgb"][2, box_mask(), 2].any()
        assert after["rgb"][0, box_mask(), 2].all()
        assert not after["rgb"][0, box_mask(), 0].any()

    def test_parts_go_by_name_path_or_index(self, looks):
        for name in ("own", "arm/own", 1, np.int64(1)):
            looks.reset()
            looks.set_shape_colors(GREEN, name)
            np.testing.assert_array_equal(looks.state.shape_colors[:, 1], [(*GREEN, 1)] * 2)
            np.testing.assert_array_equal(looks.state.shape_colors[:, 0], [(0.5, 0.5, 0.5, 1)] * 2)

    def test_values_are_shared_or_each_has_its_own(self, looks):
        one, four = (0.1, 0.2, 0.3, 1.0), np.arange(16).reshape(2, 2, 4) / 16
        four[..., 3] = 1.0
        for names, values, expected in (
            (None, one, [[one] * 2] * 2),
            ("brass", one, [[(0.1, 0.2, 0.3, 1), one]] * 2),
            ("brass", four[0], [[(0.1, 0.2, 0.3, 1), four[0, 0]], [(0.1, 0.2, 0.3, 1), four[0, 1]]]),
            (["brass", "steel"], four[1], [four[1, ::-1]] * 2),
            (["brass", "steel"], four, four[:, ::-1]),
        ):
            looks.reset()
            looks.set_material_colors(values, names)
            np.testing.assert_allclose(looks.state.material_colors, expected, rtol=1e-6)

    def test_shapes_with_a_colour_of_their_own_do_not_follow_their_material(self, looks):
        looks.set_material_colors(GREEN, "steel", [1])
        np.testing.assert_array_equal(looks.state.shape_colors[:, 1], [(1, 0, 0, 1)] * 2)
        np.testing.assert_allclose(looks.state.shape_colors[:, 2], [(0.1, 0.2, 0.3, 1), (*GREEN, 1)])

    def test_a_scene_may_have_materials_and_no_shapes(self):
        model = mujoco.MjModel.from_xml_string('<mujoco><asset><material name="m"/></asset></mujoco>')
        scene = describe_model(model, 2)
        looks = Appearance(lambda: scene)
        looks.set_material_colors(GREEN, "m", [1])
        looks.set_shape_colors(GREEN)
        assert looks.state.shape_colors.shape == (2, 0, 4)

    def test_lights_are_told_apart_by_what_is_set_about_them(self, looks):
        looks.set_light_colors((1, 2, 3), specular=(0, 0, 0), env_ids=[0])
        assert looks.state.light_ambient is None
        np.testing.assert_allclose(looks.state.light_diffuse[:, 0], [(1, 2, 3), (0.7, 0.7, 0.7)])
        np.testing.assert_allclose(looks.state.light_specular[:, 0], [(0, 0, 0), (0.3, 0.3, 0.3)])
        looks.set_light_directions((0, 0, -5), "sun", [1])
        np.testing.assert_allclose(looks.state.light_directions[:, 0], [[np.nan] * 3, (0, 0, -1)])

    def test_states_share_what_did_not_change_and_are_never_written_to(self, looks):
        looks.set_material_colors(GREEN)
        first = looks.state
        looks.set_light_positions((0, 0, 1))
        assert looks.state.shape_colors is first.shape_colors
        with pytest.raises(ValueError, match="read-only"):
            first.shape_colors[:] = 0
        looks.set_material_colors((0, 0, 0))
        np.testing.assert_array_equal(first.material_colors[..., 1], 1)


class TestRefusals:
    @pytest.mark.parametrize(
        ("setter", "arguments", "message"),
        [
            ("set_material_colors", (GREEN, "stele"), "Unknown material 'stele'. Known: steel, brass."),
            ("set_shape_colors", (GREEN, ["own", 9]), "Unknown shape 9. Known: floor, own, arm/shape_1, tip."),
            ("set_light_positions", ((0, 0, 1), "moon"), "Unknown light 'moon'. Known: sun."),
            ("set_textures", ("oak", "steel"), "Unknown texture 'oak'. Known: wood, sky."),
            ("set_textures", ("sky", "steel"), "texture 'sky' is the sky and covers no material"),
            ("set_material_colors", ((1, 1), "steel"), r"colours must have shape \(4,\) or \(2, 4\), got \(2,\)"),
            (
                "set_material_colors",
                (np.zeros((3, 3)),),
                r"must have shape \(3,\) or \(2, 3\) or \(2, 2, 3\), got \(3, 3",
            ),
            ("set_lights_active", ([True] * 3, "sun"), r"active must have shape \(\) or \(2,\), got \(3,\)"),
            ("set_material_colors", ((2, 0, 0),), r"colours must lie in \[0, 1\]"),
            ("set_material_colors", ((np.nan, 0, 0),), "colours must be finite"),
            ("set_light_colors", ((-1, 0, 0),), "diffuse colours must not be below 0"),
            ("set_light_directions", ((0, 0, 0),), "directions must not be zero"),
            ("set_shape_sizes", ((1, 1, 1), "tip"), "shape 'tip' is a mesh, which has no size to set"),
            ("set_shape_sizes", ((0, 1, 1), "own"), "lengths of the sphere 'own' must be above 0"),
            ("set_shape_sizes", ((-1, 1, 1), "floor"), "lengths of the plane 'floor' must be above 0"),
            ("set_material_colors", (GREEN, None, [2]), r"env_ids must lie in \[0, 2\)"),
            (
                "set_material_colors",
                (GREEN, None, [True, False]),
                "env_ids must be indices of environments, not a mask",
            ),
        ],
    )
    def test_what_does_not_fit_is_refused_and_changes_nothing(self, looks, setter, arguments, message):
        with pytest.raises(ValueError, match=message) as caught:
            getattr(looks, setter)(*arguments)
        assert looks.state is NOTHING_SET
        assert isinstance(caught.value, UnknownNameError) == message.startswith("Unknown")

    def test_a_simulation_without_cameras_takes_anything(self):
        model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><geom name="g" size="1"/></worldbody></mujoco>')
        with SimulationContext(SimulationCfg(MujocoPhysicsCfg(model))) as sim:
            sim.appearance.set_shape_colors((0, 0, 0, 0), "g")

    def test_a_closed_simulation_takes_nothing(self):
        with open_sim() as sim:
            looks = sim.appearance
        with pytest.raises(RuntimeError, match="closed"):
            looks.set_shape_colors(GREEN)


def test_sizes_that_a_type_has_no_use_for_may_be_anything(sim):
    sim.appearance.set_shape_sizes((0.35, -1, 7), "ball")
    frames = shoot(sim)
    assert (seen(frames) == BALL).any(axis=(1, 2)).sum() == NUM_ENVS
