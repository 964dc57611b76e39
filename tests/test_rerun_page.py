"""Rerun's page in a browser: colours and places of known objects, textures, images, and motion."""

import time
from collections.abc import Callable, Iterator

import mujoco
import numpy as np
import pytest
from scipy.ndimage import center_of_mass, label

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import CameraCfg

pytest.importorskip("rerun")

from browser import CHROMIUM, Browser, Page

from scene_data.visualizers import RerunVisualizerCfg

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")

# Seen from above: red at the left, green at the right, a blue capsule above, a chess board below, on a dark floor.
XML = """
<mujoco model="table">
  <option timestep="0.01" gravity="0 0 0"/>
  <visual><headlight ambient="1 1 1" diffuse="0 0 0"/></visual>
  <statistic center="0 0 0" extent="2"/>
  <asset>
    <texture name="chess" type="2d" builtin="checker" width="64" height="64" rgb1="1 1 0" rgb2="0 1 1"/>
    <material name="chess" texture="chess"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 .1" rgba=".1 .1 .15 1"/>
    <body name="slab" pos="-1 0 .2"><joint type="slide" axis="0 1 0"/>
      <geom name="slab" type="box" size=".3 .3 .1" rgba="1 0 0 1"/></body>
    <body name="ball" pos="1 0 .3"><joint type="slide" axis="0 1 0"/>
      <geom name="ball" type="sphere" size=".3" rgba="0 1 0 1"/></body>
    <body name="rod" pos="0 1 .2" quat="1 0 1 0"><joint type="slide" axis="0 1 0"/>
      <geom name="rod" type="capsule" size=".15 .3" rgba="0 0 1 1"/></body>
    <body name="tile" pos="0 -.8 .2"><joint type="slide" axis="0 1 0"/>
      <geom name="tile" type="box" size=".4 .4 .05" material="chess"/></body>
    <camera name="side" pos="0 -4 .5" xyaxes="1 0 0 0 0 1"/>
  </worldbody>
</mujoco>
"""

WIDTH, HEIGHT = 600, 480
# Where the scene begins on the page [pixels], and Rerun's vertical field of view [deg].
TOP, FOVY = 64, 55.0


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser(WIDTH, HEIGHT)
    yield browser
    browser.close()


@pytest.fixture(autouse=True)
def _closed():
    yield
    SimulationContext.clear_instance()


def open_context(model, num_envs=1, cameras=(), **settings) -> SimulationContext:
    settings = {"web_port": 0, "grpc_port": 0, "update_frequency": None, **settings}
    physics = MujocoPhysicsCfg(model, "mujoco_batch", num_envs)
    cfg = SimulationCfg(physics, cameras=cameras, visualizer_cfgs=[RerunVisualizerCfg(**settings)])
    return SimulationContext(cfg)


def rests(page: Page, is_there: Callable[[np.ndarray], object], timeout: float = 60.0) -> np.ndarray:
    """A picture that stays as it is, once it is right."""
    deadline = time.monotonic() + timeout
    last = np.zeros(0)
    while True:
        try:
            picture = page.picture()
        except RuntimeError:  # it is on the way to the address
            picture = np.zeros((1, 1, 3), np.uint8)
        is_still = np.array_equal(picture, last)
        last = picture
        if (is_still and is_there(picture)) or time.monotonic() > deadline:
            return picture
        time.sleep(0.3)


def middle(mask: np.ndarray) -> tuple[float, float]:
    rows, columns = np.nonzero(mask)
    assert len(rows) > 50, "it is not seen"
    return float(columns.mean()), float(rows.mean())


def red(picture: np.ndarray) -> np.ndarray:
    return _is_much(picture, 0)


def green(picture: np.ndarray) -> np.ndarray:
    return _is_much(picture, 1)


def blue(picture: np.ndarray) -> np.ndarray:
    return _is_much(picture, 2)


