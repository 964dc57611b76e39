"""Optional libraries: which extra installs each, and one error that says so."""

from collections.abc import Iterator
from contextlib import contextmanager

from scene_data.errors import MissingDependencyError

__all__ = ["EXTRA_OF_LIBRARY", "optional_libraries"]

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
