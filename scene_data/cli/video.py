"""MP4 files, through imageio and PyAV."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from scene_data.errors import MissingDependencyError

__all__ = ["VideoWriter", "require_video"]


def require_video() -> Any:
    """The `imageio.v3` module with its PyAV plugin.

    Raises:
        MissingDependencyError: imageio or PyAV is not installed.
    """
    try:
        import av  # noqa: F401 - imageio imports it only when it opens a file, too late for a clear error
        import imageio.v3 as iio
    except ImportError as error:
        raise MissingDependencyError(error.name or "imageio", "video", "Writing MP4 files") from error
    return iio


class VideoWriter:
    """An H.264 file that appears under its name only when it is whole.

    Args:
        path: The `.mp4` to write.
        fps: Frames per second.
    """

    def __init__(self, path: Path, fps: float):
        self.path = path
        self._partial = path.with_suffix(".partial.mp4")
        self._file = require_video().imopen(self._partial, "w", plugin="pyav")
        self._file.init_video_stream("libx264", fps=fps)

    def append(self, image: np.ndarray) -> None:
        """Add one frame, RGB uint8 (H, W, 3), of even width and height."""
        self._file.write_frame(image)

    def __enter__(self) -> "VideoWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        try:
            self._file.close()
            if kind is None:
                os.replace(self._partial, self.path)
        finally:
            self._partial.unlink(missing_ok=True)
