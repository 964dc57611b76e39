"""A scene whose pictures can be worked out by hand, for tests of what environments look like."""

from collections.abc import Iterator, Sequence
from typing import Any

import mujoco
import numpy as np
import pytest
from gl_drivers import DRIVERS

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import CameraCfg, VisualOptions

NUM_ENVS = 3
WIDTH, HEIGHT = 64, 48
FOCAL = 0.5 * HEIGHT / np.tan(np.radians(25.0))
BALL, BOX = 0, 1
BOX_SIZE, BALL_RADIUS = (0.3, 0.2, 0.25), 0.35
DISTANCE = 3.0  # of the camera from the middle of the box, along +Y

# The camera is level with both: it sees the front of the box alone, and as much of the ball's upper half as of its
# lower one. Nothing but the sun lights them, without highlights, and what it does not reach is black.
XML = f"""
<mujoco model="looks">
  <visual>
    <headlight active="0"/>
    <quality offsamples="0"/>
    <map znear="0.01" zfar="20"/>
  </visual>
  <statistic extent="1" center="0 0 1"/>
  <asset>
    <texture name="red" type="2d" builtin="flat" rgb1="1 0 0" width="8" height="8"/>
    <texture name="blue" type="2d" builtin="flat" rgb1="0 0 1" width="8" height="8"/>
    <texture name="sky" type="skybox" builtin="flat" rgb1="0 0 0" width="8" height="48"/>
    <material name="paint" rgba="0.8 0.6 0.4 1" specular="0"/>
    <material name="covered" rgba="0.5 0.5 0.5 1" texture="blue" specular="0"/>
  </asset>
  <worldbody>
    <light name="sun" directional="true" dir="0 0.7 -0.7" diffuse="0.8 0.8 0.8" ambient="0 0 0" specular="0 0 0"/>
    <light name="lamp" pos="0 -3 1" active="false" diffuse="0.8 0.8 0.8" ambient="0 0 0" specular="0 0 0"
           attenuation="1 0 0" cutoff="180" exponent="0"/>
    <camera name="front" pos="0 {-DISTANCE} 1" xyaxes="1 0 0 0 0 1" fovy="50"/>
    <body name="box" pos="0 0 1"><freejoint/>
      <geom name="box" type="box" size="{BOX_SIZE[0]} {BOX_SIZE[1]} {BOX_SIZE[2]}" material="paint" mass="1"/>
    </body>
    <geom name="ball" type="sphere" size="{BALL_RADIUS}" pos="1 0 1" material="paint" rgba="0.9 0.9 0.1 1"/>
  </worldbody>
</mujoco>
"""
FRONT = CameraCfg(
    "front", WIDTH, HEIGHT, ("rgb", "depth", "segmentation"), options=VisualOptions(shadows=False, skybox=False)
)
BACKENDS = (
    "mujoco_warp",
    "newton",
    pytest.param("mujoco_gl", marks=pytest.mark.skipif(not DRIVERS["egl"], reason="needs EGL")),
)


def open_sim(
    render_backend: str = "mujoco_warp",
    cameras: Sequence[CameraCfg] = (FRONT,),
    engine: str = "mujoco_batch",
    **settings: Any,
) -> SimulationContext:
    """A simulation of the scene."""
    physics = MujocoPhysicsCfg(mujoco.MjModel.from_xml_string(XML), engine, NUM_ENVS)
    return SimulationContext(SimulationCfg(physics, cameras=cameras, render_backend=render_backend, **settings))


def sims(request: pytest.FixtureRequest) -> Iterator[SimulationContext]:
    """The body of a fixture: one simulation for each render backend."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUJOCO_GL", "egl")
        with open_sim(request.param) as sim:
            yield sim


def shoot(sim: SimulationContext, name: str = "front") -> dict[str, np.ndarray]:
    """Copies of what a camera sees now."""
    data = sim.cameras[name].data
    return {kind: data[kind].numpy().copy() for kind in data}


def seen(frames: dict[str, np.ndarray]) -> np.ndarray:
    """Index of the shape that each pixel sees (N, H, W), -1 for none."""
    return frames["segmentation"][..., 0]


def changed(before: dict[str, np.ndarray], after: dict[str, np.ndarray], kind: str) -> np.ndarray:
    """Which pixels (N, H, W) differ."""
    return (before[kind] != after[kind]).any(axis=-1)


def assert_same(before: dict[str, np.ndarray], after: dict[str, np.ndarray], *kinds: str) -> None:
    """Planes, or all, are the same to the last bit."""
    for kind in kinds or before:
        np.testing.assert_array_equal(after[kind], before[kind], err_msg=kind)


def box_mask(size: Sequence[float] = BOX_SIZE, centre: Sequence[float] = (0.0, 0.0, 1.0)) -> np.ndarray:
    """Where the front of a box is in the image (H, W)."""
    u, v = np.meshgrid(np.arange(WIDTH) + 0.5 - 0.5 * WIDTH, np.arange(HEIGHT) + 0.5 - 0.5 * HEIGHT)
    scale = (DISTANCE + centre[1] - size[1]) / FOCAL
    return (np.abs(u * scale - centre[0]) < size[0]) & (np.abs(-v * scale + 1.0 - centre[2]) < size[2])


def ball_depth(radius: float = BALL_RADIUS) -> np.ndarray:
    """Distance along the optical axis of the ball alone (H, W), inf where it is not."""
    u, v = np.meshgrid(np.arange(WIDTH) + 0.5 - 0.5 * WIDTH, np.arange(HEIGHT) + 0.5 - 0.5 * HEIGHT)
    ray = np.stack((u / FOCAL, np.ones_like(u), -v / FOCAL), axis=-1)  # 1 m deep
    centre = np.array([1.0, DISTANCE, 0.0])
    a, b, c = (ray**2).sum(-1), ray @ centre, centre @ centre - radius**2
    root = b**2 - a * c
    return np.where(root > 0, (b - np.sqrt(np.maximum(root, 0))) / a, np.inf)
