import io

import mujoco
import numpy as np
import pytest
from PIL import Image

from scene_data.backends.mjcf_scene import describe_model
from scene_data.errors import ModelLoadError, UnknownNameError
from scene_data.scene import ClonePlan, FreeCameraDescription, SceneDescription, ShapeType, TextureType

OBJ = """
v 0 0 0
v 1 0 0
v 0 1 0
v 0 0 1
vt 0 0
vt 1 0
vt 0 1
vn 0 0 -1
vn -1 0 0
vn 0 -1 0
vn 0.57735 0.57735 0.57735
f 1/1/1 3/3/1 2/2/1
f 1/1/2 4/2/2 3/3/2
f 1/1/3 2/2/3 4/3/3
f 2/1/4 3/2/4 4/3/4
"""

MODEL = """
<mujoco model="everything">
  <statistic center="1 2 3" extent="2.5" meansize=".2" meanmass="3"/>
  <visual>
    <global azimuth="30" elevation="-20" fovy="50"/>
    <map znear=".02" zfar="40"/>
    <headlight ambient=".2 .2 .2" diffuse=".3 .4 .5" specular=".1 .1 .1"/>
  </visual>
  <asset>
    <texture name="picture" type="2d" file="picture.png"/>
    <texture name="crate" type="cube" builtin="flat" rgb1="1 0 0" rgb2="0 0 1" width="8" height="48"/>
    <texture name="sky" type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2="0 0 0" width="16" height="96"/>
    <material name="painted" texture="picture" texrepeat="2 3" texuniform="true" rgba="1 .5 .25 1" shininess=".7"
      specular=".6" emission=".1" reflectance=".2" metallic=".3" roughness=".4"/>
    <material name="boxed" texture="crate"/>
    <mesh name="corner" file="corner.obj"/>
    <mesh name="plain" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
    <hfield name="hill" nrow="2" ncol="3" size="3 2 .5 .1" elevation="0 1 0  0 .5 1"/>
  </asset>
  <worldbody>
    <light name="key" type="directional" dir="0 0 -1" castshadow="false" diffuse=".9 .8 .7"/>
    <light name="spot" type="spot" pos="0 0 2" dir="0 1 -1" cutoff="30" exponent="5"
      attenuation="1 .1 .01" active="false"/>
    <geom name="ground" type="hfield" hfield="hill" material="painted"/>
    <body name="base" pos="0 0 1" quat=".5 .5 -.5 .5">
      <freejoint/>
      <geom name="shell" type="mesh" mesh="corner" material="painted" group="2" contype="0" conaffinity="0"/>
      <geom type="box" size=".1 .2 .3" material="boxed" rgba="0 1 0 1"/>
      <geom name="ball" type="sphere" size=".1" quat="0 1 0 0"/>
      <camera name="lens" pos=".1 0 0" focal=".01 .02" sensorsize=".04 .03" principal=".001 -.002"
        resolution="320 240"/>
      <camera name="flat" projection="orthographic" fovy="2"/>
      <camera name="eye" mode="targetbody" target="tip" fovy="60"/>
      <site name="a" pos="0 0 .1" size=".01"/>
      <body name="tip" pos=".5 0 0"><joint axis="0 1 0"/><geom name="peg" type="cylinder" size=".05 .2"/>
        <site name="b" pos="0 0 .1"/><site name="side" pos="0 .1 0"/>
      </body>
    </body>
    <body name="ghost" mocap="true"/>
    <body name="post" pos="2 0 0"><geom type="capsule" size=".1 .5" mass="7"/></body>
    <flexcomp name="sheet" type="grid" count="3 3 1" spacing=".1 .1 .1" pos="0 0 2" dim="2" mass=".1" radius=".005">
      <edge equality="true"/>
    </flexcomp>
    <flexcomp name="jelly" type="grid" count="3 3 3" spacing=".1 .1 .1" pos="1 0 2" dim="3" mass=".1" radius=".005">
      <edge equality="true"/>
    </flexcomp>
  </worldbody>
  <deformable>
    <skin name="hide" vertex="0 0 0  1 0 0  0 1 0" face="0 1 2" texcoord="0 0  1 0  0 1"
      material="painted" inflate=".01">
      <bone body="base" bindpos="0 0 1" bindquat="0 1 0 0" vertid="0 1" vertweight="1 .5"/>
      <bone body="tip" bindpos="1 0 0" bindquat="1 0 0 0" vertid="1 2" vertweight=".5 1"/>
    </skin>
  </deformable>
  <tendon>
    <spatial name="rope" width=".02" rgba="1 0 0 1">
      <site site="a"/><geom geom="peg" sidesite="side"/><site site="b"/>
      <pulley divisor="2"/><site site="a"/><site site="b"/>
    </spatial>
  </tendon>
</mujoco>
"""

