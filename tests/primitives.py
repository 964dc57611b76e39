"""One primitive of each type, and where the camera "zenith" of the film set has to see them."""

import numpy as np
from film_set import HEIGHT, WIDTH

from scene_data.extra_geometry import GeometryBatch

__all__ = ["one_of_each", "silhouettes"]


def one_of_each(cylinder_envs: int | None = None) -> GeometryBatch:
    """A sphere, a box, a capsule, a cylinder and an ellipsoid; the cylinder in these environments, or in all."""
    return GeometryBatch.concatenate(
        [
            GeometryBatch.spheres((-1.5, 0, 2), 0.25, rgba=(1, 0, 0)),
            GeometryBatch.boxes((1.5, 0, 2), (0.25, 0.25, 0.1), rgba=(0, 1, 0)),
            GeometryBatch.capsules((-1.5, -1, 2), (-1.0, -1, 2), 0.1, rgba=(0, 0, 1)),
            GeometryBatch.cylinders((1, -1, 1.5), (1, -1, 2), 0.25, rgba=(1, 1, 0), envs=cylinder_envs),
            GeometryBatch.ellipsoids((1.25, 1, 2), (0.5, 0.25, 0.2), rgba=(0, 1, 1)),
        ]
    )


def silhouettes() -> dict[int, np.ndarray]:
    """Pixels (H, W) bool that each covers, by its index, from analysis."""
    # From 3 m above, 3 m are 36 pixels: a pixel is 1/12 m wide, and X = Y = 0 lies between the middle pixels.
    x, y = np.meshgrid((np.arange(WIDTH) + 0.5 - WIDTH / 2) / 12, (HEIGHT / 2 - np.arange(HEIGHT) - 0.5) / 12)
    return {
        0: np.hypot(x + 1.5, y) < 0.25,
        1: (abs(x - 1.5) < 0.25) & (abs(y) < 0.25),
        2: np.hypot(np.maximum(abs(x + 1.25) - 0.25, 0), y + 1) < 0.1,
        3: np.hypot(x - 1, y + 1) < 0.25,
        4: ((x - 1.25) / 0.5) ** 2 + ((y - 1) / 0.25) ** 2 < 1,
    }
