"""Whether a changed program still learns what it learned."""

from __future__ import annotations

import pytest

from leaklab.cure.behaviour import Behaviour, Learning, harm_of

IDLE, LEARNING = Learning(True, False, False), Learning(True, True, True)


def behaviour(**parameters: Learning) -> Behaviour:
    named = {name.replace("_", " ") if name.startswith("parameter") else name: one for name, one in parameters.items()}
    return Behaviour(named, {}, {}, frozenset())


@pytest.mark.parametrize(
    ("was", "words"),
    [
        (behaviour(parameter_3=LEARNING), "a parameter is gone"),
        (behaviour(parameter_3=IDLE), ""),  # of a model that an earlier run left, as the leak that is to be cured
        (behaviour(net=IDLE), "net is gone"),
    ],
)
def test_a_parameter_that_is_gone(was: Behaviour, words: str) -> None:
    assert harm_of(was, behaviour(), []) == words
