"""What a render backend says of itself that it can do, checked where a user asks for it."""

from collections.abc import Callable
from typing import Any

from scene_data.appearance import Randomization
from scene_data.registry import renderers

__all__ = ["require_ability", "require_randomization"]


def require_ability(render_backend: str, ability: str, what: str) -> None:
    """Check that the render backend of this name says that it has an ability.

    Raises:
        ValueError: It does not; the message names those that do.
    """
    _require(render_backend, lambda backend: getattr(backend, ability, False), f"has no {what}", "do")


def require_randomization(render_backend: str, kind: Randomization) -> None:
    """Check that the render backend of this name can show something differently in each environment.

    Raises:
        ValueError: It cannot; the message names those that can.
    """
    _require(
        render_backend,
        lambda backend: kind in getattr(backend, "supported_randomizations", ()),
        f"cannot change {kind.value} at run time",
        "can",
    )


def _require(render_backend: str, is_able: Callable[[type[Any]], bool], lack: str, verb: str) -> None:
    if not is_able(renderers.get(render_backend)):
        able = ", ".join(name for name, backend in renderers.installed() if is_able(backend)) or "none"
        raise ValueError(f"render backend {render_backend!r} {lack}; backends that {verb}: {able}")
