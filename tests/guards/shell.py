"""A real IPython shell for the guards: no history database, what it prints as text."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator

import IPython
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


@contextlib.contextmanager
def open_shell(*, may_fail: bool = False) -> Iterator[Callable[[str], str]]:
    """Give a function that runs a cell and returns what it printed; leaklab is loaded."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor" if IPython.version_info[0] < 9 else "nocolor"
    main = sys.modules["__main__"]
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)

    def run(cell: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            result = shell.run_cell(cell, store_history=True)
        if not may_fail and (result.error_before_exec or result.error_in_exec):
            raise AssertionError(out.getvalue())
        return out.getvalue()

    try:
        run("%load_ext leaklab")
        yield run
    finally:
        run("%unload_ext leaklab")
        shell.reset(new_session=False)
        shell.restore_sys_module_state()
        InteractiveShell.clear_instance()
        sys.modules["__main__"] = main
