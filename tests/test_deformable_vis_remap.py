"""Weights of visual vertices, against NumPy and SciPy, inside and outside of the tetrahedra."""

import itertools
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import Delaunay
from scipy.spatial.transform import Rotation

from scene_data.deformable_vis_remap import build_volume_vis_barycentric_remap

CORNER = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=np.float32)
ONE = np.array([0, 1, 2, 3], dtype=np.int32)


def remap(sim_vertices, tets, vis_vertices):
    """Nodes and weights on the host."""
    result = build_volume_vis_barycentric_remap(sim_vertices, tets, vis_vertices)
    assert result is not None
    return result.tet_vertex_indices.numpy(), result.bary_weights.numpy()


def interpolate(nodes, table):
    indices, weights = table
    return (np.asarray(nodes)[indices] * weights[..., None]).sum(axis=1)


def cloud(count, seed):
    """Random nodes, and the tetrahedra that fill their hull."""
    nodes = np.random.default_rng(seed).uniform(-1, 1, (count, 3))
    return nodes, Delaunay(nodes).simplices


def distance_to_triangle(point, triangle):
    """Distance of a point from a triangle, by clamping in turn to its plane, its edges and its corners."""
    a, b, c = triangle
    normal = np.cross(b - a, c - a)
    normal /= np.linalg.norm(normal)
    foot = point - normal * ((point - a) @ normal)
    sides = [np.cross(q - p, foot - p) @ normal for p, q in ((a, b), (b, c), (c, a))]
    if min(sides) >= 0:
        return abs((point - a) @ normal)
    ends = ((a, b), (b, c), (c, a))
    along = [np.clip((point - p) @ (q - p) / ((q - p) @ (q - p)), 0, 1) for p, q in ends]
    return min(np.linalg.norm(p + t * (q - p) - point) for t, (p, q) in zip(along, ends, strict=True))


def weights_of(point, corners):
    return np.linalg.solve(np.vstack([corners.T, np.ones(4)]), [*point, 1])


def distance_to_tet(point, corners):
    if weights_of(point, corners).min() >= 0:
        return 0.0
    return min(distance_to_triangle(point, corners[list(face)]) for face in itertools.combinations(range(4), 3))


def test_weights_of_a_point_are_its_barycentric_coordinates():
    indices, weights = remap(CORNER, ONE, [[0.1, 0.2, 0.3], [0.25, 0.25, 0.25]])
    assert indices.tolist() == [[0, 1, 2, 3]] * 2
    np.testing.assert_allclose(weights, [[0.4, 0.1, 0.2, 0.3], [0.25] * 4], atol=1e-6)


def test_tetrahedra_come_flat_or_in_rows_and_in_either_orientation():
    nodes, tets = cloud(20, seed=0)
    points = nodes.mean(axis=0) + np.random.default_rng(1).uniform(-0.2, 0.2, (50, 3))
    flat = remap(nodes, tets.reshape(-1), points)
    rows = remap(nodes, tets, points)
    mirrored = remap(nodes, tets[:, [1, 0, 2, 3]], points)
    np.testing.assert_array_equal(flat[0], rows[0])
    np.testing.assert_array_equal(flat[1], rows[1])
    np.testing.assert_array_equal(np.sort(mirrored[0], axis=1), np.sort(rows[0], axis=1))
    np.testing.assert_allclose(interpolate(nodes, mirrored), points, atol=1e-5)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), count=st.integers(5, 60))
def test_points_inside_are_carried_by_the_tetrahedron_around_them(seed, count):
    nodes, tets = cloud(count, seed)
    rng = np.random.default_rng(seed + 1)
    carriers = rng.integers(len(tets), size=40)
    points = np.einsum("ij,ijk->ik", rng.dirichlet(np.ones(4), size=40), nodes[tets[carriers]])
    table = remap(nodes, tets, points)
    np.testing.assert_allclose(interpolate(nodes, table), points, atol=1e-4)
    np.testing.assert_allclose(table[1].sum(axis=1), 1, atol=1e-5)
    # By how far a point may lie outside of its carrier: rounding.
    heights_outside = [distance_to_tet(p, nodes[i]) for p, i in zip(points, table[0], strict=True)]
    assert max(heights_outside) < 1e-4


