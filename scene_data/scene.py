"""The scene as consumers build it: one prototype environment, and how often it is cloned.

Poses are local to the body that carries the part, lengths in metres, quaternions (x, y, z, w), cameras look along -Z
with +Y up. Everything is immutable; what moves is published by the backend, in the order of `bodies`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import cos, radians, sin
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scene_data.errors import UnknownNameError
from scene_data.scene_assets import (
    FlexDescription,
    HeightFieldDescription,
    MaterialDescription,
    MeshDescription,
    SkinDescription,
    TextureDescription,
    TextureType,
)
from scene_data.scene_parts import (
    WORLD,
    BodyDescription,
    CableDescription,
    CameraDescription,
    LightDescription,
    ShapeDescription,
    ShapeType,
    TendonDescription,
)
from scene_data.usd_paths import join_path

__all__ = [
    "WORLD",
    "BodyDescription",
    "CableDescription",
    "CameraDescription",
    "ClonePlan",
    "FlexDescription",
    "FreeCameraDescription",
    "HeadlightDescription",
    "HeightFieldDescription",
    "LightDescription",
    "MaterialDescription",
    "MeshDescription",
    "SceneDescription",
    "ShapeDescription",
    "ShapeType",
    "SkinDescription",
    "StatisticsDescription",
    "TendonDescription",
    "TextureDescription",
    "TextureType",
]


class Placed(Protocol):
    """A part of the scene that has a path."""

    @property
    def name(self) -> str: ...

    @property
    def path_name(self) -> str: ...


@dataclass(frozen=True, eq=False)
class HeadlightDescription:
    """The light that travels with the camera. Colours are `(3,)` float32."""

    active: bool = True
    ambient: NDArray[np.float32] = field(default_factory=lambda: frozen((0.1, 0.1, 0.1), np.float32))
    diffuse: NDArray[np.float32] = field(default_factory=lambda: frozen((0.4, 0.4, 0.4), np.float32))
    specular: NDArray[np.float32] = field(default_factory=lambda: frozen((0.5, 0.5, 0.5), np.float32))


@dataclass(frozen=True, eq=False)
class FreeCameraDescription:
    """The view of a model that nobody has placed a camera in.

    Attributes:
        lookat: Point in the middle of the picture [m], `(3,)` float64.
        distance: From there to the camera [m].
        azimuth: [deg], 0 looks along +X, 90 along +Y.
        elevation: [deg], negative looks down.
        projection: `"perspective"` or `"orthographic"`.
        fovy: Vertical field of view [deg], or the vertical extent [m] of an orthographic camera.
    """

    lookat: NDArray[np.float64] = field(default_factory=lambda: frozen((0.0, 0.0, 0.0), np.float64))
    distance: float = 1.5
    azimuth: float = 90.0
    elevation: float = -45.0
    projection: str = "perspective"
    fovy: float = 45.0

    @property
    def rotation(self) -> NDArray[np.float64]:
        """Camera frame in the world, `(3, 3)`: columns right, up and backwards."""
        azimuth, elevation = radians(self.azimuth), radians(self.elevation)
        forward = (cos(elevation) * cos(azimuth), cos(elevation) * sin(azimuth), sin(elevation))
        right = (sin(azimuth), -cos(azimuth), 0.0)
        return np.column_stack((right, np.cross(right, forward), np.negative(forward)))

    @property
    def position(self) -> NDArray[np.float64]:
        """Position in the world [m], `(3,)`."""
        return self.lookat + self.distance * self.rotation[:, 2]

    @property
    def quaternion(self) -> NDArray[np.float64]:
        """Orientation in the world, `(4,)`."""
        # From looking straight down (-Z): tilt up about X, then turn about Z.
        tilt, turn = radians(90.0 + self.elevation) / 2, radians(self.azimuth - 90.0) / 2
        return np.array([cos(turn) * sin(tilt), sin(turn) * sin(tilt), sin(turn) * cos(tilt), cos(turn) * cos(tilt)])


@dataclass(frozen=True)
class StatisticsDescription:
    """Typical magnitudes of the model, for scaling what is drawn on top of it.

    Attributes:
        mean_mass: Of a body [kg].
        mean_inertia: [kg m^2].
        mean_size: Of a body [m].
    """

    mean_mass: float = 1.0
    mean_inertia: float = 1.0
    mean_size: float = 1.0


@dataclass(frozen=True)
class ClonePlan:
    """How the prototype is repeated.

    Attributes:
        num_envs: Number of environments.
        root: Path of an environment, with `{}` for its index.
    """

    num_envs: int = 1
    root: str = "/World/envs/env_{}"

    def __post_init__(self):
        if self.num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {self.num_envs}")
        if "{}" not in self.root:
            raise ValueError(f"root must hold '{{}}' for the environment's index, got {self.root!r}")

    def env_path(self, env: int) -> str:
        """Path of environment `env`. IndexError outside [0, num_envs)."""
        if not 0 <= env < self.num_envs:
            raise IndexError(f"environment {env} is not in [0, {self.num_envs})")
        return self.root.format(env)


@dataclass(frozen=True, eq=False)
class SceneDescription:
    """One prototype environment, and the plan that clones it.

    Attributes:
        name: The model's name.
        bodies: In the order of the published transforms.
        shapes: What is drawn and what collides.
        sites: Markers on bodies, hidden by default.
        meshes, materials, textures, height_fields: What parts refer to by index.
        flexes, skins, cables, tendons: What is published as points, besides the tendons that only couple joints.
        cameras: In the order of the published camera poses.
        lights: In the order of the published light poses.
        free_camera: The default view.
        initial_camera: Index of the camera that the model wants to be seen through first, or None for the free one.
        headlight: The light at the camera.
        center: Middle of the model [m], `(3,)` float64.
        extent: Size of the model [m].
        near, far: Distance of the clipping planes that the model asks for [m].
        statistics: Typical magnitudes.
        clone_plan: How often the prototype is repeated, and where.
        natives: The engine's own objects by name; use `native`.
    """

    name: str
    bodies: tuple[BodyDescription, ...]
    shapes: tuple[ShapeDescription, ...] = ()
    sites: tuple[ShapeDescription, ...] = ()
    meshes: tuple[MeshDescription, ...] = ()
    materials: tuple[MaterialDescription, ...] = ()
    textures: tuple[TextureDescription, ...] = ()
    height_fields: tuple[HeightFieldDescription, ...] = ()
    flexes: tuple[FlexDescription, ...] = ()
    skins: tuple[SkinDescription, ...] = ()
    cables: tuple[CableDescription, ...] = ()
    tendons: tuple[TendonDescription, ...] = ()
    cameras: tuple[CameraDescription, ...] = ()
    lights: tuple[LightDescription, ...] = ()
    free_camera: FreeCameraDescription = field(default_factory=FreeCameraDescription)
    initial_camera: int | None = None
    headlight: HeadlightDescription = field(default_factory=HeadlightDescription)
    center: NDArray[np.float64] = field(default_factory=lambda: frozen((0.0, 0.0, 0.0), np.float64))
    extent: float = 1.0
    near: float = 0.01
    far: float = 50.0
    statistics: StatisticsDescription = field(default_factory=StatisticsDescription)
    clone_plan: ClonePlan = ClonePlan()
    natives: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self.clone_plan.num_envs

    def native(self, name: str) -> Any | None:
        """The engine's own object, for example `native("mujoco_model")`. None where this engine has none."""
        return self.natives.get(name)

    def is_static(self, part: ShapeDescription | CameraDescription | LightDescription) -> bool:
        """Whether a shape, camera or light stands still in its environment, whatever moves."""
        return part.body == WORLD or self.bodies[part.body].is_static

    def env_path(self, env: int) -> str:
        """Path of environment `env`."""
        return self.clone_plan.env_path(env)

    def paths(self, parts: Sequence[Placed], env: int) -> list[str]:
        """Paths of these parts (`scene.bodies`, `scene.cameras`, ...) in environment `env`."""
        root = self.env_path(env)
        return [join_path(root, part.path_name) for part in parts]

    def body_paths(self, env: int) -> list[str]:
        """Paths of all bodies in environment `env`, in the order of the published transforms."""
        return self.paths(self.bodies, env)

    @property
    def point_count(self) -> int:
        """Number of flex vertices of one environment."""
        return sum(flex.vertex_count for flex in self.flexes)

    def point_ranges(self) -> dict[str, tuple[int, int]]:
        """Where each flex of each environment has its points, `{path: (offset, count)}`, environment-major."""
        stride = self.point_count
        return {
            path: (env * stride + flex.vertex_offset, flex.vertex_count)
            for env in range(self.num_envs)
            for path, flex in zip(self.paths(self.flexes, env), self.flexes, strict=True)
        }

    def body_index(self, name: str) -> int:
        """Index of the body with this name or path name. UnknownNameError if there is none."""
        return _index("body", self.bodies, name)

    def camera_index(self, name: str) -> int:
        """Index of the camera with this name or path name. UnknownNameError if there is none."""
        return _index("camera", self.cameras, name)


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """A read-only copy of `values` as a contiguous array of `dtype`."""
    array = np.array(values, dtype=dtype, order="C", copy=True)
    array.flags.writeable = False
    return array


def _index(kind: str, parts: Sequence[Placed], name: str) -> int:
    for key in ("name", "path_name"):
        for index, part in enumerate(parts):
            if name and getattr(part, key) == name:
                return index
    raise UnknownNameError(kind, name, (part.name or part.path_name for part in parts))
