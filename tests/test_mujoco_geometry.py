"""Flexes, skins, cables and tendons of the MuJoCo engines, against MuJoCo's own and against NumPy."""

from unittest.mock import Mock

import mujoco
import numpy as np
import pytest
import warp as wp
from mujoco_rigs import BatchRig, HostRig, WarpRig
from real_models import ROBOTS, TEST_DATA, load, model_id

from scene_data import SceneDataFormat, SceneDataProvider
from scene_data.backends import MujocoSceneDataBackend
from scene_data.backends.mjcf_cables import find_cables
from scene_data.backends.mjcf_scene import describe_model
from scene_data.backends.mujoco_data_list import MujocoDataListSceneDataBackend
from scene_data.renderers import SnapshotPool

CHAIN = """
    <body name="ropeB_first" pos="1 0 1">
      <geom type="capsule" fromto="0 0 0 .1 0 0" size=".02"/>
      <body name="ropeB_1" pos=".1 0 0">
        <joint type="ball"/>
        <geom type="capsule" fromto="0 0 0 .2 0 0" size=".02"/>
        <body name="ropeB_last" pos=".2 0 0" euler="0 40 0">
          <joint type="ball"/>
          <geom type="capsule" fromto=".1 0 0 0 0 0" size=".02"/>
        </body>
      </body>
    </body>
"""

MODEL = f"""
<mujoco>
  <worldbody>
    {CHAIN}
    <site name="anchor" pos="0 0 1"/>
    <geom name="drum" type="cylinder" size=".1 .1" pos="0 .3 1" euler="0 90 0" contype="0" conaffinity="0"/>
    <body name="upper" pos="0 0 .5">
      <joint axis="1 0 0"/>
      <geom type="box" size=".05 .1 .05"/>
      <site name="near" pos="0 .6 .4"/>
      <body name="lower" pos="0 .2 0">
        <joint axis="0 0 1"/>
        <geom type="sphere" size=".1"/>
        <site name="far" pos="0 .3 .1"/>
      </body>
    </body>
    <flexcomp name="string" type="grid" count="5 1 1" spacing=".1 .1 .1" dim="1" mass=".1" pos="-1 0 1" radius=".01"/>
    <flexcomp name="cloth" type="grid" count="4 3 1" spacing=".1 .1 .1" dim="2" mass=".1" pos="-1 1 1" radius=".01"/>
    <flexcomp name="jelly" type="grid" count="3 3 3" spacing=".1 .1 .1" dim="3" mass=".1" pos="-1 2 1" radius=".01"/>
  </worldbody>
  <deformable>
    <skin name="sleeve" inflate=".05" vertex="0 0 0  .1 0 .2  0 .3 .1  .2 .2 0  0 0 .4"
          face="0 1 2  0 2 3  0 3 1  1 3 2  1 2 4">
      <bone body="upper" bindpos="0 0 .5" bindquat="1 0 0 0" vertid="0 1 2 4" vertweight="1 .5 .3 1"/>
      <bone body="lower" bindpos="0 .2 .5" bindquat=".6 .8 0 0" vertid="1 2 3" vertweight=".5 .7 1"/>
    </skin>
    <skin name="patch" vertex="0 0 0  .1 0 .2  0 .3 .1" face="0 1 2">
      <bone body="lower" bindpos="0 .1 .5" bindquat=".6 0 .8 0" vertid="0 1 2" vertweight="1 1 1"/>
    </skin>
  </deformable>
  <tendon>
    <spatial name="wrapped"><site site="anchor"/><geom geom="drum"/><site site="near"/><site site="far"/></spatial>
    <spatial name="pulleys">
      <site site="anchor"/><site site="near"/>
      <pulley divisor="2"/><site site="near"/><geom geom="drum"/><site site="anchor"/>
      <pulley divisor="2"/><site site="near"/><site site="far"/>
    </spatial>
    <fixed name="coupling"><joint joint="upper_joint" coef="1"/></fixed>
  </tendon>
</mujoco>
""".replace('<joint axis="1 0 0"/>', '<joint name="upper_joint" axis="1 0 0"/>')


class DataListRig(HostRig):
    """Several `MjData`."""

    num_envs = 2

    def __init__(self, model: mujoco.MjModel):
        self.model = model
        self.datas = [mujoco.MjData(model) for _ in range(self.num_envs)]
        self.backend = MujocoDataListSceneDataBackend(model, self.datas)

    def set(self, field: str, env: int, value: np.ndarray) -> None:
        getattr(self.datas[env], field)[:] = value

    def get(self, field: str, env: int) -> np.ndarray:
        return getattr(self.datas[env], field).copy()


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(MODEL)


@pytest.fixture(params=[HostRig, DataListRig, BatchRig, WarpRig], ids=["host", "data_list", "batch", "warp"])
def rig(request, model):
    return request.param(model)