def test_points_that_were_deformed_follow_an_affine_motion():
    nodes, tets = cloud(40, seed=2)
    points = np.random.default_rng(3).uniform(-1.2, 1.2, (200, 3))
    table = remap(nodes, tets, points)
    stretch, shift = np.array([[1, 0.3, 0], [0, 2, 0], [0.1, 0, 0.5]]), np.array([1, 2, 3])
    np.testing.assert_allclose(interpolate(nodes @ stretch + shift, table), points @ stretch + shift, atol=2e-4)


def test_points_outside_are_extrapolated_from_the_nearest_tetrahedron():
    nodes, tets = cloud(16, seed=4)
    directions = np.random.default_rng(5).normal(size=(20, 3))
    points = directions / np.linalg.norm(directions, axis=1)[:, None] * np.linspace(1.8, 6, 20)[:, None]
    table = remap(nodes, tets, points)
    for point, carrier in zip(points, table[0], strict=True):
        nearest = min(distance_to_tet(point, nodes[tet]) for tet in tets)
        assert distance_to_tet(point, nodes[carrier]) == pytest.approx(nearest, abs=1e-4)
    assert table[1].min() < 0
    np.testing.assert_allclose(table[1].sum(axis=1), 1, atol=1e-3)


def test_of_equally_near_tetrahedra_the_one_that_is_extended_least_carries():
    # A thin one and a thick one share the corner at the origin, to which the point is nearest.
    nodes = np.array([[0, 0, 0], [-1, 0.01, 0], [-1, -0.01, 0], [-1, 0, 0.01], [-1, 1, 1], [-1, -1, 1], [-1, 0, 3]])
    thin, thick = [0, 1, 2, 3], [0, 4, 5, 6]
    point = [0.5, 0.0, -0.1]
    assert weights_of(point, nodes[thin]).min() < -5 < weights_of(point, nodes[thick]).min()
    for tets in ([thin, thick], [thick, thin]):
        indices, _ = remap(nodes, tets, [point])
        assert indices[0].tolist() == thick


