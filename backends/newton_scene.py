"""From a Newton model to a `SceneDescription`: the first world, and how often it is cloned."""

from types import MappingProxyType

import newton
import numpy as np
from numpy.typing import NDArray

from scene_data.backends.newton_assets import NewtonAssets
from scene_data.backends.newton_worlds import NewtonWorlds, array_or_empty
from scene_data.scene import (
    BodyDescription,
    ClonePlan,
    FlexDescription,
    FreeCameraDescription,
    SceneDescription,
    ShapeDescription,
    ShapeType,
    StatisticsDescription,
    frozen,
)
from scene_data.usd_paths import unique_identifiers

__all__ = ["describe_newton_model"]

_SHAPE_TYPES = {
    newton.GeoType.PLANE: ShapeType.PLANE,
    newton.GeoType.HFIELD: ShapeType.HEIGHT_FIELD,
    newton.GeoType.SPHERE: ShapeType.SPHERE,
    newton.GeoType.CAPSULE: ShapeType.CAPSULE,
    newton.GeoType.ELLIPSOID: ShapeType.ELLIPSOID,
    newton.GeoType.CYLINDER: ShapeType.CYLINDER,
    newton.GeoType.BOX: ShapeType.BOX,
    newton.GeoType.MESH: ShapeType.MESH,
    newton.GeoType.CONVEX_MESH: ShapeType.MESH,
    newton.GeoType.CONE: ShapeType.MESH,
}
_VISIBLE_GROUP, _HIDDEN_GROUP = 0, 3
_WORLD = -1


def describe_newton_model(model: newton.Model, worlds: NewtonWorlds) -> SceneDescription:
    """Describe a model whose worlds are copies of each other.

    Bodies and points keep Newton's order, so that published arrays need no mapping. There is no world body: what is
    fixed to the world, in the worlds or outside of them, has body -1, and its pose is in the world frame. Shapes that
    Newton hides are in group 3. Colours are the first world's.

    Args:
        model: A finalized model. It is copied from, except that `native("newton_model")` is the model itself.
        worlds: Its worlds.

    Raises:
        ValueError: The worlds are not copies of each other, or bodies or particles belong to none of them.
    """
    if worlds.difference is not None:
        raise ValueError(
            f"A scene is described as one environment and its clones, and {worlds.difference}. "
            "Its poses and points can be read all the same."
        )
    for what, members in (("bodies", worlds.bodies), ("particles", worlds.particles)):
        if len(members[-1]):
            raise ValueError(
                f"A scene is described as one environment and its clones, and {len(members[-1])} {what} of this one "
                "are in none of its worlds. Their poses and points can be read all the same."
            )
    body_names, deformable_names = worlds.prototype_names
    assets = NewtonAssets()
    shapes = _shapes(model, worlds, body_names, assets)
    poses = _default_poses(model)
    center, extent = _bounds(model, worlds, poses)
    mass = array_or_empty(model.body_mass)[worlds.bodies[0]]
    return SceneDescription(
        name="newton",
        bodies=_bodies(model, worlds, body_names, poses),
        shapes=shapes,
        meshes=tuple(assets.meshes),
        materials=tuple(assets.materials),
        textures=tuple(assets.textures),
        height_fields=tuple(assets.height_fields),
        flexes=_flexes(model, worlds, deformable_names),
        free_camera=FreeCameraDescription(lookat=center, distance=1.5 * extent),
        center=center,
        extent=extent,
        near=0.01 * extent,
        far=50.0 * extent,
        statistics=StatisticsDescription(mean_mass=float(mass.mean()) if mass.size else 1.0, mean_size=0.1 * extent),
        clone_plan=ClonePlan(worlds.num_envs),
        natives=MappingProxyType({"newton_model": model}),
    )


def _default_poses(model: newton.Model) -> NDArray[np.float32]:
    """Poses of all bodies as the model's joint coordinates have them: a model may be finalized with others."""
    state = model.state()
    if model.articulation_count:
        newton.eval_fk(model, model.joint_q, model.joint_qd, state)
    return array_or_empty(state.body_q).reshape(-1, 7)


