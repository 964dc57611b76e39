"""From a `SceneDescription` to a `newton.Model` that looks like it, for what draws with Newton's own tools.

The model is made body by body and shape by shape, so that the order of its bodies is that of the published transforms.
It is for looking at: nothing in it has mass, joints or contacts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.optional import optional_libraries
from scene_data.scene import (
    WORLD,
    FlexDescription,
    MaterialDescription,
    SceneDescription,
    ShapeDescription,
    ShapeType,
    TextureType,
)
from scene_data.tessellation import Surface, tessellate_height_field

with optional_libraries("Drawing with Newton"):
    import newton

__all__ = ["NewtonLook", "build_newton_look", "newton_scale"]

_TYPES = {
    ShapeType.PLANE: newton.GeoType.PLANE,
    ShapeType.SPHERE: newton.GeoType.SPHERE,
    ShapeType.CAPSULE: newton.GeoType.CAPSULE,
    ShapeType.CYLINDER: newton.GeoType.CYLINDER,
    ShapeType.ELLIPSOID: newton.GeoType.ELLIPSOID,
    ShapeType.BOX: newton.GeoType.BOX,
    ShapeType.MESH: newton.GeoType.MESH,
    ShapeType.SDF: newton.GeoType.MESH,
    ShapeType.HEIGHT_FIELD: newton.GeoType.MESH,
}


@dataclass(frozen=True, eq=False)
class NewtonLook:
    """A Newton model of some environments of a scene.

    Attributes:
        model: The model. World `i` is environment `i`; what stands in the world itself belongs to no world.
        num_envs: Number of worlds.
        body_count: Bodies of one world; `body_q` has body `b` of world `w` at `w * body_count + b`.
        shapes: Index into `scene.shapes` of each of the model's shapes, int32.
        flexes: Indices of the flexes that are drawn, as triangles; particles are the scene's points, in their order.
        backs: Points (B, 3) of the triangles whose backs are drawn too. Each has three particles of its own, after the
            points of its environment, in the reverse order.
    """

    model: newton.Model
    num_envs: int
    body_count: int
    shapes: NDArray[np.int32]
    flexes: tuple[int, ...]
    backs: NDArray[np.int32]


def build_newton_look(
    scene: SceneDescription,
    device: Any = None,
    num_envs: int | None = None,
    is_drawn: Callable[[ShapeDescription | FlexDescription], bool] = lambda part: True,
    is_shared: Callable[[ShapeDescription], bool] = lambda shape: True,
    mesh_of: Callable[[ShapeDescription], newton.Mesh | None] = lambda shape: None,
    has_backs: bool = False,
) -> NewtonLook:
    """Build a Newton model that looks like a scene.

    Args:
        scene: The scene.
        device: Warp device of the model; None is the default one.
        num_envs: Environments to build, the first ones; None is all.
        is_drawn: Which shapes and flexes are visible. What is transparent altogether never is.
        is_shared: Which of the shapes that stand in the world itself are built once for all environments, which is
            faster; the others are built once for each, and can look different in each.
        mesh_of: The mesh that a shape shows, at its own size; None is what its type says.
        has_backs: Whether cloths get triangles for their backs, for who does not see triangles from behind.

    Raises:
        ValueError: `num_envs` is below 1 or above the scene's.
    """
    worlds = scene.num_envs if num_envs is None else num_envs
    if not 1 <= worlds <= scene.num_envs:
        raise ValueError(f"num_envs must be 1 to {scene.num_envs}, got {num_envs}")
    drawn = [i for i, shape in enumerate(scene.shapes) if shape.rgba[3] > 0.0 and is_drawn(shape)]
    flexes = tuple(i for i, flex in enumerate(scene.flexes) if flex.dim >= 2 and flex.rgba[3] > 0 and is_drawn(flex))
    standing = [index for index in drawn if _stands_in_world(scene, scene.shapes[index].body)]
    global_shapes = [index for index in standing if is_shared(scene.shapes[index])]
    world_shapes = [index for index in drawn if index not in set(global_shapes)]
    sources = _Sources(scene, mesh_of)

    world = newton.ModelBuilder()
    for body, pose in zip(scene.bodies, _default_poses(scene), strict=True):
        world.add_link(xform=wp.transform(*pose), label=body.path_name)
    for index in world_shapes:
        _add_shape(world, scene.shapes[index], scene.shapes[index].body, sources)
    _add_points(world, scene, flexes)
    backs = _add_backs(world, [scene.flexes[i] for i in flexes if has_backs and scene.flexes[i].dim == 2])

    builder = newton.ModelBuilder()
    for index in global_shapes:
        _add_shape(builder, scene.shapes[index], WORLD, sources)
    builder.replicate(world, worlds)
    model = builder.finalize(device=device, skip_all_validations=True)
    shapes = np.array([*global_shapes, *world_shapes * worlds], np.int32)
    return NewtonLook(model, worlds, len(scene.bodies), shapes, flexes, backs)


def _stands_in_world(scene: SceneDescription, body: int) -> bool:
    """Whether a body is the world's own, which is in the same place everywhere: it is built once for all worlds."""
    if body == WORLD:
        return True
    owner = scene.bodies[body]
    is_at_origin = not owner.position.any() and owner.quaternion[3] == 1.0
    return body == 0 and owner.parent == WORLD and owner.is_static and is_at_origin


