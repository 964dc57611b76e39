"""USD files that appear under their name only when they are whole."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scene_data.errors import UnknownNameError

__all__ = ["USD_SUFFIXES", "check_usd_suffix", "usd_output"]

USD_SUFFIXES = (".usda", ".usdc", ".usdz")
"""Text, binary, and a package of the binary file with its textures."""


def check_usd_suffix(path: Path) -> None:
    """Refuse a file name that says no USD format.

    Raises:
        UnknownNameError: The suffix is none of `USD_SUFFIXES`.
    """
    if path.suffix not in USD_SUFFIXES:
        raise UnknownNameError("USD file format", path.name, (f"*{suffix}" for suffix in USD_SUFFIXES))


@contextmanager
def usd_output(path: Path) -> Iterator[Path]:
    """Lend a place to write a stage to, and move it to `path` when the block ends without an exception.

    Everything that lies beside the stage (its textures) moves with it, or into the package of a `.usdz`. After an
    exception nothing is left, and what was at `path` before is untouched.

    Args:
        path: The file to make, with one of `USD_SUFFIXES`. Its folder is made if need be.

    Yields:
        The `.usda` or `.usdc` file to write.

    Raises:
        UnknownNameError: The suffix is another one.
        OSError: The place cannot be written to.
    """
    check_usd_suffix(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file to write to")
    present = next(folder for folder in path.absolute().parents if folder.exists())
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=present) as folder:
        work = Path(folder) / (path.with_suffix(".usdc").name if path.suffix == ".usdz" else path.name)
        yield work
        parts = [_package(work)] if path.suffix == ".usdz" else sorted(Path(folder).iterdir(), key=work.__eq__)
        path.parent.mkdir(parents=True, exist_ok=True)
        for part in parts:  # the stage last: once it is there, all that it refers to is
            _move(part, path.parent / part.name)


def _package(layer: Path) -> Path:
    from pxr import Sdf, UsdUtils

    package = layer.with_suffix(".usdz")
    if not UsdUtils.CreateNewUsdzPackage(Sdf.AssetPath(str(layer)), str(package)):
        raise OSError(f"USD could not pack {package.name}")
    return package


def _move(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    os.replace(source, target)
