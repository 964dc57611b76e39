"""Skins in MuJoCo Warp's ray tracer, against MuJoCo's own visualizer and against analysis."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import warp as wp
from gl_drivers import needs_gl
from real_models import REAL_MODELS, load, model_id
from rendering import Frames, Studio
from test_mujoco_geometry import MODEL, drawn_skins

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import CameraCfg, Pinhole, VisualOptions, WorldPose
from scene_data.extra_geometry import GeometryBatch
from scene_data.renderers.mujoco_gl import MujocoGlRenderBackend
from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.renderers.render_core.camera import CameraDescriptor
from scene_data.renderers.render_core.layout import PlaneKind

RGB, DEPTH, SEG = PlaneKind.RGB, PlaneKind.DEPTH, PlaneKind.SEGMENTATION
SKIN = int(mujoco.mjtObj.mjOBJ_SKIN)
SIDE = 32

# Over a floor and below a camera, on a lift: a sheet, red and green to the left and right of its middle; a flap to its
# right, whose outer edge turns with a leaf; and a blade to its left, a strip of triangles that turns with the leaf.
STRIP = [(x, y) for x in np.linspace(-1.0, -0.6, 9) for y in (-0.4, 0.4)]
TRIANGLES = [(2 * i + a, 2 * i + b, 2 * i + c) for i in range(8) for a, b, c in ((0, 2, 3), (0, 3, 1))]
XML = f"""
<mujoco>
  <visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
  <asset>
    <texture name="halves" type="2d" builtin="checker" rgb1="1 0 0" rgb2="0 1 0" width="64" height="64"/>
    <material name="halves" texture="halves" specular="0"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1" rgba="0 0 1 1"/>
    <body name="lift" pos="0 0 1"><joint type="slide" axis="0 0 1"/><geom size=".01" mass="1" group="4"/>
      <body name="leaf"><joint axis="0 1 0"/><geom size=".01" mass="1" group="4"/></body>
    </body>
    <camera name="top" pos="0 0 3" fovy="60"/>
  </worldbody>
  <deformable>
    <skin name="sheet" material="halves" vertex="-.4 -.4 0  .4 -.4 0  .4 .4 0  -.4 .4 0" face="0 1 2  0 2 3"
          texcoord=".01 .1  .99 .1  .99 .4  .01 .4">
      <bone body="lift" bindpos="0 0 0" bindquat="1 0 0 0" vertid="0 1 2 3" vertweight="1 1 1 1"/>
    </skin>
    <skin name="flap" rgba="1 1 0 1" group="1" vertex=".6 -.4 0  1 -.4 0  1 .4 0  .6 .4 0" face="0 1 2  0 2 3">
      <bone body="lift" bindpos="0 0 0" bindquat="1 0 0 0" vertid="0 3" vertweight="1 1"/>
      <bone body="leaf" bindpos="0 0 0" bindquat="1 0 0 0" vertid="1 2" vertweight="1 1"/>
    </skin>
    <skin name="blade" rgba="0 1 1 1" group="1" vertex="{" ".join(f"{x} {y} 0" for x, y in STRIP)}"
          face="{" ".join(f"{a} {b} {c}" for a, b, c in TRIANGLES)}">
      <bone body="leaf" bindpos="0 0 0" bindquat="1 0 0 0" vertid="{" ".join(str(i) for i in range(18))}"
            vertweight="{"1 " * 18}"/>
    </skin>
  </deformable>