@pytest.fixture
def launches(monkeypatch) -> Mock:
    counted = Mock(wraps=wp.launch)
    monkeypatch.setattr(wp, "launch", counted)
    return counted


def move(rig, seed: int) -> list[mujoco.MjData]:
    """Put the environments into random states, and say how MuJoCo sees them."""
    rng = np.random.default_rng(seed)
    states = []
    for env in range(rig.num_envs):
        data = mujoco.MjData(rig.model)
        mujoco.mj_integratePos(rig.model, data.qpos, rng.normal(scale=0.5, size=rig.model.nv), 1.0)
        rig.set("qpos", env, data.qpos)
        mujoco.mj_forward(rig.model, data)
        states.append(data)
    return states


def expected_points(model: mujoco.MjModel, data: mujoco.MjData) -> dict[str, np.ndarray]:
    """Points of every path below the environment."""
    points = {}
    for name, first, count in zip(("string", "cloth", "jelly"), model.flex_vertadr, model.flex_vertnum, strict=True):
        points[name] = data.flexvert_xpos[first : first + count]
    points |= zip(("sleeve", "patch"), drawn_skins(model, data), strict=True)
    names = ("ropeB_first", "ropeB_1", "ropeB_last")
    ends = np.array([capsule_ends(model, data, model.body(name).geomadr[0], name == "ropeB_last") for name in names])
    points["rope"] = np.vstack((ends[0, 0], (ends[:-1, 1] + ends[1:, 0]) / 2, ends[-1, 1]))
    wrapped = tendon_branches(data, model.tendon("wrapped").id)
    points["wrapped"] = padded(wrapped[0], 5)
    for index, branch in enumerate(tendon_branches(data, model.tendon("pulleys").id)):
        points[f"pulleys/branch_{index}"] = padded(branch, (2, 4, 2)[index])
    return points


def drawn_skins(model: mujoco.MjModel, data: mujoco.MjData) -> list[np.ndarray]:
    """Skins as MuJoCo's own visualizer computes them."""
    scene = mujoco.MjvScene(model, 2000)
    mujoco.mjv_updateScene(
        model, data, mujoco.MjvOption(), None, mujoco.MjvCamera(), mujoco.mjtCatBit.mjCAT_ALL.value, scene
    )
    vertices = np.array(scene.skinvert).reshape(-1, 3)
    return np.split(vertices, model.skin_vertadr[1:])


def capsule_ends(model: mujoco.MjModel, data: mujoco.MjData, geom: int, reversed_capsule: bool) -> np.ndarray:
    half = data.geom_xmat[geom].reshape(3, 3)[:, 2] * model.geom_size[geom, 1]
    # "fromto" lets +Z point to the first point.
    ends = data.geom_xpos[geom] + np.array((half, -half))
    return ends[::-1] if reversed_capsule else ends


def tendon_branches(data: mujoco.MjData, tendon: int) -> list[np.ndarray]:
    """Wrap points before, between and after the pulleys."""
    path = slice(data.ten_wrapadr[tendon], data.ten_wrapadr[tendon] + data.ten_wrapnum[tendon])
    pulleys = np.flatnonzero(data.wrap_obj.ravel()[path] == -2)
    first, *others = np.split(data.wrap_xpos.reshape(-1, 3)[path], pulleys)
    return [first, *(part[1:] for part in others)]


def padded(points: np.ndarray, count: int) -> np.ndarray:
    return np.vstack((points, np.tile(points[-1], (count - len(points), 1))))


def test_every_kind_follows_the_present_state_of_each_environment(rig):
    provider = SceneDataProvider(rig.backend)
    wraps = set()
    for seed in range(4):
        states = move(rig, seed)
        views = provider.get_geometry_points()
        expected = {
            f"/World/envs/env_{env}/{name}": points
            for env, data in enumerate(states)
            for name, points in expected_points(rig.model, data).items()
        }
        assert views.keys() == expected.keys()
        for path, points in expected.items():
            np.testing.assert_allclose(views[path].numpy(), points, rtol=0, atol=2e-5, err_msg=path)
        wraps.update(int(data.ten_wrapnum[0]) for data in states)
    assert wraps == {3, 5}  # the tendon was seen on the drum, and off it


def test_flexes_come_first_and_paths_are_described(rig, model):
    batches = rig.backend.get_geometry_batches()
    formats = [source._cls for source, _ in batches]
    Format = SceneDataFormat
    assert formats == [Format.Points, Format.SkinnedPoints, Format.CapsuleEndpoints, Format.Points]
    assert set(formats) == set(rig.backend.native_geometry_formats)
    scene = rig.backend.describe_scene()
    assert batches[0][1] == scene.point_ranges()
    parts = [part.path_name for part in (*scene.flexes, *scene.skins, *scene.cables)]
    parts += [path_name for tendon in scene.tendons for path_name, _ in tendon.curves]
    paths = [path for _, ranges in batches for path in ranges]
    assert len(set(paths)) == len(paths)
    assert set(paths) == {f"{scene.env_path(env)}/{part}" for env in range(rig.num_envs) for part in parts}
    assert [flex.dim for flex in scene.flexes] == [1, 2, 3]
    assert not set(paths) & set(rig.backend.transform_paths)


