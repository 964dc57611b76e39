"""What one frame plane is: its kind, its memory layout, and the stamp that says when and what it shows."""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from math import prod
from operator import index
from typing import Any

import numpy as np
import warp as wp

__all__ = ["FrameStamp", "PlaneKind", "PlaneLayout"]


class PlaneKind(Enum):
    """What the numbers of a plane mean.

    RGB and RGBA are 8-bit colours with the origin at the top left. DEPTH is the distance along the optical axis and
    DISTANCE_TO_CAMERA the Euclidean one, both in metres with `inf` for a miss. SEGMENTATION holds (object id, object
    type), (-1, -1) for the background. NORMALS are unit vectors in the world frame, ALBEDO unlit 8-bit colours,
    RGB_HDR linear colours. INSTANCE_SEGMENTATION and SEMANTIC_SEGMENTATION hold ids of a table.
    """

    RGB = "rgb"
    DEPTH = "depth"
    SEGMENTATION = "segmentation"
    RGBA = "rgba"
    NORMALS = "normals"
    ALBEDO = "albedo"
    DISTANCE_TO_CAMERA = "distance_to_camera"
    INSTANCE_SEGMENTATION = "instance_segmentation"
    SEMANTIC_SEGMENTATION = "semantic_segmentation"
    RGB_HDR = "rgb_hdr"


@dataclass(frozen=True)
class PlaneLayout:
    """Memory layout of one plane of all environments: row-major, without padding.

    Attributes:
        width: Image width [pixels].
        height: Image height [pixels].
        channels: Numbers per pixel.
        dtype: Warp scalar type of a number; NumPy's are taken too, and turned into Warp's.
        num_envs: Images in the plane.

    Raises:
        ValueError: A size below 1, or a `dtype` that is no scalar.
    """

    width: int
    height: int
    channels: int
    dtype: Any
    num_envs: int = 1

    def __post_init__(self):
        for name in ("width", "height", "channels", "num_envs"):
            size = index(getattr(self, name))
            if size < 1:
                raise ValueError(f"a plane needs a {name} of at least 1, not {size}")
            object.__setattr__(self, name, size)
        object.__setattr__(self, "dtype", _warp_scalar(self.dtype))

    @classmethod
    def of(cls, plane: PlaneKind, width: int, height: int, num_envs: int = 1) -> "PlaneLayout":
        """The layout that all backends use for planes of a kind."""
        channels, dtype = _CONVENTIONS[plane]
        return cls(width, height, channels, dtype, num_envs)

    @classmethod
    def rgb8(cls, width: int, height: int, num_envs: int = 1) -> "PlaneLayout":
        """Three 8-bit colours per pixel."""
        return cls.of(PlaneKind.RGB, width, height, num_envs)

    @classmethod
    def depth32f(cls, width: int, height: int, num_envs: int = 1) -> "PlaneLayout":
        """One float32 distance per pixel."""
        return cls.of(PlaneKind.DEPTH, width, height, num_envs)

    @classmethod
    def segmentation32i(cls, width: int, height: int, num_envs: int = 1) -> "PlaneLayout":
        """Two int32 numbers per pixel: object id and object type."""
        return cls.of(PlaneKind.SEGMENTATION, width, height, num_envs)

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Array shape (num_envs, height, width, channels)."""
        return self.num_envs, self.height, self.width, self.channels

    @cached_property
    def item_length(self) -> int:
        """Length of one number [bytes]."""
        return np.dtype(wp.dtype_to_numpy(self.dtype)).itemsize

    @cached_property
    def byte_length(self) -> int:
        """Length of the whole plane [bytes]."""
        return prod(self.shape) * self.item_length


@dataclass(frozen=True)
class FrameStamp:
    """When and from what a frame was made.

    Attributes:
        capture_id: Shared by the planes that show the same instant of the same camera; grows from 1.
        camera_id: The camera, 0 for none in particular.
        plane_sequence: Counts the committed frames of the same plane kind, from 1; 0 before the commit.
        model_generation: Model that was rendered.
        frame_generation: Frame layout in force.
        simulation_time_ns: Simulation time of the rendered state [ns].
    """

    capture_id: int
    camera_id: int
    plane_sequence: int
    model_generation: int
    frame_generation: int
    simulation_time_ns: int

    def numbered(self, plane_sequence: int) -> "FrameStamp":
        """The same stamp with a plane sequence."""
        return FrameStamp(
            self.capture_id,
            self.camera_id,
            plane_sequence,
            self.model_generation,
            self.frame_generation,
            self.simulation_time_ns,
        )


_CONVENTIONS = {
    PlaneKind.RGB: (3, wp.uint8),
    PlaneKind.DEPTH: (1, wp.float32),
    PlaneKind.SEGMENTATION: (2, wp.int32),
    PlaneKind.RGBA: (4, wp.uint8),
    PlaneKind.NORMALS: (3, wp.float32),
    PlaneKind.ALBEDO: (3, wp.uint8),
    PlaneKind.DISTANCE_TO_CAMERA: (1, wp.float32),
    PlaneKind.INSTANCE_SEGMENTATION: (1, wp.int32),
    PlaneKind.SEMANTIC_SEGMENTATION: (1, wp.int32),
    PlaneKind.RGB_HDR: (3, wp.float32),
}


def _warp_scalar(dtype: Any) -> Any:
    if dtype in _WARP_SCALARS:
        return dtype
    try:
        return wp.dtype_from_numpy(np.dtype(dtype))
    except (TypeError, KeyError, RuntimeError, ValueError) as error:
        raise ValueError(f"a plane cannot hold values of type {dtype!r}") from error


_WARP_SCALARS = frozenset(
    {
        wp.uint8,
        wp.int8,
        wp.uint16,
        wp.int16,
        wp.float16,
        wp.uint32,
        wp.int32,
        wp.float32,
        wp.uint64,
        wp.int64,
        wp.float64,
    }
)
