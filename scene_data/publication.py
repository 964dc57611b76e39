"""Reading a publication in any format: borrowed, converted once for everybody, or written where the reader says."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import warp as wp

from scene_data.buffers import TimestampedBuffer
from scene_data.conversion import Conversion, bind, publication_count
from scene_data.formats import SceneDataFormat

__all__ = ["PublicationReader"]


class PublicationReader:
    """Conversions of one publication, each made once per timestamp and layout.

    A conversion that readers share is kept for as long as the mapping and the scales that it was made for live.
    Destinations that a reader owns are held weakly, and what is kept for them goes when they go.
    """

    def __init__(self):
        self._shared: dict[Hashable, _SharedConversion] = {}
        self._fabric: WeakKeyDictionary[Any, TimestampedBuffer] = WeakKeyDictionary()

    def read(
        self,
        output: Any,
        source: Any,
        timestamp: int,
        mapping: Any = None,
        allow_passthrough: bool = True,
        count: int | None = None,
        scales: wp.array | None = None,
    ) -> bool:
        """Read a publication; `SceneDataProvider.get_transforms` says more about the arguments.

        Args:
            output: Struct of the wanted format.
            source: Published struct, or None while nothing is published.
            timestamp: Timestamp of the publication, taken after `source` was resolved.
            mapping: Where each entry of the source goes.
            allow_passthrough: Bind shared arrays, instead of writing into those of `output`.
            count: Length of the output.
            scales: Static scales.

        Returns:
            Whether `output` now holds the publication.

        Raises:
            ValueError: If mapping, count, scales or the arrays of `output` do not fit the publication.
        """
        source_count = publication_count(source)
        if source_count == 0:
            return False
        target_format = output._cls
        if not allow_passthrough:
            return _write(output, Conversion(source, target_format, mapping, count, scales))
        if target_format is source._cls and mapping is None and scales is None and count in (None, source_count):
            bind(output, source)
            return True
        if target_format is SceneDataFormat.FabricMatrix44:
            return self._refresh_fabric(output, source, timestamp, mapping, count, scales)
        key = (target_format, id(mapping), source_count if count is None else count, id(scales))
        shared = self._shared.get(key)
        if shared is None or shared.timestamp != timestamp or shared.device.is_capturing:
            conversion = Conversion(source, target_format, mapping, count, scales)
            if not conversion.exists:
                return False
            shared = self._refresh_shared(key, conversion, timestamp, (mapping, scales))
        bind(output, shared.data)
        return True

    def _refresh_shared(
        self, key: Hashable, conversion: Conversion, timestamp: int, owners: tuple[Any, ...]
    ) -> "_SharedConversion":
        shared = self._shared.get(key) or _SharedConversion(conversion.target(), device=conversion.device)
        conversion.write(shared.data)
        _mark_fresh(shared, timestamp, conversion.device)
        if key not in self._shared:
            forget = partial(_forget, ref(self), key)
            shared.owners = tuple(ref(array, forget) for array in owners if array is not None)
            self._shared[key] = shared
        return shared

    def _refresh_fabric(
        self, output: Any, source: Any, timestamp: int, mapping: Any, count: int | None, scales: Any
    ) -> bool:
        # Equal for as long as the owner binds no other array to its destination, and passes no other mapping.
        layout = (_weak(output.matrices), _weak(mapping), _weak(scales))
        written = self._fabric.get(output)
        fresh = written is not None and written.timestamp == timestamp and written.data == layout
        if fresh and not output.matrices.device.is_capturing:
            return True
        conversion = Conversion(source, output._cls, mapping, count, scales)
        if not conversion.exists:
            return False
        conversion.write(output)
        self._fabric[output] = written = TimestampedBuffer(layout)
        _mark_fresh(written, timestamp, conversion.device)
        return True


@dataclass
class _SharedConversion(TimestampedBuffer):
    """A conversion that readers share; `owners` are weak references to the mapping and scales it was made for."""

    device: Any = None
    owners: tuple[ref, ...] = ()


def _forget(reader: "ref[PublicationReader]", key: Hashable, _: ref) -> None:
    """Drop a shared conversion whose mapping or scales are gone, before their ids are given to others."""
    if (alive := reader()) is not None:
        alive._shared.pop(key, None)


def _weak(array: Any) -> ref | None:
    return ref(array) if isinstance(array, (wp.array, wp.fabricarray)) else None


def _mark_fresh(buffer: TimestampedBuffer, timestamp: int, device: wp.Device) -> None:
    # What is captured has not run yet.
    if not device.is_capturing:
        buffer.timestamp = timestamp


def _write(output: Any, conversion: Conversion) -> bool:
    if not conversion.exists:
        return False
    target = conversion.target(output)
    conversion.write(target)
    bind(output, target)
    return True
