"""The options that every magic of leaklab shares: where its report goes."""

from __future__ import annotations

import keyword
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from IPython import get_ipython
from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, parse_argstring
from IPython.display import display

from leaklab.errors import ReportError
from leaklab.magics.noting import note
from leaklab.render.files import check_target


class Report(Protocol):
    """What a magic shows: anything that displays itself and can be saved."""

    def save(self, path: str) -> None:
        """Write the report to *path* by its suffix."""


def unquoted(text: str) -> str:
    """Take off the quotes that the shell's splitting leaves around an option's value."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


_SHOWING = (
    argument("-q", "--quiet", action="store_true", help="Display nothing."),
    argument("-o", "--output", action="store_true", help="Return the report as the value of the cell."),
    argument("-v", "--variable", type=unquoted, default="", help="Store the report in this variable."),
)


def output_options(suffixes: Iterable[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a magic the options ``-q -o -v -T``; goes below ``@magic_arguments()`` and the magic's own arguments.

    Args:
        suffixes: Of the files that its report can be saved to, as the help of ``-T`` names them.
    """
    *others, last = (f"FILE{suffix}" for suffix in suffixes)
    files = f"{', '.join(others)} or {last}"
    save = argument("-T", "--save", type=unquoted, default="", help=f"Save the report: {files}.")

    def decorated(magic: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed((*_SHOWING, save)):
            magic = option(magic)
        return magic

    return decorated


def parse_options(magic: Any, line: str, suffixes: Iterable[str]) -> Any:
    """Parse *line* as the options of *magic*, and refuse before anything runs what could not be done after it.

    Args:
        magic: The decorated method.
        line: What stands behind its name.
        suffixes: Of the files that its report can be saved to.

    Raises:
        UsageError: for an option that does not exist, a name that is none, or a file that cannot be written.
    """
    options = parse_argstring(magic, line)
    if options.variable and (not options.variable.isidentifier() or keyword.iskeyword(options.variable)):
        msg = f"-v needs the name of a variable, not {options.variable!r}"
        raise UsageError(msg)
    if options.save:
        try:
            check_target(options.save, suffixes)
        except ReportError as error:
            raise UsageError(str(error)) from None
    return options


def publish(
    report: Report,
    options: Any,
    namespace: dict[str, Any],
    *,
    failed: bool = False,
    show: Callable[[Report], object] = display,
) -> None:
    """Store, display and save *report* as the options say, and keep it for ``%leakreport``.

    Args:
        report: What the magic found.
        options: As `parse_options` returned them.
        namespace: The user's variables.
        failed: Whether an error of the user's own code follows: a file that cannot be written must not hide it.
        show: Displays the report.

    Raises:
        UsageError: if the file cannot be written after all.
    """
    __tracebackhide__ = True
    note(get_ipython(), report)
    if options.variable:
        namespace[options.variable] = report
    if not options.quiet:
        show(report)
    if not options.save:
        return
    try:
        report.save(options.save)
    except ReportError as error:
        if not failed:
            raise UsageError(str(error)) from None
        print(error, file=sys.stderr)
    else:
        if not options.quiet:
            print(f"saved to {Path(options.save).resolve()}")