@pytest.mark.parametrize("engine", [HostRig, DataListRig, BatchRig])
def test_one_launch_for_each_kind_and_none_while_nothing_moved(engine, model, launches):
    rig = engine(model)
    provider = SceneDataProvider(rig.backend)
    move(rig, 0)
    rig.backend.get_transforms(None)
    assert not launches.called
    for seed in (1, 2):
        move(rig, seed)
        launches.reset_mock()
        views = provider.get_geometry_points()
        assert launches.call_count == 3  # skins, cables, tendons; flexes are only narrowed
        assert provider.get_geometry_points() is views
        assert launches.call_count == 3


def test_mujoco_warp_launches_nothing_for_points_that_nobody_asked_for(model, launches):
    rig = WarpRig(model, announces_writes=True)
    provider = SceneDataProvider(rig.backend)
    provider.get_geometry_points()
    rig.backend.mark_transforms_written()
    launches.reset_mock()
    rig.backend.get_transforms(None)
    without = launches.call_count
    provider.get_geometry_points()
    assert launches.call_count > without
    launches.reset_mock()
    provider.get_geometry_points()
    assert not launches.called


def test_a_batch_lends_fields_for_points_only_from_the_first_request_on(model):
    rig = BatchRig(model)
    rig.backend.get_transforms(None)
    assert not {"xquat", "wrap_xpos"} & rig.batch._bound.keys()
    rig.backend.get_geometry_batches()
    assert {"xquat", "wrap_xpos"} <= rig.batch._bound.keys()


def test_the_first_request_may_be_made_within_a_consistent_read(rig):
    states = move(rig, 3)
    provider = SceneDataProvider(rig.backend)
    with provider.consistent_read():
        views = provider.get_geometry_points()
    last = rig.num_envs - 1
    expected = expected_points(rig.model, states[last])
    for name in ("sleeve", "rope", "wrapped", "cloth"):
        points = views[f"/World/envs/env_{last}/{name}"].numpy()
        np.testing.assert_allclose(points, expected[name], rtol=0, atol=2e-5)


def test_bodies_that_move_leave_the_points_of_a_scene_of_flexes_alone():
    flexes = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body mocap="true"><geom size=".1"/></body><flexcomp name="string" type="grid" '
        'count="3 1 1" spacing=".1 .1 .1" dim="1" mass="1" radius=".01"/></worldbody></mujoco>'
    )
    rig = HostRig(flexes)
    rig.backend.get_geometry_batches()
    before = rig.backend.geometry_timestamp
    rig.data.mocap_pos[0] += 1
    rig.backend.get_geometry_batches()
    assert rig.backend.geometry_timestamp == before


@pytest.mark.parametrize("engine", [HostRig, DataListRig, BatchRig])
def test_tendons_alone_follow_the_state(engine):
    rig = engine(load(next(path for path in TEST_DATA if model_id(path) == "tendon/wrap")))
    provider = SceneDataProvider(rig.backend)
    for seed in range(3):
        states = move(rig, seed)
        views = provider.get_geometry_points()
        for env, data in enumerate(states):
            for index, tendon in enumerate(rig.backend.describe_scene().tendons):
                (path_name, count), *_ = tendon.curves
                expected = padded(tendon_branches(data, index)[0], count)
                points = views[f"/World/envs/env_{env}/{path_name}"].numpy()
                np.testing.assert_allclose(points, expected, rtol=0, atol=1e-5)


def test_a_snapshot_copies_only_the_points_that_are_drawn(model):
    rig = BatchRig(model)
    states = move(rig, 1)
    provider = SceneDataProvider(rig.backend)
    pool = SnapshotPool()
    pool.activate(provider, 1, rig.backend.describe_scene().point_ranges())
    snapshot = pool.acquire(provider, 1).snapshot
    assert snapshot is not None
    vertices = np.concatenate([data.flexvert_xpos for data in states])
    np.testing.assert_allclose(snapshot.points.numpy(), vertices, rtol=0, atol=1e-5)
    snapshot.release()
    sleeve = "/World/envs/env_1/sleeve"
    pool.activate(provider, 2, {sleeve})
    snapshot = pool.acquire(provider, 2).snapshot
    assert snapshot is not None
    np.testing.assert_allclose(snapshot.points.numpy(), drawn_skins(model, states[1])[0], rtol=0, atol=1e-5)


