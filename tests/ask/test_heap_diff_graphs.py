"""What %%memdiff says near autograd graphs: nodes are not counted, holders end where a graph begins."""

from __future__ import annotations

import pytest
import torch

from leaklab.ask.heap_diff import Stretch
from leaklab.measure.heap_snapshot import notebook_context


class Search:
    def __init__(self):
        self.recent = []


@pytest.fixture(scope="module")
def step():
    """The first difference beside graphs that nobody has looked at: a forward pass, backward, one step of Adam."""
    search, model = Search(), torch.nn.Linear(30, 30)
    optimizer = torch.optim.Adam(model.parameters())
    search.recent += [model(torch.randn(4, 30)).relu().pow(2).sum() for _ in range(3)]
    variables = {"optimizer": optimizer, "search": search, "model": model}
    stretch = Stretch(notebook_context(variables))
    stretch.start("before")
    try:
        search.recent.append(model(torch.randn(4, 30)).relu().mv(torch.randn(30)).pow(2).sum())
        search.recent[-1].backward(retain_graph=True)
        optimizer.step()
        return stretch.finish("after").record
    finally:
        stretch.abandon()


def holders_of(step):
    return {holder for row in step.tensors for holder in row.holders}


def test_nodes_that_were_only_looked_at_are_not_new(step):
    assert not [row.kind for row in step.objects if row.kind.endswith(("Backward0", "AccumulateGrad"))]


def test_below_the_first_step_of_autograd_the_graph_is_the_holder(step):
    assert "the graph of search.recent[3]" in holders_of(step)
    assert not [holder for holder in holders_of(step) if "next_functions" in holder or "_saved" in holder]


def test_a_gradient_is_named_by_the_parameter_of_its_module(step):
    assert {"model.weight.grad", "model.bias.grad"} <= holders_of(step)
    assert not [holder for holder in holders_of(step) if "key <" in holder]
