"""A matplotlib figure that shows itself in a notebook, whether or not pyplot was ever loaded there."""

from __future__ import annotations

import io

from matplotlib import style
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from leaklab.text import printable


class ReportFigure(Figure):
    """A figure without a window; IPython shows plain ones only once ``%matplotlib`` or pyplot has told it how."""

    def draw(self, renderer: RendererBase) -> None:
        """Draw with every text as it is written: without formulas in dollar signs, and what does not print escaped."""
        for text in self.findobj(Text):
            text.set_parse_math(False)
            text.set_text(printable(text.get_text()))
        super().draw(renderer)

    def png(self) -> bytes:
        """Return the figure as a PNG image, drawn in matplotlib's default style whatever the user's.

        It has a palette of 256 colours, which look like all of them: what a notebook keeps is a third as large.
        """
        with style.context("default"), io.BytesIO() as drawn, io.BytesIO() as file:
            self.savefig(drawn, format="png", dpi=self.dpi)
            with Image.open(drawn) as image:
                few = image.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
            few.save(file, "PNG", optimize=True)
            return file.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()
