"""What a reader of the provider can rely on: borrowing, one launch for all, freshness, mappings, and clear errors."""

import gc
import weakref
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import warp as wp
from publishing import PoseBackend, fabric_output, fabric_storage, publish, transforms_at
from pxr import Usd, UsdGeom

from scene_data import SceneDataBackend, SceneDataProvider
from scene_data import SceneDataFormat as Format

IDENTITY = {
    Format.Vec3_Quat: [[0, 0, 0], [0, 0, 0, 1]],
    Format.Vec3_Matrix33: [[0, 0, 0], np.eye(3)],
    Format.Transform: [[0, 0, 0, 0, 0, 0, 1]],
    Format.Matrix44: [np.eye(4)],
    Format.TransposedMatrix44d: [np.eye(4)],
}


@pytest.fixture
def calls(monkeypatch) -> SimpleNamespace:
    """Counters of `wp.launch` and `wp.copy`."""
    counted = SimpleNamespace(launch=Mock(wraps=wp.launch), copy=Mock(wraps=wp.copy))
    monkeypatch.setattr(wp, "launch", counted.launch)
    monkeypatch.setattr(wp, "copy", counted.copy)
    return counted


@pytest.fixture
def backend() -> PoseBackend:
    """Three transforms at x = 1, 4 and 7."""
    return PoseBackend(
        transforms=transforms_at(1, 4, 7),
        transforms_timestamp=0,
        transform_count=3,
        transform_paths=["/World/envs/env_0/a", "/World/envs/env_0/b", "/World/envs/env_1/a"],
    )


@pytest.fixture
def provider(backend) -> SceneDataProvider:
    return SceneDataProvider(backend)


def arrays(data) -> list[wp.array]:
    return [getattr(data, field) for field in data._cls.vars]


def xs(data) -> list[float]:
    values = data.positions.numpy()[:, 0] if hasattr(data, "positions") else data.transforms.numpy()[:, 0]
    return values.tolist()


# Borrowing and sharing


def test_the_native_format_is_the_native_array(provider, backend, calls):
    output = Format.Transform()
    assert provider.get_transforms(output)
    assert output.transforms is backend.transforms.transforms
    assert provider.get_transforms(output, count=3)
    assert not calls.launch.called
    assert not calls.copy.called


def test_readers_share_one_launch_per_timestamp_and_keep_their_arrays(provider, backend, calls):
    first, second = Format.Vec3_Quat(), Format.Vec3_Quat()
    assert provider.get_transforms(first)
    assert provider.get_transforms(second, count=3)
    shared = arrays(first)
    assert all(a is b for a, b in zip(shared, arrays(second), strict=True))
    assert calls.launch.call_count == 1
    for step in (1, 2):
        backend.transforms.transforms.assign(transforms_at(step, 5, 6).transforms)
        backend.transforms_timestamp += 1
        for output in (first, second, first):
            assert provider.get_transforms(output)
            assert all(a is b for a, b in zip(shared, arrays(output), strict=True))
            assert xs(output) == [step, 5, 6]
        assert calls.launch.call_count == 1 + step


def test_readers_share_one_launch_per_layout(provider, calls):
    mapping = provider.create_mapping(["/World/envs/env_1/a", None])
    outputs = [Format.Vec3_Quat() for _ in range(3)]
    for _ in range(2):
        assert provider.get_transforms(outputs[0], mapping, count=2)
        assert provider.get_transforms(outputs[1], mapping, count=2)
        assert provider.get_transforms(outputs[2], mapping, count=5)
    assert outputs[0].positions is outputs[1].positions
    assert len(outputs[2].positions) == 5
    assert calls.launch.call_count == 2
    scaled = Format.TransposedMatrix44d()
    for scale in (1, 2):
        scales = wp.array(np.full((3, 3), scale), dtype=wp.vec3f, device="cpu")
        assert provider.get_transforms(scaled, scales=scales)
        np.testing.assert_array_equal(scaled.matrices.numpy()[:, 0, 0], scale)
    assert calls.launch.call_count == 4


def test_a_reader_that_rebinds_its_wrapper_disturbs_nobody(provider):
    mine, theirs = Format.Vec3_Quat(), Format.Vec3_Quat()
    assert provider.get_transforms(mine)
    assert provider.get_transforms(theirs)
    mine.positions = None
    assert provider.get_transforms(mine)
    assert mine.positions is theirs.positions


