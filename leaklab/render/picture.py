"""Show a graph as a picture, or as text where nothing here can draw."""

from __future__ import annotations

from abc import abstractmethod

from leaklab.errors import ReportError
from leaklab.render.display import Displayed
from leaklab.render.draw import draw_svg
from leaklab.render.files import FilePath, save_by_suffix
from leaklab.render.parts import svg_picture, text_block


class Picture(Displayed):
    """A graph to look at. It holds nothing but a record, and is drawn anew each time it is asked for."""

    __slots__ = ()

    @property
    @abstractmethod
    def dot(self) -> str:
        """The graph as DOT text."""

    @property
    @abstractmethod
    def alt(self) -> str:
        """The graph in one line, for those who cannot see it."""

    @property
    def svg(self) -> str | None:
        """The graph as an ``<svg>`` element; None where no Graphviz is installed or it takes too long."""
        return draw_svg(self.dot)

    @property
    def markup(self) -> str:
        """The graph as HTML: the picture, or the text where nothing here can draw."""
        svg = self.svg
        return text_block(str(self)) if svg is None else svg_picture(svg, self.alt)

    def save(self, path: FilePath) -> None:
        """Write the graph to *path*: ``.svg`` the picture, ``.dot`` or ``.gv`` its source, ``.txt`` as text.

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

    def _fragment(self) -> str:
        return self.markup
