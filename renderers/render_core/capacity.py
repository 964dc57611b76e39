"""How large the frame store has to be: decided before anything is touched, so that no render finds out."""

from collections.abc import Iterable, Sequence
from operator import index

from scene_data.errors import SceneDataError

from .camera import CameraDescriptor

__all__ = [
    "FrameCapacityError",
    "compute_frame_byte_capacity",
    "compute_frame_slot_capacity",
    "compute_warm_slot_count",
]

MAX_FRAME_BYTES = 2**63 - 1
FRAMES_PER_PLANE = 2
"""The latest frame, which somebody may hold, and the next one."""


class FrameCapacityError(SceneDataError, ValueError):
    """Cameras or histories for which no frame store can be sized."""


def compute_frame_slot_capacity(cameras: Sequence[CameraDescriptor], histories: Iterable[tuple[int, int]] = ()) -> int:
    """Slots that cameras and the histories of their readers need.

    Each plane takes two, for the latest frame and the next one, and `depth` more for each history on its camera.

    Args:
        cameras: All cameras of the store, with unique ids.
        histories: (camera id, depth) of each reader that keeps up to `depth` frames of every plane of a camera.

    Raises:
        FrameCapacityError: A repeated or reserved id, an unknown camera in a history, a negative depth, or planes of
            more than 2**63 - 1 bytes in all.
    """
    depths = _frames_per_plane(cameras, histories)
    _total_bytes(cameras, depths)
    return sum(depths[camera.id] * len(camera.planes) for camera in cameras)


def compute_frame_byte_capacity(cameras: Sequence[CameraDescriptor], histories: Iterable[tuple[int, int]] = ()) -> int:
    """Length of the planes in the slots of `compute_frame_slot_capacity` together [bytes].

    Raises:
        FrameCapacityError: See `compute_frame_slot_capacity`.
    """
    return _total_bytes(cameras, _frames_per_plane(cameras, histories))


def compute_warm_slot_count(cameras: Sequence[CameraDescriptor], histories: Iterable[tuple[int, int]] = ()) -> int:
    """Slots for which there has to be room when a frame generation starts, whatever readers hold of the one before.

    As many slots of the largest plane as the bytes of one turn of all cameras fill, so that one turn always fits.

    Raises:
        FrameCapacityError: See `compute_frame_slot_capacity`.
    """
    _total_bytes(cameras, _frames_per_plane(cameras, histories))
    lengths = [camera.layout(plane).byte_length for camera in cameras for plane in camera.planes]
    return sum(lengths) // max(lengths) if lengths else 0


def _frames_per_plane(cameras: Sequence[CameraDescriptor], histories: Iterable[tuple[int, int]]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for camera in cameras:
        if camera.id == 0:
            raise FrameCapacityError(f"camera {camera.name!r} has id 0, which is reserved for every camera")
        if camera.id in counts:
            raise FrameCapacityError(f"camera id {camera.id} is given twice, the second time to {camera.name!r}")
        counts[camera.id] = FRAMES_PER_PLANE
    for camera_id, depth in histories:
        if camera_id not in counts:
            raise FrameCapacityError(f"a history is for camera id {camera_id}, but the cameras are {sorted(counts)}")
        if index(depth) < 0:
            raise FrameCapacityError(f"the history of camera id {camera_id} has depth {depth}")
        counts[camera_id] += index(depth)
    return counts


def _total_bytes(cameras: Sequence[CameraDescriptor], frames_per_plane: dict[int, int]) -> int:
    total = 0
    for camera in cameras:
        for plane in camera.planes:
            total += frames_per_plane[camera.id] * camera.layout(plane).byte_length
            if total > MAX_FRAME_BYTES:
                raise FrameCapacityError(
                    f"the frames up to {plane.value!r} of camera {camera.name!r} take {total} bytes, which overflows "
                    f"{MAX_FRAME_BYTES}"
                )
    return total
