"""A real IPython shell to type cells into: no history database, no thread, everything it shows as text."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import IPython
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


@dataclass(frozen=True)
class Typed:
    """One executed cell: what it printed, and what IPython made of it."""

    out: str
    err: str
    result: Any

    @property
    def error(self) -> BaseException | None:
        return self.result.error_before_exec or self.result.error_in_exec


class Notebook:
    """Cells are typed by `run`; `user` holds the variables."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    @property
    def user(self) -> dict[str, Any]:
        return self.shell.user_ns

    def run(self, source: str) -> Typed:
        """Run a cell as a front end would."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            result = self.shell.run_cell(source, store_history=True)
        return Typed(out.getvalue(), err.getvalue(), result)

    def check(self, cell: str, options: str = "", *, cures: bool = False) -> Any:
        """Run *cell* under the magic and return its report; its own errors are raised.

        Changes that would cure a leak are tried only where *cures* is set: they run the cell again and again.
        """
        cure = "" if cures else "--no-cure"
        typed = self.run(f"%%leakcheck -q -v the_report {cure} {options}\n{cell}")
        if typed.error is not None:
            raise typed.error
        return self.user["the_report"]

    def forget_error(self) -> None:
        """Drop what IPython and Python keep of the last exception."""
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)
        self.shell.InteractiveTB.tb = None
        self.shell.last_execution_result = None

    def empty(self) -> None:
        """Forget all variables, errors and settings, and that leaklab was ever loaded."""
        self.run("%unload_ext leaklab")
        for name in ("LeakLab", "WhyAliveMagics"):
            self.shell.config.pop(name, None)
        self.forget_error()
        self.shell.reset(new_session=False)


@contextlib.contextmanager
def open_notebook() -> Iterator[Notebook]:
    """Start a shell of its own, and put back what it changes in the process."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor" if IPython.version_info[0] < 9 else "nocolor"
    main = sys.modules["__main__"]
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)
    try:
        yield Notebook(shell)
    finally:
        if "matplotlib.pyplot" in sys.modules:  # it remembers that a shell has its hook, not which shell
            with contextlib.suppress(ValueError):
                sys.modules["matplotlib.pyplot"].uninstall_repl_displayhook()
        shell.restore_sys_module_state()
        InteractiveShell.clear_instance()
        sys.modules["__main__"] = main
