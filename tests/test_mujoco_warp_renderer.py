"""What is on the pictures."""

from dataclasses import astuple

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
from film_set import (
    DEPTH,
    DISTANCE,
    FAR,
    GEOM,
    HEIGHT,
    INTRINSICS,
    NUM_ENVS,
    RGB,
    SEG,
    WIDTH,
    XML,
    few,
)
from ray_casting import cast, rays_of
from rendering import Frames, Studio

from scene_data.backends.mjcf_scene import describe_model
from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.renderers.render_core.camera import (
    CameraDescriptor,
    Pinhole,
    WorldPose,
)
from scene_data.renderers.render_core.placement import camera_projection

pytest_plugins = ("film_fixtures",)


def depth_to_plane(state: mujoco.MjData, geom: int, origin: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Analytic distance along the optical axis to an infinite plane; inf where the ray goes away from it."""
    normal, point = state.geom_xmat[geom].reshape(3, 3)[:, 2], state.geom_xpos[geom]
    with np.errstate(divide="ignore"):
        depth = ((point - origin) @ normal) / (direction @ normal)
    return np.where((depth > 0) & (direction @ normal < 0), depth, np.inf)


@pytest.mark.parametrize("name", INTRINSICS)
def test_depth_is_the_distance_along_the_optical_axis_to_a_tilted_plane(name, model, states, cameras, frames):
    origin, direction = rays_of(INTRINSICS[name], WIDTH, HEIGHT, cameras["free front"].mount)
    slope = model.geom("slope").id
    depth, seg = frames[cameras[name].id, DEPTH], frames[cameras[name].id, SEG]
    for env, state in enumerate(states):
        expected = depth_to_plane(state, slope, origin, direction)
        on_slope = seg[env, ..., 0] == slope
        assert on_slope.sum() > 200
        np.testing.assert_allclose(depth[env, ..., 0][on_slope], expected[on_slope], atol=1e-4)


def test_beyond_the_far_plane_and_past_everything_is_a_miss(model, states, cameras, frames):
    slope = model.geom("slope").id
    origin, direction = rays_of(INTRINSICS["off centre"], WIDTH, HEIGHT, cameras["off centre"].mount)
    expected = depth_to_plane(states[0], slope, origin, direction)
    camera = cameras["off centre"].id
    depth, seg = frames[camera, DEPTH][0, ..., 0], frames[camera, SEG][0]
    others = (seg[..., 0] != slope) & (seg[..., 0] != -1)
    too_far = ~others & (expected > FAR)
    assert (np.isfinite(expected) & too_far).sum() > 10  # the plane goes on behind the far plane
    np.testing.assert_array_equal(np.isinf(depth), too_far)
    np.testing.assert_array_equal(seg[too_far], -1)
    assert np.isinf(frames[camera, DISTANCE][0, ..., 0][too_far]).all()


def test_distance_to_camera_is_euclidean(cameras, frames):
    for name in ("off centre", "parallel"):
        origin, direction = rays_of(INTRINSICS[name], WIDTH, HEIGHT)
        depth = frames[cameras[name].id, DEPTH][..., 0]
        hit = np.isfinite(depth)
        points = origin + direction * np.where(hit, depth, 0.0)[..., None]
        distance = frames[cameras[name].id, DISTANCE][..., 0]
        np.testing.assert_allclose(distance[hit], np.linalg.norm(points, axis=-1)[hit], rtol=1e-5)
        assert np.isinf(distance[~hit]).all()


@pytest.mark.parametrize("name", ["front", "off centre", "parallel"])
def test_segmentation_names_what_the_engine_hits(name, model, states, cameras, frames):
    origin, direction = rays_of(INTRINSICS[name], WIDTH, HEIGHT, cameras["free front"].mount)
    seg = frames[cameras[name].id, SEG]
    for env, state in enumerate(states):
        _, expected = cast(model, state, origin, direction, FAR)
        np.testing.assert_array_equal(seg[env, ..., 0], expected)
        np.testing.assert_array_equal(seg[env, ..., 1], np.where(expected >= 0, GEOM, -1))
    assert {"slope", "wall", "poster", "ball", "crate"} == {
        model.geom(id).name for id in np.unique(seg[..., 0]) if id >= 0
    }


def test_environments_differ_and_keep_their_order(model, states, cameras, studio, frames):
    ball = model.geom("ball").id
    across = [np.nonzero(frames[cameras["front"].id, SEG][env, ..., 0] == ball)[1].mean() for env in range(NUM_ENVS)]
    assert across[0] + 2 < across[1] < across[2] - 2  # each ball is further to the right
    reversed_frames = studio.shoot(states[::-1], [studio.plan(cameras["front"])])
    for plane in (RGB, DEPTH, SEG):
        np.testing.assert_array_equal(
            reversed_frames[cameras["front"].id, plane][::-1], frames[cameras["front"].id, plane]
        )


def assert_same_picture(frames: Frames, one: CameraDescriptor, other: CameraDescriptor):
    np.testing.assert_array_equal(frames[one.id, SEG], frames[other.id, SEG])
    np.testing.assert_allclose(frames[one.id, DEPTH], frames[other.id, DEPTH], rtol=1e-4)
    assert (np.abs(frames[one.id, RGB].astype(int) - frames[other.id, RGB]) <= 1).mean() > 0.999


def test_a_camera_on_a_body_equals_the_models_own(cameras, frames):
    assert_same_picture(frames, cameras["eye"], cameras["mounted eye"])
    assert (frames[cameras["eye"].id, SEG] != frames[cameras["front"].id, SEG]).any()


def test_a_free_camera_equals_the_models_own(cameras, frames):
    assert_same_picture(frames, cameras["front"], cameras["free front"])
    np.testing.assert_array_equal(frames[cameras["index"].id, RGB], frames[cameras["front"].id, RGB])


def test_a_free_camera_may_differ_among_environments(model, states, cameras, frames):
    for env, state in enumerate(states):
        mount = cameras["lanes"].mount
        pose = WorldPose(mount.position[env], mount.quaternion)
        _, expected = cast(model, state, *rays_of(INTRINSICS["front"], WIDTH, HEIGHT, pose), FAR)
        np.testing.assert_array_equal(frames[cameras["lanes"].id, SEG][env, ..., 0], expected)


def colours_of(model, frames: Frames, camera: CameraDescriptor, geom: str) -> np.ndarray:
    return frames[camera.id, RGB][frames[camera.id, SEG][..., 0] == model.geom(geom).id]


def test_rgb_is_the_colour_of_what_is_seen(model, cameras, frames):
    wall = colours_of(model, frames, cameras["front"], "wall")
    assert len(wall) > 50
    front = wall[wall[:, 1] < 160]  # without the upper edge, which the lamp reaches
    np.testing.assert_allclose(np.median(front, axis=0), [0, 0.6 * 255, 0], atol=1)
    sky = frames[cameras["front"].id, RGB][frames[cameras["front"].id, SEG][..., 0] == -1]
    np.testing.assert_allclose(np.unique(sky, axis=0), [[0.2 * 255, 0.4 * 255, 0.8 * 255]], atol=1)


def test_the_first_row_is_the_top_of_the_picture(model, cameras, frames):
    seg = frames[cameras["front"].id, SEG][0, ..., 0]
    assert (seg[0, WIDTH // 2 :] == -1).all()  # sky, beside the slope
    assert (seg[-1] == model.geom("slope").id).all()
    columns = [np.nonzero(seg == model.geom(name).id)[1].mean() for name in ("wall", "poster")]
    assert columns[0] < columns[1]  # +X is right


def test_textures_can_be_left_out(model, cameras, frames):
    with_texture = np.median(colours_of(model, frames, cameras["free front"], "poster"), axis=0)
    without = np.median(colours_of(model, frames, cameras["plain"], "poster"), axis=0)
    np.testing.assert_allclose(with_texture, [255, 128, 0], atol=2)
    np.testing.assert_allclose(without, [255, 255, 255], atol=2)


def test_the_sky_can_be_left_out_for_a_background(cameras, frames):
    camera = cameras["blank sky"].id
    sky = frames[camera, RGB][frames[camera, SEG][..., 0] == -1]
    np.testing.assert_array_equal(np.unique(sky, axis=0), [[255, 51, 0]])


def test_groups_decide_what_is_seen(model, cameras, frames):
    hidden = model.geom("hidden").id
    assert hidden not in frames[cameras["front"].id, SEG][..., 0]
    seg = frames[cameras["revealed"].id, SEG][..., 0]
    assert (seg == hidden).sum() > 50
    np.testing.assert_allclose(
        np.median(colours_of(model, frames, cameras["revealed"], "hidden"), axis=0), [255, 0, 255], atol=1
    )
    unchanged = seg != hidden
    np.testing.assert_array_equal(seg[unchanged], frames[cameras["front"].id, SEG][..., 0][unchanged])


def test_a_camera_that_shows_no_group_sees_sky_alone(cameras, frames):
    camera = cameras["nothing"].id
    np.testing.assert_array_equal(frames[camera, SEG], -1)
    assert np.isinf(frames[camera, DEPTH]).all()
    np.testing.assert_allclose(frames[camera, RGB], np.broadcast_to([51, 102, 204], frames[camera, RGB].shape), atol=1)


def test_shadows_can_be_left_out(model, cameras, frames):
    slope = model.geom("slope").id
    shadowed, lit = (frames[cameras[name].id, RGB].astype(int) for name in ("zenith", "unshadowed"))
    darker = (shadowed < lit - 10).any(axis=-1)
    assert darker.sum() > 10
    assert (frames[cameras["zenith"].id, SEG][darker][:, 0] == slope).all()
    np.testing.assert_array_equal(shadowed[~darker], lit[~darker])


FLEX_XML = """
<mujoco>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="top" pos="0 0 2"/>
    <geom name="floor" type="plane" size="0 0 1"/>
    <flexcomp name="cloth" type="grid" count="4 4 1" spacing=".2 .2 .2" pos="0 0 .5" radius=".02" dim="2"
              rgba="0 1 0 1">
      <edge equality="true"/>
    </flexcomp>
    <flexcomp name="rope" type="grid" count="4 1 1" spacing=".2 .2 .2" pos="0 .6 .5" radius=".03" dim="1"
              rgba="1 0 0 1">
      <edge equality="true"/>
    </flexcomp>
  </worldbody>
</mujoco>
"""


def test_flexes_follow_their_environment():
    model = mujoco.MjModel.from_xml_string(FLEX_XML)
    states = [mujoco.MjData(model) for _ in range(2)]
    states[1].qpos[0::3] += 0.15
    for state in states:
        mujoco.mj_forward(model, state)
    camera = CameraDescriptor(1, "top", 32, 24, (RGB, DEPTH, SEG), num_envs=2)
    pictures = []
    for shards in (1, 2):
        studio = Studio(MujocoWarpRenderBackend(shards), model, [camera])
        pictures.append(studio.shoot(states))
        studio.close()
    for key, frame in pictures[0].items():
        np.testing.assert_array_equal(pictures[1][key], frame)
    # The tracer by itself, as its own documentation uses it.
    context = mjw.create_render_context(
        model, 2, (32, 24), render_rgb=False, render_depth=True, render_seg=True, use_shadows=True
    )
    device_model, device_data = mjw.put_model(model), mjw.make_data(model, nworld=2)
    for field in ("geom_xpos", "geom_xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "flexvert_xpos"):
        array = getattr(device_data, field)
        array.assign(np.stack([getattr(state, field) for state in states]).reshape(array.numpy().shape))
    mjw.refit_bvh(device_model, device_data, context)
    mjw.render(device_model, device_data, context)
    np.testing.assert_array_equal(pictures[0][1, SEG], context.seg_data.numpy().reshape(2, 24, 32, 2))
    np.testing.assert_allclose(pictures[0][1, DEPTH], context.depth_data.numpy().reshape(2, 24, 32, 1), rtol=1e-5)
    objects = {tuple(pixel) for pixel in pictures[0][1, SEG].reshape(-1, 2).tolist()}
    assert objects == {(0, GEOM), (0, int(mujoco.mjtObj.mjOBJ_FLEX)), (1, int(mujoco.mjtObj.mjOBJ_FLEX))}
    columns = [np.nonzero(seg[..., 1] == int(mujoco.mjtObj.mjOBJ_FLEX))[1].mean() for seg in pictures[0][1, SEG]]
    assert columns[1] > columns[0] + 1


def test_a_model_that_mujoco_warp_cannot_step_is_drawn_all_the_same(states, cameras, frames):
    model = mujoco.MjModel.from_xml_string(XML.format(option='solver="PGS"'))
    with pytest.raises(NotImplementedError):
        mjw.put_model(model)
    studio = Studio(MujocoWarpRenderBackend(1), model, few(cameras, "front"))
    np.testing.assert_array_equal(studio.shoot(states)[cameras["front"].id, RGB], frames[cameras["front"].id, RGB])
    studio.close()


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [
        (48, 36, Pinhole(60.0, 48.0, 19.2, 21.6)),  # the sensor's own shape, 1200 pixels per metre
        (48, 48, Pinhole(80.0, 64.0, 17.6, 28.8)),  # too high for it: 1600 pixels per metre, the sides are cut off
        (48, 24, Pinhole(60.0, 48.0, 19.2, 15.6)),  # too low for it: top and bottom are cut off
    ],
)
def test_an_image_of_another_shape_crops_the_sensor(width, height, expected, model):
    camera = CameraDescriptor(1, "sensor", width, height, (RGB,), NUM_ENVS)
    projection = camera_projection(camera, describe_model(model, NUM_ENVS))
    assert isinstance(projection, Pinhole)
    np.testing.assert_allclose(astuple(projection), astuple(expected), rtol=1e-6)


def test_a_camera_without_intrinsics_sees_45_degrees(model):
    camera = CameraDescriptor(1, "free", 40, 30, (RGB,), NUM_ENVS, mount=WorldPose((0, 0, 1)))
    assert camera_projection(camera, describe_model(model, NUM_ENVS)) == Pinhole.from_fovy(45, 40, 30)
