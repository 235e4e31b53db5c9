"""Attributes are read from the dicts of objects and classes, modules are asked for nothing that could run code."""

from __future__ import annotations

import inspect
import sys
import types

import pytest

import leaklab
from leaklab.runtime.objects import loaded_type, loaded_variables, running_shell, static_attribute


class Meta(type):
    of_meta = "meta"


class Base(metaclass=Meta):
    shared, plain = "base", "base"

    @property
    def computed(self) -> str:
        raise AssertionError

    @staticmethod
    def static() -> None: ...


class Derived(Base):
    __slots__ = ("slot",)
    shared = "derived"


class Module(types.ModuleType):
    of_class = "class"


INSTANCE = Derived()
vars(INSTANCE).update(shared="instance", computed="hidden by the property", own=1)
MODULE = Module("made")
MODULE.own = 1
NAMES = (
    "shared",
    "plain",
    "own",
    "computed",
    "static",
    "slot",
    "of_meta",
    "of_class",
    "__init__",
    "__mro__",
    "nothing",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("owner", [INSTANCE, Derived, Base, Meta, MODULE, 3, len])
def test_an_attribute_is_what_stands_in_the_dicts(owner: object, name: str) -> None:
    missing = object()
    assert static_attribute(owner, name, missing) is inspect.getattr_static(owner, name, missing)


def test_a_metaclass_is_not_asked() -> None:
    class Loud(type):
        def __getattribute__(cls, name: str) -> object:
            raise AssertionError(name)

    class Thing(metaclass=Loud):
        part = 1

    assert static_attribute(Thing, "part") == 1
    assert static_attribute(type.__call__(Thing), "part") == 1
    assert static_attribute(Thing, "nothing", 2) == 2


ASKED: list[str] = []
LAZY_MODULES = (
    "torch.accelerator", "torch.cuda.memory", "IPython", "matplotlib.pyplot", "matplotlib_inline.backend_inline",
    "torch._dynamo.convert_frame", "numpy.ma", "torch.jit._state", "torch.library", "torch.nn.parallel",
    "readline", "logging", "asyncio", "my_lazy_package",
)  # fmt: skip


OURS_ALONE = ("torch.cuda.memory", "torch._dynamo.convert_frame", "readline", "torch.jit._state", "my_lazy_package")
"""Other libraries do not ask these while code is checked."""


class LazyModule(types.ModuleType):
    def __getattribute__(self, name):
        ASKED.append(name)
        return super().__getattribute__(name)

    def __getattr__(self, name):
        raise RuntimeError(name)


class NoModule:
    """People put objects there, too."""

    @property
    def __class__(self):
        ASKED.append("__class__")
        return types.ModuleType

    def __getattr__(self, name):
        ASKED.append(name)
        raise RuntimeError(name)


class NoClass:
    @property
    def __class__(self):
        ASKED.append("__class__")
        return type


@pytest.mark.untraced
@pytest.mark.parametrize("make", [LazyModule, lambda _name: NoModule()])
def test_a_lazy_module_is_asked_for_nothing(make, monkeypatch):
    for name in LAZY_MODULES:
        monkeypatch.setitem(sys.modules, name, make(name))
    ASKED.clear()
    assert [dict(loaded_variables(name)).get("get_ipython") for name in LAZY_MODULES] == [None] * len(LAZY_MODULES)
    assert [loaded_type(name, "ndarray") for name in LAZY_MODULES] == [None] * len(LAZY_MODULES)
    assert running_shell() is None
    assert ASKED == []


KEPT: list[object] = []


class Left:
    pass


def leaks():
    KEPT.append(Left())


@pytest.mark.untraced
@pytest.mark.parametrize("make", [LazyModule, lambda _name: NoModule()])
def test_a_check_and_its_explanation_wake_no_lazy_module(make, monkeypatch):
    leaklab.leakcheck(str, runs=5)  # whatever imports something has done so before the modules are exchanged
    for name in OURS_ALONE:
        monkeypatch.setitem(sys.modules, name, make(name))
    monkeypatch.setattr(Left, "__module__", "my_lazy_package")
    ASKED.clear()
    report = leaklab.leakcheck(leaks, runs=6)
    leaklab.whyalive(KEPT[0])
    KEPT.clear()
    assert report.leaked
    assert ASKED == []


@pytest.mark.untraced
def test_what_is_no_class_is_none():
    module = types.ModuleType("made_up")
    module.Tensor = NoClass()
    sys.modules["made_up"] = module
    ASKED.clear()
    try:
        assert loaded_type("made_up", "Tensor") is None
        assert ASKED == []
        module.Tensor = Left
        assert loaded_type("made_up", "Tensor") is Left
        sys.modules["made_up"] = types.ModuleType.__new__(types.ModuleType)
        assert loaded_type("made_up", "Tensor") is None
    finally:
        del sys.modules["made_up"]
