"""`<camera>_png/`: every captured image of one camera as a file of its own."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np
from PIL import Image

from scene_data.cli.colour import colour_plane
from scene_data.picture_files import depth_image

__all__ = ["ImageFolder"]


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
