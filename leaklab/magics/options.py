"""What the magics share: where a report goes, a line taken apart, an expression evaluated, the defaults."""

from __future__ import annotations

import ast
import difflib
import keyword
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Protocol

from IPython import get_ipython
from IPython.core.error import UsageError
from IPython.core.magic import Magics
from IPython.core.magic_arguments import argument, parse_argstring
from IPython.display import display

from leaklab.errors import ReportError
from leaklab.render.base import check_target
from leaklab.reports.notebook import journal_of
from leaklab.text import did_you_mean, shorten
from leaklab.version import renamed

DEFAULTS = "LeakLab"
"""Name of the registered magics that have the defaults of all options, as ``%config LeakLab`` shows them."""
MAX_PATHS = 8
_WORD = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[^\s"'])+)""")
_UNKNOWN = re.compile(r"unrecognized arguments: (--?[\w-]+)")
_EXPRESSION_LIMIT = 120
_MESSAGE_LIMIT = 200


def note(shell: Any, report: object) -> None:
    """Keep *report*, which the cell that is running has made."""
    journal = None if shell is None else journal_of(shell)
    if journal is not None:
        # Not `execution_count`: IPython 9 has it raised already while the cell runs, older ones raise it afterwards.
        journal.note(report, f"In [{len(shell.history_manager.input_hist_parsed) - 1}]")


class AnyReport(Protocol):
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
    options = parsed(magic, line)
    if options.variable and (not options.variable.isidentifier() or keyword.iskeyword(options.variable)):
        msg = f"-v needs the name of a variable, not {options.variable!r}"
        raise UsageError(msg)
    if options.save:
        try:
            check_target(options.save, suffixes)
        except ReportError as error:
            raise UsageError(str(error)) from None
    return options


def parsed(magic: Any, line: str) -> Any:
    """Parse *line* as the options of *magic*.

    Raises:
        UsageError: for an option that does not exist; it names the one that was meant, where one is spelt like it.
    """
    try:
        return parse_argstring(magic, line)
    except UsageError as error:
        known = [option for option in magic.parser._option_string_actions if option.startswith("--")]  # noqa: SLF001 - as below
        unknown = _UNKNOWN.match(str(error))
        guess = "" if unknown is None else did_you_mean(unknown[1], known)
        msg = f"{error}{guess}"
        raise UsageError(msg) from None


def publish(
    report: AnyReport,
    options: Any,
    namespace: dict[str, Any],
    *,
    failed: bool = False,
    show: Callable[[AnyReport], object] = display,
    shown: AnyReport | None = None,
) -> None:
    """Store, display and save *report* as the options say, and keep it for ``%leakreport``.

    Args:
        report: What the magic found.
        options: As `parse_options` returned them.
        namespace: The user's variables.
        failed: Whether an error of the user's own code follows: a file that cannot be written must not hide it.
        show: Displays the report.
        shown: Is displayed and saved in its place.

    Raises:
        UsageError: if the file cannot be written after all.
    """
    __tracebackhide__ = True
    note(get_ipython(), report)
    if options.variable:
        namespace[options.variable] = report
    if not options.quiet:
        show(shown or report)
    if not options.save:
        return
    try:
        (shown or report).save(options.save)
    except ReportError as error:
        if not failed:
            raise UsageError(str(error)) from None
        print(error, file=sys.stderr)
    else:
        if not options.quiet:
            print(f"saved to {Path(options.save).resolve()}")


def split_line(magic: Any, line: str) -> tuple[str, str]:
    """Return the options at the beginning of *line*, and the rest.

    A parser of options would take ``-1`` in ``losses[-1]``, or the quotes of a key, for its own. So only what begins
    with a dash is an option, with its value if it takes one, up to the first word that is neither; ``--`` ends them.

    Args:
        magic: The method, decorated by ``magic_arguments``.
        line: What stands behind its name.
    """
    known = magic.parser._option_string_actions  # noqa: SLF001 - argparse has no public table of its options
    end = 0
    while (match := _WORD.match(line, end)) and match[1].startswith("-"):
        word = match[1]
        if word == "--":
            return line[:end], line[match.end() :].strip()
        name, has_value, _ = word.partition("=")
        if not word.startswith("--"):
            name, has_value = word[:2], word[2:]  # -n3
        if name not in known and word not in known:
            break
        end = match.end()
        takes_value = (known.get(word) or known[name]).nargs != 0
        if takes_value and not has_value and (value := _WORD.match(line, end)):
            end = value.end()
    rest = line[end:].strip()
    _refuse_late_options(rest, known)
    return line[:end], rest


