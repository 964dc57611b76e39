"""Models by the names that the library `robot_descriptions` gives them, MuJoCo Menagerie's among them.

The library downloads a model when it is first named, and keeps it in `~/.cache/robot_descriptions`.
"""

import difflib
import pkgutil
from importlib import import_module
from pathlib import Path

from scene_data.errors import ModelLoadError, UnknownNameError
from scene_data.optional import optional_libraries

__all__ = ["download_model", "is_downloadable"]

_SUFFIX = "_description"
_CLOSE_NAMES = 5


def is_downloadable(model: str) -> bool:
    """Whether this reads like the name of a robot description, such as `g1_mj_description`, and not like a path."""
    return model.isidentifier() and model.endswith(_SUFFIX)


def download_model(name: str) -> Path:
    """The MJCF file of a robot description, its URDF file where it has no other; downloaded unless it is there.

    Raises:
        MissingDependencyError: `robot_descriptions` is not installed.
        UnknownNameError: It knows no such description.
        ModelLoadError: The download failed.
    """
    with optional_libraries(f"The model {name!r}"):
        import robot_descriptions
    known = [module.name for module in pkgutil.iter_modules(robot_descriptions.__path__)]
    if name not in known:
        close = difflib.get_close_matches(name, [name for name in known if name.endswith(_SUFFIX)], _CLOSE_NAMES)
        raise UnknownNameError("robot description", name, [*close, "and others"])
    try:
        description = import_module(f"robot_descriptions.{name}")
    except Exception as error:  # whatever git and the network come up with
        raise ModelLoadError(name, f"it could not be downloaded. {error}") from error
    return Path(getattr(description, "MJCF_PATH", None) or description.URDF_PATH)
