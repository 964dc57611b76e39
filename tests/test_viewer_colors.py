"""Viewers show shapes in the colours that `sim.appearance` sets, in each environment, from the next update on."""

from typing import Any

import mujoco
import numpy as np
import pytest

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.visualizers import NewtonVisualizerCfg, RerunVisualizerCfg, ViserVisualizerCfg
from scene_data.visualizers.shape_colors import ShapeColors
from tests.gl_drivers import needs_gl

XML = """
<mujoco>
  <option gravity="0 0 0"/>
  <asset>
    <texture name="chess" type="2d" builtin="checker" width="8" height="8" rgb1="1 1 1" rgb2="0 0 0"/>
    <material name="chess" texture="chess"/>
    <material name="paint" rgba="1 0 0 1"/>
    <mesh name="wedge" vertex="0 0 0  .4 0 0  0 .4 0  0 0 .4"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 .1" rgba="0 0 1 1"/>
    <body name="body" pos="0 0 1"><joint type="slide"/>
      <geom name="box" type="box" size=".2 .2 .2" material="paint"/>
      <geom name="rod" type="capsule" size=".1 .2" pos="1 0 0" rgba="0 1 0 1"/>
      <geom name="wedge" type="mesh" mesh="wedge" pos="0 1 0" rgba="1 1 0 1"/>
      <geom name="tile" type="box" size=".2 .2 .2" pos="-1 0 0" material="chess"/>
    </body>
    <body name="other" pos="0 0 2"><joint type="slide"/>
      <geom name="slab" type="box" size=".1 .3 .1" rgba="0 1 1 1"/></body>
  </worldbody>
</mujoco>
"""
PAINTS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.2, 0.4, 0.6]], np.float32)
NAMES = ("box", "rod", "wedge", "tile")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def open_context(model: mujoco.MjModel, cfg: Any, num_envs: int = 3) -> SimulationContext:
    physics = MujocoPhysicsCfg(model, "mujoco_batch", num_envs)
    return SimulationContext(SimulationCfg(physics, visualizer_cfgs=[cfg]))


def as_bytes(colour: Any) -> np.ndarray:
    return np.round(255.0 * np.asarray(colour)).astype(int)


def test_colors_of_shapes_come_environment_by_environment(model):
    with SimulationContext(SimulationCfg(MujocoPhysicsCfg(model, "mujoco_batch", 3))) as sim:
        scene = sim.provider.backend.describe_scene()
        box, rod = (next(shape for shape in scene.shapes if shape.name == name) for name in ("box", "rod"))
        colors = ShapeColors(scene)
        assert not colors.change(None)
        np.testing.assert_array_equal(colors.of((box, rod), np.array([2])), [(1, 0, 0, 1), (0, 1, 0, 1)])
        sim.appearance.set_material_colors(PAINTS, "paint")
        assert colors.change(sim.appearance.state.shape_colors)
        assert not colors.change(sim.appearance.state.shape_colors)
        shown = colors.of((box, rod), np.array([2, 1]))[:, :3]
        np.testing.assert_array_equal(shown, [PAINTS[2], (0, 1, 0), PAINTS[1], (0, 1, 0)])
        sim.appearance.reset()
        assert colors.change(sim.appearance.state.shape_colors)
        assert (colors.of((box,), np.arange(3)) == (1, 0, 0, 1)).all()


class TestWhatViewersHear:
    def test_each_hears_of_a_change_once_and_before_its_update(self, model, monkeypatch):
        with open_context(model, ViserVisualizerCfg(port=0, update_frequency=None)) as sim:
            heard: list[Any] = []
            (viewer,) = sim.visualizers
            monkeypatch.setattr(viewer, "show_shape_colors", heard.append)
            monkeypatch.setattr(viewer, "step", lambda dt: heard.append("step"))
            sim.step()
            sim.appearance.set_shape_colors((0.5, 0.5, 0.5), "rod", env_ids=[1])
            sim.step()
            sim.step()
            colors = sim.appearance.state.shape_colors
            assert colors is not None
            assert heard[0] == "step"
            assert heard[1] is colors
            assert heard[2:] == ["step", "step"]


