"""The line that asked for a copy is found outside of what the copying called back."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch

from leaklab.lines.allocation import Makers, StorageLines, innermost_and_asking, line_that_made, python_traces

COPY = copy.__file__
OWN = "own.py"


def whose(filename: str) -> bool | None:
    return None if filename == OWN else filename in ("user.py", __file__)


def stack(text: str) -> list[tuple[str, int]]:
    """Make a stack of ``user.py:3 lib.py:5 copy:7``, innermost first."""
    files = ((place.partition(":")[0], int(place.partition(":")[2])) for place in text.split())
    return [(COPY if file == "copy" else file, number) for file, number in files]


STACKS = {
    "nothing copied": ("lib.py:1 user.py:2 lib.py:3 user.py:4", (2, None)),
    "made by the copying itself": ("copy:1 copy:2 user.py:3 user.py:4", (3, 3)),
    "made by a method that the copying called": ("user.py:1 user.py:2 copy:3 copy:4 user.py:5", (1, 5)),
    "a copy that asks for copies of its parts": ("copy:1 user.py:2 copy:3 user.py:4 user.py:5", (2, 4)),
    "a library that has something copied for the user": ("user.py:1 copy:2 lib.py:3 lib.py:4 user.py:5", (1, 5)),
    "a copy that nobody of the user's asked for": ("user.py:1 copy:2 lib.py:3", (1, None)),
    "what runs the user's code has something copied": ("user.py:1 own.py:2 copy:3 user.py:4", (1, None)),
    "only libraries": ("lib.py:1 copy:2 lib.py:3", (None, None)),
}


@pytest.mark.parametrize("name", STACKS)
def test_the_innermost_line_and_the_one_that_asks(name):
    text, expected = STACKS[name]
    assert innermost_and_asking(stack(text), whose) == expected


class Metric:
    """Makes its own copies."""

    def __init__(self):
        self.table = torch.zeros(3)

    def __deepcopy__(self, memo):
        return Metric()


def copies():
    original = Metric()
    return original, copy.deepcopy(original)


def test_a_copys_objects_and_storages_belong_to_the_line_that_asked_for_it_the_originals_to_its_own():
    storages = StorageLines(whose)
    with python_traces(), storages.noted():
        original, copied = copies()
        first = inspect.getsourcelines(copies)[1]
        made = inspect.getsourcelines(Metric)[1] + 4
        assert line_that_made(copied, whose) == (__file__, first + 2, "")
        assert line_that_made(original, whose) == (__file__, first + 1, "")
        found = Makers(whose, storages).made_of([copied.table, original.table])
    assert [one.line[1] for one in found] == [first + 2, made]


def copy_at_the_address_of_another(original):
    """Return a copy whose storage has the address of one that is gone, and the line that made that."""
    made_here, kept = set(), []
    for _ in range(1000):
        gone = torch.ones(3).mean()
        made_here.add(torch._C._storage_id(gone))
        del gone
        kept.append(copy.deepcopy(original))
        if torch._C._storage_id(kept[-1]) in made_here:
            return kept[-1]
    pytest.fail("no address was used again")


def test_the_copy_of_a_tensor_belongs_to_its_line_not_to_one_whose_storage_was_at_its_address():
    storages, original = StorageLines(whose), torch.zeros(())
    with storages.noted():
        copied = copy_at_the_address_of_another(original)
    first = inspect.getsourcelines(copy_at_the_address_of_another)[1]
    assert storages.line_of(copied)[:2] == (__file__, first + 7)
