"""The magic ``%memdiff``: what a cell makes, and what changed between two marks or two files."""

from __future__ import annotations

import ast
import glob
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from leaklab.errors import LeaklabError
from leaklab.magics.options import ShellMagics, output_options, parse_options, publish, split_line, unquoted
from leaklab.model.heap_diff import HeapSnapshotRecord
from leaklab.reports.heap_diff import SUFFIXES, HeapSnapshot, MemDiff

if TYPE_CHECKING:
    from leaklab.ask.cuda import CudaStretch
    from leaklab.ask.heap_diff import Stretch
    from leaklab.magics.cell import Cell
    from leaklab.measure.heap_snapshot import NotebookContext

_SNAPSHOT_SUFFIX = ".npz"
_SUFFIXES = (".pickle", ".pkl", _SNAPSHOT_SUFFIX)


@magics_class
class MemDiffMagics(ShellMagics):
    """The magic that compares two moments. The marks live on it, as numbers and words: they keep nothing alive."""

    def __init__(self, shell: Any = None, **kwargs: Any) -> None:
        super().__init__(shell=shell, **kwargs)
        self._marks = _Marks()

    @magic_arguments()
    @argument("--cuda", action="store_true", help="Compare the CUDA allocator by call stack, instead of the heap.")
    @argument("--mark", type=unquoted, metavar="NAME", help="Record everything alive now under this name.")
    @output_options(SUFFIXES)
    @no_var_expand
    @line_cell_magic
    def memdiff(self, line: str, cell: str | None = None) -> object:
        """Show what was made, freed, grown and replaced: over a cell, a statement, or between two moments.

        Write one of these::

            %%memdiff                      as the first line of a cell: what exactly this cell makes
            %memdiff STATEMENT             the same for one statement
            %memdiff --mark before         note everything alive now
            %memdiff before                compare that with now
            %memdiff before after          compare two marks
            %memdiff a.npz b.npz           compare moments saved by leaklab.snapshot().save(FILE)
            %memdiff --cuda STATEMENT      what a statement, or a cell, allocates on the card, by call stack
            %memdiff a.pickle b.pickle     compare memory snapshots of torch, two or more, or a pattern: snap_*.pickle

        Options stand before all else; the statement is taken as it is written, its value is shown. Without anything,
        the newest mark is compared with now.
        """
        __tracebackhide__ = True
        written, rest = split_line(self.memdiff, line)
        options = parse_options(self.memdiff, written, SUFFIXES)
        if options.mark is not None:
            self._mark(options.mark, rest, cell)
            return None
        if cell is not None:
            if rest:
                msg = f"%%memdiff takes options only, and the code below its line, not {rest!r}"
                raise UsageError(msg)
            return self._over(cell, options, n_lines_above=1)
        if files := _files_of(rest):
            return self._show(_compare_files(files, self._around), options)
        words = rest.split()
        if options.cuda and not rest:
            msg = "%memdiff --cuda needs a statement to run, or %%memdiff --cuda and code below it"
            raise UsageError(msg)
        if options.cuda:
            return self._over(rest, options, n_lines_above=0)
        if not rest or (words and all(map(str.isidentifier, words)) and not _is_statement(rest)):
            return self._between(words, options)
        return self._over(rest, options, n_lines_above=0)

    @property
    def _around(self) -> NotebookContext:
        from leaklab.measure.heap_snapshot import notebook_context

        return notebook_context(self._namespace, self.shell)

    def _mark(self, name: str, rest: str, cell: str | None) -> None:
        if rest or cell is not None:
            msg = "%memdiff --mark NAME takes no code: it only records what is alive now"
            raise UsageError(msg)
        if not name.isidentifier():
            msg = f"a mark is called by one bare name, such as before, not {name!r}"
            raise UsageError(msg)
        moment = self._around.take(name)
        self._marks.add(moment)
        print(f"marked {name!r}: {repr(HeapSnapshot(moment)).partition(': ')[2].rstrip('>')}")

    def _between(self, names: list[str], options: Any) -> object:
        """Compare one mark with now, or two marks."""
        __tracebackhide__ = True
        from leaklab.ask.heap_diff import compare_now, compare_past

        try:
            moments = self._marks.named(names)
        except LookupError as error:
            problem = str(error.args[0])
        else:
            for name in names:
                if name in self._namespace and not options.quiet:
                    print(f"{name!r} means the mark here; for the variable write ({name})")
            around = self._around
            if len(moments) == 1:
                return self._show(compare_now(moments[0], around.take("now"), around), options)
            return self._show(compare_past(moments[0], moments[1], around), options)
        raise UsageError(problem)

    def _over(self, source: str, options: Any, *, n_lines_above: int) -> object:
        """Run *source* once and show what exactly it made, then raise what it raised."""
        __tracebackhide__ = True
        code = self._compiled(source, n_lines_above)
        if code is not None and code.awaits:
            if not n_lines_above:
                msg = "%memdiff STATEMENT cannot await: put the code into a cell below %%memdiff"
                raise UsageError(msg)
            return self._over_awaiting(code, options)
        stretch, error = self._stretch(options), None
        try:
            _start(stretch)
            try:
                if code is not None:
                    code.run(shown=True)
            except BaseException as raised:  # noqa: BLE001 - raised again after the report
                error = raised
            return self._finish(stretch, error, options)
        finally:
            stretch.abandon()
            # The user's frames know this one as their caller: a name for the error would close a cycle.
            del error

    async def _over_awaiting(self, code: Cell, options: Any) -> object:
        __tracebackhide__ = True
        stretch, error = self._stretch(options), None
        try:
            _start(stretch)
            try:
                await code.run_async(shown=True)
            except BaseException as raised:  # noqa: BLE001 - raised again after the report
                error = raised
            return self._finish(stretch, error, options)
        finally:
            stretch.abandon()
            del error

    def _stretch(self, options: Any) -> Stretch | CudaStretch:
        if options.cuda:
            from leaklab.ask.cuda import CudaStretch

            return CudaStretch()
        from leaklab.ask.heap_diff import Stretch

        return Stretch(self._around)

    def _finish(self, stretch: Stretch | CudaStretch, error: BaseException | None, options: Any) -> object:
        __tracebackhide__ = True
        from leaklab.check.runner import without_own_frames

        try:
            report = stretch.finish("after", error)
            publish(report, options, self._namespace, failed=error is not None)
            if error is not None:
                raise without_own_frames(error)
            return report if options.output else None
        finally:
            del error

    def _compiled(self, source: str, n_lines_above: int) -> Cell | None:
        """Compile *source*; None if there is nothing in it to run."""
        __tracebackhide__ = True
        from leaklab.magics.cell import Cell

        shell: Any = self.shell
        problem: SyntaxError
        try:
            if not ast.parse(shell.transform_cell(source)).body:
                return None
        except SyntaxError:
            pass  # the real compilation says it with the line that the user sees, or knows that awaiting is allowed
        try:
            return Cell(shell, source, n_lines_above=n_lines_above)
        except SyntaxError as error:
            problem = error
        raise problem.with_traceback(None)

    def _show(self, report: Any, options: Any) -> object:
        publish(report, options, self._namespace)
        return report if options.output else None


