"""Primitives as triangles, against what geometry says of their volume and surface."""

import math

import numpy as np
import pytest

from scene_data.scene import HeightFieldDescription, ShapeType
from scene_data.tessellation import planar_texcoords, tessellate, tessellate_height_field

R, H = 0.3, 0.5
CLOSED = {
    ShapeType.SPHERE: ((R, 0, 0), 4 / 3 * math.pi * R**3, (R, R, R)),
    ShapeType.CAPSULE: ((R, H, 0), math.pi * R**2 * 2 * H + 4 / 3 * math.pi * R**3, (R, R, H + R)),
    ShapeType.CYLINDER: ((R, H, 0), math.pi * R**2 * 2 * H, (R, R, H)),
    ShapeType.ELLIPSOID: ((0.1, 0.2, 0.4), 4 / 3 * math.pi * 0.1 * 0.2 * 0.4, (0.1, 0.2, 0.4)),
    ShapeType.BOX: ((0.1, 0.2, 0.4), 8 * 0.1 * 0.2 * 0.4, (0.1, 0.2, 0.4)),
}


def corners(surface):
    return surface.points[surface.faces].astype(np.float64)


@pytest.mark.parametrize("kind", CLOSED, ids=lambda kind: kind.value)
def test_a_primitive_encloses_its_volume_and_reaches_its_size(kind):
    size, volume, half_extents = CLOSED[kind]
    surface = tessellate(kind, np.array(size, dtype=float))
    a, b, c = np.moveaxis(corners(surface), 1, 0)
    # Of tetrahedra to the origin, signed: faces that were turned inside out would count against it.
    assert np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6 == pytest.approx(volume, rel=0.015)
    np.testing.assert_allclose(surface.points.max(axis=0), half_extents, rtol=1e-6)
    np.testing.assert_allclose(surface.points.min(axis=0), np.negative(half_extents), rtol=1e-6)


@pytest.mark.parametrize("kind", CLOSED, ids=lambda kind: kind.value)
def test_normals_are_those_of_the_triangles(kind):
    surface = tessellate(kind, np.array(CLOSED[kind][0], dtype=float))
    a, b, c = np.moveaxis(corners(surface), 1, 0)
    flat = np.cross(b - a, c - a)
    flat /= np.linalg.norm(flat, axis=-1, keepdims=True)
    np.testing.assert_allclose(np.linalg.norm(surface.normals, axis=-1), 1.0, rtol=1e-6)
    assert np.einsum("fj,fcj->fc", flat, surface.normals[surface.faces]).min() > 0.9


def test_an_ellipsoid_has_the_normals_of_its_equation():
    size = np.array((0.1, 0.2, 0.4))
    surface = tessellate(ShapeType.ELLIPSOID, size)
    gradient = surface.points / size**2
    gradient /= np.linalg.norm(gradient, axis=-1, keepdims=True)
    np.testing.assert_allclose(surface.normals, gradient, atol=1e-5)


def test_a_height_field_stands_where_its_heights_say():
    heights = np.array(((0.0, 0.1, 0.2), (0.3, 0.4, 0.5)), np.float32)
    field = HeightFieldDescription("hill", heights, np.array((2.0, 1.0)), 0.25)
    surface = tessellate_height_field(field)
    expected = [(x, y, heights[row, column]) for row, y in ((0, -1), (1, 1)) for column, x in ((0, -2), (1, 0), (2, 2))]
    np.testing.assert_allclose(surface.points[:6], expected, rtol=1e-6)
    assert surface.points[:, 2].min() == -0.25
    # It slopes up along X (0.1 over 2 m) and along Y (0.3 over 2 m).
    np.testing.assert_allclose(surface.normals[:6], np.tile(np.array((-0.05, -0.15, 1)) / 1.0124, (6, 1)), atol=1e-3)
    a, b, c = np.moveaxis(corners(surface), 1, 0)
    outward = np.einsum("ij,ij->i", np.cross(b - a, c - a), surface.normals[surface.faces[:, 0]])
    assert (outward > 0).all()


def test_a_planar_texture_covers_the_shape_or_repeats_with_space():
    corner = np.array(((0.5, -2.0, 0.3),), np.float32)
    half, repeat = np.array((0.5, 2.0)), np.array((3.0, 1.0), np.float32)
    np.testing.assert_allclose(planar_texcoords(corner, half, repeat, uniform=False), [[2.0, 0.0]])
    np.testing.assert_allclose(planar_texcoords(corner, half, repeat, uniform=True), [[1.25, -0.5]])
    np.testing.assert_allclose(planar_texcoords(corner, np.zeros(2), repeat, uniform=False), [[1.25, -0.5]])
