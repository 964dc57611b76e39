"""Several environments in one picture."""

import math

import numpy as np

__all__ = ["MAX_TILES", "tile"]

MAX_TILES = 16
"""More environments than this do not read as a picture."""


def tile(images: np.ndarray) -> np.ndarray:
    """The first environments of (N, H, W, 3) side by side, in a grid as near to a square as they fill.

    Width and height come out even, as video encoders need.
    """
    images = images[:MAX_TILES]
    count, height, width, channels = images.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    canvas = np.zeros((rows * columns, height, width, channels), dtype=np.uint8)
    canvas[:count] = images
    grid = canvas.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    grid = grid.reshape(rows * height, columns * width, channels)
    return np.pad(grid, ((0, grid.shape[0] % 2), (0, grid.shape[1] % 2), (0, 0)), mode="edge")
