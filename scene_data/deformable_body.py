"""A deformable body as a USD stage declares it."""

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scene_data.errors import MissingDependencyError

if TYPE_CHECKING:
    from pxr import Usd

__all__ = ["DeformableStageEntry", "applied_schemas", "deformable_entry", "load_usd"]

_log = logging.getLogger(__name__)

_SIMULATED = "DeformableSimAPI"
_VISUAL_NAMES = ("visual", "render", "display", "proxy")


@dataclass
class DeformableStageEntry:
    """A deformable body: a prototype, or a clone that shares the arrays of its prototype.

    Positions are in the frame that its parent has in the world, without the parent's scale, which is in the positions.

    Attributes:
        root_path: Path of the prim that is declared to be deformable.
        sim_mesh_path: Path of the mesh that is simulated.
        vis_mesh_path: Path of the mesh that is seen, which may be the same.
        deformable_type: "volume" (tetrahedra) or "surface" (triangles).
        vertex_count: Number of simulation nodes.
        vis_vertex_count: Number of visual vertices.
        vertices: Simulation nodes [m], float32 of shape (vertex_count, 3).
        indices: Nodes of the tetrahedra, or of the faces of a surface, int32, flat.
        vis_vertices: Visual vertices [m], float32 of shape (vis_vertex_count, 3).
        vis_indices: Vertices of the visual faces, int32, flat; empty for a tetrahedral mesh.
        init_pos: Position of the parent's frame in the world [m].
        init_rot: Orientation of the parent's frame in the world, a unit quaternion (x, y, z, w).
    """

    root_path: str
    sim_mesh_path: str
    vis_mesh_path: str
    deformable_type: str
    vertex_count: int
    vis_vertex_count: int
    vertices: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 3), np.float32))
    indices: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    vis_vertices: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 3), np.float32))
    vis_indices: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    init_pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    init_rot: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)


def deformable_entry(root_prim: "Usd.Prim") -> DeformableStageEntry | None:
    """Read the deformable body that a prim declares.

    A tetrahedral mesh at or below the prim makes it a volume, any other a surface; of several, one with a simulation
    schema is taken, else the nearest. It is seen as the other mesh below the prim; of several, beside the simulated
    one is better than elsewhere, then a name that speaks of visuals, then as many points.

    Args:
        root_prim: Prim with a deformable-body schema.

    Returns:
        The body, or None (with a warning) if nothing at or below the prim can be simulated.

    Raises:
        MissingDependencyError: USD is not installed.
    """
    meshes = _meshes(root_prim)
    if not meshes:
        _log.warning("Skipping deformable prim '%s': no mesh with points to simulate.", root_prim.GetPath())
        return None
    # Equals stay in order, nearest first.
    sim_prim = min(meshes, key=lambda prim: (not _is_tetrahedral(prim), not _is_simulated(prim)))
    vis_prim = _seen_as(sim_prim, meshes)
    if sum(map(_is_tetrahedral, meshes)) > 1:
        _log.warning("%s holds several tetrahedral meshes; only %s is used.", root_prim.GetPath(), sim_prim.GetPath())
    frame = _Frame(root_prim.GetParent())
    nodes = frame.points(sim_prim)
    seen = nodes if vis_prim == sim_prim else frame.points(vis_prim)
    return DeformableStageEntry(
        root_path=str(root_prim.GetPath()),
        sim_mesh_path=str(sim_prim.GetPath()),
        vis_mesh_path=str(vis_prim.GetPath()),
        deformable_type="volume" if _is_tetrahedral(sim_prim) else "surface",
        vertex_count=len(nodes),
        vis_vertex_count=len(seen),
        vertices=nodes,
        indices=_indices(sim_prim),
        vis_vertices=seen,
        vis_indices=np.empty(0, dtype=np.int32) if _is_tetrahedral(vis_prim) else _indices(vis_prim),
        init_pos=frame.position,
        init_rot=frame.orientation,
    )


def applied_schemas(prim: "Usd.Prim") -> list[str]:
    """API schemas of a prim."""
    # Unlike `GetAppliedSchemas`, this has those that no plugin of this USD knows.
    return prim.GetPrimTypeInfo().GetAppliedAPISchemas()


