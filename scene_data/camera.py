"""Where a camera sits, how it projects, what it draws, and what a user asks of it.

All are values: immutable, hashable, free of any engine or graphics type. Poses map the camera frame to the world or to
a body. The camera frame is MuJoCo's and OpenGL's: it looks along -Z, +X is right, +Y is up. Quaternions are
(x, y, z, w). Lengths are metres.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scene_data.camera_frames import view_quaternions
from scene_data.errors import UnknownNameError

__all__ = [
    "BodyMount",
    "CameraCfg",
    "CameraMount",
    "Intrinsics",
    "ModelCamera",
    "Orthographic",
    "Pinhole",
    "VisualOptions",
    "WorldPose",
    "pinhole_matrices",
]

DEPTH_CLIPPING = ("none", "max", "zero")

Vector = tuple[float, ...]
Vectors = Vector | tuple[Vector, ...]
Lengths = float | tuple[float, ...]


@dataclass(frozen=True)
class ModelCamera:
    """A camera of the model; the engine says where it is, tracking modes included.

    Attributes:
        camera: Its name, or its index in the model.
    """

    camera: str | int


@dataclass(frozen=True)
class BodyMount:
    """A pose fixed on a body of the model.

    Attributes:
        body: The body's name, or its index in the model.
        position: Camera position in the body frame (3,) [m].
        quaternion: Camera orientation in the body frame (x, y, z, w); normalized on construction.
    """

    body: str | int
    position: Vector = (0.0, 0.0, 0.0)
    quaternion: Vector = (0.0, 0.0, 0.0, 1.0)

    def __post_init__(self):
        object.__setattr__(self, "position", _single(_vectors("position", self.position, 3)))
        object.__setattr__(self, "quaternion", _single(_unit_quaternions(self.quaternion)))


@dataclass(frozen=True)
class WorldPose:
    """A pose in each environment's world frame, one for all environments or one for each.

    Attributes:
        position: Camera position (3,) or (N, 3) [m].
        quaternion: Camera orientation (4,) or (N, 4), (x, y, z, w); normalized on construction.
    """

    position: Vectors
    quaternion: Vectors = (0.0, 0.0, 0.0, 1.0)

    def __post_init__(self):
        object.__setattr__(self, "position", _vectors("position", self.position, 3))
        object.__setattr__(self, "quaternion", _unit_quaternions(self.quaternion))
        if len({count for count in (_count(self.position), _count(self.quaternion)) if count is not None}) > 1:
            raise ValueError(
                f"WorldPose has {_count(self.position)} positions but {_count(self.quaternion)} quaternions"
            )

    @property
    def num_envs(self) -> int | None:
        """Number of environments that it names poses for, None when one pose serves all."""
        counts = [count for count in (_count(self.position), _count(self.quaternion)) if count is not None]
        return counts[0] if counts else None

    @classmethod
    def looking_at(cls, eye: ArrayLike, target: ArrayLike, up: ArrayLike = (0, 0, 1)) -> "WorldPose":
        """A pose at `eye` whose optical axis goes through `target`, with `up` (3,) upwards in the image.

        `eye` and `target` are (3,), or (N, 3) for a pose per environment.

        Raises:
            ValueError: `eye` equals `target`, or a value that is not finite.
        """
        eyes, targets = np.broadcast_arrays(_vectors("eye", eye, 3), _vectors("target", target, 3))
        return cls(_vectors("eye", eyes, 3), _vectors("quaternion", view_quaternions(eyes, targets, up), 4))


CameraMount = ModelCamera | BodyMount | WorldPose


@dataclass(frozen=True)
class Pinhole:
    """A pinhole projection, lengths in pixels, from the image's top-left corner; pixel centres lie at +0.5.

    The ray through the image point (u, v) is ((u - cx) / fx, -(v - cy) / fy, -1) in the camera frame. Each length is
    one for all environments, or one for each (N,).

    Attributes:
        fx: Horizontal focal length [pixels], above 0.
        fy: Vertical focal length [pixels], above 0.
        cx: Principal point, from the left edge [pixels].
        cy: Principal point, from the top edge [pixels].
    """

    fx: Lengths
    fy: Lengths
    cx: Lengths
    cy: Lengths

    def __post_init__(self):
        for name in ("fx", "fy", "cx", "cy"):
            object.__setattr__(self, name, _lengths(name, getattr(self, name)))
        counts = {name: len(value) for name, value in vars(self).items() if isinstance(value, tuple)}
        if len(set(counts.values())) > 1:
            raise ValueError(f"Pinhole has lengths for different numbers of environments: {counts}")
        if (self.rows(self.num_envs or 1)[:, :2] <= 0.0).any():
            raise ValueError(f"focal lengths must be above 0, got fx={self.fx}, fy={self.fy}")

    @property
    def num_envs(self) -> int | None:
        """Number of environments that it projects differently in, None when all are alike."""
        return next((len(value) for value in vars(self).values() if isinstance(value, tuple)), None)

    def rows(self, num_envs: int) -> NDArray[np.float64]:
        """(fx, fy, cx, cy) in each environment (num_envs, 4) [pixels]."""
        lengths = (self.fx, self.fy, self.cx, self.cy)
        return np.stack([np.broadcast_to(np.asarray(length, float), num_envs) for length in lengths], axis=1)

    @classmethod
    def from_fovy(cls, fovy: ArrayLike, width: int, height: int) -> "Pinhole":
        """Square pixels, a centred principal point, and `fovy` degrees () or (N,) from the top to the bottom edge."""
        angles = np.asarray(fovy, dtype=float)
        if not ((angles > 0.0) & (angles < 180.0)).all():
            raise ValueError(f"fovy must lie between 0 and 180 degrees, got {fovy}")
        focal = _lengths("fovy", 0.5 * height / np.tan(0.5 * np.radians(angles)))
        return cls(focal, focal, 0.5 * width, 0.5 * height)

    @classmethod
    def from_matrices(cls, matrices: ArrayLike) -> "Pinhole":
        """The projection of [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] (3, 3), or of one for each environment (N, 3, 3).

        Raises:
            ValueError: A matrix of another form.
        """
        k = pinhole_matrices(matrices)
        return cls(*(_lengths("intrinsic matrices", k[..., i, j]) for i, j in ((0, 0), (1, 1), (0, 2), (1, 2))))


@dataclass(frozen=True)
class Orthographic:
    """A parallel projection along -Z with square pixels.

    Attributes:
        height: What the image's height covers [m], above 0.
    """

    height: float

    def __post_init__(self):
        object.__setattr__(self, "height", _finite("height", self.height))
        if self.height <= 0.0:
            raise ValueError(f"an orthographic height must be above 0, got {self.height}")


Intrinsics = Pinhole | Orthographic


@dataclass(frozen=True)
class VisualOptions:
    """What a camera draws.

    Attributes:
        geom_groups: Groups of geoms and flexes that are visible.
        shadows: Whether lights cast shadows.
        textures: Whether materials show their textures.
        skybox: Whether rays that hit nothing show the model's sky box, where it has one.
        background: Colour of rays that hit nothing else, (red, green, blue) in [0, 1].
        extra_geometry: Whether what geometry sources draw is visible.
    """

    geom_groups: tuple[int, ...] = (0, 1, 2)
    shadows: bool = True
    textures: bool = True
    skybox: bool = True
    background: Vector = (0.0, 0.0, 0.0)
    extra_geometry: bool = True

    def __post_init__(self):
        object.__setattr__(self, "geom_groups", tuple(sorted({int(group) for group in self.geom_groups})))
        background = _single(_vectors("background", self.background, 3))
        if not all(0.0 <= channel <= 1.0 for channel in background):
            raise ValueError(f"background must lie in [0, 1], got {background}")
        object.__setattr__(self, "background", background)


@dataclass(frozen=True)
class CameraCfg:
    """A camera of a simulation, as the user describes it.

    Attributes:
        name: A camera of the model; or, with a `mount`, a new one; or `"free"` for MuJoCo's default free view, unless
            the model has a camera of that name.
        width: Image width [pixels].
        height: Image height [pixels].
        data_types: What to render, by Isaac Lab's names: `rgb`, `depth`, `distance_to_image_plane` (the same),
            `distance_to_camera`, `segmentation`, `instance_segmentation`, `semantic_segmentation`, and what else the
            render backend offers.
        mount: Where a new camera sits.
        intrinsics: How it projects, in all environments or in each; None is the model camera's own projection, or 45
            degrees of vertical field of view for a new one.
        options: What it draws.
        update_period: Simulation time between two frames [s]; 0 is a frame whenever the render mode has one. A frame
            is due at the first read (synchronous) or step (pipelined, free-running) by which this much time has passed
            since the last one; and at once after a reset, of one environment too, and after a change to the camera.
        depth_clipping_behavior: What tensors of distances hold outside `clipping_range`. `"none"`: what was measured,
            with `inf` for a miss. `"max"`: the nearest number inside. `"zero"`: 0. The last two make a copy.
        clipping_range: Nearest and farthest distance (2,) [m].
        semantic_tags: Tags by name pattern, as a mapping or pairs: `{"robot_*": "robot"}`. A pattern is matched with
            the names of shapes, flexes and skins, then of bodies; the first one that matches counts.
        colorize_segmentation: Whether `instance_segmentation` and `semantic_segmentation` are colours (N, H, W, 4)
            uint8 instead of ids (N, H, W, 1) int32.

    Raises:
        ValueError: A size that is no whole number from 1 on, no or repeated data types, a negative period, or an empty
            range.
        UnknownNameError: No such clipping behaviour.
    """

    name: str
    width: int
    height: int
    data_types: tuple[str, ...] = ("rgb",)
    mount: CameraMount | None = None
    intrinsics: Intrinsics | None = None
    options: VisualOptions = field(default_factory=VisualOptions)
    update_period: float = 0.0
    depth_clipping_behavior: str = "none"
    clipping_range: tuple[float, float] = (0.01, 1e6)
    semantic_tags: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    colorize_segmentation: bool = False

    def __post_init__(self):
        object.__setattr__(self, "data_types", tuple(self.data_types))
        tags = self.semantic_tags.items() if isinstance(self.semantic_tags, Mapping) else self.semantic_tags
        object.__setattr__(self, "semantic_tags", tuple((str(pattern), str(tag)) for pattern, tag in tags))
        object.__setattr__(self, "clipping_range", tuple(float(limit) for limit in self.clipping_range))
        if self.depth_clipping_behavior not in DEPTH_CLIPPING:
            kind = f"depth clipping behavior of camera {self.name!r}"
            raise UnknownNameError(kind, self.depth_clipping_behavior, DEPTH_CLIPPING)
        if len(self.clipping_range) != 2 or not 0.0 <= self.clipping_range[0] < self.clipping_range[1]:
            raise ValueError(f"camera {self.name!r}: {self.clipping_range} is no range of distances")
        if not 0.0 <= self.update_period < math.inf:
            raise ValueError(f"camera {self.name!r}: the update period {self.update_period} s is below 0 or not finite")
        if int(self.width) != self.width or int(self.height) != self.height:
            raise ValueError(f"camera {self.name!r}: the size {self.width}x{self.height} is no whole number of pixels")
        if self.width < 1 or self.height < 1:
            raise ValueError(f"camera {self.name!r}: the size {self.width}x{self.height} is below 1x1")
        if not self.data_types:
            raise ValueError(f"camera {self.name!r} asks for no data types")
        if len(set(self.data_types)) < len(self.data_types):
            raise ValueError(f"camera {self.name!r} names a data type twice: {list(self.data_types)}")


def pinhole_matrices(matrices: ArrayLike) -> NDArray[np.float64]:
    """Pinhole matrices (..., 3, 3), checked.

    Raises:
        ValueError: They are of another form than [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] with focal lengths above 0.
    """
    k = np.asarray(matrices, dtype=float)
    form = np.array([[1, 0, 1], [0, 1, 1], [0, 0, 0]], dtype=bool)
    if k.shape[-2:] != (3, 3) or (k[..., ~form] != np.eye(3)[~form]).any():
        raise ValueError(
            f"intrinsic matrices must have the form [[fx, 0, cx], [0, fy, cy], [0, 0, 1]], got {k.tolist()}"
        )
    if (k[..., [0, 1], [0, 1]] <= 0.0).any():
        raise ValueError(f"focal lengths must be above 0, got {k[..., [0, 1], [0, 1]].tolist()}")
    return k


def _lengths(name: str, values: ArrayLike) -> Lengths:
    """One finite number, or a tuple of them, which can be hashed."""
    array = np.asarray(values, dtype=float)
    if array.ndim > 1 or array.size == 0:
        raise ValueError(f"{name} must have shape () or (N,), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array.tolist()}")
    return tuple(array.tolist()) if array.ndim else float(array)


def _finite(name: str, value: float) -> float:
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return value


def _vectors(name: str, values: ArrayLike, size: int) -> Vectors:
    """`values` of shape (size,) or (N, size) as nested tuples, which can be hashed."""
    array = np.asarray(values, dtype=float)
    if array.ndim not in (1, 2) or array.shape[-1] != size or array.size == 0:
        raise ValueError(f"{name} must have shape ({size},) or (N, {size}), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array.tolist()}")
    if array.ndim == 1:
        return tuple(array.tolist())
    return tuple(tuple(row) for row in array.tolist())


def _unit_quaternions(values: ArrayLike) -> Vectors:
    array = np.asarray(_vectors("quaternion", values, 4))
    norm = np.linalg.norm(array, axis=-1, keepdims=True)
    if (norm < 1e-12).any():
        raise ValueError("quaternion must not be zero")
    return _vectors("quaternion", array / norm, 4)


def _single(vectors: Vectors) -> Vector:
    if isinstance(vectors[0], tuple):
        raise ValueError(f"expected one vector, got {len(vectors)}")
    return vectors  # pyright: ignore[reportReturnType]


def _count(vectors: Vectors) -> int | None:
    return len(vectors) if isinstance(vectors[0], tuple) else None
