"""Write the small pieces of HTML that a report is made of: escaped text, tables, bars, pictures.

A notebook that is not trusted loses ``<style>``, ``<script>``, ``id``, inline ``<svg>`` and every CSS variable. So
there is none: all style is inline and literal, colours inherit from the page or are translucent, and read on light and
dark.
"""

from __future__ import annotations

import base64
import html
import re
from collections import Counter
from collections.abc import Sequence

from leaklab.text import shorten, visible, well_formed

ACCENT, CALM, GOOD, DOUBTFUL = "#d64541", "#4a90d9", "#2e9e5b", "#c98a1b"
LINE = "rgba(127,127,127,.35)"
SHADE = "rgba(127,127,127,.12)"
_FAINT = "opacity:.7"
_N_BARS = 60  # more are too thin to be told apart
_BAR_PIXELS = 28


def escaped(text: str) -> str:
    """Return *text* so that it can stand in HTML as text or in a quoted attribute."""
    return html.escape(visible(text))


def prose(text: str) -> str:
    """Return *text* escaped, its line breaks and the layout of its code kept."""
    lines = []
    for line in text.splitlines():
        words = line.lstrip(" ")
        indent = "&nbsp;" * (len(line) - len(words))
        lines.append(f"{indent}{code(words)}" if indent else escaped(words))
    return "<br>".join(lines)


def code(text: str) -> str:
    """Return *text* escaped, in the font of code, allowed to break anywhere."""
    return f'<code style="overflow-wrap:anywhere;font-size:.93em">{escaped(text)}</code>'


def faint(markup: str) -> str:
    """Return *markup*, which is already escaped, in smaller and fainter letters."""
    return f'<span style="font-size:.92em;{_FAINT}">{markup}</span>'


def pill(word: str, colour: str) -> str:
    """Return *word* on a ground of *colour* (``#rrggbb``), pale enough for the page's own ink."""
    return (
        f'<span style="background:{_translucent(colour)};border:1px solid {colour};border-radius:9px;'
        f'padding:0 7px;font-size:.85em;white-space:nowrap">{escaped(word)}</span>'
    )


def panel(markup: str, colour: str) -> str:
    """Return a block with a bar of *colour* at its left."""
    return (
        f'<div style="border-left:4px solid {colour};background:{_translucent(colour)};border-radius:4px;'
        f'padding:8px 14px;margin:8px 0">{markup}</div>'
    )


def fold(title: str, markup: str, *, is_open: bool) -> str:
    """Return *markup* under a title that opens and closes it; both are already escaped."""
    state = " open" if is_open else ""
    summary = f'<summary style="cursor:pointer;padding:4px 0;font-weight:600">{title}</summary>'
    return f'<details{state} style="border-top:1px solid {LINE};padding:4px 0">{summary}{markup}</details>'


def table(names: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[str] = frozenset()) -> str:
    """Return a table of cells that are already escaped; the columns in *right* are set flush right."""
    aligned = ["right" if name in right else "left" for name in names]
    head = "".join(
        f'<th style="text-align:{side};padding:3px 10px 3px 0;border-bottom:1px solid {LINE}">{escaped(name)}</th>'
        for name, side in zip(names, aligned, strict=True)
    )
    body = "".join(f"<tr{_ROW}>{_cells(row, aligned)}</tr>" for row in rows)
    # Each row and cell says what it looks like: the page's own style of tables would stripe and centre them.
    parts = f"<thead><tr{_ROW}>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div style="overflow-x:auto"><table{_TABLE}>{parts}</table></div>'


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """Return a table of labels and facts; the facts are already escaped."""
    label = f'style="text-align:left;vertical-align:top;padding:2px 14px 2px 0;border:none;white-space:nowrap;{_FAINT}"'
    fact = 'style="text-align:left;vertical-align:top;padding:2px 0;border:none;overflow-wrap:anywhere"'
    body = "".join(f"<tr{_ROW}><td {label}>{escaped(name)}</td><td {fact}>{words}</td></tr>" for name, words in rows)
    return f"<table{_TABLE}><tbody>{body}</tbody></table>"


_ROW = ' style="background:transparent"'
_TABLE = ' style="border-collapse:collapse;margin:4px 0;font-size:13px;border:none"'


