"""Fit a report's text to the terminal it is printed on: its width, and colour where that is wanted."""

from __future__ import annotations

import os
import re
import shutil
import sys

from leaklab.text import WIDTH

_RESET = "\x1b[0m"
_STYLES = {"LEAK": "\x1b[1;31m", "CLEAN": "\x1b[1;32m", "BOUNDED": "\x1b[1;34m", "INCONCLUSIVE": "\x1b[1;33m"}
_RED, _GREEN, _BOLD = "\x1b[31m", "\x1b[32m", "\x1b[1m"
_OUTCOME = re.compile(rf"^(?:{'|'.join(_STYLES)})(?=  )", re.MULTILINE)
_CHANGED = re.compile(r"^( {16})([-+]) (.*)$", re.MULTILINE)  # below the label of a change
_HERE = re.compile(r"<== here.*$", re.MULTILINE)
_EXPRESSION = re.compile(r"`[^`\n]+`")


def terminal_columns() -> int:
    """Return the width of the terminal that standard output is; of anything else that of files."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if _is_terminal() else WIDTH


def on_terminal(text: str) -> str:
    """Return *text*, of which every character prints, with colour where standard output is a terminal that shows it.

    ``NO_COLOR`` and a terminal that says it is dumb are respected.
    """
    is_wanted = _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return coloured(text) if is_wanted else text


def in_alarm(text: str, *, in_notebook: bool) -> str:
    """Return *text* in the colour of a leak, where standard output is a terminal that shows it, or a notebook."""
    is_wanted = in_notebook or (_is_terminal() and os.environ.get("TERM") != "dumb")
    return f"{_STYLES['LEAK']}{text}{_RESET}" if is_wanted and not os.environ.get("NO_COLOR") else text


def coloured(text: str) -> str:
    """Return *text* with outcomes, changed lines, expressions and the suspect reference in colour."""
    text = _EXPRESSION.sub(lambda found: f"{_BOLD}{found[0]}{_RESET}", text)
    text = _OUTCOME.sub(lambda found: f"{_STYLES[found[0]]}{found[0]}{_RESET}", text)
    text = _CHANGED.sub(_changed_line, text)
    return _HERE.sub(lambda found: f"{_RED}{found[0]}{_RESET}", text)


def _changed_line(found: re.Match[str]) -> str:
    colour = _GREEN if found[2] == "+" else _RED
    return f"{found[1]}{colour}{found[2]} {found[3]}{_RESET}"


def _is_terminal() -> bool:
    try:
        return sys.stdout.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