PICTURE = np.zeros((4, 6, 3), np.uint8)
PICTURE[0] = (255, 0, 0)
PICTURE[-1, 0] = (0, 0, 255)


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(MODEL, {"picture.png": png(PICTURE), "corner.obj": OBJ.encode()})


@pytest.fixture(scope="module")
def scene(model) -> SceneDescription:
    return describe_model(model, num_envs=3)


def by_name(parts, name):
    return next(part for part in parts if part.name == name)


def test_one_prototype_and_a_plan(scene, model):
    assert scene.name == "everything"
    assert scene.num_envs == 3
    assert len(scene.bodies) == model.nbody
    assert scene.env_path(2) == "/World/envs/env_2"
    assert scene.body_paths(1)[:3] == ["/World/envs/env_1/world", "/World/envs/env_1/base", "/World/envs/env_1/tip"]
    assert scene.native("mujoco_model") is model
    assert scene.native("newton_model") is None
    with pytest.raises(IndexError, match=r"environment 3 is not in \[0, 3\)"):
        scene.env_path(3)


def test_bodies(scene):
    base, tip, post = (by_name(scene.bodies, name) for name in ("base", "tip", "post"))
    assert scene.bodies[0].parent == -1
    assert scene.bodies[tip.parent] is base
    np.testing.assert_allclose(base.quaternion, [0.5, -0.5, 0.5, 0.5])  # x, y, z, w
    assert post.is_static
    assert post.mass == pytest.approx(7)
    assert by_name(scene.bodies, "ghost").is_mocap
    assert not by_name(scene.bodies, "ghost").is_static
    assert not tip.is_static


def test_everything_on_a_body_has_its_own_path(scene):
    parts = [*scene.bodies, *scene.shapes, *scene.sites, *scene.cameras, *scene.lights, *scene.flexes, *scene.skins]
    paths = [path for env in range(3) for path in scene.paths([*parts, *scene.tendons], env)]
    assert len(set(paths)) == len(paths)
    assert by_name(scene.cameras, "lens").path_name == "base/lens"
    assert by_name(scene.shapes, "ground").path_name == "world/ground"
    assert by_name(scene.flexes, "sheet").path_name == "sheet"


def test_shapes(scene, model):
    shell, box, ball = scene.shapes[1:4]
    assert (shell.type, box.type, ball.type) == (ShapeType.MESH, ShapeType.BOX, ShapeType.SPHERE)
    assert scene.meshes[shell.mesh].name == "corner"
    assert shell.group == 2
    assert not shell.collides
    assert ball.collides
    np.testing.assert_allclose(shell.rgba, [1, 0.5, 0.25, 1])  # the material's
    np.testing.assert_allclose(box.rgba, [0, 1, 0, 1])  # its own
    np.testing.assert_allclose(box.size, [0.1, 0.2, 0.3])
    np.testing.assert_allclose(ball.quaternion, [1, 0, 0, 0])
    ground = scene.shapes[0]
    assert ground.type is ShapeType.HEIGHT_FIELD
    assert scene.height_fields[ground.height_field].name == "hill"
    for shape, position in zip(scene.shapes, model.geom_pos, strict=True):
        np.testing.assert_array_equal(shape.position, position)


