"""Which files have tests that check a whole process."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
_MARK = "pytest.mark.untraced"
WHOLE_CHECKS = frozenset({
    "test_api.py", "test_bad_input.py", "test_cli.py", "test_gc_of_checks.py", "test_explain_whole.py",
    "test_hostile_objects.py", "test_leaks.py", "test_magics.py", "test_magics_await.py", "test_magics_errors.py",
    "test_magics_shell.py", "test_notebook_runs.py", "test_notebooks.py", "test_watching.py",
})  # fmt: skip
"""Files of nothing but such tests; in others each carries the mark ``untraced``."""
BROWSER = FOLDER / "browser"
"""One run for all its files: they share a browser and a server of notebooks. The checks are made by its kernels."""


def checks_whole_process(file: Path) -> bool:
    """Return whether every test of *file* needs a process without anything else in it."""
    return file.name in WHOLE_CHECKS or file.parent == BROWSER


def _place(file: Path) -> tuple[int, str]:
    return (_LONG.index(file.name) if file.name in _LONG else len(_LONG), file.name)


def files_with_whole_checks() -> list[Path]:
    """Return every file with such a test, and the folder of the browser; those that take longest first."""
    files = [
        file
        for file in FOLDER.rglob("test_*.py")
        if file.parent != BROWSER and (file.name in WHOLE_CHECKS or _MARK in file.read_text("utf-8"))
    ]
    return sorted([*files, BROWSER], key=_place)


_LONG = (
    "browser", "test_leaks.py", "test_notebooks.py", "test_trials.py", "test_bad_input.py", "test_magics.py",
    "test_first_patient.py", "test_api.py", "test_monitor.py", "test_plugin.py", "test_hostile_objects.py",
)  # fmt: skip
"""A minute and more: begun last, one of them would run alone at the end."""