@pytest.fixture
def viser(model, monkeypatch):
    """A page that somebody looks at, and what it was sent of a kind of thing."""
    pytest.importorskip("viser")
    with open_context(model, ViserVisualizerCfg(port=0, update_frequency=None, env_spacing=2.0)) as sim:
        (viewer,) = sim.visualizers
        monkeypatch.setattr(viewer.server, "get_clients", lambda: {0: object()})
        yield sim, viewer


class TestViser:
    @staticmethod
    def shown(viewer: Any, kind: str, property: str = "batched_colors") -> np.ndarray:
        handles = viewer.server.scene._handle_from_node_name
        (handle,) = (handle for name, handle in handles.items() if name.endswith(kind) and hasattr(handle, property))
        return np.asarray(getattr(handle, property))

    def boxes(self, viewer: Any) -> np.ndarray:
        """Colours of the box and the slab, which are instances of one cube: (environments, 2, 3)."""
        return self.shown(viewer, "_box").reshape(-1, 2, 3)

    def test_colors_are_those_of_each_environment(self, viser):
        sim, viewer = viser
        sim.appearance.set_material_colors(PAINTS, "paint")
        assert (self.boxes(viewer)[:, 0] == (255, 0, 0)).all(), "not before the next update"
        sim.step()
        np.testing.assert_array_equal(self.boxes(viewer)[:, 0], as_bytes(PAINTS))
        assert (self.boxes(viewer)[:, 1] == (0, 255, 255)).all(), "what was not set stays"
        sim.appearance.reset(env_ids=[1])
        sim.step()
        np.testing.assert_array_equal(self.boxes(viewer)[:, 0], as_bytes([PAINTS[0], (1, 0, 0), PAINTS[2]]))

    def test_all_parts_of_a_capsule_have_its_color(self, viser):
        sim, viewer = viser
        sim.appearance.set_shape_colors((0.0, 0.0, 0.0), "rod", env_ids=[2])
        sim.step()
        parts = [
            handle for handle in viewer.server.scene._handle_from_node_name.values() if hasattr(handle, "vertices")
        ]
        dark = [(np.asarray(part.batched_colors) == 0).all(axis=-1).sum() for part in parts]
        assert sorted(dark)[-2:] == [1, 2], "a tube and two caps"

    def test_opacities_and_the_ground_follow(self, viser):
        sim, viewer = viser
        sim.appearance.set_shape_colors((0.0, 1.0, 0.0, 0.25), "floor")
        sim.appearance.set_shape_colors((1.0, 1.0, 1.0, 0.5), "slab", env_ids=[0])
        sim.step()
        assert self.shown(viewer, "ground_0", "plane_color").tolist() == [0, 255, 0]
        assert self.shown(viewer, "ground_0", "plane_opacity") == 0.25
        assert self.shown(viewer, "_box", "batched_opacities").tolist() == [1.0, 0.5, 1.0, 1.0, 1.0, 1.0]

    def test_only_what_has_changed_is_sent(self, viser):
        sim, viewer = viser
        sim.step()
        sent: list[Any] = []
        queue = viewer.server.scene._queue_scene_message
        viewer.server.scene._queue_scene_message = lambda message: sent.append(message) or queue(message)
        sim.appearance.set_material_colors(PAINTS, "paint", env_ids=[0, 1, 2])
        sim.step()
        (message,) = (message for message in sent if "color" in str(getattr(message, "updates", {}).keys()))
        assert list(message.updates) == ["batched_colors"]
        assert message.name.endswith("_box")

    def test_they_stay_with_other_environments_and_a_reset(self, viser):
        sim, viewer = viser
        sim.appearance.set_material_colors(PAINTS, "paint")
        sim.step()
        viewer._panel.env_ids = [2, 0]
        sim.reset()
        sim.step()
        np.testing.assert_array_equal(self.boxes(viewer)[:, 0], as_bytes(PAINTS[[2, 0]]))

    def test_another_model_has_its_own(self, viser, model):
        sim, viewer = viser
        sim.appearance.set_material_colors(PAINTS, "paint")
        sim.step()
        sim.reload(mujoco.MjModel.from_xml_string(XML.replace('rgba="1 0 0 1"', 'rgba="1 0 1 1"')))
        sim.step()
        assert (self.boxes(viewer)[:, 0] == (255, 0, 255)).all()


