"""Lines of functions that were reloaded by themselves are lines of their file again."""

from __future__ import annotations

import ast
import sys
import textwrap
import types

import pytest

from leaklab.heap.source_lines import line_in_file

FILE = '''"""A module."""

KEEP = []


def other():
    return 1


class Trainer:
    def __init__(self):
        self.losses = []

    # what it is for
    def step(self):
        # why

        losses = (1,
                  2)
        self.losses.append(losses)


def outer():

    def inner():
        # why
        KEEP.append(1)
    inner()
'''
LINES = FILE.splitlines()


def place_of(text):
    return next(number for number, line in enumerate(LINES, 1) if text in line)


@pytest.fixture
def module(tmp_path):
    """A module as it was imported."""
    made = types.ModuleType("reloaded_module")
    made.__file__ = str(tmp_path / "reloaded_module.py")
    exec(compile(FILE, made.__file__, "exec", dont_inherit=True), vars(made))  # noqa: S102 - as an import does
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def reload(module, name):
    """Patch a function or method as the deduplicating reload of IPython does."""
    owner, _, last = name.rpartition(".")
    body = ast.parse(FILE).body
    if owner:
        body = next(node for node in body if getattr(node, "name", "") == owner).body
    text = ast.unparse(next(node for node in body if getattr(node, "name", "") == last))
    variables = {}
    if owner:
        text = "class __autoreload_class__:\n" + textwrap.indent(text, "    ")
    exec(compile(text, module.__file__, "exec", dont_inherit=True), vars(module), variables)  # noqa: S102 - as the reload does
    new = variables["__autoreload_class__"].__dict__[last] if owner else variables[last]
    old = vars(vars(module)[owner])[last] if owner else vars(module)[last]
    old.__code__ = new.__code__


def line(module, number, function, source=FILE):
    return line_in_file(ast.parse(source), module.__file__, number, function)


def test_lines_of_code_as_it_was_imported_are_lines_of_the_file(module):
    number = place_of("self.losses.append")
    assert line(module, number, "Trainer.step") == number
    assert line(module, number, "") == number


def test_lines_of_a_reloaded_function_are_found_by_its_statements(module):
    reload(module, "outer")
    assert line(module, 4, "outer.<locals>.inner") == place_of("KEEP.append")


def test_lines_of_a_reloaded_method_are_found_by_its_statements(module):
    reload(module, "Trainer.step")
    assert line(module, 4, "__autoreload_class__.step") == place_of("self.losses.append")
    assert line(module, 3, "__autoreload_class__.step") == place_of("losses = (1,")


def test_without_a_name_the_only_reloaded_function_of_such_a_length_is_meant(module):
    reload(module, "Trainer.step")
    assert line(module, 4, "") == place_of("self.losses.append")
    reload(module, "outer")
    assert line(module, 4, "") == 0  # one of two


def test_a_line_of_code_whose_file_was_edited_since_is_not_known(module):
    edited = FILE.replace("KEEP = []", "KEEP = []\nimport os\n")
    assert line(module, place_of("self.losses.append"), "Trainer.step", edited) == 0
    reload(module, "outer")
    assert line(module, 4, "outer.<locals>.inner", FILE.replace("KEEP.append(1)", "print(KEEP)")) == 0


def test_what_is_in_no_function_keeps_its_line(module):
    assert line(module, 3, "<module>") == 3
