"""`<camera>.npz`: every captured plane of one camera, written as it arrives."""

import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

__all__ = ["CaptureArchive"]


class CaptureArchive:
    """Collects captures on disk, and packs them into one `.npz` when all went well.

    The planes are memory-mapped, so a long run with many environments needs no memory. An exception inside the
    `with` block removes what was written.

    Args:
        path: The `.npz` to write.
        captures: How many captures will come.
        planes: Shape (N, H, W, C) and dtype of one capture, by plane name.
    """

    def __init__(self, path: Path, captures: int, planes: Mapping[str, tuple[tuple[int, ...], np.dtype]]):
        self.path = path
        self.count = 0
        self._folder = path.with_suffix(".partial")
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        columns: dict[str, tuple[tuple[int, ...], np.dtype]] = {
            **{name: ((captures, *shape), np.dtype(dtype)) for name, (shape, dtype) in planes.items()},
            "simulation_time_ns": ((captures,), np.dtype(np.int64)),
            "capture_id": ((captures,), np.dtype(np.int64)),
        }
        self.arrays: dict[str, np.memmap] = {
            name: np.lib.format.open_memmap(self._folder / f"{name}.npy", "w+", dtype=dtype, shape=shape)
            for name, (shape, dtype) in columns.items()
        }

    def append(self, planes: Mapping[str, np.ndarray], simulation_time_ns: int, capture_id: int) -> None:
        """Store one capture: its planes, when it was taken, and its capture id."""
        for name, plane in planes.items():
            self.arrays[name][self.count] = plane
        self.arrays["simulation_time_ns"][self.count] = simulation_time_ns
        self.arrays["capture_id"][self.count] = capture_id
        self.count += 1

    @property
    def nbytes(self) -> int:
        """Bytes of the raw planes."""
        return sum(array.nbytes for array in self.arrays.values())

    def __enter__(self) -> "CaptureArchive":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        names = list(self.arrays)
        for array in self.arrays.values():
            array.flush()
        self.arrays.clear()
        try:
            if kind is None:
                self._pack(names)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _pack(self, names: list[str]) -> None:
        packed = self._folder / "packed"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=1) as file:
            for name in names:
                file.write(self._folder / f"{name}.npy", f"{name}.npy")
        os.replace(packed, self.path)