def test_a_mesh_in_its_shape_stands_where_the_file_has_it(scene):
    shell = by_name(scene.shapes, "shell")
    mesh = scene.meshes[shell.mesh]
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, np.roll(shell.quaternion, 1))
    corners = mesh.vertices @ rotation.reshape(3, 3).T + shell.position
    authored = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    np.testing.assert_allclose(sorted(corners.round(5).tolist()), sorted(authored), atol=1e-5)


def test_mesh_corners(scene):
    mesh = by_name(scene.meshes, "corner")
    assert mesh.faces.shape == mesh.face_normals.shape == mesh.face_texcoords.shape == (4, 3)
    # Each flat face of the file shares one normal, which is the one of its triangle.
    triangles = mesh.vertices[mesh.faces]
    across = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    normals = mesh.normals[mesh.face_normals]
    np.testing.assert_allclose(normals, np.repeat(across[:, None], 3, axis=1), atol=1e-3)
    assert {tuple(corner) for corner in mesh.texcoords[mesh.face_texcoords].reshape(-1, 2)} == {(0, 1), (1, 1), (0, 0)}
    plain = by_name(scene.meshes, "plain")
    assert plain.texcoords is None
    assert plain.face_texcoords is None


def test_textures(scene):
    picture, crate, sky = scene.textures
    assert (picture.type, crate.type, sky.type) == (TextureType.PLANAR, TextureType.CUBE, TextureType.SKYBOX)
    np.testing.assert_array_equal(picture.pixels, PICTURE)
    assert crate.pixels.shape == (48, 8, 3)
    assert crate.faces.shape == (6, 8, 8, 3)
    # MuJoCo paints the down face of a flat cube in the second colour, the others in the first.
    assert [tuple(face[0, 0]) for face in crate.faces] == [(255, 0, 0)] * 3 + [(0, 0, 255)] + [(255, 0, 0)] * 2
    assert sky.faces.shape == (6, 16, 16, 3)


def test_a_texture_by_reference_has_its_pixels(tmp_path):
    (tmp_path / "picture.png").write_bytes(png(PICTURE))
    path = tmp_path / "model.xml"
    path.write_text(
        '<mujoco><asset><texture name="t" type="2d" file="picture.png" embed="false"/>'
        '<material name="m" texture="t"/></asset><worldbody><geom size="1" material="m"/></worldbody></mujoco>'
    )
    model = mujoco.MjModel.from_xml_path(str(path))
    assert model.tex_adr[0] == -1
    np.testing.assert_array_equal(describe_model(model).textures[0].pixels, PICTURE)
    (tmp_path / "picture.png").unlink()
    with pytest.raises(ModelLoadError, match=r"picture\.png.*texture 't'"):
        describe_model(model)


def test_materials(scene):
    painted = by_name(scene.materials, "painted")
    assert scene.textures[painted.textures["rgb"]].name == "picture"
    np.testing.assert_allclose(painted.texture_repeat, [2, 3])
    assert painted.texture_uniform
    coefficients = [painted.shininess, painted.specular, painted.emission, painted.reflectance]
    np.testing.assert_allclose(coefficients, [0.7, 0.6, 0.1, 0.2])
    np.testing.assert_allclose([painted.metallic, painted.roughness], [0.3, 0.4])


def test_height_field_in_metres(scene):
    hill = scene.height_fields[0]
    assert hill.heights.shape == (2, 3)
    # MJCF lists the far row first; rows here run along +Y.
    np.testing.assert_allclose(hill.heights, [[0, 0.25, 0.5], [0, 0.5, 0]])
    np.testing.assert_allclose(hill.half_extents, [3, 2])
    assert hill.base_depth == pytest.approx(0.1)


def test_height_field_against_rays(scene, model):
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    hill = scene.height_fields[0]
    for row, y in ((0, -2 + 1e-4), (1, 2 - 1e-4)):
        for column, x in ((0, -3 + 1e-4), (1, 0.0), (2, 3 - 1e-4)):
            start, down = np.array([x, y, 5.0]), np.array([0, 0, -1.0])
            height = 5 - mujoco.mj_rayHfield(model, data, 0, start, down, np.zeros(3))
            assert height == pytest.approx(hill.heights[row, column], abs=1e-3)


