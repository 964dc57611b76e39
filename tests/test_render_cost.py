"""What a turn is spared: shading that nobody asked for, images beside the frames, idle threads, trees grown wrong."""

import threading
from dataclasses import replace

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp
from film_set import DEPTH, DISTANCE, HEIGHT, RGB, SEG, WIDTH
from rendering import Frames, Studio

from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.renderers.mujoco_warp_scene import GeometryBounds, ShardScene
from scene_data.renderers.newton import NewtonRenderBackend
from scene_data.renderers.render_core import tiles
from scene_data.renderers.render_core.camera import CameraDescriptor
from scene_data.renderers.render_core.crew import Crew, Effort
from scene_data.renderers.render_core.layout import PlaneKind
from scene_data.renderers.render_core.tiles import image_tiles, rays_per_tile, row_bands

pytest_plugins = ("film_fixtures",)

RGBA = PlaneKind.RGBA


class Traced:
    """What MuJoCo Warp's tracer was asked for, launch by launch."""

    def __init__(self, monkeypatch):
        self.planes: list[tuple[bool, ...]] = []
        self.images: list[list[wp.array]] = []
        self.contexts: list[mjw.RenderContext] = []
        self.launches: list[str] = []
        render, launch = mjw.render, wp.launch

        def traced(model, data, context):
            asked = (context.render_rgb, context.render_depth, context.render_seg)
            self.planes.append(tuple(bool(plane.numpy()[0]) for plane in asked))
            self.images.append([context.rgb_data, context.depth_data, context.seg_data])
            self.contexts.append(context)
            render(model, data, context)

        def launched(kernel, *args, **kwargs):
            self.launches.append(kernel.key)
            return launch(kernel, *args, **kwargs)

        monkeypatch.setattr(mjw, "render", traced)
        monkeypatch.setattr(wp, "launch", launched)


@pytest.fixture
def traced(monkeypatch) -> Traced:
    return Traced(monkeypatch)


@pytest.fixture
def tiny_tiles(monkeypatch) -> None:
    """Tiles as small as they are for large images."""
    monkeypatch.setattr(tiles, "_MIN_SHADED_RAYS", 300)
    monkeypatch.setattr(tiles, "_MIN_RAYS", 300)
    monkeypatch.setattr(tiles, "_MAX_SHADED_RAYS", 700)
    monkeypatch.setattr(tiles, "_MAX_RAYS", 700)


def shoot(backend, model, states, cameras, planes=()) -> Frames:
    studio = Studio(backend, model, list(cameras))
    try:
        return studio.shoot(states, [studio.plan(camera, planes) for camera in cameras])
    finally:
        studio.close()


@pytest.mark.parametrize(
    ("due", "asked"),
    [
        ((DEPTH,), (False, True, False)),
        ((DISTANCE,), (False, True, False)),
        ((SEG,), (False, False, True)),
        ((DEPTH, SEG), (False, True, True)),
        ((RGB,), (True, False, False)),
    ],
)
def test_a_turn_draws_only_what_is_due(due, asked, studio, cameras, states, frames, traced):
    drawn = studio.shoot(states, [studio.plan(cameras["front"], due)])
    assert traced.planes == [asked]
    resolved = [name for name in traced.launches if name.startswith("resolve")]
    assert len(resolved) == len(due)
    for key, frame in drawn.items():
        np.testing.assert_array_equal(frame, frames[key])


def test_a_plane_without_a_slot_is_not_drawn(model, states, cameras, traced):
    camera = replace(cameras["front"], planes=(DEPTH, RGB))
    studio = Studio(MujocoWarpRenderBackend(1), model, [camera], max_slots=1)
    traced.planes.clear()
    status = studio.turn(states)
    studio.close()
    assert not status.ok
    assert traced.planes == [(False, True, False)]


def test_a_camera_without_colour_gets_a_kernel_that_cannot_shade(model, states, cameras, frames, traced):
    camera = replace(cameras["front"], planes=(DEPTH, SEG))
    drawn = shoot(MujocoWarpRenderBackend(1), model, states, [camera])
    for context in traced.contexts:
        assert not context.use_textures
        assert not context.render_skybox
        assert not context.headlight_active
        assert not context.enable_specular
    for plane in camera.planes:
        np.testing.assert_array_equal(drawn[camera.id, plane], frames[camera.id, plane])