def _is_much(picture: np.ndarray, channel: int) -> np.ndarray:
    others = [picture[..., other].astype(int) for other in range(3) if other != channel]
    return (picture[..., channel] > 40) & (np.maximum(*others) < picture[..., channel] // 3)


def on_the_page(point, eye, target, picture: np.ndarray) -> tuple[float, float]:
    """Column and row where a point of the scene is seen on this picture of the page."""
    # The bar of time below the scene comes and goes.
    bottom = 451 if picture[453, 5].min() > 200 else 476
    forward = np.subtract(target, eye) / np.linalg.norm(np.subtract(target, eye))
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    up = np.cross(right, forward)
    away = np.subtract(point, eye)
    focal = 0.5 * (bottom - TOP) / np.tan(np.radians(0.5 * FOVY)) / (away @ forward)
    return 0.5 * WIDTH + focal * (away @ right), 0.5 * (TOP + bottom) - focal * (away @ up)


def test_colours_textures_and_places_and_motion(model, browser):
    eye, target = (0.0, -3.0, 4.0), (0.0, 0.0, 0.0)
    with open_context(model, eye=eye, lookat=target) as sim:
        sim.step()
        page = browser.page(sim.visualizers[0].address)
        picture = rests(page, lambda seen: green(seen).any())
        assert middle(green(picture)) == pytest.approx(on_the_page((1, 0, 0.3), eye, target, picture), abs=5)
        assert middle(blue(picture)) == pytest.approx(on_the_page((0, 1, 0.2), eye, target, picture), abs=5)
        assert middle(red(picture)) == pytest.approx(on_the_page((-1, 0, 0.25), eye, target, picture), abs=8)
        # Each colour of the chess board is on one diagonal.
        corners = [(x, -0.8 + y, 0.25) for x in (-0.2, 0.2) for y in (-0.2, 0.2)]
        pixels = [
            picture[round(row), round(column)]
            for column, row in (on_the_page(c, eye, target, picture) for c in corners)
        ]
        yellow = [pixel[0] > 150 and pixel[1] > 150 and pixel[2] < 60 for pixel in pixels]
        cyan = [pixel[0] < 60 and pixel[1] > 150 and pixel[2] > 150 for pixel in pixels]
        assert sum(yellow) == sum(cyan) == 2
        assert yellow[0] == yellow[3]
        floor = picture[TOP + 20, 20]
        np.testing.assert_allclose(floor, [26, 26, 38], atol=6)

        sim.physics.batch.qpos[:, 1] = 0.5
        sim.step()
        before = middle(green(picture))
        picture = rests(page, lambda seen: middle(green(seen))[1] < before[1] - 10)
        assert middle(green(picture)) == pytest.approx(on_the_page((1, 0.5, 0.3), eye, target, picture), abs=5)
        assert middle(red(picture)) == pytest.approx(on_the_page((-1, 0, 0.25), eye, target, picture), abs=8)

        eye = (0.0, -6.0, 2.0)
        before = middle(green(picture))
        sim.set_camera_view(eye, target)
        picture = rests(page, lambda seen: abs(middle(green(seen))[0] - before[0]) > 8)
        assert middle(green(picture)) == pytest.approx(on_the_page((1, 0.5, 0.3), eye, target, picture), abs=5)
        page.close()


@pytest.mark.parametrize("max_trees", [0, 9])
def test_every_environment_is_there_but_for_what_has_no_pose(model, browser, monkeypatch, max_trees):
    eye, target = (0.0, -9.0, 12.0), (0.0, 0.0, 0.0)
    with open_context(model, 5, eye=eye, lookat=target, env_spacing=4.0, max_trees=max_trees) as sim:
        sim.physics.batch.qpos[:, 1] = np.linspace(-0.5, 0.5, 5)
        sim.step()
        page = browser.page(sim.visualizers[0].address)
        offsets = [(-4, 2, 0), (0, 2, 0), (4, 2, 0), (-4, -2, 0), (0, -2, 0)]
        balls = [np.add(offset, (1, y, 0.3)) for offset, y in zip(offsets, np.linspace(-0.5, 0.5, 5), strict=True)]
        picture = rests(page, lambda seen: label(green(seen))[1] == 5)
        expected = [on_the_page(ball, eye, target, picture) for ball in balls]
        np.testing.assert_allclose(sorted(middles(green(picture))), sorted(expected), atol=4)
        assert label(red(picture))[1] == label(blue(picture))[1] == 5

        read = sim.provider.get_transforms

        def with_hole(output, *arguments, **settings):
            done = read(output, *arguments, **settings)
            positions = output.positions.numpy().copy()
            positions[sim.provider.backend.transform_paths.index("/World/envs/env_1/ball")] = np.nan
            output.positions = type(output.positions)(positions, dtype=output.positions.dtype, device="cpu")
            return done

        monkeypatch.setattr(sim.provider, "get_transforms", with_hole)
        sim.physics.batch.qpos[:, 0] = 0.1  # where nothing moves, nothing is sent
        sim.step()
        picture = rests(page, lambda seen: label(green(seen))[1] == 4)
        expected = [on_the_page(ball, eye, target, picture) for ball in balls[:1] + balls[2:]]
        np.testing.assert_allclose(sorted(middles(green(picture))), sorted(expected), atol=4)
        monkeypatch.undo()
        sim.physics.batch.qpos[:, 0] = 0.2
        sim.step()
        assert label(green(rests(page, lambda seen: label(green(seen))[1] == 5)))[1] == 5
        page.close()


def middles(mask: np.ndarray) -> list[tuple[float, float]]:
    """Columns and rows of what is seen of each."""
    marks, count = label(mask)
    return [(column, row) for row, column in center_of_mass(mask, marks, range(1, count + 1))]


def test_a_camera_stands_in_the_scene_and_its_image_is_beside_it(model, browser):
    pytest.importorskip("torch")
    eye, target = (0.0, -3.0, 4.0), (0.0, 0.0, 0.0)
    camera = CameraCfg("side", 64, 64)
    with open_context(model, cameras=(camera,), camera_images=("side",), eye=eye, lookat=target) as sim:
        sim.step()
        frame = sim.cameras["side"].data.lease("rgb").numpy()[0].copy()
        page = browser.page(sim.visualizers[0].address)
        beside = slice(round(0.76 * WIDTH), WIDTH)
        picture = rests(page, lambda seen: green(seen[:, beside]).any())[:, beside]
        # The panel shows all of the image, so that what it shows is in the image's proportions.
        shown, real = (np.subtract(middle(green(each)), middle(red(each))) for each in (picture, frame))
        assert shown[0] > 20
        assert shown[1] / shown[0] == pytest.approx(real[1] / real[0], abs=0.05)
        page.close()
