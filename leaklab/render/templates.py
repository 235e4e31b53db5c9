"""Fill in the templates of all HTML that leaklab writes: every value is escaped, unless it is markup already.

A notebook that is not trusted loses ``<style>``, ``<script>``, ``id``, inline ``<svg>`` and every CSS variable. So all
style is inline and literal, colours inherit from the page or are translucent, and read on light and on dark.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from leaklab.model import Outcome, Status
from leaklab.model.comparison import Fate
from leaklab.render import words
from leaklab.text import format_bytes, shorten, visible, well_formed

if TYPE_CHECKING:
    import jinja2

# White on each of them 4.5:1 or more (WCAG AA). None is the colour of a text: none reads both on light and on dark
# pages.
ACCENT, CALM, GOOD, DOUBTFUL, GREY = "#b3261e", "#1f5fa8", "#1e7040", "#8a5a00", "#767676"
OUTCOME_COLOURS = {Outcome.LEAK: ACCENT, Outcome.CLEAN: GOOD, Outcome.BOUNDED: CALM, Outcome.INCONCLUSIVE: DOUBTFUL}
FATE_COLOURS = {
    Fate.NEW: DOUBTFUL, Fate.STILL: CALM, Fate.GONE: GOOD, Fate.FIXED: GOOD, Fate.UNPROVEN: DOUBTFUL,
}  # fmt: skip
STATUS_COLOURS = {Status.EXPECTED: CALM, Status.UNKNOWN: GREY, Status.LEAKED: ACCENT}
FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_FOLDER = Path(__file__).with_name("templates")
_PAGE, _PRINT = "page.html.j2", "print.js"
_PAGE_TITLE_LIMIT = 200
_BUTTON = re.compile(r'<button type="button" data-commandlinker.*?</button>', re.DOTALL)
_BODY = "margin:24px auto;max-width:1000px;padding:0 16px"


def render(name: str, **values: object) -> Markup:
    """Return the template *name* filled in with *values*, without a line break or an indentation of its own."""
    return Markup(_environment().get_template(name).render(values))  # noqa: S704 - escaped by `_escaped`


def without_buttons(markup: str) -> str:
    """Return *markup* without the buttons that only a notebook knows how to follow."""
    return _BUTTON.sub("", markup)


def read(name: str) -> str:
    """Return a script or a style sheet that lies beside the templates."""
    return (_FOLDER / name).read_text("utf-8")


def handler(name: str, argument: str = "") -> Markup:
    """Return a function that lies beside the templates, called with *argument*, as what an element does on an event."""
    function = re.sub(r"\n *", "", read(name).strip())
    return Markup(html.escape(f"({function})({argument})"))  # noqa: S704 - leaklab's own


def unfolding() -> str:
    """Return the part of a page's script that unfolds it on paper; a page without a script does it by itself."""
    return f"addEventListener('beforeprint', {read(_PRINT).strip()});\n"


def joined(*names: str) -> str:
    """Return scripts that lie beside the templates as one; each uses only what stands above it."""
    return "\n".join(map(read, names))


def page(title: str, body: Markup, *, head: str = "", script: str = "", style: str = _BODY) -> str:
    """Return a page that asks nothing of any server and follows the reader's choice of light or dark.

    Args:
        title: Shortened here.
        body: What the page shows.
        head: What else the head holds, as `Markup`.
        script: The one script that the page runs, below the rest, `unfolding` included; its security policy refuses
            every other.
        style: Inline style of the body.
    """
    title = shorten(title, _PAGE_TITLE_LIMIT)
    if script:
        body = Markup(f"{body}\n<script>{script}</script>")  # noqa: S704 - leaklab's own
    return str(
        render(
            _PAGE,
            title=title,
            body=body,
            head=head,
            policy=_only(script) if script else "",
            style=style,
            style_sheet=Markup(read("page.css")),  # noqa: S704 - leaklab's own
            before_print=handler(_PRINT),
        )
    )


def _only(script: str) -> str:
    """Return the policy of a page in which *script* alone runs; the page shows its own pictures, and asks no server.

    Any script that a user's text might smuggle in is refused by the browser itself.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}';"
        " base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 - paid by those who show a report
    from jinja2.ext import Extension  # noqa: PLC0415
    from jinja2.lexer import Token, TokenStream  # noqa: PLC0415

    class Compact(Extension):
        """Line breaks and indentation are the layout of a template: an output is stored in the user's notebook."""

        def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
            for token in stream:
                if token.type == "data" and stream.name != _PAGE:
                    token = Token(token.lineno, "data", re.sub(r"\s*\n\s*", "", token.value))  # noqa: PLW2901
                if token.type != "data" or token.value:
                    yield token

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, loader=jinja2.FileSystemLoader(_FOLDER),
        keep_trailing_newline=True, extensions=[Compact], finalize=_escaped,
    )  # fmt: skip
    environment.filters |= {
        "bytes": format_bytes, "shorten": shorten,
        "n": "{:,}".format, "percent": "{:.1%}".format, "pale": _pale, "png": _png, "svg": _svg,
        "in_json": json.dumps, "tint": _tint,
    }  # fmt: skip
    environment.globals |= {
        "ACCENT": ACCENT, "CALM": CALM, "GREY": GREY, "GOOD": GOOD, "DOUBTFUL": DOUBTFUL,
        "OUTCOME_COLOURS": OUTCOME_COLOURS, "STATUS_COLOURS": STATUS_COLOURS, "FATE_COLOURS": FATE_COLOURS,
        "words": words, "FONT": FONT,
    }  # fmt: skip
    return environment


_TINTS = ("214,69,65", "74,144,217", "232,148,74", "63,156,140", "142,94,162", "201,176,55")


def _tint(name: str) -> str:
    """Return a colour for *name*, the same in every process, through which the ground is seen."""
    number = sum((position + 1) * ord(letter) for position, letter in enumerate(name))
    return f"rgba({_TINTS[number % len(_TINTS)]},.3)"


def _escaped(value: object) -> Markup:
    """Return *value* so that it can stand in HTML as text or in a quoted attribute; markup stays as it is."""
    return value if isinstance(value, Markup) else Markup(html.escape(visible(str(value))))  # noqa: S704


def _pale(colour: str) -> str:
    """Return *colour* (``#rrggbb``) as a ground that is pale enough for the page's own ink."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},.12)"


def _png(image: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"


def _svg(drawing: str) -> str:
    """Return an ``<svg>`` as the source of an image: inline, it would be torn apart in notebooks not trusted."""
    return f"data:image/svg+xml;base64,{base64.b64encode(well_formed(drawing).encode()).decode('ascii')}"
