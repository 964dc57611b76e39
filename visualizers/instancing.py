"""Shapes as instances of few geometries: what a viewer sends once, and which instances of it there are.

Primitives of all sizes are instances of one geometry of each kind. A capsule is a tube and two caps, since no scale
makes one capsule of another.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from scene_data.scene import HeightFieldDescription, MeshDescription, SceneDescription, ShapeDescription, ShapeType
from scene_data.tessellation import Surface, tessellate, tessellate_height_field
from scene_data.visualizers.texturing import Skin, skin_of

__all__ = [
    "InstanceGroup",
    "Instances",
    "body_frames",
    "capsule_part",
    "instance_groups",
    "mesh_surface",
    "with_height_field",
]

_UNIT_SIZES = {
    ShapeType.BOX: (1.0, 1.0, 1.0),
    ShapeType.SPHERE: (1.0, 0.0, 0.0),
    ShapeType.ELLIPSOID: (1.0, 1.0, 1.0),
    ShapeType.CYLINDER: (1.0, 1.0, 0.0),
    ShapeType.PLANE: (1.0, 1.0, 1.0),
}
_SCALED = {
    ShapeType.BOX: (ShapeType.BOX, (0, 1, 2)),
    ShapeType.SPHERE: (ShapeType.SPHERE, (0, 0, 0)),
    ShapeType.ELLIPSOID: (ShapeType.SPHERE, (0, 1, 2)),
    ShapeType.CYLINDER: (ShapeType.CYLINDER, (0, 0, 1)),
}
"""The geometry that a primitive is an instance of, and which of its lengths is the factor of each axis."""
_IDENTITY = np.array((0.0, 0.0, 0.0, 1.0))
_HALF_TURN_ABOUT_X = np.array((1.0, 0.0, 0.0, 0.0))


@dataclass(eq=False)
class Instances:
    """The instances of one environment, in parallel lists of length K.

    Attributes:
        bodies: Body that carries each.
        positions: In the body's frame, (3,) each [m].
        quaternions: In the body's frame, (4,) each, (x, y, z, w).
        scales: Factors of the geometry's axes, (3,) each.
        shapes: The shape that each is part of; nothing where they are parts of none.
    """

    bodies: list[int] = field(default_factory=list)
    positions: list[NDArray] = field(default_factory=list)
    quaternions: list[NDArray] = field(default_factory=list)
    scales: list[NDArray] = field(default_factory=list)
    shapes: list[ShapeDescription] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.bodies)

    def add(self, shape: ShapeDescription, scale: Iterable[float], place: NDArray, turn: NDArray = _IDENTITY) -> None:
        """An instance at `place` (3,) [m] with the rotation `turn` (4,) in the shape's frame."""
        self.bodies.append(shape.body)
        self.positions.append(shape.position + _rotated(shape.quaternion, place))
        self.quaternions.append(_product(shape.quaternion, turn))
        self.scales.append(np.array(tuple(scale)))
        self.shapes.append(shape)


@dataclass(frozen=True, eq=False)
class InstanceGroup:
    """One geometry and its instances.

    Attributes:
        name: Unique among the groups.
        surface: Its triangles.
        skin: Its texture, or None.
        group: Visibility group that all the instances are in.
        is_static: Whether the instances stand where they are for good, in every environment alike.
        shape: The first shape of the group.
        instances: Those of one environment.
    """

    name: str
    surface: Surface
    skin: Skin | None
    group: int
    is_static: bool
    shape: ShapeDescription
    instances: Instances = field(default_factory=Instances)

    @property
    def is_plane(self) -> bool:
        """Whether the instances are planes."""
        return self.shape.type is ShapeType.PLANE

    @property
    def height_field(self) -> int | None:
        """Index of the height field that all the instances show, or None."""
        return self.shape.height_field


