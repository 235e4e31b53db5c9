"""Try a change that somebody has written: the trials are those of the changes that leaklab thinks of."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, MethodType
from typing import Any

from leaklab.check.cures import program_of
from leaklab.check.session import Steps, one_at_a_time
from leaklab.cure.applying import ReplaceableCell, ran_once
from leaklab.cure.case import Case, files_of
from leaklab.cure.edits import with_changed_cells
from leaklab.cure.live import MISSING, evaluate
from leaklab.cure.new_kernel import cells_that_bind
from leaklab.cure.source import Program, Proposal
from leaklab.cure.trial import try_cures
from leaklab.cure.trial_runs import Means
from leaklab.cure.written import WrittenProgram, idle_function, written_changes
from leaklab.errors import ChangeError
from leaklab.explain.idioms.in_use import dropped, emptied_by
from leaklab.heap.source_lines import THIS_CELL, CellNames, sources_with
from leaklab.measure.checkpoint import whole_heap
from leaklab.model import Check, Leak
from leaklab.model.cure import Change, CureOutcome
from leaklab.runtime.gc_control import GcState, user_lets_collect
from leaklab.runtime.ours import Origin, origin_of
from leaklab.text import unit_words

_VARIABLE = re.compile(r"[^\W\d]\w*")


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check ran, ready to be run again.

    Attributes:
        run: Runs it once; is given the number of the run.
        code: The cell, or the function of Python's; None where that is none.
        namespace: Its global variables.
        cell_name: What the notebook calls its cells.
        written: The cell as it was typed, below the lines that stand for the magic; empty for a function.
        as_run: Returns for the text of a cell what runs of it.
        close: Called when all runs have been made.
    """

    run: Callable[[int], object]
    code: ReplaceableCell | FunctionType | None
    namespace: dict[str, Any] | None
    cell_name: CellNames
    written: str = ""
    as_run: Callable[[str], str] = str
    close: Callable[[], None] = _nothing

    @property
    def program(self) -> Program:
        """The program as changes to it are thought out."""
        return program_of(self.namespace, self.code, self.cell_name)


class Rerun:
    """How a check's code is run again, kept with its report; a copy and a pickle of it are None.

    Args:
        find: Returns what was checked, ready to be run; None where it is gone. It keeps nothing of the user's alive.
    """

    def __init__(self, find: Callable[[], Checked | None]) -> None:
        self.find = find

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    def texts(self) -> tuple[tuple[str, str], ...]:
        """Return the names that readers know, and the sources as typed, of all that can be changed; none if gone."""
        checked = self.find()
        if checked is None:
            return ()
        try:
            program = checked.program
            texts = WrittenProgram(program, tuple(_files(checked.namespace)), checked.written).texts()
            own = () if program.function else ((THIS_CELL, texts.get(program.checked, "")),)
            return (*own, *((program.named(name), text) for name, text in texts.items()))
        finally:
            checked.close()