def test_a_swapped_native_array_reaches_borrowers_and_converters(provider, backend):
    native, converted = Format.Transform(), Format.Vec3_Quat()
    assert provider.get_transforms(native)
    assert provider.get_transforms(converted)
    positions = converted.positions
    backend.transforms = transforms_at(8, 9, 10)
    backend.transforms_timestamp += 1
    assert provider.get_transforms(native)
    assert provider.get_transforms(converted)
    assert native.transforms is backend.transforms.transforms
    assert converted.positions is positions
    assert xs(converted) == [8, 9, 10]
    backend.transforms = transforms_at(11, 12, 13, 14)
    backend.transforms_timestamp += 1
    assert provider.get_transforms(converted)
    assert xs(converted) == [11, 12, 13, 14]


def test_two_providers_hide_nothing_from_each_other(backend):
    providers = [SceneDataProvider(backend), SceneDataProvider(backend)]
    outputs = [Format.Vec3_Quat(), Format.Vec3_Quat()]
    for step in range(3):
        backend.transforms.transforms.assign(transforms_at(step, 0, 0).transforms)
        backend.transforms_timestamp += 1
        for provider, output in zip(providers, outputs, strict=True):
            assert provider.get_transforms(output)
            assert xs(output)[0] == step


# Freshness


def test_the_timestamp_is_read_after_the_arrays_are_found(calls):
    class Swapping(SceneDataBackend):
        def __init__(self):
            self.found = iter([transforms_at(1), transforms_at(2), transforms_at(2)])
            self.last = None

        def get_transforms(self, output_format):
            found = next(self.found)
            if self.last is None or xs(found) != xs(self.last):
                self.last = found
                self.transforms_timestamp += 1
            return self.last

    backend, output = Swapping(), Format.Vec3_Quat()
    provider = SceneDataProvider(backend)
    for x, launches in ((1, 1), (2, 2), (2, 2)):
        assert provider.get_transforms(output)
        assert xs(output) == [x]
        assert calls.launch.call_count == launches


@pytest.mark.parametrize("to_fabric", [False, True], ids=["shared", "fabric"])
def test_a_conversion_that_failed_is_tried_again(provider, backend, monkeypatch, to_fabric):
    matrices = wp.zeros(3, dtype=wp.mat44d, device="cpu")
    storage = fabric_storage(matrices)
    output = fabric_output(storage) if to_fabric else Format.TransposedMatrix44d()
    assert provider.get_transforms(output)
    backend.transforms = transforms_at(21, 22, 23)
    backend.transforms_timestamp += 1
    with monkeypatch.context() as broken:
        broken.setattr(wp, "launch", Mock(side_effect=RuntimeError("no device")))
        with pytest.raises(RuntimeError, match="no device"):
            provider.get_transforms(output)
    assert provider.get_transforms(output)
    written = matrices if to_fabric else output.matrices
    assert written.numpy()[:, 3, 0].tolist() == [21, 22, 23]


def test_a_read_inside_a_capture_is_in_the_graph_and_marks_nothing_fresh(provider, backend, calls):
    output = Format.Vec3_Quat()
    assert provider.get_transforms(output)
    with wp.ScopedCapture(device="cpu") as capture:
        assert provider.get_transforms(output)
        backend.transforms_timestamp += 1
        assert provider.get_transforms(output)
    assert calls.launch.call_count == 3
    assert provider.get_transforms(output)
    assert calls.launch.call_count == 4
    backend.transforms.transforms.assign(transforms_at(31, 32, 33).transforms)
    wp.capture_launch(capture.graph)
    assert xs(output) == [31, 32, 33]


def test_conversions_run_where_the_publication_is(provider, calls):
    output = Format.Vec3_Quat()
    assert provider.get_transforms(output)
    assert calls.launch.call_args.kwargs["device"] == provider.backend.transforms.transforms.device
    assert output.positions.device == provider.device == wp.get_device("cpu")


# Destinations that the reader owns


