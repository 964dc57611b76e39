"""Cameras that follow a body, in each of MuJoCo's ways and on each render backend: they see what their rays hit."""

import mujoco
import numpy as np
import pytest
from gl_drivers import DRIVERS
from ray_casting import cast, rays_of

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import BodyMount, CameraCfg, Pinhole, WorldPose

WIDTH, HEIGHT, NUM_ENVS, FAR = 48, 36, 2, 50.0
LENS = Pinhole(50.0, 40.0, 20.0, 21.0)

XML = """
<mujoco>
  <option timestep="0.01" gravity="0 0 -9.81"/>
  <statistic center="0 0 0" extent="1"/>
  <visual><map znear="0.02" zfar="50"/><quality shadowsize="256"/></visual>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <geom name="wall" type="box" size="3 .1 1.5" pos="0 3 1"/>
    <camera name="targetbody" pos="1 -3 2" mode="targetbody" target="hand"/>
    <camera name="targetbodycom" pos="-1 -3 2" mode="targetbodycom" target="torso"/>
    <body name="torso" pos="0 0 1">
      <freejoint/>
      <geom name="torso" type="box" size=".2 .15 .1"/>
      <camera name="fixed" pos="-.5 -1.5 .5" xyaxes="1 -.3 0 .1 .3 1"/>
      <camera name="track" pos="0 -2 .5" xyaxes="1 0 0 0 .2 1" mode="track"/>
      <camera name="trackcom" pos=".3 -2 .2" xyaxes="1 0 0 0 .1 1" mode="trackcom"/>
      <body name="hand" pos=".4 0 0">
        <joint type="hinge" axis="0 1 0"/>
        <geom name="hand" type="box" size=".2 .05 .05" pos=".2 0 0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
MODES = ("fixed", "track", "trackcom", "targetbody", "targetbodycom")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def expected_state(model: mujoco.MjModel, qpos: np.ndarray) -> mujoco.MjData:
    """Where everything is, by MuJoCo alone."""
    state = mujoco.MjData(model)
    state.qpos[:] = qpos
    mujoco.mj_forward(model, state)
    return state


def pose_of(position: np.ndarray, rotation: np.ndarray) -> WorldPose:
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, rotation.ravel())
    return WorldPose(tuple(position), tuple(quaternion[[1, 2, 3, 0]]))


def expected_poses(model: mujoco.MjModel, state: mujoco.MjData) -> dict[str, WorldPose]:
    poses = {mode: pose_of(state.camera(mode).xpos, state.camera(mode).xmat) for mode in MODES}
    hand = state.body("hand")
    rotation = hand.xmat.reshape(3, 3)
    poses["mounted"] = pose_of(hand.xpos + rotation @ (0.1, 0.0, 1.5), rotation)
    return poses


@pytest.mark.parametrize(
    "render_backend",
    ["mujoco_warp", pytest.param("mujoco_gl", marks=pytest.mark.skipif(not DRIVERS["egl"], reason="no EGL")), "newton"],
)
def test_a_camera_follows_its_body_in_every_environment(render_backend, model):
    if render_backend == "newton":
        pytest.importorskip("newton")
    data_types = ("depth", "segmentation")
    cameras = [CameraCfg(mode, WIDTH, HEIGHT, data_types, intrinsics=LENS) for mode in MODES]
    mount = BodyMount("hand", (0.1, 0.0, 1.5))
    cameras.append(CameraCfg("mounted", WIDTH, HEIGHT, data_types, mount=mount, intrinsics=LENS))
    physics = MujocoPhysicsCfg(model, "mujoco_batch", NUM_ENVS)
    with SimulationContext(SimulationCfg(physics, cameras=cameras, render_backend=render_backend)) as sim:
        batch = sim.physics.batch
        batch.qvel[:] = [[0.5, 1.0, 2.0, 0.3, -1.0, 0.5, 2.0], [-1.0, 0.0, 1.0, -0.8, 0.4, 1.0, -3.0]]
        for _ in range(20):
            sim.step()
        states = [expected_state(model, batch.qpos[env]) for env in range(NUM_ENVS)]
        frames = {
            name: {kind: camera.data[kind].numpy() for kind in data_types} for name, camera in sim.cameras.items()
        }
    for env, state in enumerate(states):
        assert np.linalg.norm(state.body("torso").xpos - model.body("torso").pos) > 0.15
        for name, pose in expected_poses(model, state).items():
            depth, geom = cast(model, state, *rays_of(LENS, WIDTH, HEIGHT, pose), FAR)
            assert {model.geom("torso").id, model.geom("hand").id} & set(geom.ravel().tolist()), name
            seen = frames[name]["segmentation"][env, ..., 0]
            assert (seen != geom).sum() <= 5, name  # an edge that runs through a pixel's centre
            hit = (seen == geom) & (geom >= 0)
            np.testing.assert_allclose(frames[name]["depth"][env, ..., 0][hit], depth[hit], rtol=1e-4, err_msg=name)