</mujoco>
"""
OPTIONS = VisualOptions(shadows=False)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def states_of(model: mujoco.MjModel, *qpos: list[float]) -> list[mujoco.MjData]:
    states = []
    for values in qpos:
        state = mujoco.MjData(model)
        state.qpos[: len(values)] = values
        mujoco.mj_forward(model, state)
        states.append(state)
    return states


def top(num_envs: int, options: VisualOptions = OPTIONS) -> CameraDescriptor:
    return CameraDescriptor(1, "top", SIDE, SIDE, (RGB, DEPTH, SEG), num_envs, options=options)


def shoot(model: mujoco.MjModel, states: list[mujoco.MjData], options=OPTIONS, shards: int | None = None) -> Frames:
    studio = Studio(MujocoWarpRenderBackend(shards), model, [top(len(states), options)])
    frames = studio.shoot(states)
    studio.close()
    return frames


def covered(z: float, left: float, right: float) -> np.ndarray:
    """The pixels whose centre sees a level rectangle from x=left to right, 0.8 m deep, z above the ground."""
    focal = 0.5 * SIDE / np.tan(np.radians(30.0))
    x, y = np.meshgrid(*[(np.arange(SIDE) + 0.5 - 0.5 * SIDE) / focal * (3.0 - z)] * 2)
    return (left < x) & (x < right) & (np.abs(y) < 0.4)


def test_each_environment_has_its_own_shape_with_the_ids_and_depth_of_the_skins(model):
    frames = shoot(model, states_of(model, [0.0], [0.5], [-0.5]))
    for env, height in enumerate((1.0, 1.5, 0.5)):
        depth, seg = frames[1, DEPTH][env, ..., 0], frames[1, SEG][env]
        for skin, (left, right) in enumerate(((-0.4, 0.4), (0.6, 1.0), (-1.0, -0.6))):
            is_skin = (seg == (skin, SKIN)).all(axis=-1)
            np.testing.assert_array_equal(is_skin, covered(height, left, right))
            np.testing.assert_allclose(depth[is_skin], 3.0 - height, rtol=1e-5)


def test_a_skin_bends_with_its_bones(model):
    frames = shoot(model, states_of(model, [0.0, -1.0], [0.0, 0.3]))
    focal = 0.5 * SIDE / np.tan(np.radians(30.0))
    depth = frames[1, DEPTH][..., 0].astype(float)
    right, up = (np.arange(SIDE) + 0.5 - 0.5 * SIDE) / focal, (0.5 * SIDE - np.arange(SIDE) - 0.5) / focal
    x, y, z = right * depth, up[:, None] * depth, 3.0 - depth
    flap = (frames[1, SEG] == (1, SKIN)).all(axis=-1)
    assert flap[0].sum() > 20
    # The far edge has turned about the lift, from 1 m to its right; the near edge has stayed.
    far_x, far_z = np.cos(1.0), 1.0 + np.sin(1.0)
    along = (x[0] - 0.6) / (far_x - 0.6)
    np.testing.assert_allclose(z[0][flap[0]], (1.0 + along * (far_z - 1.0))[flap[0]], atol=1e-5)
    assert ((along > 0.0) & (along < 1.0) & (np.abs(y[0]) < 0.4))[flap[0]].all()
    # The blade has turned with the leaf.
    blade = (frames[1, SEG][1] == (2, SKIN)).all(axis=-1)
    assert blade.sum() > 20
    np.testing.assert_allclose(z[1][blade], (1.0 - np.tan(0.3) * x[1])[blade], atol=1e-5)


def test_a_texture_goes_where_its_coordinates_say(model):
    rgb, seg = (shoot(model, states_of(model, [0.0]))[1, plane][0] for plane in (RGB, SEG))
    sheet = (seg == (0, SKIN)).all(axis=-1)
    columns = np.broadcast_to(np.arange(SIDE), sheet.shape)
    left, right = sheet & (columns < SIDE // 2 - 1), sheet & (columns > SIDE // 2)
    assert (rgb[left] == rgb[left][0]).all()
    assert (rgb[right] == rgb[right][0]).all()
    assert {tuple(np.sign(rgb[side][0])) for side in (left, right)} == {(1, 0, 0), (0, 1, 0)}
    flap = (seg == (1, SKIN)).all(axis=-1)
    assert (np.sign(rgb[flap]) == (1, 1, 0)).all()


def test_groups_hide_them(model):
    seg = shoot(model, states_of(model, [0.0]), replace(OPTIONS, geom_groups=(1,)))[1, SEG][0]
    assert {tuple(pair) for pair in seg.reshape(-1, 2)} == {(-1, -1), (1, SKIN), (2, SKIN)}


def test_pixels_do_not_depend_on_the_shards(model):
    states = states_of(model, [0.0, 0.3], [0.5, -0.4], [-0.5, 0.0], [0.2, 1.0])
    one, three = shoot(model, states, shards=1), shoot(model, states, shards=3)
    for key in one:
        np.testing.assert_array_equal(one[key], three[key])


def test_a_diverged_environment_is_blank_and_the_others_are_as_they_were(model):
    states = states_of(model, [0.0], [0.5])
    before = shoot(model, states)
    states[0].xpos[1] = np.nan
    after = shoot(model, states)
    assert (after[1, SEG][0] == -1).all()
    for plane in (RGB, DEPTH, SEG):
        np.testing.assert_array_equal(after[1, plane][1], before[1, plane][1])


def drawn_by_the_tracer(model: mujoco.MjModel, state: mujoco.MjData) -> np.ndarray:
    """The vertices of all skins in the world, as the tracer's meshes have them."""
    backend = MujocoWarpRenderBackend(1)
    options = VisualOptions(shadows=False, textures=False)
    pose = WorldPose.looking_at((3, -3, 2), (0, 0, 0))
    camera = CameraDescriptor(1, "eye", 8, 8, (DEPTH,), mount=pose, intrinsics=Pinhole(8, 8, 4, 4), options=options)
    studio = Studio(backend, model, [camera])
    studio.shoot([state])
    (shard,) = backend._tracer._shards
    skins, scene = shard.scene.skins, shard.scene
    points = [
        mesh.points.numpy() + scene.fields.geom_xpos.numpy()[0, model.ngeom + skin]
        for skin, mesh in enumerate(skins._meshes)
    ]
    studio.close()
    return np.concatenate(points)


