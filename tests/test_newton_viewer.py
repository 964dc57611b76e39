"""Newton's viewer: its pictures, compared with where the published poses say that things are, and its window."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest
import warp as wp
from PIL import Image
from rich.console import Console
from scipy.spatial import ConvexHull

from scene_data import SceneDataFormat, SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg, NewtonPhysicsCfg
from scene_data.cli.view import View, run_view
from scene_data.errors import MissingDependencyError
from scene_data.extra_geometry import GeometryBatch
from scene_data.visualizers import NewtonVisualizerCfg, drawing_priority
from tests.gl_drivers import DRIVERS, needs_gl, screen

newton = pytest.importorskip("newton")
newton_window = pytest.importorskip("scene_data.visualizers.newton_window")
GRAPHICS = newton_window.GRAPHICS

pytestmark = needs_gl

HALF = np.array((0.1, 0.2, 0.05))
MODEL = f"""
<mujoco>
  <option timestep="0.01" gravity="0 0 -2"/>
  <statistic center="0 0 .5" extent="2"/>
  <asset>
    <texture name="halves" type="2d" builtin="gradient" rgb1="1 1 1" rgb2="1 1 1" width="2" height="2"/>
    <material name="painted" texture="halves"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="3 3 .1" rgba=".9 .9 .9 1"/>
    <body name="box" pos=".2 -.1 .8" euler="20 30 40"><freejoint/>
      <geom type="box" size="{HALF[0]} {HALF[1]} {HALF[2]}" rgba="1 0 0 1"/></body>
    <body name="twin" pos="-.7 .5 .3"><freejoint/>
      <geom type="box" size="{HALF[0]} {HALF[1]} {HALF[2]}" rgba="0 0 1 1"/></body>
    <geom name="hidden" type="box" size="1 1 1" pos="0 0 .5" group="3" rgba="1 0 0 1" contype="0" conaffinity="0"/>
  </worldbody>
</mujoco>
"""
CLOTH = """
<mujoco>
  <worldbody>
    <site name="anchor" pos="-.5 0 1.5"/>
    <body name="bob" pos="-.5 0 1"><freejoint/><geom size=".05" rgba=".5 .5 .5 1"/><site name="hook"/></body>
    <flexcomp name="cloth" type="grid" count="5 5 1" spacing=".15 .15 .15" pos=".3 0 1" dim="2" radius=".005"
              rgba="0 1 0 1"><edge equality="true"/></flexcomp>
  </worldbody>
  <tendon><spatial name="rope" width=".03" rgba="1 0 0 1"><site site="anchor"/><site site="hook"/></spatial></tendon>
