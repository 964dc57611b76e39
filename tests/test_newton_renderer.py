"""Newton's camera sensor as a render backend: our conventions on its pixels, on the scenes of any engine."""

from dataclasses import astuple, replace

import mujoco
import numpy as np
import pytest
from film_set import DEPTH, DISTANCE, FAR, GEOM, HEIGHT, INTRINSICS, NUM_ENVS, RGB, SEG, WIDTH, XML, all_cameras
from ray_casting import cast, rays_of
from rendering import Frames, Studio, snapshot_of

newton = pytest.importorskip("newton", reason="newton is not installed")

from scene_data import SceneDataProvider, registry  # noqa: E402
from scene_data.backends import NewtonSceneDataBackend  # noqa: E402
from scene_data.backends.mjcf_scene import describe_model  # noqa: E402
from scene_data.camera import Pinhole, VisualOptions, WorldPose  # noqa: E402
from scene_data.errors import UnmetRequirementError  # noqa: E402
from scene_data.interop.newton import build_newton_look  # noqa: E402
from scene_data.renderers import SnapshotPool  # noqa: E402
from scene_data.renderers.newton import NewtonRenderBackend  # noqa: E402
from scene_data.renderers.render_core.backend import RenderConfiguration  # noqa: E402
from scene_data.renderers.render_core.camera import CameraDescriptor  # noqa: E402
from scene_data.renderers.render_core.camera_settings import CameraSetting  # noqa: E402
from scene_data.renderers.render_core.frames import FrameBoundary  # noqa: E402
from scene_data.renderers.render_core.layout import PlaneKind  # noqa: E402
from scene_data.renderers.render_core.status import RenderStatusCode  # noqa: E402

pytest_plugins = ("film_fixtures",)

NORMALS, ALBEDO, RGBA, HDR = PlaneKind.NORMALS, PlaneKind.ALBEDO, PlaneKind.RGBA, PlaneKind.RGB_HDR
EVERY = (RGB, DEPTH, SEG, DISTANCE, NORMALS, ALBEDO, RGBA, HDR)
FLEX = int(mujoco.mjtObj.mjOBJ_FLEX)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML.format(option=""))


@pytest.fixture(scope="module")
def cameras(model) -> dict[str, CameraDescriptor]:
    """Some cameras, all with the same planes and options as far as kernels are compiled for them."""
    names = ("front", "free front", "sensor", "eye", "mounted eye", "off centre", "parallel", "revealed", "nothing")
    chosen = all_cameras(model)
    return {name: replace(chosen[name], planes=EVERY) for name in (*names, "blank sky")}


@pytest.fixture(scope="module")
def film_backend() -> NewtonRenderBackend:
    return NewtonRenderBackend()


@pytest.mark.parametrize("name", INTRINSICS)
def test_depth_and_objects_are_what_the_engine_hits_through_the_pixel_centres(name, model, states, cameras, frames):
    origin, direction = rays_of(INTRINSICS[name], WIDTH, HEIGHT, cameras["free front"].mount)
    local_origin, local_direction = rays_of(INTRINSICS[name], WIDTH, HEIGHT)
    for env, state in enumerate(states):
        expected_depth, expected = cast(model, state, origin, direction, FAR)
        depth, seg, distance = (frames[cameras[name].id, plane][env] for plane in (DEPTH, SEG, DISTANCE))
        same = seg[..., 0] == expected
        assert (~same).sum() <= 2  # an edge that runs through a pixel's centre may fall on either side
        np.testing.assert_array_equal(seg[..., 1], np.where(seg[..., 0] >= 0, GEOM, -1))
        np.testing.assert_array_equal(np.isinf(depth[..., 0]), seg[..., 0] < 0)
        np.testing.assert_allclose(depth[..., 0][same], expected_depth[same], rtol=5e-5)
        hit = np.isfinite(depth[..., 0])
        points = local_origin + local_direction * np.where(hit[..., None], depth, 0.0)
        np.testing.assert_allclose(distance[..., 0][hit], np.linalg.norm(points, axis=-1)[hit], rtol=1e-5)
        assert np.isposinf(distance[..., 0][~hit]).all()


