"""What the user holds after a check: the report, and its comparison with another one."""

from __future__ import annotations

import difflib
import linecache
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from leaklab.cure.edits import MAGIC_LINE, NotTriedError, edited
from leaklab.errors import ChangeError
from leaklab.files import FilePath, write_bytes
from leaklab.model import SCHEMA_VERSION, Check, Leak, Outcome, Verdict
from leaklab.model.cure import Change
from leaklab.render.advice import LineGroup, cure_of, line_groups, patch_text
from leaklab.render.base import Forms, FrameProperty, Report
from leaklab.render.json import FORMAT, check_fields
from leaklab.reports import tables
from leaklab.reports.brief import brief_of
from leaklab.reports.check_html import render_html, render_page
from leaklab.reports.check_text import render_text
from leaklab.reports.comparison import Comparison, blocks_of, compare_checks
from leaklab.reports.graphs import LEAKLAB, PathGraph
from leaklab.reports.notebook_export import render_markdown
from leaklab.reports.plots import plot_growth
from leaklab.reports.stacks import check_tree, exports
from leaklab.reports.tables import leaks_csv
from leaklab.text import shorten, unit_words

if TYPE_CHECKING:
    from collections.abc import Callable

    import leaklab
    from leaklab.render.document import DocumentBlock
    from leaklab.reports.figure import ReportFigure


_REASON_LIMIT = 72
_FORMS = Forms(
    kind=Check,
    format=FORMAT,
    schema=SCHEMA_VERSION,
    fields=check_fields,
    text=render_text,
    html=render_html,
    page=partial(render_page, has_record=True),
    more={
        ".csv": leaks_csv,
        ".md": render_markdown,
        **exports(
            check_tree, "what leaks, bytes per run", "nothing leaks in it, or no run was traced (--no-sites, or a loop)"
        ),
    },
)
SUFFIXES: Final = _FORMS.suffixes
"""Of the files that a report can be saved to."""


