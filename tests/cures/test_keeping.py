"""What a changed program takes out, drops or rebinds is there again after a trial."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import queue
import random
import sys
import threading
import types
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from half_built import EMPTY_PLACE, half_built

from leaklab.cure.behaviour import Behaviour, Learning, Observer, harm_of
from leaklab.cure.edits import NotTriedError
from leaklab.cure.keeping import KeptData
from leaklab.cure.live import MISSING, evaluate
from leaklab.explain.idioms.containers import gets_the_same


def no_heap() -> AbstractContextManager[list[object]]:
    return nullcontext([])


def kept(variables: dict[str, Any]) -> KeptData:
    return KeptData(variables, (), no_heap)


class Own(list[int]):
    pass


class Slotted:
    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items = [1, 2]


def with_default(items: list[int] = [1, 2]) -> list[int]:  # noqa: B006 - what is tested
    return items


@pytest.mark.parametrize(
    "container",
    [[1, 2], {1: "a", 2: "b"}, {1, 2}, collections.deque([1, 2], maxlen=3), collections.OrderedDict(a=1),
     collections.defaultdict(list, a=[1]), collections.Counter("ab"), Own([1, 2])],
    ids=lambda container: type(container).__name__,
)  # fmt: skip
def test_a_container_that_was_emptied_has_its_entries_again(container):
    before = container.copy() if not isinstance(container, Own) else Own(container)
    data = kept({"container": container})
    container.clear()
    data.put_back()
    assert container == before
    assert type(container) is type(before)


# A function leads to all variables of its file, and those of a test to all tests that pytest has collected.
@pytest.mark.untraced
@pytest.mark.parametrize(
    ("expression", "variables"),
    [("own.items", {"own": Slotted()}), ("f.__defaults__[0]", {"f": with_default}), ("d['a']", {"d": {"a": [1, 2]}})],
)
def test_what_an_expression_names_is_kept(expression, variables):
    data = kept(variables)
    data.keep_all([expression])
    items = eval(expression, variables)  # noqa: S307 - written above
    items.clear()
    data.put_back()
    assert items == [1, 2]


@pytest.mark.parametrize("expression", ["nothing", "own.none", "make()", "own."])
def test_what_cannot_be_found_cannot_be_put_back(expression):
    with pytest.raises(NotTriedError, match="could not restore"):
        kept({"own": Slotted()}).keep_all([expression])


def test_variables_come_back_and_new_ones_go():
    variables: dict[str, Any] = {"total": [1], "step": 1, "gone": "x"}
    data = kept(variables)
    variables.update(total=3.0, step=2, fresh=1)
    del variables["gone"]
    data.put_back()
    assert variables == {"total": [1], "step": 1, "gone": "x"}


def test_what_was_added_goes():
    numbers, table, names = [1, 2], collections.OrderedDict(a=1), {"x"}
    data = kept({"numbers": numbers, "table": table, "names": names})
    numbers.append(3)
    table["b"], table["a"] = 2, 5
    names.add("y")
    data.put_back()
    assert (numbers, table, names) == ([1, 2], {"a": 1}, {"x"})


class Registered:
    known: list[int] = [1]

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        raise ValueError


@pytest.mark.untraced
def test_everything_that_the_variables_lead_to_is_as_before():
    inner: dict[str, Any] = {"deep": [collections.deque([1])]}
    slotted, own, key = Slotted(), Own(), Registered()
    own.table = {key: [1]}  # type: ignore[attr-defined]
    total = [0]

    def step() -> None:
        nonlocal inner
        total.append(1)
        inner["deep"][0].append(2)
        inner = {}
        slotted.items = []
        own.table[Registered()] = [2]  # type: ignore[attr-defined]
        own.table[key].clear()  # type: ignore[attr-defined]
        own.fresh = 1  # type: ignore[attr-defined]
        Registered.known = []
        Registered.more = 1  # type: ignore[attr-defined]
        step.cache = {}  # type: ignore[attr-defined]

    before = inner
    data = kept({"step": functools.partial(step), "Registered": Registered})
    Registered.__eq__ = object.__eq__  # type: ignore[method-assign]
    step()
    data.put_back()
    assert inner is before
    assert (inner, total, slotted.items) == ({"deep": [collections.deque([1])]}, [0], [1, 2])
    assert [*own.table.values()] == [[1]]  # type: ignore[attr-defined]
    assert vars(own).keys() == {"table"}
    assert (Registered.known, vars(step)) == ([1], {})
    assert not hasattr(Registered, "more")


def test_what_others_wait_in_is_left_alone():
    tasks: queue.Queue[int] = queue.Queue()
    data = kept({"tasks": tasks})
    tasks.put(1)
    data.put_back()
    assert tasks.get_nowait() == 1


def test_tables_of_threads_and_child_processes_are_left_as_they_are():
    """They lie on the path of what leaks threads; who is in them then has come or gone by itself."""
    import multiprocessing.process

    tables = [threading._active, multiprocessing.process._children]
    on_path = {id(table) for table in tables}
    data = KeptData({}, on_path, lambda: nullcontext(list(tables)))
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    try:
        data.put_back()
        assert threading._active[thread.ident] is thread
    finally:
        waiting.set()
        thread.join()
    assert thread.ident not in threading._active


def test_random_numbers_and_gradients_are_as_before():
    weight = torch.ones(2, requires_grad=True)
    data = kept({"weight": weight})
    drawn = random.random(), torch.rand(1).item()
    weight.sum().backward()
    data.put_back()
    assert weight.grad is None
    assert (random.random(), torch.rand(1).item()) == drawn


def test_where_too_much_can_be_reached_nothing_is_tried(monkeypatch):
    monkeypatch.setattr("leaklab.cure.keeping._MOST_ENTRIES", 10)
    with pytest.raises(NotTriedError, match="more data than a trial"):
        kept({"numbers": list(range(11))})


@pytest.mark.parametrize("less", [[], "end"], ids=["a list made anew", "the end of a text"])
def test_a_variable_and_an_attribute_that_a_change_binds_to_less_have_their_object_again(less):
    whole = [1, 2, 3] if less == [] else "the beginning and the end"
    own = Own()
    own.items = whole  # type: ignore[attr-defined]
    variables = {"items": whole, "own": own}
    data = kept(variables)
    data.keep_all(["items", "own.items"])
    variables["items"] = less
    own.items = less  # type: ignore[attr-defined]
    data.put_back()
    assert variables["items"] is whole
    assert own.items is whole  # type: ignore[attr-defined]


def test_what_is_emptied_in_place_and_cannot_be_filled_again_is_not_tried():
    data = kept({"buffer": bytearray(b"logged")})
    with pytest.raises(NotTriedError):
        data.keep_all(["buffer"])


@pytest.mark.parametrize("stream", [io.StringIO("logged"), io.BytesIO(b"logged")], ids=["text", "bytes"])
def test_a_stream_in_memory_has_its_text_and_its_place_again(stream):
    whole, place = stream.getvalue(), stream.seek(3)
    data = kept({"buffer": stream})
    data.keep_all(["buffer"])
    stream.seek(0)
    stream.truncate()
    data.put_back()
    assert (stream.getvalue(), stream.tell()) == (whole, place)


def test_a_list_in_a_dict_with_a_default_has_its_entries_again():
    variables = {"stats": collections.defaultdict(list, act=[1, 2])}
    data = kept(variables)
    data.keep_all(["stats['act']"])
    variables["stats"]["act"].clear()
    data.put_back()
    assert variables["stats"]["act"] == [1, 2]
    with pytest.raises(NotTriedError):
        data.keep_all(["stats['missing']"])
    assert "missing" not in variables["stats"]


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
