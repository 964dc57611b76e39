"""Isaac Lab's backends for our provider, and ours for Isaac Lab's.

Both frameworks publish Warp structs with the same names and fields, but of different classes, and a provider knows a
format by its class. So structs are wrapped anew around the arrays that they hold, and no array is copied.
"""

from typing import Any
from weakref import WeakKeyDictionary

from scene_data.backend import SceneDataBackend
from scene_data.formats import SceneDataFormat
from scene_data.provider import SceneDataProvider

__all__ = ["BackendForIsaacLab", "BackendFromIsaacLab"]

Ranges = dict[str, tuple[int, int]]


class BackendFromIsaacLab(SceneDataBackend):
    """Publishes for our provider what an Isaac Lab backend publishes.

    What a backend of Isaac Lab does not say stays unsaid: it describes no scene, has no cameras or lights, and tells
    its number of environments by its paths.

    Args:
        backend: An `isaaclab.scene_data.SceneDataBackend`, or anything that has its members.
        formats: The class that holds Isaac Lab's formats; by default that of the installed `isaaclab`.
    """

    def __init__(self, backend: Any, formats: Any = None):
        self.isaaclab_backend = backend
        self._theirs = _isaaclab_formats() if formats is None else formats
        self._wrap = _Rewrapper(SceneDataFormat)

    @property
    def transforms(self) -> Any:
        """Isaac Lab's transforms, in a struct of ours."""
        return self._wrap(self.isaaclab_backend.transforms)

    def get_transforms(self, output_format: Any) -> Any:
        """Publish the transforms; see `SceneDataBackend.get_transforms`."""
        wanted = _same_name(self._theirs, output_format) or self._theirs.Transform
        return self._wrap(self.isaaclab_backend.get_transforms(wanted))

    @property
    def transforms_timestamp(self) -> int:
        """Isaac Lab's timestamp of the transforms."""
        return self.isaaclab_backend.transforms_timestamp

    @property
    def transform_count(self) -> int:
        """Number of transforms."""
        return self.isaaclab_backend.transform_count

    @property
    def transform_paths(self) -> list[str]:
        """USD path of each transform."""
        return self.isaaclab_backend.transform_paths

    @property
    def native_transform_formats(self) -> tuple[Any, ...]:
        """Formats that are published without a conversion."""
        return _translate(self.isaaclab_backend.native_transform_formats, SceneDataFormat)

    def mark_transforms_written(self) -> None:
        """Announce that the state was written, to Isaac Lab's readers as well."""
        self.isaaclab_backend.transforms_timestamp += 1

    def get_geometry_batches(self, output_format: Any = SceneDataFormat.Points) -> list[tuple[Any, Ranges]]:
        """Publish points, or what points are computed from; see `SceneDataBackend.get_geometry_batches`."""
        wanted = _same_name(self._theirs, output_format) or self._theirs.Points
        batches = self.isaaclab_backend.get_geometry_batches(wanted)
        return [(self._wrap(source), ranges) for source, ranges in batches]

    @property
    def geometry_timestamp(self) -> int:
        """Isaac Lab's timestamp of the points."""
        return self.isaaclab_backend.geometry_timestamp

    @property
    def native_geometry_formats(self) -> tuple[Any, ...]:
        """Point formats that are published without a conversion."""
        return _translate(self.isaaclab_backend.native_geometry_formats, SceneDataFormat)

    def mark_geometry_written(self) -> None:
        """Announce that points were written, to Isaac Lab's readers as well."""
        self.isaaclab_backend.geometry_timestamp += 1