@pytest.mark.parametrize("target_format", IDENTITY, ids=lambda f: f.__name__)
def test_owned_arrays_are_written_by_one_copy_or_one_launch(provider, backend, calls, target_format):
    shared, owned = target_format(), target_format()
    assert provider.get_transforms(shared)
    provider.init_output(owned)
    mine = arrays(owned)
    for step in range(2):
        backend.transforms.transforms.assign(transforms_at(step, 5, 6).transforms)
        backend.transforms_timestamp += 1
        calls.launch.reset_mock()
        calls.copy.reset_mock()
        assert provider.get_transforms(owned, allow_passthrough=False)
        assert calls.copy.call_count == (target_format is Format.Transform)
        assert calls.launch.call_count == (target_format is not Format.Transform)
        assert provider.get_transforms(shared)
        for own, kept, other in zip(arrays(owned), mine, arrays(shared), strict=True):
            assert own is kept
            assert own is not other
            np.testing.assert_array_equal(own.numpy(), other.numpy())


def test_a_native_format_of_two_arrays_is_copied_by_one_launch(calls):
    backend = PoseBackend(transforms=publish(Format.Vec3d_Matrix33d, np.ones((2, 3)), np.stack([np.eye(3)] * 2)))
    output = Format.Vec3d_Matrix33d()
    calls.copy.reset_mock()  # Warp copies what it is given as NumPy arrays
    assert SceneDataProvider(backend).get_transforms(output, allow_passthrough=False)
    assert calls.launch.call_count + calls.copy.call_count == 1
    assert output.positions is not backend.transforms.positions
    np.testing.assert_array_equal(output.positions.numpy(), 1)
    np.testing.assert_array_equal(output.orientations.numpy(), backend.transforms.orientations.numpy())


def test_slots_that_nothing_maps_to_stay_as_the_owner_filled_them(provider):
    mapping = provider.create_mapping(["/World/envs/env_1/a", None, "/World/envs/env_0/a", None])
    output = Format.Vec3_Quat()
    output.positions = wp.array(np.full((4, 3), 9.0), dtype=wp.vec3f, device="cpu")
    for count in (4, None):
        assert provider.get_transforms(output, mapping, allow_passthrough=False, count=count)
        assert xs(output) == [7, 9, 1, 9]
    np.testing.assert_array_equal(output.orientations.numpy(), [[0, 0, 0, 1]] * 4)


@pytest.mark.parametrize("allow_passthrough", [True, False], ids=["shared", "allocated"])
@pytest.mark.parametrize("target_format", IDENTITY, ids=lambda f: f.__name__)
def test_slots_that_nothing_maps_to_hold_the_identity(provider, calls, target_format, allow_passthrough):
    mapping = provider.create_mapping([None, "/World/envs/env_1/a", None, None])
    output = target_format()
    assert provider.get_transforms(output, mapping, allow_passthrough, count=4)
    for array, identity in zip(arrays(output), IDENTITY[target_format], strict=True):
        for slot in (0, 2, 3):
            np.testing.assert_array_equal(array.numpy()[slot], identity)
    assert calls.launch.call_count == 1


@pytest.mark.parametrize("target_format", IDENTITY, ids=lambda f: f.__name__)
def test_init_output_fills_missing_fields_with_the_identity(provider, target_format):
    output = target_format()
    first = next(iter(target_format.vars))
    provider.init_output(output)
    for array, identity in zip(arrays(output), IDENTITY[target_format], strict=True):
        np.testing.assert_array_equal(array.numpy(), [identity] * 3)
    kept = getattr(output, first)
    provider.init_output(output)
    assert getattr(output, first) is kept


def test_fabric_is_written_once_per_timestamp_and_again_when_its_owner_binds_another_array(provider, backend, calls):
    storages = [fabric_storage(wp.zeros(3, dtype=wp.mat44d, device="cpu")) for _ in range(2)]
    output = fabric_output(storages[0])
    bound = output.matrices
    for _ in range(2):
        assert provider.get_transforms(output)
    assert output.matrices is bound
    assert calls.launch.call_count == 1
    output.matrices = wp.fabricarray(storages[1], "matrices")
    assert provider.get_transforms(output)
    assert calls.launch.call_count == 2
    assert storages[1].keep[0].numpy()[:, 3, 0].tolist() == [1, 4, 7]
    backend.transforms_timestamp += 1
    assert provider.get_transforms(output)
    assert calls.launch.call_count == 3


