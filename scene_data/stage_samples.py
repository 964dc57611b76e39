"""The same attribute of many prims, and which of its values have changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pxr import Sdf, Vt

__all__ = ["AttributeRows", "Changes", "Track"]

# Far below what any picture shows; what rests in a solver trembles less.
_TOLERANCE = 1e-9


@dataclass(eq=False)
class Track:
    """One attribute of many prims: one row each.

    Attributes:
        paths: The attribute of each row.
        values: What they hold now: a matrix for each row, `(n, 4, 4)` float64, or, with `counts`, so many points for
            each row in turn, `(sum(counts), 3)` float32.
        counts: Points of each row, `(n,)`; None where the rows are matrices.
    """

    paths: Sequence[Sdf.Path]
    values: NDArray
    counts: NDArray[np.intp] | None = None

    @property
    def starts(self) -> NDArray[np.intp]:
        """The first element of each row in `values`, `(n,)`."""
        return np.arange(len(self.paths)) if self.counts is None else np.cumsum(self.counts) - self.counts

    def elements(self, rows: NDArray[np.intp]) -> Any:
        """What picks these rows in `values`; rows ascend."""
        if self.counts is None or len(rows) == len(self.paths):
            return rows if len(rows) < len(self.paths) else slice(None)
        chosen = np.zeros(len(self.paths), bool)
        chosen[rows] = True
        return np.repeat(chosen, self.counts)

    def encode(self, values: NDArray, rows: NDArray[np.intp]) -> Sequence[Any]:
        """What these rows hold in `values`, an array like that of the track, as values of USD."""
        if self.counts is None:
            return Vt.Matrix4dArray.FromNumpy(np.ascontiguousarray(values[rows]))
        spans = zip(self.starts[rows].tolist(), self.counts[rows].tolist(), strict=True)
        return [Vt.Vec3fArray.FromNumpy(values[start : start + count]) for start, count in spans]


class Changes:
    """Which rows of a track have changed since they were written.

    Values that are not finite are no change: the last good one stands.

    Attributes:
        written: What was written last, as `track.values`.
    """

    def __init__(self, track: Track):
        self._track = track
        self._starts = track.starts
        self.written = track.values.copy()

    def rows(self) -> NDArray[np.intp]:
        """The rows that have changed, ascending."""
        if not len(self._track.paths):
            return np.empty(0, np.intp)
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is sorted out below
            moved = (self._track.values - self.written).reshape(len(self.written), -1)
            squares = np.einsum("ij,ij->i", moved, moved)
            if self._track.counts is not None:
                squares = np.add.reduceat(squares, self._starts)
        return np.flatnonzero((squares > _TOLERANCE**2) & (squares < np.inf))

    def accept(self, rows: NDArray[np.intp]) -> None:
        """These rows are written."""
        elements = self._track.elements(rows)
        self.written[elements] = self._track.values[elements]


class AttributeRows:
    """Writes a track to a layer.

    A value that stays is not written again; when it changes, it is first written once more at the time code before,
    so that nobody interpolates across the rest.

    Args:
        layer: Where the attributes are declared.
        track: What to write; the layer holds its values.
    """

    def __init__(self, layer: Sdf.Layer, track: Track):
        self._layer = layer
        self._track = track
        self._changes = Changes(track)
        self._times = np.full(len(track.paths), -np.inf)
        self._previous: float | None = None

    def write(self, time: float | None) -> None:
        """Write what changed. Call it within an `Sdf.ChangeBlock`.

        Args:
            time: Time code, not below the one before; None writes the values that hold where there are no samples.
        """
        rows, values = self._changes.rows(), self._track.values
        if time is None:
            attributes = [self._layer.GetAttributeAtPath(self._track.paths[row]) for row in rows]
            for attribute, value in zip(attributes, self._track.encode(values, rows), strict=True):
                attribute.default = value
        else:
            if self._previous is not None:
                self._sample(rows[self._times[rows] < self._previous], self._changes.written, self._previous)
            self._sample(rows, values, time)
            self._previous = time
        self._changes.accept(rows)

    def _sample(self, rows: NDArray[np.intp], values: NDArray, time: float) -> None:
        write, paths = self._layer.SetTimeSample, self._track.paths
        for row, value in zip(rows.tolist(), self._track.encode(values, rows), strict=True):
            write(paths[row], time, value)
        self._times[rows] = time