class BackendForIsaacLab:
    """Publishes for Isaac Lab's provider what a backend of ours publishes.

    It has the members of `isaaclab.scene_data.SceneDataBackend`. Formats that Isaac Lab does not have are converted by
    a provider of ours, once per timestamp: the double precision of MuJoCo's C engine to what was asked for, and skins
    to points.

    Args:
        backend: Any backend of ours.
        formats: The class that holds Isaac Lab's formats; by default that of the installed `isaaclab`.
    """

    def __init__(self, backend: SceneDataBackend, formats: Any = None):
        self.scene_data_backend = backend
        self._theirs = _isaaclab_formats() if formats is None else formats
        self._wrap = _Rewrapper(self._theirs)
        self._provider = SceneDataProvider(backend)
        self._outputs: dict[Any, Any] = {}

    @property
    def transforms(self) -> Any:
        """The present transforms in a struct of Isaac Lab's."""
        return self.get_transforms(self._theirs.Transform)

    def get_transforms(self, output_format: Any) -> Any:
        """Publish the transforms.

        Args:
            output_format: Isaac Lab's format that the reader wants.

        Returns:
            A struct of Isaac Lab's: natively in the backend's format where Isaac Lab has that, else in this one.
        """
        ours = _same_name(SceneDataFormat, output_format) or SceneDataFormat.Transform
        source = self.scene_data_backend.get_transforms(ours)
        if source is None or _same_name(self._theirs, source._cls) is not None:
            # Isaac Lab's provider reads an empty struct as nothing published yet.
            return self._theirs.Transform() if source is None else self._wrap(source)
        # Fabric's storage belongs to its owner, who converts into it.
        target = SceneDataFormat.Transform if ours is SceneDataFormat.FabricMatrix44 else ours
        output = self._outputs.setdefault(target, target())
        self._provider.get_transforms(output)
        return self._wrap(output)

    @property
    def transforms_timestamp(self) -> int:
        """Timestamp of the transforms."""
        return self.scene_data_backend.transforms_timestamp

    @property
    def transform_count(self) -> int:
        """Number of transforms."""
        return self.scene_data_backend.transform_count

    @property
    def transform_paths(self) -> list[str]:
        """USD path of each transform."""
        return self.scene_data_backend.transform_paths

    @property
    def native_transform_formats(self) -> tuple[Any, ...]:
        """Isaac Lab's formats that are published without a conversion."""
        return _translate(self.scene_data_backend.native_transform_formats, self._theirs)

    def get_geometry_batches(self, output_format: Any = None) -> list[tuple[Any, Ranges]]:
        """Publish points, or what points are computed from, in structs of Isaac Lab's."""
        ours = SceneDataFormat.Points if output_format is None else _same_name(SceneDataFormat, output_format)
        batches = self.scene_data_backend.get_geometry_batches(ours or SceneDataFormat.Points)
        shared: list[tuple[Any, Ranges]] = []
        for source, ranges in batches:
            if _same_name(self._theirs, source._cls) is not None:
                shared.append((self._wrap(source), ranges))
            else:
                shared += self._as_points(ranges)
        return shared

    def _as_points(self, ranges: Ranges) -> list[tuple[Any, Ranges]]:
        views: Any = self._provider.get_geometry_points()
        batches = []
        for path, (_, count) in ranges.items():
            points = self._outputs.setdefault(path, SceneDataFormat.Points())
            points.points = views[path]
            batches.append((self._wrap(points), {path: (0, count)}))
        return batches

    @property
    def geometry_timestamp(self) -> int:
        """Timestamp of the points."""
        return self.scene_data_backend.geometry_timestamp

    @property
    def native_geometry_formats(self) -> tuple[Any, ...]:
        """Isaac Lab's point formats that are published without a conversion."""
        return _translate(self.scene_data_backend.native_geometry_formats, self._theirs)


class _Rewrapper:
    """Wraps the arrays of a struct in a struct of another framework, the same one for as long as the first lives."""

    def __init__(self, formats: Any):
        self._formats = formats
        self._wrapped: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def __call__(self, source: Any) -> Any:
        if source is None:
            return None
        wrapped = self._wrapped.get(source)
        if wrapped is None:
            target = _same_name(self._formats, source._cls)
            if target is None:
                raise ValueError(f"{source._cls.__name__} is a format that the other framework does not have.")
            wrapped = self._wrapped[source] = target()
        for field in source._cls.vars:
            array = getattr(source, field)
            if getattr(wrapped, field) is not array:
                setattr(wrapped, field, array)
        return wrapped


def _same_name(formats: Any, data_format: Any) -> Any | None:
    """The format of this name in the other framework, or None."""
    return getattr(formats, data_format.__name__, None)


def _translate(data_formats: Any, formats: Any) -> tuple[Any, ...]:
    return tuple(found for data_format in data_formats if (found := _same_name(formats, data_format)) is not None)


def _isaaclab_formats() -> Any:
    # Only the name of the module is known here: Isaac Lab is nothing that this package depends on.
    from importlib import import_module

    try:
        return import_module("isaaclab.scene_data").SceneDataFormat
    except ImportError as error:
        raise ImportError(f"Isaac Lab's formats cannot be imported: {error}. Pass them as `formats`.") from error