def instance_groups(
    scene: SceneDescription, endless: float, extend_planes: bool = False, skip: Sequence[ShapeDescription] = ()
) -> list[InstanceGroup]:
    """All visible shapes of a scene.

    Args:
        scene: The scene.
        endless: Half the size that is shown of a plane without an end [m].
        extend_planes: Whether planes that stand still have no end at all, so that one serves several environments.
        skip: Shapes that are shown in another way.
    """
    groups = _Groups(scene)
    for shape in scene.shapes:
        if shape.rgba[3] > 0.0 and shape not in skip:
            size = shape.size.copy()
            if shape.type is ShapeType.PLANE:
                has_end = size[:2] > 0.0 if not (extend_planes and scene.is_static(shape)) else False
                size[:2] = np.where(has_end, size[:2], endless)
            _add_shape(groups, scene, shape, size)
    return groups.all()


def mesh_surface(mesh: MeshDescription) -> tuple[Surface, NDArray[np.float32] | None]:
    """A mesh with one normal and one texture coordinate per vertex.

    Returns:
        The surface, with a vertex for each combination that occurs, and its texture coordinates, `(V, 2)` with (0, 0)
        at the lower left corner of the image, or None.
    """
    corners = [mesh.faces.reshape(-1), mesh.face_normals.reshape(-1)]
    if mesh.face_texcoords is not None:
        corners.append(mesh.face_texcoords.reshape(-1))
    unique, index = np.unique(np.stack(corners, axis=1), axis=0, return_inverse=True)
    surface = Surface(mesh.vertices[unique[:, 0]], mesh.normals[unique[:, 1]], index.reshape(-1, 3).astype(np.int32))
    if mesh.texcoords is None or mesh.face_texcoords is None:
        return surface, None
    # MuJoCo counts texture coordinates from the top of an image.
    return surface, (mesh.texcoords[unique[:, 2]] * (1.0, -1.0) + (0.0, 1.0)).astype(np.float32)


class _Groups:
    """Groups by what their instances have in common."""

    def __init__(self, scene: SceneDescription):
        self._scene = scene
        self._groups: dict[Hashable, InstanceGroup] = {}
        self._surfaces: dict[Hashable, tuple[Surface, NDArray[np.float32] | None]] = {}

    def _surface(self, key: Hashable, shape: ShapeDescription) -> tuple[Surface, NDArray[np.float32] | None]:
        """The geometry of this key, made from the first shape that has it, and its texture coordinates."""
        if key not in self._surfaces:
            self._surfaces[key] = _surface(self._scene, key, shape)
        return self._surfaces[key]

    def plain(self, shape: ShapeDescription, geometry: Hashable) -> Instances:
        """Where an instance of this geometry in a colour of its own belongs."""
        return self._of(shape, geometry, None, lambda surface, texcoords: None)

    def textured(self, shape: ShapeDescription, geometry: Hashable, size: NDArray) -> Instances:
        """Where an instance of this geometry in this shape's material and colour belongs."""
        look = (shape.material, shape.rgba.tobytes())
        return self._of(
            shape, geometry, look, lambda surface, texcoords: skin_of(self._scene, shape, size, surface, texcoords)
        )

    def _of(self, shape: ShapeDescription, geometry: Hashable, look: Hashable, make_skin: Callable[..., Skin | None]):
        is_static = self._scene.is_static(shape)
        key = (geometry, look, shape.group, is_static)
        if key not in self._groups:
            surface, texcoords = self._surface(geometry, shape)
            skin = make_skin(surface, texcoords)
            name = f"{'fixed' if is_static else 'moving'}/{len(self._groups)}_{shape.type.value}"
            self._groups[key] = InstanceGroup(
                name=name,
                surface=skin.surface if skin else surface,
                skin=skin,
                group=shape.group,
                is_static=is_static,
                shape=shape,
            )
        return self._groups[key].instances

    def all(self) -> list[InstanceGroup]:
        return list(self._groups.values())


def with_height_field(scene: SceneDescription, group: InstanceGroup, field: HeightFieldDescription) -> InstanceGroup:
    """A group that shows a height field, with other heights."""
    surface = tessellate_height_field(field)
    skin = None if group.skin is None else skin_of(scene, group.shape, group.shape.size, surface, None)
    return replace(group, surface=surface, skin=skin)


