"""What a USD stage of a scene looks like: shapes, materials, cameras and lights, read back with plain USD."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
from PIL import Image
from pxr import Usd, UsdGeom, UsdLux, UsdShade
from usd_reading import validation_errors, world_matrix

from scene_data.assets import demo_model_path
from scene_data.backends.mjcf_scene import describe_model
from scene_data.stage import SceneStage

LOOKS = """
<mujoco>
  <asset>
    <texture name="grid" type="2d" builtin="checker" rgb1="1 0 0" rgb2="0 0 1" width="8" height="8"/>
    <texture name="cube" type="cube" builtin="flat" rgb1=".2 .4 .6" rgb2=".2 .4 .6" width="4" height="4"/>
    <material name="tiles" texture="grid" texrepeat="3 1" rgba=".5 1 1 1"/>
    <material name="dice" texture="cube" rgba="1 .5 1 1"/>
    <material name="steel" rgba=".1 .2 .3 .4" shininess=".75" emission=".5"/>
    <hfield name="hill" nrow="3" ncol="4" size="2 1 .5 .1" elevation="0 0 0 0 0 1 .5 0 0 0 0 0"/>
    <mesh name="cone" builtin="cone" params="12 0"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" material="tiles"/>
    <geom name="bare_floor" type="plane" size="2 1 1" pos="0 0 -1"/>
    <geom name="hill" type="hfield" hfield="hill" pos="0 4 0"/>
    <body name="b" pos="1 2 3" euler="10 20 30">
      <geom name="sphere" type="sphere" size=".3"/>
      <geom name="capsule" type="capsule" size=".1 .4" euler="30 0 0"/>
      <geom name="cylinder" type="cylinder" size=".1 .4" material="steel"/>
      <geom name="ellipsoid" type="ellipsoid" size=".1 .2 .4" pos=".1 0 0"/>
      <geom name="box" type="box" size=".1 .2 .4" material="dice"/>
      <geom name="tiled_box" type="box" size=".1 .2 .4" material="tiles"/>
      <geom name="cone" type="mesh" mesh="cone" material="steel" rgba="1 0 0 1"/>
      <geom name="collider" type="box" size=".1 .1 .1" group="3"/>
      <geom name="ghost" type="box" size=".1 .1 .1" rgba="1 1 1 0"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def looks() -> SceneStage:
    return SceneStage(describe_model(mujoco.MjModel.from_xml_string(LOOKS)))