def _default_poses(scene: SceneDescription) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Position and quaternion of each body in the default configuration, in the environment's frame."""
    poses: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for body in scene.bodies:
        position, quaternion = body.position, body.quaternion
        if body.parent != WORLD:
            origin, turn = (wp.vec3d(*poses[body.parent][0]), wp.quatd(*poses[body.parent][1]))
            placed = wp.transformd(origin, turn) * wp.transformd(wp.vec3d(*position), wp.quatd(*quaternion))
            position, quaternion = np.array(placed.p), np.array(placed.q)
        poses.append((position, quaternion))
    return poses


def _add_shape(builder: newton.ModelBuilder, shape: ShapeDescription, body: int, sources: "_Sources") -> None:
    source = sources.of(shape)
    builder.add_shape(
        body=body,
        type=_TYPES[shape.type] if source is None else newton.GeoType.MESH,
        xform=wp.transform(shape.position, shape.quaternion),
        cfg=newton.ModelBuilder.ShapeConfig(
            density=0.0, collision_group=0, has_shape_collision=False, has_particle_collision=False
        ),
        scale=(1.0, 1.0, 1.0) if source is not None else tuple(newton_scale(shape.type, shape.size).tolist()),
        src=source,
        color=tuple(shape.rgba[:3].tolist()),
        opacity=float(shape.rgba[3]),
        label=shape.path_name,
    )


def newton_scale(kind: ShapeType, sizes: NDArray[Any]) -> NDArray[Any]:
    """What Newton calls the scale (..., 3) of shapes of this type and of these sizes (..., 3)."""
    match kind:
        case ShapeType.MESH | ShapeType.SDF | ShapeType.HEIGHT_FIELD:
            return np.ones_like(sizes)
        case ShapeType.PLANE:
            return sizes * (2.0, 2.0, 0.0)
        case ShapeType.SPHERE:
            return sizes * (1.0, 0.0, 0.0)
        case ShapeType.CAPSULE | ShapeType.CYLINDER:
            return sizes * (1.0, 1.0, 0.0)  # a third number would make a barrel of a cylinder
    return sizes


def _add_points(world: newton.ModelBuilder, scene: SceneDescription, flexes: tuple[int, ...]) -> None:
    """All points of an environment as particles, and the surfaces of these flexes between them."""
    for flex in scene.flexes:
        _add_particles(world, flex.rest_vertices, flex)
    for index in flexes:
        flex = scene.flexes[index]
        faces = (flex.elements if flex.dim == 2 else flex.shell) + flex.vertex_offset
        _add_triangles(world, faces, flex)


