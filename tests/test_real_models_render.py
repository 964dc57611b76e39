"""Models that other people made, from the file to camera frames: `info` and a render of two environments."""

import re

import mujoco
import numpy as np
import pytest
from real_models import REAL_MODELS, load, model_id

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import CameraCfg
from scene_data.cli import main

WIDTH, HEIGHT = 24, 18
PLANES = ("rgb", "depth", "segmentation")
ON_WARP = ("humanoid/humanoid", "suite/walker", "flex/floppy", "test_data/pendula")


def cameras(scene) -> list[CameraCfg]:
    """The free view, and the model's first camera where it has one."""
    names = ["free", *(camera.name or camera.path_name for camera in scene.cameras[:1])]
    return [CameraCfg(name, WIDTH, HEIGHT, PLANES) for name in dict.fromkeys(names)]


def nudged(model: mujoco.MjModel) -> np.ndarray:
    """A second state that lies near the first, so that the two environments can be told apart."""
    qpos = mujoco.MjData(model).qpos.copy()
    mujoco.mj_integratePos(model, qpos, np.full(model.nv, 0.2), 1.0)
    return qpos


def frames(model: mujoco.MjModel, engine: str) -> dict[str, dict[str, np.ndarray]]:
    """Every plane of every camera, of two environments in different states."""
    with SimulationContext(SimulationCfg(MujocoPhysicsCfg(model, engine, 2), cameras=cameras)) as sim:
        sim.step()
        if engine == "mujoco":
            sim.physics.datas[1].qpos[:] = nudged(model)
        elif engine == "mujoco_batch":
            sim.physics.batch.qpos[1] = nudged(model)
        else:
            states = sim.physics.data.qpos.numpy()
            states[1] = nudged(model)
            sim.physics.data.qpos.assign(states)
        return {
            name: {plane: camera.data.lease(plane).numpy().copy() for plane in PLANES}
            for name, camera in sim.cameras.items()
        }


def check(model: mujoco.MjModel, planes: dict[str, np.ndarray]) -> None:
    """What holds for every picture of every model."""
    rgb, depth, segmentation = (planes[plane] for plane in PLANES)
    assert rgb.shape == (2, HEIGHT, WIDTH, 3)
    hit = segmentation[..., 0] >= 0
    np.testing.assert_array_equal(np.isfinite(depth[..., 0]), hit)
    assert (depth[..., 0][hit] > 0).all()
    assert (segmentation[~hit] == -1).all()
    ids, types = segmentation[hit].T
    kinds = mujoco.mjtObj.mjOBJ_GEOM, mujoco.mjtObj.mjOBJ_FLEX, mujoco.mjtObj.mjOBJ_SKIN
    assert np.isin(types, [int(kind) for kind in kinds]).all()
    for kind, count in zip(kinds, (model.ngeom, model.nflex, model.nskin), strict=True):
        assert (ids[types == kind] < count).all()
    assert np.isin(model.geom_group[ids[types == kinds[0]]], (0, 1, 2)).all()


@pytest.mark.parametrize("path", REAL_MODELS, ids=model_id)
def test_info_and_two_environments_on_the_c_engine_and_on_batch(path, capsys):
    model = load(path)
    main(["info", str(path)])
    assert re.search(rf"transforms +│ {model.nbody:,}, index", capsys.readouterr().out)
    on_c, on_batch = frames(model, "mujoco"), frames(model, "mujoco_batch")
    for name, planes in on_c.items():
        check(model, planes)
        for plane in PLANES:
            np.testing.assert_array_equal(planes[plane], on_batch[name][plane], err_msg=f"{name}, {plane}")


@pytest.mark.parametrize("path", [path for path in REAL_MODELS if model_id(path) in ON_WARP], ids=model_id)
def test_two_environments_on_mujoco_warp_look_as_on_the_c_engine(path):
    model = load(path)
    on_c, on_warp = frames(model, "mujoco"), frames(model, "mujoco_warp")
    for name, planes in on_warp.items():
        check(model, planes)
        same = (planes["segmentation"] == on_c[name]["segmentation"]).all(axis=-1)
        assert same.mean() > 0.97, name
