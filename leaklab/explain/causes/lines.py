"""Put the user's own line into an advice."""

from __future__ import annotations

from leaklab.explain.evidence import Evidence


def line_words(e: Evidence) -> str:
    """Return a sentence that names the line which puts things there; empty where none is known."""
    return f" The line that does it: {e.facts.line.place}." if e.facts.line is not None else ""


def changed_line(e: Evidence, call: str, before: str, after: str) -> tuple[str, str]:
    """Return the user's line and the same with *call* on what it adds; *before* and *after* where none is known.

    Only one plain thing is changed (a name, an attribute, a call, an item): in a display of several the reader knows
    best which of them is meant.
    """
    line = e.facts.line
    if line is None:
        return before, after
    if not line.added or line.added[0] in "([{'\"" or not _is_primary(line.added):
        return line.text, ""
    return line.text, line.with_added(f"{line.added}{call}")


def _is_primary(expression: str) -> bool:
    """Return whether ``expression.name`` would ask all of *expression*: no operator outside of brackets."""
    depth = 0
    for character in expression:
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and not (character.isalnum() or character in "._)]}"):
            return False
    return True
