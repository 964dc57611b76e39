"""One generation of cameras in shared memory: slots for frames, and who may touch them when.

The file in /dev/shm has a block of 64-bit words, the description of its streams in JSON, and the pixels. A stream is
one plane of one camera and has slots of its own.

Why it is safe. Each slot has a byte that can be locked (`LockFile`). The writer owns the byte from before it changes
anything in the slot until the slot is whole; a reader shares the byte from before it looks at the slot until it lets
the frame go. So no slot is written while it is read, and the kernel's lock, through which ownership passes, also makes
all that the writer stored visible to the reader: no order of memory accesses has to be assumed of the processor. A
slot's sequence is 0 while it is not whole, which matters where a writer is killed and its lock goes. Which slot is
the latest is a hint of one aligned word that is stored after the slot is whole. A reader may see an old hint, and then
finds the slot owned (it looks again) or, once it shares the slot, whole and at least as new as the hint meant. A lock
goes with the process that held it, so a reader or a writer that is killed leaves nothing behind.
"""

import json
import mmap
import os
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import IntEnum
from math import prod
from pathlib import Path

import numpy as np

from ..render_core.layout import FrameStamp
from .file_locks import LockFile
from .status import TransportError, TransportStatus, TransportStatusCode

__all__ = ["SegmentState", "SharedSegment", "SharedStream", "checked_segment_name"]

_FOLDER = Path("/dev/shm")
_PREFIX = "scene-data-"
_MAGIC = int.from_bytes(b"scnshm01", "little")
_WORD = np.dtype(np.int64)
_PAGE = 4096

# Words at the start; after them a hint per stream, and then the headers of the slots.
_MAGIC_WORD, _STATE_WORD, _STREAM_COUNT_WORD, _SLOT_COUNT_WORD, _TEXT_LENGTH_WORD = range(5)
_FIRST_WORDS = 8
_HEADER_WORDS = 8  # sequence, the six of a stamp, and one to fill a cache line

# Bytes that are locked: the producer's life, the readers of each stream, each slot.
_LIFE = 0
_FIRST_STREAM_BYTE = 1


class SegmentState(IntEnum):
    """OPEN: frames come. STALE: the cameras are gone, others may come under this name. CLOSED: for good."""

    OPEN = 1
    STALE = 2
    CLOSED = 3


@dataclass(frozen=True)
class SharedStream:
    """One plane of one camera.

    Attributes:
        camera: Name of the camera.
        plane: Value of the plane's kind.
        shape: (num_envs, height, width, channels).
        dtype: NumPy's text for the type of a number.
        slots: How many frames there is room for.
    """

    camera: str
    plane: str
    shape: tuple[int, int, int, int]
    dtype: str
    slots: int

    @property
    def slot_length(self) -> int:
        """Length of a slot, whole pages [bytes]."""
        return _whole_pages(prod(self.shape) * np.dtype(self.dtype).itemsize)


