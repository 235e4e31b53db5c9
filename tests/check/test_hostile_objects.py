"""Objects that raise, hang or lie in every method they have: none is ever called, and their leak is found."""

from __future__ import annotations

import gc
import subprocess
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import leaklab

pytestmark = pytest.mark.untraced


CALLED: list[str] = []
ARMED: list[bool] = []


def trap(name: str, answer: Callable[..., object] | None = None) -> Callable[..., object]:
    """A method that notes that it was called; it answers as long as the trap is not set."""

    def method(self: object, *arguments: object) -> object:
        if ARMED:
            CALLED.append(name)
            raise BaseException(name)  # noqa: TRY002 - nothing that catches Exception may hide the call
        return answer(self, *arguments) if answer else None

    return method


@pytest.fixture
def armed():
    """From here on every trap springs."""
    CALLED.clear()
    yield lambda: ARMED.append(True)
    ARMED.clear()


NAMES = (
    "__repr__", "__str__", "__eq__", "__len__", "__getattr__", "__sizeof__", "__dir__", "__bool__", "__iter__",
    "__contains__", "__getitem__", "__call__", "__index__", "__float__", "__reduce__", "__format__", "__next__",
    "__enter__", "__array__", "__instancecheck__", "__subclasscheck__", "__fspath__", "__del__",
)  # fmt: skip


def hostile_class(*bases: type) -> type:
    """A class whose methods are all traps."""
    methods: dict[str, object] = {name: trap(name) for name in NAMES if name != "__del__"}
    methods["__hash__"] = trap("__hash__", lambda self: 1)
    methods["__getattribute__"] = trap("__getattribute__", object.__getattribute__)
    methods["__class__"] = property(trap("__class__", lambda self: int))
    methods["__dict__"] = property(trap("__dict__", lambda self: {}))
    return type("Hostile", bases, methods)


class HostileMeta(type):
    """A metaclass that springs on whatever is asked of the class."""

    __getattribute__ = trap("meta __getattribute__", type.__getattribute__)
    __instancecheck__ = trap("meta __instancecheck__", lambda cls, thing: False)
    __subclasscheck__ = trap("meta __subclasscheck__", lambda cls, kind: False)
    __eq__ = trap("meta __eq__", lambda cls, other: cls is other)
    __hash__ = trap("meta __hash__", type.__hash__)
    __repr__ = trap("meta __repr__", type.__repr__)
    __len__ = trap("meta __len__", lambda cls: 3)
    __bool__ = trap("meta __bool__", lambda cls: True)
    __iter__ = trap("meta __iter__", lambda cls: iter(()))
    __dir__ = trap("meta __dir__", lambda cls: [])


class OfHostileMeta(metaclass=HostileMeta):
    pass


class HostileTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if ARMED:
            CALLED.append("__torch_function__")
            raise BaseException("__torch_function__")  # noqa: TRY002, EM101
        return super().__torch_function__(func, types, args, kwargs or {})

    @property
    def shape(self):
        CALLED.append("shape")
        raise BaseException("shape")  # noqa: TRY002, EM101

    def __repr__(self, **_options: object) -> str:
        CALLED.append("tensor __repr__")
        raise BaseException("tensor __repr__")  # noqa: TRY002, TRY003, EM101


Plain, OfList, OfDict = hostile_class(), hostile_class(list), hostile_class(dict)


class LazyModule(types.ModuleType):
    def __getattr__(self, name: str) -> object:
        CALLED.append(f"module {name}")
        raise BaseException(name)  # noqa: TRY002


class Referent:
    pass


def dead_proxy() -> object:
    return weakref.proxy(Referent())


def closure_of_one() -> object:
    held = Plain()
    return lambda: held


MAKERS: dict[str, Callable[[], object]] = {
    "object": Plain,
    "list": lambda: OfList([0] * 100),
    "dict": lambda: OfDict(a=1),
    "metaclass": OfHostileMeta,
    "tensor": lambda: torch.Tensor._make_subclass(HostileTensor, torch.ones(1000)),
    "lazy module": lambda: LazyModule("lazy"),
    "dead proxy": lambda: [dead_proxy()],
    "class": lambda: HostileMeta("Made", (), {}),
    "cell of one": closure_of_one,
}

