"""A change is in force inside the block only, in every function that shares the code, and gone on every exit."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from leaklab.cure.applying import applied
from leaklab.cure.edits import NotTriedError, edited, merged
from leaklab.cure.keeping import to_the_end
from leaklab.cure.source import Program
from leaklab.model.cure import Change

SOURCE = """\
import functools

LIMIT = 3


def plain():
    return "old"


class Base:
    def name(self):
        return "base"


class Thing(Base):
    def method(self):
        return "old"

    @staticmethod
    def static():
        return "old"

    @property
    def value(self):
        return "old"

    def with_super(self):
        return super().name() and "old"


def outer(k):
    def inner():
        return k and "old"

    return inner


closure = outer(1)


def generator():
    yield 1
    yield "old"


async def coroutine():
    return "old"


@functools.lru_cache(maxsize=None)
def cached():
    return "old"


twin = type(plain)(plain.__code__, {})
"""
EVERY_KIND: dict[str, tuple[str, Callable[[Any], object]]] = {
    "function": ("plain", lambda m: m.plain()),
    "twin": ("plain", lambda m: m.twin()),
    "method": ("method", lambda m: m.Thing().method()),
    "staticmethod": ("static", lambda m: m.Thing.static()),
    "property": ("value", lambda m: m.Thing().value),
    "with super": ("with_super", lambda m: m.Thing().with_super()),
    "closure": ("inner", lambda m: m.closure()),
    "generator": ("generator", lambda m: list(m.generator())[1]),
    "coroutine": ("coroutine", lambda m: asyncio.run(m.coroutine())),
}


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "changed_module.py"
    path.write_text(SOURCE, "utf-8")
    spec = importlib.util.spec_from_file_location("changed_module", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["changed_module"] = loaded
    spec.loader.exec_module(loaded)
    yield loaded
    del sys.modules["changed_module"]


def program() -> Program:
    return Program({}, lambda name: "".join(linecache.getlines(name)) or None, lambda name, line: f"file:{line}", "")


def change_in(module: ModuleType, function: str, before: str = '"old"', after: str = '"new"') -> Change:
    lines = SOURCE.splitlines()
    start = next(number for number, line in enumerate(lines) if f"def {function}(" in line)
    number = next(number for number in range(start, len(lines)) if before in lines[number])
    return Change("", lines[number], lines[number].replace(before, after), str(module.__file__), number + 1)


def codes(module: ModuleType) -> dict[str, object]:
    """The code object of every function of *module*, by where it is."""
    found = {name: thing.__code__ for name, thing in vars(module).items() if type(thing) is FunctionType}
    found |= {name: thing.__code__ for name, thing in vars(module.Thing).items() if type(thing) is FunctionType}
    found["static"] = module.Thing.static.__code__
    found["value"] = module.Thing.value.fget.__code__
    return found


class StopError(Exception):
    pass


def leave_by_the_end(module: ModuleType, change: Change, call: Callable[[Any], object]) -> None:
    with applied([change], program()):
        assert call(module) == "new"


def leave_by_error(module: ModuleType, change: Change, call: Callable[[Any], object]) -> None:
    with pytest.raises(StopError):
        call_and_raise(module, change, call, StopError)


def leave_by_interrupt(module: ModuleType, change: Change, call: Callable[[Any], object]) -> None:
    with pytest.raises(KeyboardInterrupt):
        call_and_raise(module, change, call, KeyboardInterrupt)


def call_and_raise(
    module: ModuleType, change: Change, call: Callable[[Any], object], error: type[BaseException]
) -> None:
    with applied([change], program()):
        assert call(module) == "new"
        raise error


def leave_by_close(module: ModuleType, change: Change, call: Callable[[Any], object]) -> None:
    def trial() -> Iterator[object]:
        with applied([change], program()):
            yield call(module)

    steps = trial()
    assert next(steps) == "new"
    steps.close()


def leave_in_another_thread(module: ModuleType, change: Change, call: Callable[[Any], object]) -> None:
    seen: list[object] = []
    entered, may_leave = threading.Event(), threading.Event()

    def trial() -> None:
        with applied([change], program()):
            entered.set()
            may_leave.wait(10)

    thread = threading.Thread(target=trial)
    thread.start()
    entered.wait(10)
    seen.append(call(module))
    may_leave.set()
    thread.join()
    assert seen == ["new"]


EXITS = (leave_by_the_end, leave_by_error, leave_by_interrupt, leave_by_close, leave_in_another_thread)


@pytest.mark.parametrize("leave", EXITS)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_exit_brings_the_same_code_objects_back(module, kind, leave):
    function, call = EVERY_KIND[kind]
    before = codes(module)
    leave(module, change_in(module, function), call)
    assert call(module) == "old"
    assert all(codes(module)[name] is code for name, code in before.items())


def test_functions_that_changed_code_has_made_get_the_code_that_they_would_have_had(module):
    with applied([change_in(module, "inner")], program()):
        made = module.outer(2)
        assert made() == "new"
    assert made() == "old"
    assert made.__code__ is module.closure.__code__


def test_a_generator_that_is_suspended_goes_on_as_it_began(module):
    suspended = module.generator()
    next(suspended)
    with applied([change_in(module, "generator")], program()):
        assert next(suspended) == "old"
        begun = module.generator()
        next(begun)
    assert next(begun) == "new"


def test_a_frame_that_runs_is_left_alone(module):
    with applied([change_in(module, "plain", 'return "old"', 'result = "new"\n    return result')], program()):
        assert module.plain() == "new"
    assert module.plain() == "old"


@pytest.mark.parametrize(
    ("line", "after", "reason"),
    [
        ("LIMIT = 3", "LIMIT = 4", "ran once, before what is checked"),
        ("@functools.lru_cache(maxsize=None)", "@functools.singledispatch", "ran once, before what is checked"),
        ("    def with_super(self):", "    def with_super(self, k=1):", "does not match its source"),
        ('        return k and "old"', '        return "new"', "other variables of the enclosing function"),
        ('    return "old"', '    return (lambda: "new")()', "would add or remove a function"),
        ('    return "old"', '    return "new', "not valid Python"),
        ("    not a line of it", "    return 1", "the code that runs does not match its source"),
    ],
)
def test_what_cannot_be_tried_soundly_is_refused_before_anything_changes(module, line, after, reason):
    before = codes(module)
    lines = SOURCE.splitlines()
    number = lines.index(line) + 1 if line in lines else 5
    change = Change("", line, after, str(module.__file__), number)
    with pytest.raises(NotTriedError, match=reason), applied([change], program()):
        pass
    assert codes(module) == before


def default_of(function: Any) -> object:
    return (function.__defaults__ or ["old"])[0]


DEFINITIONS: dict[str, tuple[str, str, Callable[[Any], object]]] = {
    "a default": ("def plain():", 'def plain(k="new"):', lambda m: default_of(m.plain)),
    "a default, by another name": ("def plain():", 'def plain(k="new"):', lambda m: default_of(m.shared)),
    "of a method": ("    def method(self):", '    def method(self, k="new"):', lambda m: default_of(m.Thing.method)),
    "a kind of method": (
        "    @staticmethod", "    @classmethod",
        lambda m: "new" if type(vars(m.Thing)["static"]) is classmethod else "old",
    ),
    "a limit": (
        "@functools.lru_cache(maxsize=None)", "@functools.lru_cache(maxsize=3)",
        lambda m: "new" if m.cached.cache_info().maxsize else "old",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", DEFINITIONS)
@pytest.mark.parametrize("error", [None, StopError, KeyboardInterrupt])
def test_a_def_is_made_anew_and_put_back_on_every_exit(module, change, error):
    module.shared = module.plain  # whoever refers to a function without decorators has the changed one
    before = dict(vars(module.Thing)), dict(vars(module))
    line, after, call = DEFINITIONS[change]
    made = Change("", line, after, str(module.__file__), SOURCE.splitlines().index(line) + 1)
    raised = contextlib.nullcontext() if error is None else pytest.raises(error)
    with raised, applied([made], program()):
        assert call(module) == "new"
        if error is not None:
            raise error
    assert call(module) == "old"
    assert (dict(vars(module.Thing)), dict(vars(module))) == before


def test_a_file_that_was_changed_on_disk_since_it_was_imported_is_refused(module):
    path = Path(str(module.__file__))
    path.write_text(SOURCE.replace('return "old"', 'return "newer"'), "utf-8")
    linecache.checkcache(str(path))
    change = Change("", '    return "newer"', '    return "new"', str(path), 7)
    with pytest.raises(NotTriedError, match="does not match its source"), applied([change], program()):
        pass


def test_unknown_source_is_refused():
    change = Change("", "x", "y", "<nowhere>", 1)
    with pytest.raises(NotTriedError, match="source is not known"), applied([change], program()):
        pass


def test_several_changes_of_a_text_keep_their_places():
    changes = [Change("", "b", "x\ny", "", 2), Change("", "d", "", "", 4)]
    assert edited("a\nb\nc\nd\ne", changes) == "a\nx\ny\nc\ne"


def test_what_is_written_around_a_block_and_in_it_is_written_both():
    text = "with scope:\n    add(1)\nlast()"
    inner = Change("cell, line 2", "    add(1)", "    add(1)\n    trim()", "cell", 2)
    outer = Change("cell, line 1", "with scope:\n    add(1)", "begin()\nwith scope:\n    add(1)\nend()", "cell", 1)
    for changes in ((inner, outer), (outer, inner)):
        assert edited(text, merged(changes)) == "begin()\nwith scope:\n    add(1)\n    trim()\nend()\nlast()"
    assert [change.where for change in merged((inner, outer))] == ["cell, line 2", "cell, line 1"]
    with pytest.raises(NotTriedError, match="concern one line"):
        edited(text, merged((inner, Change("", "with scope:\n    add(1)", "add(2)", "cell", 1))))


def test_two_changes_of_one_line_are_refused():
    with pytest.raises(NotTriedError, match="one line"):
        edited("a\nb", [Change("", "a\nb", "x", "", 1), Change("", "b", "y", "", 2)])


def test_an_interrupt_while_things_are_brought_back_is_raised_when_they_are():
    done: list[int] = []

    def work() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_the_end(work)
    assert done == [0, 1]
