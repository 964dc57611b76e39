"""The formats, the backend's defaults, and what importing the package costs."""

import subprocess
import sys

import numpy as np
import pytest
import warp as wp
from publishing import PoseBackend, transforms_at

import scene_data
from scene_data import SceneDataBackend, TimestampedBuffer
from scene_data import SceneDataFormat as Format
from scene_data.buffers import reset_timestamps

FIELDS = {
    "Vec3_Quat": {"positions": wp.vec3f, "orientations": wp.quatf},
    "Vec3_Matrix33": {"positions": wp.vec3f, "orientations": wp.mat33f},
    "Vec3d_Matrix33d": {"positions": wp.vec3d, "orientations": wp.mat33d},
    "Transform": {"transforms": wp.transformf},
    "Matrix44": {"matrices": wp.mat44f},
    "TransposedMatrix44d": {"matrices": wp.mat44d},
    "FabricMatrix44": {"matrices": wp.mat44d},
    "Vec3_Direction": {"positions": wp.vec3f, "directions": wp.vec3f},
    "Vec3d_Direction": {"positions": wp.vec3d, "directions": wp.vec3d},
    "Points": {"points": wp.vec3f},
    "WeightedPoints": {"points": wp.vec3f, "indices": wp.int32, "weights": wp.float32},
    "FabricPoints": {"points": wp.vec3f},
}


@pytest.mark.parametrize("name", FIELDS)
def test_formats_are_structs_of_arrays_that_start_without_any(name):
    data_format = getattr(Format, name)
    data = data_format()
    assert data._cls is data_format
    assert {field: var.type.dtype for field, var in data_format.vars.items()} == FIELDS[name]
    assert all(getattr(data, field) is None for field in data_format.vars)


def test_defaults_of_a_backend_are_replaced_by_attributes():
    backend = PoseBackend(transforms=transforms_at(1, 2), transforms_timestamp=4, num_envs=2)
    assert backend.get_transforms(Format.Vec3_Quat) is backend.transforms
    assert backend.native_transform_formats == (Format.Transform,)
    assert backend.device == wp.get_device("cpu")
    backend.mark_transforms_written()
    backend.mark_geometry_written()
    assert (backend.transforms_timestamp, backend.cameras_timestamp, backend.lights_timestamp) == (5, 1, 1)
    assert backend.geometry_timestamp == 1


def test_a_backend_that_publishes_nothing_has_every_member():
    backend = SceneDataBackend()
    assert backend.get_transforms(Format.Transform) is None
    assert backend.native_transform_formats == ()
    assert (backend.transform_count, backend.transform_paths, backend.camera_paths) == (0, [], [])
    assert backend.get_geometry_batches() == []
    assert backend.get_camera_poses() is backend.get_light_poses() is backend.env_time_ns is None
    assert (backend.num_envs, backend.simulation_time_ns, backend.kinematics_dirty) == (0, 0, False)
    with pytest.raises(ValueError, match="Nothing is published"):
        _ = backend.device
    with pytest.raises(NotImplementedError, match="SceneDataBackend describes no scene"):
        backend.describe_scene()


def test_a_property_replaces_a_default_too():
    class Own(SceneDataBackend):
        transform_count = 3

        @property
        def num_envs(self) -> int:
            return 9

    assert (Own().transform_count, Own().num_envs) == (3, 9)


def test_a_consistent_read_reconciles_once_and_first():
    class Counting(SceneDataBackend):
        reconciled = 0

        def update_kinematics(self):
            self.reconciled += 1

    backend = Counting()
    with backend.consistent_read():
        assert backend.reconciled == 1
    assert backend.reconciled == 1


def test_buffers_start_stale_and_can_be_made_stale_again():
    buffer = TimestampedBuffer(data=np.ones(2), timestamp=5)
    empty = TimestampedBuffer()
    assert (empty.data, empty.timestamp) == (None, -1.0)
    reset_timestamps([buffer, None, empty])
    assert buffer.timestamp == empty.timestamp == -1.0
    np.testing.assert_array_equal(buffer.data, 1)


def test_the_package_lists_its_names_and_refuses_others():
    assert set(scene_data.__all__) <= set(dir(scene_data))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = scene_data.Nothing


def test_importing_the_package_imports_warp_and_numpy_only():
    code = (
        "import sys, warp, numpy; before = set(sys.modules); import scene_data; scene_data.SceneDataBackend;"
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['scene_data']"