# Skins and tendons of models that other people made


SKINNED = [path for path in ROBOTS if path.name in ("dog.xml", "rodent.xml")]


@pytest.mark.parametrize("path", SKINNED, ids=model_id)
def test_real_skins_are_exact(path):
    model = load(path)
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    mujoco.mj_integratePos(model, data.qpos, rng.normal(scale=0.3, size=model.nv), 1.0)
    views = SceneDataProvider(MujocoSceneDataBackend(model, data)).get_geometry_points()
    for index, drawn in enumerate(drawn_skins(model, data)):
        points = views[f"/World/envs/env_0/{describe_model(model).skins[index].path_name}"].numpy()
        np.testing.assert_allclose(points, drawn, rtol=0, atol=1e-6)
        np.testing.assert_allclose(points, skin_by_numpy(model, data, index), rtol=0, atol=1e-6)


def skin_by_numpy(model: mujoco.MjModel, data: mujoco.MjData, skin: int) -> np.ndarray:
    assert not model.skin_inflate[skin]
    first, count = model.skin_vertadr[skin], model.skin_vertnum[skin]
    rest, points = model.skin_vert[first : first + count].astype(float), np.zeros((count, 3))
    for bone in range(model.skin_boneadr[skin], model.skin_boneadr[skin] + model.skin_bonenum[skin]):
        members = slice(model.skin_bonevertadr[bone], model.skin_bonevertadr[bone] + model.skin_bonevertnum[bone])
        vertices = model.skin_bonevertid[members]
        bind = np.empty(9)
        mujoco.mju_quat2Mat(bind, model.skin_bonebindquat[bone].astype(float))
        body = model.skin_bonebodyid[bone]
        turn = data.xmat[body].reshape(3, 3) @ bind.reshape(3, 3).T
        moved = data.xpos[body] + (rest[vertices] - model.skin_bonebindpos[bone]) @ turn.T
        points[vertices] += model.skin_bonevertweight[members, None] * moved
    return points


@pytest.mark.parametrize("path", [path for path in TEST_DATA if path.parent.name == "tendon"], ids=model_id)
def test_real_tendons_run_through_their_wrap_points(path):
    model = load(path)
    data = mujoco.MjData(model)
    views = SceneDataProvider(MujocoSceneDataBackend(model, data)).get_geometry_points()
    curves = []
    for index, tendon in enumerate(describe_model(model).tendons):
        branches = [branch for branch in tendon_branches(data, index) if len(branch)] if tendon.is_spatial else []
        curves += zip(tendon.curves, branches, strict=True)
    assert len(views) == len(curves)
    for (path_name, count), branch in curves:
        points = views[f"/World/envs/env_0/{path_name}"].numpy()
        np.testing.assert_allclose(points, padded(branch, count), rtol=0, atol=1e-6)


# What is a cable


def with_chain(chain: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{chain}</worldbody></mujoco>")


def test_a_cable_is_a_chain_of_capsules_from_end_to_end():
    model = with_chain(CHAIN)
    (cable,) = find_cables(model)
    assert cable.name == "rope"
    assert cable.bodies == (1, 2, 3)
    assert cable.first_ends == (1, 1, -1)
    described = describe_model(model, 2).cables[0]
    assert (described.path_name, described.point_count, described.radius) == ("rope", 4, 0.02)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('pos=".2 0 0" euler="0 40 0"', 'pos=".25 0 0"'),
        ('pos=".2 0 0" euler="0 40 0"', 'pos="0 0 0"'),
        ('<joint type="ball"/>', '<joint type="hinge"/>'),
        ('.2 0 0" size=".02"', '.2 0 0" size=".03"'),
        ('<geom type="capsule" fromto=".1 0 0 0 0 0" size=".02"/>', '<geom type="box" size=".1 .02 .02"/>'),
        ('<body name="ropeB_1"', '<geom size=".01"/><body name="ropeB_1"'),
        (
            '<body name="ropeB_last"',
            '<body pos=".2 0 0"><joint type="ball"/><geom type="capsule" fromto="0 0 0 0 .1 0" size=".02"/></body>'
            '<body name="ropeB_last"',
        ),
    ],
    ids=["gap", "back_to_the_start", "hinges", "radius", "box", "second_geom", "fork"],
)
def test_other_chains_are_no_cables(old, new):
    assert old in CHAIN
    assert find_cables(with_chain(CHAIN.replace(old, new))) == ()


def test_cables_without_names_get_their_own_paths():
    anonymous = (
        CHAIN.replace(' name="ropeB_first"', "").replace(' name="ropeB_1"', "").replace(' name="ropeB_last"', "")
    )
    scene = describe_model(with_chain(anonymous + anonymous + CHAIN))
    assert [cable.path_name for cable in scene.cables] == ["cable_0", "cable_1", "rope"]
