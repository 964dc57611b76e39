"""A picture of how pictures differ: one, the other and the amplified difference side by side, with a legend."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from scene_data.cli.colour import colour_plane, depth_range
from scene_data.picture_difference import PictureDifference, Unit

__all__ = ["AMPLIFICATION", "SheetRow", "colour_difference", "draw_difference_sheet", "quantity"]

AMPLIFICATION = 4.0
"""The brightest colour of a difference stands for this many times the tolerance and all beyond."""

_MOST_ROWS = 12
_SMALLEST, _LARGEST = (448, 336), (640, 480)
_MARGIN, _GAP, _HEADER, _LEGEND = 24, 10, 66, 46
_BACKGROUND, _INK, _FAINT = (250, 250, 251), (32, 34, 40), (118, 122, 132)
_GOOD, _BAD = (30, 120, 70), (185, 40, 30)

# Within the tolerance from black to a dull blue, beyond it from red to a pale yellow.
_WITHIN = np.array(((14, 15, 20), (62, 112, 160)), dtype=float)
_BEYOND = np.array(((205, 50, 40), (245, 150, 50), (255, 242, 180)), dtype=float)


@dataclass(frozen=True)
class SheetRow:
    """One pair on the sheet.

    Attributes:
        title: What is compared.
        first: One picture, or a stack of them (..., H, W, C).
        second: The other.
        difference: How they differ. Of a stack, the picture that differs most is shown.
    """

    title: str
    first: NDArray
    second: NDArray
    difference: PictureDifference


def draw_difference_sheet(first: str, second: str, rows: Sequence[SheetRow]) -> Image.Image:
    """Draw the pairs below each other, those that differ most first and at most twelve.

    Args:
        first: What the first pictures are called.
        second: What the second ones are called.
        rows: The pairs.
    """
    shown = sorted(rows, key=lambda row: (row.difference.share, row.difference.mean), reverse=True)[:_MOST_ROWS]
    sizes = [_tile_size(row.first.shape[-2], row.first.shape[-3]) for row in shown]
    wide = max(size[0] for size in sizes)
    width = 2 * _MARGIN + 3 * wide + 2 * _GAP
    height = 2 * _MARGIN + 40 + sum(_HEADER + size[1] + _LEGEND for size in sizes)
    sheet = Image.new("RGB", (width, height), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    title = "Differences" if len(shown) == len(rows) else f"The {len(shown)} largest of {len(rows)} differences"
    draw.text((_MARGIN, _MARGIN), title, fill=_INK, font=_font(24))
    top = _MARGIN + 40
    for row, size in zip(shown, sizes, strict=True):
        _draw_row(sheet, draw, row, (first, second), top, size, wide)
        top += _HEADER + size[1] + _LEGEND
    return sheet


def colour_difference(error: NDArray[np.float32], limit: float) -> NDArray[np.uint8]:
    """Differences (H, W) as RGB uint8 (H, W, 3): dull up to the limit, glowing beyond it."""
    beyond = np.minimum((error - limit) / ((AMPLIFICATION - 1.0) * limit), 1.0) if limit > 0.0 else np.ones_like(error)
    within = error / limit if limit > 0.0 else np.zeros_like(error)
    picture = np.where((error > limit)[..., None], _ramp(_BEYOND, beyond), _ramp(_WITHIN, within))
    return picture.round().astype(np.uint8)


def quantity(value: float, unit: Unit) -> str:
    """A difference for people."""
    if np.isinf(value):
        return "seen in one alone"
    if unit is Unit.OBJECTS:
        return "another object" if value else "the same object"
    digits = {Unit.LEVELS: ".3g", Unit.METRES: ".4f"}.get(unit, ".4g")
    return f"{value:{digits}} {unit.value}".rstrip()


def _ramp(anchors: NDArray[np.float64], level: NDArray) -> NDArray[np.float64]:
    at = np.linspace(0.0, 1.0, len(anchors))
    return np.stack([np.interp(level, at, channel) for channel in anchors.T], axis=-1)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _tile_size(width: int, height: int) -> tuple[int, int]:
    """Small pictures grow by a whole factor, so that pixels stay pixels, and large ones shrink."""
    scale = min(limit / size for limit, size in zip(_SMALLEST, (width, height), strict=True))
    scale = float(int(scale)) if scale >= 1.0 else 1.0
    scale = min(scale, *(limit / size for limit, size in zip(_LARGEST, (width, height), strict=True)))
    return max(1, round(scale * width)), max(1, round(scale * height))


def _draw_row(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    row: SheetRow,
    names: tuple[str, str],
    top: int,
    size: tuple[int, int],
    wide: int,
) -> None:
    difference = row.difference
    height, width = difference.error.shape[-2:]
    errors = difference.error.reshape(-1, height, width)
    worst = max(range(len(errors)), key=lambda index: _badness(errors[index], difference.limit))
    pictures = [stack.reshape(-1, height, width, stack.shape[-1])[worst] for stack in (row.first, row.second)]
    where = "" if len(errors) == 1 else f", {_place(difference.error.shape[:-2], worst)}"
    verdict = "within" if difference.is_within else "beyond"
    draw.text((_MARGIN, top + 6), f"{row.title}{where}", fill=_INK, font=_font(17))
    draw.text((_MARGIN, top + 27), _words(difference), fill=_FAINT, font=_font(14))
    left = draw.textlength(_words(difference), font=_font(14)) + _MARGIN + 14
    draw.text(
        (left, top + 27), f"{verdict} the tolerance", fill=_GOOD if difference.is_within else _BAD, font=_font(14)
    )
    limits = depth_range(np.stack(pictures)) if difference.plane == "depth" else None
    tiles = [_shown(difference.plane, picture, limits) for picture in pictures]
    tiles.append(colour_difference(errors[worst], difference.limit))
    for column, (tile, name) in enumerate(zip(tiles, (*names, "difference"), strict=True)):
        corner = (_MARGIN + column * (wide + _GAP), top + _HEADER)
        draw.text((corner[0], corner[1] - 19), name, fill=_FAINT, font=_font(13))
        sheet.paste(Image.fromarray(np.ascontiguousarray(tile)).resize(size, Image.Resampling.NEAREST), corner)
    _draw_legend(sheet, draw, difference, (_MARGIN + 2 * (wide + _GAP), top + _HEADER + size[1] + 6), wide)


def _badness(error: NDArray[np.float32], limit: float) -> tuple[int, float]:
    return int((error > limit).sum()), float(error[np.isfinite(error)].sum())


def _shown(plane: str, picture: NDArray, limits: tuple[float, float] | None) -> NDArray[np.uint8]:
    if picture.dtype == np.uint8 or plane in ("depth", "segmentation"):
        return colour_plane(plane, picture, limits)
    if plane.endswith("segmentation"):
        return colour_plane("segmentation", np.concatenate((picture[..., :1], 0 * picture[..., :1]), axis=-1))
    if picture.shape[-1] == 1:
        return colour_plane("depth", picture)
    return np.clip(127.5 * (np.nan_to_num(picture[..., :3]) + 1.0), 0.0, 255.0).astype(np.uint8)


def _place(shape: tuple[int, ...], index: int) -> str:
    """Which of a stack: (captures, environments) in an archive of `scene-data render`."""
    at = np.unravel_index(index, shape)
    names = ("capture", "environment") if len(shape) == 2 else ("picture",) * len(shape)
    return ", ".join(f"{name} {position}" for name, position in zip(names, at, strict=True))


def _words(difference: PictureDifference) -> str:
    words = [f"{difference.share:.2%} of the pixels differ, {difference.tolerance.share:.2%} may"]
    if difference.unit is not Unit.OBJECTS:
        words.append(f"mean {quantity(difference.mean, difference.unit)}")
        words.append(f"largest {quantity(difference.largest, difference.unit)}")
    return ", ".join(words)


def _draw_legend(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, difference: PictureDifference, corner: tuple[int, int], width: int
) -> None:
    """A bar from no difference to the brightest, with the tolerance marked."""
    left, top = corner
    limit, unit = difference.limit, difference.unit
    if limit > 0.0:
        bar = np.tile(np.linspace(0.0, AMPLIFICATION * limit, width, dtype=np.float32), (9, 1))
        marks = [
            (0.0, "0"),
            (1.0 / AMPLIFICATION, f"tolerated: {quantity(limit, unit)}"),
            (1.0, f"{AMPLIFICATION * limit:g} or more"),
        ]
    else:
        bar = np.tile((np.arange(width) >= width // 2).astype(np.float32), (9, 1))
        marks = [(0.0, "the same"), (0.5, "not the same")]
    sheet.paste(Image.fromarray(colour_difference(bar, limit)), (left, top))
    for at, label in marks:
        anchor = "rt" if at == 1.0 else "lt"
        draw.text((left + at * width, top + 13), label, fill=_FAINT, font=_font(12), anchor=anchor)
