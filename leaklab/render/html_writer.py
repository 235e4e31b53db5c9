"""Write a document as HTML that survives the sanitizers of notebooks."""

from __future__ import annotations

from markupsafe import Markup

from leaklab.render.document import Document, DocumentBlock, Tone, parts_of
from leaklab.render.templates import ACCENT, CALM, DOUBTFUL, GOOD, GREY, render
from leaklab.render.text_writer import N_CHANGES

_COLOURS = {Tone.BAD: ACCENT, Tone.DOUBTFUL: DOUBTFUL, Tone.CALM: CALM, Tone.GOOD: GOOD, Tone.NONE: GREY}


def html_of(document: Document, *, is_page: bool = False, style: str = "") -> Markup:
    """Return *document* without styles, scripts or ids of its own: it shows in a notebook that is not trusted.

    Args:
        document: What to show.
        is_page: Whether it stands alone on a page, of which the answer is then the heading.
        style: Further style of the whole.
    """
    return render(
        "document.html.j2",
        blocks=document.blocks,
        parts_of=parts_of,
        is_block=lambda cell: isinstance(cell, DocumentBlock),
        colours=_COLOURS,
        N_CHANGES=N_CHANGES,
        heading="h1" if is_page else "div",
        style=style,
    )
