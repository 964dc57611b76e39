"""Prim names: valid in USD, unique among siblings, and the same in every run."""

import re
import unicodedata
from collections.abc import Collection, Sequence

__all__ = ["clean_identifier", "is_identifier", "join_path", "unique_identifiers"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INVALID = re.compile(r"[^A-Za-z0-9_]")


def is_identifier(name: str) -> bool:
    """Whether `name` can stand in a USD path as it is.

    Only ASCII counts: UTF-8 identifiers are legal in recent USD, and refused by older readers.
    """
    return _IDENTIFIER.fullmatch(name) is not None


def clean_identifier(name: str) -> str:
    """The nearest USD identifier to `name`.

    Accents are dropped, every other character that USD refuses becomes an underscore, and a leading digit gets an
    underscore before it. An empty name stays empty. Different names can become equal: see `unique_identifiers`.
    """
    decomposed = unicodedata.normalize("NFKD", name)
    letters = "".join(character for character in decomposed if not unicodedata.combining(character))
    cleaned = _INVALID.sub("_", letters)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned


def unique_identifiers(names: Sequence[str], fallback: str, taken: Collection[str] = ()) -> tuple[str, ...]:
    """One identifier per name, all different.

    A name that is valid already keeps itself, wherever it stands in the list; the others follow in order and step
    aside with a numeric suffix. The result depends on the arguments alone.

    Args:
        names: What the engine calls the siblings. May be empty, repeated, or invalid in USD.
        fallback: What an empty name becomes, followed by its index, for example `"body"` for `body_3`.
        taken: Identifiers of siblings that were named before.

    Returns:
        The identifiers, in the order of `names`.
    """
    used = set(taken)
    result: list[str | None] = [None] * len(names)
    for index, name in enumerate(names):
        if is_identifier(name) and name not in used:
            result[index] = name
            used.add(name)
    next_suffix: dict[str, int] = {}  # keeps a thousand equal names linear
    for index, name in enumerate(names):
        if result[index] is None:
            result[index] = _claim(clean_identifier(name) or f"{fallback}_{index}", used, next_suffix)
    return tuple(identifier for identifier in result if identifier is not None)


def join_path(*parts: str) -> str:
    """The parts as one absolute path, with single slashes."""
    return "/" + "/".join(part.strip("/") for part in parts if part.strip("/"))


def _claim(base: str, used: set[str], next_suffix: dict[str, int]) -> str:
    candidate = base
    suffix = next_suffix.get(base, 1)
    while candidate in used:
        candidate = f"{base}_{suffix}"
        suffix += 1
    next_suffix[base] = suffix
    used.add(candidate)
    return candidate
