"""What an environment consists of: bodies, shapes on them, cameras, lights and tendons.

Poses are local to the body that carries the part, lengths in metres, quaternions (x, y, z, w). Arrays are read-only.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "WORLD",
    "BodyDescription",
    "CableDescription",
    "CameraDescription",
    "LightDescription",
    "ShapeDescription",
    "ShapeType",
    "TendonDescription",
]


WORLD = -1
"""The body index of what is fixed to the world, in engines that have no world body."""


class ShapeType(Enum):
    """What a shape is, and what its `size` says [m].

    PLANE: half extents X and Y (0 is infinite) and grid spacing, normal +Z. SPHERE: radius. CAPSULE and CYLINDER:
    radius and half length along Z (of a capsule's straight part). ELLIPSOID: semi-axes. BOX: half extents. MESH and
    SDF: half extents of the bounding box. HEIGHT_FIELD: see `HeightFieldDescription`.
    """

    PLANE = "plane"
    HEIGHT_FIELD = "height_field"
    SPHERE = "sphere"
    CAPSULE = "capsule"
    ELLIPSOID = "ellipsoid"
    CYLINDER = "cylinder"
    BOX = "box"
    MESH = "mesh"
    SDF = "sdf"


@dataclass(frozen=True, eq=False)
class BodyDescription:
    """A frame that moves. MuJoCo's body 0 is the world; Newton has no world body.

    Attributes:
        name: The engine's name, possibly empty.
        path_name: Path below the environment.
        parent: Index of the parent body, `WORLD` for the world's own and for roots of engines without a world body.
        position: `(3,)` float64, relative to the parent, in the default configuration.
        quaternion: `(4,)` float64, relative to the parent.
        mass: [kg].
        is_static: Whether it can never move relative to the world.
        is_mocap: Whether the user places it directly.
    """

    name: str
    path_name: str
    parent: int
    position: NDArray[np.float64]
    quaternion: NDArray[np.float64]
    mass: float
    is_static: bool
    is_mocap: bool


@dataclass(frozen=True, eq=False)
class ShapeDescription:
    """Something visible, or collidable, or both, on a body. Sites are described in the same way.

    Attributes:
        name: The engine's name, possibly empty.
        path_name: Path below the environment: the body's, then its own.
        body: Body index, or `WORLD`.
        position: `(3,)` float64, in the body's frame.
        quaternion: `(4,)` float64, in the body's frame.
        type: The primitive, mesh or height field.
        size: `(3,)` float64; `ShapeType` says what it means.
        mesh: Mesh index, or None.
        height_field: Height field index, or None.
        material: Material index, or None.
        rgba: `(4,)` float32, the colour it is drawn in: its own, or its material's where it has none of its own.
        group: Visibility group.
        casts_shadow: Whether it darkens what is behind it.
        collides: Whether it can touch anything.
    """

    name: str
    path_name: str
    body: int
    position: NDArray[np.float64]
    quaternion: NDArray[np.float64]
    type: ShapeType
    size: NDArray[np.float64]
    mesh: int | None
    height_field: int | None
    material: int | None
    rgba: NDArray[np.float32]
    group: int
    casts_shadow: bool
    collides: bool


@dataclass(frozen=True, eq=False)
class CameraDescription:
    """A camera of the model. A tracking camera's pose is the engine's to say; the local pose holds for `"fixed"`.

    Attributes:
        name: The engine's name, possibly empty.
        path_name: Path below the environment: the body's, then its own.
        body: Body index.
        position: `(3,)` float64, in the body's frame.
        quaternion: `(4,)` float64, in the body's frame.
        mode: `"fixed"`, `"track"`, `"trackcom"`, `"targetbody"` or `"targetbodycom"`.
        target_body: Body index it looks at, or None.
        projection: `"perspective"` or `"orthographic"`.
        fovy: Vertical field of view [deg], or the vertical extent [m] of an orthographic camera.
        focal: Focal lengths along X and Y [m], `(2,)` float32, zeros where `fovy` rules.
        principal: Offset of the principal point from the sensor's centre [m], `(2,)` float32.
        sensor_size: Width and height [m], `(2,)` float32, zeros where `fovy` rules.
        resolution: Width and height [pixels] that the model asks for, `(2,)` int32.
    """

    name: str
    path_name: str
    body: int
    position: NDArray[np.float64]
    quaternion: NDArray[np.float64]
    mode: str
    target_body: int | None
    projection: str
    fovy: float
    focal: NDArray[np.float32]
    principal: NDArray[np.float32]
    sensor_size: NDArray[np.float32]
    resolution: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class LightDescription:
    """A light of the model.

    Attributes:
        name: The engine's name, possibly empty.
        path_name: Path below the environment: the body's, then its own.
        body: Body index.
        position: `(3,)` float64, in the body's frame.
        direction: `(3,)` float64, in the body's frame, of unit length.
        mode: How it follows bodies, as for cameras.
        target_body: Body index it points at, or None.
        type: `"spot"`, `"directional"`, `"point"` or `"image"`.
        active: Whether it is on.
        casts_shadow: Whether what it does not reach is dark.
        ambient, diffuse, specular: `(3,)` float32 colours.
        attenuation: Constant, linear and quadratic coefficient, `(3,)` float32.
        cutoff: Half angle of a spot's cone [deg].
        exponent: How fast a spot fades towards its edge.
        softness: Width of a spot's edge, as a part of the cone.
        bulb_radius: [m], for soft shadows.
        intensity: [cd], for physically based lighting, 0 where not given.
        range: How far it reaches [m].
        texture: Texture index of an image light, or None.
    """

    name: str
    path_name: str
    body: int
    position: NDArray[np.float64]
    direction: NDArray[np.float64]
    mode: str
    target_body: int | None
    type: str
    active: bool
    casts_shadow: bool
    ambient: NDArray[np.float32]
    diffuse: NDArray[np.float32]
    specular: NDArray[np.float32]
    attenuation: NDArray[np.float32]
    cutoff: float
    exponent: float
    softness: float
    bulb_radius: float
    intensity: float
    range: float
    texture: int | None


@dataclass(frozen=True, eq=False)
class TendonDescription:
    """A tendon. Only spatial ones are visible: they run through sites and around spheres and cylinders.

    Attributes:
        name: The engine's name, possibly empty.
        path_name: Path below the environment.
        is_spatial: Whether it has a path through space; a fixed tendon only couples joints.
        wrap_types: Per path object: `"site"`, `"sphere"`, `"cylinder"`, `"pulley"` or `"joint"`.
        wrap_objects: `(W,)` int32: index of the site, shape or joint; -1 for a pulley.
        wrap_side_sites: `(W,)` int32: site that says on which side of a sphere or cylinder it runs, -1 for none.
        wrap_parameters: `(W,)` float64: a pulley's divisor, a joint's coefficient, else 0.
        width: Drawn radius [m].
        material: Material index, or None.
        rgba: `(4,)` float32, the colour it is drawn in.
        group: Visibility group.
    """

    name: str
    path_name: str
    is_spatial: bool
    wrap_types: tuple[str, ...]
    wrap_objects: NDArray[np.int32]
    wrap_side_sites: NDArray[np.int32]
    wrap_parameters: NDArray[np.float64]
    width: float
    material: int | None
    rgba: NDArray[np.float32]
    group: int

    @property
    def branch_sizes(self) -> tuple[int, ...]:
        """The most points that each part of the path between pulleys can have; 0 for a part without any.

        A site is a point, and a sphere or cylinder is two: where the path meets it, and where it leaves it.
        """
        if not self.is_spatial:
            return ()
        sizes = [0]
        for kind in self.wrap_types:
            if kind == "pulley":
                sizes.append(0)
            else:
                sizes[-1] += 1 if kind == "site" else 2
        return tuple(sizes)

    @property
    def curves(self) -> tuple[tuple[str, int], ...]:
        """Path below the environment and number of points of each polyline that the tendon is published as.

        One with the tendon's own path; with pulleys one for each part of the path, below it. While the tendon passes a
        sphere or cylinder by, the polyline has fewer different points, and its last one is repeated.
        """
        sizes = [size for size in self.branch_sizes if size]
        if "pulley" not in self.wrap_types:
            return tuple((self.path_name, size) for size in sizes)
        return tuple((f"{self.path_name}/branch_{index}", size) for index, size in enumerate(sizes))


@dataclass(frozen=True, eq=False)
class CableDescription:
    """A chain of capsules, one on each body, that is published as a polyline through their ends.

    Attributes:
        name: What its bodies' names have in common, possibly empty.
        path_name: Path below the environment.
        bodies: Bodies along the chain, `(B,)` int32.
        shapes: The capsule of each, `(B,)` int32 into the shapes.
        first_ends: Which end of each capsule comes first along the chain, `(B,)` int32: 1 is the one at +Z, -1 at -Z.
        radius: [m].
        material: Material index of the first capsule, or None.
        rgba: `(4,)` float32, the colour that the first capsule is drawn in.
        group: Visibility group of the first capsule.
    """

    name: str
    path_name: str
    bodies: NDArray[np.int32]
    shapes: NDArray[np.int32]
    first_ends: NDArray[np.int32]
    radius: float
    material: int | None
    rgba: NDArray[np.float32]
    group: int

    @property
    def point_count(self) -> int:
        """Number of points of the polyline: one more than there are capsules."""
        return len(self.shapes) + 1