def test_no_turn_builds_a_kernel(studio, cameras, states, monkeypatch):
    programs = dict(studio.backend._tracer._programs)
    for due in ((DEPTH,), (SEG, RGB), (DISTANCE,)):
        studio.turn(states, [studio.plan(cameras["front"], due)])
    assert studio.backend._tracer._programs == programs


def test_depth_objects_and_rgba_are_drawn_into_the_frames(model, states, cameras, frames, traced):
    camera = replace(cameras["front"], planes=(RGB, RGBA, DEPTH, DISTANCE, SEG))
    studio = Studio(MujocoWarpRenderBackend(2), model, [camera])
    traced.images.clear()
    drawn = studio.shoot(states)
    memory = {}
    for plane in camera.planes:
        lease = studio.boundary.acquire_latest(plane, camera.id)
        assert lease is not None
        array = lease.warp()
        memory[plane] = array.ptr, array.ptr + array.capacity
    for images in traced.images:
        for image, plane in zip(images, (RGBA, DEPTH, SEG), strict=True):
            first, end = memory[plane]
            assert first <= image.ptr < end
    studio.close()
    for plane in (RGB, DEPTH, DISTANCE, SEG):
        np.testing.assert_array_equal(drawn[camera.id, plane], frames[camera.id, plane])
    np.testing.assert_array_equal(drawn[camera.id, RGBA][..., :3], frames[camera.id, RGB])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_scratch_is_as_large_as_a_tile_however_many_environments_there_are(threads, model, states, tiny_tiles):
    sizes = []
    for num_envs in (1, 3):
        camera = CameraDescriptor(1, "front", WIDTH // 4, 4 * HEIGHT, (RGB, DEPTH), num_envs)
        studio = Studio(MujocoWarpRenderBackend(threads), model, [camera])
        studio.shoot(states[:num_envs])
        sizes.append([memory.size for memory in studio.backend._tracer._scratch])
        studio.close()
    assert len(sizes[0]) == threads
    assert max(map(max, sizes)) <= 700


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", ["front", "sensor", "parallel", "blank sky"])
def test_tiles_do_not_show(threads, name, model, states, cameras, frames, tiny_tiles, traced):
    camera = replace(cameras[name], planes=(RGB, DEPTH, DISTANCE, SEG))
    drawn = shoot(MujocoWarpRenderBackend(threads), model, states, [camera])
    assert len(traced.planes) > 2 * threads
    for plane in set(camera.planes) & set(cameras[name].planes):
        np.testing.assert_array_equal(drawn[camera.id, plane], frames[camera.id, plane])


def test_newtons_tiles_do_not_show(model, states, cameras, monkeypatch):
    planes = (RGB, RGBA, DEPTH, DISTANCE, SEG, PlaneKind.NORMALS, PlaneKind.ALBEDO, PlaneKind.RGB_HDR)
    shown = [replace(cameras[name], planes=planes) for name in ("front", "off centre", "parallel")]
    whole = shoot(NewtonRenderBackend(threads=1), model, states, shown)
    monkeypatch.setattr(tiles, "_MIN_SHADED_RAYS", 300)
    monkeypatch.setattr(tiles, "_MAX_SHADED_RAYS", 700)
    tiled = shoot(NewtonRenderBackend(threads=3), model, states, shown)
    for key, frame in whole.items():
        np.testing.assert_array_equal(tiled[key], frame)


def test_a_shard_that_cannot_be_placed_fails_the_turn_and_holds_nobody_up(model, states, cameras, frames, monkeypatch):
    camera = replace(cameras["front"], planes=(DEPTH,))
    studio = Studio(MujocoWarpRenderBackend(shards=2), model, [camera])
    place = ShardScene.place

    def fail(scene, *args):
        if scene.first_env == 0:
            raise RuntimeError("nowhere")
        place(scene, *args)

    try:
        with monkeypatch.context() as failing:
            failing.setattr(ShardScene, "place", fail)
            with pytest.raises(RuntimeError, match="nowhere"):
                studio.turn(states)
        drawn = studio.shoot(states)
        np.testing.assert_array_equal(drawn[camera.id, DEPTH], frames[camera.id, DEPTH])
    finally:
        studio.close()


def test_one_environment_is_drawn_by_all_threads(model, states, cameras, tiny_tiles, monkeypatch):
    meeting = threading.Barrier(2, timeout=30)
    drawing: set[int] = set()
    render = mjw.render

    def meet(*args):
        if threading.get_ident() not in drawing:
            drawing.add(threading.get_ident())
            meeting.wait()  # nobody goes on before both threads are drawing
        render(*args)

    camera = replace(cameras["front"], num_envs=1)
    studio = Studio(MujocoWarpRenderBackend(shards=2), model, [camera])
    monkeypatch.setattr(mjw, "render", meet)
    try:
        assert studio.turn(states[:1]).ok
        assert len(drawing) == 2
    finally:
        studio.close()


def test_a_turn_allocates_nothing(studio, cameras, states, monkeypatch):
    plans = [studio.plan(cameras[name]) for name in ("front", "off centre", "parallel")]
    studio.turn(states, plans)
    allocator = wp.get_device("cpu").get_allocator()
    allocated: list[int] = []
    allocate = type(allocator).allocate
    monkeypatch.setattr(
        type(allocator), "allocate", lambda self, size, *args: allocated.append(size) or allocate(self, size, *args)
    )
    tracer, draw = studio.backend._tracer, type(studio.backend._tracer).draw

    def drawn(*args):
        before = len(allocated)
        draw(*args)
        del allocated[:before]

    monkeypatch.setattr(tracer, "draw", lambda *args: drawn(tracer, *args))
    studio.turn(states, plans)
    assert allocated == []


def test_trees_are_grown_anew_when_the_scene_has_moved(model, cameras, monkeypatch):
    """Boxes that were near in the default pose, and are far apart in the state that is drawn."""
    rebuilt = []
    rebuild = wp.Bvh.rebuild
    monkeypatch.setattr(wp.Bvh, "rebuild", lambda bvh: rebuilt.append(bvh) or rebuild(bvh))
    camera = replace(cameras["front"], num_envs=1)
    studio = Studio(MujocoWarpRenderBackend(1), model, [camera])
    state = mujoco.MjData(model)
    try:
        for turn in range(40):
            state.qpos[:3] = 0.05 * turn - 1.0, 0.1, 0.5
            mujoco.mj_forward(model, state)
            studio.turn([state])
        moving = studio.frame(camera.id, DEPTH)
        assert len(rebuilt) == 3  # in the 1st, the 17th and the 33rd turn
    finally:
        studio.close()
    monkeypatch.setattr(
        GeometryBounds, "refit", lambda bounds, scene, context: mjw.refit_bvh(scene.model, scene.fields, context)
    )
    np.testing.assert_array_equal(shoot(MujocoWarpRenderBackend(1), model, [state], [camera])[camera.id, DEPTH], moving)


@pytest.mark.parametrize("height", [1, 7, 64, 480])
@pytest.mark.parametrize("rays_per_row", [1, 48, 640, 100_000])
@pytest.mark.parametrize("most", [1, 300, 2048, 65536])
def test_bands_cover_each_row_once_and_are_about_equal(height, rays_per_row, most):
    bands = row_bands(height, rays_per_row, most)
    assert [row for band in bands for row in range(band.start, band.stop)] == list(range(height))
    heights = [band.stop - band.start for band in bands]
    assert max(heights) - min(heights) <= 1
    assert max(heights) == 1 or max(heights) * rays_per_row <= most + rays_per_row


def test_tiles_are_shared_evenly_and_stay_small():
    batch = 32 * 64 * 64
    for threads in (2, 3, 8):
        for shaded in (True, False):
            count = batch / rays_per_tile(batch, threads, is_cpu=True, shaded=shaded)
            assert count >= 1.9 * threads
    assert rays_per_tile(batch, 1, is_cpu=True, shaded=True) < batch  # the scratch of a single thread stays small, too
    assert rays_per_tile(10**9, 2, is_cpu=True, shaded=True) <= 1 << 16
    assert rays_per_tile(100, 2, is_cpu=True, shaded=True) > 1000  # not worth a second launch
    assert rays_per_tile(10**6, 1, is_cpu=False, shaded=True) >= 10**6  # a GPU takes a whole turn at once


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("num_envs", [1, 3, 7, 32, 33, 1000])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (64, 64), (7, 3000), (480, 640)])
@pytest.mark.parametrize("shaded", [True, False])
def test_tiles_cover_each_pixel_of_each_image_once(threads, num_envs, height, width, shaded):
    cut = image_tiles(num_envs, height, width, threads, is_cpu=True, shaded=shaded)
    covered = np.zeros((num_envs, height), int)
    for tile in cut:
        covered[tile.envs, tile.rows] += 1
        envs, rows = tile.envs.stop - tile.envs.start, tile.rows.stop - tile.rows.start
        assert envs == 1 or rows == height, "what is drawn lies in one piece"
        assert envs * rows * width <= (1 << 16) + width
    assert (covered == 1).all()
    if num_envs >= 8 * threads and height * width < 1 << 16 and len(cut) > 1:
        drawn = [(tile.envs.stop - tile.envs.start) * (tile.rows.stop - tile.rows.start) for tile in cut]
        assert len(cut) % threads == 0
        assert max(drawn) - min(drawn) <= height


