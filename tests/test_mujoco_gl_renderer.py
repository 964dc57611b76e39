"""MuJoCo's OpenGL renderer as a render backend: what it draws, and how it finds, keeps and loses its context."""

import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import astuple, replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
from film_set import DEPTH, DISTANCE, FAR, GEOM, HEIGHT, INTRINSICS, NUM_ENVS, RGB, SEG, WIDTH, XML
from gl_drivers import DRIVERS, needs_gl, screen
from primitives import one_of_each, silhouettes
from ray_casting import cast, rays_of
from rendering import Frames, Studio, snapshot_of

from scene_data import registry
from scene_data.backends.mjcf_scene import describe_model
from scene_data.errors import UnknownNameError, UnmetRequirementError
from scene_data.extra_geometry import GeometryBatch, geometry_capacity
from scene_data.geometry_sources import PackedGeometry
from scene_data.renderers import RenderCore, gl_contexts
from scene_data.renderers.mujoco_gl import MujocoGlRenderBackend
from scene_data.renderers.render_core.backend import RenderConfiguration
from scene_data.renderers.render_core.camera import CameraDescriptor, Pinhole, VisualOptions, WorldPose
from scene_data.renderers.render_core.camera_settings import CameraSetting
from scene_data.renderers.render_core.layout import PlaneKind
from scene_data.renderers.render_core.status import ContextIntegrityError, FrameStatusCode, RenderStatusCode

pytest_plugins = ("film_fixtures",)
pytestmark = needs_gl

SKIN = int(mujoco.mjtObj.mjOBJ_SKIN)
FLEX = int(mujoco.mjtObj.mjOBJ_FLEX)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    model = mujoco.MjModel.from_xml_string(XML.format(option=""))
    model.vis.quality.shadowsize = 512  # the full size is slow in software
    return model


@pytest.fixture(scope="module")
def film_backend() -> MujocoGlRenderBackend:
    return MujocoGlRenderBackend()


@pytest.mark.parametrize("name", INTRINSICS)
def test_depth_and_objects_are_what_the_engine_hits_through_the_pixel_centres(name, model, states, cameras, frames):
    origin, direction = rays_of(INTRINSICS[name], WIDTH, HEIGHT, cameras["free front"].mount)
    for env, state in enumerate(states):
        depth, seg = frames[cameras[name].id, DEPTH][env, ..., 0], frames[cameras[name].id, SEG][env]
        expected_depth, expected = cast(model, state, origin, direction, FAR)
        # Curves are drawn as flat facets, and an edge that runs through a pixel's centre may fall on either side.
        same = seg[..., 0] == expected
        assert (~same).sum() <= 6
        np.testing.assert_array_equal(seg[..., 1], np.where(seg[..., 0] >= 0, GEOM, -1))
        np.testing.assert_array_equal(np.isinf(depth), seg[..., 0] < 0)
        flat = same & np.isfinite(depth) & (seg[..., 0] != model.geom("ball").id)
        assert flat.sum() > 200
        np.testing.assert_allclose(depth[flat], expected_depth[flat], rtol=2e-5)


def test_distance_to_camera_is_euclidean(cameras, frames):
    for name in ("off centre", "parallel"):
        origin, direction = rays_of(INTRINSICS[name], WIDTH, HEIGHT)
        depth, distance = frames[cameras[name].id, DEPTH][..., 0], frames[cameras[name].id, DISTANCE][..., 0]
        hit = np.isfinite(depth)
        points = origin + direction * np.where(hit, depth, 0.0)[..., None]
        np.testing.assert_allclose(distance[hit], np.linalg.norm(points, axis=-1)[hit], rtol=1e-5)
        assert np.isposinf(distance[~hit]).all()


