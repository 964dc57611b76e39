"""What light makes of a colour: Lambert's law, and where OpenGL and MuJoCo Warp's ray tracer are known to differ."""

import mujoco
import numpy as np
import pytest
from gl_drivers import DRIVERS
from rendering import Studio

from scene_data import registry
from scene_data.camera import Orthographic, VisualOptions, WorldPose
from scene_data.renderers.render_core.camera import CameraDescriptor
from scene_data.renderers.render_core.layout import PlaneKind

RGB = PlaneKind.RGB

XML = """
<mujoco>
  <statistic center="0 0 0" extent="1"/>
  <visual>
    <map zfar="20"/>
    <quality shadowsize="256" offsamples="0"/>
    <headlight ambient="{ambient} {ambient} {ambient}" diffuse="0 0 0" specular="0 0 0"/>
  </visual>
  <asset>
    <texture name="grey" type="2d" builtin="flat" rgb1=".5 .5 .5" width="8" height="8"/>
    <material name="papered" texture="grey" specular="0"/>
    <material name="painted" rgba=".5 .5 .5 1" specular="0"/>
    <material name="lacquered" rgba=".2 .2 .2 1" specular="1" shininess=".5"/>
    {meshes}
  </asset>
  <worldbody>{things}</worldbody>
</mujoco>
"""

on_both = pytest.mark.parametrize(
    "name",
    ["mujoco_warp", pytest.param("mujoco_gl", marks=pytest.mark.skipif(not DRIVERS["egl"], reason="no EGL"))],
)


def seen_from_above(name: str, ambient: float, things: str, meshes: str = "") -> np.ndarray:
    """The colours (H, W, 3) of 2 m by 2 m around the origin, without shadows."""
    model = mujoco.MjModel.from_xml_string(XML.format(ambient=ambient, things=things, meshes=meshes))
    state = mujoco.MjData(model)
    mujoco.mj_forward(model, state)
    camera = CameraDescriptor(
        1, "top", 32, 32, (RGB,), 1, WorldPose((0, 0, 3)), Orthographic(2.0), VisualOptions(shadows=False)
    )
    studio = Studio(registry.renderers.get(name)(), model, [camera])
    frame = studio.shoot([state])[1, RGB][0]
    studio.close()
    return frame


def directional(diffuse: float, tilt: float) -> str:
    """A light from above, tilted away from straight down [degrees]."""
    direction = f"{np.sin(np.radians(tilt)):.6f} 0 {-np.cos(np.radians(tilt)):.6f}"
    colour = f"{diffuse} {diffuse} {diffuse}"
    return f'<light type="directional" dir="{direction}" diffuse="{colour}" specular="0 0 0" ambient="0 0 0"/>'


@on_both
@pytest.mark.parametrize(("ambient", "diffuse", "tilt"), [(0.3, 0.0, 0), (0.3, 0.6, 0), (0.1, 0.8, 60), (0.2, 0.7, 35)])
@pytest.mark.parametrize("material", ["painted", "papered"])
def test_a_face_is_as_bright_as_lambert_says(name, ambient, diffuse, tilt, material):
    things = f'<geom type="box" size="2 2 .1" material="{material}"/>' + directional(diffuse, tilt)
    frame = seen_from_above(name, ambient, things)
    expected = 255 * 0.5 * (ambient + diffuse * np.cos(np.radians(tilt)))
    np.testing.assert_allclose(frame, np.full(frame.shape, expected), atol=1.5)


@on_both
@pytest.mark.parametrize("material", ["painted", "papered"])
def test_light_beyond_1_is_cut_off_before_the_texture_in_opengl(name, material):
    things = f'<geom type="box" size="2 2 .1" material="{material}"/>' + directional(0.8, 0)
    frame = seen_from_above(name, 0.9, things)
    # A material's own colour takes part in the sum, a texture is multiplied with what is left of it.
    factor = 0.5 * min(1.7, 1.0) if name == "mujoco_gl" and material == "papered" else 0.5 * 1.7
    np.testing.assert_allclose(frame, np.full(frame.shape, 255 * factor), atol=2.5)


def board(name: str, cells: int) -> str:
    """A flat square mesh, two metres wide, of so many cells each way, with a spike below."""
    at = np.linspace(-1.0, 1.0, cells + 1)
    vertices = [f"{x:.4f} {y:.4f} 0" for y in at for x in at]
    faces = []
    for row in range(cells):
        for column in range(cells):
            corner = row * (cells + 1) + column
            right, above, across = corner + 1, corner + cells + 1, corner + cells + 2
            faces += [f"{corner} {right} {across}", f"{corner} {across} {above}"]
    corners = [0, cells, (cells + 1) ** 2 - 1, cells * (cells + 1)]
    vertices.append("0 0 -4")
    faces += [f"{corners[side]} {(cells + 1) ** 2} {corners[(side + 1) % 4]}" for side in range(4)]
    return f'<mesh name="{name}" inertia="shell" vertex="{"  ".join(vertices)}" face="{"  ".join(faces)}"/>'


@on_both
def test_opengl_lights_corners_and_blends_between_them(name):
    meshes = board("coarse", 1) + board("fine", 64)
    lamp = '<light type="spot" pos="0 0 1" dir="0 0 -1" diffuse=".4 .4 .4" specular=".5 .5 .5" cutoff="60"/>'
    pictures = {
        mesh: seen_from_above(
            name, 0.2, f'<geom type="mesh" mesh="{mesh}" material="lacquered"/>{lamp}', meshes
        ).astype(int)
        for mesh in ("coarse", "fine")
    }
    middle, edge = np.s_[14:18, 14:18], np.s_[1:-1, 1:-1]
    assert pictures["fine"][middle].mean() > 100  # the highlight
    if name == "mujoco_warp":  # it lights every pixel, whatever the triangles
        np.testing.assert_allclose(pictures["coarse"][edge], pictures["fine"][edge], atol=2)
    else:  # far from the lamp, the two triangles' corners are all dark
        assert pictures["coarse"][middle].max() < 30


@pytest.mark.skipif(not DRIVERS["egl"], reason="no EGL")
def test_with_small_triangles_the_two_light_alike():
    lamp = '<light type="spot" pos="0 0 1" dir="0 0 -1" diffuse=".4 .4 .4" specular=".5 .5 .5" cutoff="60"/>'
    things = f'<geom type="mesh" mesh="fine" material="lacquered"/>{lamp}'
    traced, drawn = (
        seen_from_above(name, 0.2, things, board("fine", 64)).astype(int) for name in ("mujoco_warp", "mujoco_gl")
    )
    assert np.abs(traced - drawn).mean() < 3


@on_both
def test_a_cloth_has_the_colour_of_its_material(name):
    things = """
    <flexcomp name="cloth" type="grid" dim="2" count="5 5 1" spacing=".2 .2 .1" pos="-.5 0 0" mass="1" radius=".01"
              material="lacquered"><edge equality="true"/></flexcomp>
    <flexcomp name="own" type="grid" dim="2" count="5 5 1" spacing=".2 .2 .1" pos=".5 0 0" mass="1" radius=".01"
              material="lacquered" rgba=".6 .2 .1 1"><edge equality="true"/></flexcomp>
    """
    frame = seen_from_above(name, 1.0, things)
    np.testing.assert_allclose(frame[16, 8], 255 * np.array([0.2, 0.2, 0.2]), atol=1.5)
    np.testing.assert_allclose(frame[16, 24], 255 * np.array([0.6, 0.2, 0.1]), atol=1.5)