def test_flexes(scene, model):
    sheet, jelly = scene.flexes
    assert (sheet.dim, jelly.dim) == (2, 3)
    assert sheet.vertex_count == 9
    assert jelly.vertex_offset == 9
    assert sheet.elements.shape == (8, 3)
    assert jelly.elements.shape[1] == 4
    assert jelly.shell.shape[1] == 3
    assert sheet.elements.max() < 9
    assert jelly.elements.max() < jelly.vertex_count
    np.testing.assert_allclose(sheet.rest_vertices.mean(axis=0), [0, 0, 2], atol=1e-6)
    np.testing.assert_allclose(jelly.rest_vertices.mean(axis=0), [1, 0, 2], atol=1e-6)
    lengths = np.linalg.norm(np.diff(sheet.rest_vertices[sheet.edges], axis=1)[:, 0], axis=1)
    np.testing.assert_allclose(np.unique(lengths.round(4)), [0.1, 0.1414], atol=1e-4)
    assert sheet.radius == pytest.approx(0.005)
    assert scene.point_count == model.nflexvert
    assert scene.point_ranges()["/World/envs/env_2/jelly"] == (2 * model.nflexvert + 9, jelly.vertex_count)


def test_skins(scene):
    hide = scene.skins[0]
    assert [scene.bodies[body].name for body in hide.bone_bodies] == ["base", "tip"]
    np.testing.assert_allclose(hide.bone_bind_quaternions, [[1, 0, 0, 0], [0, 0, 0, 1]])
    np.testing.assert_array_equal(hide.bone_offsets, [0, 2, 4])
    np.testing.assert_array_equal(hide.bone_vertices, [0, 1, 1, 2])
    sums = np.zeros(3)
    np.add.at(sums, hide.bone_vertices, hide.bone_weights)
    np.testing.assert_allclose(sums, 1)
    assert hide.texcoords.shape == (3, 2)
    assert scene.materials[hide.material].name == "painted"
    assert hide.inflate == pytest.approx(0.01)


def test_tendons(scene):
    rope = scene.tendons[0]
    assert rope.is_spatial
    assert rope.wrap_types == ("site", "cylinder", "site", "pulley", "site", "site")
    assert [scene.sites[index].name for index in rope.wrap_objects[[0, 2, 4, 5]]] == ["a", "b", "a", "b"]
    assert scene.shapes[rope.wrap_objects[1]].name == "peg"
    assert scene.sites[rope.wrap_side_sites[1]].name == "side"
    assert rope.wrap_side_sites[0] == -1
    assert rope.wrap_parameters[3] == 2
    assert rope.width == pytest.approx(0.02)
    np.testing.assert_allclose(rope.rgba, [1, 0, 0, 1])


def test_cameras(scene):
    lens, flat, eye = scene.cameras
    np.testing.assert_allclose(lens.focal, [0.01, 0.02])
    np.testing.assert_allclose(lens.sensor_size, [0.04, 0.03])
    np.testing.assert_allclose(lens.principal, [0.001, -0.002])
    np.testing.assert_array_equal(lens.resolution, [320, 240])
    assert (lens.projection, flat.projection) == ("perspective", "orthographic")
    assert flat.fovy == 2
    assert eye.mode == "targetbody"
    assert scene.bodies[eye.target_body].name == "tip"
    assert scene.camera_index("flat") == 1
    with pytest.raises(UnknownNameError, match=r"Unknown camera 'nose'\. Known: lens, flat, eye\."):
        scene.camera_index("nose")


def test_lights(scene):
    key, spot = scene.lights
    assert (key.type, spot.type) == ("directional", "spot")
    assert not key.casts_shadow
    assert not spot.active
    assert (spot.cutoff, spot.exponent) == (30, 5)
    np.testing.assert_allclose(spot.attenuation, [1, 0.1, 0.01])
    np.testing.assert_allclose(spot.direction, [0, np.sqrt(0.5), -np.sqrt(0.5)])
    np.testing.assert_allclose(key.diffuse, [0.9, 0.8, 0.7])
    assert key.texture is None


