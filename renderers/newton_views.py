"""What Newton's sensor draws of a camera in one go, and what it needs for that: cut out of lasting arrays once."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import warp as wp
from newton.sensors import SensorCamera
from numpy.typing import NDArray

from . import newton_kernels as kernels
from .render_core.camera import CameraDescriptor, Orthographic
from .render_core.camera_tables import pinholes_of
from .render_core.layout import PlaneKind
from .render_core.snapshots import RenderSnapshot
from .render_core.tiles import Tile, image_tiles

__all__ = ["Piece", "TracedEnvironments", "View"]

# Beyond what anybody sees: each far plane of its own would compile a kernel of its own.
_MAX_DISTANCE = 1.0e6

_SHADED = frozenset({PlaneKind.RGB, PlaneKind.RGBA, PlaneKind.RGB_HDR})


@dataclass(frozen=True, eq=False)
class TracedEnvironments:
    """What a tracer knows of each environment.

    Attributes:
        indices: Their numbers (N,) int32.
        diverged: 1 for each that is to be blank (N,) int32.
        intrinsic: How each camera projects in each, as in `CameraTables` (N, C).
    """

    indices: wp.array
    diverged: wp.array
    intrinsic: wp.array


class Piece:
    """A tile of one camera's images, and what belongs to it of arrays that stay: cut out once, and not in each turn."""

    def __init__(self, tile: Tile, view: "View", environments: TracedEnvironments):
        self.tile = tile
        self.size = tile.envs.stop - tile.envs.start, tile.rows.stop - tile.rows.start, view.camera.width
        self.pixels = slice(tile.rows.start * view.camera.width, tile.rows.stop * view.camera.width)
        self.poses = view.poses[tile.envs]
        self.rays = view.rays[tile.rows]
        self.environments = environments.indices[tile.envs]
        self.diverged = environments.diverged[tile.envs]
        self.intrinsic = environments.intrinsic[tile.envs]


class View:
    """One camera: its place in the tables, its rays, and how its images are cut."""

    def __init__(
        self, index: int, camera: CameraDescriptor, projection: Any, environments: TracedEnvironments, threads: int
    ):
        device = environments.indices.device
        self.index = index
        self.camera = camera
        self.is_orthographic = isinstance(projection, Orthographic)
        self.configured = _distinct(pinholes_of(projection, camera))
        self._pinhole: tuple[float, ...] = ()
        self._environments = environments
        self.poses = wp.zeros(camera.num_envs, dtype=wp.transform, device=device)
        self.rays = wp.empty((camera.height, camera.width, 1, 2), dtype=wp.vec3, device=device)
        shaded = not _SHADED.isdisjoint(camera.planes)
        size = camera.num_envs, camera.height, camera.width
        tiles = image_tiles(*size, threads, is_cpu=device.is_cpu, shaded=shaded)
        self.pieces = [Piece(tile, self, environments) for tile in tiles]
        self.config = SensorCamera.RenderConfig(
            enable_textures=camera.options.textures,
            enable_shadows=camera.options.shadows,
            enable_particles=False,
            max_distance=_MAX_DISTANCE,
        )

    @cached_property
    def images(self) -> list[Piece]:
        """Whole images, one for each environment."""
        whole = slice(0, self.camera.height)
        tiles = [Tile(slice(env, env + 1), whole) for env in range(self.camera.num_envs)]
        return [Piece(tile, self, self._environments) for tile in tiles]

    def largest_piece(self) -> int:
        """Pixels of the largest piece."""
        return max(math.prod(piece.size) for piece in self.pieces)

    def pinholes(self, snapshot: RenderSnapshot) -> list[tuple[float, ...]]:
        """(fx, fy, cx, cy) in force: one for all environments, or one for each."""
        setting = snapshot.camera_settings.get(self.camera.id)
        return self.configured if setting is None else _distinct(setting.pinholes)

    def aim(self, pinhole: tuple[float, ...]) -> None:
        """Have rays for this projection, in all environments."""
        if pinhole != self._pinhole:
            self._pinhole = pinhole
            self.cast(pinhole, self.rays)

    def cast(self, pinhole: tuple[float, ...], rays: wp.array) -> None:
        """Write rays for this projection."""
        inputs = [wp.vec4(*pinhole), self.is_orthographic]
        wp.launch(kernels.write_rays, rays.shape[:2], inputs, [rays], device=rays.device)


def _distinct(pinholes: NDArray[np.float64]) -> list[tuple[float, ...]]:
    """Pinholes of all environments (N, 4), or the one that they share."""
    shared = bool((pinholes == pinholes[0]).all())
    return [tuple(pinhole) for pinhole in (pinholes[:1] if shared else pinholes).tolist()]
