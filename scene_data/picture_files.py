"""Planes in files: PNG and other images, one plane each, and the archives that `scene-data render` writes."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["IMAGE_SUFFIXES", "depth_image", "read_planes", "write_planes"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
"""Files that are read as images."""

_DEPTH_MODES = ("I", "I;16", "I;16B", "I;16L")
_LARGEST = 0xFFFF


def read_planes(path: Path) -> dict[str, NDArray]:
    """The planes in a file, by name.

    Args:
        path: An archive `.npz` with arrays (..., H, W, C), or an image: grey with 16 bits is a depth in millimetres,
            `*.segmentation.png` is what `write_planes` makes of segmentation, and everything else is colours.

    Returns:
        Colours uint8, depth float32 [m] with inf where nothing was hit, segmentation int32 (object id, object type).

    Raises:
        ValueError: The file cannot be read, or holds no picture.
    """
    try:
        planes = _read_archive(path) if path.suffix == ".npz" else _read_image(path)
    except (ValueError, EOFError, zipfile.BadZipFile, Image.UnidentifiedImageError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not planes:
        raise ValueError(f"{path} holds no picture: an array of shape (..., height, width, channels) is needed.")
    return planes


def write_planes(folder: Path, name: str, planes: Mapping[str, NDArray]) -> list[Path]:
    """Write single pictures as `<name>.<plane>.png`, which `read_planes` reads.

    Args:
        folder: Where to; it is made.
        name: What the files are called.
        planes: Colours uint8 (H, W, 3 or 4), depth float (H, W, 1) [m] and segmentation int (H, W, 2), by name. Depth
            is rounded to millimetres, and what is further than 65.535 m away counts as a miss.

    Returns:
        The files.

    Raises:
        ValueError: A plane has no such file, or ids above 65535 or types above 254.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for plane, picture in planes.items():
        if plane.endswith("segmentation"):
            image = Image.fromarray(_paint_objects(plane, picture))
        elif picture.dtype == np.uint8:
            image = Image.fromarray(picture)
        elif picture.shape[-1] == 1:
            image = Image.fromarray(depth_image(picture))
        else:
            raise ValueError(f"{plane!r} of shape {picture.shape} and {picture.dtype} cannot be written as an image.")
        paths.append(folder / f"{name}.{plane}.png")
        image.save(paths[-1], optimize=True)
    return paths


def depth_image(depth: NDArray) -> NDArray[np.uint16]:
    """Depth [m], shape (..., H, W, 1), as uint16 millimetres (..., H, W); 0 for a miss and beyond 65.535 m."""
    millimetres = np.rint(1e3 * depth[..., 0])
    return np.where(millimetres <= _LARGEST, millimetres, 0).astype(np.uint16)


def _read_archive(path: Path) -> dict[str, NDArray]:
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored}
    return {name: array for name, array in arrays.items() if array.ndim >= 3}


def _read_image(path: Path) -> dict[str, NDArray]:
    plane = path.stem.rpartition(".")[2]
    with Image.open(path) as image:
        if plane != path.stem and plane.endswith("segmentation"):
            kind, high, low = np.moveaxis(np.asarray(image.convert("RGB"), dtype=np.int32), -1, 0)
            ids = np.where(kind > 0, 256 * high + low, -1)
            return {plane: np.stack((ids, kind - 1), axis=-1)}
        if image.mode in _DEPTH_MODES:
            millimetres = np.asarray(image, dtype=np.float32)[..., None]
            return {"depth": np.where(millimetres > 0.0, 1e-3 * millimetres, np.inf).astype(np.float32)}
        has_alpha = "A" in image.getbands() or "transparency" in image.info
        mode, name = ("RGBA", "rgba") if has_alpha else ("RGB", "rgb")
        return {name: np.asarray(image.convert(mode))}


def _paint_objects(plane: str, objects: NDArray) -> NDArray[np.uint8]:
    """(object id, object type) as red, the type + 1, and green and blue, the id; the background is black."""
    ids, kinds = objects[..., 0], objects[..., 1]
    if ids.max() > _LARGEST or kinds.max() > 254:
        raise ValueError(f"{plane!r} has ids up to {ids.max()} and types up to {kinds.max()}; an image has no room.")
    channels = np.stack((kinds + 1, ids >> 8, ids & 0xFF), axis=-1)
    return np.where(ids[..., None] < 0, 0, channels).astype(np.uint8)
