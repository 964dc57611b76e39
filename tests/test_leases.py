"""Leases: every array got from one keeps its frame, and nothing else does."""

import gc
import subprocess
import sys
import warnings

import numpy as np
import pytest
import warp as wp

from scene_data.renderers import FrameBoundary, PlaneKind, PlaneLayout

torch = pytest.importorskip("torch")

LAYOUT = PlaneLayout.depth32f(6, 4, num_envs=2)
DEPTH = PlaneKind.DEPTH
EXPECTED = np.arange(48, dtype=np.float32).reshape(LAYOUT.shape)


@pytest.fixture
def boundary():
    boundary = FrameBoundary(1, LAYOUT.byte_length)
    assert boundary.reconfigure(1, LAYOUT.byte_length).ok
    writer = boundary.try_acquire_writer(1, DEPTH, LAYOUT, boundary.begin_capture(1, 0, camera_id=4))
    writer.buffer.assign(EXPECTED)
    assert writer.commit().ok
    return boundary


@pytest.fixture
def lease(boundary):
    return boundary.acquire_latest(DEPTH)


def is_held(boundary: FrameBoundary) -> bool:
    """Whether the only frame is held, as the reader list and as the store of one slot say."""
    gc.collect(1)
    holders = boundary.held_frames()
    assert holders in ([], [(4, DEPTH, 1)])
    assert boundary.wait_for_capacity(1, 1, LAYOUT.byte_length, timeout=0.0).ok == (not holders)
    return bool(holders)


MAKERS = {
    "numpy": lambda lease: lease.numpy(),
    "torch": lambda lease: lease.torch(),
    "warp": lambda lease: lease.warp(),
    "numpy.from_dlpack": np.from_dlpack,
    "torch.from_dlpack": lambda lease: torch.from_dlpack(lease),
    "torch.utils.dlpack": lambda lease: torch.utils.dlpack.from_dlpack(lease),
    "wp.from_dlpack": lambda lease: wp.from_dlpack(lease),
    "warp.numpy": lambda lease: lease.warp().numpy(),
    "wp.to_torch": lambda lease: wp.to_torch(lease.warp()),
    "torch.numpy": lambda lease: lease.torch().numpy(),
    "numpy view": lambda lease: np.asarray(lease.numpy())[...].reshape(LAYOUT.shape),
    "warp view": lambda lease: lease.warp().reshape((48,)).reshape(LAYOUT.shape),
    "torch view": lambda lease: lease.torch().view(-1).view(LAYOUT.shape),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_an_array_and_its_views_hold_the_frame_by_their_own_lifetime(boundary, lease, maker):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array = MAKERS[maker](lease)
    assert tuple(array.shape) == LAYOUT.shape
    np.testing.assert_array_equal(array.numpy() if hasattr(array, "numpy") else array, EXPECTED)
    lease.release()
    assert is_held(boundary)
    view = array[1]
    del array
    assert is_held(boundary)
    assert not boundary.try_acquire_writer(1, DEPTH, LAYOUT).status.ok
    np.testing.assert_array_equal(view.numpy() if hasattr(view, "numpy") else view, EXPECTED[1])
    del view


@pytest.mark.parametrize("maker", MAKERS)
def test_the_frame_is_free_with_the_last_array(boundary, maker):
    array = MAKERS[maker](boundary.acquire_latest(DEPTH))
    assert is_held(boundary)
    del array
    assert not is_held(boundary)


@pytest.mark.parametrize("maker", MAKERS)
def test_arrays_share_the_memory_of_the_frame(boundary, lease, maker):
    array = MAKERS[maker](lease)
    host = array.numpy() if hasattr(array, "numpy") else array
    assert host.__array_interface__["data"][0] == lease.warp().ptr


def test_numpy_arrays_are_read_only_for_good(lease):
    for array in (lease.numpy(), lease.numpy()[0], np.from_dlpack(lease)):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)


