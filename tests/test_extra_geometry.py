"""Extra geometry: what is drawn beside the model, where, in which environments, and what happens when it cannot be."""

import mujoco
import numpy as np
import pytest
from film_set import DEPTH, HEIGHT, NUM_ENVS, RGB, SEG, WIDTH, few
from primitives import one_of_each, silhouettes
from rendering import Studio, snapshot_of

from scene_data.extra_geometry import PRIMITIVES, GeometryBatch, geometry_capacity
from scene_data.geometry_sources import GeometryCapacityError, GeometrySourceError, GeometrySources, PackedGeometry
from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.scene_parts import ShapeType

pytest_plugins = ("film_fixtures",)

CAPACITY = geometry_capacity(3)
UNKNOWN = int(mujoco.mjtObj.mjOBJ_UNKNOWN)
RED = (1.0, 0.0, 0.0, 1.0)


@pytest.fixture(scope="module")
def stage(model, cameras):
    shown = few(cameras, "free front", "zenith", "nothing")
    studio = Studio(MujocoWarpRenderBackend(shards=2), model, shown)
    yield studio
    studio.close()


def shoot(studio: Studio, states, batch: GeometryBatch | None, *cameras, capacity=CAPACITY) -> dict:
    """The frames of these cameras, with extra geometry."""
    snapshot = snapshot_of(studio.model, states)
    if batch is not None:
        snapshot.extra_geometry = PackedGeometry.of(batch, NUM_ENVS, capacity)
    plans = [studio.plan(camera) for camera in cameras]
    assert studio.backend.render(snapshot, plans, studio.boundary).ok
    return {(plan.camera.name, plane): studio.frame(plan.camera_id, plane) for plan in plans for plane in plan.planes}


def test_primitives_stand_where_they_are_put(stage, states, cameras):
    batch = one_of_each()
    frames = shoot(stage, states, batch, cameras["zenith"])
    for env in range(NUM_ENVS):
        seen = frames["zenith", SEG][env]
        for index, where in silhouettes().items():
            pixels = (seen == (index, UNKNOWN)).all(axis=-1)
            np.testing.assert_array_equal(pixels, where, err_msg=PRIMITIVES[batch.types[index]].value)
            hue = frames["zenith", RGB][env][where] > 10
            np.testing.assert_array_equal(hue, np.broadcast_to(batch.rgba[index][:3] > 0, hue.shape))


def test_depth_of_a_sphere_is_that_of_analysis(stage, states, cameras):
    pose = cameras["free front"].mount
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.array(pose.quaternion)[[3, 0, 1, 2]])
    centre = np.array(pose.position) - 2.0 * matrix.reshape(3, 3)[:, 2]
    frames = shoot(stage, states, GeometryBatch.spheres(centre, 0.5, envs=1), cameras["free front"])
    focal = 0.5 * HEIGHT / np.tan(np.radians(22.5))
    u, v = np.meshgrid(np.arange(WIDTH) + 0.5 - WIDTH / 2, np.arange(HEIGHT) + 0.5 - HEIGHT / 2)
    # The ray z (u / f, v / f, 1) meets the sphere around (0, 0, 2) where a z^2 - 4 z + 3.75 = 0.
    a = 1 + (u / focal) ** 2 + (v / focal) ** 2
    with np.errstate(invalid="ignore"):
        z = (4 - np.sqrt(16 - 15 * a)) / (2 * a)
    seen = (frames["free front", SEG][1] == (0, UNKNOWN)).all(axis=-1)
    np.testing.assert_array_equal(seen, np.isfinite(z))
    np.testing.assert_allclose(frames["free front", DEPTH][1, ..., 0][seen], z[seen], rtol=1e-4)


def test_each_environment_shows_its_own_and_what_all_show(stage, states, cameras):
    batch = GeometryBatch.spheres([(-1.5, 0, 2), (0, 0, 2.5), (1.5, 0, 2), (1.5, 1, 2)], 0.25, envs=[0, -1, 2, 2])
    segmentation = shoot(stage, states, batch, cameras["zenith"])["zenith", SEG]
    seen = [sorted({int(i) for i, kind in env.reshape(-1, 2) if kind == UNKNOWN}) for env in segmentation]
    assert seen == [[0, 1], [1], [1, 2, 3]]


