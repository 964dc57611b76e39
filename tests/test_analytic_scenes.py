"""Small scenes at the edge of what a camera meets, on each render backend: what is seen is known without any of them.

Expected depths and objects are those of MuJoCo's ray casts through the pixel centres, or follow from a formula.
"""

from dataclasses import dataclass

import mujoco
import numpy as np
import pytest
from gl_drivers import DRIVERS
from ray_casting import cast, rays_of
from rendering import Frames, Studio

from scene_data import registry
from scene_data.camera import Intrinsics, Orthographic, Pinhole, VisualOptions, WorldPose
from scene_data.renderers.render_core.camera import CameraDescriptor
from scene_data.renderers.render_core.layout import PlaneKind

RGB, DEPTH, SEG = PlaneKind.RGB, PlaneKind.DEPTH, PlaneKind.SEGMENTATION
GEOM = int(mujoco.mjtObj.mjOBJ_GEOM)
NEAR, FAR = 0.05, 20.0
MARKED = 3
"""The group of what a camera here shows, but the ray casts, which look at groups 0 to 2, do not hit."""

FACETS = 1e-2
"""OpenGL has facets for curves, here 128 around: they lie 0.0003 radii inside, and 0.03 where rays graze them."""

# One geom of each type out of sight, so that MuJoCo Warp draws all scenes with the same kernel.
XML = """
<mujoco>
  <statistic center="0 0 0" extent="1"/>
  <visual>
    <map znear="0.05" zfar="20"/>
    <quality numslices="128" numstacks="128" shadowsize="256" offsamples="{samples}"/>
    <headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/>
  </visual>
  <asset>
    <mesh name="roof" vertex="-1 -1 0  1 -1 0  1 1 0  -1 1 0  0 -1 .8  0 1 .8" scale=".4 .4 .4"/>
    <hfield name="hill" nrow="9" ncol="9" size=".6 .6 .4 .1" elevation="{elevation}"/>
    {assets}
  </asset>
  <worldbody>
    <light pos="0 0 9" diffuse="0 0 0" specular="0 0 0"/>
    <geom type="sphere" size=".1" pos="0 0 60"/>
    <geom type="capsule" size=".1 .1" pos="0 0 61"/>
    <geom type="ellipsoid" size=".1 .1 .2" pos="0 0 62"/>
    <geom type="cylinder" size=".1 .1" pos="0 0 63"/>
    <geom type="box" size=".1 .1 .1" pos="0 0 64"/>
    <geom type="mesh" mesh="roof" pos="0 0 65"/>
    <geom type="hfield" hfield="hill" pos="0 0 66"/>
    <geom type="plane" size="1 1 1" pos="0 0 67"/>
    {things}
  </worldbody>
</mujoco>
"""
_RISE = 1.0 - np.linspace(-1.0, 1.0, 9) ** 2  # none at the borders
ELEVATION = " ".join(f"{height:.4f}" for height in np.outer(_RISE, _RISE).ravel())


@pytest.fixture(
    params=[
        "mujoco_warp",
        pytest.param("mujoco_gl", marks=pytest.mark.skipif(not DRIVERS["egl"], reason="no EGL")),
        "newton",
    ]
)
def name(request) -> str:
    """A render backend that can draw here."""
    if request.param == "newton":
        pytest.importorskip("newton")
    return request.param


@dataclass
class View:
    """A free camera and its image."""

    width: int
    height: int
    lens: Intrinsics
    pose: WorldPose

    def rays(self) -> tuple[np.ndarray, np.ndarray]:
        return rays_of(self.lens, self.width, self.height, self.pose)


def build(things: str, assets: str = "", samples: int = 0) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = mujoco.MjModel.from_xml_string(
        XML.format(things=things, assets=assets, elevation=ELEVATION, samples=samples)
    )
    state = mujoco.MjData(model)
    mujoco.mj_forward(model, state)
    return model, state


def shoot(name: str, model: mujoco.MjModel, state: mujoco.MjData, *views: View, planes=(DEPTH, SEG)) -> list[Frames]:
    """Depth (H, W), geom (H, W) with -1 for none and whatever else was asked for, of each view."""
    options = VisualOptions(geom_groups=(0, 1, 2, MARKED))
    cameras = [
        CameraDescriptor(index, f"view {index}", view.width, view.height, planes, 1, view.pose, view.lens, options)
        for index, view in enumerate(views, start=1)
    ]
    studio = Studio(registry.renderers.get(name)(), model, cameras)
    frames = studio.shoot([state])
    studio.close()
    shots = [{plane: frames[camera.id, plane][0] for plane in planes} for camera in cameras]
    for shot in shots:
        depth, seg = shot[DEPTH][..., 0], shot[SEG]
        np.testing.assert_array_equal(seg[..., 1], np.where(seg[..., 0] >= 0, GEOM, -1))
        np.testing.assert_array_equal(np.isposinf(depth), seg[..., 0] < 0)
        assert np.isfinite(depth[seg[..., 0] >= 0]).all()
        shot[DEPTH], shot[SEG] = depth, seg[..., 0]
    return shots