def test_small_pictures_are_not_worth_a_second_launch():
    assert len(image_tiles(16, 8, 8, 2, is_cpu=True, shaded=True)) == 1
    assert len(image_tiles(32, 64, 64, 2, is_cpu=True, shaded=True)) == 2


def test_a_gpu_draws_all_environments_at_once():
    (tile,) = image_tiles(64, 64, 64, 1, is_cpu=False, shaded=True)
    assert (tile.envs, tile.rows) == (slice(0, 64), slice(0, 64))


def test_what_took_long_begins_first():
    crew, order, meeting = Crew(2), [], threading.Barrier(2, timeout=30)
    efforts = [Effort() for _ in range(4)]
    for effort, seconds in zip(efforts, (10.0, 40.0, 20.0, 50.0), strict=True):
        effort.seconds = seconds

    def job(number: int):
        def run(member: int) -> None:
            order.append(number)
            if number in (1, 3):
                meeting.wait()  # the two that took longest are at work at once, before all others

        return run

    try:
        crew.run([job(number) for number in range(4)], efforts)
        assert set(order[:2]) == {1, 3}
        assert set(order[2:]) == {0, 2}
        assert all(effort.seconds < 10.0 for effort in efforts), "brought up to date"
    finally:
        crew.close()


def test_what_has_to_come_first_does_so_whatever_it_takes():
    crew, order = Crew(1), []
    crew.run([lambda member: order.append("rest")], [Effort()], first=[lambda member: order.append("first")])
    assert order == ["first", "rest"]
    crew.close()


def test_a_crew_takes_jobs_as_they_come():
    """Two threads and one job that lasts: the other thread does all the rest meanwhile."""
    crew, rest, by = Crew(2), threading.Semaphore(0), {}

    def long(member: int) -> None:
        by["long"] = member
        for _ in range(9):
            assert rest.acquire(timeout=30)

    def short(member: int) -> None:
        by.setdefault("short", set()).add(member)
        rest.release()

    try:
        crew.run([long, *[short] * 9])
        assert by["short"] == {1 - by["long"]}
        crew.run([])
    finally:
        crew.close()


def test_a_job_that_fails_fails_the_turn_and_nobody_works_on():
    crew, done = Crew(2), []

    def fail(member: int) -> None:
        raise RuntimeError("no light")

    try:
        with pytest.raises(RuntimeError, match="no light"):
            crew.run([fail, fail, *[done.append] * 5])
        assert not done
        crew.run([done.append])
        assert done == [0]
    finally:
        crew.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("render-crew")]