class SharedSegment:
    """A mapped segment; get one by `create` or `open`. Its memory is unmapped once no array of it is left.

    Attributes:
        name: Under which readers find it.
        streams: What is in it.
        locks: Its locks.
    """

    def __init__(self, name: str, locks: LockFile, memory: mmap.mmap, streams: Sequence[SharedStream]):
        self.name = name
        self.locks = locks
        self.streams = tuple(streams)
        self._end: Callable[[], object] = locks.close
        self._memory = memory
        self._layout = _Layout.of(self.streams)
        self._words = np.frombuffer(memory, _WORD, self._layout.words)
        headers = self._words[_FIRST_WORDS + len(self.streams) :]
        self._hints = self._words[_FIRST_WORDS : _FIRST_WORDS + len(self.streams)]
        self._headers = headers.reshape(-1, _HEADER_WORDS)

    @classmethod
    def create(cls, name: str, streams: Iterable[SharedStream]) -> "SharedSegment":
        """Make a segment, all of its memory reserved, and give it its name once it is whole.

        Raises:
            TransportError: The name is in use.
            OSError: There is not enough shared memory.
        """
        streams = tuple(streams)
        layout = _Layout.of(streams)
        fd = os.open(_FOLDER, os.O_TMPFILE | os.O_RDWR, 0o600)
        try:
            os.posix_fallocate(fd, 0, layout.length)  # or a full /dev/shm would end the process at some later frame
            memory = mmap.mmap(fd, layout.length)
            locks = LockFile(f"/proc/self/fd/{fd}", writable=True)  # apart from the mapping, which may outlive it
        finally:
            os.close(fd)
        words = np.frombuffer(memory, _WORD, layout.words)
        words[:_FIRST_WORDS] = 0
        words[_MAGIC_WORD] = _MAGIC
        words[_STATE_WORD] = SegmentState.OPEN
        words[_STREAM_COUNT_WORD] = len(streams)
        words[_SLOT_COUNT_WORD] = sum(stream.slots for stream in streams)
        words[_TEXT_LENGTH_WORD] = len(layout.text)
        memory[words.nbytes : words.nbytes + len(layout.text)] = layout.text
        segment = cls(name, locks, memory, streams)
        locks.try_own(_LIFE)
        _give_name(locks, name)
        segment._end = weakref.finalize(segment, _give_up_name, name, locks)  # also where a program forgets to close
        return segment

    @classmethod
    def open(cls, name: str) -> "SharedSegment":
        """Map the segment of this name for reading.

        Raises:
            TransportError: There is none, or its producer is dead.
        """
        try:
            locks = LockFile(_path(name))
        except FileNotFoundError:
            raise _error(name, TransportStatusCode.NO_PRODUCER, "Nobody publishes under this name.") from None
        with open(locks.path, "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        first = np.frombuffer(memory, _WORD, _FIRST_WORDS)
        if first[_MAGIC_WORD] != _MAGIC:
            raise _error(name, TransportStatusCode.FAILED, "The segment is of another version.")
        words = _FIRST_WORDS + int(first[_STREAM_COUNT_WORD]) + _HEADER_WORDS * int(first[_SLOT_COUNT_WORD])
        start = words * _WORD.itemsize
        described = json.loads(memory[start : start + int(first[_TEXT_LENGTH_WORD])])
        streams = [SharedStream(**{**entry, "shape": tuple(entry["shape"])}) for entry in described]
        return cls(name, locks, memory, streams)

    # -- how it is

    @property
    def state(self) -> SegmentState:
        """What the producer last said."""
        return SegmentState(int(self._words[_STATE_WORD]))

    @property
    def has_producer(self) -> bool:
        """Whether the producer lives and has not closed it; for readers."""
        return self.locks.is_locked_elsewhere(_LIFE)

    def has_readers(self, stream: int) -> bool:
        """Whether somebody attends to a stream; for the producer."""
        return self.locks.is_locked_elsewhere(_FIRST_STREAM_BYTE + stream)

    def attend(self, stream: int, locks: LockFile) -> None:
        """Be seen as a reader of a stream, until `locks` are closed."""
        locks.try_share(_FIRST_STREAM_BYTE + stream)

    # -- frames

    def write(self, stream: int, pixels: np.ndarray, stamp: FrameStamp) -> bool:
        """Copy a frame into a slot that nobody holds; False where there is none. One thread per stream, never waits."""
        first, count = self._layout.first_slots[stream], self.streams[stream].slots
        latest = int(self._hints[stream]) - 1
        # From the oldest on; the latest stays, or readers would find none while its successor is written.
        candidates = (first + (latest - first + step) % count for step in range(1, count + 1))
        slot = next((slot for slot in candidates if slot != latest and self.locks.try_own(self._slot_byte(slot))), None)
        if slot is None:
            return False
        header = self._headers[slot]
        sequence = int(self._headers[latest, 0]) + 1 if latest >= 0 else 1
        try:
            header[0] = 0
            np.copyto(self.pixels(stream, slot), pixels, casting="no")
            header[1:7] = (
                stamp.capture_id,
                stamp.camera_id,
                stamp.plane_sequence,
                stamp.model_generation,
                stamp.frame_generation,
                stamp.simulation_time_ns,
            )
            header[0] = sequence
        finally:
            self.locks.let_go(self._slot_byte(slot))
        self._hints[stream] = slot + 1
        return True

    def latest_slot(self, stream: int) -> int | None:
        """Which slot to look at; None where there was no frame yet."""
        return int(self._hints[stream]) - 1 if self._hints[stream] else None

    def hold(self, slot: int) -> LockFile | None:
        """Keep a slot as it is until what is returned is closed; None where it is being written, or not whole."""
        hold = LockFile(self.locks.path)
        if hold.try_share(self._slot_byte(slot)) and self._headers[slot, 0]:
            return hold
        hold.close()
        return None

    def sequence(self, slot: int) -> int:
        """Counts the frames of a stream, from 1. Only while the slot is held."""
        return int(self._headers[slot, 0])

    def stamp(self, slot: int) -> FrameStamp:
        """The stamp of a frame. Only while the slot is held."""
        return FrameStamp(*(int(word) for word in self._headers[slot, 1:7]))

    def pixels(self, stream: int, slot: int) -> np.ndarray:
        """The pixels of a slot, as they are in shared memory."""
        about = self.streams[stream]
        step = slot - self._layout.first_slots[stream]
        offset = self._layout.offsets[stream] + step * about.slot_length
        return np.ndarray(about.shape, about.dtype, self._memory, offset)

    # -- ends

    def retire(self, state: SegmentState) -> None:
        """Tell readers that no frame comes any more."""
        self._words[_STATE_WORD] = state

    def close(self) -> None:
        """Let go of the locks, and where this is the producer's, take the name away. Readers keep what they hold."""
        self._end()

    def remove_abandoned(self) -> None:
        """Take the name of a dead producer away, so that its memory goes with the last reader."""
        with suppress(OSError):
            _remove_if_abandoned(self.name)

    def _slot_byte(self, slot: int) -> int:
        return _FIRST_STREAM_BYTE + len(self.streams) + slot


@dataclass(frozen=True)
class _Layout:
    """Where everything is, for these streams."""

    text: bytes
    words: int
    first_slots: tuple[int, ...]
    offsets: tuple[int, ...]
    length: int

    @classmethod
    def of(cls, streams: Sequence[SharedStream]) -> "_Layout":
        text = json.dumps([asdict(stream) for stream in streams]).encode()
        slots = sum(stream.slots for stream in streams)
        words = _FIRST_WORDS + len(streams) + _HEADER_WORDS * slots
        first_slots, offsets, slot = [], [], 0
        offset = _whole_pages(words * _WORD.itemsize + len(text))
        for stream in streams:
            first_slots.append(slot)
            offsets.append(offset)
            slot += stream.slots
            offset += stream.slots * stream.slot_length
        return cls(text, words, tuple(first_slots), tuple(offsets), offset)


def checked_segment_name(name: str) -> str:
    """A name for segments, without the leading slash that it may have.

    Raises:
        ValueError: It has other than letters, digits, `.`, `_` and `-`, or is too long.
    """
    bare = name.removeprefix("/")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", bare):
        raise ValueError(
            f"{name!r} cannot name shared memory: it has to be letters, digits, '.', '_' and '-', at most 200, "
            "a letter or digit first"
        )
    return bare


def _path(name: str) -> Path:
    return _FOLDER / f"{_PREFIX}{name}"


def _whole_pages(length: int) -> int:
    return -(-length // _PAGE) * _PAGE


def _give_name(locks: LockFile, name: str) -> None:
    """Link a file that is whole, and owned, so that nobody ever sees it otherwise."""
    folder = os.open(_FOLDER, os.O_RDONLY)
    try:
        while True:
            try:
                # Given folders, Python calls linkat, which alone can follow the path of an open file.
                os.link(locks.path, _path(name).name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)
                return
            except FileExistsError:
                if not _remove_if_abandoned(name):
                    message = "A producer that lives publishes under this name."
                    raise _error(name, TransportStatusCode.NAME_IN_USE, message) from None
    finally:
        os.close(folder)


def _remove_if_abandoned(name: str) -> bool:
    """Remove what a dead producer left under a name; whether the name is free now."""
    try:
        locks = LockFile(_path(name), writable=True)
    except FileNotFoundError:
        return True
    try:
        # Owned, so that of two that would remove it one does, and not what the other put in its place.
        if not locks.try_own(_LIFE):
            return False
        _give_up_name(name, locks)
        return True
    finally:
        locks.close()


def _give_up_name(name: str, locks: LockFile) -> None:
    """Remove a name if it is this file's, and let go of the locks; nothing in a forked child, which has none."""
    if not locks.is_open:
        return
    path = _path(name)
    with suppress(FileNotFoundError):
        status = path.stat()
        if (status.st_dev, status.st_ino) == locks.identity():
            path.unlink()
    locks.close()


def _error(name: str, code: TransportStatusCode, message: str) -> TransportError:
    return TransportError(f"shared memory {name!r}", TransportStatus(code, message))
