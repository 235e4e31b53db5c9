"""Show paths to an object as a picture, in the style of leaklab or of objgraph, or as text where nothing can draw."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.model import Leak
from leaklab.model.alive import Alive
from leaklab.render.alive_dot import back_graph_dot
from leaklab.render.alive_text import render_paths
from leaklab.render.back_graph import graph_of_alive, graph_of_leak
from leaklab.render.dot import path_graph
from leaklab.render.objgraph_style import objgraph_dot
from leaklab.render.path import render_path
from leaklab.render.picture import Picture
from leaklab.render.wording import shorten
from leaklab.words import unit_words

LEAKLAB, OBJGRAPH = "leaklab", "objgraph"
_ALT_LIMIT = 2_000


def check_style(style: str) -> None:
    """Refuse a style that does not exist.

    Raises:
        ValueError: naming those that do.
    """
    if style not in (LEAKLAB, OBJGRAPH):
        msg = f'style must be "{LEAKLAB}" or "{OBJGRAPH}", not {style!r}'
        raise ValueError(msg)


@dataclass(frozen=True, slots=True, repr=False)
class PathGraph(Picture):
    """The path to one leak.

    Attributes:
        leak: The record.
        style: ``leaklab``, or ``objgraph`` for the classic picture.
    """

    leak: Leak
    style: str = LEAKLAB

    def __post_init__(self) -> None:
        """Refuse a style that does not exist."""
        check_style(self.style)

    @property
    def dot(self) -> str:
        """The graph as DOT text."""
        if self.style == OBJGRAPH:
            return objgraph_dot(graph_of_leak(self.leak))
        return str(path_graph(self.leak).source)

    @property
    def alt(self) -> str:
        """The path in one line."""
        return shorten(str(self.leak.path), _ALT_LIMIT)

    def __str__(self) -> str:
        return render_path(self.leak.path)

    def __repr__(self) -> str:
        return f"<PathGraph of {unit_words(len(self.leak.path.steps), 'objects')}; str() shows the path>"


@dataclass(frozen=True, slots=True, repr=False)
class BackReferenceGraph(Picture):
    """All paths to one object, merged where they meet.

    Attributes:
        alive: The record.
        style: ``leaklab``, or ``objgraph`` for the classic picture.
    """

    alive: Alive
    style: str = LEAKLAB

    def __post_init__(self) -> None:
        """Refuse a style that does not exist."""
        check_style(self.style)

    @property
    def dot(self) -> str:
        """The graph as DOT text."""
        graph = graph_of_alive(self.alive)
        return objgraph_dot(graph) if self.style == OBJGRAPH else str(back_graph_dot(graph).source)

    @property
    def alt(self) -> str:
        """The paths, one after the other."""
        return shorten("; ".join(str(one.path) for one in self.alive.paths) or self.alive.reason, _ALT_LIMIT)

    def __str__(self) -> str:
        return render_paths(self.alive)

    def __repr__(self) -> str:
        return f"<BackReferenceGraph of {len(self.alive.paths)} paths; str() shows them>"