def check(shot: Frames, depth: np.ndarray, geom: np.ndarray, stray: float = 0.004, rtol: float = 1e-4) -> None:
    """The picture shows this, but for a share of pixels whose centres an outline passes by."""
    same = shot[SEG] == geom
    assert (~same).sum() <= stray * same.size, f"{(~same).sum()} of {same.size} pixels show something else"
    hit = same & (geom >= 0)
    np.testing.assert_allclose(shot[DEPTH][hit], depth[hit], rtol=rtol)


def looking(eye, target, width=64, height=48, lens: Intrinsics | None = None) -> View:
    return View(width, height, lens or Pinhole.from_fovy(60, width, height), WorldPose.looking_at(eye, target))


# -- what is in front of the camera

ZOO = """
    <geom name="floor" type="plane" size="0 0 1"/>
    <geom name="sphere" type="sphere" size=".3" pos="-1.2 .5 .3"/>
    <geom name="capsule" type="capsule" size=".15 .25" pos="-.4 .5 .4" euler="20 30 0"/>
    <geom name="ellipsoid" type="ellipsoid" size=".2 .35 .25" pos=".4 .5 .4" euler="0 30 20"/>
    <geom name="cylinder" type="cylinder" size=".2 .25" pos="1.2 .5 .4" euler="60 0 10"/>
    <geom name="box" type="box" size=".2 .25 .3" pos="-.8 -.6 .4" euler="20 10 30"/>
    <geom name="mesh" type="mesh" mesh="roof" pos=".1 -.6 .2" euler="10 0 40"/>
    <geom name="hill" type="hfield" hfield="hill" pos="1.1 -.5 -.01"/>
"""


@pytest.mark.parametrize("lens", [Pinhole(50.0, 80.0, 20.5, 40.25), Orthographic(2.4)], ids=["pinhole", "orthographic"])
def test_every_type_of_geom_stands_where_the_rays_hit_it(name, lens):
    model, state = build(ZOO)
    view = looking((0.5, -2.5, 2.2), (0.2, 0, 0.2), lens=lens)
    (shot,) = shoot(name, model, state, view)
    depth, geom = cast(model, state, *view.rays(), FAR)
    assert {model.geom(index).name for index in np.unique(geom) if index >= 0} > {"mesh", "hill", "box", "ellipsoid"}
    check(shot, depth, geom, rtol=FACETS if name == "mujoco_gl" else 1e-4)


def test_a_height_field_and_its_sides(name):
    model, state = build(f'<geom name="hill" type="hfield" hfield="hill" pos="0 0 1" group="{MARKED}"/>')
    view = looking((1.2, -2.0, 1.5), (0, 0, 1.1))
    (shot,) = shoot(name, model, state, view)
    depth, geom = cast(model, state, *view.rays(), FAR, (MARKED,))
    origin, direction = view.rays()
    height = (origin + direction * np.where(geom >= 0, depth, 0.0)[..., None])[..., 2]
    on_side = (geom >= 0) & (height < 1.0)
    assert on_side.sum() > 50
    if name == "mujoco_warp":  # it draws the surface alone
        depth[on_side], geom[on_side] = np.inf, -1
    check(shot, depth, geom)


def test_a_thousand_geoms(name):
    random = np.random.default_rng(7)
    kinds = ("sphere", "capsule", "ellipsoid", "cylinder", "box")
    things = [
        '<geom type="{}" size="{:.3f} {:.3f} {:.3f}" pos="{:.3f} {:.3f} {:.3f}" euler="{:.0f} {:.0f} {:.0f}"/>'.format(
            kinds[index % len(kinds)],
            *random.uniform(0.03, 0.1, 3),
            *random.uniform(-1.5, 1.5, 3),
            *random.uniform(0, 360, 3),
        )
        for index in range(1000)
    ]
    model, state = build("".join(things))
    view = looking((0.2, -3.0, 0.4), (0, 0, 0), 96, 72)
    (shot,) = shoot(name, model, state, view)
    depth, geom = cast(model, state, *view.rays(), FAR)
    assert np.unique(geom).size > 300
    check(shot, depth, geom, rtol=1e-3)