def _add_backs(world: newton.ModelBuilder, sheets: Sequence[FlexDescription]) -> NDArray[np.int32]:
    """The triangles of sheets once more, the other way round, with particles of their own; gives the fronts' points."""
    fronts = [np.zeros((0, 3), np.int32)]
    for flex in sheets:
        corners = flex.rest_vertices[flex.elements[:, ::-1].ravel()]
        faces = world.particle_count + np.arange(len(corners)).reshape(-1, 3)
        _add_particles(world, corners, flex)
        _add_triangles(world, faces, flex)
        fronts.append(flex.elements + flex.vertex_offset)
    return np.concatenate(fronts).astype(np.int32)


def _add_particles(world: newton.ModelBuilder, positions: NDArray[Any], flex: FlexDescription) -> None:
    count = len(positions)
    points = [wp.vec3(*position) for position in positions.tolist()]
    world.add_particles(points, [wp.vec3(0.0)] * count, [0.0] * count, [flex.radius] * count)


def _add_triangles(world: newton.ModelBuilder, faces: NDArray[Any], flex: FlexDescription) -> None:
    world.add_triangles(*(faces[:, corner].tolist() for corner in range(3)), color=tuple(flex.rgba[:3].tolist()))


class _Sources:
    """The meshes of a scene as Newton's, each once for each way in which it is painted."""

    def __init__(self, scene: SceneDescription, mesh_of: Callable[[ShapeDescription], newton.Mesh | None]):
        self._scene = scene
        self._mesh_of = mesh_of
        self._made: dict[Any, newton.Mesh] = {}

    def of(self, shape: ShapeDescription) -> newton.Mesh | None:
        """The mesh that a shape shows; None for a primitive."""
        if (given := self._mesh_of(shape)) is not None:
            return given
        if shape.height_field is not None:
            field = self._scene.height_fields[shape.height_field]
            return self._once(("height field", shape.height_field), lambda: _solid(tessellate_height_field(field)))
        if shape.mesh is None:
            return None
        mesh, material = shape.mesh, shape.material
        return self._once((mesh, material), lambda: self._painted(mesh, material))

    def _once(self, key: Any, make: Callable[[], newton.Mesh]) -> newton.Mesh:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _painted(self, index: int, material: int | None) -> newton.Mesh:
        mesh = self._scene.meshes[index]
        paint = None if material is None else self._scene.materials[material]
        texture = None if paint is None or mesh.face_texcoords is None else self._texture(paint)
        # Newton has one normal and one texture coordinate for each vertex: a vertex is there once for each pair.
        parts = [mesh.faces.ravel(), mesh.face_normals.ravel()]
        if texture is not None and mesh.face_texcoords is not None:
            parts.append(mesh.face_texcoords.ravel())
        corners, indices = np.unique(np.stack(parts, axis=1), axis=0, return_inverse=True)
        uvs = None
        if texture is not None and mesh.texcoords is not None and paint is not None:
            # Newton's v runs up the image; that of descriptions runs down.
            uvs = mesh.texcoords[corners[:, 2]] * paint.texture_repeat
            uvs = np.column_stack((uvs[:, 0], 1.0 - uvs[:, 1]))
        return newton.Mesh(
            mesh.vertices[corners[:, 0]],
            indices.ravel().astype(np.int32),
            normals=mesh.normals[corners[:, 1]],
            uvs=uvs,
            compute_inertia=False,
            texture=texture,
        )

    def _texture(self, material: MaterialDescription) -> NDArray[np.uint8] | None:
        role = next((role for role in ("rgb", "rgba") if role in material.textures), None)
        if role is None:
            return None
        texture = self._scene.textures[material.textures[role]]
        return texture.pixels if texture.type is TextureType.PLANAR else None


def _solid(surface: Surface) -> newton.Mesh:
    return newton.Mesh(surface.points, surface.faces.ravel(), normals=surface.normals, compute_inertia=False)
