"""Camera frames into an MCAP file, as ROS 2's recorder and Foxglove have it."""

import errno
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcap.well_known import MessageEncoding, Profile, SchemaEncoding
from mcap.writer import CompressionType, Writer

from .camera_messages import Content
from .cdr import encode_cdr
from .ros2_definitions import ROS2_DEFINITIONS, ROS2_TYPES
from .status import TransportStatus, TransportStatusCode
from .topics import TopicTransport
from .wire import MessageType, TopicWriter, Wire

__all__ = ["McapTransport"]

_logger = logging.getLogger(__name__)

_OK = TransportStatus(TransportStatusCode.OK)


class McapTransport(TopicTransport):
    """Records the cameras of one environment: images, camera info, transforms and the clock.

    Chunks are compressed with zstd and written whole, so a program that is killed leaves a file that can be read up to
    its last chunk. When the disk is full, or fails, the recording ends there: `status` says so, demand ceases, and the
    simulation goes on. Frames are dropped when the disk or the compression does not keep up; `counts()` tells.

    Args:
        path: The file; one that exists is replaced.
        namespace: Before the cameras' names.
        chunk_size: Bytes of messages in a chunk, before compression.
        **settings: See `TopicTransport`.

    Raises:
        OSError: The file cannot be written.
        ValueError: See `TopicTransport`.
    """

    def __init__(self, path: str | os.PathLike[str], namespace: str = "", *, chunk_size: int = 2**20, **settings: Any):
        self.path = Path(path)
        super().__init__(lambda: _McapWire(self.path, chunk_size), namespace, **settings)


class _McapWire(Wire):
    def __init__(self, path: Path, chunk_size: int):
        self._file = _WholeWrites(path)
        self._lock = threading.Lock()
        self._status = _OK
        self._schemas: dict[MessageType, int] = {}
        self._channels: dict[str, int] = {}
        self._writer = Writer(self._file, chunk_size=chunk_size, compression=CompressionType.ZSTD)  # pyright: ignore[reportArgumentType]
        try:
            self._writer.start(profile=Profile.ROS2, library="scene-data")
        except OSError:
            self._file.close()
            raise

    @property
    def status(self) -> TransportStatus:
        return self._status

    def open(self, topic: str, message_type: MessageType) -> TopicWriter:
        with self._lock:
            try:
                if topic not in self._channels and self._status.ok:
                    self._channels[topic] = self._register(topic, message_type)
            except OSError as error:
                self._fail(error)
            return _McapTopic(self, self._channels.get(topic, 0))

    def add(self, channel: int, stamp_ns: int, sequence: int, message: bytes) -> None:
        """Record a message."""
        with self._lock:
            if not self._status.ok:
                return
            try:
                self._writer.add_message(channel, stamp_ns, message, publish_time=stamp_ns, sequence=sequence)
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        with self._lock:
            try:
                if self._status.ok:
                    self._writer.finish()
            except OSError as error:
                self._fail(error)
            finally:
                self._file.close()

    def _register(self, topic: str, message_type: MessageType) -> int:
        if message_type not in self._schemas:
            definition = ROS2_DEFINITIONS[message_type].encode()
            name = ROS2_TYPES[message_type]
            self._schemas[message_type] = self._writer.register_schema(name, SchemaEncoding.ROS2, definition)
        return self._writer.register_channel(topic, MessageEncoding.CDR, self._schemas[message_type])

    def _fail(self, error: OSError) -> None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        code = TransportStatusCode.DISK_FULL if full else TransportStatusCode.WRITE_FAILED
        self._status = TransportStatus(code, f"{self._file.path}: {error.strerror}")
        _logger.error("The recording has ended: %s: %s", self._file.path, error.strerror)


class _McapTopic(TopicWriter):
    def __init__(self, wire: _McapWire, channel: int):
        self._wire = wire
        self._channel = channel
        self._sequence = 0

    @property
    def reader_count(self) -> int:
        return 1 if self._wire.status.ok else 0

    def encode(self, content: Content) -> tuple[int, bytes]:
        return content.stamp_ns, encode_cdr(content)

    def send(self, message: tuple[int, bytes]) -> None:
        stamp_ns, encoded = message
        self._sequence += 1
        self._wire.add(self._channel, stamp_ns, self._sequence, encoded)

    def close(self) -> None:
        """Channels stay in the file."""


class _WholeWrites:
    """A file in which each write is there when it returns, or not at all.

    A process that is killed then loses nothing that was written, and a full disk leaves no half record at the end.
    """

    def __init__(self, path: Path):
        self.path = path
        self._raw = path.open("wb", buffering=0)
        self._length = 0

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._raw.write(rest) :]
        except OSError:
            with suppress(OSError):
                self._raw.truncate(self._length)
            raise
        self._length += len(data)
        return len(data)

    def tell(self) -> int:
        return self._length

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self._raw.close()
