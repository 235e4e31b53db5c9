"""What leaklab.metrics and leaklab.testing give out, without importing it before it is asked for."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import leaklab


def facades():
    """Each package that gives out names of its modules, and where each name is."""
    for found in pkgutil.iter_modules(leaklab.__path__, "leaklab."):
        package = importlib.import_module(found.name) if found.ispkg else None
        if package is not None and "__getattr__" in vars(package):
            yield package, inspect.getclosurevars(vars(package)["__getattr__"]).nonlocals["homes"]


FACADES = list(facades())


@pytest.mark.parametrize(("package", "homes"), FACADES, ids=[package.__name__ for package, _ in FACADES])
def test_every_name_of_a_facade_is_in_its_module(package, homes):
    for name, module in homes.items():
        given = getattr(package, name)
        assert given is getattr(importlib.import_module(f"{package.__name__}.{module}"), name)
        assert getattr(given, "__module__", None) in {None, f"{package.__name__}.{module}"} or not callable(given)


@pytest.mark.parametrize(("package", "homes"), FACADES, ids=[package.__name__ for package, _ in FACADES])
def test_no_name_of_a_facade_is_a_module(package, homes):
    assert not homes.keys() & {module.name for module in pkgutil.iter_modules(package.__path__)}


def test_a_name_that_no_module_has_is_an_attribute_error():
    assert len(FACADES) == 2
    with pytest.raises(AttributeError, match=r"module 'leaklab\.metrics' has no attribute 'nothing'"):
        leaklab.metrics.nothing  # noqa: B018 - asking is the test


def test_a_facade_imports_nothing_by_itself():
    code = "import sys, leaklab.metrics; print(*(name for name in sys.modules if name.startswith('leaklab.')))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) == {"leaklab.lazy", "leaklab.metrics"}
