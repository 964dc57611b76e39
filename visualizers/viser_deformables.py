"""Cloth, solids, skins, cables and tendons in viser: meshes and lines whose points are sent again and again."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

from .deforming import DeformingAsset, DeformingPoints, deforming_assets, for_all_envs, with_texture
from .viser_updates import send_update

__all__ = ["ViserDeformables"]


class ViserDeformables:
    """What changes its form.

    Each is one mesh, and all lines of one thickness and group are one, over all the environments that are shown.

    Args:
        server: Where to show it.
        root: Path of the node to put it below.
        provider: Publishes the points.
        scene: What there is.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.

    Attributes:
        handles: Visibility group and viser handle of everything.
    """

    def __init__(
        self,
        server: viser.ViserServer,
        root: str,
        provider: SceneDataProvider,
        scene: SceneDescription,
        env_ids: NDArray[np.int64],
        offsets: NDArray[np.float64],
    ):
        self._server = server
        self._scene = scene
        self._env_count = len(env_ids)
        self.handles: list[tuple[int, Any]] = []
        self._parts: list[tuple[Any, str, slice | NDArray[np.int64]]] = []
        assets = deforming_assets(scene) if len(env_ids) else []
        self._points = DeformingPoints(provider, scene, assets, env_ids, offsets)
        self.read()
        lines: dict[tuple[float, int], list[int]] = {}
        for index, asset in enumerate(assets):
            if asset.elements.shape[1] == 3:
                self._add_mesh(f"{root}/deforming/{index}", asset, self._points.rows(index))
            else:
                lines.setdefault((asset.thickness, asset.group), []).append(index)
        for number, ((thickness, group), indices) in enumerate(lines.items()):
            chosen = [(assets[index], self._points.starts[index]) for index in indices]
            self._add_lines(f"{root}/lines/{number}", thickness, group, chosen)

    def read(self) -> None:
        """Fetch the points of the present state."""
        self._points.read()

    def send(self) -> None:
        """Send what has moved and can be seen."""
        for handle, name, rows in self._parts:
            points = self._points.shown[rows]
            if handle.visible and not np.array_equal(points, getattr(handle, name)):
                send_update(handle, **{name: points.copy()})

    def _add_mesh(self, name: str, asset: DeformingAsset, rows: slice) -> None:
        # viser puts no image on a mesh whose points move.
        rgba = with_texture(self._scene, asset)
        handle = self._server.scene.add_mesh_simple(
            name,
            self._points.shown[rows],
            for_all_envs(asset.elements, asset.count, self._env_count),
            color=tuple((rgba[:3] * 255.0).round().astype(int).tolist()),
            opacity=float(rgba[3]) if rgba[3] < 1.0 else None,
            side="double",
        )
        self.handles.append((asset.group, handle))
        self._parts.append((handle, "vertices", rows))

    def _add_lines(self, name: str, thickness: float, group: int, chosen: Sequence[tuple[DeformingAsset, int]]) -> None:
        ends = [start + for_all_envs(asset.elements, asset.count, self._env_count) for asset, start in chosen]
        colours = [
            np.broadcast_to(with_texture(self._scene, asset)[:3], (*each.shape, 3))
            for each, (asset, _) in zip(ends, chosen, strict=True)
        ]
        indices = np.concatenate(ends)
        handle = self._server.scene.add_line_segments(
            name,
            self._points.shown[indices],
            (np.concatenate(colours) * 255.0).round().astype(np.uint8),
            thickness=thickness,
            thickness_units="world",
        )
        self.handles.append((group, handle))
        self._parts.append((handle, "points", indices))
