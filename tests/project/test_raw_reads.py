"""Modules that touch objects of the heap read containers through the one guard, never by the methods of the types."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import leaklab

ROOT = Path(leaklab.__file__).parent
TOUCHING = ("runtime", "measure", "lines", "heap", "explain", "cure", "ask", "check", "loop", "process", "explorer")
GUARD = ROOT / "runtime" / "containers.py"
BASES = {"list", "tuple", "dict", "set", "frozenset", "deque", "OrderedDict"}
READING = {"__iter__", "__reversed__", "__getitem__", "__contains__", "items", "keys", "values"}
IN_BULK = ROOT / "heap" / "names" / "in_bulk.py"
"""Reads all dicts of a heap at once, while no collection runs, and finds out where one has changed."""
KIND_CHECKS = {"list", "tuple"}


def raw_reads(tree: ast.AST) -> list[int]:
    """Return the lines on which a container is read by an unbound method: ``dict.items(thing)``, ``list.__iter__``.

    Who writes it so has an object of the heap at hand, whose class is not to be trusted; for any other object the
    method would be called by a dot. A place that C code has not filled yet ends the process there.
    """
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in READING and ast.unparse(node.value).split(".")[-1] in BASES
    ]


def walks_where_it_is_a_list(tree: ast.AST) -> list[int]:
    """Return the lines on which a name is walked in the very expression that asks whether it is a list or a tuple."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.BoolOp, ast.IfExp)):
            asked = {name for part in ast.walk(node) if (name := _asked_kind(part))}
            found += [
                part.lineno
                for part in ast.walk(node)
                if isinstance(part, ast.GeneratorExp)
                and isinstance(part.generators[0].iter, ast.Name)
                and part.generators[0].iter.id in asked
            ]
    return found


def _asked_kind(node: ast.AST) -> str:
    """Return the name of what is asked whether it is a list or a tuple, empty for any other expression."""
    match node:
        case ast.Compare(ast.Call(ast.Name("type"), [asked]), [ast.Is()], [ast.Name(kind)]) if kind in KIND_CHECKS:
            return ast.unparse(asked)
    return ""


def modules() -> list[Path]:
    """Every module that touches objects of the heap, but for the guard."""
    return [
        path for folder in TOUCHING for path in sorted((ROOT / folder).rglob("*.py")) if path not in (GUARD, IN_BULK)
    ]


@pytest.mark.parametrize(
    ("source", "n_found"),
    [
        ("for key, value in list(dict.items(thing)): pass", 1),
        ("collections.deque.__reversed__(things)", 1),
        ("own.items()", 0),
        ("items_in(things)", 0),
    ],
)
def test_raw_reads_are_seen(source: str, n_found: int) -> None:
    assert len(raw_reads(ast.parse(source))) == n_found


def test_a_walk_beside_the_question_for_the_kind_is_seen() -> None:
    assert walks_where_it_is_a_list(ast.parse("type(thing) is list and all(f(item) for item in thing)")) == [1]


def test_every_folder_that_touches_objects_is_there() -> None:
    assert [folder for folder in TOUCHING if not (ROOT / folder).is_dir()] == []


def test_containers_of_the_heap_are_read_through_the_guard() -> None:
    found = {}
    for path in modules():
        tree = ast.parse(path.read_text("utf-8"))
        if lines := raw_reads(tree) + walks_where_it_is_a_list(tree):
            found[path.relative_to(ROOT).as_posix()] = lines

    assert found == {}, "use leaklab.runtime.containers: a list of the heap may have places that are not filled"


def test_attributes_of_objects_of_the_heap_are_read_by_one_function() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): node.lineno
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "getattr_static"
    }
    assert found == {}, (
        "use leaklab.runtime.objects.static_attribute: `inspect` asks a metaclass, which may be the user's"
    )
