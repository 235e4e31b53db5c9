"""A program that a client has named, run in this process: a script, or a notebook up to one of its cells."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

from leaklab.errors import LeaklabError
from leaklab.text import shorten

NOTEBOOK, SCRIPT = ".ipynb", ".py"
_REPORT = "_leaklab_report"
_MAGIC = "%%leakcheck"
_SENTENCE_LIMIT = 400


class CheckedProgram:
    """A script or a notebook, to be run once.

    Args:
        file: The script (.py) or the notebook (.ipynb); its folder becomes the working directory.
        cell: Number of a code cell of the notebook, from 1; 0 for the last. A script is one cell.
        store: A folder for the settings of Jupyter, IPython and matplotlib.

    Raises:
        LeaklabError: if it cannot be read, or has no such cell.
    """

    def __init__(self, file: Path, cell: int, store: Path) -> None:
        if file.suffix not in (NOTEBOOK, SCRIPT):
            msg = f"{file.name} is not a program: give a script (.py) or a notebook (.ipynb)"
            raise LeaklabError(msg)
        self._file, self._store = file, store
        cells = _code_cells(file) if file.suffix == NOTEBOOK else [file.read_text(encoding="utf-8")]
        if not 0 <= cell <= len(cells) or not cells:
            msg = f"{file.name} has no code cell {cell}: it has {len(cells)}, numbered from 1"
            raise LeaklabError(msg)
        self._cells = cells[: cell or len(cells)]

    def _enter(self) -> None:
        """Let the program find what it would find if Python ran it: modules beside it, its files, its arguments."""
        _keep_settings(self._store)
        os.chdir(self._file.parent)
        sys.path.insert(0, str(self._file.parent))
        sys.argv = [str(self._file)]

    def variables(self) -> dict[str, Any]:
        """Run all cells, and return the variables."""
        shell = self._shell(self._cells)
        variables: dict[str, Any] = shell.user_ns
        return variables

    def function(self, name: str) -> Callable[[], object]:
        """Import the script, and return the function of that name.

        Raises:
            LeaklabError: if it has none.
        """
        self._enter()
        module_name = self._file.stem
        while module_name in sys.modules:  # what is named as the script is needed as well
            module_name += "_"
        specification = importlib.util.spec_from_file_location(module_name, self._file)
        if specification is None or specification.loader is None:
            msg = f"{self._file.name} cannot be imported; only functions of scripts (.py) are checked"
            raise LeaklabError(msg)
        module = sys.modules[module_name] = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        try:
            found: Callable[[], object] = attrgetter(name)(module)
        except AttributeError:
            msg = f"{self._file.name} has no function {name!r}"
            raise LeaklabError(msg) from None
        return found

    def checked_cell(self, options: str, change: str = "") -> Any:
        """Run the cells above the last, check that, and return the report; with *change* that is tried behind it."""
        import torch.optim  # noqa: F401 - a long first run is watched only where it is loaded

        *above, cell = self._cells
        first, _, rest = cell.lstrip().partition("\n")
        body = rest if first.startswith(_MAGIC) else cell
        shell = self._shell(above)
        shell.run_line_magic("load_ext", "leaklab")
        if change:
            shell.user_ns["_leaklab_change"] = change
            options += " --try _leaklab_change"
        result = shell.run_cell(f"{_MAGIC} -q -v {_REPORT} {options}\n{body}", store_history=True)
        report = shell.user_ns.get(_REPORT)
        if report is None or not isinstance(result.error_in_exec, (KeyboardInterrupt, type(None))):
            result.raise_error()
        return report

    def _shell(self, cells: list[str]) -> Any:
        from IPython.core.interactiveshell import InteractiveShell

        class Shell(InteractiveShell):
            def enable_gui(self, gui: str | None = None) -> None:
                """Have no windows: ``%matplotlib inline`` asks for that."""

        shell: Any = Shell.instance()
        self._enter()
        shell.user_ns["__file__"] = str(self._file)
        for number, cell in enumerate(cells, 1):
            result = shell.run_cell(cell, store_history=True)
            if not result.success:
                error = result.error_before_exec or result.error_in_exec
                place = f"cell {number}" if self._file.suffix == NOTEBOOK else self._file.name
                msg = f"{place} raised {sentence_of(error)}"
                raise LeaklabError(msg)
        return shell


def _keep_settings(folder: Path) -> None:
    """Keep the settings of Jupyter, IPython and matplotlib in *folder*: nothing of the user's is read or written."""
    from leaklab.notebooks import environment_in

    os.environ.update(environment_in(folder))
    os.environ.setdefault("MPLBACKEND", "agg")


def run_whole(file: Path, max_seconds: float, *, redact: bool) -> Any:
    """Execute a notebook in a kernel, and return the report on the checks that it has made."""
    from leaklab.notebooks import run_notebook

    return run_notebook(file, max_seconds=max_seconds, redact=redact).report


def _code_cells(file: Path) -> list[str]:
    from leaklab.notebooks import read_notebook

    return [cell.source for cell in read_notebook(file).cells if cell.cell_type == "code"]


def sentence_of(error: BaseException) -> str:
    """Return *error* in one line; a name of the type first where the message does not speak for itself."""
    try:
        words = shorten(" ".join(str(error).split()), _SENTENCE_LIMIT)
    except Exception:  # noqa: BLE001 - the message is the user's code
        words = ""
    return words if isinstance(error, LeaklabError) else ": ".join(filter(None, (type(error).__name__, words)))
