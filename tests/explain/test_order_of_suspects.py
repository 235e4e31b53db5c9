"""The likeliest mistake comes first: what is kept for nothing, then what grows, then the rest."""

from __future__ import annotations

import pytest

from leaklab.explain.kernel.order import cell_growths, cell_suspects, ranked
from leaklab.measure.cell_levels import CellRuns
from leaklab.model.kernel import Suspect, Suspicion

MIB = 1 << 20


def suspect(kind: Suspicion, n_mib: float, count: int = 5) -> Suspect:
    return Suspect(kind, kind.value, round(n_mib * MIB), count)


CELL = suspect(Suspicion.CELL, 100)
MODEL = suspect(Suspicion.HOLDER, 2000)
ORDERS = {
    "waste before a model": ([MODEL, suspect(Suspicion.OUTPUTS, 50)], "outputs holder"),
    "waste before a cell that it explains": ([CELL, suspect(Suspicion.GRAPHS, 90)], "graphs cell"),
    "a cell before waste that is a trifle to it": ([suspect(Suspicion.OUTPUTS, 5), CELL, MODEL], "cell holder outputs"),
    "the graph of one loss after a cell": ([suspect(Suspicion.GRAPHS, 20, 1), CELL], "cell graphs"),
    "the graph that one loss carries on before it": ([CELL, suspect(Suspicion.GRAPHS, 110, 1)], "graphs cell"),
    "figures, whose size is not known, before a cell": ([CELL, suspect(Suspicion.FIGURES, 3)], "figures cell"),
    "many hooks without a byte before a model": ([MODEL, suspect(Suspicion.HOOKS, 0, 30)], "hooks holder"),
    "the larger of two": ([suspect(Suspicion.EXCEPTION, 70), suspect(Suspicion.OUTPUTS, 80)], "outputs exception"),
}


@pytest.mark.parametrize(("suspects", "order"), ORDERS.values(), ids=ORDERS.keys())
def test_order(suspects, order):
    assert " ".join(one.kind.value for one in ranked(suspects, tensor_bytes=0)) == order


def growth(*n_mib: float, n_blocks: int = 0) -> CellRuns:
    return CellRuns(7, tuple(round(one * MIB) for one in n_mib), (n_blocks,) * len(n_mib))


def test_cell_is_suspect_if_each_execution_but_the_first_adds_as_much():
    cells = cell_growths([growth(500, 10, 10, 10, 10)], {7: "train()"})
    (one,) = cell_suspects(cells)
    assert (one.where, one.what, one.n_bytes, one.count, one.each) == ("In[7]", "train()", 40 * MIB, 4, 10 * MIB)
    assert one.command == "%leaks In[7]"


@pytest.mark.parametrize(
    "runs", [growth(500), growth(500, 10, 10), growth(500, 10, -10, 10, 10), growth(9, 0, 0, 0, 0)]
)
def test_cell_that_was_executed_a_few_times_or_gives_back_is_none(runs):
    assert list(cell_suspects(cell_growths([runs], {}))) == []


def test_small_objects_count_where_their_bytes_are_not_known():
    (one,) = cell_suspects(cell_growths([growth(0, 0, 0, 0, 0, n_blocks=20_000)], {}))
    assert (one.n_bytes, one.each) == (0, 20_000)
