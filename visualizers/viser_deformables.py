"""Cloth, solids, skins, cables and tendons in viser: meshes and lines whose points are sent again and again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import viser
import warp as wp
from numpy.typing import NDArray

from scene_data.provider import SceneDataProvider
from scene_data.scene import FlexDescription, SceneDescription, SkinDescription, TendonDescription
from scene_data.usd_paths import join_path

__all__ = ["ViserDeformables"]


@dataclass(frozen=True, eq=False)
class _Asset:
    """Points that are published, and how they are joined.

    Attributes:
        path_name: Path below the environment.
        count: Points of one environment.
        elements: Indices of triangles `(F, 3)` or segments `(S, 2)`.
        rgba: Colour.
        group: Visibility group.
        thickness: Of segments [m].
    """

    path_name: str
    count: int
    elements: NDArray[np.int32]
    rgba: NDArray[np.float32]
    group: int
    thickness: float = 0.0


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
        self._provider = provider
        self._shifts = offsets.astype(np.float32)[:, None]
        self.handles: list[tuple[int, Any]] = []
        self._meshes: list[tuple[Any, slice]] = []
        self._lines: list[tuple[Any, NDArray[np.int64]]] = []
        assets = _assets(scene) if len(env_ids) else []
        published = provider.get_geometry_points() if assets else {}
        roots = [scene.env_path(env) for env in env_ids.tolist()]
        self._offsets: dict[str, int] = {}
        starts: list[int] = []
        end = 0
        for asset in assets:
            starts.append(end)
            for env_root in roots:
                path = join_path(env_root, asset.path_name)
                if path in published:
                    self._offsets[path] = end
                end += asset.count
        self._points = wp.zeros(end, dtype=wp.vec3f, device="cpu")
        self._slices = [
            slice(start, start + asset.count * len(roots)) for asset, start in zip(assets, starts, strict=True)
        ]
        self._shown = np.zeros((end, 3), np.float32)
        self.read()
        lines: dict[tuple[float, int], list[int]] = {}
        for index, asset in enumerate(assets):
            if asset.elements.shape[1] == 3:
                self._add_mesh(f"{root}/deforming/{index}", asset, self._slices[index], len(roots))
            else:
                lines.setdefault((asset.thickness, asset.group), []).append(index)
        for number, ((thickness, group), indices) in enumerate(lines.items()):
            chosen = [(assets[index], starts[index]) for index in indices]
            self._add_lines(f"{root}/lines/{number}", thickness, group, chosen, len(roots))

    def read(self) -> None:
        """Fetch the points of the present state."""
        if not self._offsets:
            return
        self._provider.get_geometry_points(output=self._points, offsets=self._offsets)
        points = self._points.numpy()
        for rows in self._slices:
            shown = self._shown[rows].reshape(len(self._shifts), -1, 3)
            np.add(points[rows].reshape(shown.shape), self._shifts, out=shown)
        np.nan_to_num(self._shown, copy=False, posinf=0.0, neginf=0.0)

    def send(self) -> None:
        """Send what has moved."""
        for handle, rows in self._meshes:
            handle.vertices = self._shown[rows]
        for handle, ends in self._lines:
            handle.points = self._shown[ends]

    def _add_mesh(self, name: str, asset: _Asset, rows: slice, env_count: int) -> None:
        handle = self._server.scene.add_mesh_simple(
            name,
            self._shown[rows],
            _repeated(asset.elements, asset.count, env_count),
            color=tuple((asset.rgba[:3] * 255.0).round().astype(int).tolist()),
            opacity=float(asset.rgba[3]) if asset.rgba[3] < 1.0 else None,
            side="double",
        )
        self.handles.append((asset.group, handle))
        self._meshes.append((handle, rows))

    def _add_lines(
        self, name: str, thickness: float, group: int, chosen: Sequence[tuple[_Asset, int]], env_count: int
    ) -> None:
        ends = [start + _repeated(asset.elements, asset.count, env_count) for asset, start in chosen]
        colours = [
            np.broadcast_to(asset.rgba[:3], (*each.shape, 3)) for each, (asset, _) in zip(ends, chosen, strict=True)
        ]
        indices = np.concatenate(ends)
        handle = self._server.scene.add_line_segments(
            name,
            self._shown[indices],
            (np.concatenate(colours) * 255.0).round().astype(np.uint8),
            thickness=thickness,
            thickness_units="world",
        )
        self.handles.append((group, handle))
        self._lines.append((handle, indices))


def _assets(scene: SceneDescription) -> list[_Asset]:
    assets = [_flex(scene, flex) for flex in scene.flexes] + [_skin(scene, skin) for skin in scene.skins]
    for tendon in scene.tendons:
        assets += _tendon(scene, tendon)
    return [asset for asset in assets if len(asset.elements) and asset.rgba[3] > 0.0]


def _flex(scene: SceneDescription, flex: FlexDescription) -> _Asset:
    elements = flex.shell if flex.dim == 3 else flex.elements
    materials = flex.element_materials
    material = int(materials[0]) if len(materials) and materials[0] >= 0 else None
    rgba = flex.rgba if material is None else scene.materials[material].rgba
    rgba = _with_texture(scene, material, rgba)
    return _Asset(flex.path_name, flex.vertex_count, elements, rgba, flex.group, 2.0 * flex.radius)


def _skin(scene: SceneDescription, skin: SkinDescription) -> _Asset:
    rgba = _with_texture(scene, skin.material, skin.rgba)
    return _Asset(skin.path_name, len(skin.vertices), skin.faces, rgba, skin.group)


def _tendon(scene: SceneDescription, tendon: TendonDescription) -> list[_Asset]:
    rgba = _with_texture(scene, tendon.material, tendon.rgba)
    assets = []
    for path_name, count in tendon.curves:
        firsts = np.arange(count - 1, dtype=np.int32)
        segments = np.stack((firsts, firsts + 1), axis=1)
        assets.append(_Asset(path_name, count, segments, rgba, tendon.group, 2.0 * tendon.width))
    return assets


def _with_texture(scene: SceneDescription, material: int | None, rgba: NDArray[np.float32]) -> NDArray[np.float32]:
    """The colour, times the mean of the texture: viser puts no image on a mesh whose points move."""
    textures = {} if material is None else scene.materials[material].textures
    for role in ("rgb", "rgba"):
        if role in textures:
            mean = scene.textures[textures[role]].pixels[..., :3].mean(axis=(0, 1)) / 255.0
            return (rgba * np.append(np.broadcast_to(mean, 3), 1.0)).astype(np.float32)
    return rgba


def _repeated(elements: NDArray[np.int32], count: int, env_count: int) -> NDArray[np.int64]:
    """Indices of the elements of all environments, each with `count` points after those of the one before."""
    shifts = count * np.arange(env_count)[:, None, None]
    return (shifts + elements).reshape(-1, elements.shape[1])