def _bodies(
    model: newton.Model, worlds: NewtonWorlds, path_names: tuple[str, ...], poses: NDArray[np.float32]
) -> tuple[BodyDescription, ...]:
    masses = array_or_empty(model.body_mass)
    flags = array_or_empty(model.body_flags)
    fixed = _fixed_bodies(model)
    bodies = []
    for body, path_name in zip(worlds.bodies[0], path_names, strict=True):
        parent = int(worlds.parents[body])
        position, quaternion = _relative_pose(poses[parent], poses[body]) if parent >= 0 else np.split(poses[body], [3])
        bodies.append(
            BodyDescription(
                name=model.body_label[body],
                path_name=path_name,
                parent=parent - int(worlds.bodies[0][0]) if parent >= 0 else _WORLD,
                position=frozen(position, np.float64),
                quaternion=frozen(quaternion, np.float64),
                mass=float(masses[body]),
                is_static=bool(fixed[body]),
                is_mocap=bool(flags[body] & newton.BodyFlags.KINEMATIC),
            )
        )
    return tuple(bodies)


def _shapes(
    model: newton.Model, worlds: NewtonWorlds, body_names: tuple[str, ...], assets: NewtonAssets
) -> tuple[ShapeDescription, ...]:
    # What is outside of the worlds stands in every one of them.
    indices = np.concatenate([worlds.shapes[-1], worlds.shapes[0]])
    types = array_or_empty(model.shape_type)
    drawn = [int(index) for index in indices if newton.GeoType(types[index]) in _SHAPE_TYPES]
    first_body = int(worlds.bodies[0][0]) if len(worlds.bodies[0]) else 0
    bodies = [int(body) - first_body if body >= 0 else _WORLD for body in array_or_empty(model.shape_body)[drawn]]
    path_names = _shape_paths([model.shape_label[index] for index in drawn], bodies, body_names)
    poses = array_or_empty(model.shape_transform)
    scales = array_or_empty(model.shape_scale)
    colors = np.column_stack((array_or_empty(model.shape_color), array_or_empty(model.shape_opacity)))
    flags = array_or_empty(model.shape_flags)
    shapes = []
    for index, body, path_name in zip(drawn, bodies, path_names, strict=True):
        kind = newton.GeoType(types[index])
        look = assets.add(kind, model.shape_source[index], scales[index], colors[index])
        shapes.append(
            ShapeDescription(
                name=model.shape_label[index],
                path_name=path_name,
                body=body,
                position=frozen(poses[index][:3], np.float64),
                quaternion=frozen(poses[index][3:], np.float64),
                type=_SHAPE_TYPES[kind],
                size=frozen(look.size, np.float64),
                mesh=look.mesh,
                height_field=look.height_field,
                material=look.material,
                rgba=frozen(colors[index], np.float32),
                group=_VISIBLE_GROUP if flags[index] & newton.ShapeFlags.VISIBLE else _HIDDEN_GROUP,
                casts_shadow=True,
                collides=bool(flags[index] & (newton.ShapeFlags.COLLIDE_SHAPES | newton.ShapeFlags.COLLIDE_PARTICLES)),
            )
        )
    return tuple(shapes)


def _shape_paths(labels: list[str], bodies: list[int], body_names: tuple[str, ...]) -> list[str]:
    paths = [""] * len(labels)
    for body in sorted(set(bodies)):
        root = body_names[body] + "/" if body >= 0 else ""
        taken = {name.removeprefix(root).split("/")[0] for name in body_names if name.startswith(root)}
        members = [index for index, owner in enumerate(bodies) if owner == body]
        leaves = unique_identifiers([labels[index].split("/")[-1] for index in members], "shape", taken)
        for index, leaf in zip(members, leaves, strict=True):
            paths[index] = root + leaf
    return paths


