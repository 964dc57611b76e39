"""Points: views where they are native, one fused launch where they are interpolated or reordered."""

import gc
import weakref
from unittest.mock import Mock

import numpy as np
import pytest
import warp as wp
from hypothesis import given, settings
from hypothesis import strategies as st
from publishing import PoseBackend, fabric_points, fabric_rows
from scipy.spatial.transform import Rotation

from scene_data import SceneDataFormat as Format
from scene_data import SceneDataProvider
from scene_data.scene import SkinDescription
from scene_data.skinning import skinned_points

NODES = np.arange(15, dtype=np.float32).reshape(5, 3)
INDICES = np.array([[0, 1, 2, 3], [4, 3, 2, 1], [0, 0, 0, 0]], dtype=np.int32)
WEIGHTS = np.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0]], dtype=np.float32)


@pytest.fixture
def launches(monkeypatch) -> Mock:
    counted = Mock(wraps=wp.launch)
    monkeypatch.setattr(wp, "launch", counted)
    return counted


@pytest.fixture
def backend() -> PoseBackend:
    """Native cloths `/a` and `/b`, and an interpolated `/skin` over the same nodes."""
    points = Format.Points()
    points.points = wp.array(NODES, dtype=wp.vec3f, device="cpu")
    weighted = Format.WeightedPoints()
    weighted.points = points.points
    weighted.indices = wp.array(INDICES, dtype=wp.int32, device="cpu")
    weighted.weights = wp.array(WEIGHTS, dtype=wp.float32, device="cpu")
    batches = [(points, {"/a": (0, 2), "/b": (2, 3)}), (weighted, {"/skin": (0, 2), "/tip": (2, 1)})]
    return PoseBackend(geometry_timestamp=0, get_geometry_batches=lambda output_format=Format.Points: batches)


def skin(nodes: np.ndarray) -> np.ndarray:
    return np.einsum("vn,vnd->vd", WEIGHTS, nodes[INDICES])


def move(backend: PoseBackend, nodes: np.ndarray) -> None:
    points = backend.get_geometry_batches()[0][0]
    points.points.assign(nodes)
    backend.mark_geometry_written()


def test_native_ranges_alias_the_engine_and_others_are_computed_once(backend, launches):
    provider = SceneDataProvider(backend)
    views = provider.get_geometry_points()
    assert set(views) == {"/a", "/b", "/skin", "/tip"}
    engine = backend.get_geometry_batches()[0][0].points
    assert views["/b"].ptr == engine.ptr + 2 * 12
    first = dict(views)
    for nodes, count in ((NODES, 1), (NODES + 1, 2), (NODES * 2, 3)):
        if count > 1:
            move(backend, nodes)
        for _ in range(2):
            views = provider.get_geometry_points()
        assert all(views[path] is first[path] for path in first)
        np.testing.assert_allclose(views["/b"].numpy(), nodes[2:])
        np.testing.assert_allclose(views["/skin"].numpy(), skin(nodes)[:2], rtol=1e-6)
        np.testing.assert_allclose(views["/tip"].numpy(), skin(nodes)[2:], rtol=1e-6)
        assert launches.call_count == count


def test_views_are_one_dictionary_and_follow_a_swapped_array(backend, launches):
    backend.get_geometry_batches()[1:] = []
    provider = SceneDataProvider(backend)
    views = provider.get_geometry_points()
    first = views["/a"]
    assert provider.get_geometry_points() is views
    swapped = wp.array(NODES + 5, dtype=wp.vec3f, device="cpu")
    backend.get_geometry_batches()[0][0].points = swapped
    backend.mark_geometry_written()
    assert provider.get_geometry_points() is views
    assert views["/a"] is not first
    assert views["/b"].ptr == swapped.ptr + 2 * 12
    np.testing.assert_array_equal(views["/a"].numpy(), NODES[:2] + 5)
    assert not launches.called


def test_a_destination_is_filled_in_its_own_order_by_one_launch_per_batch(backend, launches):
    provider = SceneDataProvider(backend)
    output = wp.array(np.full((8, 3), -1.0), dtype=wp.vec3f, device="cpu")
    offsets = {"/b": 0, "/a": 3, "/skin": 6}
    for nodes, count in ((NODES, 2), (NODES + 1, 4)):
        if count > 2:
            move(backend, nodes)
        for same in (offsets, dict(offsets)):
            assert provider.get_geometry_points(output=output, offsets=same) is output
        expected = np.concatenate([nodes[2:], nodes[:2], [[-1] * 3], skin(nodes)[:2]])
        np.testing.assert_allclose(output.numpy(), expected, rtol=1e-6)
        assert launches.call_count == count
    assert provider.get_geometry_points(output=output, offsets={"/a": 5}) is output
    np.testing.assert_array_equal(output.numpy()[5:7], NODES[:2] + 1)
    assert launches.call_count == 5


