"""Show the path to a leak as a picture, or as text where nothing here can draw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leaklab.errors import ReportError
from leaklab.model import Leak
from leaklab.render.dot import path_graph
from leaklab.render.draw import draw_svg
from leaklab.render.files import FilePath, save_by_suffix
from leaklab.render.parts import svg_picture, text_block
from leaklab.render.path import render_path


@dataclass(frozen=True, slots=True, repr=False)
class PathGraph:
    """The path to one leak. It holds nothing but the record, and is drawn anew each time it is asked for."""

    leak: Leak

    @property
    def dot(self) -> str:
        """The graph as DOT text."""
        return str(path_graph(self.leak).source)

    @property
    def svg(self) -> str | None:
        """The graph as an ``<svg>`` element; None where no Graphviz is installed or it takes too long."""
        return draw_svg(self.dot)

    def save(self, path: FilePath) -> None:
        """Write the graph to *path*: ``.svg`` the picture, ``.dot`` or ``.gv`` its source, ``.txt`` the path as text.

        Raises:
            ReportError: for any other suffix, a file that cannot be written, or a picture that nothing here can draw.
        """
        source = lambda: self.dot  # noqa: E731 - drawn only if it is asked for
        save_by_suffix(path, {".svg": self._svg_file, ".dot": source, ".gv": source, ".txt": lambda: f"{self}\n"})

    def __str__(self) -> str:
        return render_path(self.leak.path)

    def __repr__(self) -> str:
        return f"<PathGraph of {len(self.leak.path.steps)} objects; str() shows the path>"

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        """Return the picture for notebooks and the path as text for terminals; IPython picks."""
        del include, exclude  # IPython drops what it did not ask for
        svg = self.svg
        text = str(self)
        return {
            "text/plain": text,
            "text/html": text_block(text) if svg is None else svg_picture(svg, str(self.leak.path)),
        }

    def _svg_file(self) -> str:
        svg = self.svg
        if svg is None:
            msg = "nothing here can draw the graph: `pip install pygraphviz`, or save it as .dot or .txt"
            raise ReportError(msg)
        return f"{svg}\n"
