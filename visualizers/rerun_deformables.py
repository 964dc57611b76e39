"""Cloth, solids, skins, cables and tendons in Rerun: meshes and lines whose points are sent again and again."""

from collections.abc import Sequence

import numpy as np
import rerun as rr
from numpy.typing import NDArray

from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription
from scene_data.usd_paths import join_path

from .deforming import DeformingAsset, DeformingPoints, deforming_assets, for_all_envs, with_texture
from .rerun_arrays import as_rows, log_components
from .rerun_scene import ALL_ENVS, entity_path
from .texturing import colour_bytes

__all__ = ["RerunDeformables"]

_POSITIONS = rr.Mesh3D.descriptor_vertex_positions()
_NORMALS = rr.Mesh3D.descriptor_vertex_normals()


class RerunDeformables:
    """What changes its form, each over all the environments that are shown.

    Args:
        recording: Where to show it.
        provider: Publishes the points.
        scene: What there is.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.
        geom_groups: Visibility groups that are shown.
    """

    def __init__(
        self,
        recording: rr.RecordingStream,
        provider: SceneDataProvider,
        scene: SceneDescription,
        env_ids: NDArray[np.int64],
        offsets: NDArray[np.float64],
        geom_groups: Sequence[int],
    ):
        self._recording = recording
        self._scene = scene
        self._env_count = len(env_ids)
        assets = [each for each in deforming_assets(scene) if each.group in geom_groups] if len(env_ids) else []
        self._points = DeformingPoints(provider, scene, assets, env_ids, offsets)
        self._meshes: list[tuple[str, slice, NDArray[np.int64]]] = []
        self._lines: list[tuple[str, NDArray[np.int64]]] = []
        root = scene.env_path(int(env_ids[0])) if len(env_ids) == 1 else scene.clone_plan.root.format(ALL_ENVS)
        for index, asset in enumerate(assets):
            path = entity_path(join_path(root, asset.path_name))
            if asset.elements.shape[1] == 3:
                self._add_mesh(path, asset, self._points.rows(index))
            else:
                self._add_lines(path, asset, self._points.starts[index])
        self._sent = np.full_like(self._points.shown, np.nan)
        self.read()
        self.send(has_passed=True)

    def read(self) -> None:
        """Fetch the points of the present state."""
        self._points.read()

    def send(self, has_passed: bool) -> bool:
        """Send where they are; whether anything was sent.

        Args:
            has_passed: Whether time has passed. Where it has not, nothing is sent but news.
        """
        shown = self._points.shown
        if not len(shown) or not (has_passed or (shown != self._sent).any()):
            return False
        self._sent = shown.copy()
        for path, rows, faces in self._meshes:
            points = shown[rows].copy()
            values = {_POSITIONS: as_rows(points), _NORMALS: as_rows(_normals(points, faces))}
            log_components(self._recording.to_native(), path, values)
        for path, strips in self._lines:
            self._recording.log(path, rr.LineStrips3D.from_fields(strips=shown[strips]), strict=True)
        return True

    def _add_mesh(self, path: str, asset: DeformingAsset, rows: slice) -> None:
        faces = for_all_envs(asset.elements, asset.count, self._env_count)
        self._meshes.append((path, rows, faces))
        pixels = self._pixels(asset)
        if pixels is None or asset.texcoords is None:
            look = rr.Mesh3D.from_fields(
                triangle_indices=faces, albedo_factor=colour_bytes(with_texture(self._scene, asset))
            )
        else:
            height, width, channels = pixels.shape
            look = rr.Mesh3D.from_fields(
                triangle_indices=faces,
                albedo_factor=colour_bytes(asset.rgba),
                vertex_texcoords=np.tile(asset.texcoords, (self._env_count, 1)),
                albedo_texture_buffer=pixels.tobytes(),
                albedo_texture_format=rr.components.ImageFormat(
                    width, height, color_model="RGB" if channels == 3 else "RGBA", channel_datatype="U8"
                ),
            )
        self._recording.log(path, look, static=True, strict=True)

    def _pixels(self, asset: DeformingAsset) -> NDArray[np.uint8] | None:
        """The image on an asset, if it has one, `(H, W, 3 or 4)`."""
        textures = {} if asset.material is None else self._scene.materials[asset.material].textures
        index = next((textures[role] for role in ("rgb", "rgba") if role in textures), None)
        if index is None:
            return None
        pixels = self._scene.textures[index].pixels
        return pixels if pixels.shape[-1] in (3, 4) else np.repeat(pixels[..., :1], 3, axis=-1)

    def _add_lines(self, path: str, asset: DeformingAsset, start: int) -> None:
        self._lines.append((path, start + for_all_envs(asset.elements, asset.count, self._env_count)))
        look = rr.LineStrips3D.from_fields(
            colors=[colour_bytes(with_texture(self._scene, asset))], radii=[0.5 * asset.thickness]
        )
        self._recording.log(path, look, static=True, strict=True)


def _normals(points: NDArray[np.float32], faces: NDArray[np.int64]) -> NDArray[np.float32]:
    """Normals of vertices, `(V, 3)`: of the faces around each, weighted by their areas."""
    a, b, c = (points[faces[:, corner]] for corner in range(3))
    across = np.cross(b - a, c - a)
    corners = faces.T.reshape(-1)
    summed = [np.bincount(corners, np.tile(across[:, axis], 3), len(points)) for axis in range(3)]
    normals = np.stack(summed, axis=1)
    return (normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)).astype(np.float32)