def _refuse_late_options(rest: str, known: Collection[str]) -> None:
    """Say of a line that is no Python, and has an option at its end or in it, where options stand.

    Raises:
        UsageError: one sentence.
    """
    words = rest.split()
    late = [word for word in words if word in known and word.startswith("-")]
    shell: Any = get_ipython()
    if not late:
        return
    try:
        ast.parse(rest if shell is None else shell.transform_cell(rest))
    except (SyntaxError, ValueError):
        first = rest.partition(f" {late[0]}")[0]
        msg = f"{late[0]} comes after {shorten(first, _EXPRESSION_LIMIT)!r}: put options first"
        raise UsageError(msg) from None


def evaluated(expression: str, namespace: dict[str, Any]) -> list[Any]:
    """Return the value of *expression* in *namespace*, as the only item of a list: nothing else of ours has it.

    Raises:
        UsageError: one sentence, if there is no expression, it is none, or it raises. It keeps no frame of the user's.
    """
    shown = shorten(expression, _EXPRESSION_LIMIT)
    code = None
    try:
        code = compile(expression, "<expression>", "eval")
    except (SyntaxError, ValueError) as error:
        problem = f"{shown!r} is not a Python expression: {getattr(error, 'msg', error)}; put options before it"
        if expression.startswith("-"):
            problem = f"{expression.split(maxsplit=1)[0]!r} is not an option, and {shown!r} is not a Python expression"
    if code is None:
        raise UsageError(problem)
    try:
        return [eval(code, namespace)]  # noqa: S307 - evaluating the user's expression is the purpose
    except NameError as error:
        problem = _no_name(shown, getattr(error, "name", None), str(error), namespace)
    except Exception as error:  # noqa: BLE001 - of whatever type the user's code raises
        problem = f"cannot evaluate {shown!r}: it raised {_named(error)}"
    # Raised out here: inside, it would carry the first error, whose frames hold what the expression made.
    raise UsageError(problem)


def _no_name(shown: str, name: str | None, message: str, namespace: dict[str, Any]) -> str:
    if name is None or name in namespace:
        return f"cannot evaluate {shown!r}: {message}"
    close = difflib.get_close_matches(name, [key for key in namespace if type(key) is str], 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"cannot evaluate {shown!r}: there is no variable {name!r}{hint}"


def _named(error: Exception) -> str:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the user's own __str__
        message = ""
    return shorten(": ".join(filter(None, (type(error).__name__, message))), _MESSAGE_LIMIT)


def defaults_of(shell: Any) -> Any:
    """Return what ``%config LeakLab`` sets for the magics of *shell*."""
    return shell.magics_manager.registry[DEFAULTS]


def warn_of_old_option(old: str, new: str) -> None:
    """Say that the option *old* of ``%config`` is now called *new*.

    In the name of ``__main__``: IPython shows no other module's DeprecationWarning, and the frame that set the option
    is IPython's own.
    """
    warnings.warn_explicit(renamed(f"%config {old}", new), DeprecationWarning, "%config", 1, module="__main__")


class ShellMagics(Magics):
    """Magics that read and set the user's variables."""

    @property
    def _namespace(self) -> dict[str, Any]:
        shell: Any = self.shell
        namespace: dict[str, Any] = shell.user_ns
        return namespace

    def not_first(self, _line: str) -> None:
        """Stand for the cell magic where it is not in the first line: IPython looks for a line magic there.

        Raises:
            UsageError: where the magic must stand.
        """
        (name,) = self.magics["cell"]
        msg = f"%%{name} must be the first line of its cell: nothing may stand above it, not even a comment"
        raise UsageError(msg)


class CellEvents:
    """Calls back whenever a cell begins and has ended, until `end`.

    Args:
        shell: Whose cells.
        begins: Is called before each.
        has_ended: Is called after each, with its number, None without history, and its text.
    """

    def __init__(
        self, shell: Any, begins: Callable[[], object], has_ended: Callable[[int | None, str], object]
    ) -> None:
        self._events, self._begins, self._has_ended = shell.events, begins, has_ended
        self._callbacks = {"pre_run_cell": self._before, "post_run_cell": self._after}
        for event, callback in self._callbacks.items():
            self._events.register(event, callback)

    def end(self) -> None:
        """Call back no more."""
        for event, callback in self._callbacks.items():
            self._events.unregister(event, callback)

    def _before(self, _info: Any) -> None:
        self._begins()

    def _after(self, result: Any) -> None:
        # The result has the cell's value: it is not kept, not even in a name of this frame.
        source, number = result.info.raw_cell or "", result.execution_count
        del result
        self._has_ended(number, source)