class TestLooks:
    def test_shapes_have_the_size_and_place_that_mujoco_gives_them(self, looks):
        scene, model = looks.scene, looks.scene.native("mujoco_model")
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        checked = 0
        for index, path in enumerate(scene.paths(scene.shapes, 0)):
            prim = looks.stage.GetPrimAtPath(path)
            assert prim.IsInstanceProxy()
            if scene.shapes[index].name in ("floor", "hill"):
                continue
            checked += 1
            # Its own box, turned into the shape's frame, where MuJoCo keeps one too.
            low, high = np.array(UsdGeom.Boundable(prim).GetExtentAttr().Get(), dtype=float)
            box = world_matrix(looks.stage, path)
            pose = np.eye(4)
            pose[:3, :3], pose[:3, 3] = data.geom_xmat[index].reshape(3, 3), data.geom_xpos[index]
            corners = np.array([(*np.where(bits, high, low), 1.0) for bits in np.ndindex(2, 2, 2)])
            local = (np.linalg.inv(pose) @ box @ corners.T).T[:, :3]
            center, half = model.geom_aabb[index, :3], model.geom_aabb[index, 3:]
            if scene.shapes[index].type.value == "plane":
                center, half = np.zeros(3), np.array((2.0, 1.0, 0.0))
            np.testing.assert_allclose(
                (local.min(axis=0), local.max(axis=0)), (center - half, center + half), atol=1e-6
            )
        assert checked == 10

    def test_a_height_field_is_a_mesh_of_its_heights(self, looks):
        mesh = UsdGeom.Mesh(looks.stage.GetPrimAtPath("/World/envs/env_0/world/hill"))
        points = np.array(mesh.GetPointsAttr().Get())[:12].reshape(3, 4, 3)
        np.testing.assert_allclose(points[1, :, 2], (0, 0.5, 0.25, 0), atol=1e-6)
        np.testing.assert_allclose(points[0, :, 0], (-2, -2 / 3, 2 / 3, 2), atol=1e-6)
        assert np.array(mesh.GetExtentAttr().Get())[0].tolist() == pytest.approx([-2, -1, -0.1])

    def test_a_mesh_is_written_once_with_its_normals(self, looks):
        description = looks.scene.meshes[0]
        mesh = UsdGeom.Mesh(looks.stage.GetPrimAtPath("/World/envs/env_0/b/cone"))
        np.testing.assert_array_equal(mesh.GetPointsAttr().Get(), description.vertices)
        np.testing.assert_array_equal(np.array(mesh.GetFaceVertexIndicesAttr().Get()).reshape(-1, 3), description.faces)
        corners = description.normals[description.face_normals].reshape(-1, 3)
        normals = np.array(mesh.GetNormalsAttr().Get())
        if mesh.GetNormalsInterpolation() == UsdGeom.Tokens.vertex:
            normals = normals[description.faces.reshape(-1)]
        np.testing.assert_array_equal(normals, corners)
        assert mesh.GetSubdivisionSchemeAttr().Get() == UsdGeom.Tokens.none

    def test_materials_bind_in_the_colour_that_is_drawn(self, looks):
        def diffuse(shape: str) -> tuple[str, np.ndarray, UsdShade.Shader]:
            prim = looks.stage.GetPrimAtPath(f"/World/envs/env_0/{shape}")
            material, _ = UsdShade.MaterialBindingAPI(prim).ComputeBoundMaterial()
            surface, _, _ = material.ComputeSurfaceSource()
            return material.GetPrim().GetName(), surface.GetInput("diffuseColor").Get(), surface

        name, colour, surface = diffuse("b/cylinder")
        assert name == "steel"
        np.testing.assert_allclose(colour, (0.1, 0.2, 0.3))
        assert surface.GetInput("opacity").Get() == pytest.approx(0.4)
        assert surface.GetInput("roughness").Get() == pytest.approx(0.25)
        np.testing.assert_allclose(surface.GetInput("emissiveColor").Get(), (0.05, 0.1, 0.15), rtol=1e-6)
        name, colour, _ = diffuse("b/cone")
        assert name != "steel"
        np.testing.assert_allclose(colour, (1, 0, 0))
        assert diffuse("b/sphere")[0] == diffuse("b/capsule")[0], "one colour without a material is one material"
        # A cube map has no place in a preview surface: its mean colour stands for it.
        np.testing.assert_allclose(diffuse("b/box")[1], (0.2, 0.2, 0.6), atol=0.005)

    def test_a_planar_texture_is_a_file_that_the_surface_reads(self, looks):
        prim = looks.stage.GetPrimAtPath("/World/envs/env_0/b/tiled_box")
        material, _ = UsdShade.MaterialBindingAPI(prim).ComputeBoundMaterial()
        surface, _, _ = material.ComputeSurfaceSource()
        source = surface.GetInput("diffuseColor").GetConnectedSources()[0][0]
        texture = UsdShade.Shader(source.source.GetPrim())
        assert texture.GetIdAttr().Get() == "UsdUVTexture"
        np.testing.assert_allclose(texture.GetInput("scale").Get(), (0.5, 1, 1, 1))
        pixels = np.array(Image.open(texture.GetInput("file").Get().resolvedPath))
        np.testing.assert_array_equal(pixels, looks.scene.textures[0].pixels)
        st = UsdGeom.PrimvarsAPI(prim).GetPrimvar("st")
        assert st.GetInterpolation() == UsdGeom.Tokens.faceVarying
        assert len(st.ComputeFlattened()) == len(UsdGeom.Mesh(prim).GetFaceVertexIndicesAttr().Get())
        low, high = np.array(st.Get()).min(axis=0), np.array(st.Get()).max(axis=0)
        np.testing.assert_allclose((low, high), ((-1, 0), (2, 1)), atol=1e-6)

    def test_groups_that_mujoco_does_not_draw_are_guides_and_no_opacity_is_invisible(self, looks):
        def imageable(shape: str) -> UsdGeom.Imageable:
            return UsdGeom.Imageable(looks.stage.GetPrimAtPath(f"/World/envs/env_0/b/{shape}"))

        assert imageable("collider").ComputePurpose() == UsdGeom.Tokens.guide
        assert imageable("sphere").ComputePurpose() == UsdGeom.Tokens.default_
        assert imageable("ghost").ComputeVisibility() == UsdGeom.Tokens.invisible
        assert imageable("sphere").ComputeVisibility() == UsdGeom.Tokens.inherited

    def test_a_stage_in_memory_passes_every_validator_and_its_textures_go_with_it(self):
        written = SceneStage(describe_model(mujoco.MjModel.from_xml_string(LOOKS)))
        assert validation_errors(written.stage) == []
        textures = [Path(p.GetAttribute("inputs:file").Get().resolvedPath) for p in written.stage.Traverse()
                    if p.GetAttribute("inputs:file")]  # fmt: skip
        assert textures
        assert all(path.exists() for path in textures)
        del written
        assert not any(path.exists() for path in textures)


def test_texture_coordinates_count_from_the_bottom_of_the_image():
    written = SceneStage(describe_model(mujoco.MjModel.from_xml_path(str(demo_model_path()))))
    (mesh,) = (prim for prim in written.stage.Traverse(Usd.TraverseInstanceProxies()) if prim.GetName() == "vase_mesh"
               or (prim.IsA(UsdGeom.Mesh) and prim.GetParent().GetName() == "vase"))  # fmt: skip
    ours = np.array(UsdGeom.PrimvarsAPI(mesh).GetPrimvar("st").Get())
    lines = (demo_model_path().parent / "vase.obj").read_text().splitlines()
    theirs = np.array([line.split()[1:3] for line in lines if line.startswith("vt")], dtype=np.float32)
    assert {tuple(row) for row in ours.round(3)} == {tuple(row) for row in theirs.round(3)}


