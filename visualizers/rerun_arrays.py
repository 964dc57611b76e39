"""Arrays as Rerun stores them, without its conversions: what moves is sent many times a second."""

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import rerun as rr
import rerun_bindings
from numpy.typing import NDArray

__all__ = ["Components", "as_rows", "instance_poses", "log_components", "transform"]

Components = dict[Any, pa.Array]
"""Values by the descriptor of their component."""

_TRANSLATIONS = rr.InstancePoses3D.descriptor_translations()
_QUATERNIONS = rr.InstancePoses3D.descriptor_quaternions()
_SCALES = rr.InstancePoses3D.descriptor_scales()
_TRANSLATION = rr.Transform3D.descriptor_translation()
_QUATERNION = rr.Transform3D.descriptor_quaternion()
_SCALE = rr.Transform3D.descriptor_scale()

_NO_SIZE = 1e-9
"""Too small to be seen. Rerun takes 0 for no transform at all."""


def log_components(recording: Any, path: str, components: Components, static: bool = False) -> None:
    """Send values that are in Rerun's layout already, to a recording as `to_native` gives it.

    What `recording.log` does at last. Before that, it makes objects of every component, looks for their types and for
    duplicates, and counts the calls that it is in, which takes longer than the sending.
    """
    rerun_bindings.log_arrow_msg(path, components=components, static_=static, recording=recording)


def as_rows(values: NDArray[np.float32]) -> pa.FixedSizeListArray:
    """Float32 rows `(N, k)`; the memory is shared where it is contiguous, and must not be written to any more."""
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, type=_row_type(values.shape[1]))


@cache
def _row_type(width: int) -> pa.DataType:
    return pa.list_(pa.field("item", pa.float32(), nullable=False), width)


def instance_poses(positions: pa.Array, quaternions: pa.Array, is_there: NDArray[np.bool_] | None) -> Components:
    """Poses of instances, (x, y, z, w); those that are not there have no size. None says that all are there."""
    poses = {_TRANSLATIONS: positions, _QUATERNIONS: quaternions}
    if is_there is not None and not is_there.all():
        poses[_SCALES] = as_rows(np.repeat(is_there.astype(np.float32)[:, None], 3, axis=1))
    return poses


def transform(position: pa.Array, quaternion: pa.Array, is_there: bool) -> Components:
    """The frame of an entity, (x, y, z, w), in arrays of length 1; one that is not there has no size."""
    pose = {_TRANSLATION: position, _QUATERNION: quaternion}
    if not is_there:
        pose[_SCALE] = as_rows(np.full((1, 3), _NO_SIZE, np.float32))
    return pose