def _flexes(model: newton.Model, worlds: NewtonWorlds, path_names: tuple[str, ...]) -> tuple[FlexDescription, ...]:
    first = int(worlds.particles[0][0]) if len(worlds.particles[0]) else 0
    positions = array_or_empty(model.particle_q)
    radii = array_or_empty(model.particle_radius)
    triangles = array_or_empty(model.tri_indices).reshape(-1, 3)
    tetrahedra = array_or_empty(model.tet_indices).reshape(-1, 4)
    colors = array_or_empty(model.tri_color)
    flexes = []
    for deformable, path_name in zip(worlds.deformables[0], path_names, strict=True):
        if deformable.kind == "curve":
            continue
        # Particles without a mesh are points all the same, and keep their place among them.
        elements = {"surface": triangles, "volume": tetrahedra}.get(deformable.kind, np.zeros((0, 2), np.int32))
        elements = elements[deformable.element_start : deformable.element_end] - deformable.start
        is_surface = deformable.kind == "surface" and len(elements)
        rgb = colors[deformable.element_start] if is_surface and colors.size else (0.6, 0.7, 0.8)
        flexes.append(
            FlexDescription(
                name=deformable.label,
                path_name=path_name,
                dim=elements.shape[1] - 1,
                vertex_offset=deformable.start - first,
                vertex_count=deformable.end - deformable.start,
                rest_vertices=frozen(positions[deformable.start : deformable.end], np.float32),
                elements=frozen(elements, np.int32),
                edges=frozen(_facets(elements, 2)[0], np.int32),
                shell=frozen(_shell(elements), np.int32),
                radius=float(radii[deformable.start]) if deformable.end > deformable.start else 0.0,
                texcoords=None,
                element_texcoords=None,
                element_materials=frozen(np.full(len(elements), -1), np.int32),
                rgba=frozen((*rgb, 1.0), np.float32),
                group=_VISIBLE_GROUP,
                flat_shading=False,
            )
        )
    return tuple(flexes)


def _facets(elements: NDArray[np.int32], size: int) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """The parts of `size` corners that elements have, each once, in a winding of its own, and how many have it."""
    # The winding of a tetrahedron's faces is outward for these; of an edge it does not matter.
    corners = {
        (4, 3): [(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)],
        (4, 2): [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)],
    }
    chosen = corners.get((elements.shape[1], size), [(0, 1), (1, 2), (2, 0)] if elements.shape[1] == 3 else [(0, 1)])
    facets = np.concatenate([elements[:, list(columns)] for columns in chosen])
    _, first, counts = np.unique(np.sort(facets, axis=1), axis=0, return_index=True, return_counts=True)
    return facets[first], counts


def _shell(elements: NDArray[np.int32]) -> NDArray[np.int32]:
    """Facets that only one element has: the surface of a solid, the border of a cloth."""
    facets, counts = _facets(elements, max(elements.shape[1] - 1, 2))
    return facets[counts == 1]


def _fixed_bodies(model: newton.Model) -> NDArray[np.bool_]:
    fixed = np.zeros(model.body_count, bool)
    joints = zip(
        *(array_or_empty(array) for array in (model.joint_type, model.joint_parent, model.joint_child)), strict=True
    )
    for kind, parent, child in joints:  # parents come first
        fixed[child] = kind == newton.JointType.FIXED and (parent < 0 or fixed[parent])
    return fixed


def _relative_pose(parent: NDArray[np.float32], child: NDArray[np.float32]) -> tuple[NDArray, NDArray]:
    inverse = parent[3:].astype(np.float64) * (-1, -1, -1, 1)
    position = _rotate(inverse, child[:3].astype(np.float64) - parent[:3])
    return position, _multiply(inverse, child[3:].astype(np.float64))


def _rotate(quaternion: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    twice = 2.0 * np.cross(quaternion[:3], vector)
    return vector + quaternion[3] * twice + np.cross(quaternion[:3], twice)


def _multiply(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    vector = left[3] * right[:3] + right[3] * left[:3] + np.cross(left[:3], right[:3])
    return np.array([*vector, left[3] * right[3] - left[:3] @ right[:3]])


def _bounds(model: newton.Model, worlds: NewtonWorlds, poses: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Middle and size of the first world; infinite planes do not count."""
    shapes = worlds.shapes[0]
    shapes = shapes[array_or_empty(model.shape_type)[shapes] != newton.GeoType.PLANE]
    centers = array_or_empty(model.shape_transform).reshape(-1, 7)[shapes, :3].astype(np.float64)
    for center, body in zip(centers, array_or_empty(model.shape_body)[shapes], strict=True):
        if body >= 0:
            center[:] = poses[body, :3] + _rotate(poses[body, 3:].astype(np.float64), center)
    radii = array_or_empty(model.shape_collision_radius)[shapes, None]
    particles = array_or_empty(model.particle_q).reshape(-1, 3)[worlds.particles[0]]
    corners = np.concatenate([particles, centers - radii, centers + radii])
    if not len(corners):
        return frozen((0, 0, 0), np.float64), 1.0
    low, high = corners.min(axis=0), corners.max(axis=0)
    return frozen((low + high) / 2, np.float64), float(max(np.linalg.norm(high - low) / 2, 1e-3))