class _Marks:
    """The moments that were marked, by name; the newest is the last."""

    def __init__(self) -> None:
        self._by_name: dict[str, HeapSnapshotRecord] = {}

    def add(self, moment: HeapSnapshotRecord) -> None:
        """Keep *moment* under its name, instead of an older one of that name."""
        self._by_name.pop(moment.name, None)
        self._by_name[moment.name] = moment

    def named(self, names: Sequence[str]) -> list[HeapSnapshotRecord]:
        """Return the marks called *names*; the newest if there are none.

        Raises:
            LookupError: one sentence with the marks that exist, if one of them does not, or there are more than two.
        """
        if not self._by_name:
            asked = f"there is no mark {names[0]!r}, and no other mark" if names else "there is no mark to compare with"
            msg = f"{asked}: make one with %memdiff --mark {names[0] if names else 'before'}"
            raise LookupError(msg)
        known = ", ".join(self._by_name)
        for name in names:
            if name not in self._by_name:
                marks = "mark is" if len(self._by_name) == 1 else "marks are"
                msg = f"there is no mark {name!r}; the {marks} {known}; to run it as code write %memdiff ({name})"
                raise LookupError(msg)
        if len(names) > 2:  # noqa: PLR2004
            msg = f"one mark is compared with now, or two with each other, not {len(names)}"
            raise LookupError(msg)
        return [self._by_name[name] for name in names or list(self._by_name)[-1:]]


def _start(stretch: Stretch | CudaStretch) -> None:
    """Begin the comparison.

    Raises:
        UsageError: if there is no card to compare.
    """
    __tracebackhide__ = True
    try:
        stretch.start("before")
    except LeaklabError as error:
        raise UsageError(str(error)) from None


def _is_statement(text: str) -> bool:
    """Return whether bare words are a statement of Python all the same: ``pass``, ``del x``, ``import json``."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return False
    return not all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Name) for node in body)


def _compare_files(files: list[str], around: NotebookContext) -> MemDiff | Any:
    """Compare saved moments, or memory snapshots of torch.

    Raises:
        UsageError: if they cannot be read, or are of different kinds.
    """
    __tracebackhide__ = True
    problem = ""
    try:
        if all(Path(file).suffix == _SNAPSHOT_SUFFIX for file in files):
            from leaklab.ask.heap_diff import compare_now, compare_past

            moments = [HeapSnapshot.load(file).record for file in files]
            if len(moments) == 1:
                return compare_now(moments[0], around.take("now"), around)
            if len(moments) == 2:  # noqa: PLR2004
                return compare_past(moments[0], moments[1], around)
            problem = f"two saved snapshots are compared, or one with now, not {len(moments)}"
        elif any(Path(file).suffix == _SNAPSHOT_SUFFIX for file in files):
            problem = "a saved heap snapshot (.npz) and a memory snapshot of torch (.pickle) cannot be compared"
        else:
            from leaklab.ask.cuda import compare_cuda_snapshots, find_snapshots

            return compare_cuda_snapshots(find_snapshots(files))
    except (LeaklabError, OSError, ValueError) as error:
        problem = str(error)
    raise UsageError(problem)


def _files_of(rest: str) -> list[str]:
    """Return the files that *rest* names; empty if it is no list of files. A file is known by its suffix.

    Patterns of saved moments are expanded; those of memory snapshots stay for their reader.
    """
    try:
        words = shlex.split(rest)
    except ValueError:  # the quotes of code
        return []
    if not words or not all(word.endswith(_SUFFIXES) for word in words):
        return []
    files: list[str] = []
    for word in words:
        expands = word.endswith(_SNAPSHOT_SUFFIX) and glob.has_magic(word)
        files += (sorted(glob.glob(word)) if expands else []) or [word]  # noqa: PTH207 - a pattern may be absolute
    return files
