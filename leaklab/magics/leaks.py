"""``%leaks``, the one door: it looks at the kernel, or hands a cell or an expression to the magic that answers best."""

from __future__ import annotations

import ast
import inspect
import re
from collections import deque
from functools import partial
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from leaklab.errors import NO_MEMORY_TO_LOOK
from leaklab.magics.options import (
    CellEvents,
    ShellMagics,
    evaluated,
    output_options,
    parse_options,
    publish,
    split_line,
)
from leaklab.reports.kernel import SUFFIXES
from leaklab.runtime.objects import has_base, is_exactly, is_tensor
from leaklab.text import shorten

if TYPE_CHECKING:
    from leaklab.measure.cell_levels import CellLevels

_CELL = re.compile(r"(?:In\s*\[\s*(\d+)\s*\]|(\d+))")
_MAGIC_CELL = re.compile(r"\s*%%(?:leakcheck|leaks|memdiff)\b([^\n]*)\n(.*)", re.DOTALL)
_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)
_CONTAINERS = (list, dict, tuple, set, frozenset, deque)
_N_ITEMS, _DEEPEST = 1000, 3
_LIMIT = 120


@magics_class
class LeaksMagics(ShellMagics):
    """The magic that chooses another; from ``%load_ext`` on it notes what memory does over each cell."""

    def __init__(self, shell: Any = None, **kwargs: Any) -> None:
        super().__init__(shell=shell, **kwargs)
        self._levels: CellLevels | None = None
        self._events: CellEvents | None = None

    def switch_on(self) -> None:
        """Note memory before and after each cell from now on."""
        from leaklab.measure.cell_levels import CellLevels

        self._levels = CellLevels()
        self._events = CellEvents(self.shell, self._levels.start_cell, partial(_note_cell, self._levels))

    def switch_off(self) -> None:
        """Stop that; does nothing while it is off."""
        if self._events is not None:
            self._events.end()
            self._levels = self._events = None

    @magic_arguments()
    @argument("--let-go", action="store_true", help="Drop what the notebook itself keeps: Out, _, the last error.")
    @output_options(SUFFIXES)
    @no_var_expand
    @line_cell_magic
    def leaks(self, line: str, cell: str | None = None) -> object:
        """Find out what to do about memory, in this kernel or about one thing.

        Write one of these::

            %leaks                 what this kernel keeps that it need not: the likeliest first, with what to run next
            %leaks In[7]           does that cell leak? (%%leakcheck)
            %leaks train(model)    does this call leak? (%leakcheck)
            %leaks losses          what do their graphs keep? (%autograd), or why is it alive? (%whyalive)
            %leaks Net             where are all objects of this class? (leaklab.find)
            %leaks --let-go        drop what the notebook itself keeps: outputs and the last error
            %%leaks                as the first line of a cell: does it leak? (%%leakcheck)

        Options stand before all else, and go along to the magic that answers.
        """
        __tracebackhide__ = True
        shell: Any = self.shell
        if cell is not None:
            return shell.run_cell_magic("leakcheck", line, cell)
        written, asked = split_line(self.leaks, line)
        asked = asked.rstrip(";").strip()
        if asked:
            return self._ask(written.strip(), asked)
        options = parse_options(self.leaks, written, SUFFIXES)
        if options.let_go:
            self._let_go()
            return None
        report = self._look()
        publish(report, options, self._namespace)
        return report if options.output else None

    def _look(self) -> Any:
        __tracebackhide__ = True
        from leaklab.ask.kernel import look_at_kernel

        runs = () if self._levels is None else self._levels.runs()
        lines = {one.number: self._source(one.number).strip().partition("\n")[0] for one in runs}
        try:
            return look_at_kernel(self.shell, runs, lines)
        except MemoryError:
            problem = NO_MEMORY_TO_LOOK
        # In one line: IPython would need more memory for a traceback than there is.
        raise UsageError(problem)

    def _let_go(self) -> None:
        from leaklab.explorer.in_notebook import let_go

        dropped = let_go(self.shell)
        print("let go: " + "; ".join(dropped) if dropped else "the notebook itself keeps nothing")

    def _ask(self, options: str, asked: str) -> object:
        """Hand *asked* to the magic that answers best, and say which that is."""
        __tracebackhide__ = True
        shell: Any = self.shell
        if (number := _CELL.fullmatch(asked)) is not None:
            return self._check_cell(options, int(number[1] or number[2]))
        magic, rest = self._chosen(asked)
        print(f"%{magic} {shorten(rest, _LIMIT)}" if magic != "find" else f"leaklab.find({rest})")
        if magic == "find":
            from leaklab.ask.find import find

            parsed = parse_options(self.leaks, options, SUFFIXES)
            report = find(evaluated(asked, self._namespace)[0], namespace=self._namespace)
            publish(report, parsed, self._namespace)
            return report if parsed.output else None
        return _waited_for(shell.run_line_magic(magic, f"{options} {rest}".strip()), shorten(asked))

    def _chosen(self, asked: str) -> tuple[str, str]:
        """Return the name of a magic, and what it is asked."""
        __tracebackhide__ = True
        try:
            body = ast.parse(asked, mode="eval").body
        except SyntaxError:
            _refuse_mistakes(self.shell, asked)
            return "leakcheck", asked
        if isinstance(body, (ast.Call, ast.Await)):
            return "leakcheck", asked
        values = evaluated(asked, self._namespace)
        value = values[0]
        if is_exactly(value, _FUNCTIONS):
            _refuse_arguments(value, asked)
            return "leakcheck", f"({asked})()" if isinstance(body, ast.Lambda) else f"{asked}()"
        if has_base(type(value), type):
            return "find", asked
        return ("autograd" if _has_graph(value) else "whyalive"), asked

    def _source(self, number: int) -> str:
        shell: Any = self.shell
        typed = shell.history_manager.input_hist_raw
        return str(typed[number]) if 0 < number < len(typed) else ""

    def _check_cell(self, options: str, number: int) -> object:
        __tracebackhide__ = True
        shell: Any = self.shell
        source = self._source(number)
        if not source.strip():
            msg = f"there is no cell In[{number}] in this kernel: In has the source of every cell that was executed"
            raise UsageError(msg)
        if (magic := _MAGIC_CELL.match(source)) is not None:
            options, source = f"{options} {magic[1]}".strip(), magic[2]
        print(f"%%leakcheck {options}".rstrip() + f" of In[{number}]: {shorten(source.strip().partition(chr(10))[0])}")
        return _waited_for(shell.run_cell_magic("leakcheck", options, source), f"In[{number}]")


