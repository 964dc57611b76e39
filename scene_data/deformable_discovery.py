"""Deformable bodies that a USD stage declares: their geometry, their clones, and how their visual meshes are read."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.clone_routes import CloneRoute, ancestors, clone_routes, env_template, match_template, rebase
from scene_data.deformable_body import DeformableStageEntry, applied_schemas, deformable_entry, load_usd
from scene_data.deformable_vis_remap import build_volume_vis_barycentric_remap
from scene_data.formats import SceneDataFormat

if TYPE_CHECKING:
    from pxr import Usd

__all__ = [
    "DeformableStageEntry",
    "deformable_entry",
    "deformable_geometry_batches",
    "deformable_prototypes",
    "expand_deformable_entries",
]

_BODY_APIS = frozenset({"OmniPhysicsDeformableBodyAPI", "PhysicsDeformableBodyAPI"})


# Prototypes on a stage


def deformable_prototypes(
    stage: "Usd.Stage", clone_plan: Any, exclude_paths: Sequence[str] = ()
) -> list[DeformableStageEntry]:
    """Read the deformable bodies of a plan's prototypes, and never one of their clones.

    Args:
        stage: Where the prototypes are authored.
        clone_plan: A plan as `scene_data.clone_routes.clone_routes` takes it.
        exclude_paths: Sources that others take care of. What they hold is left out, also below a shared path, save
            for the sources below them that the plan has too.

    Returns:
        One entry for each body, also if several routes lead from it.

    Raises:
        MissingDependencyError: USD is not installed.
    """
    Usd = load_usd().Usd
    routes = clone_routes(clone_plan)
    excluded = set(exclude_paths)
    sources = {route.source for route in routes if route.envs is not None} - excluded
    targets = [route.target for route in routes if route.envs is not None]
    roots = sources | {route.target for route in routes if route.envs is None}
    entries = []
    for root in sorted(roots):
        if roots.intersection(ancestors(root)[:-1]):
            continue
        prims = iter(Usd.PrimRange(stage.GetPrimAtPath(root), Usd.TraverseInstanceProxies()))
        for prim in prims:
            path = str(prim.GetPath())
            if not _is_prototype(path, sources, excluded, targets):
                if not any(source.startswith(f"{path}/") for source in sources):
                    prims.PruneChildren()
            elif _is_deformable(prim) and (entry := deformable_entry(prim)) is not None:
                entries.append(entry)
    return entries


def _is_prototype(path: str, sources: Collection[str], excluded: Collection[str], targets: Sequence[str]) -> bool:
    """Whether the nearest source at or above a path is ours; without any, whether it is no clone either."""
    for owner in reversed(ancestors(path)):
        if owner in sources or owner in excluded:
            return owner in sources
    return not any(match_template(path, target) for target in targets)


def _is_deformable(prim: "Usd.Prim") -> bool:
    UsdGeom = load_usd().UsdGeom
    particles = prim.IsA(UsdGeom.Points) or prim.IsA(UsdGeom.BasisCurves)
    return not particles and not _BODY_APIS.isdisjoint(applied_schemas(prim))


# Cloning, without a stage


def expand_deformable_entries(
    prototypes: Sequence[DeformableStageEntry],
    clone_plan: Any,
    env_ids: Sequence[int] | NDArray[np.integer],
    positions: NDArray[np.floating] | None = None,
    *,
    imported_sources: Collection[str] | None = None,
) -> list[DeformableStageEntry]:
    """Repeat prototypes wherever a plan puts them.

    Args:
        prototypes: What `deformable_prototypes` read.
        clone_plan: The plan.
        env_ids: The index in the path of each of the plan's environments, shape (num_envs,).
        positions: Origin of each environment [m], shape (num_envs, 3); None leaves all where their prototype is.
        imported_sources: Sources that are cloned; None is all of the plan's.

    Returns:
        One entry for each body in each environment, in the order of the prototypes. A clone shares the arrays of its
        prototype, and its frame is moved by how far its environment is from the prototype's. Where several routes
        lead to one path, the most specific one has it. What no route leads from stays as it is, once.
    """
    cloned = {str(env_id): env for env, env_id in enumerate(env_ids)}
    routes: defaultdict[str, list[CloneRoute]] = defaultdict(list)
    for route in clone_routes(clone_plan):
        if imported_sources is None or route.source in imported_sources:
            routes[route.source].append(route)
    placed: dict[str, tuple[int, DeformableStageEntry]] = {}
    for entry in prototypes:
        leading = [route for path in ancestors(entry.root_path) for route in routes.get(path, ())]
        if not leading:
            placed[entry.root_path] = (len(entry.root_path), entry)
        for route in leading:
            origin = _origin(route, env_template(clone_plan), cloned, positions)
            for env in (None,) if route.envs is None else route.envs:
                target = route.target if env is None else route.target.format(int(env_ids[env]))
                offset = np.zeros(3) if env is None or positions is None else positions[env] - origin
                clone = _moved(entry, route.source, target, offset)
                # Of a parent and a child that are both cloned, the child decides what is below it.
                if len(target) > placed.get(clone.root_path, (-1, None))[0]:
                    placed[clone.root_path] = (len(target), clone)
    return [entry for _, entry in placed.values()]


def _origin(
    route: CloneRoute, template: str, cloned: dict[str, int], positions: NDArray[np.floating] | None
) -> NDArray[np.floating]:
    """Origin of the environment that a prototype is authored in; zero if it stands outside of all."""
    match = match_template(route.source, template)
    if positions is None or not route.envs or not match:
        return np.zeros(3)
    return positions[cloned.get(match[0], route.envs[0])]


def _moved(entry: DeformableStageEntry, source: str, target: str, offset: NDArray[np.floating]) -> DeformableStageEntry:
    x, y, z = (float(length + shift) for length, shift in zip(entry.init_pos, offset, strict=True))
    return replace(
        entry,
        root_path=rebase(entry.root_path, source, target),
        sim_mesh_path=rebase(entry.sim_mesh_path, source, target),
        vis_mesh_path=rebase(entry.vis_mesh_path, source, target),
        init_pos=(x, y, z),
    )


# Reading visual meshes from simulation nodes


def deformable_geometry_batches(
    entries: Sequence[DeformableStageEntry], offsets: Sequence[int], device: str
) -> list[tuple[Any, dict[str, tuple[int, int]]]]:
    """Bind the visual meshes of bodies to an engine's array of simulation nodes.

    Args:
        entries: Bodies in the order of the engine. The weights of a prototype are found once, for all its clones.
        offsets: Index in the engine's array of each body's first node, one for each entry.
        device: Where the weights go.

    Returns:
        Batches as `SceneDataBackend.get_geometry_batches` returns them, whose `points` the engine has to bind:
        `Points` with the bodies that are seen as they are simulated, `WeightedPoints` with the others; without those
        that would be empty.

    Raises:
        ValueError: There is not one offset for each entry, a surface is seen as another mesh than its nodes, or no
            tetrahedron can carry a visual mesh.
    """
    direct: dict[str, tuple[int, int]] = {}
    weighted: dict[str, tuple[int, int]] = {}
    tables: dict[tuple[int, ...], tuple[NDArray[np.int32], NDArray[np.float32]] | None] = {}
    indices, weights, end = [], [], 0
    for entry, offset in zip(entries, offsets, strict=True):
        prototype = (id(entry.vertices), id(entry.indices), id(entry.vis_vertices))
        if prototype not in tables:
            tables[prototype] = _interpolation(entry, device)
        table = tables[prototype]
        if table is None:
            direct[entry.vis_mesh_path] = (int(offset), entry.vis_vertex_count)
        else:
            indices.append(table[0] + np.int32(offset))
            weights.append(table[1])
            weighted[entry.vis_mesh_path] = (end, entry.vis_vertex_count)
            end += entry.vis_vertex_count
    batches: list[tuple[Any, dict[str, tuple[int, int]]]] = [(SceneDataFormat.Points(), direct)] if direct else []
    if weighted:
        publication = SceneDataFormat.WeightedPoints()
        publication.indices = wp.array(np.concatenate(indices), dtype=wp.int32, device=device)
        publication.weights = wp.array(np.concatenate(weights), dtype=wp.float32, device=device)
        batches.append((publication, weighted))
    return batches


def _interpolation(entry: DeformableStageEntry, device: str) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
    """Nodes and weights of each visual vertex, or None if the visual vertices are the nodes."""
    if entry.vertices is entry.vis_vertices or np.array_equal(entry.vertices, entry.vis_vertices):
        return None
    if entry.deformable_type != "volume":
        raise ValueError(f"The surface {entry.root_path} is seen as a mesh that differs from its simulation nodes.")
    remap = build_volume_vis_barycentric_remap(entry.vertices, entry.indices, entry.vis_vertices, device)
    if remap is None:
        raise ValueError(f"No tetrahedron of {entry.root_path} can carry its visual mesh {entry.vis_mesh_path}.")
    return remap.tet_vertex_indices.numpy(), remap.bary_weights.numpy()
