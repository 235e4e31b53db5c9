"""Look for the cures of the leaks that a check has found: think of changes, and run the code with them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from types import FunctionType
from typing import Any

from leaklab.check.findings import Explained, FoundLines
from leaklab.check.session import Ran, RunRequest
from leaklab.cure.applying import ReplaceableCell
from leaklab.cure.case import Case
from leaklab.cure.edits import with_changed_cells
from leaklab.cure.source import Program, Proposal
from leaklab.cure.trial import joined, may_be_tried, try_cures
from leaklab.cure.trial_runs import Means
from leaklab.explain.idioms import proposals_for
from leaklab.heap.source_lines import CellNames, current_lines, short_path
from leaklab.measure.measurement import Measurement
from leaklab.model import Leak
from leaklab.model.cure import Cure

_FEWEST_JOINED, _MOST_JOINED = 2, 2
_MOST_LEAKS = 5
"""Of more leaks than these the small ones get their advice only."""


def find_cures(
    measurement: Measurement,
    explained: Explained,
    lines: Sequence[FoundLines],
    namespace: dict[str, Any] | None,
    checked: ReplaceableCell | FunctionType | None,
    *,
    cell_name: CellNames,
    seconds: float,
    obstacle: str,
    run_seconds: float,
) -> Generator[int | RunRequest, Ran, dict[str, tuple[Cure, ...]]]:
    """Run the code again with the changes that would cure its leaks.

    Args:
        measurement: The one that found the leaks; no phase is open.
        explained: The leaks, with their places.
        lines: What the traced runs told of them.
        namespace: The user's variables.
        checked: The cell or the function that is checked; None where that is none of Python's.
        cell_name: What the notebook calls its cells.
        seconds: What all trials together may take.
        obstacle: Why nothing is to be tried, one clause; empty if trials are wanted.
        run_seconds: What a run took so far.

    Returns:
        For the fingerprint of a leak its cures, best first.
    """
    program = program_of(namespace, checked, cell_name)
    proposed = []
    for leak in explained.leaks[:_MOST_LEAKS]:
        keeping = tuple(place for found in lines for place in found.keeping.get(leak.fingerprint, ()))
        making = tuple(place for found in lines for place in found.making.get(leak.fingerprint, ()))
        case = Case(leak, program, keeping, making)
        alone = proposals_for(case)
        # The best one first, by itself: where a single call lets everything go, nothing else need be written.
        proposed.append((leak, (*alone[:1], *_for_all_holders(case, alone), *alone[1:])))
    means = Means(
        program=program,
        cell=checked if not isinstance(checked, FunctionType) else None,
        heap=measurement.heap,
        collects=measurement.collects,
        addresses=frozenset(one for address in explained.addresses for one in address.chain),
        next_run=measurement.n_runs + 1,
        seconds=seconds,
        obstacle=obstacle,
        run_seconds=run_seconds,
        reported_bytes=sum(leak.bytes_per_run for leak in explained.leaks),
    )
    cures = yield from try_cures(proposed, means)
    return {name: with_changed_cells(tried, cell_name, program.source) for name, tried in cures.items()}


def _for_all_holders(case: Case, of_first: Sequence[Proposal]) -> Iterator[Proposal]:
    """Yield changes for all that keep what leaks, made together: one for a single holder leaves it to the others.

    Args:
        case: The leak.
        of_first: What is proposed for its first holder.
    """
    leak = case.leak
    others = (Case(replace(leak, holder=one, holders=()), case.program, (), case.making) for one in leak.holders[1:])
    rows = [[one for one in found if may_be_tried(one)] for found in (of_first, *map(proposals_for, others))]
    if len(rows) < _FEWEST_JOINED:
        return
    for proposals in islice(zip(*rows, strict=False), _MOST_JOINED):
        together: Proposal | None = proposals[0]
        for one in proposals[1:]:
            together = None if together is None else joined(together, one)
        if together is not None:
            yield together


def program_of(
    namespace: dict[str, Any] | None, checked: ReplaceableCell | FunctionType | None, cell_name: CellNames
) -> Program:
    """Return what is checked as a program that can be changed."""

    def source(filename: str) -> str | None:
        return "".join(current_lines(filename)) or None

    def place(filename: str, number: int) -> str:
        cell = cell_name(filename)
        return f"{cell}, line {number}" if cell else f"{short_path(filename)}:{number}"

    filename = function = ""
    if isinstance(checked, FunctionType):
        filename, function = checked.__code__.co_filename, checked.__name__
    elif checked is not None:
        filename = checked.filename
    return Program({} if namespace is None else namespace, source, place, filename, function)


def with_cures(leaks: tuple[Leak, ...], cures: dict[str, tuple[Cure, ...]]) -> tuple[Leak, ...]:
    """Return *leaks* with the cures that were found for them."""
    return tuple(replace(leak, cures=cures.get(leak.fingerprint, ())) for leak in leaks)