# -- what is around it, too near or too far

SHELLS = f"""
    <geom name="wall" type="box" size="3 .1 3" pos="0 4 0"/>
    <geom name="pillar" type="cylinder" size=".3 2" pos=".8 3 0"/>
    <geom name="{{shell}}" type="{{shell}}" size=".6 .6 .6" pos="0 0 -.1" group="{MARKED}" {{mesh}}/>
"""


@pytest.mark.parametrize("shell", ["sphere", "ellipsoid", "box", "cylinder", "capsule", "mesh"])
def test_a_geom_around_the_camera_does_not_hide_what_is_outside(name, shell):
    model, state = build(SHELLS.format(shell=shell, mesh='mesh="roof"' if shell == "mesh" else ""))
    view = looking((0, 0, 0), (0, 1, 0))
    (shot,) = shoot(name, model, state, view)
    # Newton sees primitives from inside, though not meshes.
    groups = (0, 1, 2, MARKED) if name == "newton" and shell != "mesh" else (0, 1, 2)
    depth, geom = cast(model, state, *view.rays(), FAR, groups)
    assert (geom >= 0).mean() > 0.9
    check(shot, depth, geom, rtol=1e-3)


def test_what_is_nearer_than_the_near_plane_or_beyond_the_far_one(name):
    # A ramp that passes below the camera and comes closer to its axis, which it never meets: z = -0.04 - 0.019 y.
    drop, slope = 0.04, 0.019
    tilt = np.degrees(np.arctan(slope))
    model, state = build(f'<geom type="plane" size="0 0 1" pos="0 0 {-drop}" euler="{-tilt} 0 0"/>')
    view = looking((0, 0, 0), (0, 1, 0), 9, 201, Pinhole(20.0, 200.0, 4.5, 20.5))
    (shot,) = shoot(name, model, state, view)
    down = (np.arange(201) + 0.5 - 20.5) / 200.0  # of each row's rays, per metre of depth
    with np.errstate(divide="ignore"):
        depth = np.where(down > slope, drop / (down - slope), np.inf)
    # OpenGL cuts off what is nearer than the near plane; the ray tracers see it.
    seen = (depth < FAR) & ((depth > NEAR) | (name != "mujoco_gl"))
    assert {True} == {(depth < NEAR).any(), (np.isfinite(depth) & (depth > FAR)).any(), seen.sum() > 100}
    np.testing.assert_array_equal(np.isfinite(shot[DEPTH]), np.tile(seen, (9, 1)).T)
    np.testing.assert_allclose(shot[DEPTH][seen], np.tile(depth[seen], (9, 1)).T, rtol=1e-4)


def test_how_far_an_infinite_ground_reaches(name):
    model, state = build('<geom type="plane" size="0 0 1"/>')
    eye = np.array((3.3, 7.7, 1.0))
    view = looking(eye, eye + np.array((1.0, 0.7, -0.02)), 61, 60, Pinhole(20.0, 120.0, 30.5, 3.0))
    (shot,) = shoot(name, model, state, view)
    origin, direction = view.rays()
    depth, geom = cast(model, state, origin, direction, FAR)
    reach = np.abs(direction * np.where(geom >= 0, depth, 0.0)[..., None])[..., :2].max(axis=-1)
    assert (reach > 1.1 * FAR).sum() > 50
    seen = shot[SEG] >= 0
    np.testing.assert_array_equal(seen[reach < 1.05 * FAR], geom[reach < 1.05 * FAR] >= 0)
    # OpenGL draws a square around the eye; its sides are between 1.05 and 1.08 times the far plane away.
    assert (seen[reach > 1.08 * FAR] == (name != "mujoco_gl")).all()


# -- images of unusual shapes


@pytest.mark.parametrize(
    ("width", "height", "lens"),
    [
        (1, 1, None),
        (1, 97, None),
        (97, 1, Pinhole(40.0, 40.0, 48.0, 0.5)),
        (2500, 3, Pinhole(500.0, 4.0, 1200.0, 1.5)),
        (3, 1100, Pinhole(8.0, 1200.0, 1.0, 560.0)),
    ],
)
def test_one_pixel_wide_and_very_wide_images(name, width, height, lens):
    model, state = build(ZOO)
    view = looking((0.5, -2.5, 2.2), (0.1, -0.2, 0.3), width, height, lens)
    (shot,) = shoot(name, model, state, view)
    assert shot[DEPTH].shape == (height, width)
    depth, geom = cast(model, state, *view.rays(), FAR)
    check(shot, depth, geom, rtol=FACETS if name == "mujoco_gl" else 1e-4)