def test_one_warning_says_how_many_vertices_are_outside_and_by_how_far(caplog):
    with caplog.at_level(logging.WARNING):
        _, weights = remap(CORNER, ONE, [[2, 2, 2], [0.1, 0.1, 0.1], [-0.5, 0.1, 0.1]])
    (record,) = caplog.records
    # The far face lies at x + y + z = 1.
    assert "2 of 3 visual vertices" in record.message
    assert f"{5 / np.sqrt(3):.3g} m" in record.message
    assert "clamped" in record.message
    np.testing.assert_allclose(weights[0], [-5, 2, 2, 2], atol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_vertices_on_the_nodes_and_faces_are_inside_at_any_scale_and_place(caplog, scale, offset):
    nodes, tets = cloud(40, seed=6)
    faces = tets[:, :3]
    points = np.concatenate([nodes, nodes[faces].mean(axis=1)])
    with caplog.at_level(logging.WARNING):
        table = remap((nodes + offset) * scale, tets, (points + offset) * scale)
    assert not caplog.records
    np.testing.assert_allclose(interpolate(nodes, table), points, atol=1e-4)


def test_a_vertex_far_from_a_large_mesh_is_carried_too():
    # Brute force within boxes of a fixed margin gives up on this one.
    axis = np.arange(12.0)
    nodes = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    tets = Delaunay(nodes, qhull_options="QJ").simplices
    points = np.array([[100, 5, 5], [5, -50, 5]])
    np.testing.assert_allclose(interpolate(nodes, remap(nodes, tets, points)), points, atol=1e-2)


def test_tetrahedra_without_volume_carry_nothing(caplog):
    nodes = [*CORNER, [2, 0, 0], [3, 0, 0], [3, 1, 0], [3, 0.5, 1e-7]]
    flat = [[0, 1, 4, 5], [0, 1, 1, 2], [0, 5, 6, 7]]
    indices, weights = remap(nodes, [*flat, [0, 1, 2, 3]], [[0.2, 0, 0], [2.5, 0, 0]])
    assert indices.tolist() == [[0, 1, 2, 3]] * 2
    np.testing.assert_allclose(weights, [[0.8, 0.2, 0, 0], [-1.5, 2.5, 0, 0]], atol=1e-6)
    assert "1 of 2" in caplog.text
    assert build_volume_vis_barycentric_remap(nodes, flat, [[0.2, 0, 0]]) is None


def test_thin_tetrahedra_are_weighed_as_well_as_thick_ones():
    # A layer a hundred thousand times as wide as it is thick, askew, and one vertex in each of its tetrahedra.
    nodes, tets = cloud(200, seed=10)
    nodes = nodes * [1, 1, 1e-5] @ Rotation.from_euler("xyz", [0.3, 0.5, 0.7]).as_matrix()
    points = nodes[tets].mean(axis=1)
    np.testing.assert_allclose(interpolate(nodes, remap(nodes, tets, points)), points, atol=1e-5)


def test_a_tetrahedron_given_twice_still_has_an_outside():
    indices, weights = remap(CORNER, [0, 1, 2, 3, 0, 1, 2, 3], [[2, 0, 0]])
    assert indices.tolist() == [[0, 1, 2, 3]]
    np.testing.assert_allclose(weights, [[-1, 2, 0, 0]], atol=1e-6)


@pytest.mark.parametrize("tets", [[[0, 1, 2, 3], [0, 1, 2, 4]], [[0, 1, 2, 4], [0, 1, 2, 3]]])
def test_of_equals_the_first_carries(tets):
    indices, _ = remap([*CORNER, [0, 0, -1]], tets, [[0.25, 0.25, 0], [0.5, 0.25, 0], [0, 0, 0]])
    assert indices.tolist() == [tets[0]] * 3


def test_the_result_does_not_depend_on_how_the_tetrahedra_are_ordered():
    nodes, tets = cloud(60, seed=7)
    points = np.random.default_rng(8).uniform(-1, 1, (300, 3))
    order = np.random.default_rng(9).permutation(len(tets))
    first, second = remap(nodes, tets, points), remap(nodes, tets[order], points)
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


@pytest.mark.parametrize(
    ("sim_vertices", "tets", "vis_vertices"),
    [(np.empty((0, 3)), [], [[0, 0, 0]]), (CORNER, [], [[0, 0, 0]]), (CORNER, ONE, np.empty((0, 3)))],
)
def test_nothing_to_weigh_gives_none(sim_vertices, tets, vis_vertices):
    assert build_volume_vis_barycentric_remap(sim_vertices, tets, vis_vertices) is None


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"nodes 0 to 4, of which there are 4"):
        build_volume_vis_barycentric_remap(CORNER, [0, 1, 2, 4], CORNER)
    with pytest.raises(ValueError, match="nodes -1"):
        build_volume_vis_barycentric_remap(CORNER, [0, 1, 2, -1], CORNER)
    with pytest.raises(ValueError, match="6 is no multiple of four"):
        build_volume_vis_barycentric_remap(CORNER, [0, 1, 2, 3, 0, 1], CORNER)
    with pytest.raises(ValueError, match=r"vis_vertices.*not finite.*1"):
        build_volume_vis_barycentric_remap(CORNER, ONE, [[0, 0, 0], [0, np.nan, 0]])
    with pytest.raises(ValueError, match="sim_vertices"):
        build_volume_vis_barycentric_remap(np.full((4, 3), np.inf), ONE, CORNER)
