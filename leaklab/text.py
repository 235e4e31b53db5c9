"""Write figures and texts as people read them: bytes, rates, plurals, seconds; made visible, cut, wrapped.

Three functions shorten. `shorten` makes one line of at most so many characters. `clipped` goes through all texts of a
record before it is drawn: a name of a megabyte would else stand in a page ten times, and each of its characters would
be looked at. `clip_block` keeps lines.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

Record = TypeVar("Record")
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
PER_THOUSAND = 1_000
_PER_MILLION, _LITTLE_BYTES = 1_000_000, 1024
WIDTH = 100
"""Columns of every plain text that is written to a file or a notebook."""
_NARROWEST, _WIDEST = 80, 120
_COLUMNS = ContextVar("leaklab_columns", default=WIDTH)
ROW_LIMIT = 400
BLOCK_LIMIT = 20_000
TEXT_LIMIT = 4_000
"""Characters: no sentence, advice or name that leaklab writes is longer, a string of the user's may be."""
SHOWN_LIMIT = 800
"""The same for one line of what is shown; a text of several lines, an advice, may be `N_LINES` times as long."""
N_LINES = 3
CELL_LIMIT = 20_000
"""Of one cell of a table: the path through a long graph takes some thousands."""
_IRREGULAR = {"entries": "entry", "classes": "class", "child processes": "child process"}


def columns() -> int:
    """Return how wide the text is that is being written."""
    return _COLUMNS.get()


@contextmanager
def in_columns(n_columns: int) -> Iterator[None]:
    """Write text in *n_columns*, but neither narrower than it can be nor wider than lines are read."""
    token = _COLUMNS.set(min(max(n_columns, _NARROWEST), _WIDEST))
    try:
        yield
    finally:
        _COLUMNS.reset(token)


def projected_runs(bytes_per_run: float) -> int:
    """Return for how many runs to say what they would keep: a million of what is little, else a thousand."""
    return _PER_MILLION if bytes_per_run < _LITTLE_BYTES else PER_THOUSAND


def format_bytes(n_bytes: float) -> str:
    """Write *n_bytes* with three digits and a binary unit: ``96 B``, ``1.20 MiB``, ``157 KiB``."""
    sign, size = "-" if n_bytes < 0 else "", abs(n_bytes)
    unit = 0
    while size >= 999.5 and unit < len(UNITS) - 1 and (unit > 0 or size >= 1023.5):  # noqa: PLR2004 - no fourth digit after rounding
        size /= 1024
        unit += 1
    if unit == 0:
        return f"{sign}{format_rate(size if size < 10 else round(size))} B"  # noqa: PLR2004
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0  # noqa: PLR2004
    return f"{sign}{size:,.{decimals}f} {UNITS[unit]}"


def read_bytes_words(words: str) -> int:
    """Return the bytes that *words* say: ``10MB``, ``512KiB``, ``4096``.

    Raises:
        ValueError: if they say no size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", words, re.IGNORECASE | re.ASCII)
    if match is None:
        msg = f"a size is a number with a unit, such as 10MB, 512KiB or 80GB, not {words!r}"
        raise ValueError(msg)
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " kmgt".index(match[2].lower() or " "))


def signed_bytes(n_bytes: float) -> str:
    """Write a change of *n_bytes* with its sign: ``+1.20 MiB``, ``-96 B``, ``+0 B``."""
    return f"{'+' if n_bytes >= 0 else ''}{format_bytes(n_bytes)}"


def levels_words(levels: Sequence[int]) -> str:
    """Return levels as ``1.00 MiB -> 2.00 MiB``; of many the first and the last."""
    words = [format_bytes(level) for level in levels]
    if len(words) > 5:  # noqa: PLR2004 - fits a line
        words = [*words[:2], "...", *words[-2:]]
    return " -> ".join(words)


def format_rate(per_run: float) -> str:
    """Write a rate with at most two decimals where it needs any: ``3``, ``0.33``, ``2.5``, ``1,200``."""
    if 0 < abs(per_run) < 0.01:  # noqa: PLR2004
        return f"{per_run:.1g}"
    decimals = 2 if abs(per_run) < 99.995 else 0  # noqa: PLR2004
    text = f"{per_run:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_seconds(seconds: float) -> str:
    """Write *seconds* in the unit that reads best: ``2.1 s``, ``13 ms``, ``40 us``."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < PER_THOUSAND else f"{seconds:,.0f} s"
    return f"{seconds * 1e6:.3g} us"