@pytest.mark.parametrize("source", ["inflated", "suite/dog"])
def test_vertices_are_mujocos(source):
    if source == "inflated":
        model = mujoco.MjModel.from_xml_string(MODEL)
    else:
        model = load(next(path for path in REAL_MODELS if model_id(path) == source))
    state = mujoco.MjData(model)
    state.qvel[:] = np.random.default_rng(0).normal(size=model.nv)
    mujoco.mj_integratePos(model, state.qpos, state.qvel, 0.3)
    mujoco.mj_forward(model, state)
    expected = np.concatenate(drawn_skins(model, state))
    np.testing.assert_allclose(drawn_by_the_tracer(model, state), expected, rtol=0, atol=2e-6)


@needs_gl
def test_a_bent_skin_looks_as_in_opengl(model):
    states = states_of(model, [0.0, -0.5], [0.3, 0.8])
    traced = shoot(model, states)
    studio = Studio(MujocoGlRenderBackend(), model, [top(2)])
    drawn = studio.shoot(states)
    studio.close()
    np.testing.assert_array_equal(traced[1, SEG], drawn[1, SEG])
    np.testing.assert_allclose(traced[1, DEPTH], drawn[1, DEPTH], rtol=1e-4)
    seg = traced[1, SEG]
    inside = np.all([(seg == np.roll(seg, step, axis)).all(-1) for step in (1, -1) for axis in (1, 2)], axis=0)
    assert np.abs(traced[1, RGB].astype(int) - drawn[1, RGB])[inside].mean() < 1  # OpenGL smooths edges