def test_what_is_not_drawn_leaves_every_pixel_alone(stage, states, cameras, frames):
    shoot(stage, states, GeometryBatch.spheres((0, 0, 2), 0.25), cameras["free front"])
    out_of_sight = GeometryBatch.spheres((0, 0, 500.0), 0.1)
    transparent = GeometryBatch.spheres((0, -2, 1), 0.3, rgba=(1, 0, 0, 0))
    for batch in (None, out_of_sight, transparent):
        for (name, plane), frame in shoot(stage, states, batch, cameras["free front"]).items():
            np.testing.assert_array_equal(frame, frames[cameras[name].id, plane])


def test_a_camera_that_shows_no_group_shows_extra_geometry_alone(stage, states, cameras):
    camera = cameras["nothing"]
    segmentation = shoot(stage, states, GeometryBatch.spheres((0, 0, 1), 0.3), camera)["nothing", SEG]
    assert {tuple(pixel) for pixel in segmentation.reshape(-1, 2).tolist()} == {(-1, -1), (0, UNKNOWN)}


def test_a_primitive_that_is_not_finite_blanks_its_environment_alone(stage, states, cameras):
    good = [(-1.5, 0, 2), (0, 0, 2), (1.5, 0, 2)]
    bad = np.array(good)
    bad[1, 0] = np.nan
    camera = cameras["zenith"]
    expected = shoot(stage, states, GeometryBatch.spheres(good, 0.25, envs=[0, 1, 2]), camera)
    sick = shoot(stage, states, GeometryBatch.spheres(bad, 0.25, envs=[0, 1, 2]), camera)
    np.testing.assert_array_equal(stage.backend.blank_environments, [1])
    for key, frame in sick.items():
        np.testing.assert_array_equal(frame[[0, 2]], expected[key][[0, 2]])
    np.testing.assert_array_equal(sick["zenith", SEG][1], -1)


def test_room_can_be_changed(stage, states, cameras):
    many = GeometryBatch.spheres(np.linspace((-1.5, 0, 2), (1.5, 0, 2), 7), 0.1)
    with pytest.raises(GeometryCapacityError, match="7 of type 'sphere' in environment 0, where there is room for 3"):
        shoot(stage, states, many, cameras["zenith"])
    segmentation = shoot(stage, states, many, cameras["zenith"], capacity=geometry_capacity({"sphere": 7}))
    found = segmentation["zenith", SEG]
    assert len({int(i) for i, kind in found[0].reshape(-1, 2) if kind == UNKNOWN}) == 7


# -- batches and sources


def test_arrows_point_and_axes_are_coloured():
    starts, ends = np.zeros((3, 3)), np.array([(0, 0, 1), (1, 0, 0), (0, 0, -1)])
    arrows = GeometryBatch.arrows(starts, ends, width=0.02, envs=[0, 1, -1])
    assert [PRIMITIVES[i] for i in arrows.types] == [ShapeType.CYLINDER] * 3 + [ShapeType.ELLIPSOID] * 3
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for part in (row, row + 3):  # each part's own Z axis lies along the arrow
            turned = np.zeros(3)
            mujoco.mju_rotVecQuat(turned, np.array([0.0, 0, 1]), arrows.quaternions[part][[3, 0, 1, 2]])
            np.testing.assert_allclose(turned, end, atol=1e-12)
        tip = arrows.positions[row + 3] + arrows.sizes[row + 3, 2] * end
        np.testing.assert_allclose(tip, end, atol=1e-12)
        tail = arrows.positions[row] - arrows.sizes[row, 1] * end
        np.testing.assert_allclose(tail, start, atol=1e-12)
    quarter = np.array([0, 0, np.sin(np.pi / 4), np.cos(np.pi / 4)])
    axes = GeometryBatch.axes((1, 2, 3), quarter, 0.5)
    np.testing.assert_allclose(2 * (axes.positions - (1, 2, 3)), [(0, 0.5, 0), (-0.5, 0, 0), (0, 0, 0.5)], atol=1e-12)
    np.testing.assert_array_equal(axes.rgba, [(1, 0, 0, 1), (0, 1, 0, 1), (0, 0, 1, 1)])


