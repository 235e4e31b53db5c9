"""Attributes are read from the dicts of objects and classes, as `inspect.getattr_static` reads them."""

from __future__ import annotations

import inspect
import types

import pytest

from leaklab.runtime.objects import static_attribute


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
