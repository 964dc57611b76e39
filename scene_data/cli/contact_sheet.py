"""One picture that shows what a run captured: cameras and planes down, environments or times across."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from scene_data.cli.colour import colour_plane, depth_range

__all__ = ["SheetBlock", "draw_contact_sheet", "sheet_columns"]

_COLUMNS = 4
_TILE_WIDTH = 320
_GAP = 8
_MARGIN = 24
_LABEL_WIDTH = 112
_HEADER = 34
_BACKGROUND = (250, 250, 251)
_INK = (32, 34, 40)
_FAINT = (118, 122, 132)


@dataclass(frozen=True)
class SheetBlock:
    """One camera on the sheet.

    Attributes:
        camera: Its name.
        planes: By data type, the images shown, shape (columns, H, W, C).
        captions: One line per column.
    """

    camera: str
    planes: Mapping[str, np.ndarray]
    captions: Sequence[str]


def sheet_columns(captures: int, num_envs: int) -> list[tuple[int, int]]:
    """The (capture, environment) pairs to show: the last capture of several environments, or several times of one."""
    if num_envs > 1:
        return [(captures - 1, env) for env in range(min(num_envs, _COLUMNS))]
    times = np.linspace(0, captures - 1, min(captures, _COLUMNS)).round().astype(int)
    return [(int(capture), 0) for capture in times]


def draw_contact_sheet(title: str, subtitle: str, blocks: Sequence[SheetBlock]) -> Image.Image:
    """Lay the blocks out under a title."""
    columns = max(len(block.captions) for block in blocks)
    width = 2 * _MARGIN + _LABEL_WIDTH + columns * (_TILE_WIDTH + _GAP) - _GAP
    height = 2 * _MARGIN + 62 + sum(_block_height(block) for block in blocks)
    sheet = Image.new("RGB", (width, height), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN), title, fill=_INK, font=_font(26))
    draw.text((_MARGIN, _MARGIN + 34), subtitle, fill=_FAINT, font=_font(15))
    top = _MARGIN + 62
    for block in blocks:
        _draw_block(sheet, draw, block, top)
        top += _block_height(block)
    return sheet


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _tile_height(images: np.ndarray) -> int:
    return max(1, round(_TILE_WIDTH * images.shape[1] / images.shape[2]))


def _block_height(block: SheetBlock) -> int:
    return _HEADER + sum(_tile_height(images) + _GAP for images in block.planes.values()) + _GAP


def _draw_block(sheet: Image.Image, draw: ImageDraw.ImageDraw, block: SheetBlock, top: int) -> None:
    draw.text((_MARGIN, top + 10), block.camera, fill=_INK, font=_font(17))
    for column, caption in enumerate(block.captions):
        draw.text((_column_left(column), top + 12), caption, fill=_FAINT, font=_font(14))
    top += _HEADER
    for data_type, images in block.planes.items():
        tile_height = _tile_height(images)
        limits = depth_range(images) if data_type == "depth" else None
        for line, label in enumerate(_labels(data_type, limits)):
            draw.text((_MARGIN, top + 4 + 19 * line), label, fill=_INK if line == 0 else _FAINT, font=_font(14))
        for column, image in enumerate(images):
            picture = Image.fromarray(np.ascontiguousarray(colour_plane(data_type, image, limits)))
            smooth = Image.Resampling.LANCZOS if data_type == "rgb" else Image.Resampling.NEAREST
            sheet.paste(picture.resize((_TILE_WIDTH, tile_height), smooth), (_column_left(column), top))
        top += tile_height + _GAP


def _labels(data_type: str, limits: tuple[float, float] | None) -> list[str]:
    if limits is None:
        return [data_type]
    return [data_type, f"{limits[0]:.2f} m", f"to {limits[1]:.2f} m"]


def _column_left(column: int) -> int:
    return _MARGIN + _LABEL_WIDTH + column * (_TILE_WIDTH + _GAP)