def _cells(row: Sequence[str], aligned: Sequence[str]) -> str:
    style = f"vertical-align:top;padding:3px 10px 3px 0;border:none;border-bottom:1px solid {SHADE}"
    return "".join(
        f'<td style="text-align:{side};{style}">{cell}</td>' for cell, side in zip(row, aligned, strict=True)
    )


def bullets(items: Sequence[str]) -> str:
    """Return a list of items that are already escaped."""
    body = "".join(f'<li style="margin:2px 0">{item}</li>' for item in items)
    return f'<ul style="margin:4px 0;padding-left:20px">{body}</ul>'


def bars(numbers: Sequence[int], colour: str) -> str:
    """Return a bar for each number, as high as the number is large; nothing for too many numbers."""
    highest = max(numbers, default=0)
    if not highest or len(numbers) > _N_BARS:
        return ""
    style = "display:inline-block;width:9px;margin-right:2px;vertical-align:bottom"
    return "".join(
        f'<span title="run {position}: {number:,} still alive" style="{style};'
        f'height:{max(round(_BAR_PIXELS * number / highest), 2)}px;background:{colour if number else LINE}"></span>'
        for position, number in enumerate(numbers, 1)
    )


def picture(data: bytes, kind: str, alt: str) -> str:
    """Return an image of MIME type *kind* that the page carries within itself, on white ground."""
    coded = base64.b64encode(data).decode("ascii")
    style = "max-width:100%;height:auto;background:#fff;border-radius:4px;margin:4px 0"
    return f'<img src="data:{kind};base64,{coded}" alt="{escaped(alt)}" style="{style}">'


def svg_picture(svg: str, alt: str) -> str:
    """Return *svg* as an image: inline, it would be torn apart in notebooks that are not trusted."""
    return picture(well_formed(svg).encode("utf-8"), "image/svg+xml", alt)


def text_block(text: str) -> str:
    """Return *text*, laid out in lines, as it is."""
    lines = "\n".join(map(escaped, text.splitlines()))
    style = f"overflow-x:auto;background:{SHADE};padding:8px 10px;border-radius:4px;color:inherit"
    return f'<pre style="{style}">{lines}</pre>'


def _translucent(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},.12)"


# Write a page of its own around a report.


_TITLE_LIMIT = 200
_BODY = "margin:24px auto;max-width:1000px;padding:0 16px"


def page(title: str, body: str, *, head: str = "", policy: str = "", style: str = _BODY) -> str:
    """Return a page that asks nothing of any server and follows the reader's choice of light or dark.

    Args:
        title: As text; shortened and escaped here.
        body: As HTML.
        head: What else the head holds, as HTML.
        policy: The content security policy; without one the page has none.
        style: Inline style of the body.
    """
    allowed = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n' if policy else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{allowed}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(shorten(title, _TITLE_LIMIT))}</title>\n{head}</head>\n"
        f'<body style="{style}">\n{body}\n</body>\n</html>\n'
    )


# Make a page smaller: styles of many elements go into its style sheet.


# Only leaklab writes quotes into markup: in a user's text they are escaped, so what matches is a real attribute.
_STYLE = re.compile(r' style="([^"]*)"')
_TOOLTIP = re.compile(r'<span title="[^"]*"')
_N_LEAST = 5  # of fewer the rule is as long as what it saves
_PREFIX = "s"


def with_classes(markup: str) -> tuple[str, str]:
    """Return *markup* with a class in the place of each frequent ``style``, and the rules of these classes.

    A page of 60 checks becomes half as large. For pages of their own only: notebooks drop style sheets.

    Args:
        markup: In which no element with a ``style`` has a ``class``.
    """
    counts = Counter(_STYLE.findall(markup))
    names = {
        style: f"{_PREFIX}{number}"
        for number, (style, count) in enumerate(counts.most_common())
        if count >= _N_LEAST and style
    }
    shorter = _STYLE.sub(lambda found: f" class={names[found[1]]}" if found[1] in names else found[0], markup)
    return shorter, "\n".join(f".{name} {{{style}}}" for style, name in names.items())


def without_tooltips(markup: str) -> str:
    """Return *markup* without the ``title`` of its spans."""
    return _TOOLTIP.sub("<span", markup)
