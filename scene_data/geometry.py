"""Reading points: native ranges are views; all else is interpolated and reordered by one launch for each batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import warp as wp

from scene_data.backend import publication_device
from scene_data.formats import SceneDataFormat

# ruff: noqa: F811 - a Warp function is overloaded by defining it again.

__all__ = ["GeometryReader"]

Batch = tuple[Any, dict[str, tuple[int, int]]]

_COUNTED_FIELD = {SceneDataFormat.Points: "points", SceneDataFormat.WeightedPoints: "indices"}
"""For each format that can be read, the array that has a row for every point."""


class GeometryReader:
    """Points of a backend as views by path, and as copies in the order of a destination.

    Destinations are held weakly, and what is kept for them goes when they go.
    """

    def __init__(self):
        self._views: dict[str, wp.array] = {}
        self._buffers: dict[int, wp.array] = {}
        self._views_timestamp = -1
        self._destinations: WeakKeyDictionary[wp.array, _Destination] = WeakKeyDictionary()

    def views(self, batches: Sequence[Batch], timestamp: int) -> dict[str, wp.array]:
        """Views of the points by path.

        Args:
            batches: Publications with their ranges by path.
            timestamp: Timestamp of the publications, taken after they were resolved.

        Returns:
            Arrays vec3f by path [m], read-only by contract. They stay the same objects until an engine swaps the array
            that they look at.

        Raises:
            ValueError: If a publication has a format that cannot be read, or a range that reaches beyond it.
        """
        stale = self._views_timestamp != timestamp
        for index, (source, ranges) in enumerate(batches):
            previous = self._buffers.get(index)
            if source._cls is SceneDataFormat.Points:
                buffer = source.points
            else:
                buffer = previous
                if buffer is None:
                    buffer = wp.empty(_point_count(source), dtype=wp.vec3f, device=publication_device(source))
                if stale or buffer.device.is_capturing:
                    _gather(source, None, None, buffer, len(buffer))
            if buffer is not None and buffer is not previous:
                for path, (start, count) in ranges.items():
                    _check_range(path, start + count, len(buffer))
                    self._views[path] = buffer[start : start + count]
                self._buffers[index] = buffer
        if stale and not _is_capturing(batches):
            self._views_timestamp = timestamp
        return self._views

    def write(self, output: wp.array, offsets: dict[str, int], batches: Sequence[Batch], timestamp: int) -> wp.array:
        """Write points into a destination.

        Args:
            output: Array vec3f of shape (n,) [m]. What no path covers is left as it is.
            offsets: Where in `output` the points of each path begin.
            batches: Publications with their ranges by path.
            timestamp: Timestamp of the publications, taken after they were resolved.

        Returns:
            `output`.

        Raises:
            KeyError: If nothing publishes one of the paths.
            ValueError: If points do not fit into `output`, lie on another device or cannot be read.
        """
        destination = self._destinations.get(output)
        if destination is None or (destination.offsets is not offsets and destination.offsets != offsets):
            destination = self._destinations[output] = _Destination(offsets, _plan(output, offsets, batches))
        if destination.timestamp == timestamp and not output.device.is_capturing:
            return output
        for (source, _), rows in zip(batches, destination.rows, strict=True):
            if rows is not None:
                sources, targets = rows
                _gather(source, sources, targets, output, len(sources))
        if not output.device.is_capturing:
            destination.timestamp = timestamp
        return output


@dataclass
class _Destination:
    """Which rows of each batch go to which rows of a destination, and what the destination contains."""

    offsets: dict[str, int]
    rows: list[tuple[wp.array, wp.array] | None]
    timestamp: int = -1


def _plan(
    output: wp.array, offsets: dict[str, int], batches: Sequence[Batch]
) -> list[tuple[wp.array, wp.array] | None]:
    """Source and target rows of each batch, or None where nothing of it is wanted."""
    published = {path for _, ranges in batches for path in ranges}
    if unknown := offsets.keys() - published:
        raise KeyError(f"Nothing publishes points for {sorted(unknown)[0]!r}; {len(unknown)} of the paths are unknown.")
    rows = []
    for source, ranges in batches:
        wanted = {path: bounds for path, bounds in ranges.items() if path in offsets}
        for path, (start, count) in wanted.items():
            _check_range(path, start + count, _point_count(source))
            if not 0 <= offsets[path] <= len(output) - count:
                raise ValueError(
                    f"{path!r} has {count} points, which from {offsets[path]} on do not fit into {len(output)}."
                )
        copies = [(start, offsets[path], count) for path, (start, count) in wanted.items()]
        rows.append(_rows(source, copies, output.device) if copies else None)
    return rows


def _rows(source: Any, copies: list[tuple[int, int, int]], device: wp.Device) -> tuple[wp.array, wp.array]:
    if (published := publication_device(source)) != device:
        raise ValueError(f"The output is on {device}, and the points are published on {published}.")
    sources = np.concatenate([np.arange(start, start + count, dtype=np.int32) for start, _, count in copies])
    targets = np.concatenate([np.arange(offset, offset + count, dtype=np.int32) for _, offset, count in copies])
    return wp.array(sources, dtype=wp.int32, device=device), wp.array(targets, dtype=wp.int32, device=device)


def _check_range(path: str, end: int, count: int) -> None:
    if end > count:
        raise ValueError(f"{path!r} is said to end at point {end} of {count}.")


def _is_capturing(batches: Sequence[Batch]) -> bool:
    return any(publication_device(source).is_capturing for source, _ in batches)


def _point_count(source: Any) -> int:
    if source._cls not in _COUNTED_FIELD:
        raise ValueError(f"Points cannot be read from {source._cls.__name__}.")
    return getattr(source, _COUNTED_FIELD[source._cls]).shape[0]


def _gather(source: Any, sources: wp.array | None, targets: wp.array | None, output: wp.array, count: int) -> None:
    """Write `count` points, from rows `sources` to rows `targets`, or in the order that they have where None."""
    wp.launch(
        _gather_kernel(source._cls),
        dim=count,
        inputs=[source, sources, targets],
        outputs=[output],
        device=output.device,
    )


@cache
def _gather_kernel(source_format: Any) -> wp.Kernel:
    @wp.kernel(module="unique", enable_backward=False)
    def gather(
        source: source_format,
        sources: wp.array(dtype=wp.int32),
        targets: wp.array(dtype=wp.int32),
        output: wp.array(dtype=wp.vec3f),
    ):
        i = wp.tid()
        j = i
        k = i
        if sources:
            j = sources[i]
        if targets:
            k = targets[i]
        output[k] = read_point(source, j)

    return gather


@wp.func
def read_point(source: SceneDataFormat.Points, i: int):
    return source.points[i]


@wp.func
def read_point(source: SceneDataFormat.WeightedPoints, i: int):
    point = wp.vec3f()
    for node in range(4):
        point += source.weights[i, node] * source.points[source.indices[i, node]]
    return point
