"""How much two pictures of the same plane differ, and up to where they count as the same."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

__all__ = ["PictureDifference", "Tolerance", "Unit", "compare_pictures"]

_DISTANCES = ("depth", "distance_to_camera", "distance_to_image_plane")


class Unit(Enum):
    """What the difference of two pixels is measured in."""

    LEVELS = "levels"
    """Colours: levels of 255."""
    METRES = "m"
    """Distances."""
    NONE = ""
    """Other numbers, such as normals."""
    OBJECTS = "objects"
    """Segmentation: another object is 1."""


@dataclass(frozen=True)
class Tolerance:
    """Up to where two pictures count as the same.

    Attributes:
        mean_levels: How much colours may differ on average, in levels of 255.
        levels: From where on a pixel differs in colour, in levels of 255 of any channel.
        metres: From where on a pixel differs in distance [m], or in another number.
        share: Share of the pixels that may differ, 0 to 1.

    Raises:
        ValueError: A value is negative, or the share above 1.
    """

    mean_levels: float = 1.0
    levels: float = 8.0
    metres: float = 0.01
    share: float = 0.005

    def __post_init__(self):
        for name, value in vars(self).items():
            if not 0.0 <= value < np.inf:
                raise ValueError(f"the tolerance {name} must be 0 or more, got {value}")
        if self.share > 1.0:
            raise ValueError(f"the tolerance share must lie between 0 and 1, got {self.share}")


@dataclass(frozen=True, eq=False)
class PictureDifference:
    """What `compare_pictures` found.

    Attributes:
        plane: Name of the plane.
        unit: What `error` is measured in.
        error: Difference of each pixel (..., H, W) float32, that of the channel that differs most; inf where only
            one of the two pictures sees something.
        mean: Mean absolute difference over all channels of the pixels that can be compared.
        tolerance: What it is judged by.
    """

    plane: str
    unit: Unit
    error: NDArray[np.float32]
    mean: float
    tolerance: Tolerance

    @property
    def limit(self) -> float:
        """From where on a pixel differs."""
        match self.unit:
            case Unit.LEVELS:
                return self.tolerance.levels
            case Unit.OBJECTS:
                return 0.0
            case _:
                return self.tolerance.metres

    @property
    def largest(self) -> float:
        """The largest difference; inf where something is seen in only one of the pictures."""
        return float(self.error.max())

    @property
    def share(self) -> float:
        """Share of the pixels that differ."""
        return float((self.error > self.limit).mean())

    @property
    def is_within(self) -> bool:
        """Whether the two count as the same."""
        is_close = self.unit is not Unit.LEVELS or self.mean <= self.tolerance.mean_levels
        return is_close and self.share <= self.tolerance.share


def compare_pictures(
    plane: str, first: NDArray, second: NDArray, tolerance: Tolerance | None = None
) -> PictureDifference:
    """Compare two pictures, or two stacks of them, pixel by pixel.

    Args:
        plane: Name of the plane. What ends in `segmentation` holds ids that are equal or not; otherwise integers are
            colours, and floats distances or other numbers.
        first: One picture (..., H, W, C).
        second: The other, of the same shape.
        tolerance: What counts as the same.

    Raises:
        ValueError: The shapes differ, are no pictures or hold no pixels.
    """
    tolerance = tolerance or Tolerance()
    if first.shape != second.shape:
        raise ValueError(f"The pictures of {plane!r} have different shapes: {first.shape} and {second.shape}.")
    if first.ndim < 3 or not first.size:
        raise ValueError(f"{plane!r} has the shape {first.shape}, which is no picture: (..., height, width, channels).")
    if plane.endswith("segmentation"):
        error = (first != second).any(axis=-1).astype(np.float32)
        return PictureDifference(plane, Unit.OBJECTS, error, float(error.mean(dtype=np.float64)), tolerance)
    if first.dtype == np.uint8 and second.dtype == np.uint8:
        levels = np.abs(np.subtract(first, second, dtype=np.int16))
        error = levels.max(axis=-1).astype(np.float32)
        return PictureDifference(plane, Unit.LEVELS, error, float(levels.mean()), tolerance)
    unit = Unit.METRES if plane in _DISTANCES else Unit.NONE
    both = np.isfinite(first) & np.isfinite(second)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.where(both, np.abs(first - second), np.inf)).astype(np.float32)
    mean = float(difference[both].mean(dtype=np.float64)) if both.any() else 0.0
    return PictureDifference(plane, unit, difference.max(axis=-1), mean, tolerance)
