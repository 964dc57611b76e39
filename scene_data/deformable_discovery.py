"""Deformable bodies that a USD stage declares: their geometry, their clones, and how their visual meshes are read."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

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
    load_usd()
    routes = clone_routes(clone_plan)
    excluded = frozenset(exclude_paths)
    cloned = [route for route in routes if route.envs is not None]
    sources = frozenset(route.source for route in cloned) - excluded
    territory = _Territory(sources, excluded, tuple(route.target for route in cloned))
    starts = sources.union(route.target for route in routes if route.envs is None)
    tops = sorted(start for start in starts if starts.isdisjoint(ancestors(start)[:-1]))
    found = (prim for top in tops if (prim := stage.GetPrimAtPath(top)))
    bodies = (prim for top in found for prim in territory.prims_from(top) if _is_deformable(prim))
    return [entry for prim in bodies if (entry := deformable_entry(prim)) is not None]


@dataclass(frozen=True)
class _Territory:
    """Which paths hold prototypes of ours.

    Attributes:
        sources: Paths of the prototypes that are cloned.
        excluded: Paths that belong to others.
        targets: Templates of the paths where clones are.
    """

    sources: frozenset[str]
    excluded: frozenset[str]
    targets: tuple[str, ...]

    def owns(self, path: str) -> bool:
        """Whether the nearest source at or above a path is ours; without any, whether it is no clone either."""
        for above in reversed(ancestors(path)):
            if above in self.sources:
                return True
            if above in self.excluded:
                return False
        return not any(match_template(path, target) for target in self.targets)

    def prims_from(self, prim: "Usd.Prim") -> "Iterator[Usd.Prim]":
        """Prims of ours at and below a prim. What is foreign is entered only on the way to a source of ours."""
        path = str(prim.GetPath())
        if self.owns(path):
            yield prim
        elif not any(source.startswith(f"{path}/") for source in self.sources):
            return
        for child in prim.GetFilteredChildren(load_usd().Usd.TraverseInstanceProxies()):
            yield from self.prims_from(child)


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
    routes: defaultdict[str, list[CloneRoute]] = defaultdict(list)
    for route in clone_routes(clone_plan):
        if imported_sources is None or route.source in imported_sources:
            routes[route.source].append(route)
    frames = _EnvFrames(env_template(clone_plan), list(map(int, env_ids)), positions)
    specificity: dict[str, int] = {}
    placed: dict[str, DeformableStageEntry] = {}
    for entry in prototypes:
        stay = CloneRoute(entry.root_path, entry.root_path, None)
        leading = [route for path in ancestors(entry.root_path) for route in routes.get(path, ())]
        for route in leading or [stay]:
            for target, offset in frames.destinations(route):
                clone = _moved(entry, route.source, target, offset)
                # Of a parent and a child that are both cloned, the child decides what is below it.
                if len(target) > specificity.get(clone.root_path, -1):
                    specificity[clone.root_path] = len(target)
                    placed[clone.root_path] = clone
    return list(placed.values())


class _EnvFrames:
    """Names and origins of the environments of a plan; without positions, all have one origin."""

    def __init__(self, template: str, env_ids: list[int], positions: NDArray[np.floating] | None):
        self._template = template
        self._ids = env_ids
        self._index = {str(env_id): index for index, env_id in enumerate(env_ids)}
        self._origins = np.zeros((len(env_ids), 3)) if positions is None else np.asarray(positions)

    def destinations(self, route: CloneRoute) -> Iterator[tuple[str, NDArray[np.floating]]]:
        """Paths that a route leads to, and how far from the prototype they are [m]."""
        if route.envs is None:
            yield route.target, np.zeros(3)
            return
        home = self._home(route.source, route.envs[0])
        for env in route.envs:
            yield route.target.format(self._ids[env]), self._origins[env] - home

    def _home(self, source: str, first: int) -> NDArray[np.floating]:
        """Origin of a prototype: of its environment, or of the first clone's if that is none of the plan's."""
        match = match_template(source, self._template)
        return self._origins[self._index.get(match[0], first)] if match else np.zeros(3)


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
    tables = _WeightTables(device)
    seen_as_nodes: dict[str, tuple[int, int]] = {}
    carried: list[tuple[DeformableStageEntry, int, _WeightTable]] = []
    for entry, first_node in zip(entries, map(int, offsets), strict=True):
        if (table := tables.of(entry)) is None:
            seen_as_nodes[entry.vis_mesh_path] = (first_node, entry.vis_vertex_count)
        else:
            carried.append((entry, first_node, table))
    batches: list[tuple[Any, dict[str, tuple[int, int]]]] = []
    if seen_as_nodes:
        batches.append((SceneDataFormat.Points(), seen_as_nodes))
    if carried:
        batches.append(_weighted_batch(carried, device))
    return batches


class _WeightTable(NamedTuple):
    """Nodes of each visual vertex of a prototype, counted from its first one, and their weights."""

    nodes: NDArray[np.int32]
    weights: NDArray[np.float32]


class _WeightTables:
    """Tables by prototype, which its clones are known by: they share its arrays."""

    def __init__(self, device: str):
        self._device = device
        self._found: dict[tuple[int, int, int], _WeightTable | None] = {}

    def of(self, entry: DeformableStageEntry) -> _WeightTable | None:
        """The table of a body, or None if its visual vertices are its nodes."""
        prototype = (id(entry.vertices), id(entry.indices), id(entry.vis_vertices))
        if prototype not in self._found:
            own = not np.array_equal(entry.vertices, entry.vis_vertices)
            self._found[prototype] = self._find(entry) if own else None
        return self._found[prototype]

    def _find(self, entry: DeformableStageEntry) -> _WeightTable:
        if entry.deformable_type == "surface":
            raise ValueError(f"The surface {entry.root_path} is seen as a mesh that differs from its simulation nodes.")
        remap = build_volume_vis_barycentric_remap(entry.vertices, entry.indices, entry.vis_vertices, self._device)
        if remap is None:
            raise ValueError(f"No tetrahedron of {entry.root_path} can carry its visual mesh {entry.vis_mesh_path}.")
        return _WeightTable(remap.tet_vertex_indices.numpy(), remap.bary_weights.numpy())


def _weighted_batch(
    carried: Sequence[tuple[DeformableStageEntry, int, _WeightTable]], device: str
) -> tuple[Any, dict[str, tuple[int, int]]]:
    count = sum(entry.vis_vertex_count for entry, _, _ in carried)
    nodes, weights = np.empty((count, 4), dtype=np.int32), np.empty((count, 4), dtype=np.float32)
    ranges: dict[str, tuple[int, int]] = {}
    row = 0
    for entry, first_node, table in carried:
        rows = slice(row, row + entry.vis_vertex_count)
        np.add(table.nodes, first_node, out=nodes[rows])
        weights[rows] = table.weights
        ranges[entry.vis_mesh_path] = (row, entry.vis_vertex_count)
        row = rows.stop
    batch = SceneDataFormat.WeightedPoints()
    batch.indices = wp.array(nodes, dtype=wp.int32, device=device)
    batch.weights = wp.array(weights, dtype=wp.float32, device=device)
    return batch, ranges
