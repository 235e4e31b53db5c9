"""Tell by its text which variables of a program a loss is computed from: no change may cut their graph in a run."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from leaklab.cure.case import ADDS_MANY, ADDS_ONE, Case, Store, last_name
from leaklab.cure.source import FUNCTIONS

_BACKWARD = frozenset({"backward", "manual_backward"})
_GIVES_LOSS = frozenset({"training_step", "compute_loss", "closure"})
"""Functions whose result a library calls ``backward()`` on."""
_COUNTED = frozenset({"step", "zero_grad"})


def cuts_training(case: Case, store: Store) -> bool:
    """Return whether what *store* adds to goes into a loss: without its graph, training would lose that part of it.

    Every parameter might still have a gradient, of another part of the loss, so no trial could tell. Variables and
    attributes are told apart by their last names only.
    """
    trees = {id(source): source.tree for source in (store.source, case.cell) if source is not None}
    return last_name(store.container_text) in _of_loss(list(trees.values()))


def adds_up_gradients(case: Case) -> bool:
    """Return whether the gradients of several runs add up: the code steps, or sets them to zero, in some runs only."""
    sources = {id(one): one for one in (case.cell, *(store.source for store in case.stores)) if one is not None}
    conditions = (node for one in sources.values() for node in ast.walk(one.tree) if isinstance(node, ast.If))
    return any(_method(node) in _COUNTED for condition in conditions for node in ast.walk(condition))


def _of_loss(trees: list[ast.Module]) -> set[str]:
    """Return the names of the variables and attributes that a loss is computed from."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    flows: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for name, values in _flows(node):
            flows[name] |= values
    todo = {name for node in nodes for name in _losses(node)}
    found: set[str] = set()
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= flows.get(name, set()) - found
    return found


def _losses(node: ast.AST) -> set[str]:
    """Return the names in what `backward()` is called on."""
    if isinstance(node, FUNCTIONS) and node.name in _GIVES_LOSS:
        return _returned(node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return set()
    is_grad = node.func.attr == "grad" and ast.unparse(node.func.value).endswith("autograd")
    if node.func.attr in _BACKWARD or is_grad:
        return _names([node.func.value, *node.args[:1]])
    return set()


def _flows(node: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """Yield what *node* computes, and from which names."""
    if isinstance(node, FUNCTIONS):
        yield node.name, _returned(node)
        return
    targets, values = _parts(node)
    names = _names(values)
    for target in targets:
        for name in _targets(target):
            yield name, names


def _parts(node: ast.AST) -> tuple[list[ast.expr], list[ast.expr]]:
    """Return what *node* assigns or adds to, and what it assigns or adds."""
    if isinstance(node, ast.Assign):
        return node.targets, [node.value]
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        return [node.target], [node.value]
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        return [node.target], [node.iter]
    if _method(node) in ADDS_ONE | ADDS_MANY and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return [node.func.value], node.args
    return [], []


def _returned(function: ast.AST) -> set[str]:
    return _names(node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None)


def _targets(node: ast.expr) -> Iterator[str]:
    if isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from _targets(item)
        return
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id


def _names(nodes: Iterable[ast.expr]) -> set[str]:
    """Return the last names in expressions: of ``trainer.net(x)`` ``net`` and ``x``, and the variable ``trainer``."""
    found = (node for one in nodes for node in ast.walk(one))
    return {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in found
        if isinstance(node, (ast.Attribute, ast.Name))
    }


def _method(node: ast.AST) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