def with_article(name: str) -> str:
    """Write ``a list``, ``an Adam``: *name*, which may be a qualified one, by its last part."""
    name = name.rpartition(".")[2]
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def unit_words(count: float, unit: str) -> str:
    """Write ``1 entry``, ``0.5 objects``, ``2 graph nodes``: *count* with *unit*, which is given for many."""
    shown = format_rate(count)
    return f"{shown} {unit if shown != '1' else _singular(unit)}"


def signed_words(count: int, unit: str) -> str:
    """Write a change of *count* with its sign: ``+1 object``, ``-1 object``, ``+2,000 tensors``."""
    return f"{count:+,} {unit if abs(count) != 1 else _singular(unit)}"


def _singular(unit: str) -> str:
    return _IRREGULAR.get(unit, unit.removesuffix("s"))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean --html?`` for what is spelt most like *word* among *known*; empty where nothing is."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def visible(text: str) -> str:
    """Return *text* with all that does not print as an escape: colour codes, line breaks, bidi marks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable(text: str) -> str:
    """Return *text* with its line breaks; all else that does not print is an escape."""
    return "\n".join(map(visible, text.split("\n")))


def well_formed(text: str) -> str:
    """Return *text* with lone surrogates written as escapes, so that it can be encoded and drawn."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shorten(text: str, limit: int = ROW_LIMIT) -> str:
    """Return *text* made visible, its middle left out where it is longer than *limit* characters."""
    if len(text) > 2 * limit:  # no character gets shorter: the others cannot be seen
        text = text[:limit] + text[len(text) - limit :]
    return _without_middle(visible(text), limit, limit // 3)


clip = shorten


def clip_block(text: str, limit: int = BLOCK_LIMIT) -> str:
    """Return *text* with its lines, at most *limit* characters of it."""
    if len(text) > limit:
        text = f"{text[:limit]}\n..."
    return "\n".join(map(visible, text.splitlines()))


def clipped(record: Record, limit: int = TEXT_LIMIT) -> Record:
    """Return *record* with the middle left out of every string of more than *limit* characters."""
    return with_texts(record, partial(_clip_text, limit=limit))


def cell_text(cell: object) -> object:
    """Return *cell*, where it is a text one that a table can show: printable, of `CELL_LIMIT` characters at most."""
    return _clip_text(printable(_clip_text(cell, CELL_LIMIT)), CELL_LIMIT) if isinstance(cell, str) else cell


def _clip_text(text: str, limit: int) -> str:
    if "\n" in text[:limit]:
        limit = max(limit, min(N_LINES * limit, TEXT_LIMIT))
    return _without_middle(text, limit, limit // 5)


def _without_middle(text: str, limit: int, n_tail: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - n_tail - 3]}...{text[len(text) - n_tail :]}"


def with_texts(record: Record, change: Callable[[str], str]) -> Record:
    """Return *record*, a frozen record or a tuple of them, with *change* applied to every string in it."""
    return cast("Record", _changed(record, change))


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if type(value) is str:  # members of enums are strings too, and stay
        return change(value)
    if type(value) is tuple:
        items = tuple(_changed(item, change) for item in value)
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if is_dataclass(value) and not isinstance(value, type):
        old = {field.name: getattr(value, field.name) for field in fields(value)}
        new = {name: _changed(item, change) for name, item in old.items()}
        return replace(value, **new) if any(new[name] is not item for name, item in old.items()) else value
    return value


def wrap(text: str, first_indent: str = "", indent: str = "", width: int | None = None) -> list[str]:
    """Return *text*, made visible, in lines of at most *width* columns, by default `columns`; one line at least."""
    width = columns() if width is None else width
    lines = textwrap.wrap(
        visible(text), width, initial_indent=first_indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return lines or [first_indent.rstrip()]


def fenced(text: str, language: str = "text") -> list[str]:
    """Return *text* as lines of Markdown between fences that are longer than any row of backticks in it."""
    longest = max((len(row) for row in re.findall("`+", text)), default=0)
    fence = "`" * max(longest + 1, 3)
    return [f"{fence}{language}", *map(visible, text.splitlines()), fence]


_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=*#"
_LEAST_SHARE = 0.01
"""A level that moves by less than this share of itself is drawn flat: noise would look like a mountain."""


def draw_levels(levels: Sequence[float], *, encoding: str | None = "utf-8") -> str:
    """Return one character a level, the lowest for the least of them.

    Args:
        levels: In bytes, oldest first.
        encoding: Of where it is written; where that has no blocks, signs of ASCII stand for them.
    """
    if not levels:
        return ""
    signs = _BLOCKS if _can_write(_BLOCKS, encoding) else _ASCII
    least, most = min(levels), max(levels)
    extent = max(most - least, _LEAST_SHARE * most, 1)
    return "".join(signs[min(int((level - least) / extent * len(signs)), len(signs) - 1)] for level in levels)


def _can_write(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
