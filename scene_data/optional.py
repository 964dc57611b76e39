"""Optional libraries: which extra installs each, one error that says so, and names that load on first use."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from scene_data.errors import MissingDependencyError

__all__ = ["EXTRA_OF_LIBRARY", "lazy_names", "optional_libraries"]

EXTRA_OF_LIBRARY = {
    "av": "video",
    "cyclonedds": "ros2",
    "gymnasium": "gym",
    "imageio": "video",
    "mcap": "mcap",
    "mcap_ros2": "mcap",
    "newton": "newton",
    "ovphysx": "physx",
    "ovrtx": "ovrtx",
    "ovstage": "ovrtx",
    "pxr": "usd",
    "pyglet": "newton",
    "rerun": "rerun",
    "robot_descriptions": "descriptions",
    "torch": "torch",
    "viser": "viser",
}
"""The extra of this package that installs each optional library, by the name of its top-level module."""


@contextmanager
def optional_libraries(purpose: str) -> Iterator[None]:
    """Turn the failed import of an optional library inside the block into an error that names the extra.

    Args:
        purpose: What needs the library, to begin the message with.

    Raises:
        MissingDependencyError: A library of `EXTRA_OF_LIBRARY` is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRA_OF_LIBRARY:
            raise
        raise MissingDependencyError(library, EXTRA_OF_LIBRARY[library], purpose) from error


def lazy_names(
    package: str, modules: Mapping[str, str], others: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package some of whose names load on first use, with the library they need.

    Args:
        package: Its `__name__`.
        modules: Where each such name is defined, relative to the package.
        others: The names that it has without them.
    """
    public = sorted({*modules, *others})

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with optional_libraries(name):
            return getattr(import_module(modules[name], package), name)

    return get, lambda: public
