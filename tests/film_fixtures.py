"""Fixtures of the film set: the model, its states, its cameras, and their frames, made once per module.

They are drawn by MuJoCo Warp on one thread, unless a module has a `film_backend` of its own.
"""

import mujoco
import numpy as np
import pytest
from film_set import NUM_ENVS, XML, all_cameras
from rendering import Frames, Studio

from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.renderers.render_core.backend import RenderBackend
from scene_data.renderers.render_core.camera import CameraDescriptor


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML.format(option=""))


@pytest.fixture(scope="module")
def states(model: mujoco.MjModel) -> list[mujoco.MjData]:
    states = [mujoco.MjData(model) for _ in range(NUM_ENVS)]
    for env, state in enumerate(states):
        state.qpos[:3] = 0.25 * env - 0.2, 0.1 * env, 0.4 + 0.1 * env
        mujoco.mju_euler2Quat(state.qpos[3:], np.array([0.2, 0.1, 0.4]) * env, "xyz")
        mujoco.mj_forward(model, state)
    return states


@pytest.fixture(scope="module")
def cameras(model: mujoco.MjModel) -> dict[str, CameraDescriptor]:
    return all_cameras(model)


@pytest.fixture(scope="module")
def film_backend() -> RenderBackend:
    return MujocoWarpRenderBackend(shards=1)


@pytest.fixture(scope="module")
def studio(film_backend, model, cameras):
    studio = Studio(film_backend, model, list(cameras.values()))
    yield studio
    studio.close()


@pytest.fixture(scope="module")
def frames(studio, states) -> Frames:
    return studio.shoot(states)
