"""Adapters by name: physics backends, engines, render backends, viewers.

The core imports no adapter. It asks one of the registries here, which know adapters from two sources:

- entry points of the installed distributions, this one included, so that a third party adds an adapter by declaring
  it in its own package;
- `Registry.register`, for adapters that live in a program of one's own.

Nothing is imported before `Registry.get` asks for it, so an adapter that is broken or lacks a library does not
disturb the others.
"""

import logging
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from scene_data.errors import AdapterLoadError, MissingDependencyError, UnknownNameError
from scene_data.optional import optional_libraries

__all__ = ["Registry", "backends", "physics", "pipelines", "renderers", "transports", "visualizers"]

_logger = logging.getLogger(__name__)

_BUILT_IN_PREFIX = "scene_data."


class Registry:
    """The adapters of one kind, found by name.

    Args:
        group: Entry point group to read, for example `"scene_data.backends"`. It is read once, when a name is first
            needed.
        kind: What the names stand for, for use in messages.
    """

    def __init__(self, group: str, kind: str):
        self.group = group
        self.kind = kind

    def names(self) -> tuple[str, ...]:
        """Return the known names in alphabetical order. Nothing is imported for it."""
        return tuple(sorted(self._targets))

    def get(self, name: str) -> type[Any]:
        """Return the class with this name, importing its module on first use.

        Raises:
            UnknownNameError: No adapter has this name; the message lists the known ones.
            MissingDependencyError: A library that the adapter needs is not installed; the message names the extra.
            AdapterLoadError: The adapter's own code does not import, or does not hold what was declared.
        """
        target = self._targets.get(name)
        if target is None:
            raise UnknownNameError(self.kind, name, self.names())
        if isinstance(target, EntryPoint):
            target = self._targets[name] = self._load(target)
        return target

    def installed(self) -> Iterator[tuple[str, type[Any]]]:
        """Names and classes of the adapters that can be imported here."""
        for name in self.names():
            try:
                yield name, self.get(name)
            except (MissingDependencyError, AdapterLoadError):
                continue

    def register(self, name: str, target: type[Any] | str) -> None:
        """Add an adapter under a name.

        Args:
            name: A name that is not taken yet.
            target: The class, or `"module:attribute"` to import it on first use.

        Raises:
            ValueError: The name is taken by another adapter, or the string has another form.
        """
        declared = self._declare(name, target) if isinstance(target, str) else target
        known = self._targets.setdefault(name, declared)
        if _describe(known) != _describe(declared):
            raise ValueError(f"The {self.kind} name {name!r} is taken by {_describe(known)!r}; choose another name.")

    @cached_property
    def _targets(self) -> dict[str, type[Any] | EntryPoint]:
        # Our own names come first, so that no installed package can change what a documented name means.
        targets: dict[str, type[Any] | EntryPoint] = {}
        for entry in sorted(entry_points(group=self.group), key=lambda entry: not _is_built_in(entry)):
            known = targets.setdefault(entry.name, entry)
            if _describe(known) != _describe(entry):
                taken = f"the name is taken by {_describe(known)!r}"
                _logger.warning("Ignored the %s %r of %r: %s.", self.kind, entry.name, entry.value, taken)
        return targets

    def _declare(self, name: str, target: str) -> EntryPoint:
        module, colon, attribute = target.partition(":")
        if not (module and colon and attribute):
            raise ValueError(f"The {self.kind} {name!r} needs a target 'module:attribute', not {target!r}.")
        return EntryPoint(name, target, self.group)

    def _load(self, entry: EntryPoint) -> type[Any]:
        try:
            with optional_libraries(f"The {self.kind} {entry.name!r}"):
                return entry.load()
        except MissingDependencyError:
            raise
        except Exception as error:  # a plug-in may fail in any way, and the message has to say which one did
            raise AdapterLoadError(self.kind, entry.name, entry.value, f"{type(error).__name__}: {error}") from error


def _is_built_in(entry: EntryPoint) -> bool:
    return entry.value.startswith(_BUILT_IN_PREFIX)


def _describe(target: type[Any] | EntryPoint) -> str:
    if isinstance(target, EntryPoint):
        return target.value
    return f"{target.__module__}:{target.__qualname__}"


backends = Registry("scene_data.backends", "physics backend")
"""What publishes an engine's state: subclasses of `SceneDataBackend`."""
renderers = Registry("scene_data.renderers", "render backend")
"""What draws frames: subclasses of `RenderBackend`."""
visualizers = Registry("scene_data.visualizers", "viewer")
"""What shows a simulation to people."""
physics = Registry("scene_data.physics", "engine")
"""Engines that a SimulationContext steps: the configuration class of each."""
pipelines = Registry("scene_data.pipelines", "render pipeline")
"""What a SimulationContext hands its cameras to."""
transports = Registry("scene_data.transports", "transport")
"""What takes camera frames to other programs; each class takes the address that a command line gives."""
