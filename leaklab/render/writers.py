"""Write a document as text of a given width, and as HTML that survives the sanitizers of notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from markupsafe import Markup

from leaklab.model.comparison import Fate
from leaklab.render.document import (
    Bars,
    Bullet,
    CellToCopy,
    Changes,
    Chapter,
    Diff,
    Document,
    DocumentBlock,
    Drawn,
    Either,
    FactTable,
    Flame,
    Foldout,
    Gap,
    Headline,
    Image,
    Lines,
    NextCell,
    Outline,
    Panel,
    PathSteps,
    Points,
    Prose,
    Remark,
    ShareBar,
    Table,
    Tone,
    Tree,
    TwoBars,
    parts_of,
    plain,
)
from leaklab.render.templates import ACCENT, CALM, DOUBTFUL, GOOD, GREY, render
from leaklab.render.words import render_path
from leaklab.text import shorten, wrap

N_CHANGES = 40
"""Rows of bars that are shown at once."""
_NAME_LIMIT, _BELOW_LIMIT = 120, 300
_BAR, _WORDS_WIDTH = 10, 30
_FATE_WIDTH = max(len(fate.value) for fate in Fate) + 2
_BELOW_A_BULLET = 6  # columns


def text_of(document: Document) -> str:
    """Return *document* as lines of `leaklab.text.columns` at most, with a line break behind each."""
    return "\n".join(_all(document.blocks)) + "\n"


def _all(blocks: Iterable[DocumentBlock], indent: int = 0) -> Iterator[str]:
    for block in blocks:
        yield from _WRITERS[type(block)](block, indent)


def _wrapped(text: str, first: int, hang: int) -> list[str]:
    return wrap(text, " " * first, " " * hang)


def _headline(block: Headline, indent: int) -> Iterator[str]:
    badge = f"{block.badge}  " if block.badge else ""
    start = indent + (len(badge) or 2)
    yield from _wrapped(f"{badge}{plain(block.words)}", indent, start)
    for line in filter(plain, block.below):
        yield from _wrapped(shorten(plain(line), _BELOW_LIMIT), start, start + 2)


def _panel(block: Panel, indent: int) -> Iterator[str]:
    yield from _wrapped(plain(block.words), indent + 2, indent + 4)
    for line in block.lines:
        yield from wrap(plain(line), f"{' ' * indent}    - ", " " * (indent + 6))
    yield from _all(block.blocks, indent + 2)


def _table(block: Table, indent: int) -> Iterator[str]:
    if block.has_head:
        line = block.lines[0]
        yield " " * line.indent + line.form.format(*(name.removeprefix(">") for name in block.columns))
    for row in block.shown:
        cells = [plain(cell) for cell in row]
        for line in block.lines:
            if words := line.form.format(*cells).rstrip():
                yield from _wrapped(words, indent + line.indent, indent + line.hang)
    if block.n_more:
        yield f"{' ' * indent}  ... {block.n_more:,} more{f' in {block.place}' if block.place else ''}"


def _changes(block: Changes, _indent: int) -> Iterator[str]:
    """Yield each row with two bars of characters: before, and after."""
    shown = block.rows[:N_CHANGES]
    most = max((max(row.before, row.after) for row in shown), default=0.0) or 1.0
    width = min(max((len(row.words) for row in shown), default=0), _WORDS_WIDTH)
    for row in shown:
        fate = f"{row.fate.value:<{_FATE_WIDTH}}" if block.has_fates else ""
        bars = " ".join(
            f"{mark * round(_BAR * size / most):<{_BAR}}" for mark, size in (("-", row.before), ("=", row.after))
        )
        start = f"  {fate}{row.words:<{width}}  {bars} "
        yield from wrap(shorten(row.name, _NAME_LIMIT), start, " " * len(start))
    if len(block.rows) > N_CHANGES:
        yield f"  ... and {len(block.rows) - N_CHANGES:,} more"


def _chapter(block: Chapter, indent: int) -> Iterator[str]:
    if lines := list(_all(block.blocks, indent)):
        yield from ("", *_wrapped(f"{plain(block.title)} {block.legend}".rstrip(), indent, indent + 2), *lines)


def _bullet(block: Bullet, indent: int) -> Iterator[str]:
    yield from wrap(plain(block.words), f"{' ' * indent}  * ", " " * (indent + 4))
    yield from _all(block.blocks, indent + _BELOW_A_BULLET)


def _points(block: Points, indent: int) -> Iterator[str]:
    for item in block.items:
        yield from wrap(plain(item), f"{' ' * indent}  - ", " " * (indent + 4))


def _prose(block: Prose, indent: int) -> Iterator[str]:
    for line in block.words.splitlines():
        own = indent + len(line) - len(line.lstrip(" "))
        yield from _wrapped(line.lstrip(" "), own, own)


def _remark(block: Remark, indent: int) -> list[str]:
    first = indent + block.indent
    words = plain(block.words) if block.in_text is None else block.in_text
    return _wrapped(words, first, first + block.hang)


def _gap(_block: Gap, _indent: int) -> tuple[str, ...]:
    return ("",)


def _facts(block: FactTable, indent: int) -> Iterator[str]:
    """Yield each text beside its label; the layout of code is kept."""
    for label, lines in block.facts:
        for number, line in enumerate(map(plain, lines)):
            own = " " * (indent + block.width + len(line) - len(line.lstrip(" ")))
            start = f"{' ' * indent}  {'' if number else label}"
            yield from wrap(line.lstrip(" "), f"{start:<{len(own)}}", own)


def _steps(block: PathSteps, indent: int) -> Iterator[str]:
    for number, line in enumerate(render_path(block.path, block.cut_at).splitlines()):
        yield " " * indent + f"  {'' if number else block.label}".ljust(block.width) + line


def _nothing(_block: DocumentBlock, _indent: int) -> tuple[str, ...]:
    return ()


def _diff(block: Diff, indent: int) -> Iterator[str]:
    return (f"{' ' * indent}{line.sign} {line.text}" for line in block.lines)


def _either(block: Either, indent: int) -> Iterator[str]:
    return _all(block.text, indent)


def _lines(block: Lines, indent: int) -> Iterator[str]:
    return (f"{' ' * indent}{line}" for line in block.lines)


_WITHOUT_TEXT = (Bars, CellToCopy, Drawn, Flame, Foldout, Image, NextCell, Outline, ShareBar, Tree, TwoBars)
_WRITERS: Mapping[type[DocumentBlock], Callable[[Any, int], Iterable[str]]] = {
    Bullet: _bullet,
    Changes: _changes,
    Chapter: _chapter,
    Diff: _diff,
    Either: _either,
    FactTable: _facts,
    Gap: _gap,
    Headline: _headline,
    Lines: _lines,
    Panel: _panel,
    PathSteps: _steps,
    Points: _points,
    Prose: _prose,
    Remark: _remark,
    Table: _table,
    **dict.fromkeys(_WITHOUT_TEXT, _nothing),
}


COLOURS = {Tone.BAD: ACCENT, Tone.DOUBTFUL: DOUBTFUL, Tone.CALM: CALM, Tone.GOOD: GOOD, Tone.NONE: GREY}


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
        colours=COLOURS,
        N_CHANGES=N_CHANGES,
        heading="h1" if is_page else "div",
        style=style,
    )
