"""Autograd graphs that are stored, or handed on from run to run."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from leaklab.cure.case import Case, Store, last_name
from leaklab.cure.live import evaluate, values_of
from leaklab.cure.source import FUNCTIONS, Proposal
from leaklab.explain.idioms.advice import (
    HEAD_OF_GRAPH,
    Advice,
    clearing,
    is_gradient,
    named,
    place_words,
    written,
)
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.roles import Role
from leaklab.heap.source_lines import ADDING
from leaklab.model.check import GRAPH_UNIT
from leaklab.runtime.autograd_graph import has_graph
from leaklab.runtime.containers import items_in
from leaklab.runtime.objects import is_kind_of, is_tensor, loaded_type

BY_ATTRIBUTES = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
"""A variable, or an attribute of one: what a statement can bind anew, whatever it is."""
_BACKWARD = frozenset({"backward", "manual_backward"})
_GIVES_LOSS = frozenset({"training_step", "compute_loss", "closure"})
"""Functions whose result a library calls ``backward()`` on."""
_COUNTED = frozenset({"step", "zero_grad"})


def graph_kept(e: Evidence) -> Advice | None:
    """A tensor with its autograd graph is stored or added to, or hidden state is carried without detach."""
    if e.unit == GRAPH_UNIT:
        return _growing_graph(e)
    if not e.has_graph or e.crossing is None:
        return None
    if e.crossing.text == HEAD_OF_GRAPH:
        return _handed_on(e)
    if e.facts.is_scalar:
        what = "Store the number instead: `.item()`."
    else:
        what = (
            "Store the values without their graph (`.detach()`), for every tensor that is stored there. They still "
            f"pile up then: keep only the newest, or empty it after use{clearing(e)}."
        )
    return Advice(
        f"The tensors in {place_words(e)} still carry their autograd graph: the operations of their run and, until "
        f"backward() has run through them, the tensors that they saved. {what}",
        "Don't do this if you still need backward() on these tensors: call it first, then let go of them. Detach what "
        "is stored, not what the loss is computed from.",
    )


def _handed_on(e: Evidence) -> Advice:
    """A state that every run computes from that of the run before, and replaces."""
    if is_gradient(e.holder):
        place = written(e.holder)
        return Advice(
            f"`{place}` is a gradient that carries a graph, as backward(create_graph=True) makes it, and every "
            "backward() adds to it: so it carries the graph of all runs. Set it to None when it has been used "
            f"(`{place} = None`, or `zero_grad()` of its optimizer), or take gradients with `torch.autograd.grad(..., "
            "create_graph=True)`, which stores none.",
            "Not between runs whose gradients are meant to add up.",
        )
    owner = re.fullmatch(r"(.+)(?:\[\d+\]|(\.\w+))", e.holder) if e.facts.is_in_tuple else None
    place = e.holder if owner is None else owner[1]
    cut = f"{written(place)}.detach()"
    if owner is not None:
        make = f"{written(place)}._make" if owner[2] else "tuple"
        cut = f"{make}(state.detach() for state in {written(place)})"
    how = (
        f": `{written(place)} = {cut}`"
        if BY_ATTRIBUTES.fullmatch(written(place))
        else ", by `.detach()` on each tensor"
    )
    number = "; or add plain numbers (`.item()`)" if e.facts.is_scalar else ""
    return Advice(
        f"Every run computes {named(place)} from the {named(place)} of the previous run, so its graph spans all runs "
        f"and keeps what their operations saved. Cut the history between two runs{how}, before the next run computes "
        f"with it{number}.",
        "Not if one backward() is meant to go through all the runs: then the graph has to grow. Where no backward() "
        "follows at all, compute under torch.no_grad().",
    )


def _growing_graph(e: Evidence) -> Advice:
    is_bound = BY_ATTRIBUTES.fullmatch(written(e.holder)) is not None and not e.facts.is_in_tuple
    how = f": `{written(e.holder)} = {written(e.holder)}.detach()`" if is_bound else " with `.detach()`"
    return Advice(
        f"{named(e.holder)} carries its whole history: every run adds nodes to its graph, so the graph grows, and each "
        f"backward() through it gets slower. Add values without their graph (`.detach()`, or `.item()` for one "
        f"number), or cut the history between runs{how}.",
        "Not if one backward() at the end is meant to go through all the runs; then the graph has to grow.",
    )


def autograd_ctx(e: Evidence) -> Advice | None:
    """The ctx of a custom autograd function was stored."""
    by_name = any("." not in kind.removeprefix("__main__.") and kind.endswith("Backward") for kind in e.entry_kinds)
    is_entry = e.n_above <= len(e.roles) and e.path.steps and Role.CTX in e.roles[e.n_above - 1]
    if e.in_cycle or e.crossing is None or not (is_entry or by_name) or e.crossing.kind == "hidden":
        return None
    return Advice(
        f"{place_words(e)} keeps the `ctx` of a custom autograd.Function from every run, with everything the forward "
        "pass put on it. Don't store `ctx`; take the values out of it that are needed, and empty what was collected "
        f"after reading it{clearing(e)}. Tensors for backward() belong in `ctx.save_for_backward(...)`, which lets go "
        "of them after backward()."
    )


def graph_cut(case: Case) -> Iterator[Proposal]:
    """Yield how a variable that every run computes from that of the run before loses its graph."""
    owner = _owner(case)
    if not owner:
        return
    held = evaluate(owner, case.program.namespace)
    store, container = case.store, _container_of(owner) if case.leak.n_places > 1 else ""
    if store is not None and is_tensor(held) and not cuts_training(case, store):
        for proposal in _added_without_graph(case, store, held):
            yield replace(proposal, begun=(container or owner,))
    cuts = _all_cut(case, container) if container else _history_cut(case, owner, held)
    yield from (replace(proposal, cuts_history=True) for proposal in cuts)


def _container_of(place: str) -> str:
    """Return what *place* is an item of, as an expression; empty if it is none."""
    found = re.fullmatch(r"(.+)\[[^\[\]]+\]", place)
    return "" if found is None else found[1]


def _all_cut(case: Case, container: str) -> Iterator[Proposal]:
    """Yield how all tensors of *container*, which each carry a graph, are handed on to the next run without it."""
    held = evaluate(container, case.program.namespace)
    if not all(map(is_tensor, values_of(held))):
        return
    if type(held) is list:
        line = f"{container}[:] = [tensor.detach() for tensor in {container}]"
    elif type(held) is not dict:
        return
    else:
        line = f"{container}.update({{name: tensor.detach() for name, tensor in {container}.items()}})"
    yield from case.at_end(f"Hand the tensors of `{container}` on to the next run without their graphs.", line)


def _history_cut(case: Case, owner: str, held: Any) -> Iterator[Proposal]:
    """Yield how *owner*, which has *held*, is handed on to the next run without its graph."""
    store = case.store
    cut = _detached(owner, held)
    if not cut:
        return
    if store is not None and not case.is_in_run and is_tensor(held) and _is_only_kept(store):
        yield from _kept_detached(case, store)
    yield from _freed_by_backward(case, f"{owner} = {cut}", owner)
    yield from case.at_end(f"Hand `{owner}` on to the next run without its graph.", f"{owner} = {cut}")
    if is_tensor(held):
        words = f"Begin each run with `{owner}` as a new leaf, without the graph of the run before."
        yield from case.at_end(words, f"{owner} = {cut}.requires_grad_()")


def _freed_by_backward(case: Case, line: str, owner: str) -> Iterator[Proposal]:
    """Yield how the run's one ``backward(retain_graph=True)`` frees its graph again, where *line* cuts the history.

    It had to keep the graph because that went on into the runs before; kept on, it hides the next one that does.
    """
    if case.cell is None:
        return
    calls = [node for one in case.run_body for node in ast.walk(one) if isinstance(node, ast.Call)]
    backward = [one for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == "backward"]
    kept = [word for one in backward for word in one.keywords if word.arg == "retain_graph"]
    if len(backward) != 1 or len(kept) != 1 or backward[0].args or len(backward[0].keywords) != 1:
        return
    if not isinstance(kept[0].value, ast.Constant) or kept[0].value.value is not True:
        return
    patch = case.patch()
    patch.replace(case.cell, backward[0], f"{case.cell.text_of(backward[0].func)}()")
    case.at_end_of_run(patch, line)
    words = f"Hand `{owner}` on to the next run without its graph, which `backward()` can free then."
    yield from case.proposal(words, patch)


def _owner(case: Case) -> str:
    """Return the variable or attribute that carries the graph; empty if none does.

    Of a state in a tuple that is the tuple, whose items cannot be replaced.
    """
    steps = case.leak.path.steps
    heads = [number for number, step in enumerate(steps) if step.reference == HEAD_OF_GRAPH]
    is_growing = case.leak.unit == GRAPH_UNIT
    if not heads and not is_growing:
        return ""
    place = case.holder
    if ".grad" in place.rpartition("]")[2] and place.endswith(".grad"):
        return ""
    held = evaluate(place, case.program.namespace)
    if not _is_carrying(held):
        return ""
    while (found := re.fullmatch(r"(.+)(\[\d+\]|\.\w+)", place)) is not None:
        above = evaluate(found[1], case.program.namespace)
        if type(above) is not tuple and not (is_kind_of(above, tuple) and hasattr(type(above), "_make")):
            break
        place = found[1]
    return place


def _is_carrying(held: Any) -> bool:
    if is_tensor(held):
        return has_graph(held)
    return type(held) is tuple and any(map(_is_carrying, items_in(held)))


def _detached(place: str, held: Any) -> str:
    """Return *place* without its graph, as an expression; empty where it is no tensor and no tuple of tensors."""
    if is_tensor(held):
        return f"{place}.detach()"
    if is_kind_of(held, tuple) and (parts := items_in(held)) and all(map(is_tensor, parts)):
        make = f"{place}._make" if hasattr(type(held), "_make") else "tuple"
        return f"{make}(tensor.detach() for tensor in {place})"
    if (
        type(held) is tuple
        and held
        and all(type(one) is tuple and all(map(is_tensor, items_in(one))) for one in items_in(held))
    ):
        return f"tuple(tuple(tensor.detach() for tensor in layer) for layer in {place})"
    return ""


def _added(store: Store) -> ast.expr | None:
    """Return what *store* adds to a total: ``total += value``, ``total = total + value``; so for an item."""
    if store.how not in ("name", "item") or not isinstance(store.value, ast.BinOp):
        return store.value if store.how == "sum" else None
    if not isinstance(store.value.op, ast.Add):
        return None
    sides = (store.value.left, store.value.right)
    others = [side for side in sides if store.source.text_of(side) != _place_of(store)]
    return others[0] if len(others) == 1 else None


def _is_only_kept(store: Store) -> bool:
    """Return whether *store* puts a tensor into an attribute, which its function does not use afterwards.

    What it computes from a tensor that was cut off would have no gradient.
    """
    function = store.source.function_of(store.statement)
    if store.how != "name" or not isinstance(store.container, ast.Attribute) or function is None:
        return False
    return not any(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and node.lineno > store.statement.lineno
        and store.source.text_of(node) == store.container_text
        for node in ast.walk(function)
    )


def _added_without_graph(case: Case, store: Store, held: Any) -> Iterator[Proposal]:
    """Yield how what is added to a total loses its graph; how a moving mean does, which is computed from itself."""
    added, place = _added(store), _place_of(store)
    if added is None:
        value = store.value if store.how in ("name", "item") else None
        if isinstance(value, ast.BinOp) and any(store.source.text_of(node) == place for node in _places_in(value)):
            words = f"Keep `{place}` for the next run without its graph."
            yield from case.instead(words, store.source, value, f"{store.source.operand(value)}.detach()")
        return
    base: Any = loaded_type("torch", "Tensor")
    text = store.source.operand(added)
    is_number = bool(base.numel(held) == 1)
    for call in (".item()", ".detach()") if is_number else (".detach()",):
        what = "the number" if call == ".item()" else "the values without their graph"
        yield from case.instead(f"Add only {what} to `{place}`.", store.source, added, f"{text}{call}")


def _places_in(value: ast.expr) -> Iterator[ast.expr]:
    return (node for node in ast.walk(value) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)))


def _place_of(store: Store) -> str:
    """Return what *store* assigns to, as it is written: of an item the item."""
    if store.how == "item" and isinstance(store.statement, ast.Assign) and len(store.statement.targets) == 1:
        return store.source.text_of(store.statement.targets[0])
    return store.container_text


def _kept_detached(case: Case, store: Store) -> Iterator[Proposal]:
    if store.value is None or not isinstance(store.statement, (ast.Assign, ast.AnnAssign)):
        return
    targets = store.statement.targets if isinstance(store.statement, ast.Assign) else [store.statement.target]
    place = store.container_text
    words = f"Keep `{place}` for the next run without its graph."
    if len(targets) != 1 or isinstance(targets[0], (ast.Tuple, ast.List)):
        yield from case.behind(words, store, f"{place} = {place}.detach()")
    else:
        yield from case.instead(words, store.source, store.value, f"{store.source.operand(store.value)}.detach()")


def cuts_training(case: Case, store: Store) -> bool:
    """Return whether what *store* adds to goes into a loss: without its graph, training would lose that part of it.

    Every parameter might still have a gradient, of another part of the loss, so no trial could tell. Variables and
    attributes differ by their last names only.
    """
    trees = {id(source): source.tree for source in (store.source, case.cell) if source is not None}
    return last_name(store.container_text) in _of_loss(list(trees.values()))


def adds_up_gradients(case: Case) -> bool:
    """Return whether the gradients of several runs add up: the code steps, or sets them to zero, in some runs only."""
    sources = {id(one): one for one in (case.cell, *(store.source for store in case.stores)) if one is not None}
    conditions = (node for one in sources.values() for node in one.nodes if isinstance(node, ast.If))
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
    if _method(node) in ADDING and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
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
    """Return the last names in expressions: of ``trainer.net(x)`` ``net`` and ``x``, and the variable ``trainer``.

    Methods of tensors are none: ``mean`` in ``loss.mean()`` has nothing to do with a variable of this name.
    """
    found = [node for one in nodes for node in ast.walk(one)]
    called = {id(node.func) for node in found if isinstance(node, ast.Call)}
    return {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in found
        if isinstance(node, ast.Name)
        or (isinstance(node, ast.Attribute) and not (id(node) in called and _is_of_tensors(node.attr)))
    }


def _is_of_tensors(name: str) -> bool:
    return hasattr(loaded_type("torch", "Tensor"), name)


def _method(node: ast.AST) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