def test_the_first_row_is_the_top_and_environments_keep_their_order(model, states, cameras, studio, frames):
    seg = frames[cameras["front"].id, SEG]
    assert (seg[0, 0, WIDTH // 2 :, 0] == -1).all()
    assert (seg[0, -1, :, 0] == model.geom("slope").id).all()
    across = [np.nonzero(image == model.geom("ball").id)[1].mean() for image in seg[..., 0]]
    assert across[0] + 2 < across[1] < across[2] - 2
    backwards = studio.shoot(states[::-1], [studio.plan(cameras["front"])])
    np.testing.assert_array_equal(backwards[cameras["front"].id, RGB][::-1], frames[cameras["front"].id, RGB])


def test_cameras_on_bodies_and_free_ones_equal_the_models_own(cameras, frames):
    for one, other in (("eye", "mounted eye"), ("front", "free front")):
        for plane in (RGB, SEG):
            same = np.isclose(frames[cameras[one].id, plane], frames[cameras[other].id, plane], atol=1)
            assert same.mean() > 0.999


def colour_of(model, frames: Frames, camera: CameraDescriptor, geom: str) -> np.ndarray:
    return np.median(frames[camera.id, RGB][frames[camera.id, SEG][..., 0] == model.geom(geom).id], axis=0)


def test_options_decide_what_is_seen(model, cameras, frames):
    np.testing.assert_allclose(colour_of(model, frames, cameras["free front"], "poster"), [255, 128, 0], atol=2)
    np.testing.assert_allclose(colour_of(model, frames, cameras["plain"], "poster"), [255, 255, 255], atol=2)
    hidden = model.geom("hidden").id
    assert hidden not in frames[cameras["front"].id, SEG][..., 0]
    assert (frames[cameras["revealed"].id, SEG][..., 0] == hidden).sum() > 50
    shadowed, lit = (frames[cameras[name].id, RGB].astype(int) for name in ("zenith", "unshadowed"))
    assert (shadowed < lit - 10).any(axis=-1).sum() > 5
    nothing = cameras["nothing"].id
    np.testing.assert_array_equal(frames[nothing, SEG], -1)
    assert np.isposinf(frames[nothing, DEPTH]).all()
    np.testing.assert_allclose(
        frames[nothing, RGB], np.broadcast_to([51, 102, 204], (NUM_ENVS, HEIGHT, WIDTH, 3)), atol=1
    )


def test_smooth_edges_blend_into_the_background(model, cameras, frames):
    camera = cameras["blank sky"]
    colours, seg = frames[camera.id, RGB].astype(int), frames[camera.id, SEG][..., 0]
    background = np.array([255, 51, 0])
    around = np.pad(seg, ((0, 0), (1, 1), (1, 1)), mode="edge")
    shifts = [around[:, y : y + HEIGHT, x : x + WIDTH] for y in range(3) for x in range(3)]
    np.testing.assert_array_equal(np.unique(colours[np.all([s == -1 for s in shifts], axis=0)], axis=0), [background])
    # Where slope and background meet: never darker than both.
    slope = model.geom("slope").id
    edge = np.all([(s == -1) | (s == slope) for s in shifts], axis=0) & (seg == -1)
    edge &= np.any([s == slope for s in shifts], axis=0)
    assert edge.sum() > 20
    low = np.minimum(colour_of(model, frames, camera, "slope"), background) - 3
    assert (colours[edge] >= low).all()


def test_alpha_is_how_much_of_a_pixel_is_covered(model, states, cameras, frames):
    shown = [replace(cameras[name], planes=(RGB, PlaneKind.RGBA, SEG)) for name in ("blank sky", "front")]
    studio = Studio(MujocoGlRenderBackend(), model, shown)
    shot = studio.shoot(states)
    studio.close()
    for camera in shown:
        np.testing.assert_array_equal(shot[camera.id, PlaneKind.RGBA][..., :3], shot[camera.id, RGB])
        np.testing.assert_array_equal(shot[camera.id, RGB], frames[camera.id, RGB])
    alpha, hit = shot[shown[0].id, PlaneKind.RGBA][..., 3], shot[shown[0].id, SEG][..., 0] >= 0
    assert (alpha[hit] == 255).mean() > 0.9
    assert (alpha[~hit] == 0).mean() > 0.7
    assert {64, 128, 191} <= set(np.unique(alpha).tolist())  # four samples


def test_a_diverged_environment_is_blanked_and_heals(model, states, cameras, studio, frames):
    broken = mujoco.MjData(model)
    mujoco.mj_forward(model, broken)
    broken.xpos[1, 2] = np.nan
    plans = [studio.plan(cameras["front"]), studio.plan(cameras["blank sky"])]
    sick = studio.shoot([states[0], broken, states[2]], plans)
    np.testing.assert_array_equal(studio.backend.blank_environments, [1])
    assert studio.boundary.blank_environments == {1: 1}
    front, blank_sky = cameras["front"].id, cameras["blank sky"].id
    for (camera, plane), frame in sick.items():
        np.testing.assert_array_equal(frame[[0, 2]], frames[camera, plane][[0, 2]])
    np.testing.assert_array_equal(sick[front, RGB][1], 0)
    np.testing.assert_array_equal(np.unique(sick[blank_sky, RGB][1].reshape(-1, 3), axis=0), [[255, 51, 0]])
    np.testing.assert_array_equal(sick[front, SEG][1], -1)
    assert np.isposinf(sick[front, DEPTH][1]).all()
    assert np.isposinf(sick[front, DISTANCE][1]).all()
    healed = studio.shoot(states, plans)
    np.testing.assert_array_equal(healed[front, RGB], frames[front, RGB])


DEFORMABLES = """
<mujoco>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="top" pos="0 0 3"/>
    <geom type="plane" size="0 0 1" rgba=".3 .3 .3 1"/>
    <flexcomp name="cloth" type="grid" count="4 4 1" spacing=".2 .2 .2" pos="0 0 .5" radius=".02" dim="2"
              rgba="0 1 0 1"/>
    <body name="left" pos="-.5 .8 .5"><joint type="slide" axis="0 0 1"/><geom size=".05" group="3"/></body>
    <body name="right" pos=".5 .8 .5"><joint type="hinge" axis="1 0 0"/><geom size=".05" group="3"/></body>
    <site size=".4" pos="0 -.8 .5" rgba="1 0 0 1"/>
  </worldbody>
  <deformable>
    <skin name="hide" rgba="0 0 1 1" vertex="-.5 .7 .5  .5 .7 .5  .5 .9 .5  -.5 .9 .5" face="0 1 2  0 2 3">
      <bone body="left" bindpos="-.5 .8 .5" bindquat="1 0 0 0" vertid="0 3" vertweight="1 1"/>
      <bone body="right" bindpos=".5 .8 .5" bindquat="1 0 0 0" vertid="1 2" vertweight="1 1"/>
    </skin>
  </deformable>
</mujoco>
"""


def test_skins_and_flexes_follow_their_environment_and_sites_are_left_out():
    model = mujoco.MjModel.from_xml_string(DEFORMABLES)
    states = [mujoco.MjData(model) for _ in range(2)]
    states[1].qpos[: 3 * 16 : 3] += 0.3
    states[1].qpos[-2:] = 0.4, 3.0  # up, and nearly upside down
    for state in states:
        mujoco.mj_forward(model, state)
    studio = Studio(MujocoGlRenderBackend(), model, [CameraDescriptor(1, "top", 64, 48, (RGB, DEPTH, SEG), 2)])
    frames = studio.shoot(states)
    studio.close()
    depth, seg = frames[1, DEPTH][..., 0], frames[1, SEG]
    assert {tuple(pair) for pair in seg.reshape(-1, 2).tolist()} == {(0, GEOM), (0, FLEX), (0, SKIN)}
    on_cloth, on_skin = (seg[..., 1] == kind for kind in (FLEX, SKIN))
    columns = [np.nonzero(image)[1].mean() for image in on_cloth]
    assert columns[1] > columns[0] + 3
    np.testing.assert_allclose(depth[0][on_skin[0]], 2.5, atol=1e-3)
    assert np.ptp(depth[1][on_skin[1]]) > 0.3  # the left edge was raised
    assert frames[1, RGB][0][on_skin[0]].mean(axis=0).argmax() == 2


def shoot(studio: Studio, states, camera: CameraDescriptor, **parts) -> dict[PlaneKind, np.ndarray]:
    """The frames of a camera from a snapshot with these parts."""
    snapshot = snapshot_of(studio.model, states)
    for name, part in parts.items():
        setattr(snapshot, name, part)
    assert studio.backend.render(snapshot, [studio.plan(camera)], studio.boundary).ok
    return {plane: studio.frame(camera.id, plane) for plane in camera.planes}


def test_poses_and_intrinsics_set_at_run_time_are_those_of_their_environment(states, cameras, studio, frames):
    front, off_centre = cameras["front"], cameras["off centre"]
    setting = CameraSetting.initial(np.tile(astuple(Pinhole.from_fovy(45, WIDTH, HEIGHT)), (NUM_ENVS, 1)))
    setting = setting.with_pinholes(np.array([1]), np.array([astuple(off_centre.intrinsics)]))
    away = WorldPose.looking_at((3, 0, 1), (0, 0, 0.5))
    setting = setting.with_poses(np.array([2]), np.array([away.position]), np.array([away.quaternion]))
    shot = shoot(studio, states, front, camera_settings={front.id: setting})
    for plane in (RGB, DEPTH, SEG, DISTANCE):
        np.testing.assert_array_equal(shot[plane][0], frames[front.id, plane][0])
        np.testing.assert_allclose(shot[plane][1], frames[off_centre.id, plane][1], atol=1e-5)
        assert (shot[plane][2] != frames[front.id, plane][2]).mean() > 0.2
    again = shoot(studio, states, front)
    np.testing.assert_array_equal(again[RGB], frames[front.id, RGB])


def test_extra_geometry_stands_where_it_is_put_in_its_environments(states, cameras, studio, frames):
    unseen = GeometryBatch.spheres((0, 0, 2.5), 0.25, rgba=(1, 0, 0, 0))
    batch = GeometryBatch.concatenate([one_of_each(cylinder_envs=1), unseen])
    packed = PackedGeometry.of(batch, NUM_ENVS, geometry_capacity(3))
    zenith = cameras["zenith"]
    shot = shoot(studio, states, zenith, extra_geometry=packed)
    for env in range(NUM_ENVS):
        for index, where in silhouettes().items():
            seen = (shot[SEG][env] == (index, int(mujoco.mjtObj.mjOBJ_UNKNOWN))).all(axis=-1)
            if index == 3 and env != 1:
                assert not seen.any()
                continue
            assert (seen ^ where).sum() <= 2  # curves are drawn as flat facets
            inside = seen & where & (shot[RGB][env].max(axis=-1) > 60)
            colours = np.median(shot[RGB][env][inside], axis=0)
            np.testing.assert_array_equal(colours > 40, batch.rgba[index][:3] > 0)
    np.testing.assert_array_equal(shoot(studio, states, zenith)[RGB], frames[zenith.id, RGB])
    hidden = replace(zenith, options=replace(zenith.options, extra_geometry=False))
    assert studio.backend.resize(RenderConfiguration(1, 1, (hidden,), "cpu")).ok
    np.testing.assert_array_equal(shoot(studio, states, hidden, extra_geometry=packed)[RGB], frames[zenith.id, RGB])
    assert studio.backend.resize(RenderConfiguration(1, 1, studio.cameras, "cpu")).ok


def test_the_users_model_is_neither_changed_nor_read_later(states, cameras, frames):
    model = mujoco.MjModel.from_xml_string(XML.format(option=""))
    model.vis.quality.shadowsize = 512
    before = bytes(model.geom_rgba.tobytes()), model.vis.global_.offwidth
    studio = Studio(
        MujocoGlRenderBackend(), model, [replace(cameras["front"], width=900, planes=(SEG,)), cameras["eye"]]
    )
    assert (model.geom_rgba.tobytes(), model.vis.global_.offwidth) == before
    model.geom_rgba[:] = 0.5
    shot = studio.shoot(states, [studio.plan(cameras["eye"])])
    studio.close()
    np.testing.assert_array_equal(shot[cameras["eye"].id, RGB], frames[cameras["eye"].id, RGB])


def test_resize_changes_the_cameras_and_keeps_the_context(model, states, cameras, frames):
    backend = MujocoGlRenderBackend()
    studio = Studio(backend, model, [cameras["front"]])
    painter = backend._painter
    studio.cameras = (replace(cameras["eye"], id=7), replace(cameras["front"], id=8, width=700, height=20))
    studio.boundary.reconfigure(1, 3 * 4 * 700 * 20 * 4)
    assert backend.resize(RenderConfiguration(1, 1, studio.cameras, "cpu")).ok
    resized = studio.shoot(states)
    np.testing.assert_array_equal(resized[7, SEG], frames[cameras["eye"].id, SEG])
    assert resized[8, RGB].any()
    assert backend._painter is painter
    studio.close()


def test_frames_without_room_do_not_stop_the_others(model, states, cameras):
    studio = Studio(MujocoGlRenderBackend(), model, [cameras["front"]], max_slots=1)
    status = studio.turn(states, [studio.plan(cameras["front"], [DEPTH, SEG])])
    assert status.code is RenderStatusCode.FRAME_SLOTS_EXHAUSTED
    assert studio.boundary.acquire_latest(DEPTH) is not None
    assert studio.boundary.reserved_slots == 0
    studio.close()


def test_a_snapshot_of_another_scene_is_refused(model, states, cameras, studio):
    with pytest.raises(ValueError, match="snapshot has 4 body poses, but 3 environments of the scene have 6"):
        studio.backend.render(snapshot_of(model, states[:2]), [studio.plan(cameras["front"])], studio.boundary)
    assert studio.boundary.reserved_slots == 0


def test_a_stop_request_ends_a_render_without_a_frame(model, states, cameras):
    studio = Studio(MujocoGlRenderBackend(), model, [cameras["front"]])
    studio.backend.request_stop()
    assert studio.turn(states).code is RenderStatusCode.STOPPED
    assert studio.boundary.acquire_latest(RGB) is None
    assert studio.boundary.reserved_slots == 0
    studio.close()


# -- render cores


class Gallery:
    """A render core of this backend with some cameras, and turns through it."""

    def __init__(self, model, cameras, backend: MujocoGlRenderBackend | None = None):
        self.model, self.cameras = model, tuple(cameras)
        self.core = RenderCore(backend or MujocoGlRenderBackend(), max_slots=20, max_bytes=1 << 24)
        self.status = self.core.reconfigure(1, 1, self.cameras, describe_model(model, self.cameras[0].num_envs))
        self.core.register_continuous_consumer("test")

    def turn(self, states):
        plans = [self.core.evaluate_demand(0, camera.id) for camera in self.cameras]
        submitted = self.core.submit_snapshot(snapshot_of(self.model, states), plans)
        return self.core.finish_or_cancel_render_turn() if submitted.ok else submitted

    def frames(self) -> Frames:
        leases = {(c.id, plane): self.core.acquire_latest(c.id, plane) for c in self.cameras for plane in c.planes}
        return {key: lease.numpy().copy() for key, lease in leases.items() if lease is not None}


def test_several_cores_draw_at_the_same_time(model, states, cameras, frames):
    pictures: list[Frames] = []

    def draw():
        gallery = Gallery(model, [cameras["front"], cameras["blank sky"]])
        for _ in range(3):
            assert gallery.turn(states).ok
            pictures.append(gallery.frames())
        gallery.core.shutdown()

    threads = [threading.Thread(target=draw) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pictures) == 9
    for picture in pictures:
        assert len(picture) == 6
        for key, frame in picture.items():
            np.testing.assert_array_equal(frame, frames[key])


def test_the_context_lives_and_ends_on_the_render_thread_alone(model, states, cameras, monkeypatch):
    threads = []

    def noted(method):
        def call(self, *args):
            threads.append(threading.current_thread().name)
            return method(self, *args)

        return call

    for name in ("__init__", "_make_current", "close"):
        monkeypatch.setattr(gl_contexts.EglContext, name, noted(getattr(gl_contexts.EglContext, name)))
    gallery = Gallery(model, [cameras["front"]], MujocoGlRenderBackend("egl"))
    assert gallery.turn(states).ok
    gallery.core.shutdown()
    assert len(threads) > 3
    assert set(threads) == {"render-core"}


def test_a_lost_context_is_terminal_until_the_backend_is_replaced(model, states, cameras, frames):
    backend = MujocoGlRenderBackend("egl")
    gallery = Gallery(model, [cameras["front"]], backend)
    assert gallery.turn(states).ok
    context = backend._painter._context
    context._egl.eglDestroyContext(context._display, context._context)
    lost = gallery.turn(states)
    assert lost.code is FrameStatusCode.BACKEND_FAILURE
    assert "OpenGL context (egl) is lost" in lost.message
    assert gallery.turn(states).code is FrameStatusCode.BACKEND_FAILURE
    np.testing.assert_array_equal(gallery.frames()[cameras["front"].id, RGB], frames[cameras["front"].id, RGB])
    context._context = None  # it is gone already
    assert gallery.core.reinitialize(MujocoGlRenderBackend("egl")).ok
    assert gallery.turn(states).ok
    gallery.core.shutdown()


# -- ways to OpenGL


def test_without_a_driver_the_error_names_the_packages_and_leaves_nothing(model, cameras, monkeypatch):
    def absent(*names: str):
        raise OSError(f"{names[0]} is not installed")

    monkeypatch.setattr(gl_contexts, "_load", absent)
    monkeypatch.setattr(gl_contexts, "_make_egl_display", gl_contexts._make_egl_display.__wrapped__)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    gallery = Gallery(model, [cameras["front"]])
    gallery.core.shutdown()
    assert gallery.status.code is FrameStatusCode.BACKEND_UNAVAILABLE
    for part in (
        "egl: libEGL.so.1 is not installed",
        "glfw: neither DISPLAY nor WAYLAND_DISPLAY is set",
        "osmesa: libOSMesa.so.8 is not installed",
        "apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri",
        "apt-get install libosmesa6",
    ):
        assert part in gallery.status.message
    assert "render-core" not in {thread.name for thread in threading.enumerate()}


def test_a_way_that_draws_nothing_is_passed_over(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    closed = []

    class Dud(gl_contexts.EglContext):
        def close(self):
            closed.append(self)
            super().close()

    monkeypatch.setattr(gl_contexts, "PLATFORMS", {"dud": Dud, "egl": gl_contexts.EglContext})

    def check(context):
        if isinstance(context, Dud):
            raise OSError("draws nothing")

    context = gl_contexts.open_context(gl_contexts.choose_platforms(), check)
    assert type(context) is gl_contexts.EglContext
    assert len(closed) == 1
    context.close()
    with pytest.raises(gl_contexts.GlUnavailableError, match="dud: draws nothing"):
        gl_contexts.open_context(["dud"], check)
    with pytest.raises(ContextIntegrityError), context:
        pass


def test_the_environment_chooses_and_can_turn_off(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert gl_contexts.choose_platforms() == ("osmesa",)
    assert gl_contexts.choose_platforms("egl") == ("egl",)
    monkeypatch.setenv("MUJOCO_GL", "on")
    assert gl_contexts.choose_platforms() == ("egl", "glfw", "osmesa")
    monkeypatch.setenv("MUJOCO_GL", "off")
    with pytest.raises(gl_contexts.GlUnavailableError, match="MUJOCO_GL: is 'off'"):
        gl_contexts.choose_platforms()
    with pytest.raises(UnknownNameError, match="Unknown OpenGL platform 'vulkan'. Known: egl, glfw, osmesa"):
        gl_contexts.choose_platforms("vulkan")


def test_an_egl_device_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setattr(gl_contexts, "_make_egl_display", gl_contexts._make_egl_display.__wrapped__)
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "63")
    with pytest.raises(gl_contexts.GlUnavailableError, match="MUJOCO_EGL_DEVICE_ID is '63', but the EGL devices are"):
        gl_contexts.open_context(["egl"], lambda context: None)


# In a process of its own, since MuJoCo's own renderer decides for a platform when it is imported.
BESIDE_MUJOCOS_RENDERER = """
    import sys
    import mujoco, numpy as np
    sys.path.insert(0, {tests!r})
    from film_set import RGB, DEPTH, SEG, XML, CameraDescriptor
    from rendering import Studio
    from scene_data.renderers.mujoco_gl import MujocoGlRenderBackend

    model = mujoco.MjModel.from_xml_string(XML.format(option=""))
    model.vis.quality.shadowsize = 512
    model.mat_reflectance[:] = 0.3
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    theirs = mujoco.Renderer(model, 36, 48)

    def shots():
        theirs.update_scene(data, "front")
        colours = theirs.render()
        theirs.enable_depth_rendering()
        depth = theirs.render()
        theirs.disable_depth_rendering()
        theirs.enable_segmentation_rendering()
        objects = theirs.render()
        theirs.disable_segmentation_rendering()
        return colours, np.where(objects[..., 0] < 0, np.inf, depth), objects

    shots()  # its first picture differs from the others in the last bit
    before = shots()
    backend = MujocoGlRenderBackend(effects=True)
    studio = Studio(backend, model, [CameraDescriptor(1, "front", 48, 36, (RGB, DEPTH, SEG))])
    for _ in range(2):
        frames = studio.shoot([data])
        # Snapshots have single precision.
        for expected, plane, atol in zip(before, (RGB, DEPTH, SEG), (1, 0, 0), strict=True):
            np.testing.assert_allclose(frames[1, plane][0].squeeze() + 0.0, expected.squeeze(), rtol=1e-5, atol=atol)
        for earlier, later in zip(before, shots(), strict=True):
            np.testing.assert_array_equal(earlier, later)
    print("drawn through", backend.platform)
    studio.close()
    for earlier, later in zip(before, shots(), strict=True):
        np.testing.assert_array_equal(earlier, later)
    theirs.close()
"""


def script(source: str, **environment: str) -> subprocess.Popen[str]:
    source = textwrap.dedent(source).format(tests=str(Path(__file__).parent))
    variables = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "PYOPENGL_PLATFORM")}
    return subprocess.Popen(
        [sys.executable, "-c", source],
        env={**variables, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_every_way_draws_what_mujocos_renderer_draws_in_processes_side_by_side():
    able = [platform for platform, is_there in DRIVERS.items() if is_there]
    with screen() if "glfw" in able else open(os.devnull) as display:
        runs = {p: script(BESIDE_MUJOCOS_RENDERER, MUJOCO_GL=p, DISPLAY=str(display)) for p in able}
        outcomes = {platform: (run.communicate(timeout=300), run.returncode) for platform, run in runs.items()}
    for platform, ((printed, errors), code) in outcomes.items():
        assert code == 0, f"{platform}: {errors}"
        assert f"drawn through {platform}" in printed


# -- what is refused


def test_what_cannot_be_drawn_is_refused(model):
    scene, backend = describe_model(model, NUM_ENVS), MujocoGlRenderBackend()
    for camera, message in (
        (CameraDescriptor(1, "front", 8, 8, (PlaneKind.NORMALS,), NUM_ENVS), "does not make ['normals']"),
        (CameraDescriptor(1, "front", 8, 8, (RGB,), 2), "is for 2 environments, but the scene has 3"),
        (CameraDescriptor(1, "frnt", 8, 8, (RGB,), NUM_ENVS), "Unknown camera 'frnt'. Known: front, sensor, eye."),
    ):
        with pytest.raises(ValueError) as raised:  # noqa: PT011  (its message is looked at)
            backend.validate(scene, [camera])
        assert message in str(raised.value)
        status = backend.initialize(scene, RenderConfiguration(1, 1, (camera,), "cpu"))
        assert status.code is RenderStatusCode.BACKEND_FAILURE
        assert message in status.message
    with pytest.raises(UnmetRequirementError, match="needs 'mujoco_model'"):
        backend.validate(replace(scene, natives={}), [])


def test_calls_before_initialize_are_refused(cameras):
    backend = MujocoGlRenderBackend()
    configuration = RenderConfiguration(1, 1, (cameras["front"],), "cpu")
    assert backend.resize(configuration).code is RenderStatusCode.NOT_INITIALIZED
    assert backend.render(None, [], None).code is RenderStatusCode.NOT_INITIALIZED
    backend.shutdown_on_render_thread()


def test_it_is_registered_by_name():
    assert registry.renderers.get("mujoco_gl") is MujocoGlRenderBackend


def test_transparency_is_drawn_and_segmented():
    model = mujoco.MjModel.from_xml_string("""
        <mujoco>
          <visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
          <worldbody>
            <camera name="c" pos="0 0 3"/>
            <geom name="back" type="box" size="1 1 .1" rgba="1 0 0 1"/>
            <geom name="glass" type="box" size=".5 .5 .1" pos="0 0 1" rgba="0 0 1 .5"/>
          </worldbody>
        </mujoco>""")
    state = mujoco.MjData(model)
    mujoco.mj_forward(model, state)
    camera = CameraDescriptor(1, "c", 32, 32, (RGB, DEPTH, SEG), options=VisualOptions(shadows=False))
    studio = Studio(MujocoGlRenderBackend(), model, [camera])
    frames = studio.shoot([state])
    studio.close()
    # One sees through the glass's two faces.
    np.testing.assert_allclose(frames[1, RGB][0, 16, 16], [64, 0, 191], atol=2)
    np.testing.assert_array_equal(frames[1, SEG][0, 16, 16], [model.geom("glass").id, GEOM])
    np.testing.assert_allclose(frames[1, DEPTH][0, 16, 16], 1.9, atol=1e-5)