def test_what_is_kept_for_a_reader_goes_when_the_reader_goes(provider):
    mapping = wp.array([1, 0, 2], dtype=wp.int32, device="cpu")
    shared = Format.Vec3_Quat()
    assert provider.get_transforms(shared, mapping)
    storage = fabric_storage(wp.zeros(3, dtype=wp.mat44d, device="cpu"))
    fabric = fabric_output(storage)
    assert provider.get_transforms(fabric)
    gone = [weakref.ref(shared.positions), weakref.ref(fabric), weakref.ref(fabric.matrices), weakref.ref(mapping)]
    del mapping, fabric, shared
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4


def test_a_new_mapping_at_an_old_address_is_not_taken_for_the_old_one(provider):
    output = Format.Vec3_Quat()
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]) * 5:
        mapping = wp.array(order, dtype=wp.int32, device="cpu")
        assert provider.get_transforms(output, mapping)
        assert [xs(output)[slot] for slot in order] == [1, 4, 7]
        del mapping


# Mappings


def test_mappings_say_where_each_native_transform_goes(provider, backend):
    paths = backend.transform_paths
    assert provider.create_mapping(list(paths)) is None
    mapping = provider.create_mapping([None, paths[2], paths[0], None])
    assert mapping.numpy().tolist() == [2, -1, 1]
    assert mapping.dtype is wp.int32
    assert provider.create_mapping([None, paths[2], paths[0], None]) is mapping
    assert provider.create_mapping([paths[2], paths[0]]) is not mapping
    assert provider.create_mapping([*paths, None]).numpy().tolist() == [0, 1, 2]


def test_mappings_refuse_paths_that_are_unknown_or_repeated(provider, backend):
    with pytest.raises(KeyError, match="/World/nobody"):
        provider.create_mapping([backend.transform_paths[0], "/World/nobody"])
    with pytest.raises(ValueError, match=r"'/World/envs/env_0/a'.*0 and 2"):
        provider.create_mapping(["/World/envs/env_0/a", None, "/World/envs/env_0/a"])


def test_mappings_refuse_published_paths_that_are_repeated(provider, backend):
    backend.transform_paths = ["/World/a", "/World/b", "/World/a"]
    with pytest.raises(ValueError, match=r"published.*unique.*'/World/a'.*0 and 2"):
        provider.create_mapping(["/World/b"])
    with pytest.raises(ValueError, match="unique"):
        provider.create_mapping(backend.transform_paths)


def test_without_native_paths_every_named_path_is_unknown():
    nameless = SceneDataProvider(PoseBackend(transforms=transforms_at(1)))
    assert nameless.create_mapping([]) is None
    with pytest.raises(KeyError, match="/World/a"):
        nameless.create_mapping(["/World/a"])


# Nothing to read, and bad input


@pytest.mark.parametrize("nothing", [None, Format.Transform(), transforms_at()], ids=["none", "no arrays", "empty"])
def test_nothing_published_is_false(nothing, calls):
    provider = SceneDataProvider(PoseBackend(transforms=nothing))
    for output in (Format.Transform(), Format.Vec3_Quat(), Format.FabricMatrix44()):
        for allow_passthrough in (True, False):
            assert not provider.get_transforms(output, None, allow_passthrough)
            assert arrays(output)[0] is None
    assert not calls.launch.called


@pytest.mark.parametrize("allow_passthrough", [True, False])
def test_an_unsupported_conversion_is_false(provider, allow_passthrough):
    for output in (Format.Points(), Format.Vec3_Direction(), Format.Vec3d_Matrix33d()):
        assert not provider.get_transforms(output, allow_passthrough=allow_passthrough)
        assert arrays(output)[0] is None


