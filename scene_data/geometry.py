"""Reading points: native ranges are views; all else is computed and reordered by one launch for each batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.backend import publication_device
from scene_data.formats import SceneDataFormat
from scene_data.geometry_kernels import fabric_kernel, gather_kernel, point_count

__all__ = ["GeometryReader"]

Batch = tuple[Any, dict[str, tuple[int, int]]]


class GeometryReader:
    """Points of a backend as views by path, and as copies in the order of a destination.

    Destinations are held weakly, and what is kept for them goes when they go.
    """

    def __init__(self):
        self._views: dict[str, wp.array] = {}
        self._buffers: dict[int, wp.array] = {}
        self._views_timestamp = -1
        self._destinations: WeakKeyDictionary[Any, _Destination] = WeakKeyDictionary()

    def views(self, batches: Sequence[Batch], timestamp: int) -> dict[str, wp.array]:
        """Views of the points by path.

        Args:
            batches: Publications with their ranges by path.
            timestamp: Timestamp of the publications, taken after they were resolved.

        Returns:
            Arrays vec3f by path [m], read-only by contract. They stay the same objects until an engine swaps the array
            that they look at; the dictionary stays the same for good.

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
                    buffer = wp.empty(point_count(source), dtype=wp.vec3f, device=publication_device(source))
                if stale or buffer.device.is_capturing:
                    _Rows(0, 0, len(buffer)).gather(source, buffer)
            if buffer is not None and buffer is not previous:
                for path, (start, count) in ranges.items():
                    _check_range(path, start, count, len(buffer))
                    self._views[path] = buffer[start : start + count]
                self._buffers[index] = buffer
        if stale and not _is_capturing(batches):
            self._views_timestamp = timestamp
        return self._views

    def write(self, output: Any, offsets: dict[str, int], batches: Sequence[Batch], timestamp: int) -> Any:
        """Write points into a destination.

        Args:
            output: Array vec3f of shape (n,) [m], or `FabricPoints` with storage that its owner has bound. What no path
                covers is left as it is.
            offsets: Where in `output` the points of each path begin, or the row of Fabric storage that they fill.
            batches: Publications with their ranges by path.
            timestamp: Timestamp of the publications, taken after they were resolved.

        Returns:
            `output`.

        Raises:
            KeyError: If nothing publishes one of the paths.
            ValueError: If points do not fit into `output`, or cannot be read, or if no storage is bound.
        """
        target = output if isinstance(output, wp.array) else output.points
        if target is None:
            raise ValueError(f"{output._cls.__name__} has no array: its owner binds one before it is written.")
        destination = self._destinations.get(output)
        if destination is None or not destination.holds_for(target, offsets):
            destination = self._destinations[output] = _Destination(
                ref(target), offsets, _plan(target, offsets, batches)
            )
        capturing = target.device.is_capturing
        if destination.timestamp == timestamp and not capturing:
            return output
        for (source, _), transfer in zip(batches, destination.transfers, strict=True):
            if transfer is not None:
                transfer.run(source, target)
        if not capturing:
            destination.timestamp = timestamp
        return output


@dataclass
class _Destination:
    """What goes where in a destination, and what it contains. Holds until its owner binds other storage to it."""

    target: ref
    offsets: dict[str, int]
    transfers: "list[_Transfer | None]"
    timestamp: int = -1

    def holds_for(self, target: Any, offsets: dict[str, int]) -> bool:
        return self.target() is target and (self.offsets is offsets or self.offsets == offsets)


@dataclass
class _Rows:
    """Which points of a publication go to which rows of an array: consecutive ones where no indices are given."""

    first_source: int
    first_target: int
    count: int
    sources: wp.array | None = None
    targets: wp.array | None = None

    def gather(self, source: Any, target: wp.array | wp.fabricarray) -> None:
        """Compute the points and write them, by one launch on the target's device."""
        if isinstance(target, wp.array):
            kernel = gather_kernel(source._cls)
            inputs = [source, self.sources, self.first_source, self.targets, self.first_target]
        else:
            kernel = fabric_kernel(source._cls)
            inputs = [source, self.sources, self.first_source, self.targets]
        wp.launch(kernel, dim=self.count, inputs=inputs, outputs=[target], device=target.device)


@dataclass
class _Transfer:
    """The way of one batch into a destination."""

    rows: _Rows

    def run(self, source: Any, target: Any) -> None:
        self.rows.gather(source, target)