def _waited_for(report: object, what: str) -> object:
    """Return *report*; refuse one that is still to be awaited, which a line magic cannot do."""
    if inspect.iscoroutine(report):
        report.close()
        msg = f"{what} uses await: write %%leakcheck above it in a cell of its own"
        raise UsageError(msg)
    return report


def _refuse_mistakes(shell: Any, asked: str) -> None:
    """Refuse what is neither an expression nor a statement."""
    problem = ""
    try:
        ast.parse(shell.transform_cell(asked))
    except SyntaxError as error:
        problem = f"{shorten(asked)!r} is not valid Python: {error.msg}"
    if problem:
        raise UsageError(problem)


def _note_cell(levels: CellLevels, number: int | None, source: str) -> None:
    # A cell without history has no number, and cannot be asked for again.
    if number is not None and not source.lstrip().startswith("%leaks"):
        levels.end_cell(number, source)


def _refuse_arguments(function: Any, asked: str) -> None:
    """Refuse a function that cannot be called without arguments."""
    plain = function.__func__ if type(function) is MethodType else function
    if type(plain) is not FunctionType:
        return
    names = plain.__code__.co_varnames[: plain.__code__.co_argcount - len(plain.__defaults__ or ())]
    missing = names[1:] if type(function) is MethodType else names
    if missing:
        msg = f"{shorten(asked)} needs arguments: write the call, as in %leaks {shorten(asked)}({', '.join(missing)})"
        raise UsageError(msg)


def _has_graph(value: Any, depth: int = _DEEPEST) -> bool:
    """Return whether *value* is a tensor with a graph, or a container with one in it."""
    if is_tensor(value):
        from leaklab.runtime.autograd_graph import has_graph

        return has_graph(value)
    items = value.values() if type(value) is dict else value
    if not depth or not is_exactly(value, _CONTAINERS):
        return False
    return any(_has_graph(item, depth - 1) for item in islice(items, _N_ITEMS))
