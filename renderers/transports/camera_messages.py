"""What camera messages say, before any middleware: images, camera info, transforms, clock.

The conventions are those of ROS. Frames called `..._optical_frame` are REP 103's (x right, y down, z into the image);
ours look along -Z with +Y up, so the two differ by half a turn about x. Depth is REP 118's: metres in float32 with
infinity where nothing was hit, or millimetres in uint16 with 0 there. Stamps are the simulation time of the snapshot.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..render_core import CameraDescriptor, PlaneKind
from ..render_core.publication import CameraFrames

__all__ = [
    "IMAGE_STREAMS",
    "CameraInfoContent",
    "ClockContent",
    "Content",
    "ImageContent",
    "ImageStream",
    "TransformContent",
    "camera_info",
    "camera_transform",
    "image",
    "optical_frame",
    "ros_name",
]

IS_BIG_ENDIAN = sys.byteorder == "big"

_OPTICAL = np.diag((1.0, -1.0, -1.0))
_PIXEL_CENTRE = 0.5
_NO_DISTORTION = (0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class ImageContent:
    """One image.

    Attributes:
        stamp_ns: Simulation time [ns].
        frame_id: Optical frame of the camera.
        encoding: ROS's name for the pixel format.
        pixels: `(H, W, C)`, contiguous; may share the memory of a frame.
    """

    stamp_ns: int
    frame_id: str
    encoding: str
    pixels: np.ndarray

    @property
    def height(self) -> int:
        """Rows."""
        return self.pixels.shape[0]

    @property
    def width(self) -> int:
        """Columns."""
        return self.pixels.shape[1]

    @property
    def step(self) -> int:
        """Length of a row [bytes]."""
        return self.pixels.nbytes // self.pixels.shape[0]

    @property
    def data(self) -> memoryview:
        """The pixels as bytes, row by row."""
        return self.pixels.reshape(-1).view(np.uint8).data


@dataclass(frozen=True)
class CameraInfoContent:
    """How a camera projects, without distortion. All of `k` is 0 where it is no pinhole.

    Attributes:
        stamp_ns: Simulation time [ns].
        frame_id: Optical frame of the camera.
        height, width: Of the image [pixels].
        k: Intrinsic matrix, row-major (9). Pixel centres are at whole numbers, as OpenCV has it.
        r: Rectification, the identity (9).
        p: Projection matrix (12).
        d: Distortion, zeros (5), of the model `plumb_bob`.
    """

    stamp_ns: int
    frame_id: str
    height: int
    width: int
    k: tuple[float, ...]
    r: tuple[float, ...]
    p: tuple[float, ...]
    d: tuple[float, ...] = _NO_DISTORTION
    distortion_model: str = "plumb_bob"


@dataclass(frozen=True)
class TransformContent:
    """Where a frame is.

    Attributes:
        stamp_ns: Simulation time [ns].
        frame_id: In which frame.
        child_frame_id: Which frame.
        translation: [m], (3).
        rotation: Quaternion (x, y, z, w).
    """

    stamp_ns: int
    frame_id: str
    child_frame_id: str
    translation: tuple[float, float, float]
    rotation: tuple[float, float, float, float]


@dataclass(frozen=True)
class ClockContent:
    """What time it is in the simulation.

    Attributes:
        stamp_ns: [ns].
    """

    stamp_ns: int


Content = ImageContent | CameraInfoContent | TransformContent | ClockContent


@dataclass(frozen=True)
class ImageStream:
    """One way in which a plane is published.

    Attributes:
        plane: What is published.
        folder: Below the camera's name; its camera info is there too.
        topic: Name of the topic in it.
        encoding: ROS's name for the pixel format.
        convert: From the plane of one environment, (H, W, C).
    """

    plane: PlaneKind
    folder: str
    topic: str
    encoding: str
    convert: Callable[[np.ndarray], np.ndarray]


def image(frames: CameraFrames, stream: ImageStream, environment: int, frame_id: str) -> ImageContent:
    """The image of one environment."""
    plane = frames.leases[stream.plane].numpy()[environment]
    return ImageContent(frames.simulation_time_ns, frame_id, stream.encoding, stream.convert(plane))


def camera_info(frames: CameraFrames, environment: int, frame_id: str) -> CameraInfoContent:
    """The camera info of one environment's frame: pixel centres move from +0.5, as we have them, to whole numbers."""
    camera, pinholes = frames.camera, frames.view.pinholes
    k, p = (0.0,) * 9, (0.0,) * 12
    if pinholes is not None:
        fx, fy, cx, cy = pinholes[environment].tolist()
        cx, cy = cx - _PIXEL_CENTRE, cy - _PIXEL_CENTRE
        k = (fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0)
        p = (fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0)
    r = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    return CameraInfoContent(frames.simulation_time_ns, frame_id, camera.height, camera.width, k, r, p)


def camera_transform(frames: CameraFrames, environment: int, world_frame: str, frame_id: str) -> TransformContent:
    """Where the camera's optical frame is in its environment's world."""
    rotation = frames.view.rotations[environment].astype(np.float64) @ _OPTICAL
    x, y, z = (float(value) for value in frames.view.positions[environment])
    return TransformContent(frames.simulation_time_ns, world_frame, frame_id, (x, y, z), _quaternion(rotation))


def ros_name(name: str) -> str:
    """A camera's name as one token of a ROS name: letters, digits and single underscores, a letter first.

    Other letters become underscores, so two names can become equal.
    """
    letters = (letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    token = "_".join(part for part in "".join(letters).split("_") if part)
    return token if token[:1].isalpha() else f"camera_{token}".rstrip("_")


def optical_frame(camera: CameraDescriptor | str, prefix: str = "") -> str:
    """Name of a camera's optical frame; tf has no leading slash."""
    name = camera if isinstance(camera, str) else ros_name(camera.name)
    return "/".join(part for part in (prefix.strip("/"), f"{name}_optical_frame") if part)


def _millimetres(depth: np.ndarray) -> np.ndarray:
    """Depth in whole millimetres; 0 for a miss and for what uint16 cannot hold."""
    scaled = np.rint(depth * np.float32(1000.0))
    return np.where((scaled >= 1.0) & (scaled <= 65535.0), scaled, 0.0).astype(np.uint16)


def _quaternion(rotation: np.ndarray) -> tuple[float, float, float, float]:
    """(x, y, z, w) of a rotation matrix: the largest component first, as Shepperd has it."""
    m = rotation
    trace = float(np.trace(m))
    squares = np.array((*(1.0 + 2.0 * np.diag(m) - trace), 1.0 + trace))  # 4x², 4y², 4z², 4w²
    products = np.array(
        [
            [squares[0], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0], m[2, 1] - m[1, 2]],
            [m[0, 1] + m[1, 0], squares[1], m[1, 2] + m[2, 1], m[0, 2] - m[2, 0]],
            [m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], squares[2], m[1, 0] - m[0, 1]],
            [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], squares[3]],
        ]
    )
    row = products[int(np.argmax(squares))]
    x, y, z, w = (float(value) for value in row / np.linalg.norm(row))
    return x, y, z, w


IMAGE_STREAMS = (
    ImageStream(PlaneKind.RGB, "", "image_raw", "rgb8", np.ascontiguousarray),
    ImageStream(PlaneKind.DEPTH, "depth", "image", "32FC1", np.ascontiguousarray),
    ImageStream(PlaneKind.DEPTH, "depth", "image_raw", "16UC1", _millimetres),
    ImageStream(PlaneKind.SEGMENTATION, "segmentation", "image", "32SC2", np.ascontiguousarray),
)
"""What is published of a camera, for the planes that it has."""
