"""Cloth, solids, skins, cables and tendons in Newton's viewer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

from .deforming import DeformingPoints, deforming_assets, for_all_envs, with_texture
from .newton_window import NewtonWindow

__all__ = ["NewtonDeformables"]

_LINES = "/deforming/lines"


@dataclass(frozen=True, eq=False)
class _Mesh:
    name: str
    rows: slice
    points: wp.array
    indices: wp.array
    rgb: tuple[float, float, float]
    opacity: float


class NewtonDeformables:
    """What changes its form. Each is one mesh over all environments; all lines together are capsules.

    Args:
        window: Where to draw it.
        provider: Publishes the points.
        scene: What there is.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.
        groups: Visibility groups that are shown.
    """

    def __init__(
        self,
        window: NewtonWindow,
        provider: SceneDataProvider,
        scene: SceneDescription,
        env_ids: NDArray[np.int64],
        offsets: NDArray[np.float64],
        groups: Sequence[int],
    ):
        assets = [asset for asset in deforming_assets(scene) if asset.group in groups] if len(env_ids) else []
        self._window = window
        self._device = window.device
        self._points = DeformingPoints(provider, scene, assets, env_ids, offsets)
        self._meshes: list[_Mesh] = []
        ends, radii, colours = [], [], []
        for index, asset in enumerate(assets):
            elements = for_all_envs(asset.elements, asset.count, len(env_ids))
            rgba = with_texture(scene, asset)
            if elements.shape[1] == 3:
                self._meshes.append(self._mesh(f"/deforming/{index}", self._points.rows(index), elements, rgba))
            else:
                ends.append(elements + self._points.rows(index).start)
                radii.append(np.full(len(elements), 0.5 * asset.thickness, np.float32))
                colours.append(np.tile(rgba[:3], (len(elements), 1)))
        self._ends = np.concatenate(ends) if ends else np.zeros((0, 2), np.int64)
        self._radii = np.concatenate(radii) if radii else np.zeros(0, np.float32)
        self._colours = self._array(np.concatenate(colours) if colours else np.zeros((0, 3)), wp.vec3f)
        self._materials = self._array(np.tile((0.5, 0.0, 0.0, 0.0), (len(self._ends), 1)), wp.vec4f)

    def read(self) -> None:
        """Fetch the points of the present state."""
        self._points.read()

    def show(self) -> None:
        """Show what was read."""
        shown = self._points.shown
        for mesh in self._meshes:
            mesh.points.assign(shown[mesh.rows])
            self._window.log_mesh(
                mesh.name,
                mesh.points,
                mesh.indices,
                backface_culling=False,
                color=mesh.rgb,
                opacity=mesh.opacity,
            )
        if len(self._ends):
            places, scales = _capsules(shown[self._ends], self._radii)
            self._window.log_capsules(
                _LINES,
                "",
                self._array(places, wp.transformf),
                self._array(scales, wp.vec3f),
                self._colours,
                self._materials,
            )

    def _mesh(self, name: str, rows: slice, elements: NDArray[np.int64], rgba: NDArray[np.float32]) -> _Mesh:
        points = wp.zeros(rows.stop - rows.start, dtype=wp.vec3f, device=self._device)
        red, green, blue, opacity = (float(value) for value in rgba)
        return _Mesh(name, rows, points, self._array(elements.ravel(), wp.int32), (red, green, blue), opacity)

    def _array(self, values: NDArray, dtype: object) -> wp.array:
        return wp.array(np.ascontiguousarray(values), dtype=dtype, device=self._device)


def _capsules(ends: NDArray[np.float32], radii: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Segments `(S, 2, 3)` as capsules along Z: poses `(S, 7)`, and radius, radius and half length `(S, 3)`."""
    along = ends[:, 1] - ends[:, 0]
    lengths = np.linalg.norm(along, axis=1)
    direction = along / np.maximum(lengths, 1e-12)[:, None]
    # The shortest turn from Z: about (-y, x, 0). Where there is none, half a turn about X will do.
    x, y, z = direction.T
    turns = np.stack((-y, x, np.zeros_like(x), 1.0 + z), axis=1)
    turns[lengths == 0.0] = (0.0, 0.0, 0.0, 1.0)
    turns[z < -1.0 + 1e-6] = (1.0, 0.0, 0.0, 0.0)
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    places = np.concatenate((ends.mean(axis=1), turns), axis=1).astype(np.float32)
    return places, np.stack((radii, radii, 0.5 * lengths), axis=1).astype(np.float32)
