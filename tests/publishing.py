"""Publications of known poses in every format, and back to NumPy."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import warp as wp
from scipy.spatial.transform import Rotation

from scene_data import SceneDataBackend
from scene_data import SceneDataFormat as Format


class PoseBackend(SimpleNamespace, SceneDataBackend):
    """A backend with what a test gives it."""


def publish(data_format: Any, positions: np.ndarray, rotations: np.ndarray) -> Any:
    """Publish positions (n, 3) and matrices (n, 3, 3) in a format."""
    data = data_format()
    quaternions = (
        Rotation.from_matrix(rotations).as_quat() if data_format in (Format.Vec3_Quat, Format.Transform) else None
    )
    if data_format is Format.Transform:
        data.transforms = wp.array(np.hstack([positions, quaternions]), dtype=wp.transformf, device="cpu")
    elif data_format is Format.Matrix44:
        data.matrices = wp.array(homogeneous(positions, rotations), dtype=wp.mat44f, device="cpu")
    else:
        for field, values in (
            ("positions", positions),
            ("orientations", rotations if quaternions is None else quaternions),
        ):
            dtype = data_format.vars[field].type.dtype
            setattr(data, field, wp.array(values, dtype=dtype, device="cpu"))
    return data


def transforms_at(*xs: float) -> Any:
    """Publish unrotated transforms at (x, 2, 3)."""
    data = Format.Transform()
    data.transforms = wp.array([[x, 2, 3, 0, 0, 0, 1] for x in xs], dtype=wp.transformf, device="cpu")
    return data


def homogeneous(positions: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    """Matrices (n, 4, 4) for column vectors."""
    matrices = np.tile(np.eye(4), (len(positions), 1, 1))
    matrices[:, :3, :3] = rotations
    matrices[:, :3, 3] = positions
    return matrices


def as_homogeneous(data: Any) -> np.ndarray:
    """Whatever the format is, the matrices (n, 4, 4) for column vectors that it stands for."""
    if data._cls is Format.Matrix44:
        return data.matrices.numpy().astype(float)
    if data._cls is Format.TransposedMatrix44d:
        return data.matrices.numpy().transpose(0, 2, 1)
    if data._cls is Format.Transform:
        packed = data.transforms.numpy().astype(float)
        return homogeneous(packed[:, :3], Rotation.from_quat(packed[:, 3:]).as_matrix())
    orientations = data.orientations.numpy().astype(float)
    if data._cls is Format.Vec3_Quat:
        orientations = Rotation.from_quat(orientations).as_matrix()
    return homogeneous(data.positions.numpy(), orientations)


def fabric_storage(matrices: wp.array, mapping: wp.array | None = None) -> Any:
    """Storage that offers Fabric's interface over Warp arrays. It owns them: Fabric arrays only point into it."""
    attributes = {"matrices": _attribute(matrices, "f8", 16, "matrix")}
    if mapping is not None:
        attributes["mapping"] = _attribute(mapping, "i4", 1, "")
    interface = {"version": 1, "device": str(matrices.device), "attribs": attributes}
    return SimpleNamespace(__fabric_arrays_interface__=interface, keep=(matrices, mapping))


def _attribute(array: wp.array, code: str, components: int, role: str) -> dict[str, Any]:
    return {
        "type": (True, code, components, 0, role),
        "access": 2,
        "pointers": [array.ptr],
        "counts": [len(array)],
    }


def fabric_output(storage: Any) -> Any:
    """Destination that is bound to the matrices of a storage."""
    output = Format.FabricMatrix44()
    output.matrices = wp.fabricarray(storage, "matrices")
    return output


def fabric_rows(rows: list[wp.array]) -> Any:
    """Storage like `fabric_storage`, whose attribute `points` has an array for each prim."""
    device = rows[0].device
    pointers = wp.array([row.ptr for row in rows], dtype=wp.uint64, device=device)
    lengths = wp.array([len(row) for row in rows], dtype=wp.uint64, device=device)
    attribute = {
        "type": (True, "f4", 3, 1, "vector"),
        "access": 2,
        "pointers": [pointers.ptr],
        "counts": [len(rows)],
        "array_lengths": [lengths.ptr],
    }
    interface = {"version": 1, "device": str(device), "attribs": {"points": attribute}}
    return SimpleNamespace(__fabric_arrays_interface__=interface, keep=(rows, pointers, lengths))


def fabric_points(storage: Any) -> Any:
    """Destination that is bound to the rows of a storage."""
    output = Format.FabricPoints()
    output.points = wp.fabricarrayarray(data=storage, attrib="points", dtype=wp.vec3f)
    return output
