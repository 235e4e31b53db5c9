"""Compile a notebook cell once and run it many times in the user's namespace, as ``%%time`` runs it once."""

from __future__ import annotations

import ast
import inspect
import sys
import tokenize
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import StringIO
from types import CodeType
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display
from IPython.utils.capture import capture_output

from leaklab.explain.source.lines import cell_name


class Cell:
    """A compiled cell.

    Args:
        shell: The shell whose namespace the code lives in.
        source: The text below the magic's line.
        n_lines_above: Lines of the notebook's cell above *source*: tracebacks then name the lines that the user sees.

    Raises:
        SyntaxError: if the text is no Python.
        UsageError: if it holds no statement.
    """

    def __init__(self, shell: Any, source: str, *, n_lines_above: int = 1) -> None:
        self._shell = shell
        # A comment stands for the magic's own line: blank lines would be stripped by the transformation.
        text = "# the magic's line\n" * n_lines_above + shell.transform_cell(source)
        self._name = shell.compile.cache(text, max(shell.execution_count - 1, 0), raw_code=source)
        with shell.compile.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
            tree = shell.transform_ast(shell.compile.ast_parse(text, filename=self._name))
            if not tree.body:
                msg = "the cell is empty: put the code to check below the line with %%leakcheck"
                raise UsageError(msg)
            self._body, self._last = self._compile(tree, shows_last=not _ends_with_semicolon(text))

    def cell_name(self, filename: str) -> str:
        """Return what the notebook calls the cell that *filename* stands for; empty for a real file."""
        return "this cell" if filename == self._name else cell_name(self._shell, filename)

    @property
    def awaits(self) -> bool:
        """Whether the cell has to be awaited."""
        return any(_is_coroutine(code) for code in (self._body, self._last) if code is not None)

    def run(self, *, shown: bool) -> None:
        """Run the cell once; its output and the value of its last expression are shown or dropped."""
        __tracebackhide__ = True
        with _output(shown=shown):
            exec(self._body, self._shell.user_ns)  # noqa: S102 - running the user's cell is the purpose
            if self._last is not None:
                self._show(eval(self._last, self._shell.user_ns), shown=shown)  # noqa: S307
            _flush_figures()

    async def run_async(self, *, shown: bool) -> None:
        """As `run`, for a cell that awaits."""
        __tracebackhide__ = True
        with _output(shown=shown):
            for code in (self._body, self._last):
                if code is None:
                    continue
                value = eval(code, self._shell.user_ns)  # noqa: S307
                value = await value if _is_coroutine(code) else value
                if code is self._last:
                    self._show(value, shown=shown)
                del value
            _flush_figures()

    def _show(self, value: object, *, shown: bool) -> None:
        # Not through the displayhook: Out, _ and the history would keep the value.
        if shown and value is not None:
            display(value)  # type: ignore[no-untyped-call]

    def _compile(self, tree: ast.Module, *, shows_last: bool) -> tuple[CodeType, CodeType | None]:
        """Split off a last expression, whose value a notebook shows."""
        last = tree.body[-1]
        if not (shows_last and isinstance(last, ast.Expr)):
            return self._shell.compile(tree, self._name, "exec"), None
        body = ast.Module(tree.body[:-1], tree.type_ignores)
        expression = ast.Expression(last.value)
        return self._shell.compile(body, self._name, "exec"), self._shell.compile(expression, self._name, "eval")


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


@contextmanager
def _output(*, shown: bool) -> Iterator[None]:
    with nullcontext() if shown else capture_output():
        yield


def _flush_figures() -> None:
    """Show and close the figures of a run as the end of a cell would: open ones would pile up from run to run."""
    inline = sys.modules.get("matplotlib_inline.backend_inline")
    pyplot = sys.modules.get("matplotlib.pyplot")
    if inline is not None and pyplot is not None and "inline" in str(pyplot.get_backend()).lower():
        inline.flush_figures()
