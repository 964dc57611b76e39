"""One conversion of a publication: what must fit, and the launch."""

from functools import cache
from typing import Any

import warp as wp

from scene_data.backend import publication_device
from scene_data.formats import SceneDataFormat
from scene_data.transforms import (
    SCALED_FORMATS,
    can_convert,
    gather_kernel,
    identity_of,
    scatter_kernel,
    straight_kernel,
)

__all__ = ["Conversion", "allocate_missing", "bind", "bound_arrays", "publication_count"]


class Conversion:
    """A publication, the format that it is wanted in, and how its entries are laid out there.

    Attributes:
        source_count: Number of published entries.
        device: Device of the publication, on which the conversion runs.
    """

    def __init__(
        self, source: Any, target_format: Any, mapping: Any = None, count: int | None = None, scales: Any = None
    ):
        self.source_count = publication_count(source)
        self.device = publication_device(source)
        self._source = source
        self._target_format = target_format
        self._mapping = mapping
        self._count = count
        self._scales = scales
        if scales is not None and target_format not in SCALED_FORMATS:
            raise ValueError(f"{target_format.__name__} has no static scales; {_names(SCALED_FORMATS)} have.")
        if mapping is None and count not in (None, self.source_count):
            raise self._count_error(count)

    @property
    def exists(self) -> bool:
        """Whether the publication can be had in this format."""
        return self._is_identity or can_convert(self._source._cls, self._target_format)

    @property
    def _is_identity(self) -> bool:
        return self._source._cls is self._target_format and self._mapping is None and self._scales is None

    def target(self, output: Any = None) -> Any:
        """Struct to convert into: `output`, or a struct with its arrays and new ones, where it has not got all.

        New slots that nothing maps to hold the identity. What gets new arrays is a struct of its own, so that a failure
        leaves `output` alone.
        """
        if output is not None and all(getattr(output, field) is not None for field in output._cls.vars):
            return output
        target = self._target_format()
        count = self.source_count if self._count is None else self._count
        if output is not None:
            bind(target, output)
            count = min(map(len, bound_arrays(output)), default=count)
        allocate_missing(target, count, self.device, blank=self._mapping is not None)
        return target

    def write(self, target: Any) -> None:
        """Write the publication into the arrays of `target`, by one launch, or by one copy where one array is all.

        Raises:
            ValueError: If the publication is incomplete, or if mapping, scales or target do not fit it.
        """
        name = self._source._cls.__name__
        if any(count != self.source_count for count in _counts(self._source)):
            raise ValueError(f"{name} publishes arrays of different lengths: {_counts(self._source)}.")
        arrays = [getattr(target, field) for field in target._cls.vars]
        if any(array is None for array in arrays):
            raise ValueError(f"{target._cls.__name__} has no array: its owner binds one before it is written.")
        elsewhere = any(array.device != self.device for array in arrays)
        if self._is_identity and (elsewhere or len(arrays) == 1 or not can_convert(target._cls, target._cls)):
            self._copy(target)
        elif elsewhere:
            raise ValueError(f"The output must be on {self.device}, where {name} is published.")
        elif self._target_format is SceneDataFormat.FabricMatrix44:
            self._write_fabric(target)
        else:
            self._write_arrays(target)

    def _copy(self, target: Any) -> None:
        if (length := min(_counts(target))) < self.source_count:
            raise self._count_error(length)
        for destination, array in zip(bound_arrays(target), bound_arrays(self._source), strict=True):
            wp.copy(destination, array)

    def _write_arrays(self, target: Any) -> None:
        length = min(_counts(target))
        # Without a count, a mapping may reach every slot that there is.
        limit = self._count if self._count is not None else self.source_count if self._mapping is None else length
        if length < limit:
            raise self._count_error(length)
        check_array("The mapping", self._mapping, wp.array, wp.int32, self.source_count, self.device)
        check_array("The array of scales", self._scales, wp.array, wp.vec3f, limit, self.device)
        self._launch(target, self.source_count, limit)

    def _write_fabric(self, target: Any) -> None:
        length = len(target.matrices)
        if self._mapping is None and length != self.source_count:
            raise self._count_error(length)
        check_array("The mapping", self._mapping, wp.fabricarray, wp.int32, length, self.device)
        check_array("The array of scales", self._scales, wp.array, wp.vec3f, self.source_count, self.device)
        self._launch(target, length, self.source_count)

    def _launch(self, target: Any, dim: int, limit: int) -> None:
        pair = self._source._cls, self._target_format
        inputs = [self._source, self._mapping, self._scales, limit]
        if self._mapping is None and self._scales is None:
            kernel, inputs = straight_kernel(*pair), [self._source]
        elif isinstance(self._mapping, wp.fabricarray):
            kernel = gather_kernel(*pair)
        else:
            kernel = scatter_kernel(*pair)
        wp.launch(kernel, dim=dim, inputs=inputs, outputs=[target], device=self.device)

    def _count_error(self, count: int | None) -> ValueError:
        mapping = "without a mapping" if self._mapping is None else f"with a mapping to {self._count} slots"
        return ValueError(f"A destination count of {count} cannot take {self.source_count} entries {mapping}.")


def publication_count(publication: Any) -> int:
    """Number of entries of a published struct; 0 while nothing is published."""
    if publication is None:
        return 0
    array = getattr(publication, _first_field(publication._cls))
    return 0 if array is None else len(array)


def bound_arrays(data: Any) -> list[Any]:
    """Arrays that a struct has."""
    return [array for field in data._cls.vars if (array := getattr(data, field)) is not None]


def bind(output: Any, data: Any) -> None:
    """Let a struct have the arrays of another one of its format."""
    for field in output._cls.vars:
        array = getattr(data, field)
        # Warp builds a new descriptor at every assignment, which costs more than all the rest of a clean read.
        if getattr(output, field) is not array:
            setattr(output, field, array)


def allocate_missing(output: Any, count: int, device: wp.Device, *, blank: bool = True) -> None:
    """Give a struct the arrays that it lacks, and leave those that it has.

    Args:
        output: An instance of one of the `SceneDataFormat` structs.
        count: Length of the new arrays.
        device: Device of the new arrays.
        blank: Fill the new arrays with the identity, so that slots that nothing maps to hold a valid pose.
    """
    for field, var in output._cls.vars.items():
        if getattr(output, field) is None and isinstance(var.type, wp.array):
            dtype = var.type.dtype
            if blank:
                array = wp.full(count, identity_of(dtype), dtype=dtype, device=device)
            else:
                array = wp.empty(count, dtype=dtype, device=device)
            setattr(output, field, array)


def check_array(what: str, array: Any, kind: type, dtype: type, length: int, device: wp.Device) -> None:
    """Refuse an optional array that a kernel would misread.

    Raises:
        ValueError: If it is there and its class, dtype, length or device is not the one given.
    """
    if array is None:
        return
    found = type(array).__name__
    if isinstance(array, kind):
        if array.dtype is dtype and array.shape == (length,) and array.device == device:
            return
        found += f" of {array.dtype.__name__} with shape {array.shape} on {array.device}"
    raise ValueError(
        f"{what} must be a {kind.__name__} of {dtype.__name__} with shape ({length},) on {device}, not {found}."
    )


def _counts(data: Any) -> list[int]:
    return [0 if array is None else len(array) for array in (getattr(data, field) for field in data._cls.vars)]


def _names(formats: tuple[Any, ...]) -> str:
    return " and ".join(data_format.__name__ for data_format in formats)


@cache
def _first_field(data_format: Any) -> str:
    return next(iter(data_format.vars))
