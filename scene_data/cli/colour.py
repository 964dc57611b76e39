"""Depth and segmentation as pictures for people."""

import colorsys

import numpy as np

__all__ = ["colour_depth", "colour_plane", "colour_segmentation", "depth_range"]

# From near to far: a pale yellow through teal to a deep blue, of falling luminance so that it also reads in grey.
_DEPTH_ANCHORS = np.array(
    [(253, 240, 178), (246, 196, 108), (160, 198, 120), (64, 164, 148), (38, 110, 150), (44, 58, 120), (28, 20, 62)],
    dtype=np.float64,
)
_DEPTH_MISS = np.array((12, 12, 16), dtype=np.uint8)
_SEGMENTATION_MISS = np.array((24, 24, 28), dtype=np.uint8)
_GOLDEN_RATIO = 0.61803398875
_PALETTE_SIZE = 1024


def _depth_table(size: int = 256) -> np.ndarray:
    at = np.linspace(0.0, len(_DEPTH_ANCHORS) - 1, size)
    channels = [np.interp(at, np.arange(len(_DEPTH_ANCHORS)), _DEPTH_ANCHORS[:, i]) for i in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def _segmentation_table(size: int = _PALETTE_SIZE) -> np.ndarray:
    """Neighbouring ids get hues far apart; saturation and value vary slowly."""
    colours = [
        colorsys.hsv_to_rgb((0.08 + i * _GOLDEN_RATIO) % 1.0, 0.45 + 0.25 * ((i // 3) % 2), 0.95 - 0.2 * ((i // 2) % 2))
        for i in range(size)
    ]
    return (np.array(colours) * 255).round().astype(np.uint8)


_DEPTH_TABLE = _depth_table()
_SEGMENTATION_TABLE = _segmentation_table()


def depth_range(depth: np.ndarray) -> tuple[float, float]:
    """The near and far distance [m] that most of the hits in `depth` lie between."""
    hits = depth[np.isfinite(depth)]
    if hits.size == 0:
        return 0.0, 1.0
    near, far = (float(value) for value in np.percentile(hits, (0.5, 97.0)))
    return near, max(far, near + 1e-6)


def colour_depth(depth: np.ndarray, limits: tuple[float, float] | None = None) -> np.ndarray:
    """Depth [m], shape (..., 1), as RGB uint8 (..., 3): near is light, far is dark, misses are nearly black."""
    values = depth[..., 0]
    near, far = depth_range(values) if limits is None else limits
    hit = np.isfinite(values)
    level = np.clip((np.where(hit, values, far) - near) / (far - near), 0.0, 1.0)
    picture = _DEPTH_TABLE[(level * (len(_DEPTH_TABLE) - 1)).astype(np.intp)]
    picture[~hit] = _DEPTH_MISS
    return picture


def colour_segmentation(segmentation: np.ndarray) -> np.ndarray:
    """(object id, object type), shape (..., 2), as RGB uint8 (..., 3): one colour per object, background dark."""
    ids, types = segmentation[..., 0], segmentation[..., 1]
    picture = _SEGMENTATION_TABLE[(ids + 131 * types) % _PALETTE_SIZE]
    picture[ids < 0] = _SEGMENTATION_MISS
    return picture


def colour_plane(data_type: str, frame: np.ndarray, limits: tuple[float, float] | None = None) -> np.ndarray:
    """Any plane, shape (..., H, W, C), as RGB uint8 (..., H, W, 3)."""
    if data_type == "depth":
        return colour_depth(frame, limits)
    if data_type == "segmentation":
        return colour_segmentation(frame)
    return frame[..., :3]
