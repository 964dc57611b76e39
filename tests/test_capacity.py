"""The frame budget is decided up front, and what it says suffices."""

import pytest

from scene_data.renderers import (
    CameraDescriptor,
    FrameBoundary,
    FrameCapacityError,
    PlaneKind,
    compute_frame_byte_capacity,
    compute_frame_slot_capacity,
    compute_warm_slot_count,
)

RGB, DEPTH, SEGMENTATION = PlaneKind.RGB, PlaneKind.DEPTH, PlaneKind.SEGMENTATION
FRONT = CameraDescriptor(1, "front", 8, 4, (RGB, DEPTH, SEGMENTATION), num_envs=3)
WRIST = CameraDescriptor(2, "wrist", 5, 3, (RGB,))
PIXELS = 8 * 4 * 3
FUNCTIONS = (compute_frame_slot_capacity, compute_frame_byte_capacity, compute_warm_slot_count)


def test_two_frames_per_plane_and_the_depth_of_each_history():
    assert compute_frame_slot_capacity([FRONT, WRIST]) == 2 * 3 + 2 * 1
    assert compute_frame_slot_capacity([FRONT, WRIST], [(2, 3), (2, 1), (1, 2)]) == (2 + 2) * 3 + (2 + 3 + 1) * 1
    assert compute_frame_byte_capacity([FRONT]) == 2 * PIXELS * (3 + 4 + 8)
    assert compute_frame_byte_capacity([FRONT, WRIST], [(2, 3)]) == 2 * PIXELS * 15 + 5 * (5 * 3 * 3)


def test_warm_slots_are_the_bytes_of_one_turn_in_the_largest_plane():
    assert compute_warm_slot_count([WRIST]) == 1
    assert compute_warm_slot_count([FRONT]) == (3 + 4 + 8) // 8
    same = [CameraDescriptor(index, "c", 8, 4, (DEPTH,)) for index in (1, 2, 3)]
    assert compute_warm_slot_count(same) == 3


def test_no_cameras_need_nothing():
    assert [compute([]) for compute in FUNCTIONS] == [0, 0, 0]


@pytest.mark.parametrize("compute", FUNCTIONS)
def test_what_cannot_be_sized_is_an_error(compute):
    with pytest.raises(FrameCapacityError, match="id 1 is given twice"):
        compute([FRONT, CameraDescriptor(1, "again", 8, 4, (RGB,))])
    with pytest.raises(FrameCapacityError, match="camera id 9"):
        compute([FRONT], [(9, 1)])
    with pytest.raises(FrameCapacityError, match="depth -1"):
        compute([FRONT], [(1, -1)])
    assert issubclass(FrameCapacityError, ValueError)


@pytest.mark.parametrize("compute", FUNCTIONS)
def test_more_than_63_bits_of_bytes_is_an_overflow(compute):
    largest = CameraDescriptor(1, "c", 2**31, 2**30 - 1, (DEPTH,))  # two frames: 2**64 - 2**34 bytes
    with pytest.raises(FrameCapacityError, match=f"overflows {2**63 - 1}"):
        compute([largest])
    half = CameraDescriptor(1, "c", 2**30, 2**30 - 1, (DEPTH,))  # two frames: 2**63 - 2**33 bytes
    compute([half])
    with pytest.raises(FrameCapacityError, match="overflows"):
        compute([half], [(1, 1)])


def test_the_budget_suffices_for_rendering_while_the_turn_before_is_held():
    cameras = [FRONT, WRIST]
    boundary = FrameBoundary(compute_frame_slot_capacity(cameras), compute_frame_byte_capacity(cameras))
    longest = FRONT.layout(SEGMENTATION).byte_length
    warm = compute_warm_slot_count(cameras)
    assert boundary.reconfigure(1, longest, warm).ok
    held = []
    for turn in range(6):
        leases = []
        for camera in cameras:
            stamp = boundary.begin_capture(1, turn, camera.id)
            for plane in camera.planes:
                writer = boundary.try_acquire_writer(boundary.generation, plane, camera.layout(plane), stamp)
                assert writer.commit().ok
                leases.append(writer.lease())
        held = leases
        if turn == 3:
            assert boundary.reconfigure(2, longest, warm).ok
    assert len(held) == 4
