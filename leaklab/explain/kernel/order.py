"""Which cells grow, and which of all suspects is the likeliest mistake: decided by numbers alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from leaklab.decide.growth import HABIT_FLOOR_BYTES, MIN_RUNS, steady_rate
from leaklab.explain.kernel.claims import MANY, SMALL_BYTES
from leaklab.measure.cell_levels import CellRuns
from leaklab.model.kernel import CellGrowth, Suspect, Suspicion
from leaklab.text import shorten

_BLOCKS_FLOOR = 2000.0
"""What a notebook keeps of each cell, its text and its code, stays below."""
_LEAST_SHARE = 0.01  # of all tensors: what is less is no reason to be listed first
_LEAST_OF_GROWTH = 0.1  # of what cells have added
_WASTE = (Suspicion.OUTPUTS, Suspicion.EXCEPTION, Suspicion.FIGURES, Suspicion.HOOKS, Suspicion.GRAPHS)
_COUNTED = (Suspicion.HOOKS, Suspicion.FIGURES, Suspicion.CALLBACKS)
_EXPLAINS = 0.5  # of what a cell adds
_FEW_FIGURES = 4  # most of their memory is C++'s, and not known
_N_CELLS = 10
_LINE_LIMIT = 60


def cell_growths(runs: Iterable[CellRuns], lines: Mapping[int, str]) -> tuple[CellGrowth, ...]:
    """Return what cells have added, the most first.

    Args:
        runs: What memory did over each execution.
        lines: The first line of the texts, by the numbers that the notebook gave them.
    """
    found = [
        CellGrowth(
            number=one.number,
            line=shorten(lines.get(one.number, ""), _LINE_LIMIT),
            n_runs=len(one.n_bytes),
            n_bytes=sum(one.n_bytes),
            n_blocks=sum(one.n_blocks),
            bytes_per_run=_pace(one.n_bytes, HABIT_FLOOR_BYTES),
            blocks_per_run=_pace(one.n_blocks, _BLOCKS_FLOOR),
        )
        for one in runs
    ]
    grown = [one for one in found if one.n_bytes >= SMALL_BYTES or one.blocks_per_run]
    return tuple(sorted(grown, key=lambda one: (-one.n_bytes, -one.n_blocks))[:_N_CELLS])


def _pace(amounts: Sequence[int], floor: float) -> float:
    """Return what each execution but the first adds; the first fills caches."""
    return steady_rate(amounts[1:], floor) if len(amounts) >= MIN_RUNS else 0.0


def cell_suspects(cells: Iterable[CellGrowth]) -> Iterator[Suspect]:
    """Yield the cells that add memory whenever they are executed."""
    for cell in cells:
        if cell.bytes_per_run or cell.blocks_per_run:
            later = cell.n_runs - 1
            yield Suspect(
                Suspicion.CELL,
                f"In[{cell.number}]",
                round(cell.bytes_per_run * later),
                later,
                cell.bytes_per_run or cell.blocks_per_run,
                what=cell.line,
                command=f"%leaks In[{cell.number}]",
            )


def ranked(suspects: Iterable[Suspect], tensor_bytes: int) -> tuple[Suspect, ...]:
    """Return *suspects*, the likeliest mistake first.

    What is kept for nothing comes first, the most bytes first, where that is more than a hundredth of all tensors and a
    tenth of what any cell adds, or several figures; then cells that grow; then what piled up and is small; then the
    largest holders.
    """
    every = list(suspects)
    growing = max((one.n_bytes for one in every if one.kind is Suspicion.CELL), default=0)
    least = max(_LEAST_SHARE * tensor_bytes, _LEAST_OF_GROWTH * growing)

    def place(suspect: Suspect) -> tuple[int, int]:
        # One graph is that of the last step, most often; of a loss that is carried on it is what grows.
        is_one = suspect.kind is Suspicion.GRAPHS and suspect.count == 1
        is_one = is_one and not 0 < _EXPLAINS * growing < suspect.n_bytes
        if suspect.kind is Suspicion.FIGURES and suspect.count >= _FEW_FIGURES:
            return 0, -suspect.n_bytes
        if suspect.kind in _WASTE and suspect.n_bytes >= max(least, SMALL_BYTES) and not is_one:
            return 0, -suspect.n_bytes
        if suspect.kind is Suspicion.CELL:
            return 1, -suspect.n_bytes
        if (suspect.kind in _COUNTED and suspect.count >= MANY) or suspect.kind is Suspicion.DEVICE:
            return 2, -suspect.n_bytes
        return 3, -suspect.n_bytes

    return tuple(sorted(every, key=place))
