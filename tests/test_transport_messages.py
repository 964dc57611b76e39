"""What camera messages say, against ROS's conventions, and their bytes, against decoders that others wrote."""

import struct

import numpy as np
import pytest

from scene_data.env_times import EnvTimes
from scene_data.renderers import CameraDescriptor, FrameBoundary, PlaneKind
from scene_data.renderers.render_core.camera_poses import CameraView
from scene_data.renderers.render_core.publication import CameraFrames
from scene_data.renderers.transports.camera_messages import (
    IMAGE_STREAMS,
    ClockContent,
    camera_info,
    camera_transform,
    image,
    optical_frame,
    ros_name,
)
from scene_data.renderers.transports.cdr import encode_cdr
from scene_data.renderers.transports.ros2_definitions import ROS2_DEFINITIONS, ROS2_TYPES
from scene_data.renderers.transports.wire import MessageType

WIDTH, HEIGHT = 7, 5
STAMP_NS = 3_000_000_007


PINHOLES = np.array([[20.0, 22.0, 0.5, 0.5], [10.0, 11.0, 3.5, 2.5]])


def frames_of(
    planes: dict[PlaneKind, np.ndarray], pinholes=PINHOLES, rotation=None, position=(1, 2, 3)
) -> CameraFrames:
    camera = CameraDescriptor(1, "eye", WIDTH, HEIGHT, tuple(planes), num_envs=2)
    longest = max(camera.layout(plane).byte_length for plane in planes)
    boundary = FrameBoundary(len(planes), longest * len(planes))
    assert boundary.reconfigure(1, longest).ok
    stamp = boundary.begin_capture(1, STAMP_NS, 1)
    leases = {}
    for plane, values in planes.items():
        with boundary.try_acquire_writer(1, plane, camera.layout(plane), stamp) as writer:
            writer.buffer.numpy()[:] = values
            assert writer.commit().ok
            leases[plane] = writer.lease()
    rotations = np.stack([np.eye(3), np.eye(3) if rotation is None else rotation]).astype(np.float32)
    positions = np.stack([np.zeros(3), position]).astype(np.float32)
    view = CameraView(positions, rotations, pinholes)
    return CameraFrames(camera, leases, (), stamp.capture_id, STAMP_NS, EnvTimes(lambda: None), view)


def stream(encoding: str):
    return next(stream for stream in IMAGE_STREAMS if stream.encoding == encoding)


def decode(message_type: MessageType, data: bytes):
    decoder = pytest.importorskip("mcap_ros2._dynamic", reason="the extra 'mcap' is not installed")
    name = ROS2_TYPES[message_type]
    return decoder.generate_dynamic(name, ROS2_DEFINITIONS[message_type])[name](data)


def test_an_image_shares_the_frame_and_is_of_one_environment():
    rgb = np.random.default_rng(0).integers(0, 255, (2, HEIGHT, WIDTH, 3), dtype=np.uint8)
    frames = frames_of({PlaneKind.RGB: rgb})
    content = image(frames, stream("rgb8"), 1, "eye_optical_frame")
    np.testing.assert_array_equal(content.pixels, rgb[1])
    assert (content.height, content.width, content.step) == (HEIGHT, WIDTH, 3 * WIDTH)
    assert np.shares_memory(content.pixels, frames.leases[PlaneKind.RGB].numpy())
    message = decode(MessageType.IMAGE, encode_cdr(content))
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (3, 7)
    assert message.header.frame_id == "eye_optical_frame"
    assert (message.height, message.width, message.step, message.is_bigendian) == (HEIGHT, WIDTH, 21, 0)
    assert message.encoding == "rgb8"
    assert bytes(message.data) == rgb[1].tobytes()


def test_depth_in_metres_and_in_millimetres():
    depth = np.full((2, HEIGHT, WIDTH, 1), 2.0, np.float32)
    depth[0, 0, :, 0] = [1.2344, 1.2346, np.inf, np.nan, 65.535, 65.536, 0.0004]
    frames = frames_of({PlaneKind.DEPTH: depth})
    metres = image(frames, stream("32FC1"), 0, "f")
    np.testing.assert_array_equal(metres.pixels, depth[0])
    assert metres.step == 4 * WIDTH
    millimetres = image(frames, stream("16UC1"), 0, "f")
    assert millimetres.pixels.dtype == np.uint16
    assert millimetres.step == 2 * WIDTH
    assert millimetres.pixels[0, :, 0].tolist() == [1234, 1235, 0, 0, 65535, 0, 0]
    assert (millimetres.pixels[1:] == 2000).all()
    values = struct.unpack(f"<{WIDTH * HEIGHT}H", decode(MessageType.IMAGE, encode_cdr(millimetres)).data)
    assert list(values) == millimetres.pixels.ravel().tolist()


