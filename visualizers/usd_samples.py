"""What is recorded of a track, as the bytes that a crate file has of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pxr import Sdf

from scene_data.stage_samples import Changes, Track

__all__ = ["RecordedTrack", "TrackSamples"]

_MATRIX_WORDS = 32
_POINT_WORDS = 3
_LENGTH_WORDS = 2
_BYTES_OF_A_PLACE = 9  # and of whether there is a sample


@dataclass(frozen=True, eq=False)
class TrackSamples:
    """Samples of attributes of one type.

    Attributes:
        paths: The attribute of each row.
        is_written: Which of the clip's times each row has a sample at, `(n, times)` bool; one at least.
        places: Where in the data the value is that each row has at each time [bytes], `(n, times)` int64.
        data: The values as a crate file has them, block by block, uint32.
        are_points: Whether these are arrays of points; they are matrices otherwise.
    """

    paths: Sequence[Sdf.Path]
    is_written: NDArray[np.bool_]
    places: NDArray[np.int64]
    data: Sequence[NDArray[np.uint32]]
    are_points: bool

    def moving(self) -> "TrackSamples":
        """Those rows alone that have several samples."""
        rows = np.flatnonzero(self.is_written.sum(axis=1) > 1)
        paths = [self.paths[row] for row in rows.tolist()]
        return TrackSamples(paths, self.is_written[rows], self.places[rows], self.data, self.are_points)


class RecordedTrack:
    """Samples of a track, one after another.

    A value that stays is not stored again; when it changes, it has a sample at the time before, so that nobody
    interpolates across the rest. The first sample of a clip holds everything, so that the clip can be read by itself.

    Args:
        track: What is recorded, with the values that it has at rest.
    """

    def __init__(self, track: Track):
        self.track = track
        self._changes = Changes(track)
        self._form, self._content, self._widths = _form_of(track)
        self.begin()

    @property
    def nbytes(self) -> int:
        """What the clip takes [bytes]."""
        return self._size + len(self._places) * len(self.track.paths) * _BYTES_OF_A_PLACE

    @property
    def first_values(self) -> NDArray:
        """The values at the beginning of the clip, as those of the track."""
        return self._first

    def begin(self) -> None:
        """Begin a clip."""
        self._first = self._changes.written
        self._is_written: list[NDArray[np.bool_]] = []
        self._places: list[NDArray[np.int64]] = []
        self._data: list[NDArray[np.uint32]] = []
        self._size = 0

    def sample(self) -> None:
        """Store what the track holds now."""
        count = len(self.track.paths)
        rows = self._changes.rows()
        self._changes.accept(rows)
        if not self._places:
            self._first = self._changes.written.copy()
            rows = np.arange(count)
        is_written = np.zeros(count, bool)
        is_written[rows] = True
        if self._is_written:
            self._is_written[-1] |= is_written
        places = self._places[-1].copy() if self._places else np.zeros(count, np.int64)
        places[rows] = self._store(rows, is_written)
        self._is_written.append(is_written)
        self._places.append(places)

    def collect(self) -> TrackSamples:
        """All samples of the clip; there is one at least."""
        is_written, places = np.stack(self._is_written, axis=1), np.stack(self._places, axis=1)
        return TrackSamples(self.track.paths, is_written, places, self._data, self.track.counts is not None)

    def _store(self, rows: NDArray[np.intp], is_stored: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Keep the values of these rows; where each of them is."""
        words = self._changes.written.reshape(-1).view(np.uint32)
        if self._form is not None:
            content, words = words, self._form.copy()
            words[self._content] = content
        words = words.copy() if len(rows) == len(is_stored) else words[np.repeat(is_stored, self._widths)]
        nbytes = words.itemsize * self._widths[rows]
        places = self._size + np.cumsum(nbytes) - nbytes
        self._data.append(words)
        self._size += words.nbytes
        return places


def _form_of(track: Track) -> tuple[NDArray[np.uint32] | None, NDArray[np.intp] | None, NDArray[np.intp]]:
    """How a crate file holds the values of all rows: the words around them, where they go, and the words of each row.

    A matrix is its numbers and nothing else; points follow their number, and end where a double may begin.
    """
    if track.counts is None:
        return None, None, np.full(len(track.paths), _MATRIX_WORDS, np.intp)
    contents = _POINT_WORDS * track.counts
    widths = (_LENGTH_WORDS + contents + 1) // 2 * 2
    starts = np.cumsum(widths) - widths
    form = np.zeros(widths.sum(), np.uint32)
    form[starts] = track.counts
    within = np.arange(contents.sum()) - np.repeat(np.cumsum(contents) - contents, contents)
    return form, np.repeat(starts + _LENGTH_WORDS, contents) + within, widths
