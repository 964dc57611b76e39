"""Arrays as Rerun stores them, without its conversions: what moves is sent many times a second."""

from typing import Any

import numpy as np
import pyarrow as pa
import rerun as rr
from numpy.typing import NDArray

__all__ = ["as_rows", "component", "instance_poses", "transform"]

_TRANSLATIONS = rr.InstancePoses3D.descriptor_translations()
_QUATERNIONS = rr.InstancePoses3D.descriptor_quaternions()
_SCALES = rr.InstancePoses3D.descriptor_scales()
_TRANSLATION = rr.Transform3D.descriptor_translation()
_QUATERNION = rr.Transform3D.descriptor_quaternion()
_SCALE = rr.Transform3D.descriptor_scale()

_NO_SIZE = 1e-9
"""Too small to be seen. Rerun takes 0 for no transform at all."""


class _Batch:
    """Values of a component that are in Rerun's layout already."""

    __slots__ = ("_array",)

    def __init__(self, array: pa.Array):
        self._array = array

    def as_arrow_array(self) -> pa.Array:
        return self._array


def as_rows(values: NDArray[np.float32]) -> pa.FixedSizeListArray:
    """Float32 rows `(N, k)`; the memory is shared where it is contiguous, and must not be written to any more."""
    kind = pa.list_(pa.field("item", pa.float32(), nullable=False), values.shape[1])
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).reshape(-1)), type=kind)


def component(descriptor: Any, rows: pa.Array) -> rr.DescribedComponentBatch:
    """Values of one component."""
    return rr.DescribedComponentBatch(_Batch(rows), descriptor)


def instance_poses(
    positions: pa.Array, quaternions: pa.Array, is_there: NDArray[np.bool_]
) -> list[rr.DescribedComponentBatch]:
    """Poses of instances, (x, y, z, w); those that are not there have no size."""
    poses = [component(_TRANSLATIONS, positions), component(_QUATERNIONS, quaternions)]
    if not is_there.all():
        scales = np.repeat(is_there.astype(np.float32)[:, None], 3, axis=1)
        poses.append(component(_SCALES, as_rows(scales)))
    return poses


def transform(position: pa.Array, quaternion: pa.Array, is_there: bool) -> list[rr.DescribedComponentBatch]:
    """The frame of an entity, (x, y, z, w), in arrays of length 1; one that is not there has no size."""
    pose = [component(_TRANSLATION, position), component(_QUATERNION, quaternion)]
    if not is_there:
        pose.append(component(_SCALE, as_rows(np.full((1, 3), _NO_SIZE, np.float32))))
    return pose
