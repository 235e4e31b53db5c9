"""Objects and storages are known by the user's line that made them."""

from __future__ import annotations

import inspect
import sys
import types

import pytest
import torch

from leaklab.lines.allocation import Makers, StorageLines, line_that_made, python_traces


def whose(filename: str) -> bool:
    return filename == __file__


class Plain:
    """An instance with attributes: 3.11 keeps its memory's beginning elsewhere."""


class Slotted:
    __slots__ = ("value",)


MAKERS = {
    "set": lambda: {1},
    "instance": lambda: Plain(),  # noqa: PLW0108 - the line is what counts
    "slots": lambda: Slotted(),  # noqa: PLW0108
    "text": lambda: "a" * 5000,
    "module": lambda: torch.nn.Linear(2, 2),
    "parameter": lambda: torch.nn.Linear(2, 2).weight,
    "tensor": lambda: torch.zeros(3),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_users_line_that_made_a_python_object_is_known(name):
    with python_traces():
        thing = MAKERS[name]()
        line = line_that_made(thing, whose)
    assert line == (__file__, inspect.getsourcelines(MAKERS[name])[1], "")


def test_what_was_made_before_has_no_line():
    thing = Plain()
    with python_traces():
        assert line_that_made(thing, whose) is None


def make_and_view(storages: StorageLines):
    with storages.noted() as is_exact:
        made = torch.ones(4)
        view = made.view(2, 2)
        given = torch.tensor([1.0, 2.0])
        made.add_(1)
    return is_exact, made, view, given


def line_after(function, offset: int) -> int:
    return inspect.getsourcelines(function)[1] + offset


def test_a_storage_belongs_to_the_line_that_made_it_not_to_those_that_look_at_it_or_write_to_it():
    storages = StorageLines(whose)
    is_exact, made, view, given = make_and_view(storages)
    assert is_exact
    assert storages.line_of(made)[:2] == (__file__, line_after(make_and_view, 2))
    assert storages.line_of(view) == storages.line_of(made)
    assert storages.line_of(given)[:2] == (__file__, line_after(make_and_view, 4))


def test_tensors_saved_for_backward_without_a_python_object_are_known():
    storages = StorageLines(whose)
    weight = torch.ones(3, requires_grad=True)
    with storages.noted():
        loss = (weight.exp() * 2).sum()
    node = loss.grad_fn.next_functions[0][0].next_functions[0][0]
    assert storages.line_of(node._saved_result)[1] == line_after(
        test_tensors_saved_for_backward_without_a_python_object_are_known, 4
    )


def test_a_tensor_of_before_has_no_line():
    old = torch.ones(2)
    storages = StorageLines(whose)
    with storages.noted():
        old.mul(2)
    assert storages.line_of(old) is None


def test_where_torch_compile_was_used_no_mode_is_switched_on(monkeypatch):
    compiled = types.ModuleType("torch._dynamo.convert_frame")
    compiled.FRAME_COUNTER = 1
    monkeypatch.setitem(sys.modules, "torch._dynamo.convert_frame", compiled)
    storages = StorageLines(whose)
    with storages.noted() as is_exact:
        made = torch.ones(2)
    assert not is_exact
    assert storages.line_of(made) is None


def test_the_tensors_inside_a_new_entry_are_what_its_line_is_asked_of():
    storages = StorageLines(whose)
    with python_traces(), storages.noted():
        inner = torch.ones(2)
        entry = {"loss": [inner]}
        found = Makers(whose, storages).made_of([entry])
    assert [one.line[1] for one in found] == [
        line_after(test_the_tensors_inside_a_new_entry_are_what_its_line_is_asked_of, 3)
    ]
