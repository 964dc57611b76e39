"""Conversions among pose formats, against SciPy and NumPy."""

import numpy as np
import pytest
import warp as wp
from publishing import PoseBackend, as_homogeneous, fabric_output, fabric_storage, homogeneous, publish
from scipy.spatial.transform import Rotation

from scene_data import SceneDataFormat as Format
from scene_data import SceneDataProvider

SOURCES = [Format.Vec3_Quat, Format.Vec3_Matrix33, Format.Transform, Format.Matrix44, Format.Vec3d_Matrix33d]
TARGETS = [Format.Vec3_Quat, Format.Vec3_Matrix33, Format.Transform, Format.Matrix44, Format.TransposedMatrix44d]
HALF_TURNS = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.8, 0], [0, -0.6, 0.8], [0.6, 0, -0.8], [1 / 3, 2 / 3, -2 / 3]]


def rotations() -> np.ndarray:
    """Random rotations, half turns about axes and diagonals, and rotations close to half a turn and to none."""
    random = Rotation.random(200, random_state=0).as_matrix()
    turns = [
        Rotation.from_rotvec(angle * np.array(axis)).as_matrix()
        for axis in HALF_TURNS
        for angle in (np.pi, np.pi - 1e-4, -np.pi + 1e-3, 2 * np.pi / 3, 1e-4)
    ]
    # Each of these has the largest component of its quaternion at another place, and on its border.
    borders = Rotation.from_quat([[1, 1, 1, 1], [1, -1, 0, 0], [0, 1, 1, 0], [0, 0, 1, -1], [1, 0, 1, 0]]).as_matrix()
    return np.concatenate([random, turns, borders, np.eye(3)[None]])


ROTATIONS = rotations()
POSITIONS = np.random.default_rng(1).uniform(-5, 5, (len(ROTATIONS), 3))


def provider_of(publication) -> SceneDataProvider:
    return SceneDataProvider(PoseBackend(transforms=publication))


