"""`<camera>_png/`: every captured image of one camera as a file of its own."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np
from PIL import Image

from scene_data.cli.colour import colour_plane

__all__ = ["ImageFolder", "depth_image"]

_MILLIMETRES = 1000.0
_FARTHEST = np.iinfo(np.uint16).max


class ImageFolder:
    """Writes captures as `<plane>_<capture>_env<environment>.png`.

    Colours have 8 bits. Depth has 16 bits in millimetres, as in ROS's 16UC1: 0 where nothing is hit or the distance
    does not fit. Segmentation is coloured for people; its ids are in the archive. An exception inside the `with` block
    removes what was written.

    Args:
        path: The folder; one that is there already is replaced.
    """

    def __init__(self, path: Path):
        self.path = path
        self.count = 0
        self._written: list[Path] = []
        path.mkdir(parents=True, exist_ok=True)

    def append(self, planes: Mapping[str, np.ndarray]) -> None:
        """Write one capture: planes of shape (N, H, W, C) by data type."""
        for name, plane in planes.items():
            for env, image in enumerate(plane):
                picture = depth_image(image) if name == "depth" else colour_plane(name, image)
                self._written.append(self.path / f"{name}_{self.count:05}_env{env}.png")
                Image.fromarray(picture).save(self._written[-1])
        self.count += 1

    def __enter__(self) -> "ImageFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            return
        for path in self._written:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it holds something else
            self.path.rmdir()


def depth_image(depth: np.ndarray) -> np.ndarray:
    """Depth [m], shape (..., H, W, 1), as uint16 millimetres (..., H, W); 0 for a miss and beyond 65.535 m."""
    millimetres = np.round(depth[..., 0] * _MILLIMETRES)
    return np.where(millimetres <= _FARTHEST, millimetres, 0).astype(np.uint16)