def test_normals_are_of_unit_length_in_the_world_frame(model, states, cameras, frames):
    camera = cameras["off centre"]
    origin, direction = rays_of(camera.intrinsics, WIDTH, HEIGHT, cameras["free front"].mount)
    for env, state in enumerate(states):
        depth, normals, seg = (frames[camera.id, plane][env] for plane in (DEPTH, NORMALS, SEG))
        slope, ball = (seg[..., 0] == model.geom(name).id for name in ("slope", "ball"))
        expected = state.geom("slope").xmat.reshape(3, 3)[:, 2]
        np.testing.assert_allclose(normals[slope], np.broadcast_to(expected, normals[slope].shape), atol=1e-5)
        surface = (origin + direction * np.where(ball[..., None], depth, 0.0) - state.geom("ball").xpos) / 0.25
        assert ball.sum() > 20
        np.testing.assert_allclose(normals[ball], surface[ball], atol=1e-3)
        np.testing.assert_array_equal(normals[seg[..., 0] < 0], 0.0)


def test_albedo_is_the_colour_without_light(model, cameras, frames):
    camera = cameras["front"]
    for name, expected in (("ball", (204, 26, 26)), ("wall", (0, 153, 0))):
        seen = frames[camera.id, SEG][..., 0] == model.geom(name).id
        colours = frames[camera.id, ALBEDO][seen].astype(int)
        assert (np.abs(colours - expected) <= 1).all()
    np.testing.assert_array_equal(frames[camera.id, ALBEDO][frames[camera.id, SEG][..., 0] < 0], 0)


def test_rgb_is_rgba_without_alpha_and_the_linear_colours_encoded(cameras, frames):
    for name, background in (("front", (0, 0, 0)), ("blank sky", (255, 51, 0))):
        rgb, rgba, hdr, seg = (frames[cameras[name].id, plane] for plane in (RGB, RGBA, HDR, SEG))
        hit = seg[..., 0] >= 0
        np.testing.assert_array_equal(rgb, rgba[..., :3])
        np.testing.assert_array_equal(rgba[..., 3], np.where(hit, 255, 0))
        assert (rgb[~hit] == background).all()
        linear = np.clip(hdr[hit], 0.0, 1.0)
        encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
        assert np.abs(255 * encoded - rgb[hit]).max() < 1.5


def test_cameras_on_bodies_equal_the_models_own_and_groups_decide_what_is_seen(model, cameras, frames):
    np.testing.assert_array_equal(frames[cameras["eye"].id, SEG], frames[cameras["mounted eye"].id, SEG])
    hidden = model.geom("hidden").id
    assert hidden not in frames[cameras["front"].id, SEG][..., 0]
    assert (frames[cameras["revealed"].id, SEG][..., 0] == hidden).sum() > 50
    assert model.geom("invisible").id not in frames[cameras["revealed"].id, SEG][..., 0]
    nothing = cameras["nothing"].id
    np.testing.assert_array_equal(frames[nothing, SEG], -1)
    assert np.isposinf(frames[nothing, DEPTH]).all()