def test_a_failed_write_is_tried_again(backend, monkeypatch):
    provider = SceneDataProvider(backend)
    output = wp.zeros(2, dtype=wp.vec3f, device="cpu")
    for arguments in ({}, {"output": output, "offsets": {"/a": 0}}):
        with monkeypatch.context() as broken:
            broken.setattr(wp, "launch", Mock(side_effect=RuntimeError("no device")))
            with pytest.raises(RuntimeError, match="no device"):
                provider.get_geometry_points(**arguments)
        provider.get_geometry_points(**arguments)
    np.testing.assert_array_equal(output.numpy(), NODES[:2])
    np.testing.assert_allclose(provider.get_geometry_points()["/skin"].numpy(), skin(NODES)[:2])


@pytest.mark.parametrize("fabric", [False, True])
def test_a_destination_is_held_weakly(backend, fabric):
    provider = SceneDataProvider(backend)
    rows = wp.zeros(2, dtype=wp.vec3f, device="cpu")
    storage = fabric_rows([rows])
    output = fabric_points(storage) if fabric else rows
    provider.get_geometry_points(output=output, offsets={"/a": 0})
    gone = weakref.ref(output)
    del output, rows
    if not fabric:
        del storage
    gc.collect()
    assert gone() is None


def test_fabric_rows_are_filled_by_one_launch_per_batch(backend, launches):
    provider = SceneDataProvider(backend)
    rows = [wp.full(length, wp.vec3f(-1.0), dtype=wp.vec3f, device="cpu") for length in (3, 2, 4)]
    storage = fabric_rows(rows)
    output = fabric_points(storage)
    offsets = {"/b": 0, "/a": 2, "/skin": 1}
    for nodes, count in ((NODES, 2), (NODES + 1, 4)):
        if count > 2:
            move(backend, nodes)
        for _ in range(2):
            assert provider.get_geometry_points(output=output, offsets=offsets) is output
        assert launches.call_count == count
        np.testing.assert_allclose(rows[0].numpy(), nodes[2:])
        np.testing.assert_allclose(rows[1].numpy(), skin(nodes)[:2], rtol=1e-6)
        np.testing.assert_allclose(rows[2].numpy(), [*nodes[:2], [-1] * 3, [-1] * 3])


def test_fabric_storage_that_its_owner_replaces_is_filled_at_once(backend):
    provider = SceneDataProvider(backend)
    rows = [wp.zeros(2, dtype=wp.vec3f, device="cpu") for _ in range(2)]
    storages = [fabric_rows([row]) for row in rows]
    output = fabric_points(storages[0])
    provider.get_geometry_points(output=output, offsets={"/a": 0})
    output.points = fabric_points(storages[1]).points
    provider.get_geometry_points(output=output, offsets={"/a": 0})
    np.testing.assert_array_equal(rows[1].numpy(), NODES[:2])


def test_fabric_rows_that_do_not_fit_are_refused(backend):
    provider = SceneDataProvider(backend)
    storage = fabric_rows([wp.zeros(2, dtype=wp.vec3f, device="cpu")])
    output = fabric_points(storage)
    with pytest.raises(ValueError, match="'/b' has 3 points, which do not fit into row 0 with 2"):
        provider.get_geometry_points(output=output, offsets={"/b": 0})
    for row in (1, -1):
        with pytest.raises(ValueError, match=f"'/a' goes to row {row} of Fabric storage, which has 1 rows"):
            provider.get_geometry_points(output=output, offsets={"/a": row})
    with pytest.raises(ValueError, match="given together"):
        provider.get_geometry_points(output=output)
    with pytest.raises(ValueError, match="FabricPoints has no array"):
        provider.get_geometry_points(output=Format.FabricPoints(), offsets={"/a": 0})


def test_native_fabric_storage_is_borrowed(launches):
    storage = fabric_rows([wp.zeros(2, dtype=wp.vec3f, device="cpu")])
    native = fabric_points(storage)
    asked = []
    provider = SceneDataProvider(
        PoseBackend(get_geometry_batches=lambda output_format: asked.append(output_format) or [(native, {})])
    )
    output = Format.FabricPoints()
    assert provider.get_geometry_points(output=output) is output
    assert output.points is native.points
    assert asked == [Format.FabricPoints]
    assert not launches.called