def test_release_without_arrays_frees_at_once_and_twice_is_harmless(boundary, lease):
    other = boundary.acquire_latest(DEPTH)
    assert lease.valid
    lease.release()
    lease.release()
    assert not lease.valid
    assert is_held(boundary)
    other.release(None)
    assert not is_held(boundary)


def test_a_released_lease_gives_no_arrays_but_tells_what_it_was(lease):
    lease.release()
    assert (lease.plane, lease.layout, lease.stamp.camera_id) == (DEPTH, LAYOUT, 4)
    for use in (lease.numpy, lease.torch, lease.warp, lease.__dlpack__):
        with pytest.raises(ValueError, match="released"):
            use()


def test_a_lease_is_a_context_manager(boundary, lease):
    with lease as same:
        assert same is lease
    assert not lease.valid
    assert not is_held(boundary)


def test_a_dropped_lease_holds_nothing(boundary):
    lease = boundary.acquire_latest(DEPTH)
    assert is_held(boundary)
    del lease
    assert not is_held(boundary)


def test_an_unused_capsule_holds_until_it_is_dropped(boundary, lease):
    capsule = lease.__dlpack__()
    lease.release()
    assert is_held(boundary)
    del capsule
    assert not is_held(boundary)


def test_dlpack_names_the_device_and_refuses_others(lease):
    assert lease.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="device"):
        lease.__dlpack__(dl_device=(2, 0))


def test_a_dlpack_copy_is_writable_and_holds_nothing(boundary, lease):
    copy = torch.from_dlpack(lease.__dlpack__(copy=True))
    lease.release()
    assert not is_held(boundary)
    copy.zero_()
    again = boundary.acquire_latest(DEPTH)
    np.testing.assert_array_equal(again.numpy(), EXPECTED)


def test_arrays_outlive_the_store():
    boundary = FrameBoundary(1, LAYOUT.byte_length)
    boundary.reconfigure(1, LAYOUT.byte_length)
    writer = boundary.try_acquire_writer(1, DEPTH, LAYOUT)
    writer.buffer.assign(EXPECTED)
    writer.commit()
    tensor = writer.lease().torch()
    del boundary, writer
    gc.collect()
    np.testing.assert_array_equal(tensor.numpy(), EXPECTED)


def test_frames_are_aligned_for_their_type():
    layouts = [PlaneLayout.rgb8(3, 5), PlaneLayout.depth32f(3, 5), PlaneLayout.segmentation32i(3, 5)]
    boundary = FrameBoundary(6, 2 * sum(layout.byte_length for layout in layouts))
    boundary.reconfigure(1, layouts[-1].byte_length)
    for layout in layouts * 2:
        writer = boundary.try_acquire_writer(1, DEPTH, layout)
        assert writer.buffer.ptr % 16 == 0
        assert writer.commit().ok
    assert boundary.record_count == 6


PROGRAM_THAT_ENDS_WITH_FRAMES = """
import newton  # one that leaves much for the last garbage collection
import numpy as np
import torch

from scene_data.renderers import FrameBoundary, PlaneKind, PlaneLayout

layout = PlaneLayout.depth32f(4, 3)
boundary = FrameBoundary(2, 2 * layout.byte_length)
boundary.reconfigure(1, layout.byte_length)
with boundary.try_acquire_writer(1, PlaneKind.DEPTH, layout) as writer:
    writer.commit()
lease = boundary.acquire_latest(PlaneKind.DEPTH)


class Agent:
    pass


agent = Agent()
agent.itself = agent
agent.observations = [lease.numpy(), lease.torch(), lease.warp(), np.from_dlpack(lease), torch.from_dlpack(lease)]
"""


def test_a_program_may_end_with_frames_in_its_hands():
    pytest.importorskip("newton")
    pytest.importorskip("torch")
    command = [sys.executable, "-c", PROGRAM_THAT_ENDS_WITH_FRAMES]
    end = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (end.returncode, end.stderr.count("Error"), end.stderr.count("Exception")) == (0, 0, 0), end.stderr
