"""Write a path from a root to a leaked object as text, with the reference to blame marked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from leaklab.model import RootPath, Step
from leaklab.render.texts import SHOWN_LIMIT, clipped
from leaklab.render.wording import object_words, shorten, suspect_references, visible

WIDTH = 100
LABEL_WIDTH = 11
_PATH_WIDTH = WIDTH - LABEL_WIDTH  # a path is shown beside a label
_STATUS_WIDTH = 10
_NARROWEST, _WIDEST = 9, 34  # column of the references: a longer reference takes a line of its own
_FIELD_LIMIT = 300  # characters of one name: a name that a person has written is shown whole
_MARK = "<== here"


def render_path(path: RootPath) -> str:
    """Return *path* root first, one reference per line, the suspect references underlined and marked.

    No step is left out. The lines have at most 89 columns, so that they fit beside a label.
    """
    path = clipped(path, SHOWN_LIMIT)
    if not path.steps:
        return shorten(path.root, _FIELD_LIMIT)
    suspects = suspect_references(path)
    column = min(max(_NARROWEST, *(len(visible(step.reference)) for step in path.steps)), _WIDEST)
    lines = textwrap.wrap(f"from: {shorten(path.root, _FIELD_LIMIT)}", _PATH_WIDTH)
    for index, step in enumerate(path.steps):
        lines += _step_lines(step, column, suspect_mark(index, suspects))
    return "\n".join(lines)


def suspect_mark(index: int, suspects: range) -> str:
    """Return how the reference at *index* is marked; empty where it is not suspected."""
    if index not in suspects:
        return ""
    return _MARK if len(suspects) == 1 else f"{_MARK} (one of {len(suspects)} suspects)"


def _step_lines(step: Step, column: int, mark: str) -> Iterator[str]:
    """Yield status, reference and object; the underline below a suspect reference; the note."""
    reference = shorten(step.reference, _FIELD_LIMIT)
    status = f"{step.status.value:<{_STATUS_WIDTH}}"
    blank = " " * _STATUS_WIDTH
    indent = " " * (_STATUS_WIDTH + column + 2)
    words = shorten(object_words(step), _FIELD_LIMIT)
    if len(reference) <= column:
        yield from _wrap(words, f"{status}{reference:<{column}}  ", indent)
    else:
        yield from _wrap(reference, status, blank)
        yield from _wrap(words, indent, indent)
    if mark:
        yield f"{blank}{'~' * min(len(reference), column):<{column}}  {mark}"
    if step.note:
        yield from _wrap(shorten(step.note, _FIELD_LIMIT), indent, indent)


def _wrap(text: str, first_indent: str, indent: str) -> list[str]:
    lines = textwrap.wrap(
        text, _PATH_WIDTH, initial_indent=first_indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return lines or [first_indent.rstrip()]