@needs_gl
def test_newtons_window_draws_each_environment_in_its_colors(model):
    pytest.importorskip("newton")
    looks = {"eye": (0.0, -0.1, 12.0), "lookat": (0.0, 0.0, 0.0), "width": 240, "height": 240}
    with open_context(model, NewtonVisualizerCfg(headless=True, env_spacing=4.0, **looks)) as sim:
        (viewer,) = sim.visualizers
        sim.step()
        first = viewer.get_frame()
        sim.appearance.set_material_colors(PAINTS, "paint", env_ids=[0, 1, 2])
        sim.appearance.set_shape_colors((0.0, 0.0, 0.0), "floor")
        sim.step()
        viewer.get_frame()
        model_, scene = viewer.scene.model, viewer.scene.description
        shown = model_.shape_color.numpy()
        names = [scene.shapes[index].name for index in viewer.scene._shapes]
        np.testing.assert_allclose(shown[[name == "box" for name in names]], PAINTS, atol=1e-6)
        np.testing.assert_allclose(shown[[name == "rod" for name in names]], [(0, 1, 0)] * 3, atol=1e-6)
        assert _is_blue(first) > 0.5
        assert _is_blue(viewer.get_frame()) < 0.05
        sim.appearance.reset()
        sim.step()
        assert _is_blue(viewer.get_frame()) == _is_blue(first)


def _is_blue(picture: np.ndarray) -> float:
    """Share of the pixels."""
    red, green, blue = np.moveaxis(picture.astype(int), -1, 0)
    return float(((blue > red + 60) & (blue > green + 60)).mean())


class TestRerun:
    @pytest.mark.parametrize("trees", [3, 0], ids=["trees", "batches"])
    def test_a_recording_has_the_last_colors_of_each_environment(self, model, tmp_path, trees):
        pytest.importorskip("rerun")
        from rrd_reading import Recorded

        from scene_data.visualizers.rerun_scene import entity_path

        path = tmp_path / "run.rrd"
        cfg = RerunVisualizerCfg(web_port=None, grpc_port=None, record_to_rrd=path, record_fps=1e6, max_trees=trees)
        with open_context(model, cfg) as sim:
            sim.step()
            sim.appearance.set_material_colors(PAINTS, "paint")
            sim.appearance.set_shape_colors((0.5, 0.5, 0.5), "wedge")
            sim.appearance.set_shape_colors((0.0, 1.0, 1.0), "tile")
            sim.step()
        static = Recorded(path).static
        of_shape = {
            (env, name): entity_path(f"/World/envs/env_{env}/body/{name}") for env in (0, 1, 2, "*") for name in NAMES
        }

        def colors(env: int | str, name: str, component: str) -> list[tuple[int, ...]]:
            return [tuple(value.to_bytes(4)[:3]) for value in static[of_shape[env, name], component]]

        expected = [tuple(colour) for colour in as_bytes(PAINTS)]
        if trees:
            assert [colors(env, "box", "Boxes3D:colors") for env in range(3)] == [[colour] for colour in expected]
        else:
            assert colors("*", "box", "Boxes3D:colors") == expected
        first = 0 if trees else "*"
        assert colors(first, "wedge", "Mesh3D:albedo_factor") == [(128, 128, 128)]
        assert colors(first, "tile", "Mesh3D:albedo_factor") == [(0, 255, 255)]
        assert set(colors(first, "rod", "Capsules3D:colors")) == {(0, 255, 0)}