def test_poses_and_intrinsics_set_at_run_time_are_those_of_their_environment(model, states, cameras, studio, frames):
    front, off_centre = cameras["front"], cameras["off centre"]
    setting = CameraSetting.initial(np.tile(astuple(Pinhole.from_fovy(45, WIDTH, HEIGHT)), (NUM_ENVS, 1)))
    setting = setting.with_pinholes(np.array([1]), np.array([astuple(off_centre.intrinsics)]))
    away = WorldPose.looking_at((3, 0, 1), (0, 0, 0.5))
    setting = setting.with_poses(np.array([2]), np.array([away.position]), np.array([away.quaternion]))
    snapshot = snapshot_of(model, states)
    snapshot.camera_settings = {front.id: setting}
    assert studio.backend.render(snapshot, [studio.plan(front)], studio.boundary).ok
    for plane in EVERY:
        shot = studio.frame(front.id, plane)
        np.testing.assert_array_equal(shot[0], frames[front.id, plane][0])
        np.testing.assert_allclose(shot[1], frames[off_centre.id, plane][1], atol=1e-4)
        assert (shot[2] != frames[front.id, plane][2]).mean() > 0.1
    for key, frame in studio.shoot(states, [studio.plan(front)]).items():
        np.testing.assert_array_equal(frame, frames[key])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_a_diverged_environment_is_blanked_and_heals(value, model, states, cameras, studio, frames):
    broken = mujoco.MjData(model)
    mujoco.mj_forward(model, broken)
    broken.xpos[1, 2] = value
    plans = [studio.plan(cameras["front"]), studio.plan(cameras["blank sky"])]
    sick = studio.shoot([states[0], broken, states[2]], plans)
    np.testing.assert_array_equal(studio.backend.blank_environments, [1])
    for (camera, plane), frame in sick.items():
        np.testing.assert_array_equal(frame[[0, 2]], frames[camera, plane][[0, 2]])
    front, blank_sky = cameras["front"].id, cameras["blank sky"].id
    assert (sick[blank_sky, RGB][1] == (255, 51, 0)).all()
    np.testing.assert_array_equal(sick[front, SEG][1], -1)
    np.testing.assert_array_equal(sick[front, NORMALS][1], 0)
    assert np.isposinf(sick[front, DEPTH][1]).all()
    assert np.isposinf(sick[front, DISTANCE][1]).all()
    for key, frame in studio.shoot(states, plans).items():
        np.testing.assert_array_equal(frame, frames[key])


def test_a_camera_without_a_place_blanks_its_environment_for_the_cameras_before_it_too(
    model, states, cameras, studio, frames
):
    broken = mujoco.MjData(model)
    mujoco.mj_forward(model, broken)
    broken.cam("eye").xpos[:] = np.nan
    plans = [studio.plan(cameras["front"]), studio.plan(cameras["eye"])]
    sick = studio.shoot([broken, *states[1:]], plans)
    np.testing.assert_array_equal(studio.backend.blank_environments, [0])
    for (camera, plane), frame in sick.items():
        np.testing.assert_array_equal(frame[1:], frames[camera, plane][1:])
        if plane is SEG:
            np.testing.assert_array_equal(frame[0], -1)


def test_some_planes_equal_the_whole_turn_and_what_has_no_room_stops_nobody(model, states, cameras, frames):
    camera = cameras["front"]
    studio = Studio(NewtonRenderBackend(), model, [camera], max_slots=1)
    status = studio.turn(states, [studio.plan(camera, [DEPTH, SEG])])
    assert status.code is RenderStatusCode.FRAME_SLOTS_EXHAUSTED
    np.testing.assert_array_equal(studio.frame(camera.id, DEPTH), frames[camera.id, DEPTH])
    assert studio.boundary.reserved_slots == 0
    studio.close()


# -- what the scene is built of


def test_the_model_has_the_scenes_bodies_and_the_world_only_once(model):
    scene = describe_model(model, NUM_ENVS)
    look = build_newton_look(scene, "cpu", is_drawn=lambda part: part.group < 3)
    assert look.model.world_count == NUM_ENVS
    assert look.model.body_count == NUM_ENVS * look.body_count == NUM_ENVS * model.nbody
    names = [scene.shapes[index].name for index in look.shapes]
    assert names == ["slope", "wall", "poster", *["ball", "crate"] * NUM_ENVS]
    np.testing.assert_array_equal(look.model.shape_world.numpy(), [-1, -1, -1, 0, 0, 1, 1, 2, 2])
    poses = look.model.state().body_q.numpy()
    np.testing.assert_allclose(poses[1::2, :3], np.tile(model.body("rover").pos, (NUM_ENVS, 1)))
    assert build_newton_look(scene, "cpu", num_envs=2).model.world_count == 2
    with pytest.raises(ValueError, match="num_envs must be 1 to 3, got 4"):
        build_newton_look(scene, "cpu", num_envs=4)