@pytest.mark.parametrize("fabric", [False, True])
def test_only_what_crosses_devices_is_staged(backend, launches, monkeypatch, fabric):
    """There is one device here, so it is said to be another."""
    provider = SceneDataProvider(backend)
    rows = wp.zeros(6, dtype=wp.vec3f, device="cpu")
    here = wp.zeros(6, dtype=wp.vec3f, device="cpu")
    copies = Mock(wraps=wp.copy)
    monkeypatch.setattr(wp, "copy", copies)
    provider.get_geometry_points(output=here, offsets={"/b": 1})
    assert (launches.call_count, copies.call_count) == (1, 0)
    monkeypatch.setattr("scene_data.geometry._crosses", lambda published, wanted: True)
    storage = fabric_rows([rows[:3], rows[3:]])
    output, offsets = (fabric_points(storage), {"/b": 1, "/a": 0}) if fabric else (rows, {"/b": 3, "/a": 0})
    provider.get_geometry_points(output=output, offsets=offsets)
    for nodes in (NODES + 1, NODES * 2):
        move(backend, nodes)
        launches.reset_mock()
        copies.reset_mock()
        for _ in range(2):
            provider.get_geometry_points(output=output, offsets=offsets)
        assert (launches.call_count, copies.call_count) == (2, 1)
        np.testing.assert_array_equal(rows.numpy(), [*nodes[:2], [0, 0, 0], *nodes[2:]])


def test_destinations_that_do_not_fit_are_refused(backend, launches):
    provider = SceneDataProvider(backend)
    output = wp.zeros(4, dtype=wp.vec3f, device="cpu")
    with pytest.raises(KeyError, match="/nobody"):
        provider.get_geometry_points(output=output, offsets={"/a": 0, "/nobody": 0})
    for offset in (2, -1):
        with pytest.raises(ValueError, match=f"'/b' has 3 points, which from {offset} on"):
            provider.get_geometry_points(output=output, offsets={"/b": offset})
    with pytest.raises(ValueError, match="given together"):
        provider.get_geometry_points(output=output)
    with pytest.raises(ValueError, match="given together"):
        provider.get_geometry_points(offsets={"/a": 0})
    assert not launches.called


def test_batches_that_cannot_be_read_are_refused(backend):
    provider = SceneDataProvider(backend)
    batches = backend.get_geometry_batches()
    output = wp.zeros(9, dtype=wp.vec3f, device="cpu")
    batches[0][1]["/b"] = (2, 4)
    with pytest.raises(ValueError, match="'/b' is said to end at point 6 of 5"):
        provider.get_geometry_points(output=output, offsets={"/b": 0})
    with pytest.raises(ValueError, match="'/b' is said to end at point 6 of 5"):
        provider.get_geometry_points()
    batches[:] = batches[1:]
    batches[0] = (Format.FabricPoints(), {"/rope": (0, 2)})
    with pytest.raises(ValueError, match="cannot be read from FabricPoints"):
        provider.get_geometry_points(output=output, offsets={"/rope": 0})
    with pytest.raises(ValueError, match="cannot be read from FabricPoints"):
        provider.get_geometry_points()


def test_without_geometry_there_are_no_views():
    assert SceneDataProvider(PoseBackend()).get_geometry_points() == {}


# Each way to compute points, against NumPy

SEEDS = st.integers(0, 2**32 - 1)


def view_of(source, count: int) -> np.ndarray:
    backend = PoseBackend(geometry_timestamp=0, get_geometry_batches=lambda _: [(source, {"/points": (0, count)})])
    return SceneDataProvider(backend).get_geometry_points()["/points"].numpy()


def poses(rng: np.random.Generator, count: int) -> tuple[wp.array, np.ndarray, np.ndarray]:
    """Random poses as an array, and as positions (n, 3) and matrices (n, 3, 3)."""
    positions, rotations = rng.normal(size=(count, 3)), Rotation.random(count, random_state=int(rng.integers(2**31)))
    packed = np.hstack((positions, rotations.as_quat()))
    return wp.array(packed, dtype=wp.transformf, device="cpu"), positions, rotations.as_matrix()


@settings(max_examples=25)
@given(seed=SEEDS, node_count=st.integers(1, 20), vertex_count=st.integers(1, 20))
def test_interpolation_is_a_weighted_sum(seed, node_count, vertex_count):
    rng = np.random.default_rng(seed)
    nodes, weights = rng.normal(size=(node_count, 3)), rng.dirichlet(np.ones(4), size=vertex_count)
    indices = rng.integers(node_count, size=(vertex_count, 4))
    source = Format.WeightedPoints()
    source.points = wp.array(nodes, dtype=wp.vec3f, device="cpu")
    source.indices = wp.array(indices, dtype=wp.int32, device="cpu")
    source.weights = wp.array(weights, dtype=wp.float32, device="cpu")
    expected = np.einsum("vn,vnd->vd", weights, nodes[indices])
    np.testing.assert_allclose(view_of(source, vertex_count), expected, rtol=0, atol=1e-5)