def body_frames(scene: SceneDescription) -> Instances:
    """An instance at the frame of each body, without those that are but points of something soft."""
    bearing = {shape.body for shape in scene.shapes} | {body.parent for body in scene.bodies if body.parent >= 0}
    frames = Instances()
    for body in sorted(bearing):
        frames.bodies.append(body)
        frames.positions.append(np.zeros(3))
        frames.quaternions.append(_IDENTITY)
        frames.scales.append(np.ones(3))
    return frames


def _add_shape(groups: _Groups, scene: SceneDescription, shape: ShapeDescription, size: NDArray) -> None:
    origin = np.zeros(3)
    kind, lengths = _SCALED.get(shape.type, (shape.type, ()))
    if shape.material is not None and scene.materials[shape.material].textures.keys() & {"rgb", "rgba"}:
        if lengths and not scene.materials[shape.material].texture_uniform:
            groups.textured(shape, kind, np.ones(3)).add(shape, size[list(lengths)], origin)
            return
        # The texture lies on the shape at its own size.
        geometry = _asset_key(shape) or (shape.type, *size.tolist())
        groups.textured(shape, geometry, size).add(shape, np.ones(3), origin)
        return
    if lengths:
        groups.plain(shape, kind).add(shape, size[list(lengths)], origin)
    elif shape.type is ShapeType.PLANE:
        groups.plain(shape, ShapeType.PLANE).add(shape, (size[0], size[1], 1.0), origin)
    elif shape.type is ShapeType.CAPSULE:
        radius, half, _ = size
        groups.plain(shape, "tube").add(shape, (radius, radius, half), origin)
        caps = groups.plain(shape, "cap")
        caps.add(shape, np.full(3, radius), np.array((0.0, 0.0, half)))
        caps.add(shape, np.full(3, radius), np.array((0.0, 0.0, -half)), _HALF_TURN_ABOUT_X)
    else:
        groups.plain(shape, _asset_key(shape)).add(shape, np.ones(3), origin)


def _asset_key(shape: ShapeDescription) -> Hashable | None:
    if shape.mesh is not None:
        return ("mesh", shape.mesh)
    return None if shape.height_field is None else ("height_field", shape.height_field)


def _surface(
    scene: SceneDescription, key: Hashable, shape: ShapeDescription
) -> tuple[Surface, NDArray[np.float32] | None]:
    match key:
        case ("mesh", int(index)):
            return mesh_surface(scene.meshes[index])
        case ("height_field", int(index)):
            return tessellate_height_field(scene.height_fields[index]), None
        case "tube":
            return capsule_part(is_cap=False), None
        case "cap":
            return capsule_part(is_cap=True), None
        case ShapeType():
            return tessellate(key, np.array(_UNIT_SIZES[key])), None
        case (ShapeType() as kind, *size):
            return tessellate(kind, np.array(size)), None
    raise ValueError(f"{shape.type.value!r} has no geometry")


def capsule_part(is_cap: bool) -> Surface:
    """The straight part of a capsule of radius and half length 1, or its upper half sphere around the origin."""
    capsule = tessellate(ShapeType.CAPSULE, np.array((1.0, 1.0, 0.0)))
    height = capsule.points[capsule.faces][..., 2]
    if is_cap:
        faces, shift = capsule.faces[(height > 1.0 - 1e-5).all(axis=1)], (0.0, 0.0, -1.0)
    else:
        faces, shift = capsule.faces[(np.abs(height) < 1.0 + 1e-5).all(axis=1)], (0.0, 0.0, 0.0)
    used, index = np.unique(faces, return_inverse=True)
    points = (capsule.points[used] + shift).astype(np.float32)
    return Surface(points, capsule.normals[used], index.reshape(-1, 3).astype(np.int32))


def _product(a: NDArray, b: NDArray) -> NDArray:
    """The rotation `b` and then `a`, both quaternions (4,)."""
    vector = a[3] * b[:3] + b[3] * a[:3] + np.cross(a[:3], b[:3])
    return np.append(vector, a[3] * b[3] - a[:3] @ b[:3])


def _rotated(quaternion: NDArray, point: NDArray) -> NDArray:
    twice = 2.0 * np.cross(quaternion[:3], point)
    return point + quaternion[3] * twice + np.cross(quaternion[:3], twice)
