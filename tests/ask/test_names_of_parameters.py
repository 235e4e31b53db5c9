"""Parameters, gradients and the state of optimizers have the names that people write, wherever they are asked for."""

from __future__ import annotations

import re

import pytest

import leaklab
from leaklab.heap.saved.arrays import SavedNodes
from leaklab.heap.saved.taking import take_heap

torch = pytest.importorskip("torch")
nn = torch.nn


class Network(nn.Module):
    """Every way in which a module has tensors."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU())
        self.blocks = nn.ModuleDict({"a": nn.Linear(64, 64), "b": nn.Linear(64, 64)})
        self.more = nn.ModuleList([nn.Linear(64, 64)])
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(64, 64))])
        self.register_buffer("table", torch.rand(64, 64))

    def forward(self, x):
        h = self.layers(self.embedding(x).mean(1))
        return self.more[0](self.blocks["b"](self.blocks["a"](h))) @ self.scales[0] @ self.table


class Trainer:
    """A model and its optimizers, a level below the variables."""

    def __init__(self):
        self.model = Network()
        self.adam = torch.optim.Adam(self.model.parameters())
        self.sgd = torch.optim.SGD(self.model.parameters(), momentum=0.9)
        self.losses = []


def trained():
    """Return a trainer after two steps."""
    trainer = Trainer()
    for _ in range(2):
        loss = trainer.model(torch.randint(0, 100, (8, 4))).square().mean()
        trainer.adam.zero_grad()
        loss.backward(retain_graph=True)
        trainer.adam.step()
        trainer.sgd.step()
        trainer.losses.append(loss)
    return trainer


def tensors_of(trainer):
    """Return what a network and its optimizers have, each under the way in which people write it."""
    named = {}
    for name, parameter in trainer.model.named_parameters():
        # an entry of a ModuleDict is found as its attribute as well: either is written
        code = re.sub(r"\.(\d+)", r"[\1]", f"trainer.model.{name}")
        named[code], named[f"{code}.grad"] = parameter, parameter.grad
        for optimizer in ("adam", "sgd"):
            state = getattr(trainer, optimizer).state[parameter]
            named |= {f"trainer.{optimizer}.state[{code}]['{key}']": value for key, value in state.items()}
    named["trainer.model.table"] = trainer.model.table
    named["trainer.model.layers[1].running_mean"] = trainer.model.layers[1].running_mean
    return named


def as_people_write(code):
    return re.sub(r"\.blocks\['(\w)'\]", r".blocks.\1", code)


@pytest.fixture(scope="module")
def trainer():
    return trained()


def test_find_names_all_of_them(trainer):
    wanted = {code for code, tensor in tensors_of(trainer).items() if tensor.nbytes > 8}
    found = leaklab.find("torch.*", "bytes > 8", limit=1_000, namespace={"trainer": trainer})
    written = {as_people_write(row.holder) for row in found.record.rows}
    assert wanted <= written


def test_a_saved_heap_names_all_of_them(trainer):
    wanted = {code: tensor for code, tensor in tensors_of(trainer).items() if tensor.nbytes > 8}
    heap = SavedNodes(take_heap("a moment", {"trainer": trainer}))
    for code, tensor in wanted.items():
        expression, _place = heap.name_of(heap.index.vertex_of(id(tensor)))
        assert as_people_write(expression) == code


@pytest.mark.parametrize("number", range(0, 80, 13))
def test_whyalive_begins_with_the_name_that_people_write(trainer, number):
    named = [(code, tensor) for code, tensor in tensors_of(trainer).items() if tensor.nbytes > 8]
    code, tensor = named[number % len(named)]
    report = leaklab.whyalive(tensor, namespace={"trainer": trainer})
    assert as_people_write(report.record.paths[0].expression) == code


def test_autograd_names_the_memory_of_parameters(trainer):
    report = str(leaklab.autograd(trainer.losses, name="trainer.losses", namespace={"trainer": trainer}))
    assert "trainer.model.more[0].weight" in report
