import math

import mujoco
import numpy as np
import pytest

from scene_data.renderers.render_core.camera import (
    BodyMount,
    CameraDescriptor,
    Orthographic,
    Pinhole,
    VisualOptions,
    WorldPose,
)
from scene_data.renderers.render_core.layout import PlaneKind, PlaneLayout


def descriptor(**changes) -> CameraDescriptor:
    parts = {"id": 1, "name": "cam", "width": 64, "height": 48, "planes": (PlaneKind.RGB, PlaneKind.DEPTH)}
    return CameraDescriptor(**(parts | changes))


def test_five_values_make_a_camera():
    camera = CameraDescriptor(1, "cam", 64, 48, (PlaneKind.RGB,))
    assert (camera.num_envs, camera.mount, camera.intrinsics, camera.options) == (1, None, None, VisualOptions())
    assert camera == CameraDescriptor(1, "cam", 64, 48, ("rgb",))
    assert hash(camera) == hash(CameraDescriptor(1, "cam", 64, 48, ["rgb"]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": 0}, "ids start at 1"),
        ({"id": -1}, "ids start at 1"),
        ({"width": 0}, "width=0, which must be at least 1"),
        ({"height": -2}, "height=-2, which must be at least 1"),
        ({"num_envs": 0}, "num_envs=0, which must be at least 1"),
        ({"planes": ()}, "has no planes"),
        ({"planes": ("rgb", "depth", "rgb")}, r"names a plane twice: \['rgb', 'depth', 'rgb'\]"),
        ({"planes": ("colour",)}, "'colour' is not a valid PlaneKind"),
    ],
)
def test_wrong_values_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        descriptor(**changes)


def test_a_layout_has_the_cameras_size_and_environments():
    camera = descriptor(num_envs=5)
    assert camera.layout(PlaneKind.RGB) == PlaneLayout.rgb8(64, 48, 5)
    assert camera.layout(PlaneKind.DEPTH) == PlaneLayout.depth32f(64, 48, 5)
    with pytest.raises(ValueError, match="camera 'cam' has no plane 'segmentation'"):
        camera.layout(PlaneKind.SEGMENTATION)


def test_poses_are_values_whatever_they_were_given_as():
    pose = WorldPose(np.array([1, 2, 3]), np.array([0, 0, 2, 0]))
    assert pose == WorldPose((1.0, 2.0, 3.0), [0.0, 0.0, 1.0, 0.0])
    assert hash(pose) == hash(WorldPose((1, 2, 3), (0, 0, 1, 0)))
    assert pose.num_envs is None
    many = WorldPose(np.arange(6).reshape(2, 3), (0, 0, 0, 1))
    assert many.num_envs == 2
    assert many.position == ((0.0, 1.0, 2.0), (3.0, 4.0, 5.0))
    assert hash(descriptor(mount=many, intrinsics=Orthographic(2))) == hash(
        descriptor(mount=WorldPose([[0, 1, 2], [3, 4, 5]]), intrinsics=Orthographic(2.0))
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WorldPose((1, 2)), r"position must have shape \(3,\) or \(N, 3\), got \(2,\)"),
        (lambda: WorldPose((1, 2, math.nan)), "position must be finite"),
        (lambda: WorldPose((0, 0, 0), (0, 0, 0, 0)), "quaternion must not be zero"),
        (lambda: WorldPose(np.zeros((2, 3)), np.ones((3, 4))), "2 positions but 3 quaternions"),
        (lambda: WorldPose.looking_at((1, 1, 1), (1, 1, 1)), "are the same point"),
        (lambda: BodyMount("arm", np.zeros((2, 3))), "expected one vector, got 2"),
        (lambda: Pinhole(0, 1, 0, 0), "focal lengths must be above 0"),
        (lambda: Pinhole(1, 1, math.inf, 0), "cx must be finite"),
        (lambda: Pinhole.from_fovy(180, 4, 4), "fovy must lie between 0 and 180"),
        (lambda: Pinhole(1, (1, 2), 0, (0, 0, 0)), r"different numbers of environments: {'fy': 2, 'cy': 3}"),
        (lambda: Pinhole((1, 0), 1, 0, 0), "focal lengths must be above 0"),
        (lambda: Pinhole([[1.0]], 1, 0, 0), r"fx must have shape \(\) or \(N,\), got \(1, 1\)"),
        (lambda: Pinhole.from_fovy((60, 190), 4, 4), "fovy must lie between 0 and 180"),
        (lambda: Pinhole.from_matrices(np.ones((3, 3))), "intrinsic matrices must have the form"),
        (lambda: Pinhole.from_matrices(np.eye(2)), "intrinsic matrices must have the form"),
        (lambda: WorldPose.looking_at([(0, 0, 0), (1, 1, 1)], (1, 1, 1)), r"the same point \(1\.0, 1\.0, 1\.0\)"),
        (lambda: Orthographic(0), "height must be above 0"),
        (lambda: VisualOptions(background=(0, 0, 2)), r"background must lie in \[0, 1\]"),
    ],
)
def test_wrong_parts_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_groups_are_a_set():
    assert VisualOptions(geom_groups=(2, 0, 2)) == VisualOptions(geom_groups=[0, 2])


