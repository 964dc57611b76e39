"""Values of many attributes, of which only those that changed are written."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pxr import Sdf, Vt

__all__ = ["AttributeRows", "encode_boxes", "encode_matrices"]

# Far below what any picture shows; what rests in a solver trembles less.
_TOLERANCE = 1e-9

Encoder = Callable[[NDArray, NDArray[np.intp]], Sequence[Any]]


def encode_matrices(values: NDArray, rows: NDArray[np.intp]) -> Sequence[Any]:
    """USD's matrices of these rows of `(n, 4, 4)` float64."""
    return Vt.Matrix4dArray.FromNumpy(np.ascontiguousarray(values[rows]))


def encode_boxes(values: NDArray, rows: NDArray[np.intp]) -> Sequence[Any]:
    """USD's extents of these rows of `(n, 2, 3)` float32."""
    return [Vt.Vec3fArray.FromNumpy(values[row]) for row in rows]


class AttributeRows:
    """The same attribute of many prims, fed from one array.

    A value that stays is not written again; when it changes, it is first written once more at the time code before,
    so that nobody interpolates across the rest. Values that are not finite are left out: the last good one stands.

    Args:
        layer: Where the attributes are declared.
        paths: The attribute of each row.
        values: What they hold now: one element per row, or, with `counts`, so many elements for each row in turn.
        encode: USD's values of the rows that are asked for.
        counts: Elements of each row.
    """

    def __init__(
        self,
        layer: Sdf.Layer,
        paths: Sequence[Sdf.Path],
        values: NDArray,
        encode: Encoder,
        counts: NDArray[np.intp] | None = None,
    ):
        self._layer = layer
        self._paths = paths
        self._written = values.copy()
        self._encode = encode
        self._counts = np.ones(len(paths), np.intp) if counts is None else counts
        self._starts = np.cumsum(self._counts) - self._counts
        self._times = np.full(len(paths), -np.inf)
        self._previous: float | None = None
        self._begins_layer = False

    def continue_in(self, layer: Sdf.Layer) -> None:
        """Write to another layer from now on. Its first samples hold everything, also what did not change."""
        self._layer = layer
        self._previous = None
        self._begins_layer = True

    def write(self, values: NDArray, time: float | None) -> None:
        """Write what changed. Call it within an `Sdf.ChangeBlock`.

        Args:
            values: As many as at construction.
            time: Time code, not below the one before; None writes the values that hold where there are no samples.
        """
        rows = self._changed(values)
        if time is None:
            attributes = [self._layer.GetAttributeAtPath(self._paths[row]) for row in rows]
            for attribute, value in zip(attributes, self._encode(values, rows), strict=True):
                attribute.default = value
        else:
            if self._previous is not None:
                self._sample(rows[self._times[rows] < self._previous], self._written, self._previous)
            self._sample(rows, values, time)
            if self._begins_layer:
                self._sample(np.setdiff1d(np.arange(len(self._paths)), rows), self._written, time)
                self._begins_layer = False
            self._previous = time
        is_written = np.zeros(len(self._paths), bool)
        is_written[rows] = True
        elements = np.repeat(is_written, self._counts)
        self._written[elements] = values[elements]

    def _changed(self, values: NDArray) -> NDArray[np.intp]:
        if not len(self._paths):
            return np.empty(0, np.intp)
        flat = values.reshape(len(values), -1)
        with np.errstate(invalid="ignore"):  # infinities are sorted out here
            moved = (np.abs(flat - self._written.reshape(flat.shape)) > _TOLERANCE).any(axis=1)
        finite = np.isfinite(flat).all(axis=1)
        moved = np.logical_or.reduceat(moved, self._starts)
        return np.flatnonzero(moved & np.logical_and.reduceat(finite, self._starts))

    def _sample(self, rows: NDArray[np.intp], values: NDArray, time: float) -> None:
        write, paths = self._layer.SetTimeSample, self._paths
        for row, value in zip(rows.tolist(), self._encode(values, rows), strict=True):
            write(paths[row], time, value)
        self._times[rows] = time
