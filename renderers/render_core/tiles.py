"""How the images of a turn are cut into tiles, for threads to share and for scratch memory to stay small."""

from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

from .crew import Effort

__all__ = ["Tile", "image_tiles", "rays_per_tile", "row_bands"]

# Rays that are not shaded differ less in what they cost.
_SHADED_TILES_PER_THREAD = 3
_TILES_PER_THREAD = 2
# From so many images for each thread on, tiles of whole images take about as long as each other.
_ALIKE = 8
# About a millisecond of work, a few times as much as it takes to launch a tile. Rays that are not shaded cost less.
_MIN_SHADED_RAYS = 1 << 11
_MIN_RAYS = 1 << 13
# The scratch memory of a tile stays small, and in a core's cache. What is not shaded hardly needs any.
_MAX_SHADED_RAYS = 1 << 15
_MAX_RAYS = 1 << 16
# As much as fills any GPU.
_MAX_DEVICE_RAYS = 1 << 22


@dataclass(frozen=True)
class Tile:
    """Rows of a camera's images in some environments.

    Attributes:
        envs: The environments.
        rows: The rows.
        effort: How long it takes to draw.
    """

    envs: slice
    rows: slice
    effort: Effort = field(default_factory=Effort)


def image_tiles(num_envs: int, height: int, width: int, threads: int, *, is_cpu: bool, shaded: bool) -> list[Tile]:
    """Cut the images of a camera into tiles of whole images where these are small, or else of rows of single ones.

    A tile of many environments is drawn faster than rows of all of them: it lies in one piece.
    """
    pixels = height * width
    most = rays_per_tile(num_envs * pixels, threads, is_cpu=is_cpu, shaded=shaded)
    if is_cpu and num_envs >= _ALIKE * threads:
        most = max(most, min(_MAX_RAYS, ceil(num_envs / threads) * pixels))
    if most >= pixels:
        count = ceil(num_envs / (most // pixels))
        if count > 1:  # as many for each thread
            count = min(num_envs, threads * ceil(count / threads))
        whole = slice(0, height)
        return [Tile(envs, whole) for envs in _even_parts(num_envs, count)]
    bands = row_bands(height, width, most)
    return [Tile(slice(env, env + 1), rows) for env in range(num_envs) for rows in bands]


def rays_per_tile(rays: int, threads: int, *, is_cpu: bool, shaded: bool) -> int:
    """How large tiles should be, where so many rays are to be shared by some threads.

    A few tiles for each thread, so that all of them have something to do until the end, however much slower one tile
    is than another. A single thread needs no more tiles than the scratch memory asks for.
    """
    least, most, each = _MIN_RAYS, _MAX_RAYS, _TILES_PER_THREAD
    if shaded:
        least, most, each = _MIN_SHADED_RAYS, _MAX_SHADED_RAYS, _SHADED_TILES_PER_THREAD
    if not is_cpu:
        most = _MAX_DEVICE_RAYS
    return most if threads == 1 else min(most, max(least, ceil(rays / (each * threads))))


def row_bands(height: int, rays_per_row: int, most: int) -> list[slice]:
    """Cut images into bands of whole rows, about equally high, of up to `most` rays each, or of one row.

    Returns:
        The rows of each band, from the top down.
    """
    return _even_parts(height, min(height, ceil(height * rays_per_row / most)))


def _even_parts(length: int, count: int) -> list[slice]:
    return [slice(*edges) for edges in pairwise(length * part // count for part in range(count + 1))]
