"""Nodes of PhysX's deformables, in the padded arrays in which it hands them out."""

import warnings
from typing import Any

import ovphysx
import warp as wp
from ovphysx.types import SimObjectType, TensorType

from scene_data.formats import SceneDataFormat

__all__ = ["PaddedNodes", "padded_nodes"]

_KINDS = {
    SimObjectType.DEFORMABLE_VOLUME: TensorType.DEFORMABLE_SIM_NODAL_POSITION,
    SimObjectType.DEFORMABLE_SURFACE: TensorType.SURFACE_DEFORMABLE_SIM_POSITION,
}


class PaddedNodes:
    """World positions of the nodes of several deformables: one row for each, as long as the longest.

    `ovphysx.PhysX.read` has them too, prim by prim and in the frame of each; only its tensor bindings have them in the
    world's, and in one array. They are deprecated there, and without a successor in this.

    Attributes:
        batch: `Points` of the whole array, and where in it each deformable has its nodes, by path.
    """

    def __init__(self, binding: Any, node_counts: dict[str, int], device: wp.Device | None):
        self._binding = binding
        count, length, _ = binding.shape
        self._array = wp.zeros((count, length, 3), dtype=wp.float32, device=device)
        points = SceneDataFormat.Points()
        points.points = self._array.view(wp.vec3f).flatten()
        ranges = {path: (row * length, node_counts[path]) for row, path in enumerate(binding.prim_paths)}
        self.batch = points, ranges

    def read(self) -> None:
        """Have PhysX write the present positions."""
        self._binding.read(self._array)


def padded_nodes(physx: ovphysx.PhysX) -> list[PaddedNodes]:
    """The deformables of a stage: volumes, then surfaces. PhysX simulates them on a GPU alone, so elsewhere none."""
    found = []
    for kind, tensor_type in _KINDS.items():
        node_counts, device = _count_nodes(physx, kind)
        if node_counts:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                binding = physx.create_tensor_binding(prim_paths=list(node_counts), tensor_type=tensor_type)
            found.append(PaddedNodes(binding, node_counts, device))
    return found


def _count_nodes(physx: ovphysx.PhysX, kind: SimObjectType) -> tuple[dict[str, int], wp.Device | None]:
    """Number of nodes of each deformable by path, and where they are."""
    node_counts: dict[str, int] = {}
    device = None
    with physx.read_sync(kind, ["points"]) as result:
        for group in result.groups:
            paths = result.dictionary.get_path_strings(group.prim_list)
            node_counts |= {path: len(nodes) for path, nodes in zip(paths, group.tensors, strict=True)}
            device = group.tensors[0].device
    return node_counts, device