def test_a_batch_is_a_copy_and_cannot_be_written_to():
    positions = np.zeros((2, 3))
    batch = GeometryBatch.spheres(positions, 1.0)
    positions[:] = 7
    np.testing.assert_array_equal(batch.positions, 0)
    with pytest.raises(ValueError, match="read-only"):
        batch.positions[0] = 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GeometryBatch("cone", (0, 0, 0), 1.0), "Unknown primitive 'cone'. Known: sphere, capsule"),
        (lambda: GeometryBatch([5], (0, 0, 0), 1.0), "Unknown primitive 5"),
        (lambda: GeometryBatch.spheres((0, 0), 1.0), r"positions of extra geometry must have shape \(1, 3\)"),
        (lambda: GeometryBatch.spheres((0, 0, 0), -1.0), "sizes of extra geometry must not be below 0"),
        (
            lambda: GeometryBatch.spheres((0, 0, 0), 1.0, rgba=(2, 0, 0, 1)),
            r"rgba of extra geometry must lie in \[0, 1\]",
        ),
        (lambda: GeometryBatch.spheres((0, 0, 0), 1.0, envs=-2), "envs of extra geometry must be -1 or"),
        (lambda: GeometryBatch.boxes((0, 0, 0), 1.0, (0, 0, 0, 0)), "quaternions of extra geometry must not be zero"),
        (lambda: geometry_capacity({"plane": 1}), "Unknown primitive 'plane'"),
        (lambda: geometry_capacity(-1), "must not be below 0, got -1"),
    ],
)
def test_what_is_no_geometry_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class TestSources:
    def test_are_asked_once_each_in_order(self):
        calls = []
        sources = GeometrySources(CAPACITY)

        def source(name: str, x: float):
            def give() -> GeometryBatch:
                calls.append(name)
                return GeometryBatch.spheres((x, 0, 0), 1.0)

            return give

        first = source("first", 1.0)
        sources.add(first)
        sources.add(source("second", 2.0))
        sources.add(lambda: None)
        packed = sources.collect(1)
        assert calls == ["first", "second"]
        np.testing.assert_array_equal(packed.positions[packed.ids.argsort(), 0], [1, 2])
        sources.remove(first)
        assert sources.version == 4
        np.testing.assert_array_equal(sources.collect(1).positions[:, 0], [2])

    def test_nothing_to_draw_is_nothing(self):
        sources = GeometrySources(CAPACITY)
        sources.add(list)
        assert sources.collect(1) is None

    @pytest.mark.parametrize(
        ("give", "reason"),
        [
            (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
            (lambda: 3, "TypeError: expected GeometryBatch, got int"),
            (lambda: [None], "TypeError: expected GeometryBatch, got NoneType"),
            (
                lambda: GeometryBatch.spheres((0, 0, 0), 1.0, envs=2),
                "ValueError: it names environment 2, but there are 2",
            ),
        ],
    )
    def test_failures_name_the_source(self, give, reason):
        sources = GeometrySources(CAPACITY)
        sources.add(give, "contacts")
        with pytest.raises(GeometrySourceError, match=f"The geometry source 'contacts' failed: {reason}"):
            sources.collect(2)

    def test_are_added_and_removed_once(self):
        sources = GeometrySources(CAPACITY)
        sources.add(list)
        with pytest.raises(ValueError, match="'list' is a geometry source already"):
            sources.add(list)
        with pytest.raises(ValueError, match="must be a function"):
            sources.add(3)
        sources.remove(list)
        with pytest.raises(ValueError, match="is no geometry source"):
            sources.remove(list)