@pytest.mark.parametrize("allow_passthrough", [True, False])
@pytest.mark.parametrize(
    ("target_format", "arguments", "message"),
    [
        (Format.Transform, {"count": 2}, "destination count of 2"),
        (Format.Vec3_Quat, {"count": 4}, "destination count of 4"),
        (Format.Vec3_Quat, {"scales": wp.ones(3, dtype=wp.vec3f, device="cpu")}, "Vec3_Quat has no static scales"),
        (
            Format.Vec3_Quat,
            {"mapping": wp.zeros(2, dtype=wp.int32, device="cpu")},
            r"mapping .* shape \(3,\) .* \(2,\)",
        ),
        (Format.Vec3_Quat, {"mapping": wp.zeros(3, dtype=wp.int64, device="cpu")}, "mapping .* int32 .* int64"),
        (Format.Vec3_Quat, {"mapping": [0, 1, 2]}, "mapping must be .* not list"),
        (Format.TransposedMatrix44d, {"scales": wp.ones(2, dtype=wp.vec3f, device="cpu")}, r"scales .*\(3,\).*\(2,\)"),
        (Format.TransposedMatrix44d, {"scales": wp.ones(3, dtype=wp.float32, device="cpu")}, "scales .*vec3f.*float32"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(provider, calls, target_format, arguments, message, allow_passthrough):
    output = target_format()
    with pytest.raises(ValueError, match=message):
        provider.get_transforms(output, allow_passthrough=allow_passthrough, **arguments)
    assert arrays(output)[0] is None
    assert not calls.launch.called


def test_owned_arrays_that_are_too_short_are_refused(provider):
    mapping = provider.create_mapping(["/World/envs/env_1/a", None])
    for output, arguments in (
        (Format.Transform(), {}),
        (Format.Vec3_Quat(), {}),
        (Format.Vec3_Quat(), {"mapping": mapping, "count": 2}),
    ):
        field = next(iter(output._cls.vars))
        setattr(output, field, wp.empty(1, dtype=output._cls.vars[field].type.dtype, device="cpu"))
        with pytest.raises(ValueError, match="destination count of 1"):
            provider.get_transforms(output, allow_passthrough=False, **arguments)


def test_fabric_that_does_not_fit_is_refused(provider):
    matrices, index = wp.zeros(2, dtype=wp.mat44d, device="cpu"), wp.zeros(3, dtype=wp.int32, device="cpu")
    output = fabric_output(fabric_storage(matrices))
    mapping = wp.fabricarray(fabric_storage(wp.zeros(3, dtype=wp.mat44d, device="cpu"), index), "mapping")
    with pytest.raises(ValueError, match="destination count of 2"):
        provider.get_transforms(output)
    with pytest.raises(ValueError, match=r"mapping must be a fabricarray .*\(2,\).*\(3,\)"):
        provider.get_transforms(output, mapping)
    with pytest.raises(ValueError, match=r"mapping must be a fabricarray .* not array"):
        provider.get_transforms(output, index)
    with pytest.raises(ValueError, match="no array"):
        provider.get_transforms(Format.FabricMatrix44(), mapping)


def test_a_publication_with_a_missing_or_short_array_is_refused():
    publication = publish(Format.Vec3_Quat, np.zeros((2, 3)), np.stack([np.eye(3)] * 2))
    publication.orientations = publication.orientations[:1]
    with pytest.raises(ValueError, match="Vec3_Quat publishes arrays of different lengths"):
        SceneDataProvider(PoseBackend(transforms=publication)).get_transforms(Format.Transform())


def test_a_mapping_that_points_outside_writes_nothing_there(provider):
    mapping = wp.array([1, 700, -5], dtype=wp.int32, device="cpu")
    output = Format.Vec3_Quat()
    assert provider.get_transforms(output, mapping)
    assert xs(output) == [0, 1, 0]


# Environments, cameras, sensors


def test_num_envs_is_the_backends_or_inferred_and_a_zero_is_never_remembered():
    backend = PoseBackend(transform_paths=[], num_envs=0)
    provider = SceneDataProvider(backend)
    assert provider.num_envs == 0
    backend.transform_paths = ["/World/ground", "/World/envs/env_0/a", "/World/envs/env_2", "/World/envs/env_30x/a"]
    assert provider.num_envs == 3
    backend.num_envs = 7
    assert provider.num_envs == 7


def test_num_envs_is_found_on_a_stage_that_is_attached_later():
    provider = SceneDataProvider(PoseBackend())
    assert provider.num_envs == 0
    provider.usd_stage = Usd.Stage.CreateInMemory()
    for env in (0, 3):
        UsdGeom.Xform.Define(provider.usd_stage, f"/World/envs/env_{env}")
    assert provider.num_envs == 4
    assert provider.get_usd_stage() is provider.usd_stage


def test_camera_transforms_need_no_stage():
    half_turn = np.diag([-1.0, 1.0, -1.0])
    poses = publish(Format.Vec3d_Matrix33d, np.arange(12.0).reshape(4, 3), np.stack([np.eye(3), half_turn] * 2))
    paths = [
        "/World/envs/env_0/hand/cam",
        "/World/envs/env_0/top",
        "/World/envs/env_1/hand/cam",
        "/World/envs/env_1/top",
    ]
    backend = PoseBackend(get_camera_poses=lambda: poses, camera_paths=paths, num_envs=2)
    cameras = SceneDataProvider(backend).get_camera_transforms()
    assert cameras["order"] == ["/World/envs/env_%d/hand/cam", "/World/envs/env_%d/top"]
    assert cameras["positions"] == [[[0, 1, 2], [6, 7, 8]], [[3, 4, 5], [9, 10, 11]]]
    assert cameras["orientations"] == [[[0, 0, 0, 1]] * 2, [[0, 1, 0, 0]] * 2]
    assert cameras["num_envs"] == 2
    backend.camera_paths = [paths[0], paths[1], paths[2], "/World/watch"]
    assert SceneDataProvider(backend).get_camera_transforms()["positions"][1:] == [
        [[3, 4, 5], None],
        [[9, 10, 11], None],
    ]
    assert SceneDataProvider(PoseBackend()).get_camera_transforms() is None


def test_a_stage_says_which_cameras_there_are_and_the_engine_where_its_own_are():
    stage = Usd.Stage.CreateInMemory()
    for path in ("env_0/top", "env_0/side", "env_1/side", "env_1/top"):
        UsdGeom.Camera.Define(stage, f"/World/envs/{path}").AddTranslateOp().Set((9, 9, 9))
    UsdGeom.Imageable(stage.GetPrimAtPath("/World/envs/env_0/top")).MakeInvisible()
    poses = publish(Format.Vec3d_Matrix33d, np.arange(6.0).reshape(2, 3), np.stack([np.diag([-1.0, 1.0, -1.0])] * 2))
    paths = ["/World/envs/env_0/top", "/World/envs/env_1/top"]
    provider = SceneDataProvider(PoseBackend(get_camera_poses=lambda: poses, camera_paths=paths, num_envs=2))
    provider.usd_stage = stage
    cameras = provider.get_camera_transforms()
    assert cameras["order"] == ["/World/envs/env_%d/side", "/World/envs/env_%d/top"]
    assert cameras["positions"] == [[[9, 9, 9], [9, 9, 9]], [None, [3, 4, 5]]]
    assert cameras["orientations"] == [[[0, 0, 0, 1]] * 2, [None, [0, 1, 0, 0]]]
    assert cameras["num_envs"] == 2


def test_camera_poses_have_their_own_timestamp(calls):
    poses = publish(Format.Vec3d_Matrix33d, np.zeros((1, 3)), np.eye(3)[None])
    backend = PoseBackend(get_camera_poses=lambda: poses, transforms=transforms_at(1))
    provider, output = SceneDataProvider(backend), Format.Vec3_Matrix33()
    assert provider.get_camera_poses(output)
    backend.transforms_timestamp += 1
    assert provider.get_camera_poses(output)
    assert calls.launch.call_count == 1
    backend.cameras_timestamp += 1
    assert provider.get_camera_poses(output)
    assert calls.launch.call_count == 2


def test_sensors_come_from_the_attached_scene(provider):
    class Camera: ...

    class TiledCamera(Camera): ...

    class ContactSensor: ...

    assert provider.get_interactive_scene() is None
    assert provider.get_camera_sensors() == provider.get_contact_sensors() == {}
    scene = SimpleNamespace(sensors={"eye": TiledCamera(), "toe": ContactSensor(), "imu": object()})
    provider.set_interactive_scene(scene)
    assert provider.get_interactive_scene() is scene
    assert provider.get_camera_sensors() == {"eye": scene.sensors["eye"]}
    assert provider.get_contact_sensors() == {"toe": scene.sensors["toe"]}


def test_clock_and_consistent_reads_are_the_backends():
    backend = PoseBackend(simulation_time_ns=5, env_time_ns=np.array([3, 5]), update_kinematics=Mock())
    provider = SceneDataProvider(backend)
    assert provider.simulation_time_ns == 5
    assert provider.env_time_ns.tolist() == [3, 5]
    with provider.consistent_read():
        backend.update_kinematics.assert_called_once_with()
