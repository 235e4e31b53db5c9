"""Thinking of a change looks at what is there without trusting it: half-built lists, modules that are none."""

from __future__ import annotations

import contextlib
import functools
import sys
import types

import pytest
from half_built import EMPTY_PLACE, half_built

from leaklab.cure.behaviour import Observer
from leaklab.cure.live import MISSING, evaluate
from leaklab.explain.idioms.containers import gets_the_same


@pytest.mark.parametrize(
    ("held", "gets"),
    [
        (["/a/folder", "/a/folder", "/usr"], True),
        (["/usr", 7, 7], True),
        (["/usr", "/lib", "/a"], False),
        (["/usr"], False),
        ([], False),
        (("/usr", "/usr"), False),
        (half_built(list, ["/usr", EMPTY_PLACE, EMPTY_PLACE]), False),
        (half_built(list, [EMPTY_PLACE, EMPTY_PLACE]), False),
    ],
)
def test_a_list_gets_the_same_again(held: object, gets: bool) -> None:
    assert gets_the_same(held) is gets


def test_what_is_no_plain_text_is_not_compared() -> None:
    class Text(str):
        __slots__ = ()

        def __eq__(self, _other: object) -> bool:
            raise AssertionError

        __hash__ = str.__hash__

    assert not gets_the_same(["/usr", Text("/usr")])


def test_what_stands_among_the_modules_may_be_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """``sys.modules[name] = None`` forbids an import; a local variable may have the same name."""
    for module in (None, 7, object(), types.SimpleNamespace(items=[1])):
        monkeypatch.setitem(sys.modules, "forbidden_module", module)
        assert evaluate("forbidden_module.items", {}) is MISSING
    module = types.ModuleType("forbidden_module")
    module.items = items = []
    monkeypatch.setitem(sys.modules, "forbidden_module", module)
    assert evaluate("forbidden_module.items", {}) is items


def test_a_cache_is_asked_for_its_counts_as_its_type_does() -> None:
    @functools.lru_cache
    def square(number: int) -> int:
        return number * number

    square.cache_info = None  # type: ignore[method-assign]
    observer = Observer(lambda: contextlib.nullcontext([square]), {})
    observer.begin()
    square(2)
    square(2)
    assert observer.end().computed == {id(square): 1}