class TestCameraProjection:
    CAMERAS = """
    <mujoco><worldbody>
      <camera name="plain" fovy="40" resolution="64 48"/>
      <camera name="lens" sensorsize=".036 .024" focal=".03 .025" principal=".002 -.001" resolution="36 24"/>
      <camera name="flat" projection="orthographic" fovy="1.5" resolution="20 10"/>
    </worldbody></mujoco>
    """

    @pytest.mark.parametrize("name", ["plain", "lens", "flat"])
    def test_it_sees_what_mujoco_sees(self, name):
        model = mujoco.MjModel.from_xml_string(self.CAMERAS)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        scene, view = mujoco.MjvScene(model, 10), mujoco.MjvCamera()
        view.type, view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, model.camera(name).id
        mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, view, mujoco.mjtCatBit.mjCAT_ALL, scene)
        theirs = scene.camera[0]
        width, height = model.cam_resolution[model.camera(name).id]
        half_width = theirs.frustum_width or 0.5 * (theirs.frustum_top - theirs.frustum_bottom) * width / height
        near = theirs.frustum_near
        written = SceneStage(describe_model(model))
        prim = UsdGeom.Camera(written.stage.GetPrimAtPath(f"/World/envs/env_0/world/{name}"))
        frustum = prim.GetCamera(Usd.TimeCode.Default()).frustum
        window = frustum.GetWindow()
        # USD's window lies at distance 1, or holds the extent itself where lines of sight are parallel.
        scale = 1.0 if name == "flat" else near
        assert frustum.GetNearFar().GetMin() == pytest.approx(near)
        assert window.GetMin()[1] * scale == pytest.approx(theirs.frustum_bottom, rel=1e-5)
        assert window.GetMax()[1] * scale == pytest.approx(theirs.frustum_top, rel=1e-5)
        assert window.GetMax()[0] * scale == pytest.approx(theirs.frustum_center + half_width, rel=1e-5)
        assert window.GetMin()[0] * scale == pytest.approx(theirs.frustum_center - half_width, rel=1e-5)


class TestLights:
    MODEL = """
    <mujoco><worldbody>
      <light name="sun" type="directional" dir="0 1 -1" diffuse=".5 .6 .7"/>
      <light name="top" pos="0 0 3" dir="0 0 -1" cutoff="30"/>
      <light name="off" type="point" pos="1 0 3" active="false"/>
      <body name="b" pos="0 0 1"><freejoint/><geom size=".1"/><light name="lamp" dir="1 0 0"/></body>
    </worldbody></mujoco>
    """

    def lights(self, spacing: float) -> dict[str, list[str]]:
        written = SceneStage(describe_model(mujoco.MjModel.from_xml_string(self.MODEL), 2), env_spacing=spacing)
        found: dict[str, list[str]] = {}
        for prim in written.stage.Traverse(Usd.TraverseInstanceProxies()):
            if prim.HasAPI(UsdLux.LightAPI):
                found.setdefault(prim.GetName(), []).append(prim.GetTypeName())
        return found

    def test_copies_in_one_place_would_add_up_so_still_lights_stand_once(self):
        assert self.lights(0.0) == {
            "ambient": ["DomeLight"],
            "sun": ["DistantLight"],
            "top": ["SphereLight"],
            "off": ["SphereLight"],
            "lamp": ["SphereLight", "SphereLight"],
        }

    def test_apart_each_environment_has_its_lamps_under_one_sun(self):
        counts = {name: len(kinds) for name, kinds in self.lights(5.0).items()}
        assert counts == {"ambient": 1, "sun": 1, "top": 2, "off": 2, "lamp": 2}

    def test_they_look_like_the_models(self):
        stage = (written := SceneStage(describe_model(mujoco.MjModel.from_xml_string(self.MODEL)))).stage
        sun = UsdLux.DistantLight(stage.GetPrimAtPath("/World/Lights/sun"))
        np.testing.assert_allclose(sun.GetColorAttr().Get(), (0.5, 0.6, 0.7))
        np.testing.assert_allclose(-world_matrix(stage, "/World/Lights/sun")[:3, 2], np.array((0, 1, -1)) / 2**0.5)
        cone = UsdLux.ShapingAPI(stage.GetPrimAtPath("/World/Lights/top")).GetShapingConeAngleAttr().Get()
        assert cone == 30.0
        off = UsdGeom.Imageable(stage.GetPrimAtPath("/World/Lights/off"))
        assert off.ComputeVisibility() == UsdGeom.Tokens.invisible
        assert validation_errors(written.stage) == []
