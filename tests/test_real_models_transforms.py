"""Models that other people made: described, published, and never stale."""

from functools import partial

import mujoco
import numpy as np
import pytest
from mujoco_rigs import BatchRig, HostRig, WarpRig, assert_fresh, full_state, published_poses
from real_models import REAL_MODELS, ROBOTS, TEST_DATA, load, model_id

from scene_data.backends.mjcf_scene import describe_model
from scene_data.usd_paths import is_identifier

RIG_TYPES = {"host": HostRig, "batch": BatchRig, "persistent": partial(BatchRig, persistent=True)}
ON_MUJOCO_WARP = ("humanoid/humanoid", "tendon/wrap", "suite/walker", "fetch/pick_and_place")


def every_model(test):
    return pytest.mark.parametrize("path", REAL_MODELS, ids=model_id)(test)


def test_there_is_real_input():
    assert len(TEST_DATA) > 30
    assert len(ROBOTS) >= 10


@every_model
def test_description(path):
    model = load(path)
    scene = describe_model(model, num_envs=2)
    assert len(scene.bodies) == model.nbody
    assert len(scene.shapes) == model.ngeom
    assert sum(len(mesh.faces) for mesh in scene.meshes) == model.nmeshface
    assert scene.point_count == model.nflexvert
    fixed = (*scene.bodies, *scene.shapes, *scene.sites, *scene.cameras, *scene.lights)
    deforming = (*scene.flexes, *scene.skins, *scene.tendons)
    paths = [path for env in range(2) for path in scene.paths([*fixed, *deforming], env)]
    assert len(set(paths)) == len(paths)
    assert all(is_identifier(name) for path in paths for name in path.strip("/").split("/"))
    for mesh in scene.meshes:
        assert mesh.faces.max() < len(mesh.vertices)
        assert mesh.face_normals.max() < len(mesh.normals)
        if mesh.texcoords is not None:
            assert mesh.face_texcoords.max() < len(mesh.texcoords)
    for flex in scene.flexes:
        for indices in (flex.elements, flex.edges, flex.shell):
            assert indices.size == 0 or indices.max() < flex.vertex_count
        assert flex.texcoords is None or flex.element_texcoords.max() < len(flex.texcoords)
    for skin in scene.skins:
        weights = np.zeros(len(skin.vertices))
        np.add.at(weights, skin.bone_vertices, skin.bone_weights)
        np.testing.assert_allclose(weights, 1, atol=1e-3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rig_type", [HostRig, BatchRig])
@every_model
def test_poses_are_those_of_a_fresh_forward(path, rig_type):
    live_through(rig_type(load(path)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rig_type", RIG_TYPES.values(), ids=RIG_TYPES)
@every_model
def test_readers_leave_the_trajectory_alone(path, rig_type):
    model = load(path)
    alone, read = rig_type(model), rig_type(model)
    random = np.random.default_rng(0)
    for _ in range(12):
        control = random.uniform(-1, 1, (read.num_envs, model.nu))
        for rig in (alone, read):
            for env in range(rig.num_envs):
                rig.set("ctrl", env, control[env])
            rig.step()
        published_poses(read.backend)
        np.testing.assert_array_equal(full_state(read), full_state(alone))


@pytest.mark.parametrize("path", [path for path in REAL_MODELS if model_id(path) in ON_MUJOCO_WARP], ids=model_id)
def test_poses_on_mujoco_warp(path):
    live_through(WarpRig(load(path)))


def live_through(rig) -> None:
    """Step, write, move and reset without a word to anyone, and look after each."""
    model, last = rig.model, rig.num_envs - 1
    assert_fresh(rig)
    rig.step()
    rig.step()
    assert_fresh(rig)
    if model.nv:
        data = mujoco.MjData(model)
        data.qpos[:] = rig.get("qpos", last)
        velocity = np.random.default_rng(0).normal(size=model.nv)
        mujoco.mj_integratePos(model, data.qpos, velocity, 0.1)
        rig.set("qpos", last, data.qpos)
        assert_fresh(rig)
    if model.nmocap:
        rig.set("mocap_pos", last, rig.get("mocap_pos", last) + 0.25)
        assert_fresh(rig)
    rig.reset(last)
    assert_fresh(rig)
