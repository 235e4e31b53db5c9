"""Write why an object is alive as plain text of at most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from leaklab.model.alive import Alive, Cut
from leaklab.render.alive_wording import (
    HEADLINES,
    autograd_words,
    counts_words,
    cut_title,
    holder_words,
    path_title,
    reference_words,
    retained_words,
    title_words,
    told,
    wider_words,
)
from leaklab.render.path import LABEL_WIDTH, WIDTH, render_path
from leaklab.render.texts import SHOWN_LIMIT, clipped
from leaklab.render.wording import shorten, visible

_N_REFERENCES = 8
_TITLE_LIMIT = 300
_CODE_LIMIT = 400


def render_alive(alive: Alive) -> str:
    """Return the whole answer, what keeps the object alive first."""
    alive = clipped(alive, SHOWN_LIMIT)
    blocks = [list(_head(alive)), *_path_blocks(alive), list(_cycle(alive)), list(_cut(alive.cut, alive.wider_cut))]
    blocks += [list(_figures(alive)), list(_references(alive)), list(_autograd(alive)), list(_notes(alive.notes))]
    environment = ", ".join(f"{name} {version}" for name, version in alive.environment)
    blocks.append(_wrap(f"{alive.n_heap:,} objects looked at; {environment}" if alive.n_heap else environment, "", ""))
    return "\n\n".join("\n".join(block) for block in blocks if any(block)) + "\n"


def render_paths(alive: Alive) -> str:
    """Return the paths alone, or the cycle where there is none."""
    alive = clipped(alive, SHOWN_LIMIT)
    blocks = [*_path_blocks(alive), list(_cycle(alive))]
    return "\n\n".join("\n".join(block) for block in blocks if block) or "\n".join(_wrap(alive.reason, "", ""))


def _head(alive: Alive) -> Iterator[str]:
    word = HEADLINES[alive.hold]
    yield from _wrap(shorten(title_words(alive), _TITLE_LIMIT), f"{word}  ", " " * (len(word) + 2))
    yield from _wrap(alive.reason, " " * (len(word) + 2), " " * (len(word) + 2))


def _path_blocks(alive: Alive) -> list[list[str]]:
    return [list(_path(alive, number)) for number in range(len(alive.paths))]


def _path(alive: Alive, number: int) -> Iterator[str]:
    path = alive.paths[number]
    yield from _wrap(shorten(path_title(alive, number), _TITLE_LIMIT), "", "  ")
    yield from _fact("held by", shorten(holder_words(path), _TITLE_LIMIT))
    for position, line in enumerate(render_path(told(path.path)[0]).splitlines()):
        yield ("  path" if position == 0 else "").ljust(LABEL_WIDTH) + line
    if path.remark:
        yield from _fact("known", path.remark)


def _cycle(alive: Alive) -> Iterator[str]:
    if alive.cycle is not None:
        yield "The cycle that keeps it"
        yield from (" " * LABEL_WIDTH + line for line in render_path(alive.cycle).splitlines())
    if alive.cycle_cut is not None:
        yield from _fact("to cut", shorten(alive.cycle_cut.how, _CODE_LIMIT))
        yield from _fact("", alive.cycle_cut.words)


def _cut(cut: Cut | None, wider: Cut | None) -> Iterator[str]:
    if cut is None:
        return
    yield from _wrap(f"To let it go: {cut_title(cut, is_least=wider is None)}", "", "  ")
    for reference in cut.references:
        yield from _wrap(shorten(reference.advice, _CODE_LIMIT), "    " if reference.is_statement else "  - ", "      ")
        if not reference.is_statement:
            yield from _wrap(f"({reference.holder}  {reference.reference})", "    ", "      ")
    if wider is not None:
        yield from _wrap(wider_words(wider), "  ", "    ")


def _figures(alive: Alive) -> Iterator[str]:
    yield from _fact("frees", retained_words(alive))
    for label, words in counts_words(alive):
        yield from _fact(f"{label}", f"reference count {words}" if label == "Python" else f"use count {words}")


def _references(alive: Alive) -> Iterator[str]:
    if not alive.references:
        return
    yield f"Direct references ({alive.n_references:,})"
    for reference in alive.references[:_N_REFERENCES]:
        yield from _wrap(shorten(reference_words(reference), _TITLE_LIMIT), "  - ", "    ")
    if len(alive.references) > _N_REFERENCES:
        yield f"  - {len(alive.references) - _N_REFERENCES:,} more are in .references"


def _autograd(alive: Alive) -> Iterator[str]:
    if alive.autograd:
        yield "Autograd"
    for holder in alive.autograd[:_N_REFERENCES]:
        yield from _wrap(shorten(autograd_words(holder), _TITLE_LIMIT), "  - ", "    ")


def _notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield "Notes"
    for note in notes:
        yield from _wrap(note, "  - ", "    ")


def _fact(label: str, text: str) -> list[str]:
    return _wrap(text, f"  {label}".ljust(LABEL_WIDTH), " " * LABEL_WIDTH)


def _wrap(text: str, first_indent: str, indent: str) -> list[str]:
    """Return *text* in lines of at most 100 columns; one line at least."""
    wrapped = textwrap.wrap(
        visible(text), WIDTH, initial_indent=first_indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return wrapped or [first_indent.rstrip()]