</mujoco>
"""
EYE, TARGET = (2.0, -2.5, 2.0), (0.0, 0.0, 0.5)
WIDTH, HEIGHT = 320, 240


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(MODEL)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    SimulationContext.clear_instance()
    assert set(threading.enumerate()) <= before


def viewer_cfg(**settings) -> NewtonVisualizerCfg:
    return NewtonVisualizerCfg(
        **{"headless": True, "width": WIDTH, "height": HEIGHT, "eye": EYE, "lookat": TARGET, **settings}
    )


def open_context(model, num_envs: int = 1, viewers: int = 1, **settings) -> SimulationContext:
    physics = MujocoPhysicsCfg(model, "mujoco_batch" if num_envs > 1 else "mujoco", num_envs)
    return SimulationContext(SimulationCfg(physics, visualizer_cfgs=[viewer_cfg(**settings) for _ in range(viewers)]))


def published(sim) -> np.ndarray:
    """Poses of the bodies, (num_envs, nbody, 7)."""
    poses = SceneDataFormat.Vec3_Quat()
    provider = sim.get_scene_data_provider()
    assert provider.get_transforms(poses)
    rows = np.concatenate((poses.positions.numpy(), poses.orientations.numpy()), axis=1)
    return rows.reshape(max(provider.num_envs, 1), -1, 7).copy()


def project(points: np.ndarray, fovy: float = 45.0, size=(WIDTH, HEIGHT), eye=EYE, target=TARGET) -> np.ndarray:
    """Column and row of points (n, 3) in the picture [pixels]."""
    back = np.subtract(eye, target) / np.linalg.norm(np.subtract(eye, target))
    right = np.cross((0.0, 0.0, 1.0), back)
    right /= np.linalg.norm(right)
    seen = (points - eye) @ np.stack((right, np.cross(back, right), back), axis=1)
    focal = 0.5 * size[1] / np.tan(0.5 * np.radians(fovy))
    return np.stack(
        (0.5 * size[0] - focal * seen[:, 0] / seen[:, 2], 0.5 * size[1] + focal * seen[:, 1] / seen[:, 2]), axis=1
    )


def corners(pose: np.ndarray, half: np.ndarray = HALF) -> np.ndarray:
    signs = np.array(np.meshgrid((-1, 1), (-1, 1), (-1, 1))).reshape(3, 8).T
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.roll(pose[3:], 1).astype(np.float64))
    return pose[:3] + (signs * half) @ matrix.reshape(3, 3).T


def silhouette(points: np.ndarray) -> tuple[np.ndarray, float]:
    """Centroid and area of the convex hull of points (n, 2)."""
    hull = points[ConvexHull(points).vertices]
    after = np.roll(hull, -1, axis=0)
    cross = hull[:, 0] * after[:, 1] - after[:, 0] * hull[:, 1]
    return ((hull + after) * cross[:, None]).sum(axis=0) / (3.0 * cross.sum()), abs(cross.sum()) / 2.0


def seen(picture: np.ndarray, colour: str) -> tuple[np.ndarray, int]:
    """Centroid and number of the pixels of a pure colour."""
    index = "rgb".index(colour)
    values = picture.astype(int)
    others = np.delete(values, index, axis=2).max(axis=2)
    rows, columns = np.nonzero((values[..., index] > 60) & (others < 0.5 * values[..., index]))
    return np.array((columns.mean() + 0.5, rows.mean() + 0.5)), len(rows)


def assert_box_is_seen(picture: np.ndarray, colour: str, points: np.ndarray, **view) -> None:
    place, area = silhouette(project(points, **view))
    found, count = seen(picture, colour)
    np.testing.assert_allclose(found, place, atol=1.0)
    assert count == pytest.approx(area, rel=0.12, abs=12)


class TestPictures:
    def test_boxes_of_one_size_are_where_they_are_published_each_in_its_colour(self, model):
        with open_context(model) as sim:
            for _ in range(20):
                sim.step()
            (viewer,) = sim.visualizers
            picture = viewer.get_frame()
            poses = published(sim)[0]
        assert picture.shape == (HEIGHT, WIDTH, 3)
        assert picture.dtype == np.uint8
        assert_box_is_seen(picture, "r", corners(poses[1]))
        assert_box_is_seen(picture, "b", corners(poses[2]))

    def test_a_picture_shows_the_present_state(self, model):
        with open_context(model) as sim:
            (viewer,) = sim.visualizers
            sim.physics.data.qpos[:3] = (0.5, 0.5, 1.0)
            assert_box_is_seen(viewer.get_frame(), "r", corners(published(sim)[0, 1]))

    def test_a_screenshot_has_any_size(self, model):
        with open_context(model) as sim:
            (viewer,) = sim.visualizers
            picture = viewer.screenshot(500, 300)
            assert picture.shape == (300, 500, 3)
            assert_box_is_seen(picture, "r", corners(published(sim)[0, 1]), size=(500, 300))
            assert viewer.get_frame().shape == (HEIGHT, WIDTH, 3)

    def test_environments_stand_in_a_grid(self, model):
        with open_context(model, num_envs=4, env_spacing=1.2, eye=(3.0, -4.0, 4.0)) as sim:
            sim.physics.batch.bind("qpos")[:, 2] = (0.5, 0.6, 0.7, 0.8)
            (viewer,) = sim.visualizers
            picture, poses, offsets = viewer.get_frame(), published(sim), viewer.scene.offsets
        assert sorted(map(tuple, offsets.round(6))) == [(-0.6, -0.6, 0), (-0.6, 0.6, 0), (0.6, -0.6, 0), (0.6, 0.6, 0)]
        for pose, offset in zip(poses[:, 1], offsets, strict=True):
            around, _ = silhouette(project(corners(pose) + offset, eye=(3.0, -4.0, 4.0)))
            column, row = (int(place) for place in around)
            nearby = np.zeros_like(picture)
            window = slice(row - 14, row + 15), slice(column - 14, column + 15)
            nearby[window] = picture[window]
            assert_box_is_seen(nearby, "r", corners(pose) + offset, eye=(3.0, -4.0, 4.0))

    def test_round_shapes_of_a_crowd_have_fewer_triangles_and_their_size(self):
        model = mujoco.MjModel.from_xml_string(
            "<mujoco><worldbody><body pos='0 0 .5'><freejoint/><geom type='capsule' size='.2 .3' rgba='1 0 0 1'/>"
            "<geom type='sphere' size='.1' pos='1 0 0'/><geom type='cylinder' size='.1 .1' pos='2 0 0'/>"
            "<geom type='ellipsoid' size='.1 .1 .2' pos='3 0 0'/></body></worldbody></mujoco>"
        )
        extents, counts = [], []
        for envs in (1, 65):
            # All stand in one place.
            with open_context(model, num_envs=envs, env_spacing=0.0, eye=(0.0, -3.0, 0.5)) as sim:
                (viewer,) = sim.visualizers
                values = viewer.get_frame().astype(int)
                sources = {source for source in viewer.scene.model.shape_source if source is not None}
                counts.append(sorted(len(source.indices) for source in sources))
            rows, columns = np.nonzero((values[..., 0] > 60) & (values[..., 1] < 0.5 * values[..., 0]))
            extents.append((np.ptp(rows), np.ptp(columns)))
        np.testing.assert_allclose(extents[0], extents[1], atol=2)
        assert counts[0] == []
        assert len(counts[1]) == 4
        assert max(counts[1]) < 3 * 400

    def test_the_view_can_be_set_before_and_after(self, model):
        cfg = viewer_cfg(eye=None, lookat=None)
        viewer = cfg.create()
        viewer.set_camera_view(EYE, TARGET)
        with SimulationContext(SimulationCfg(MujocoPhysicsCfg(model))) as sim:
            viewer.initialize(sim.get_scene_data_provider())
            try:
                points = corners(published(sim)[0, 1])
                assert_box_is_seen(viewer.get_frame(), "r", points)
                eye, target = (-2.0, 1.5, 1.0), (0.1, 0.0, 0.6)
                viewer.set_camera_view(eye, target)
                assert_box_is_seen(viewer.get_frame(), "r", points, eye=eye, target=target)
            finally:
                viewer.close()

    def test_a_diverged_environment_is_blank_and_the_others_stay_as_they_are(self, model, monkeypatch):
        with open_context(model, num_envs=2, env_spacing=1.5) as sim:
            (viewer,) = sim.visualizers
            healthy = viewer.get_frame()
            places = [silhouette(project(corners(pose) + offset))[0].astype(int)
                      for pose, offset in zip(published(sim)[:, 1], viewer.scene.offsets, strict=True)]  # fmt: skip
            poses = viewer.scene.state.body_q.numpy().copy()
            poses[3:] = np.nan
            monkeypatch.setattr(viewer.scene.state, "body_q", wp.array(poses, dtype=wp.transformf))
            monkeypatch.setattr(viewer.scene, "read", lambda: None)
            ill = viewer.get_frame()
        windows = [(slice(row - 10, row + 10), slice(column - 10, column + 10)) for column, row in places]
        np.testing.assert_array_equal(ill[windows[0]], healthy[windows[0]])
        assert seen(healthy[windows[1]], "r")[1] > 50
        values = ill[windows[1]].astype(int)
        assert not ((values[..., 0] > 60) & (values[..., 1] < 0.5 * values[..., 0])).any()

    def test_textures_lie_on_planes_and_boxes(self, tmp_path):
        image = np.zeros((64, 64, 3), np.uint8)
        image[:, :32, 0] = image[:, 32:, 1] = 255  # red on the left, green on the right
        image[:16] = (0, 0, 255)  # blue at the top
        Image.fromarray(image).save(tmp_path / "image.png")
        (tmp_path / "model.xml").write_text("""
            <mujoco><asset><texture name="image" type="2d" file="image.png"/>
              <material name="image" texture="image"/></asset>
              <worldbody><geom type="plane" size="1 1 .1" material="image"/></worldbody></mujoco>""")
        model = mujoco.MjModel.from_xml_path(str(tmp_path / "model.xml"))
        eye, target = (0.0, -0.5, 3.0), (0.0, 0.0, 0.0)
        with open_context(model, eye=eye, lookat=target) as sim:
            picture = sim.visualizers[0].get_frame().astype(int)
        points = np.array(((-0.5, -0.5, 0), (0.5, -0.5, 0), (0.0, 0.8, 0)))
        for (column, row), strongest in zip(project(points, eye=eye, target=target), (0, 1, 2), strict=True):
            values = picture[int(row), int(column)]
            assert values.argmax() == strongest, values
            assert values[strongest] > 120

    def test_extra_geometry_comes_and_goes(self, model):
        half = np.full(3, 0.15)
        goal = GeometryBatch("box", [(0.3, 0.6, 1.2)], [half], rgba=(0, 1, 0, 1))
        goals = [goal]
        with open_context(model) as sim:
            sim.add_geometry_source(lambda: goals[0])
            sim.step()
            (viewer,) = sim.visualizers
            shown = viewer.get_frame()
            assert_box_is_seen(shown, "g", corners(np.array((0.3, 0.6, 1.2, 0, 0, 0, 1)), half))
            goals[0] = None
            sim.step()
            values = viewer.get_frame().astype(int)
        assert not ((values[..., 1] > 60) & (values[..., 0] < 0.5 * values[..., 1])).any()

    @pytest.mark.parametrize("kind", ["sphere", "capsule", "ellipsoid", "cylinder"])
    def test_extra_geometry_of_each_type_has_its_size(self, model, kind):
        sizes = {
            "sphere": (0.2, 0, 0),
            "capsule": (0.1, 0.2, 0),
            "ellipsoid": (0.1, 0.2, 0.3),
            "cylinder": (0.1, 0.2, 0),
        }
        reach = {"sphere": (0.2,) * 3, "capsule": (0.1, 0.1, 0.3), "ellipsoid": (0.1, 0.2, 0.3),
                 "cylinder": (0.1, 0.1, 0.2)}[kind]  # fmt: skip
        centre = np.array((0.3, 0.6, 1.2))
        with open_context(model, eye=(0.3, -3.0, 1.2), lookat=tuple(centre)) as sim:
            sim.add_geometry_source(lambda: GeometryBatch(kind, [centre], [sizes[kind]], rgba=(0, 1, 0, 1)))
            sim.step()
            values = sim.visualizers[0].get_frame().astype(int)
        rows, columns = np.nonzero((values[..., 1] > 60) & (values[..., 0] < 0.5 * values[..., 1]))
        scale = 0.5 * HEIGHT / np.tan(np.radians(22.5)) / 3.6
        assert np.ptp(columns) + 1 == pytest.approx(2 * reach[0] * scale, abs=3)
        assert np.ptp(rows) + 1 == pytest.approx(2 * reach[2] * scale, abs=3)


class TestBinding:
    def test_poses_are_those_of_the_provider_converted_once_for_all_readers(self, model):
        with open_context(model, num_envs=3) as sim:
            (viewer,) = sim.visualizers
            sim.step()
            viewer.get_frame()
            np.testing.assert_allclose(viewer.scene.state.body_q.numpy().reshape(3, -1, 7), published(sim), atol=1e-5)
            other = SceneDataFormat.Transform()
            sim.get_scene_data_provider().get_transforms(other)
            assert viewer.scene.state.body_q.ptr == other.transforms.ptr

    def test_chosen_environments_are_in_the_order_asked_for(self, model):
        with open_context(model, num_envs=4, visible_env_indices=(3, 1), max_visible_envs=2) as sim:
            sim.physics.batch.bind("qpos")[:, 0] = np.arange(4)
            sim.step()
            (viewer,) = sim.visualizers
            viewer.get_frame()
            body_q = viewer.scene.state.body_q.numpy().reshape(2, -1, 7)
            np.testing.assert_allclose(body_q, published(sim)[[3, 1]], atol=1e-5)
            assert viewer.scene.model.world_count == 2

    def test_no_environment_at_all(self, model):
        with open_context(model, num_envs=2, max_visible_envs=0) as sim:
            sim.step()
            values = sim.visualizers[0].get_frame().astype(int)
        assert not ((values[..., 0] > 60) & (values[..., 1] < 0.5 * values[..., 0])).any()

    @pytest.mark.parametrize("spacing", [0.0, 3.0])
    def test_there_is_one_floor_for_all(self, model, spacing):
        with open_context(model, num_envs=16, env_spacing=spacing) as sim:
            scene = sim.visualizers[0].scene
            worlds = scene.model.shape_world.numpy()
        assert scene.model.shape_count == 1 + 2 * 16
        assert (worlds == -1).sum() == 1

    def test_cloth_and_ropes_follow_the_engine(self):
        with open_context(mujoco.MjModel.from_xml_string(CLOTH)) as sim:
            (viewer,) = sim.visualizers
            first = viewer.get_frame()
            for _ in range(100):
                sim.step()
            picture = viewer.get_frame()
            views = sim.get_scene_data_provider().get_geometry_points()
            cloth = views["/World/envs/env_0/cloth"].numpy().copy()
            (mesh,) = (obj for name, obj in viewer.window.objects.items() if name.startswith("/deforming/0"))
            np.testing.assert_allclose(mesh.vertices.numpy()["pos"], cloth, atol=1e-5)
            rope = published(sim)[0, 1, :3]
        place, area = silhouette(project(cloth))
        found, count = seen(picture, "g")
        np.testing.assert_allclose(found, place, atol=6.0)
        assert 0.3 * area < count < 1.5 * area
        ends = project(np.array(((-0.5, 0, 1.5), rope)))
        found, _ = seen(picture, "r")
        np.testing.assert_allclose(found, ends.mean(axis=0), atol=4.0)
        assert (picture != first).any()

    def test_points_stand_where_their_environment_does(self):
        with open_context(mujoco.MjModel.from_xml_string(CLOTH), num_envs=2, env_spacing=3.0) as sim:
            (viewer,) = sim.visualizers
            viewer.get_frame()
            views = sim.get_scene_data_provider().get_geometry_points()
            expected = [views[f"/World/envs/env_{env}/cloth"].numpy() + viewer.scene.offsets[env] for env in range(2)]
            (mesh,) = (obj for name, obj in viewer.window.objects.items() if name.startswith("/deforming/0"))
            np.testing.assert_allclose(mesh.vertices.numpy()["pos"], np.concatenate(expected), atol=1e-5)

    def test_a_height_field_that_is_written_to_is_shown(self):
        model = mujoco.MjModel.from_xml_string(
            "<mujoco><asset><hfield name='land' nrow='9' ncol='9' size='1 1 1 .1'/></asset>"
            "<worldbody><geom type='hfield' hfield='land' rgba='1 0 0 1'/></worldbody></mujoco>"
        )
        with open_context(model, eye=(0.0, -5.0, 0.5), lookat=(0.0, 0.0, 0.5)) as sim:
            (viewer,) = sim.visualizers
            flat = viewer.get_frame()
            sim.physics.model.hfield_data[:] = 1.0
            raised = viewer.get_frame()
            assert viewer.get_frame().any()
        # Its near side is 4 m away, and now 1 m higher.
        rise = np.nonzero((flat[..., 0] > 60) & (flat[..., 1] < 30))[0].min()
        rise -= np.nonzero((raised[..., 0] > 60) & (raised[..., 1] < 30))[0].min()
        near, far = (0.5 * HEIGHT / np.tan(np.radians(22.5)) / distance for distance in (4.0, 6.0))
        assert far - 2 < rise < near + 2

    def test_another_model_is_shown_after_a_reload(self, model):
        with open_context(model) as sim:
            sim.reload(mujoco.MjModel.from_xml_string(CLOTH))
            sim.step()
            (viewer,) = sim.visualizers
            picture = viewer.get_frame()
            assert seen(picture, "g")[1] > 200
            assert viewer.scene.state.body_q.shape == (sim.get_scene_data_provider().transform_count,)


class TestNewtonEngine:
    @pytest.fixture
    def sim(self) -> Iterator[SimulationContext]:
        builder = newton.ModelBuilder()
        for height in (0.5, 1.0):
            body = builder.add_body(xform=wp.transform((0.0, 0.0, height), wp.quat_identity()), mass=1.0)
            builder.add_shape_box(body, hx=HALF[0], hy=HALF[1], hz=HALF[2], color=(1.0, 0.0, 0.0))
        physics = NewtonPhysicsCfg(builder, num_envs=2)
        with SimulationContext(SimulationCfg(physics, visualizer_cfgs=[viewer_cfg(env_spacing=2.0)])) as sim:
            yield sim

    def test_its_poses_are_bound_without_a_copy(self, sim):
        (viewer,) = sim.visualizers
        sim.step()
        viewer.get_frame()
        assert viewer.scene.state.body_q.ptr == sim.physics.state.body_q.ptr

    def test_its_bodies_can_be_pulled_at(self, sim):
        (viewer,) = sim.visualizers
        viewer.get_frame()
        offset = viewer.scene.offsets[1]
        above = wp.vec3(offset[0], offset[1], 3.0)
        picking = viewer.window.picking
        GRAPHICS.call(picking.pick, viewer.scene.state, above, wp.vec3(0.0, 0.0, -1.0))
        assert picking.pick_body == 3
        picking.pick_target = wp.vec3(1.0, 0.0, 2.0)
        state = sim.physics.model.state()
        viewer.apply_forces(state)
        forces = state.body_f.numpy()
        assert not forces[:3].any()
        assert forces[3, 0] > 0.0

    def test_those_of_other_engines_cannot(self, model):
        with open_context(model) as sim:
            assert not sim.visualizers[0].window.picking_enabled


class TestSeveral:
    def test_each_has_its_own_picture_and_life(self, model):
        with open_context(model, viewers=2) as sim:
            first, second = sim.visualizers
            second.set_camera_view((-2.0, 1.5, 1.0), TARGET)
            sim.step()
            points = corners(published(sim)[0, 1])
            for _ in range(2):
                assert_box_is_seen(first.get_frame(), "r", points)
                assert_box_is_seen(second.get_frame(), "r", points, eye=(-2.0, 1.5, 1.0))
            first.close()
            sim.step()
            assert list(sim.visualizers) == [second]
            assert_box_is_seen(second.get_frame(), "r", corners(published(sim)[0, 1]), eye=(-2.0, 1.5, 1.0))

    def test_one_after_the_other_in_a_process(self, model):
        for _ in range(2):
            with open_context(model) as sim:
                assert seen(sim.visualizers[0].get_frame(), "r")[1] > 100
                assert any(thread.name == "viewer graphics" for thread in threading.enumerate())
            assert not any(thread.name == "viewer graphics" for thread in threading.enumerate())


def test_nothing_is_drawn_until_somebody_asks(model, monkeypatch):
    drawn = []
    with open_context(model) as sim:
        (viewer,) = sim.visualizers
        monkeypatch.setattr(viewer.window, "log_state", drawn.append)
        monkeypatch.setattr(viewer.window, "draw", lambda: drawn.append("draw"))
        for _ in range(5):
            sim.step()
        assert not drawn


@pytest.mark.parametrize("renderer", ["NVIDIA H200/PCIe/SSE2", "Mesa Intel(R) Xe Graphics (TGL GT2)", "Apple M2"])
def test_a_graphics_card_draws_at_the_usual_priority(renderer):
    assert not drawing_priority.draws_in_software(renderer)


def test_a_video_has_a_picture_for_each_period(model, tmp_path):
    iio = pytest.importorskip("imageio.v3")
    pytest.importorskip("av")
    path = tmp_path / "new" / "run.mp4"
    with open_context(model, record_to_video=path, record_fps=25.0) as sim:
        sim.render()
        for _ in range(20):
            sim.step()
        poses = published(sim)[0]
    frames = iio.imread(path, plugin="pyav")
    assert frames.shape == (6, HEIGHT, WIDTH, 3)
    found, _ = seen(frames[-1], "r")
    np.testing.assert_allclose(found, silhouette(project(corners(poses[1])))[0], atol=2.0)
    assert [each.name for each in path.parent.iterdir()] == ["run.mp4"]


def test_the_command_takes_a_screenshot(tmp_path):
    (tmp_path / "model.xml").write_text(MODEL)
    path = tmp_path / "picture.png"
    args = View(str(tmp_path / "model.xml"), viewer="newton", headless=True, steps=3, screenshot=path,
                screenshot_size=(200, 150))  # fmt: skip
    run_view(args, Console(quiet=True))
    picture = np.array(Image.open(path))
    assert picture.shape == (150, 200, 3)
    assert seen(picture, "r")[1] > 30


IN_A_WINDOW = """
import sys, threading, time
import mujoco, numpy as np
sys.path[:0] = [{tests!r}]
from tests import test_newton_viewer as t
from scene_data.visualizers.newton_window import GRAPHICS
from pyglet.window import key

