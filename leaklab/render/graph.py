"""Show paths to an object as a picture, in the style of leaklab or of objgraph, or as text where nothing can draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from leaklab.errors import ReportError
from leaklab.model import Leak
from leaklab.model.alive import Alive
from leaklab.render.alive_dot import back_graph_dot
from leaklab.render.alive_text import render_paths
from leaklab.render.back_graph import graph_of_alive, graph_of_leak
from leaklab.render.dot import path_graph
from leaklab.render.draw import draw_svg
from leaklab.render.files import FilePath, save_by_suffix
from leaklab.render.objgraph_style import objgraph_dot
from leaklab.render.parts import svg_picture, text_block
from leaklab.render.path import render_path
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


class ReferenceGraph(ABC):
    """A picture of references. It holds nothing but a record, and is drawn anew each time it is asked for."""

    __slots__ = ()

    @property
    @abstractmethod
    def dot(self) -> str:
        """The graph as DOT text."""

    @abstractmethod
    def __str__(self) -> str: ...

    @property
    @abstractmethod
    def alt(self) -> str:
        """The graph in one line, for those who cannot see it."""

    @property
    def svg(self) -> str | None:
        """The graph as an ``<svg>`` element; None where no Graphviz is installed or it takes too long."""
        return draw_svg(self.dot)

    def save(self, path: FilePath) -> None:
        """Write the graph to *path*: ``.svg`` the picture, ``.dot`` or ``.gv`` its source, ``.txt`` the paths as text.

        Raises:
            ReportError: for any other suffix, a file that cannot be written, or a picture that nothing here can draw.
        """
        source = lambda: self.dot  # noqa: E731 - drawn only if it is asked for
        save_by_suffix(path, {".svg": self.svg_file, ".dot": source, ".gv": source, ".txt": lambda: f"{self}\n"})

    def svg_file(self) -> str:
        """Return what a file with the picture holds.

        Raises:
            ReportError: if nothing here can draw it.
        """
        svg = self.svg
        if svg is None:
            msg = "nothing here can draw the graph: `pip install pygraphviz`, or save it as .dot or .txt"
            raise ReportError(msg)
        return f"{svg}\n"

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        """Return the picture for notebooks and the paths as text for terminals; IPython picks."""
        del include, exclude  # IPython drops what it did not ask for
        svg = self.svg
        text = str(self)
        return {"text/plain": text, "text/html": text_block(text) if svg is None else svg_picture(svg, self.alt)}


@dataclass(frozen=True, slots=True, repr=False)
class PathGraph(ReferenceGraph):
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
class BackReferenceGraph(ReferenceGraph):
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