@dataclass(frozen=True, slots=True, repr=False, init=False)
class LeakReport(Report[Check]):
    """The result of a check.

    It holds records and nothing else, so it can be pickled and keeps nothing of the user's alive; tables, plots and
    graphs are made anew each time they are asked for. While changes are still tried in a copy of the process, whatever
    asks for the record waits for them.

    Args:
        record: The record, or what returns it when it is called, and has what is known by now as its ``check``.
    """

    _forms: ClassVar = _FORMS
    _record: Any
    _ranks: Any = field(default=None, compare=False)
    _rerun: Any = field(default=None, compare=False)  # runs the code again; no copy and no file has it
    _since: Any = field(default=None, compare=False)  # what became of the leaks of the check before; shown first

    def __init__(self, record: Check, _ranks: Any = None, _rerun: Any = None, _since: Any = None) -> None:
        for name, value in (("_record", record), ("_ranks", _ranks), ("_rerun", _rerun), ("_since", _since)):
            object.__setattr__(self, name, value)

    objects = FrameProperty(tables.object_table)
    """What the runs left behind, by type."""
    tensors = FrameProperty(tables.tensor_table)
    """The tensors that the runs left behind, by shape, dtype and device."""
    containers = FrameProperty(tables.container_table)
    """The containers, buffers and graphs that grew in place."""
    runs = FrameProperty(tables.run_table)
    """The measured runs."""
    stacks = FrameProperty(tables.allocation_table)
    """The call stacks that allocated what the leaks leave, as the traced runs saw them."""

    @property
    def record(self) -> Check:  # type: ignore[override]  # only read
        """The record, with every figure."""
        record: Check = self._record if isinstance(self._record, Check) else self._record()
        return record

    @property
    def so_far(self) -> Check:
        """The record, as far as it is known by now: nothing is waited for."""
        record: Check = self._record if isinstance(self._record, Check) else self._record.check
        return record

    @property
    def check(self) -> Check:
        """The record, by its older name."""
        return self.record

    @property
    def ranks(self) -> leaklab.RanksReport | None:
        """The report on all ranks, on the first of those that checked together; else None. It is saved apart."""
        ranks: leaklab.RanksReport | None = self._ranks
        return ranks

    @property
    def leaked(self) -> bool:
        """Whether the verdict is a leak; ``bounded`` and ``inconclusive`` are none."""
        return self.record.verdict.outcome is Outcome.LEAK

    @property
    def verdict(self) -> Verdict:
        """The outcome, its reason, its figures; ``str()`` begins with the outcome."""
        return self.record.verdict

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """The leaks, largest first."""
        return self.record.leaks

    @property
    def groups(self) -> tuple[LineGroup, ...]:
        """The leaks by the line that makes or keeps them, each group with the merged paths to its places."""
        return tuple(line_groups(self.record.leaks))

    @property
    def bounded(self) -> tuple[Leak, ...]:
        """The places that grew and stopped, or whose limit is known."""
        return self.record.bounded

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats, and what could not be measured."""
        return self.record.notes

    def plot(self) -> ReportFigure:
        """Return a figure of what each run left behind and of the memory after each run."""
        return plot_growth(self.record)

    def graph(self, i: int = 0, style: str = LEAKLAB) -> PathGraph:
        """Return the path to leak number *i*, the largest first, as a graph.

        Args:
            i: Number of the leak, from 0.
            style: ``leaklab``, or ``objgraph`` for the picture that objgraph draws of the same objects.

        Raises:
            IndexError: if there is no such leak.
            ValueError: for any other style.
        """
        self._require(i)
        return PathGraph(self.leaks[i], style)

    def patch(self, i: int = 0, path: FilePath | None = None) -> str:
        """Return the change that cured leak number *i* when it was tried, as a unified diff.

        Args:
            i: Number of the leak, from 0.
            path: A file to write it to as well, if there is one; ``git apply`` takes it in the working directory.

        Returns:
            The diff, for ``git apply`` where the change lies in files, and without context where it lies in a cell;
            empty if no change was tried that cures the leak.

        Raises:
            IndexError: if there is no such leak.
            ChangeError: if there is nothing to write to *path*.
            ReportError: if *path* cannot be written.
        """
        self._require(i)
        patch = patch_of(self.leaks[i])
        if path is not None:
            if not patch:
                msg = f"no change was tried that cures leak {i}"
                raise ChangeError(msg)
            write_bytes(path, patch.encode())
        return patch

    def brief(self, i: int = 0, *, redact: bool = False) -> str:
        """Return what somebody needs to propose a change for leak number *i*, a person or a language model.

        Verdict, holder, path, the lines with ten lines around them, what was tried with its outcome, and what would
        count as cured. A report that was loaded has the lines alone.

        Args:
            i: Number of the leak, from 0; there need not be any.
            redact: Whether to hide strings, keys, comments, folders and summaries of your data.

        Returns:
            Markdown, 4 KiB at most.

        Raises:
            IndexError: if there is no such leak.
        """
        if i or self.leaks:
            self._require(i)
        texts = () if self._rerun is None else self._rerun.texts()
        return brief_of(self.record, i, texts, redact=redact)

    def apply(self, i: int = 0) -> AppliedChange:
        """Write the cell with the change that cured leak number *i*, in the place of the cell that calls this.

        What is written begins with the ``%%leakcheck`` line where the cell had one: running it proves the change. The
        old cell stays where it is. No file is written: `patch` makes a patch for those.

        Args:
            i: Number of the leak, from 0.

        Returns:
            Both texts; its ``undo()`` writes the old one.

        Raises:
            IndexError: if there is no such leak.
            ChangeError: if no change was tried that cures it, if that does not lie in one cell, or outside of a
                notebook.
        """
        self._require(i)
        return apply_change(self.leaks[i], i)

    def _require(self, i: int) -> None:
        n_leaks = len(self.leaks)
        if not 0 <= i < n_leaks:
            have = f"this report has {n_leaks}, numbered from 0" if n_leaks else "this report has none"
            msg = f"there is no leak {i}: {have}"
            raise IndexError(msg)

    def explore(self) -> leaklab.Explorer:
        """Show this report as a page with tables, graphs and buttons; the static report is displayed first."""
        from leaklab import explore  # noqa: PLC0415 - widgets are paid by those who explore

        return explore(self)

    def compare(self, other: LeakReport) -> Comparison:
        """Return what became of the leaks of this report in *other*, the check of the mended code."""
        return compare_checks(self.record, other.record)

    def _text(self) -> str:
        text = render_text(self.record)
        return text if self._since is None else f"{self._since}\n\n{text}"

    def _fragment(self) -> str:
        return render_html(self.record, self._before())

    def _writers(self) -> dict[str, Callable[[], str]]:
        to_page = partial(render_page, self.record, has_record=True, before=self._before())
        return {**Report._writers(self), ".html": to_page}  # noqa: SLF001 - of its own base

    def _before(self) -> tuple[DocumentBlock, ...]:
        return () if self._since is None else blocks_of(self._since)

    def __repr__(self) -> str:
        verdict, n_leaks = self.verdict, len(self.leaks)
        found = f"; {unit_words(n_leaks, 'leaks')}" if n_leaks else ""
        return f"<LeakReport {verdict.outcome.value}: {shorten(verdict.reason, _REASON_LIMIT)}{found}>"


def said_since(report: LeakReport, comparison: Comparison | None) -> LeakReport:
    """Return *report*, which then says first what became of the leaks of an earlier check."""
    return LeakReport(report._record, report._ranks, report._rerun, comparison)  # noqa: SLF001 - of this file


def patch_of(leak: Leak) -> str:
    """Return the change that cured *leak* as a unified diff; empty where none did.

    A file gets three lines around each change, and the name that it has from the working directory on, as ``git apply``
    wants it. A cell, and a file that is not as it was, gets the changed lines alone.
    """
    cure = cure_of(leak)
    if cure is None:
        return ""
    by_file: dict[str, list[Change]] = {}
    for change in cure.changes:
        by_file.setdefault(change.filename, []).append(change)
    parts = [_of_file(name, changes) for name, changes in by_file.items()]
    return "".join(parts) if all(parts) else patch_text(leak)


def _of_file(filename: str, changes: list[Change]) -> str:
    """Return the diff of a file; empty where it is none, or is not as it was."""
    try:
        text = Path(filename).read_bytes().decode()
        changed = edited(text, changes)
    except (OSError, ValueError, NotTriedError):
        return ""
    below = os.path.relpath(filename)
    name = filename.lstrip(os.sep) if below.startswith(os.pardir) else Path(below).as_posix()
    changed = changed.replace("\n", "\r\n") if "\r\n" in text else changed
    lines = difflib.unified_diff(_lines(text), _lines(changed), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines of *text* as git counts them, with their ends."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


@dataclass(frozen=True, slots=True, repr=False)
class AppliedChange:
    """A cell that was written into the notebook.

    Attributes:
        old: The cell as it was.
        new: The cell as it is written.
    """

    old: str
    new: str

    def undo(self) -> None:
        """Write the old text in the place of the cell that calls this."""
        _shell().set_next_input(self.old, replace=True)

    def __repr__(self) -> str:
        proves = "run it to check it" if self.new.startswith("%%leakcheck") else "run it, and then the check again"
        return f"the changed cell stands here now: {proves}; undo() writes the old text"


def apply_change(leak: Leak, number: int) -> AppliedChange:
    """Write the cell with the change that cured *leak*, number *number* of its report, in the place of the running one.

    Raises:
        ChangeError: as `changed_cell` does.
    """
    change = changed_cell(leak, number)
    _shell().set_next_input(change.new, replace=True)
    return change


def changed_cell(leak: Leak, number: int) -> AppliedChange:
    """Return the cell with the change that cured *leak*, number *number* of its report; nothing is written.

    Raises:
        ChangeError: if there is no such change, if it does not lie in one cell, or outside of a notebook.
    """
    cure = cure_of(leak)
    if cure is None:
        msg = f"no change was tried that cures leak {number}"
        raise ChangeError(msg)
    if not cure.changed_cell:
        msg = f"the change is not in one cell that could be written as it is: report.patch({number}) shows it"
        raise ChangeError(msg)
    shell = _shell()
    if shell is None:
        msg = f"there is no notebook to write the cell into: report.patch({number}) shows the change"
        raise ChangeError(msg)
    return AppliedChange(*_whole_cells(shell, cure.changes[0].filename, cure.changed_cell))


def _whole_cells(shell: Any, filename: str, changed: str) -> tuple[str, str]:
    """Return the cell as it was typed, with the line of its magic, and the changed one with the same line."""
    body = "".join(linecache.getlines(filename)).removeprefix(MAGIC_LINE).strip("\n")
    for typed in reversed(shell.history_manager.input_hist_raw):
        head, found, below = typed.rpartition(body)
        if found and not below.strip() and (not head.strip() or head.lstrip().startswith("%%leakcheck")):
            return typed, head + changed
    return body, changed


def _shell() -> Any:
    from IPython import get_ipython  # noqa: PLC0415 - a report of a script is written without it

    return get_ipython()