@dataclass
class _StagedTransfer(_Transfer):
    """The way to another device: packed where the points are published, copied, and spread where they are wanted."""

    packing: _Rows
    packed: wp.array
    landing: Any

    def run(self, source: Any, target: Any) -> None:
        self.packing.gather(source, self.packed)
        here, there = self.packed.device, target.device
        if here.is_cuda and there.is_cuda:
            there.stream.wait_stream(here.stream)
        wp.copy(self.landing.points, self.packed)
        if there.is_cpu:
            wp.synchronize_stream(here)
        elif here.is_cuda:
            # The next packing may not overwrite what is still being copied.
            here.stream.wait_stream(there.stream)
        self.rows.gather(self.landing, target)


def _plan(target: Any, offsets: dict[str, int], batches: Sequence[Batch]) -> "list[_Transfer | None]":
    """The way of each batch, or None where nothing of it is wanted."""
    published = {path for _, ranges in batches for path in ranges}
    if unknown := offsets.keys() - published:
        raise KeyError(f"Nothing publishes points for {sorted(unknown)[0]!r}; {len(unknown)} of the paths are unknown.")
    check_room = _check_room if isinstance(target, wp.array) else _row_checker(target)
    transfers: list[_Transfer | None] = []
    for source, ranges in batches:
        copies = []
        for path, (start, count) in ranges.items():
            if path in offsets:
                _check_range(path, start, count, point_count(source))
                check_room(target, path, offsets[path], count)
                copies.append((start, offsets[path], count))
        transfers.append(_transfer(source, np.array(copies, dtype=np.int64), target) if copies else None)
    return transfers


def _transfer(source: Any, copies: NDArray[np.int64], target: Any) -> _Transfer:
    """The way of the points of (first source, offset, count) triples."""
    starts, offsets, counts = copies.T
    within = np.concatenate([np.arange(count) for count in counts])
    sources = np.repeat(starts, counts) + within
    if isinstance(target, wp.array):
        targets = np.repeat(offsets, counts) + within
    else:
        targets = np.column_stack((np.repeat(offsets, counts), within))
    published = publication_device(source)
    if not _crosses(published, target.device):
        return _Transfer(_rows(sources, targets, published))
    count = len(within)
    landing = SceneDataFormat.Points()
    landing.points = wp.empty(
        count, dtype=wp.vec3f, device=target.device, pinned=published.is_cuda and target.device.is_cpu
    )
    packed = wp.empty(count, dtype=wp.vec3f, device=published, pinned=published.is_cpu and target.device.is_cuda)
    spreading = _rows(np.arange(count), targets, target.device)
    return _StagedTransfer(spreading, _rows(sources, np.arange(count), published), packed, landing)


def _crosses(published: wp.Device, wanted: wp.Device) -> bool:
    return published != wanted


def _rows(sources: NDArray[np.int64], targets: NDArray[np.int64], device: wp.Device) -> _Rows:
    first_source = int(sources[0]) if len(sources) else 0
    first_target = int(targets[0]) if len(sources) and targets.ndim == 1 else 0
    return _Rows(first_source, first_target, len(sources), _indices(sources, device), _indices(targets, device))


def _indices(rows: NDArray[np.int64], device: wp.Device) -> wp.array | None:
    """Rows (n,), or pairs of them (n, 2), on a device; None for consecutive rows."""
    if rows.ndim == 1 and np.all(np.diff(rows) == 1):
        return None
    return wp.array(rows.astype(np.int32), dtype=wp.int32 if rows.ndim == 1 else wp.vec2i, device=device)


def _check_range(path: str, start: int, count: int, length: int) -> None:
    if not 0 <= start <= start + count <= length:
        raise ValueError(f"{path!r} is said to end at point {start + count} of {length}.")


def _check_room(target: wp.array, path: str, offset: int, count: int) -> None:
    if not 0 <= offset <= len(target) - count:
        raise ValueError(f"{path!r} has {count} points, which from {offset} on do not fit into {len(target)}.")


def _row_checker(target: wp.fabricarray) -> Any:
    lengths = _row_lengths(target)

    def check_room(target: wp.fabricarray, path: str, row: int, count: int) -> None:
        if not 0 <= row < len(lengths):
            raise ValueError(f"{path!r} goes to row {row} of Fabric storage, which has {len(lengths)} rows.")
        if count > lengths[row]:
            raise ValueError(f"{path!r} has {count} points, which do not fit into row {row} with {lengths[row]}.")

    return check_room


def _row_lengths(target: wp.fabricarray) -> NDArray[np.uint64]:
    """Length of each row of Fabric storage, which lives on its device."""
    lengths = [
        wp.array(
            ptr=bucket.lengths,
            dtype=wp.uint64,
            shape=(bucket.index_end - bucket.index_start,),
            device=target.device,
        ).numpy()
        for bucket in target.buckets or ()
    ]
    return np.concatenate(lengths) if lengths else np.zeros(0, np.uint64)


def _is_capturing(batches: Sequence[Batch]) -> bool:
    return any(publication_device(source).is_capturing for source, _ in batches)