def test_camera_info_projects_a_point_to_where_the_image_has_it():
    info = camera_info(frames_of({PlaneKind.RGB: np.zeros((2, HEIGHT, WIDTH, 3))}), 1, "f")
    # The centre of the image is the middle pixel's centre, which ROS counts as (3, 2).
    k = np.array(info.k).reshape(3, 3)
    np.testing.assert_allclose(k @ [0, 0, 1], [3, 2, 1])
    # One pixel to the right of it, and one down.
    np.testing.assert_allclose(k @ [0.1, 1 / 11, 1], [4, 3, 1])
    np.testing.assert_array_equal(np.array(info.p).reshape(3, 4)[:, :3], k)
    message = decode(MessageType.CAMERA_INFO, encode_cdr(info))
    assert (message.height, message.width, message.distortion_model) == (HEIGHT, WIDTH, "plumb_bob")
    assert (list(message.d), list(message.k), list(message.r), list(message.p)) == (
        [0.0] * 5,
        list(info.k),
        [1, 0, 0, 0, 1, 0, 0, 0, 1],
        list(info.p),
    )
    assert (message.binning_x, message.roi.height, message.roi.do_rectify) == (0, 0, False)


def test_camera_info_is_of_one_environment():
    frames = frames_of({PlaneKind.RGB: np.zeros((2, HEIGHT, WIDTH, 3))})
    assert camera_info(frames, 0, "f").k == (20.0, 0.0, 0.0, 0.0, 22.0, 0.0, 0.0, 0.0, 1.0)
    assert camera_info(frames, 1, "f").k == (10.0, 0.0, 3.0, 0.0, 11.0, 2.0, 0.0, 0.0, 1.0)


def test_a_parallel_projection_is_no_pinhole():
    info = camera_info(frames_of({PlaneKind.RGB: np.zeros((2, HEIGHT, WIDTH, 3))}, pinholes=None), 0, "f")
    assert set(info.k) == {0.0} == set(info.p)


def rotation_of(quaternion) -> np.ndarray:
    """By the definition: q v q*."""
    x, y, z, w = quaternion
    u = np.array([x, y, z])
    return np.column_stack([e + 2 * w * np.cross(u, e) + 2 * np.cross(u, np.cross(u, e)) for e in np.eye(3)])


@pytest.mark.parametrize("seed", range(12))
def test_the_optical_frame_looks_along_z_with_y_down(seed):
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    if seed < 4:
        rotation = np.diag([(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)][seed]).astype(float)
    rotation *= np.sign(np.linalg.det(rotation))
    frames = frames_of({PlaneKind.RGB: np.zeros((2, HEIGHT, WIDTH, 3))}, rotation=rotation)
    content = camera_transform(frames, 1, "world", "eye_optical_frame")
    optical = rotation_of(content.rotation)
    np.testing.assert_allclose(optical[:, 2], -rotation[:, 2], atol=1e-6)
    np.testing.assert_allclose(optical[:, 1], -rotation[:, 1], atol=1e-6)
    np.testing.assert_allclose(optical[:, 0], rotation[:, 0], atol=1e-6)
    message = decode(MessageType.TRANSFORMS, encode_cdr(content)).transforms[0]
    assert (message.header.frame_id, message.child_frame_id) == ("world", "eye_optical_frame")
    vector, quaternion = message.transform.translation, message.transform.rotation
    assert (vector.x, vector.y, vector.z) == (1.0, 2.0, 3.0)
    assert (quaternion.x, quaternion.y, quaternion.z, quaternion.w) == content.rotation


def test_the_clock():
    message = decode(MessageType.CLOCK, encode_cdr(ClockContent(STAMP_NS)))
    assert (message.clock.sec, message.clock.nanosec) == (3, 7)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("front", "front"),
        ("front left-2", "front_left_2"),
        ("/arm/wrist__cam/", "arm_wrist_cam"),
        ("2nd", "camera_2nd"),
        ("眼", "camera"),
    ],
)
def test_names_that_ros_takes(name, expected):
    assert ros_name(name) == expected
    assert optical_frame(ros_name(name), "/robot/") == f"robot/{expected}_optical_frame"
