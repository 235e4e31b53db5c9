"""Run the code of a cell again and again, whole or statement by statement."""

from __future__ import annotations

import ast
import inspect
import tokenize
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from types import CodeType
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from leaklab.check.session import Statement
from leaklab.check.trying import Checked, Rerun
from leaklab.cure.edits import MAGIC_LINE, NotTriedError
from leaklab.heap.source_lines import THIS_CELL, cell_name
from leaklab.magics.output_records import OutputRecords
from leaklab.runtime.objects import loaded_variables


class Cell:
    """A compiled cell.

    Args:
        shell: The shell whose namespace the code lives in.
        source: The text below the magic's line.
        n_lines_above: Lines of the notebook's cell above *source*: tracebacks then name the lines that the user sees.
        number: Of the notebook's cell; None for the one that is running.

    Raises:
        SyntaxError: if the text is no Python.
        UsageError: if it holds no statement.
    """

    def __init__(self, shell: Any, source: str, *, n_lines_above: int = 1, number: int | None = None) -> None:
        self._shell = shell
        self.outputs = OutputRecords(shell)
        # A comment stands for the magic's own line: blank lines would be stripped by the transformation.
        self._above = MAGIC_LINE * n_lines_above
        text = self._above + shell.transform_cell(source)
        self._text, self._written = text, self._above + source
        self._is_running = number is None
        self.number = max(shell.execution_count - 1, 0) if number is None else number
        self._name: str = shell.compile.cache(text, self.number, raw_code=source)
        with shell.compile.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
            tree = shell.transform_ast(shell.compile.ast_parse(text, filename=self._name))
            if not tree.body:
                msg = "the cell is empty: put the code to check below the line with %%leakcheck"
                raise UsageError(msg)
            self._shows_last = not _ends_with_semicolon(text)
            self._body, self._last = self._compile(tree)
        self._statements: Sequence[CodeType] = ()
        self._after: Callable[[int], object] | None = None

    @property
    def filename(self) -> str:
        """The name under which the cell was compiled."""
        return self._name

    @contextmanager
    def replaced(self, tree: ast.Module) -> Iterator[Sequence[tuple[CodeType, CodeType]]]:
        """Run *tree* instead of the cell inside; yields the code objects that it has instead of the cell's.

        Raises:
            NotTriedError: if one of the two has to be awaited and the other not.
        """
        kept = self._body, self._last
        with self._shell.compile.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
            body, last = self._compile(self._shell.transform_ast(tree))
        if any(map(_is_coroutine, filter(None, (body, last)))) != self.awaits:
            msg = "the changed cell would have to be awaited"
            raise NotTriedError(msg)
        pairs = [(self._body, body)]
        if self._last is not None and last is not None:
            pairs.append((self._last, last))
        self._body, self._last = body, last
        try:
            yield pairs
        finally:
            self._body, self._last = kept

    @contextmanager
    def by_statement(self, after: Callable[[int], object]) -> Iterator[Sequence[Statement]]:
        """Run the cell statement by statement inside; yields the statements.

        Args:
            after: Called after each of them with its place, 0 for the first, and with -1 before the first. It must not
                raise.
        """
        with self._shell.compile.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
            tree = self._shell.transform_ast(self._shell.compile.ast_parse(self._text, filename=self._name))
            statements = split_statements(tree, self._text, self._written)
            compiled = []
            for statement in statements:
                # Alone, a text would be the docstring of its module, and set a variable.
                is_text = isinstance(statement.nodes[0], ast.Expr) and isinstance(
                    statement.nodes[0].value, ast.Constant
                )
                before = [ast.copy_location(ast.Pass(), statement.nodes[0])] if is_text else []
                module = ast.Module([*before, *statement.nodes], [])
                compiled.append(self._shell.compile(module, self._name, "exec"))
        self._statements, self._after = compiled, after
        try:
            yield statements
        finally:
            self._statements, self._after = (), None

    def cell_name(self, filename: str) -> str:
        """Return what the notebook calls the cell that *filename* stands for; empty for a real file."""
        return THIS_CELL if self._is_running and filename == self._name else cell_name(self._shell, filename)

    def checked(self) -> Checked:
        """Return the cell as something that a change can be tried on."""
        return Checked(
            run=lambda number: self.run(number, shown=False),
            code=self,
            namespace=self._shell.user_ns,
            cell_name=self.cell_name,
            written=self._written,
            as_run=self._as_run,
            close=self.outputs.forget,
        )

    def rerun(self) -> Rerun:
        """Return how the cell is checked again later; that keeps its text."""
        shell, number, above = self._shell, self.number, self._above
        source = self._written.removeprefix(above)

        def find() -> Checked:
            return Cell(shell, source, n_lines_above=len(above) // len(MAGIC_LINE), number=number).checked()

        return Rerun(find)

    def _as_run(self, text: str) -> str:
        """Return what runs of a new *text* of the cell, be it with the magic's line or below it."""
        text = text.removeprefix(self._above)
        first, _, below = text.lstrip("\n").partition("\n")
        body: str = self._shell.transform_cell(below if first.startswith("%%leakcheck") else text)
        return self._above + body

    @property
    def awaits(self) -> bool:
        """Whether the cell has to be awaited."""
        return any(_is_coroutine(code) for code in (self._body, self._last) if code is not None)

    def run(self, number: int = 0, *, shown: bool) -> None:
        """Run the cell once; its output and the value of its last expression are shown or dropped.

        Args:
            number: Of the run.
            shown: Whether to show what it prints and displays. Otherwise IPython's records of it are kept until
                ``outputs.forget()``.
        """
        __tracebackhide__ = True
        with self.outputs.of_run(number, shown=shown):
            if self._after is not None:
                self._after(-1)
                for place, code in enumerate(self._statements):
                    exec(code, self._shell.user_ns)  # noqa: S102
                    self._after(place)
            else:
                exec(self._body, self._shell.user_ns)  # noqa: S102 - running the user's cell is the purpose
                if self._last is not None:
                    self._show(eval(self._last, self._shell.user_ns), shown=shown)  # noqa: S307
            _flush_figures()

    async def run_async(self, number: int = 0, *, shown: bool) -> None:
        """As `run`, for a cell that awaits."""
        __tracebackhide__ = True
        with self.outputs.of_run(number, shown=shown):
            if self._after is not None:
                self._after(-1)
            for place, code in enumerate(self._statements or (self._body, self._last)):
                if code is None:
                    continue
                value = eval(code, self._shell.user_ns)  # noqa: S307
                value = await value if _is_coroutine(code) else value
                if code is self._last:
                    self._show(value, shown=shown)
                del value
                if self._after is not None:
                    self._after(place)
            _flush_figures()

    def _show(self, value: object, *, shown: bool) -> None:
        # Not through the displayhook: Out, _ and the history would keep the value.
        if shown and value is not None:
            display(value)

    def _compile(self, tree: ast.Module) -> tuple[CodeType, CodeType | None]:
        """Split off a last expression, whose value a notebook shows."""
        last = tree.body[-1] if tree.body else None
        if not (self._shows_last and isinstance(last, ast.Expr)):
            return self._shell.compile(tree, self._name, "exec"), None
        body = ast.Module(tree.body[:-1], tree.type_ignores)
        expression = ast.Expression(last.value)
        return self._shell.compile(body, self._name, "exec"), self._shell.compile(expression, self._name, "eval")


def split_statements(tree: ast.Module, text: str, written: str) -> tuple[Statement, ...]:
    """Return the top-level statements of *tree*; a compound one (``for``, ``with``, ``def``) is one with its body.

    Args:
        tree: Of the cell.
        text: What was parsed.
        written: What the user wrote, with magics as they are; shown where its lines are those of *text*.
    """
    lines = written.splitlines()
    if len(lines) != len(text.splitlines()):
        lines = text.splitlines()
    groups: list[list[ast.stmt]] = []
    for node in tree.body:
        if groups and _first_line(node) <= _last_line(groups[-1]):
            groups[-1].append(node)
        else:
            groups.append([node])
    return tuple(_statement(nodes, lines) for nodes in groups)


def _statement(nodes: Sequence[ast.stmt], lines: Sequence[str]) -> Statement:
    first, last = _first_line(nodes[0]), _last_line(nodes)
    return Statement(tuple(nodes), first, last, "\n".join(lines[first - 1 : last]))


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _last_line(nodes: Sequence[ast.stmt]) -> int:
    return max(node.end_lineno or node.lineno for node in nodes)


def awaits(code: str) -> bool:
    """Return whether Python text *code* awaits outside of its functions: it can then run as a coroutine only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compilation that runs will tell
        compiled = compile(code, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return _is_coroutine(compiled)


def _ends_with_semicolon(code: str) -> bool:
    """Return whether the last token of *code* is the ``;`` by which a notebook's cell shows no value."""
    skipped = (tokenize.ENDMARKER, tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)
    tokens = [token for token in tokenize.generate_tokens(StringIO(code).readline) if token.type not in skipped]
    return bool(tokens) and tokens[-1].string == ";"


def _is_coroutine(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _flush_figures() -> None:
    """Show and close the figures of a run as the end of a cell would: open ones would pile up from run to run."""
    flush = loaded_variables("matplotlib_inline.backend_inline").get("flush_figures")
    get_backend = loaded_variables("matplotlib.pyplot").get("get_backend")
    if flush is not None and get_backend is not None and "inline" in str(get_backend()).lower():
        flush()