model = mujoco.MjModel.from_xml_string(t.MODEL)
plotted = []
settings = dict(live_plots={"height": lambda: plotted.append(1) or 1.0}, camera_images=("front",))
with t.open_context(model, viewers=2, headless=None, update_frequency=None, **settings) as sim:
    first, second = sim.visualizers
    def press(viewer, symbol):
        GRAPHICS.call(viewer.window.renderer.window.dispatch_event, "on_key_press", symbol, 0)
    for _ in range(3):
        sim.step()
    points = t.corners(t.published(sim)[0, 1])
    sim.visualizers[0].step(0.0)
    for viewer in (first, second):
        viewer._drawing.result()
        viewer.step(0.0)
        viewer._drawing.result()
        t.assert_box_is_seen(viewer.get_frame(), "r", points)
        t.assert_box_is_seen(viewer.screenshot(500, 300), "r", points, size=(500, 300))
        t.assert_box_is_seen(viewer.get_frame(), "r", points)
    assert plotted and first.wanted_cameras() == ("front",)
    first.show_camera_images({"front": np.zeros((1, 8, 8, 3), np.uint8)})
    assert not sim.simulation_time_ns == 0
    first._ask_for_reset()
    sim.step()
    assert sim.simulation_time_ns == 0
    assert not first.is_training_paused()
    press(first, key.SPACE)
    assert first.is_training_paused() and first.is_training_paused()
    assert not second.is_training_paused()
    press(first, key.PERIOD)
    assert not first.is_training_paused() and first.is_training_paused()
    press(first, key.SPACE)
    assert not first.is_training_paused()
    # A drawing that takes long holds nobody up.
    release = threading.Event()
    draw, second.window.draw = second.window.draw, lambda: release.wait(20)
    second._drawing.result()
    second.step(0.0)
    seen = second.scene.state.body_q
    before = time.monotonic()
    second.step(0.0)
    assert time.monotonic() - before < 5.0
    release.set()
    second.window.draw = draw
    # Closed by its button, and by Escape: that one alone goes.
    GRAPHICS.call(first.window.renderer.window.dispatch_event, "on_close")
    assert not first.is_running() and second.is_running()
    sim.step()
    assert list(sim.visualizers) == [second]
    sim.step()
    second._drawing.result()
    press(second, key.ESCAPE)
    sim.step()
    assert not list(sim.visualizers)
    sim.step()