def test_extra_geometry_and_the_looks_of_environments_go_with_them(model):
    torch = pytest.importorskip("torch")
    camera = CameraCfg("top", SIDE, SIDE, ("rgb", "segmentation", "instance_segmentation"), options=OPTIONS)
    cfg = SimulationCfg(MujocoPhysicsCfg(model, "mujoco_batch", num_envs=2), cameras=[camera])
    with SimulationContext(cfg) as sim:
        before = sim.cameras["top"].data["rgb"].clone()
        sim.add_geometry_source(lambda: GeometryBatch.spheres([(-0.8, -0.8, 1.0)], 0.15, rgba=(1, 1, 1, 1)))
        sim.appearance.set_shape_colors([0.0, 1.0, 1.0], "floor", env_ids=[1])
        data = sim.cameras["top"].data
        seg = data["segmentation"]
        kinds = {tuple(pair.tolist()) for pair in seg.reshape(-1, 2).unique(dim=0)}
        assert kinds == {(0, int(mujoco.mjtObj.mjOBJ_GEOM)), (0, SKIN), (1, SKIN), (2, SKIN), (0, 0)}
        is_skin = seg[..., 1] == SKIN
        assert torch.equal(data["rgb"][is_skin], before[is_skin])
        floor = data["rgb"][1][(seg[1] == torch.tensor((0, int(mujoco.mjtObj.mjOBJ_GEOM)))).all(dim=-1)]
        assert (floor[:, 1] > 0).all()
        labels = data.info.id_to_labels["instance_segmentation"]
        named = {labels[int(id)] for id in data["instance_segmentation"].unique()}
        roots = ("/World/envs/env_0", "/World/envs/env_1")
        parts = ("world", "sheet", "flap", "blade")
        assert named == {"UNLABELLED", *(f"{root}/{part}" for root in roots for part in parts)}


@pytest.mark.parametrize("backend", ["mujoco_warp", pytest.param("mujoco_gl", marks=needs_gl)])
def test_they_follow_their_materials_in_each_environment(model, backend):
    torch = pytest.importorskip("torch")
    camera = CameraCfg("top", SIDE, SIDE, ("rgb", "segmentation"), options=OPTIONS)
    cfg = SimulationCfg(MujocoPhysicsCfg(model, "mujoco_batch", num_envs=2), cameras=[camera], render_backend=backend)
    with SimulationContext(cfg) as sim:
        before = {name: tensor.clone() for name, tensor in sim.cameras["top"].data.items()}
        sim.appearance.set_material_colors([0.0, 1.0, 1.0], "halves", env_ids=[1])
        after = sim.cameras["top"].data["rgb"]
        assert torch.equal(after[0], before["rgb"][0])
        sheet = (before["segmentation"][1] == torch.tensor((0, SKIN))).all(dim=-1)
        inside = sheet & sheet.roll(1, 0) & sheet.roll(-1, 0) & sheet.roll(1, 1) & sheet.roll(-1, 1)
        assert not after[1][inside][:, 0].any()  # what was red is black, and what was green is green
        assert torch.equal(after[1][inside][:, 1], before["rgb"][1][inside][:, 1])
        assert before["rgb"][1][inside][:, 0].any()


def test_what_the_engines_own_model_says_of_geoms_leaves_them_alone(model):
    torch = pytest.importorskip("torch")
    camera = CameraCfg("top", SIDE, SIDE, ("rgb", "segmentation"), options=OPTIONS)
    cfg = SimulationCfg(MujocoPhysicsCfg(model, "mujoco_warp", num_envs=2), cameras=[camera])
    with SimulationContext(cfg) as sim:
        before = {name: tensor.clone() for name, tensor in sim.cameras["top"].data.items()}
        colours = np.tile(model.geom_rgba, (2, 1, 1))
        colours[1, model.geom("floor").id] = 0, 1, 1, 1
        sim.physics.backend.model.geom_rgba = wp.array(colours, dtype=wp.vec4, device="cpu")
        sim.forward()
        after = sim.cameras["top"].data
        assert torch.equal(after["segmentation"], before["segmentation"])
        is_skin = before["segmentation"][..., 1] == SKIN
        assert torch.equal(after["rgb"][is_skin], before["rgb"][is_skin])
        assert torch.equal(after["rgb"][0], before["rgb"][0])
        assert (after["rgb"][1][~is_skin[1]][:, 1] > 0).all()
