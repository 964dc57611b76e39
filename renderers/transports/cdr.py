"""Camera messages as ROS 2 has them on the wire and in files: little-endian CDR, version 1, final types."""

import struct
from collections.abc import Callable

from .camera_messages import (
    IS_BIG_ENDIAN,
    CameraInfoContent,
    ClockContent,
    Content,
    ImageContent,
    TransformContent,
)

__all__ = ["encode_cdr"]

_HEADER = b"\x00\x01\x00\x00"
_NS_PER_S = 1_000_000_000


class _CdrWriter:
    """Puts values one after the other, each aligned to its size, counted from after the header."""

    def __init__(self):
        self._parts: list[bytes | memoryview] = [_HEADER]
        self._length = 0

    def put(self, form: str, *values: float) -> None:
        """Numbers of one struct format letter."""
        self._align(struct.calcsize(form))
        self._append(struct.pack(f"<{len(values)}{form}", *values))

    def string(self, text: str) -> None:
        encoded = text.encode() + b"\x00"
        self.put("I", len(encoded))
        self._append(encoded)

    def octets(self, data: memoryview) -> None:
        """A sequence of bytes."""
        self.put("I", len(data))
        self._append(data)

    def getvalue(self) -> bytes:
        """The message, padded to whole words as DDS wants it."""
        self._align(4)
        return b"".join(self._parts)

    def stamp(self, stamp_ns: int) -> None:
        """`builtin_interfaces/Time`."""
        seconds, nanoseconds = divmod(stamp_ns, _NS_PER_S)
        self.put("i", seconds)
        self.put("I", nanoseconds)

    def header(self, stamp_ns: int, frame_id: str) -> None:
        """`std_msgs/Header`."""
        self.stamp(stamp_ns)
        self.string(frame_id)

    def _align(self, size: int) -> None:
        self._append(bytes(-self._length % size))

    def _append(self, part: bytes | memoryview) -> None:
        self._parts.append(part)
        self._length += len(part)


def encode_cdr(content: Content) -> bytes:
    """A message in CDR, with its encapsulation header. Shares no memory with the content."""
    writer = _CdrWriter()
    _PUTTERS[type(content)](writer, content)
    return writer.getvalue()


def _put_image(writer: _CdrWriter, content: ImageContent) -> None:
    writer.header(content.stamp_ns, content.frame_id)
    writer.put("I", content.height, content.width)
    writer.string(content.encoding)
    writer.put("B", IS_BIG_ENDIAN)
    writer.put("I", content.step)
    writer.octets(content.data)


def _put_camera_info(writer: _CdrWriter, content: CameraInfoContent) -> None:
    writer.header(content.stamp_ns, content.frame_id)
    writer.put("I", content.height, content.width)
    writer.string(content.distortion_model)
    writer.put("I", len(content.d))
    writer.put("d", *content.d, *content.k, *content.r, *content.p)
    writer.put("I", 0, 0)  # binning: 0 means none
    writer.put("I", 0, 0, 0, 0)  # region of interest: zeros mean the full image
    writer.put("B", 0)


def _put_transform(writer: _CdrWriter, content: TransformContent) -> None:
    writer.put("I", 1)
    writer.header(content.stamp_ns, content.frame_id)
    writer.string(content.child_frame_id)
    writer.put("d", *content.translation, *content.rotation)


def _put_clock(writer: _CdrWriter, content: ClockContent) -> None:
    writer.stamp(content.stamp_ns)


_PUTTERS: dict[type, Callable[..., None]] = {
    ImageContent: _put_image,
    CameraInfoContent: _put_camera_info,
    TransformContent: _put_transform,
    ClockContent: _put_clock,
}