def _meshes(root_prim: "Usd.Prim") -> "list[Usd.Prim]":
    """Meshes with points at and below a prim, nearest first."""
    below = load_usd().Usd.PrimRange(root_prim, load_usd().Usd.TraverseInstanceProxies())
    meshes = [prim for prim in below if prim.GetTypeName() in ("TetMesh", "Mesh") and _point_count(prim)]
    return sorted(meshes, key=lambda prim: prim.GetPath().pathElementCount)


def _is_tetrahedral(prim: "Usd.Prim") -> bool:
    return prim.GetTypeName() == "TetMesh"


def _is_simulated(prim: "Usd.Prim") -> bool:
    return any(_SIMULATED in schema for schema in applied_schemas(prim))


def _seen_as(sim_prim: "Usd.Prim", meshes: "list[Usd.Prim]") -> "Usd.Prim":
    """The visual mesh of a simulated one; a surface that only its place makes the simulated one is seen as itself."""
    if not _is_tetrahedral(sim_prim) and not _is_simulated(sim_prim):
        return sim_prim
    visual = [prim for prim in meshes if not _is_tetrahedral(prim) and not _is_simulated(prim)]
    return max(visual, key=lambda prim: _visual_rank(prim, sim_prim), default=sim_prim)


def _visual_rank(prim: "Usd.Prim", sim_prim: "Usd.Prim") -> tuple[Any, ...]:
    name, path = prim.GetName().lower(), prim.GetPath()
    return (
        prim.GetParent() == sim_prim.GetParent(),
        any(word in name for word in _VISUAL_NAMES),
        _point_count(prim) == _point_count(sim_prim),
        -path.pathElementCount,
        str(path),
    )


def _point_count(prim: "Usd.Prim") -> int:
    return len(load_usd().UsdGeom.PointBased(prim).GetPointsAttr().Get() or ())


def _indices(prim: "Usd.Prim") -> NDArray[np.int32]:
    """Nodes of the tetrahedra, or vertices of the faces, of a mesh."""
    UsdGeom = load_usd().UsdGeom
    if _is_tetrahedral(prim):
        indices = UsdGeom.TetMesh(prim).GetTetVertexIndicesAttr().Get()
    else:
        indices = UsdGeom.Mesh(prim).GetFaceVertexIndicesAttr().Get()
    return np.asarray(() if indices is None else indices, dtype=np.int32).reshape(-1)


class _Frame:
    """The rigid part of a prim's pose in the world."""

    def __init__(self, prim: "Usd.Prim"):
        UsdGeom = load_usd().UsdGeom
        stage = prim.GetStage()
        # USD takes a stage that says nothing for centimetres; simulators mean metres.
        self._metres = UsdGeom.GetStageMetersPerUnit(stage) if UsdGeom.StageHasAuthoredMetersPerUnit(stage) else 1.0
        self._poses = UsdGeom.XformCache()
        self._rigid = self._poses.GetLocalToWorldTransform(prim).RemoveScaleShear()
        x, y, z = (self._metres * length for length in self._rigid.ExtractTranslation())
        self.position = (x, y, z)
        rotation = self._rigid.ExtractRotationQuat().GetNormalized()
        x, y, z = rotation.GetImaginary()
        self.orientation = (x, y, z, rotation.GetReal())

    def points(self, prim: "Usd.Prim") -> NDArray[np.float32]:
        """Points of a mesh in this frame [m]."""
        points = np.asarray(load_usd().UsdGeom.PointBased(prim).GetPointsAttr().Get(), dtype=np.float64)
        # Points are rows, which USD multiplies from the left.
        matrix = np.asarray(self._poses.GetLocalToWorldTransform(prim) * self._rigid.GetInverse())
        return (self._metres * (points @ matrix[:3, :3] + matrix[3, :3])).astype(np.float32)


def load_usd() -> Any:
    """The package `pxr` with its modules `Usd` and `UsdGeom`. MissingDependencyError if it is not installed."""
    try:
        import pxr.Usd
        import pxr.UsdGeom
    except ImportError as error:
        raise MissingDependencyError("pxr", "usd", "Reading deformables from a USD stage") from error
    return pxr