# -- geoms without an area

FLAT = f"""
    <geom name="floor" type="plane" size="0 0 1"/>
    <geom name="ball" type="sphere" size=".3" pos="0 .2 .3"/>
    <geom name="sliver" type="mesh" mesh="sliver" pos=".8 0 .3"/>
    <geom name="none sphere" type="sphere" size=".3" pos="-.8 0 .5" group="{MARKED}"/>
    <geom name="none capsule" type="capsule" size=".3 .1" pos="-.4 0 .5" group="{MARKED}"/>
    <geom name="none ellipsoid" type="ellipsoid" size=".3 .2 .1" pos="0 0 .8" group="{MARKED}"/>
    <geom name="none cylinder" type="cylinder" size=".3 .1" pos=".4 0 .5" group="{MARKED}"/>
    <geom name="none box" type="box" size=".3 .3 .3" pos="0 -.4 .5" group="{MARKED}"/>
"""
# A pyramid, and between points of its lower edges three faces without an area.
SLIVER = """
    <mesh name="sliver" vertex="0 0 .4  -.3 -.3 0  .3 -.3 0  .3 .3 0  -.3 .3 0  0 -.3 0"
          face="0 1 5  0 5 2  1 5 2  0 2 3  0 3 4  0 4 1  1 2 3  1 3 4  1 1 2"/>
"""


def test_geoms_without_an_area_are_not_seen_and_disturb_nothing(name):
    model, state = build(FLAT, SLIVER)
    for geom in range(model.ngeom):
        if model.geom(geom).name.startswith("none"):
            model.geom_size[geom] = 0.0  # the compiler refuses it, a program that randomizes sizes does not
    view = looking((0.2, -2.0, 1.4), (0, 0, 0.3))
    (shot,) = shoot(name, model, state, view)
    depth, geom = cast(model, state, *view.rays(), FAR)
    assert (geom == model.geom("sliver").id).sum() > 50
    check(shot, depth, geom, rtol=FACETS if name == "mujoco_gl" else 1e-4)


def test_a_box_without_thickness_is_a_sheet(name):
    sheet = f'<geom name="sheet" type="box" size=".5 .4 .1" pos="0 0 .5" euler="20 10 30" group="{MARKED}"/>'
    model, state = build('<geom type="plane" size="0 0 1"/>' + sheet)
    view = looking((0.2, -2.0, 1.4), (0, 0, 0.3))
    for thickness in (0.0, 1e-6):
        model.geom_size[model.geom("sheet").id, 2] = thickness
        (shot,) = shoot(name, model, state, view)
        # MuJoCo Warp does not tell the two sides of nothing apart, and takes them for the far one.
        is_seen = thickness > 0.0 or name != "mujoco_warp"
        check(shot, *cast(model, state, *view.rays(), FAR, (0, MARKED) if is_seen else (0,)))


# -- materials one can see through


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_transparency(name, alpha):
    things = f"""
        <geom name="back" type="box" size="1 1 .1" rgba="1 0 0 1"/>
        <geom name="glass" type="box" size=".5 .5 .1" pos="0 0 1" rgba="0 0 1 {{}}" group="{MARKED}"/>
    """
    view = looking((0, 0, 3), (0, 0, 0), 32, 32)
    (seen,) = shoot(name, *build(things.format(alpha)), view, planes=(RGB, DEPTH, SEG))
    model, state = build(things.format(1))
    (opaque,) = shoot(name, model, state, view, planes=(RGB, DEPTH, SEG))
    inside = opaque[SEG] == model.geom("glass").id
    assert inside.sum() > 100
    if alpha == 0.0:
        check(seen, *cast(model, state, *view.rays(), FAR))
        return
    # It is the nearest object everywhere. Only OpenGL lets through what is behind.
    np.testing.assert_array_equal(seen[SEG], opaque[SEG])
    np.testing.assert_array_equal(seen[DEPTH], opaque[DEPTH])
    colour, full = (np.median(shot[RGB][inside], axis=0) for shot in (seen, opaque))
    if name == "mujoco_gl":
        np.testing.assert_allclose(colour, [64, 0, 191], atol=2)  # through the two faces of the glass
    else:
        np.testing.assert_array_equal(seen[RGB], opaque[RGB])
        np.testing.assert_array_equal(colour, full)
