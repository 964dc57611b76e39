"""How the images of a turn are cut into tiles, for threads to share and for scratch memory to stay small."""

from itertools import pairwise
from math import ceil

__all__ = ["rays_per_tile", "row_bands"]

# Rays that are not shaded differ less in what they cost.
_SHADED_TILES_PER_THREAD = 3
_TILES_PER_THREAD = 2
# About a millisecond of work, a few times as much as it takes to launch a tile. Rays that are not shaded cost less.
_MIN_SHADED_RAYS = 1 << 11
_MIN_RAYS = 1 << 13
# The scratch memory of a tile stays small, and in a core's cache. What is not shaded hardly needs any.
_MAX_SHADED_RAYS = 1 << 15
_MAX_RAYS = 1 << 16
# As much as fills any GPU.
_MAX_DEVICE_RAYS = 1 << 22


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
    count = min(height, ceil(height * rays_per_row / most))
    return [slice(*edges) for edges in pairwise(height * band // count for band in range(count + 1))]
