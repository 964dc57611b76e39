"""Sphinx configuration; `make docs` builds with it, and every warning is an error."""

import re
from importlib.metadata import version as installed_version
from typing import Any

project = "scene-data"
author = "the scene-data developers"
copyright = "the scene-data developers, Apache License 2.0"
release = version = installed_version("scene-data")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the signature shows the types
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"scene-data {release}"

# Docstrings put code between single backticks, as Markdown does; reStructuredText wants two, and a break after them.
_CODE = re.compile(r"(?<![`:])`([^`]+)`(?!`)(?=(\w?))")

# Of an attribute's docstring, napoleon takes what stands before a colon for its type. Ours have sentences there.
_HIDDEN_COLON = "\ue000"


def _before_napoleon(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    text = _CODE.sub(lambda code: f"``{code[1]}``" + ("\\ " if code[2] else ""), "\n".join(lines))
    lines[:] = text.split("\n")
    if what in {"attribute", "data", "property"} and lines:
        lines[0] = lines[0].replace(":", _HIDDEN_COLON)


def _after_napoleon(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line.replace(_HIDDEN_COLON, ":") for line in lines]


def setup(app: Any) -> None:
    """Prepare docstrings for napoleon, which splits them into sections at priority 500."""
    app.connect("autodoc-process-docstring", _before_napoleon, priority=400)
    app.connect("autodoc-process-docstring", _after_napoleon, priority=600)