LEAK_BY_DAY = {"object", "dict", "metaclass", "tensor"}

HISTORY: list[object] = []


@pytest.fixture(autouse=True)
def empty_history():
    yield
    ARMED.clear()
    HISTORY.clear()
    gc.collect()


@pytest.mark.parametrize("ask", [repr, len, bool, iter, hash, vars, dir, lambda thing: isinstance(thing, float)])
def test_the_traps_spring(armed, ask):
    thing = Plain()
    armed()
    with pytest.raises(BaseException, match="__"):
        ask(thing)
    assert CALLED


@pytest.mark.parametrize(
    "maker",
    [
        pytest.param(make, id=name, marks=() if name in LEAK_BY_DAY else pytest.mark.nightly)
        for name, make in MAKERS.items()
    ],
)
def test_a_leak_of_hostile_objects_is_found_and_nothing_of_them_is_called(armed, maker):
    def leak() -> None:
        ARMED.clear()
        HISTORY.append((maker(), [0.0] * 500))
        armed()

    report = leaklab.leakcheck(leak, runs=12)
    ARMED.clear()
    assert CALLED == []
    assert report.leaked, str(report)
    assert "HISTORY" in [leak.holder for leak in report.leaks]


def test_hostile_objects_in_the_heap_do_not_disturb_a_clean_check(armed):
    HISTORY.extend(make() for make in MAKERS.values() for _ in range(5))
    armed()
    report = leaklab.leakcheck(lambda: None, runs=8)
    ARMED.clear()
    assert CALLED == []
    assert str(report.verdict).startswith("clean")


def test_hostile_objects_beside_a_leak_are_not_called(armed):
    HISTORY.extend({"hostile": make(), "log": []} for make in MAKERS.values())
    log = HISTORY[0]["log"]
    armed()
    report = leaklab.leakcheck(lambda: log.append([0.0] * 1000), runs=12)
    ARMED.clear()
    assert CALLED == []
    assert report.leaked


class Key:
    """Hashable until it is in the dict."""

    __hash__ = trap("key __hash__", lambda self: id(self) >> 4)
    __eq__ = trap("key __eq__", lambda self, other: self is other)
    __repr__ = trap("key __repr__", lambda self: "Key")


TABLE: dict[object, object] = {}


def test_keys_that_raise_in_hash_and_eq_are_no_obstacle(armed):
    def leak() -> None:
        ARMED.clear()
        TABLE[Key()] = [0.0] * 1000
        armed()

    try:
        report = leaklab.leakcheck(leak, runs=12)
        ARMED.clear()
        assert CALLED == []
        assert report.leaks[0].holder == "TABLE"
    finally:
        ARMED.clear()
        TABLE.clear()


class Finalised:
    """Counts how often it dies, and raises on the way."""

    n_dead = 0

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        Finalised.n_dead += 1


def test_finalisers_run_once_and_only_for_what_is_dead():
    Finalised.n_dead = 0
    report = leaklab.leakcheck(lambda: HISTORY.append((Finalised(), [0.0] * 500)), runs=12)
    assert report.leaked
    assert Finalised.n_dead == 0
    n_alive = len(HISTORY)
    HISTORY.clear()
    gc.collect()
    assert Finalised.n_dead == n_alive


class Slow:
    """Takes a minute over every question."""

    def _sleep(self, *_arguments: object) -> object:
        import time

        time.sleep(60)

    __repr__ = __len__ = __bool__ = __iter__ = __sizeof__ = __dir__ = __eq__ = _sleep
    __hash__ = object.__hash__
    __class__ = property(_sleep)


def test_objects_that_hang_do_not_hold_the_check_up():
    import time

    started = time.perf_counter()
    report = leaklab.leakcheck(lambda: HISTORY.append((Slow(), [0.0] * 500)), runs=8)
    assert time.perf_counter() - started < 55
    assert report.leaked


def test_no_question_ends_the_process() -> None:
    """Lists with empty places, parsers, tables that change, frames in every state, objects that were never ready."""
    program = Path(__file__).parents[1] / "half_built_questions.py"
    command = [sys.executable, "-X", "faulthandler", program, "1", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("asked everything\n")