assert [thread for thread in threading.enumerate() if "graphics" in thread.name] == []
print("window ok")
"""


def run_alone(code: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    root = str(Path(__file__).parent.parent)
    inherited = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.run(
        [sys.executable, "-c", code.replace("{tests!r}", repr(root))],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


PRIORITIES = """
import os
from pathlib import Path
from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.visualizers import NewtonVisualizerCfg
from scene_data.visualizers.newton_window import GRAPHICS

viewers = (NewtonVisualizerCfg(headless=True),)
with SimulationContext(SimulationCfg(MujocoPhysicsCfg("demo"), visualizer_cfgs=viewers)) as sim:
    sim.step()
    context = sim.visualizers[0].window.renderer.window.context
    print("renderer:", GRAPHICS.call(lambda: context.get_info().get_renderer()))
    for task in Path("/proc/self/task").iterdir():
        print((task / "comm").read_text().strip(), os.getpriority(os.PRIO_PROCESS, int(task.name)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
def test_what_draws_in_software_yields_to_what_steps():
    """In a process of its own: threads that other pictures have started before are not the window's to change."""
    result = run_alone(PRIORITIES)
    lines = [line for line in result.stdout.splitlines() if line]
    renderer = next((line for line in lines if line.startswith("renderer:")), result.stderr)
    if not drawing_priority.draws_in_software(renderer):
        assert result.returncode == 0, renderer
        pytest.skip(f"{renderer} is a graphics card")
    threads = [line.rsplit(maxsplit=1) for line in lines[lines.index(renderer) + 1 :]]
    usual = str(os.getpriority(os.PRIO_PROCESS, 0))
    rasterizers = {priority for name, priority in threads if name.startswith("llvmpipe")}
    drawing = [priority for name, priority in threads if name.startswith("python")]
    assert rasterizers == {"19"}
    assert drawing.count("19") >= 1, "the thread that draws"
    assert drawing.count(usual) >= 2, "those that step, and that the viewer is updated on"


@pytest.mark.skipif(not DRIVERS["glfw"], reason="needs Xvfb and GLX")
def test_windows_on_a_screen(tmp_path):
    with screen() as display:
        done = run_alone(IN_A_WINDOW, tmp_path, DISPLAY=display, LIBGL_ALWAYS_SOFTWARE="1")
    assert "window ok" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == [], "a window leaves no file behind"


class TestMistakes:
    def test_a_window_without_a_screen(self):
        code = """
import os, threading
import mujoco
from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.visualizers import NewtonVisualizerCfg, drawing_priority
model = mujoco.MjModel.from_xml_string("<mujoco/>")
before = threading.enumerate()
for display in ("", ":12345"):
    os.environ["DISPLAY"] = display
    try:
        SimulationContext(SimulationCfg(MujocoPhysicsCfg(model), visualizer_cfgs=[NewtonVisualizerCfg(headless=False)]))
    except Exception as error:
        print(type(error).__name__, error)
    assert threading.enumerate() == before
"""
        done = run_alone(code)
        none, broken = (line for line in done.stdout.splitlines() if "NoGraphicsError" in line)
        assert "NoGraphicsError Newton's viewer cannot open a window: there is no screen" in none
        assert ":12345" in broken
        for line in (none, broken):
            assert "apt-get install" in line
            assert "xvfb-run" in line
            assert "--headless" in line

    def test_no_driver(self, model, monkeypatch):
        with open_context(model):  # which chooses to draw without windows
            import pyglet.window

        def fail(*args, **kwargs):
            raise ImportError('Library "EGL" not found.')

        monkeypatch.setattr(pyglet.window, "Window", fail)
        before = threading.enumerate()
        with pytest.raises(newton_window.NoGraphicsError, match=r'"EGL" not found.*apt-get install libegl1'):
            open_context(model)
        assert threading.enumerate() == before

    def test_a_window_after_pictures_in_one_process(self, model):
        with open_context(model):
            pass
        with pytest.raises(newton_window.NoGraphicsError, match="has chosen pictures without windows"):
            open_context(model, headless=False)

    def test_a_missing_library(self):
        code = """
import sys
sys.modules["pyglet"] = None
from scene_data.visualizers import NewtonVisualizerCfg, drawing_priority
try:
    NewtonVisualizerCfg().create()
except Exception as error:
    print(type(error).__name__, error)
"""
        done = run_alone(code)
        assert MissingDependencyError.__name__ in done.stdout, done.stderr
        assert "pip install 'scene-data[newton]'" in done.stdout

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"width": 0}, "width"),
            ({"record_fps": 0.0}, "record_fps"),
            ({"speed": -1.0}, "speed"),
            ({"start_paused": True}, "start_paused"),
            ({"record_to_video": "run.avi"}, "mp4"),
            ({"record_to_video": "run.mp4", "width": 321}, "even"),
        ],
    )
    def test_values(self, settings, message):
        with pytest.raises(ValueError, match=message):
            viewer_cfg(**settings)

    def test_it_is_not_open(self):
        viewer = viewer_cfg().create()
        with pytest.raises(RuntimeError, match="not open"):
            viewer.get_frame()
        viewer.step(0.1)
        viewer.close()
        viewer.close()
        assert not viewer.is_running()