@settings(max_examples=25)
@given(seed=SEEDS, body_count=st.integers(1, 5), shape_count=st.integers(1, 8), vertex_count=st.integers(1, 20))
def test_cables_run_midway_between_the_ends_of_their_capsules(seed, body_count, shape_count, vertex_count):
    rng = np.random.default_rng(seed)
    source = Format.CapsuleEndpoints()
    source.transforms, positions, matrices = poses(rng, body_count)
    source.shape_transform, offsets, turns = poses(rng, shape_count)
    bodies, halves = rng.integers(body_count, size=shape_count), rng.uniform(0.1, 2, size=shape_count)
    shapes, signs = rng.integers(shape_count, size=(vertex_count, 2)), rng.choice((-1, 1), size=(vertex_count, 2))
    source.shape_body = wp.array(bodies, dtype=wp.int32, device="cpu")
    source.shape_scale = wp.array(np.column_stack((halves * 9, halves, halves * 7)), dtype=wp.vec3f, device="cpu")
    endpoints = np.stack((shapes, signs), axis=-1).reshape(-1, 4)
    source.endpoints = wp.array(endpoints, dtype=wp.vec4i, device="cpu")
    ends = offsets[shapes] + (signs * halves[shapes])[..., None] * turns[shapes][..., 2]
    placed = positions[bodies[shapes]] + np.einsum("veij,vej->vei", matrices[bodies[shapes]], ends)
    np.testing.assert_allclose(view_of(source, vertex_count), placed.mean(axis=1), rtol=0, atol=1e-4)


@settings(max_examples=25)
@given(seed=SEEDS, copies=st.integers(1, 3), inflates=st.sampled_from([(0.0, 0.0), (0.02, 0.0), (0.0, -0.05)]))
def test_skins_blend_their_bones(seed, copies, inflates):
    rng = np.random.default_rng(seed)
    body_count = 4
    transforms, positions, matrices = poses(rng, copies * body_count)
    skins = [random_skin(rng, body_count, inflate) for inflate in inflates]
    expected = [
        blended(skin, positions[first : first + body_count], matrices[first : first + body_count])
        for first in range(0, copies * body_count, body_count)
        for skin in skins
    ]
    source = skinned_points(skins, copies, body_count, transforms)
    assert (source.inflations is not None) == any(inflates)
    count = sum(len(points) for points in expected)
    np.testing.assert_allclose(view_of(source, count), np.concatenate(expected), rtol=0, atol=1e-4)


def random_skin(rng: np.random.Generator, body_count: int, inflate: float) -> SkinDescription:
    """A tetrahedron, or a patch beside it, with three bones, some of which move a vertex and some none."""
    vertex_count = int(rng.integers(4, 9))
    members = [np.sort(rng.permutation(vertex_count)[: rng.integers(1, vertex_count)]) for _ in range(2)]
    members.append(np.arange(vertex_count))
    weights = rng.uniform(0.1, 1, size=sum(map(len, members)))
    totals = np.bincount(np.concatenate(members), weights, minlength=vertex_count)
    return SkinDescription(
        name="skin",
        path_name="skin",
        vertices=rng.normal(size=(vertex_count, 3)).astype(np.float32),
        faces=np.array([[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]], np.int32),
        texcoords=None,
        bone_bodies=rng.integers(body_count, size=3).astype(np.int32),
        bone_bind_positions=rng.normal(size=(3, 3)).astype(np.float32),
        bone_bind_quaternions=Rotation.random(3, random_state=int(rng.integers(2**31))).as_quat().astype(np.float32),
        bone_offsets=np.cumsum([0, *map(len, members)]).astype(np.int32),
        bone_vertices=np.concatenate(members).astype(np.int32),
        bone_weights=(weights / totals[np.concatenate(members)]).astype(np.float32),
        inflate=inflate,
        material=None,
        rgba=np.ones(4, np.float32),
        group=0,
    )


def blended(skin: SkinDescription, positions: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    points = np.zeros((len(skin.vertices), 3))
    for bone, body in enumerate(skin.bone_bodies):
        influences = slice(*skin.bone_offsets[bone : bone + 2])
        members = skin.bone_vertices[influences]
        turn = matrices[body] @ Rotation.from_quat(skin.bone_bind_quaternions[bone]).as_matrix().T
        moved = positions[body] + (skin.vertices[members] - skin.bone_bind_positions[bone]) @ turn.T
        points[members] += skin.bone_weights[influences, None] * moved
    normals = np.zeros_like(points)
    for face in skin.faces:
        normals[face] += np.cross(points[face[1]] - points[face[0]], points[face[2]] - points[face[0]])
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    return points + skin.inflate * normals / np.where(lengths > 0, lengths, 1)