class FunctionReference:
    """A function that was checked, as long as somebody else keeps it; one without a state of its own is made anew.

    Args:
        function: What was called.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._reference: Callable[[], Any] = _gone
        self._code: CodeType | None = None
        if type(function) is MethodType:
            self._reference = weakref.WeakMethod(function)
        else:
            try:
                self._reference = weakref.ref(function)
            except TypeError:  # of C, or with slots
                return
        if type(function) is FunctionType and not (function.__closure__ or function.__defaults__):
            self._code, self._module = function.__code__, function.__module__

    def __call__(self) -> Callable[[], object] | None:
        """Return the function; None if it is gone."""
        function: Callable[[], object] | None = self._reference()
        if function is None and self._code is not None:
            # A lambda that was handed over is gone with the call. Its code is no object of the user's.
            home = sys.modules.get(self._module)
            function = None if home is None else FunctionType(self._code, vars(home))
        return function


def _gone() -> None:
    pass


def written_proposal(change: object, checked: Checked) -> Proposal:
    """Return *change*, a unified diff or new source, as what can be tried on *checked*.

    Raises:
        ChangeError: one sentence, if it cannot be tried.
    """
    if not isinstance(change, str):
        msg = f"a change must be a str, a unified diff or new source, not {type(change).__name__}"
        raise ChangeError(msg)
    files = tuple(_files(checked.namespace))
    changes = written_changes(change, WrittenProgram(checked.program, files, checked.written, checked.as_run))
    cell = None if isinstance(checked.code, FunctionType) else checked.code
    once, proposal = ran_once(changes, checked.program, cell), Proposal(_words(changes), changes)
    return replace(proposal, again=tuple(name for name in _cells_before(proposal, checked) if name in once))


def _cells_before(proposal: Proposal, checked: Checked) -> tuple[str, ...]:
    """Return the cells that *proposal* changes and that ran before the check: they can be run again."""
    names = dict.fromkeys(change.filename for change in proposal.changes)
    return tuple(name for name in names if checked.cell_name(name) and name != checked.program.checked)


def _cells_of_holders(record: Check, checked: Checked) -> tuple[str, ...]:
    """Return the cells that made the variables in which the leaks are."""
    found = (_VARIABLE.match(leak.holder) for leak in record.leaks)
    return cells_that_bind(dict.fromkeys(one[0] for one in found if one), checked.program, checked.cell_name)


def _proposed(record: Check, proposal: Proposal) -> list[tuple[Leak, list[Proposal]]]:
    return [(leak, [] if number else [proposal]) for number, leak in enumerate(record.leaks)]


def _words(changes: tuple[Change, ...]) -> str:
    others = f", and {unit_words(len(changes) - 1, 'other places')}" if len(changes) > 1 else ""
    return f"Apply your change to {changes[0].where}{others}."


def _files(namespace: dict[str, Any] | None) -> Iterator[str]:
    """Yield the file names of the user's code: that of the variables first, cells that left no function last."""
    for value in list((namespace or {}).values()):
        yield from (name for name in files_of(value) if origin_of(name) is Origin.USER)
    with whole_heap() as objects:
        living = {thing.__code__.co_filename for thing in objects if type(thing) is FunctionType}
    yield from sorted(name for name in living if origin_of(name) is Origin.USER)
    yield from (name for name, _text in sources_with(""))


@one_at_a_time
def change_steps(record: Check, proposal: Proposal, checked: Checked, seconds: float) -> Steps:
    """Run the program as it is and with the change, and compare.

    Args:
        record: Of the check that found the leaks.
        proposal: The change.
        checked: What is run whenever this yields.
        seconds: What all trials together may take.

    Returns:
        *record* with what came of it: the first cure of the first leak is that of the change.

    Raises:
        CheckRunningError: before the first run, if a check is under way in this process.
    """
    state, program = GcState.now(), checked.program
    emptied = emptied_by(proposal.changes)
    dropping = (dropped(Case(leak, program), emptied) for leak in record.leaks)
    drops = next(filter(None, (idle_function(proposal.changes, program), *dropping)), "")
    proposal = replace(proposal, drops=drops)
    held = (evaluate(leak.holder, program.namespace) for leak in record.leaks)
    seen = [run.seconds for run in record.runs]
    means = Means(
        program=program,
        cell=checked.code if not isinstance(checked.code, FunctionType) else None,
        heap=whole_heap,
        collects=user_lets_collect(),
        addresses=frozenset(id(one) for one in held if one is not MISSING),
        next_run=len(record.runs) + 1,
        seconds=seconds,
        run_seconds=sum(seen) / len(seen) if seen else 0.0,
        reported_bytes=sum(leak.bytes_per_run for leak in record.leaks),
        is_written=True,
    )
    try:
        found = yield from try_cures(_proposed(record, proposal), means)
        first = found[record.leaks[0].fingerprint][0]
        cells = _cells_before(proposal, checked) or _cells_of_holders(record, checked)
        if first.outcome not in (CureOutcome.CURED, CureOutcome.NOT_TRIED) and cells and not proposal.again:
            # What earlier runs left, a hook or a graph, may go on growing, or stop gradients: a new kernel has it not.
            anew = replace(proposal, again=cells)
            again = yield from try_cures(_proposed(record, anew), means)
            is_cured = again[record.leaks[0].fingerprint][0].outcome is CureOutcome.CURED
            found = again if is_cured else found
    finally:
        state.restore()
    cures = {name: with_changed_cells(tried, checked.cell_name, program.source) for name, tried in found.items()}
    return replace(record, leaks=tuple(replace(leak, cures=cures.get(leak.fingerprint, ())) for leak in record.leaks))


def then_tried(
    steps: Steps, proposal: Proposal, checked: Checked, seconds: float, on_begin: Callable[[], object]
) -> Steps:
    """Go through *steps*, a check, and then try a change on the leaks that it has found; *on_begin* is called first."""
    check = yield from steps
    if check.failure or not check.leaks:
        return check
    on_begin()
    return (yield from change_steps(check, proposal, checked, seconds))
