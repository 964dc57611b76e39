"""What changes its form: the points of cloth, solids, skins, cables and tendons, and how they are joined."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.provider import SceneDataProvider
from scene_data.scene import FlexDescription, SceneDescription, SkinDescription, TendonDescription
from scene_data.usd_paths import join_path

__all__ = ["DeformingAsset", "DeformingPoints", "deforming_assets", "for_all_envs", "with_texture"]


@dataclass(frozen=True, eq=False)
class DeformingAsset:
    """Points that are published, and how they are joined.

    Attributes:
        path_name: Path below the environment.
        count: Points of one environment.
        elements: Indices of triangles `(F, 3)` or segments `(S, 2)`.
        rgba: Colour, without the texture.
        material: Index of the material, or None.
        texcoords: One for each point, `(count, 2)` float32 with (0, 0) at the upper left corner of the image, or None.
        group: Visibility group.
        thickness: Of segments [m].
    """

    path_name: str
    count: int
    elements: NDArray[np.int32]
    rgba: NDArray[np.float32]
    material: int | None
    texcoords: NDArray[np.float32] | None
    group: int
    thickness: float = 0.0


class DeformingPoints:
    """The points of some assets in the environments that are shown.

    Args:
        provider: Publishes the points.
        scene: What there is.
        assets: Those of one environment.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.

    Attributes:
        shown: All points at the last `read` [m], `(P, 3)` float32: asset by asset, and environment by environment.
            Those that are not finite are at the origin.
        starts: Row of the first point of each asset, and the end of the last.
    """

    def __init__(
        self,
        provider: SceneDataProvider,
        scene: SceneDescription,
        assets: Sequence[DeformingAsset],
        env_ids: NDArray[np.int64],
        offsets: NDArray[np.float64],
    ):
        self._provider = provider
        self._shifts = offsets.astype(np.float32)[:, None]
        published = provider.get_geometry_points() if assets else {}
        roots = [scene.env_path(env) for env in env_ids.tolist()]
        self._offsets: dict[str, int] = {}
        self.starts = [0]
        for asset in assets:
            for number, root in enumerate(roots):
                path = join_path(root, asset.path_name)
                if path in published:
                    self._offsets[path] = self.starts[-1] + number * asset.count
            self.starts.append(self.starts[-1] + asset.count * len(roots))
        self._points = wp.zeros(self.starts[-1], dtype=wp.vec3f, device="cpu")
        self.shown = np.zeros((self.starts[-1], 3), np.float32)

    def rows(self, index: int) -> slice:
        """Rows of the asset with this index."""
        return slice(self.starts[index], self.starts[index + 1])

    def read(self) -> None:
        """Fetch the points of the present state."""
        if not self._offsets:
            return
        self._provider.get_geometry_points(output=self._points, offsets=self._offsets)
        points = self._points.numpy()
        for index in range(len(self.starts) - 1):
            rows = self.rows(index)
            shown = self.shown[rows].reshape(len(self._shifts), -1, 3)
            np.add(points[rows].reshape(shown.shape), self._shifts, out=shown)
        np.nan_to_num(self.shown, copy=False, posinf=0.0, neginf=0.0)


def deforming_assets(scene: SceneDescription) -> list[DeformingAsset]:
    """All that is visible of them in one environment."""
    assets = [_flex(flex) for flex in scene.flexes] + [_skin(skin) for skin in scene.skins]
    for tendon in scene.tendons:
        assets += _tendon(tendon)
    return [asset for asset in assets if len(asset.elements) and asset.rgba[3] > 0.0]


def with_texture(scene: SceneDescription, asset: DeformingAsset) -> NDArray[np.float32]:
    """The colour of an asset times the mean of its texture, `(4,)`, for what cannot show the texture itself."""
    textures = {} if asset.material is None else scene.materials[asset.material].textures
    for role in ("rgb", "rgba"):
        if role in textures:
            mean = scene.textures[textures[role]].pixels[..., :3].mean(axis=(0, 1)) / 255.0
            return (asset.rgba * np.append(np.broadcast_to(mean, 3), 1.0)).astype(np.float32)
    return asset.rgba


def for_all_envs(elements: NDArray[np.int32], count: int, env_count: int) -> NDArray[np.int64]:
    """Indices of the elements of all environments, each with `count` points after those of the one before."""
    shifts = count * np.arange(env_count)[:, None, None]
    return (shifts + elements).reshape(-1, elements.shape[1])


def _flex(flex: FlexDescription) -> DeformingAsset:
    elements = flex.shell if flex.dim == 3 else flex.elements
    materials = flex.element_materials
    material = int(materials[0]) if len(materials) and materials[0] >= 0 else None
    return DeformingAsset(
        path_name=flex.path_name,
        count=flex.vertex_count,
        elements=elements,
        rgba=flex.rgba,
        material=material,
        texcoords=_texcoord_of_each_point(flex),
        group=flex.group,
        thickness=2.0 * flex.radius,
    )


def _texcoord_of_each_point(flex: FlexDescription) -> NDArray[np.float32] | None:
    """Texture coordinates by point; None where one point has several."""
    if flex.texcoords is None or flex.element_texcoords is None:
        return None
    by_point = np.zeros((flex.vertex_count, 2), np.float32)
    by_point[flex.elements] = flex.texcoords[flex.element_texcoords]
    return by_point if (by_point[flex.elements] == flex.texcoords[flex.element_texcoords]).all() else None


def _skin(skin: SkinDescription) -> DeformingAsset:
    return DeformingAsset(
        path_name=skin.path_name,
        count=len(skin.vertices),
        elements=skin.faces,
        rgba=skin.rgba,
        material=skin.material,
        texcoords=skin.texcoords,
        group=skin.group,
    )


def _tendon(tendon: TendonDescription) -> list[DeformingAsset]:
    assets = []
    for path_name, count in tendon.curves:
        firsts = np.arange(count - 1, dtype=np.int32)
        segments = np.stack((firsts, firsts + 1), axis=1)
        thickness = 2.0 * tendon.width
        assets.append(
            DeformingAsset(path_name, count, segments, tendon.rgba, tendon.material, None, tendon.group, thickness)
        )
    return assets
