"""Read the scripts and the style of the explorer, which are parts of this package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_SCRIPTS = ("dom", "table", "chart", "dot", "svg", "graph", "panels", "explorer")
"""In the order in which they are joined; each uses only what stands above it."""


@cache
def script() -> str:
    """Return the explorer's own script as one module.

    As text: anywidget, given the name of a file, watches it and never lets go of the widget.
    """
    return "\n".join(_read("js", f"{name}.js") for name in _SCRIPTS)


@cache
def style() -> str:
    """Return the style sheet."""
    return _read("js", "explorer.css")


def renderer() -> bytes:
    """Return Graphviz as a JavaScript module that needs no other file: 815 kB, sent once to each page."""
    return files(__package__).joinpath("vendor", "wasm_graphviz.js").read_bytes()


def _read(*names: str) -> str:
    return files(__package__).joinpath(*names).read_text("utf-8")
