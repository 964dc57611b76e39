"""`scene-data compare`: how much pictures differ, in numbers and as a picture."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scene_data.cli.difference_sheet import SheetRow, draw_difference_sheet, quantity
from scene_data.picture_difference import Tolerance, Unit, compare_pictures
from scene_data.picture_files import IMAGE_SUFFIXES, read_planes

__all__ = ["Compare", "compare_files", "run_compare"]

_NOT_COMPARED = "contact_sheet.png"
"""What `scene-data render` writes beside the archives, which hold the same."""


@dataclass
class Compare:
    """Compare pictures, or folders of them, and say how much they differ.

    Ends with status 1 where they differ by more than is tolerated.
    """

    first: tyro.conf.Positional[Path]
    """An image, an NPZ that `render` wrote, or a folder of them."""
    second: tyro.conf.Positional[Path]
    """What it is compared with: the same, with the same names in folders."""
    out: Path | None = None
    """Where to write a picture of both and of their difference."""
    tolerance: Annotated[Tolerance, tyro.conf.arg(name="")] = field(default_factory=Tolerance)


@dataclass(frozen=True)
class _Lone:
    """A file or plane that only one side has."""

    title: str
    owner: Path


def run_compare(args: Compare, console: Console) -> bool:
    """Run the command.

    Returns:
        Whether everything counts as the same.

    Raises:
        ValueError: Something cannot be read or compared.
        FileNotFoundError: There is no such file.
    """
    found = list(_compare(args.first, args.second, args.tolerance))
    rows = [row for row in found if isinstance(row, SheetRow)]
    console.print(_table(args, found))
    if args.out is not None and rows:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        draw_difference_sheet(str(args.first), str(args.second), rows).save(args.out)
        console.print(f"The difference as a picture: [cyan]{escape(str(args.out))}[/]", soft_wrap=True)
    return len(rows) == len(found) and all(row.difference.is_within for row in rows)


def compare_files(first: Path, second: Path, tolerance: Tolerance) -> list[SheetRow]:
    """Compare all planes of two files or folders.

    Raises:
        ValueError: Something cannot be read or compared, or is on one side alone.
        FileNotFoundError: There is no such file.
    """
    found = list(_compare(first, second, tolerance))
    for row in found:
        if isinstance(row, _Lone):
            raise ValueError(f"{row.title} is in {row.owner} alone.")
    return [row for row in found if isinstance(row, SheetRow)]


def _compare(first: Path, second: Path, tolerance: Tolerance) -> Iterator[SheetRow | _Lone]:
    for path in (first, second):
        if not path.exists():
            raise FileNotFoundError(f"There is no {str(path)!r} to compare.")
    if first.is_dir() != second.is_dir():
        raise ValueError(f"{first} and {second} cannot be compared: one is a folder, the other a file.")
    if not first.is_dir():
        yield from _compare_planes(first, second, "", tolerance)
        return
    names = [_pictures(folder) for folder in (first, second)]
    if not names[0] | names[1]:
        raise ValueError(f"Neither {first} nor {second} holds an NPZ or an image.")
    for name in sorted(names[0] | names[1]):
        if name not in names[0] or name not in names[1]:
            yield _Lone(name, first if name in names[0] else second)
        else:
            yield from _compare_planes(first / name, second / name, name, tolerance)


def _pictures(folder: Path) -> set[str]:
    suffixes = {".npz", *IMAGE_SUFFIXES}
    files = (path for path in folder.iterdir() if path.suffix.lower() in suffixes and path.is_file())
    return {path.name for path in files} - {_NOT_COMPARED}


def _compare_planes(first: Path, second: Path, name: str, tolerance: Tolerance) -> Iterator[SheetRow | _Lone]:
    planes = [read_planes(path) for path in (first, second)]
    for plane in {**planes[0], **planes[1]}:
        title = name if name.split(".")[-2:-1] == [plane] else f"{name} {plane}".strip()
        if plane not in planes[0] or plane not in planes[1]:
            yield _Lone(title, first if plane in planes[0] else second)
            continue
        pair = planes[0][plane], planes[1][plane]
        try:
            yield SheetRow(title, *pair, compare_pictures(plane, *pair, tolerance))
        except ValueError as error:
            raise ValueError(f"{first} and {second} cannot be compared: {error}") from error


def _table(args: Compare, found: list[SheetRow | _Lone]) -> Table:
    table = Table(
        "picture", "mean", "largest", "pixels that differ", "may differ", "", title=f"{args.first} and {args.second}"
    )
    for row in found:
        if isinstance(row, _Lone):
            table.add_row(escape(row.title), "", "", "", "", f"[red]in {escape(str(row.owner))} alone[/]")
            continue
        difference = row.difference
        unit = difference.unit
        table.add_row(
            escape(row.title),
            "" if unit is Unit.OBJECTS else quantity(difference.mean, unit),
            quantity(difference.largest, unit),
            f"{difference.share:.2%}",
            f"{difference.tolerance.share:.2%}",
            "[green]the same[/]" if difference.is_within else "[red]differs[/]",
        )
    return table
