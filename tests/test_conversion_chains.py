"""Chains of conversions through any formats, against rotations and matrices that NumPy and SciPy make."""

from typing import Any

import numpy as np
import warp as wp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from scene_data import SceneDataBackend, SceneDataFormat, SceneDataProvider

BETWEEN = ("Vec3_Quat", "Vec3_Matrix33", "Transform", "Matrix44")
SOURCES = (*BETWEEN, "Vec3d_Matrix33d")
TARGETS = (*BETWEEN, "TransposedMatrix44d")
COUNT = 3

coordinates = st.floats(-100.0, 100.0, width=32)
components = st.floats(-1.0, 1.0, width=32)
quaternions = st.tuples(components, components, components, components).filter(lambda q: np.linalg.norm(q) > 0.1)


def publish(name: str, positions: np.ndarray, rotations: Rotation) -> Any:
    """Poses in a format, filled by NumPy."""
    matrices = rotations.as_matrix()
    homogeneous = np.tile(np.eye(4), (COUNT, 1, 1))
    homogeneous[:, :3, :3], homogeneous[:, :3, 3] = matrices, positions
    fields = {
        "Vec3_Quat": {"positions": (positions, wp.vec3f), "orientations": (rotations.as_quat(), wp.quatf)},
        "Vec3_Matrix33": {"positions": (positions, wp.vec3f), "orientations": (matrices, wp.mat33f)},
        "Vec3d_Matrix33d": {"positions": (positions, wp.vec3d), "orientations": (matrices, wp.mat33d)},
        "Transform": {"transforms": (np.concatenate((positions, rotations.as_quat()), axis=1), wp.transformf)},
        "Matrix44": {"matrices": (homogeneous, wp.mat44f)},
    }[name]
    struct = getattr(SceneDataFormat, name)()
    for field, (values, dtype) in fields.items():
        scalar = wp.dtype_to_numpy(dtype._wp_scalar_type_)
        setattr(struct, field, wp.array(values.astype(scalar), dtype=dtype, device="cpu"))
    return struct


def decode(name: str, struct: Any) -> tuple[np.ndarray, np.ndarray]:
    """Positions and rotation matrices of a format, read by NumPy."""
    if name in ("Vec3_Quat", "Vec3_Matrix33"):
        orientations = struct.orientations.numpy()
        rotations = Rotation.from_quat(orientations).as_matrix() if name == "Vec3_Quat" else orientations
        return struct.positions.numpy(), rotations
    if name == "Transform":
        transforms = struct.transforms.numpy()
        return transforms[:, :3], Rotation.from_quat(transforms[:, 3:]).as_matrix()
    matrices = struct.matrices.numpy()
    if name == "TransposedMatrix44d":
        matrices = matrices.transpose(0, 2, 1)
    return matrices[:, :3, 3], matrices[:, :3, :3]


def convert(published: Any, target: str) -> Any:
    backend = SceneDataBackend()
    backend.transforms, backend.transforms_timestamp = published, 0
    output = getattr(SceneDataFormat, target)()
    assert SceneDataProvider(backend).get_transforms(output)
    return output


@settings(max_examples=120)
@given(
    source=st.sampled_from(SOURCES),
    between=st.lists(st.sampled_from(BETWEEN), max_size=3),
    target=st.sampled_from(TARGETS),
    positions=st.lists(st.tuples(coordinates, coordinates, coordinates), min_size=COUNT, max_size=COUNT),
    orientations=st.lists(quaternions, min_size=COUNT, max_size=COUNT),
)
def test_a_chain_of_conversions_keeps_every_pose(source, between, target, positions, orientations):
    expected_positions, rotations = np.array(positions), Rotation.from_quat(orientations)
    struct = publish(source, expected_positions, rotations)
    for step in (*between, target):
        struct = convert(struct, step)
    found_positions, found_rotations = decode(target, struct)
    np.testing.assert_allclose(found_positions, expected_positions, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found_rotations, rotations.as_matrix(), rtol=0, atol=3e-6 * (2 + len(between)))