@pytest.mark.parametrize("target_format", TARGETS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("source_format", SOURCES, ids=lambda f: f.__name__)
def test_every_pair_of_formats_keeps_the_pose(source_format, target_format):
    provider = provider_of(publish(source_format, POSITIONS, ROTATIONS))
    output = target_format()
    assert provider.get_transforms(output)
    np.testing.assert_allclose(as_homogeneous(output), homogeneous(POSITIONS, ROTATIONS), atol=2e-6)


@pytest.mark.parametrize("source_format", SOURCES[1::2], ids=lambda f: f.__name__)
def test_quaternions_from_matrices_are_unit_for_every_rotation(source_format):
    provider = provider_of(publish(source_format, POSITIONS, ROTATIONS))
    output = Format.Vec3_Quat()
    assert provider.get_transforms(output)
    quaternions = output.orientations.numpy()
    np.testing.assert_allclose(np.linalg.norm(quaternions, axis=1), 1, atol=1e-6)
    expected = Rotation.from_matrix(ROTATIONS).as_quat()
    np.testing.assert_allclose(np.abs(np.sum(quaternions * expected, axis=1)), 1, atol=1e-6)


@pytest.mark.parametrize("source_format", SOURCES, ids=lambda f: f.__name__)
def test_scale_and_mapping_go_into_the_conversion_to_row_vector_matrices(source_format):
    count = len(ROTATIONS)
    order = np.random.default_rng(2).permutation(count)
    scales = np.random.default_rng(3).uniform(0.5, 2, (count, 3)).astype(np.float32)
    provider = provider_of(publish(source_format, POSITIONS, ROTATIONS))
    output = Format.TransposedMatrix44d()
    mapping = wp.array(order, dtype=wp.int32, device="cpu")
    assert provider.get_transforms(output, mapping, scales=wp.array(scales, dtype=wp.vec3f, device="cpu"))
    expected = np.empty((count, 4, 4))
    expected[order] = homogeneous(POSITIONS, ROTATIONS)
    expected = expected.transpose(0, 2, 1)
    expected[:, :3, :3] *= scales[:, :, None]
    np.testing.assert_allclose(output.matrices.numpy(), expected, atol=4e-6)


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("source_format", SOURCES, ids=lambda f: f.__name__)
def test_fabric_takes_the_transforms_that_its_own_index_names(source_format, scaled):
    chosen = np.array([7, 3, 205, 3, -1, 5000], dtype=np.int32)
    scales = np.random.default_rng(3).uniform(0.5, 2, (len(ROTATIONS), 3)).astype(np.float32)
    matrices = wp.array(np.full((6, 4, 4), 9.0), dtype=wp.mat44d, device="cpu")
    storage = fabric_storage(matrices, wp.array(chosen, dtype=wp.int32, device="cpu"))
    provider = provider_of(publish(source_format, POSITIONS, ROTATIONS))
    mapping = wp.fabricarray(storage, "mapping")
    scale_array = wp.array(scales, dtype=wp.vec3f, device="cpu") if scaled else None
    assert provider.get_transforms(fabric_output(storage), mapping, scales=scale_array)
    expected = homogeneous(POSITIONS, ROTATIONS)[chosen[:4]].transpose(0, 2, 1)
    if scaled:
        expected[:, :3, :3] *= scales[chosen[:4], :, None]
    np.testing.assert_allclose(matrices.numpy()[:4], expected, atol=4e-6)
    np.testing.assert_array_equal(matrices.numpy()[4:], 9.0)


def test_fabric_without_an_index_is_in_native_order():
    matrices = wp.zeros(len(ROTATIONS), dtype=wp.mat44d, device="cpu")
    provider = provider_of(publish(Format.Transform, POSITIONS, ROTATIONS))
    assert provider.get_transforms(fabric_output(fabric_storage(matrices)))
    np.testing.assert_allclose(matrices.numpy().transpose(0, 2, 1), homogeneous(POSITIONS, ROTATIONS), atol=2e-6)


@pytest.mark.parametrize("to_fabric", [False, True], ids=["arrays", "fabric"])
def test_double_precision_survives_into_double_precision(to_fabric):
    positions = POSITIONS + 1e7  # where float32 has steps of one metre
    provider = provider_of(publish(Format.Vec3d_Matrix33d, positions, ROTATIONS))
    matrices = wp.zeros(len(ROTATIONS), dtype=wp.mat44d, device="cpu")
    output = fabric_output(fabric_storage(matrices)) if to_fabric else Format.TransposedMatrix44d()
    assert provider.get_transforms(output)
    written = matrices.numpy() if to_fabric else output.matrices.numpy()
    np.testing.assert_array_equal(written.transpose(0, 2, 1), homogeneous(positions, ROTATIONS))


@pytest.mark.parametrize("target_format", [Format.Vec3_Matrix33, Format.TransposedMatrix44d], ids=lambda f: f.__name__)
def test_matrices_pass_unchanged_into_matrices_with_their_scale(target_format):
    linear = (ROTATIONS @ np.diag([2.0, 0.5, -3.0])).astype(np.float32).astype(float)
    provider = provider_of(publish(Format.Matrix44, POSITIONS, linear))
    output = target_format()
    assert provider.get_transforms(output)
    np.testing.assert_array_equal(as_homogeneous(output)[:, :3, :3], linear)


@pytest.mark.parametrize(
    "stretch",
    [np.diag([2.0, 0.5, 3.0]), np.diag([1e-6, 1e5, 1.0]), [[1, 0.3, -0.2], [0, 1, 0.4], [0, 0, 1]]],
    ids=["scaled", "far from unit", "sheared"],
)
def test_a_stretched_matrix_gives_the_rotation_of_its_axes(stretch):
    provider = provider_of(publish(Format.Matrix44, POSITIONS, ROTATIONS @ np.array(stretch)))
    output = Format.Vec3_Quat()
    assert provider.get_transforms(output)
    np.testing.assert_allclose(as_homogeneous(output)[:, :3, :3], ROTATIONS, atol=3e-6)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_flattened_matrix_gives_the_rotation_of_the_axes_that_are_left(axis):
    flat = np.ones(3)
    flat[axis] = 0
    provider = provider_of(publish(Format.Matrix44, POSITIONS, ROTATIONS * flat))
    output = Format.Vec3_Quat()
    assert provider.get_transforms(output)
    np.testing.assert_allclose(as_homogeneous(output)[:, :3, :3], ROTATIONS, atol=3e-6)


def test_a_mirrored_matrix_gives_the_right_handed_frame_of_its_first_axes():
    provider = provider_of(publish(Format.Matrix44, POSITIONS, ROTATIONS @ np.diag([1.0, 1.0, -1.0])))
    output = Format.Transform()
    assert provider.get_transforms(output)
    np.testing.assert_allclose(as_homogeneous(output)[:, :3, :3], ROTATIONS, atol=2e-6)


@pytest.mark.parametrize(
    "linear", [np.zeros((3, 3)), np.diag([1.0, 0, 0]), np.ones((3, 3))], ids=["zero", "one axis", "parallel axes"]
)
def test_a_matrix_without_two_axes_gives_the_identity(linear):
    provider = provider_of(publish(Format.Matrix44, np.zeros((1, 3)), linear[None]))
    output = Format.Vec3_Quat()
    assert provider.get_transforms(output)
    np.testing.assert_array_equal(output.orientations.numpy(), [[0, 0, 0, 1]])


@pytest.mark.parametrize("target_format", TARGETS, ids=lambda f: f.__name__)
def test_nan_stays_nan_and_with_its_own_pose(target_format):
    rotations = np.tile(np.eye(3), (3, 1, 1))
    rotations[1] = np.nan
    provider = provider_of(publish(Format.Vec3d_Matrix33d, np.zeros((3, 3)), rotations))
    output = target_format()
    assert provider.get_transforms(output)
    finite = np.array([np.isfinite(getattr(output, field).numpy().reshape(3, -1)).all(1) for field in output._cls.vars])
    assert finite.all(0).tolist() == [True, False, True]


@pytest.mark.parametrize("target_format", [Format.Vec3_Direction, Format.Vec3d_Direction], ids=lambda f: f.__name__)
def test_lights_are_positions_and_directions(target_format):
    lights = Format.Vec3d_Direction()
    lights.positions = wp.array(POSITIONS, dtype=wp.vec3d, device="cpu")
    lights.directions = wp.array(ROTATIONS[:, 2], dtype=wp.vec3d, device="cpu")
    provider = SceneDataProvider(PoseBackend(get_light_poses=lambda: lights))
    for allow_passthrough in (True, False):
        output = target_format()
        assert provider.get_light_poses(output, allow_passthrough)
        np.testing.assert_allclose(output.positions.numpy(), POSITIONS, atol=1e-6)
        np.testing.assert_allclose(output.directions.numpy(), ROTATIONS[:, 2], atol=1e-6)
