"""What a changed program takes out, drops or rebinds is there again after a trial."""

from __future__ import annotations

import collections
import io
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from leaklab.cure import KeptData, NotTriedError


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
    with pytest.raises(NotTriedError, match="could not put back"):
        kept({"own": Slotted()}).keep_all([expression])


def test_variables_come_back_and_new_ones_go():
    variables: dict[str, Any] = {"total": [1], "step": 1, "gone": "x"}
    data = kept(variables)
    variables.update(total=3.0, step=2, fresh=1)
    del variables["gone"]
    data.put_back()
    assert variables == {"total": [1], "step": 2, "gone": "x"}


def test_entries_of_a_kind_that_was_not_there_go_and_others_stay():
    numbers, words = [1, 2], ["a"]
    data = kept({"numbers": numbers, "words": words})
    numbers.append(3)
    words.append(4)  # type: ignore[arg-type]  # the wrong kind
    data.put_back()
    assert (numbers, words) == ([1, 2, 3], ["a"])


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


def test_what_was_written_behind_the_end_of_a_stream_stays_there():
    stream = io.StringIO("logged")
    data = kept({"buffer": stream})
    data.keep_all(["buffer"])
    stream.seek(0, io.SEEK_END)
    stream.write(", and more")
    data.put_back()
    assert stream.getvalue() == "logged, and more"


def test_a_variable_that_a_trial_binds_to_a_shorter_chain_leads_to_all_of_it_again():
    whole = Slotted()
    holder = Own()
    holder.best = whole  # type: ignore[attr-defined]
    variables: dict[str, Any] = {"root": whole, "holder": holder}
    data = kept(variables)
    data.keep_places(["root", "holder.best", "nowhere.root"])
    variables["root"] = Slotted()
    holder.best = Slotted()  # type: ignore[attr-defined]
    data.put_back()
    assert variables["root"] is whole
    assert holder.best is whole  # type: ignore[attr-defined]


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
