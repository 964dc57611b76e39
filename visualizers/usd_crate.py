"""Crate files (`.usdc`) with many time samples, written many times faster than by one `SetTimeSample` for each.

USD writes the file, with a mark in place of the samples of each attribute. In a crate file, the samples of an attribute
are a record that may stand anywhere: its times, and one word for each value that says its type and where it is. So
what was recorded is appended as it is, and each mark is made to point at the record of its attribute.
"""

import struct
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pxr import Sdf, Usd

from scene_data.errors import SceneDataError

from .usd_samples import TrackSamples

__all__ = ["CrateTemplate"]

# What a word that refers to a value says of its type.
_TIMES = np.uint64(48 << 48)
_MATRIX = np.uint64(15 << 48)
_POINTS = np.uint64(1 << 63 | 24 << 48)

# A negative number, as the time of a sample that is found again in the file.
_MARK = b"sceneda\xf4"
_MARK_TIME: float = struct.unpack("<d", _MARK)[0]

# What stands around a mark [bytes from it]: the number of times, which are the mark and the row of the attribute; the
# word that refers to them; and how far on the values are.
_TO_COUNT, _TO_ROW, _TO_TIMES, _TO_JUMP = -8, 8, 16, 24
_COUNT, _JUMP = 2, 8

_ALIGNMENT = 16
_SIXTY_FOUR_BIT_LENGTHS = (0, 7, 0)  # the first version of the format whose arrays have these


class CrateTemplate:
    """A file that waits for its samples.

    Args:
        layer: What else the file holds.
        paths: Attributes of the layer that will have samples.

    Raises:
        SceneDataError: USD writes files that are not understood here.
    """

    def __init__(self, layer: Sdf.Layer, paths: Sequence[Sdf.Path]):
        marked = Sdf.Layer.CreateAnonymous("marked.usdc")
        marked.TransferContent(layer)
        with Sdf.ChangeBlock():
            for row, path in enumerate(paths):
                for time in (_MARK_TIME, float(row)):
                    marked.SetTimeSample(path, time, Sdf.ValueBlock())
        with tempfile.TemporaryDirectory(prefix="scene_data_usd_") as folder:
            file = Path(folder, "marked.usdc")
            marked.Export(str(file))
            content = file.read_bytes()
        self._content = content + bytes(-len(content) % _ALIGNMENT)
        self._marks = _find_marks(self._content, len(paths))

    def write(self, path: Path, times: Sequence[float], tracks: Sequence[TrackSamples]) -> None:
        """Write the file.

        Args:
            path: The file, a `.usdc`.
            times: Time codes, ascending.
            tracks: The samples of the attributes, in the order of `paths`.
        """
        content = bytearray(self._content)
        sizes = [sum(block.nbytes for block in track.data) for track in tracks]
        records = _Records(len(content) + sum(sizes))
        for track, start in zip(tracks, len(content) + np.cumsum([0, *sizes]), strict=False):
            records.add(track, np.array(times, np.float64), start)
        if len(self._marks):
            words = _unaligned(content, np.uint64)
            words[self._marks + _TO_TIMES] = _TIMES | np.concatenate(records.times)
            words[self._marks + _TO_JUMP] = np.concatenate(records.values) - (self._marks + _TO_JUMP).astype(np.uint64)
        with path.open("wb") as file:
            file.write(content)
            for part in chain(*(track.data for track in tracks), records.words):
                file.write(part.data)


class _Records:
    """Times and values of attributes, one record after another.

    Args:
        start: Where in the file they begin.

    Attributes:
        words: What is written.
        times: Where the times of each attribute are.
        values: Where its values are.
    """

    def __init__(self, start: int):
        self._end = start
        self.words: list[NDArray[np.uint64]] = []
        self.times: list[NDArray[np.uint64]] = []
        self.values: list[NDArray[np.uint64]] = []

    def add(self, track: TrackSamples, times: NDArray[np.float64], data_start: int) -> None:
        """Add the attributes of a track, whose data begins there in the file."""
        if not len(track.paths):
            return
        # Attributes that have samples at the same times share these.
        packed = np.packbits(track.is_written, axis=1)
        _, examples, kinds = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        are_times = track.is_written[examples]
        shared = self._append(are_times, np.broadcast_to(times, are_times.shape)[are_times])
        self.times.append(shared[kinds.reshape(-1)])
        places = (data_start + track.places[track.is_written]).astype(np.uint64)
        self.values.append(self._append(track.is_written, (_POINTS if track.are_points else _MATRIX) | places))

    def _append(self, is_present: NDArray[np.bool_], elements: NDArray) -> NDArray[np.uint64]:
        """Append what is present of each row, after its length; where each row begins."""
        lengths = is_present.sum(axis=1)
        starts = np.cumsum(lengths + 1) - lengths - 1
        words = np.empty(len(lengths) + len(elements), np.uint64)
        is_length = np.zeros(len(words), bool)
        is_length[starts] = True
        words[is_length], words[~is_length] = lengths, elements.view(np.uint64)
        places = self._end + words.itemsize * starts
        self.words.append(words)
        self._end += words.nbytes
        return places.astype(np.uint64)


def _find_marks(content: bytes, count: int) -> NDArray[np.intp]:
    """Where the mark of each row is."""
    words = _unaligned(content, np.uint64)
    marks = np.flatnonzero(words == np.frombuffer(_MARK, np.uint64)[0])
    if tuple(content[8:11]) >= _SIXTY_FOUR_BIT_LENGTHS and len(marks) == count:
        rows = _unaligned(content, np.float64)[marks + _TO_ROW]
        is_known = (words[marks + _TO_COUNT] == _COUNT) & (words[marks + _TO_JUMP] == _JUMP)
        is_known &= words[marks + _TO_TIMES] == (_TIMES | (marks + _TO_COUNT).astype(np.uint64))
        if is_known.all() and (np.sort(rows) == np.arange(count)).all():
            return marks[np.argsort(rows)]
    version = ".".join(str(part) for part in content[8:11])
    raise SceneDataError(
        f"USD {'.'.join(map(str, Usd.GetVersion()))} writes crate files of version {version} whose time samples are "
        "not where a recording looks for them; install usd-core 26."
    )


def _unaligned(content: bytes | bytearray, dtype: DTypeLike) -> NDArray:
    """The values of eight bytes that begin at each byte."""
    return np.ndarray((len(content) - 7,), dtype, content, strides=(1,))