def test_field_of_view_spans_the_height():
    pinhole = Pinhole.from_fovy(90, 64, 48)
    assert (pinhole.cx, pinhole.cy) == (32, 24)
    assert pinhole.fx == pinhole.fy == pytest.approx(24)  # at 45 degrees the ray goes as far up as forwards


def test_a_pinhole_may_differ_among_environments():
    pinhole = Pinhole(np.array([20, 30]), 25, 32, (24, 20))
    assert (pinhole.num_envs, Pinhole(1, 1, 0, 0).num_envs) == (2, None)
    assert pinhole == Pinhole((20.0, 30.0), 25.0, 32.0, [24, 20])
    assert hash(descriptor(num_envs=2, intrinsics=pinhole))
    np.testing.assert_array_equal(pinhole.rows(2), [[20, 25, 32, 24], [30, 25, 32, 20]])
    matrices = np.array([[[20, 0, 32], [0, 25, 24], [0, 0, 1]], [[30, 0, 32], [0, 25, 20], [0, 0, 1]]])
    np.testing.assert_array_equal(Pinhole.from_matrices(matrices).rows(2), pinhole.rows(2))
    assert Pinhole.from_matrices(matrices[0]) == Pinhole(20, 25, 32, 24)
    wide, narrow = Pinhole.from_fovy(90, 64, 48), Pinhole.from_fovy(30, 64, 48)
    np.testing.assert_array_equal(Pinhole.from_fovy((90, 30), 64, 48).fx, (wide.fx, narrow.fx))


def test_looking_at_points_in_each_environment():
    eyes, target = np.array([[3, -2, 1.5], [0, 0, 2]]), (0.2, 0.1, 0.3)
    pose = WorldPose.looking_at(eyes, target)
    for env, eye in enumerate(eyes):
        alone = WorldPose.looking_at(eye, target)
        assert pose.position[env] == alone.position
        np.testing.assert_allclose(np.abs(np.dot(pose.quaternion[env], alone.quaternion)), 1.0)


@pytest.mark.parametrize("eye", [(3, -2, 1.5), (0.5, 0, 0), (-1, -1, -4)])
def test_looking_at_a_point(eye):
    target = np.array([0.2, 0.1, 0.3])
    pose = WorldPose.looking_at(eye, target)
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.array(pose.quaternion)[[3, 0, 1, 2]])
    right, up, back = matrix.reshape(3, 3).T
    np.testing.assert_allclose(-back, (target - eye) / np.linalg.norm(target - eye), atol=1e-12)
    assert right[2] == pytest.approx(0, abs=1e-12)  # a level horizon
    assert up[2] > 0


@pytest.mark.parametrize("eye", [(0, 0, 2), (0, 0, -2)])
def test_looking_straight_down_or_up(eye):
    pose = WorldPose.looking_at(eye, (0, 0, 0))
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.array(pose.quaternion)[[3, 0, 1, 2]])
    np.testing.assert_allclose(matrix.reshape(3, 3)[:, 2], np.array(eye) / 2, atol=1e-12)
    np.testing.assert_allclose(matrix.reshape(3, 3)[:, 1], (0, 1, 0), atol=1e-12)
