"""Errors that carry the names and values they speak of."""

from collections.abc import Iterable

__all__ = [
    "AdapterLoadError",
    "MissingDependencyError",
    "ModelLoadError",
    "SceneDataError",
    "UnknownNameError",
    "UnmetRequirementError",
]


class SceneDataError(Exception):
    """Base of the errors that this package defines."""


class UnknownNameError(SceneDataError, ValueError):
    """A name that is not among the known ones.

    Attributes:
        kind: What the name should have named, for example `"camera"`.
        name: The name that was given.
        known: The names that would have been accepted.
    """

    def __init__(self, kind: str, name: object, known: Iterable[str]):
        self.kind = kind
        self.name = name
        self.known = tuple(known)
        choices = ", ".join(self.known) if self.known else "none"
        super().__init__(f"Unknown {kind} {name!r}. Known: {choices}.")


class ModelLoadError(SceneDataError, ValueError):
    """A model file that is missing or that the engine refuses.

    Attributes:
        path: The file that was to be loaded.
        reason: What is wrong with it.
    """

    def __init__(self, path: str, reason: str):
        self.path = path
        self.reason = reason
        super().__init__(f"Cannot load the model {path!r}: {reason}")


class MissingDependencyError(SceneDataError, ImportError):
    """An optional library that is not installed.

    Attributes:
        library: The module that could not be imported.
        extra: The extra of this package that installs it.
    """

    def __init__(self, library: str, extra: str, purpose: str):
        self.library = library
        self.extra = extra
        super().__init__(f"{purpose} needs {library!r}, which is not installed. Run: pip install 'scene-data[{extra}]'")


class AdapterLoadError(SceneDataError, ImportError):
    """A registered adapter whose code does not load.

    Attributes:
        kind: What the adapter is, for example `"render backend"`.
        adapter: The name it is registered under.
        target: Where it was declared to be, as `"module:attribute"`.
        reason: What went wrong there.
    """

    def __init__(self, kind: str, adapter: str, target: str, reason: str):
        self.kind = kind
        self.adapter = adapter
        self.target = target
        self.reason = reason
        super().__init__(f"Cannot load the {kind} {adapter!r} from {target!r}: {reason}")


class UnmetRequirementError(SceneDataError, ValueError):
    """A consumer that needs what the physics backend does not offer.

    Attributes:
        consumer: Who needs it.
        need: What it needs, for example `"mujoco_model"`.
        backends: Names of the physics backends that offer it.
    """

    def __init__(self, consumer: str, need: str, backends: Iterable[str]):
        self.consumer = consumer
        self.need = need
        self.backends = tuple(backends)
        offering = ", ".join(self.backends) if self.backends else "none that is installed"
        super().__init__(f"The {consumer} needs {need!r}. Physics backends that offer it: {offering}.")