DETAILS = """
<mujoco>
  <asset>
    <texture name="flag" type="2d" builtin="flat" rgb1="1 1 1" width="8" height="8"/>
    <material name="flag" texture="flag"/>
    <mesh name="quad" vertex="-1 -1 0  1 -1 0  1 1 0  -1 1 0  0 0 -1" texcoord="0 1  1 1  1 0  0 0  .5 .5"
          face="0 1 2  0 2 3  1 0 4  2 1 4  3 2 4  0 3 4"/>
    <hfield name="hill" nrow="3" ncol="3" size="1 1 .5 .25" elevation="0 0 0  0 1 0  0 0 0"/>
  </asset>
  <worldbody>
    <camera name="top" pos="0 0 6" fovy="60"/>
    <geom name="quad" type="mesh" mesh="quad" material="flag" pos="-2 0 0"/>
    <body name="ground" pos="2 0 0.5"><geom name="hill" type="hfield" hfield="hill"/></body>
    <flexcomp name="cloth" type="grid" count="4 4 1" spacing=".4 .4 .4" pos="0 -2 1" radius=".001" dim="2"
              rgba="0 1 0 1"/>
    <flexcomp name="rope" type="grid" count="4 1 1" spacing=".2 .2 .2" pos="0 2 .5" radius=".03" dim="1"/>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def details() -> tuple[mujoco.MjModel, Frames]:
    """A mesh with a texture, a height field on a body and a cloth, seen from above in two environments."""
    model = mujoco.MjModel.from_xml_string(DETAILS)
    first, count = model.tex_adr[0], 8 * 8 * 3
    texture = np.zeros((8, 8, 3), np.uint8)
    texture[:4, :, 0], texture[4:, :, 2] = 255, 255  # red above, blue below
    texture[:, :2] = 255
    model.tex_data[first : first + count] = texture.ravel()
    states = [mujoco.MjData(model) for _ in range(2)]
    states[1].qpos[: 3 * 16 : 3] += 0.5
    for state in states:
        mujoco.mj_forward(model, state)
    camera = CameraDescriptor(1, "top", WIDTH, HEIGHT, (DEPTH, SEG, ALBEDO), 2, options=VisualOptions())
    studio = Studio(NewtonRenderBackend(), model, [camera])
    frames = studio.shoot(states)
    studio.close()
    return model, frames


def test_textures_lie_on_meshes_the_right_way_round(details):
    model, frames = details
    on_mesh = (frames[1, SEG][0] == (model.geom("quad").id, GEOM)).all(axis=-1)
    rows, columns = np.nonzero(on_mesh)
    assert on_mesh.sum() > 40
    colours = frames[1, ALBEDO][0]
    top, bottom, middle = rows.min() + 1, rows.max() - 1, (columns.min() + columns.max()) // 2 + 1
    assert colours[top, middle].argmax() == 0
    assert colours[bottom, middle].argmax() == 2
    assert (colours[top + 1 : bottom, columns.min() + 1] > 200).all()


def test_a_height_field_stands_on_its_body(details):
    model, frames = details
    depth = frames[1, DEPTH][0, ..., 0]
    on_hill = (frames[1, SEG][0] == (model.geom("hill").id, GEOM)).all(axis=-1)
    assert on_hill.sum() > 40
    # The hill stands 0.5 m above the ground and is 0.5 m high, below a camera at 6 m; it reaches 0.25 m down.
    np.testing.assert_allclose(depth[on_hill].min(), 5.0, atol=0.1)
    assert 5.45 < depth[on_hill].max() < 5.75


def test_a_cloth_follows_its_environment_and_is_told_by_its_type(details):
    _, frames = details
    on_cloth = (frames[1, SEG] == (0, FLEX)).all(axis=-1)
    columns = [np.nonzero(image)[1].mean() for image in on_cloth]
    assert columns[1] > columns[0] + 2
    np.testing.assert_allclose(frames[1, DEPTH][..., 0][on_cloth], 5.0, atol=1e-3)


def test_a_cloth_is_seen_from_both_sides():
    model = mujoco.MjModel.from_xml_string("""
    <mujoco>
      <worldbody>
        <camera name="above" pos="0 0 3"/>
        <camera name="below" pos="0 0 -1" xyaxes="1 0 0 0 -1 0"/>
        <flexcomp name="cloth" type="grid" count="4 4 1" spacing=".4 .4 .4" pos="0 0 1" dim="2" rgba="0 1 0 1"/>
      </worldbody>
    </mujoco>
    """)
    state = mujoco.MjData(model)
    mujoco.mj_forward(model, state)
    planes = (DEPTH, SEG, ALBEDO, PlaneKind.NORMALS)
    cameras = [CameraDescriptor(i, name, WIDTH, HEIGHT, planes) for i, name in ((1, "above"), (2, "below"))]
    studio = Studio(NewtonRenderBackend(), model, cameras)
    frames = studio.shoot([state])
    state.flexvert_xpos[5, 2] = np.nan
    sick = studio.shoot([state])
    assert all(np.isposinf(sick[camera.id, DEPTH]).all() for camera in cameras)
    mujoco.mj_forward(model, state)
    for key, frame in studio.shoot([state]).items():
        np.testing.assert_array_equal(frame, frames[key])
    studio.close()
    on_cloth = (frames[1, SEG] == (0, FLEX)).all(axis=-1)
    assert on_cloth.sum() > 100  # without holes
    assert (frames[2, SEG] == frames[1, SEG]).all()
    for plane in (DEPTH, SEG, ALBEDO):
        np.testing.assert_allclose(frames[2, plane], frames[1, plane], atol=2e-4)
    for camera, upwards in ((1, 1.0), (2, -1.0)):
        np.testing.assert_allclose(frames[camera, PlaneKind.NORMALS][on_cloth][:, 2], upwards, atol=1e-5)


def test_newtons_own_engine_is_drawn():
    world = newton.ModelBuilder()
    body = world.add_body(xform=newton_pose(0, 0, 1), label="ball")
    world.add_shape_sphere(body, radius=0.25)
    builder = newton.ModelBuilder()
    builder.add_ground_plane()
    builder.replicate(world, 2)
    model = builder.finalize(device="cpu")
    state = model.state()
    poses = state.body_q.numpy()
    poses[1, 2] = 2.0
    state.body_q.assign(poses)
    backend = NewtonSceneDataBackend(model, state)
    provider, pool = SceneDataProvider(backend), SnapshotPool()
    pool.activate(provider, 1)
    camera = CameraDescriptor(
        1, "top", 33, 33, (DEPTH, SEG), 2, mount=WorldPose((0, 0, 4)), intrinsics=Pinhole.from_fovy(45, 33, 33)
    )
    renderer, boundary = NewtonRenderBackend(), FrameBoundary(8, 1 << 20)
    boundary.reconfigure(1, camera.layout(SEG).byte_length)
    assert renderer.initialize(backend.describe_scene(), RenderConfiguration(1, 1, (camera,), "cpu")).ok
    from scene_data.renderers.render_core.demand import RenderPlan

    plan = RenderPlan(camera, camera.planes, (1,), 1, camera.id, 0)
    assert renderer.render(pool.acquire(provider, 1).snapshot, [plan], boundary).ok
    depth = boundary.acquire_latest(DEPTH).numpy()
    np.testing.assert_allclose(depth[:, 16, 16, 0], [4 - 1.25, 4 - 2.25], atol=1e-5)
    np.testing.assert_allclose(depth[:, 0, 0, 0], 4.0, atol=1e-4)


def newton_pose(x: float, y: float, z: float):
    import warp as wp

    return wp.transform((x, y, z), wp.quat_identity())


# -- what is refused


def test_what_cannot_be_drawn_is_refused(model):
    scene, backend = describe_model(model, NUM_ENVS), NewtonRenderBackend()
    for camera, message in (
        (
            CameraDescriptor(1, "front", 8, 8, (PlaneKind.INSTANCE_SEGMENTATION,), NUM_ENVS),
            "does not make ['instance_segmentation']",
        ),
        (CameraDescriptor(1, "front", 8, 8, (RGB,), 2), "is for 2 environments, but the scene has 3"),
        (CameraDescriptor(1, "frnt", 8, 8, (RGB,), NUM_ENVS), "Unknown camera 'frnt'. Known: front, sensor, eye."),
    ):
        with pytest.raises(ValueError) as raised:  # noqa: PT011  (its message is looked at)
            backend.validate(scene, [camera])
        assert message in str(raised.value)
        status = backend.initialize(scene, RenderConfiguration(1, 1, (camera,), "cpu"))
        assert status.code is RenderStatusCode.BACKEND_FAILURE
        assert message in status.message
    with pytest.raises(UnmetRequirementError, match="needs 'scene description'"):
        backend.validate(None, [])


def test_deformables_that_cannot_be_told_apart_are_refused():
    cloth = '<flexcomp name="{}" type="grid" count="3 3 1" spacing=".1 .1 .1" pos="0 0 1" dim="2"/>'
    xml = f"<mujoco><worldbody><camera name='c'/>{cloth.format('a')}{cloth.format('b')}</worldbody></mujoco>"
    scene = describe_model(mujoco.MjModel.from_xml_string(xml))
    with pytest.raises(ValueError, match=r"cannot tell deformables apart.*segmentation of 2: \['a', 'b'\]"):
        NewtonRenderBackend.validate(scene, [CameraDescriptor(1, "c", 8, 8, (SEG,))])
    NewtonRenderBackend.validate(scene, [CameraDescriptor(1, "c", 8, 8, (DEPTH,))])


def test_calls_before_initialize_are_refused(cameras):
    backend = NewtonRenderBackend()
    configuration = RenderConfiguration(1, 1, (cameras["front"],), "cpu")
    assert backend.resize(configuration).code is RenderStatusCode.NOT_INITIALIZED
    assert backend.render(None, [], None).code is RenderStatusCode.NOT_INITIALIZED
    assert backend.blank_environments.size == 0
    backend.shutdown_on_render_thread()


def test_it_is_registered_by_name():
    assert registry.renderers.get("newton") is NewtonRenderBackend


def test_cameras_of_all_sizes_share_one_scratch(model, cameras):
    backend = NewtonRenderBackend(threads=1)
    sizes = ((4, 4), (48, 40), (16, 12))
    chosen = tuple(
        replace(cameras["front"], id=number, width=width, height=height, planes=(DEPTH,))
        for number, (width, height) in enumerate(sizes, start=1)
    )
    status = backend.initialize(describe_model(model, NUM_ENVS), RenderConfiguration(1, 1, chosen, "cpu"))
    assert status.code is RenderStatusCode.OK, status.message
    (stage,) = backend._tracer._stages.values()
    images = [image for pieces in stage.drawings.values() for (drawing,) in pieces for image in drawing.images.values()]
    assert len({image.ptr for image in images}) == 1
    assert max(image.size for image in images) >= 48 * 40
    backend.shutdown_on_render_thread()