def test_view(scene):
    np.testing.assert_allclose(scene.center, [1, 2, 3])
    assert scene.extent == 2.5
    assert scene.near == pytest.approx(0.05)
    assert scene.far == pytest.approx(100)
    assert scene.statistics.mean_mass == 3
    np.testing.assert_allclose(scene.headlight.diffuse, [0.3, 0.4, 0.5])
    assert scene.initial_camera is None
    assert (scene.free_camera.azimuth, scene.free_camera.elevation, scene.free_camera.fovy) == (30, -20, 50)


@pytest.mark.parametrize(("azimuth", "elevation"), [(30, -20), (90, -45), (200, 10), (-135, -89)])
def test_the_free_camera_stands_where_mujoco_puts_it(model, azimuth, elevation):
    camera = mujoco.MjvCamera()
    camera.lookat[:], camera.distance, camera.azimuth, camera.elevation = (1, 2, 3), 4, azimuth, elevation
    drawn = mujoco.MjvScene(model, 100)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, camera, mujoco.mjtCatBit.mjCAT_STATIC, drawn)
    eyes = drawn.camera
    ours = FreeCameraDescription(np.array([1.0, 2, 3]), 4, azimuth, elevation)
    np.testing.assert_allclose(ours.position, (eyes[0].pos + eyes[1].pos) / 2, atol=1e-5)
    np.testing.assert_allclose(ours.rotation[:, 2], -eyes[0].forward, atol=1e-5)
    np.testing.assert_allclose(ours.rotation[:, 1], eyes[0].up, atol=1e-5)
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, np.roll(ours.quaternion, 1))
    np.testing.assert_allclose(rotation.reshape(3, 3), ours.rotation, atol=1e-9)


def test_nothing_can_be_changed(scene):
    with pytest.raises(AttributeError):
        scene.extent = 3.0
    for part in (scene.bodies[1].position, scene.meshes[0].vertices, scene.textures[0].pixels, scene.center):
        with pytest.raises(ValueError, match="read-only"):
            part[...] = 0
    with pytest.raises(TypeError):
        scene.materials[0].textures["rgb"] = 1


def test_later_edits_of_the_model_do_not_reach_it():
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1' rgba='1 0 0 1'/></worldbody></mujoco>")
    scene = describe_model(model)
    model.geom_rgba[:] = 0
    np.testing.assert_array_equal(scene.shapes[0].rgba, [1, 0, 0, 1])


AWKWARD = """
<mujoco><worldbody>
  <body name="a-b"/><body name="a_b"/><body name="a b"/><body name="a_b_1"/><body/><body name="3rd"/>
  <body name="größe"/><body name="arm/hand"/><body name="世界"><geom size="1" name="x y"/><geom size="1" name="x_y"/>
  <camera name="x-y"/><light name="x y"/><geom size="1"/></body>
  <flexcomp name="arm-hand" type="grid" count="2 2 1" spacing=".1 .1 .1" dim="2"><edge equality="true"/></flexcomp>
</worldbody></mujoco>
"""


def test_awkward_names():
    scenes = [describe_model(mujoco.MjModel.from_xml_string(AWKWARD)) for _ in range(2)]
    names = [body.path_name for body in scenes[0].bodies]
    assert names[:10] == ["world", "a_b_2", "a_b", "a_b_3", "a_b_1", "body_5", "_3rd", "gro_e", "arm_hand", "__"]
    assert [shape.path_name for shape in scenes[0].shapes] == ["__/x_y_1", "__/x_y", "__/shape_2"]
    assert scenes[0].cameras[0].path_name == "__/x_y_2"
    assert scenes[0].lights[0].path_name == "__/x_y_3"
    assert scenes[0].flexes[0].path_name not in names
    for kind in ("bodies", "shapes", "cameras", "lights", "flexes"):
        first, second = (scene.paths(getattr(scene, kind), 0) for scene in scenes)
        assert first == second


def test_a_clone_plan_needs_an_environment():
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        ClonePlan(0)
    with pytest.raises(ValueError, match=r"must hold '\{\}'"):
        ClonePlan(1, "/World")
