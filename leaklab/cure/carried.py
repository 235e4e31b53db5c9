"""Cut what one run hands on to the next: hidden states, running totals, tensors and texts that get longer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from leaklab.cure.case import Case, Store, last_name, rounded
from leaklab.cure.live import MISSING, evaluate
from leaklab.cure.proposal import Proposal
from leaklab.cure.registrations import end_of
from leaklab.cure.source import SourceText
from leaklab.cure.stored_values import has_graph
from leaklab.cure.training_path import adds_up_gradients, cuts_training
from leaklab.runtime.containers import items_in
from leaklab.runtime.objects import is_kind_of, is_tensor, loaded_type, no_torch_functions, type_name

_HEAD = ".grad_fn"
_PRIMARY = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


def carried_graph(case: Case) -> Iterator[Proposal]:
    """Yield how a variable that every run computes from that of the run before loses its graph."""
    owner = _owner(case)
    if not owner:
        return
    held = evaluate(owner, case.program.namespace)
    store = case.store
    added = _added(store) if store is not None and is_tensor(held) else None
    if store is not None and added is not None and not cuts_training(case, store):
        yield from _added_as_number(case, store, added, held)
    cut = _detached(owner, held)
    if not cut:
        return
    if store is not None and not case.is_in_run and is_tensor(held) and _is_only_kept(store):
        yield from _kept_detached(case, store)
    patch = case.patch()
    case.at_end_of_run(patch, f"{owner} = {cut}")
    yield from case.proposal(f"Hand `{owner}` on to the next run without its graph.", patch)


def _owner(case: Case) -> str:
    """Return the variable or attribute that carries the graph; empty if none does.

    Of a state in a tuple that is the tuple, whose items cannot be replaced.
    """
    steps = case.leak.path.steps
    heads = [number for number, step in enumerate(steps) if step.reference == _HEAD]
    is_growing = case.leak.unit == "graph nodes"
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
        with no_torch_functions():
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
    """Return what *store* adds to a total: ``total += value``, ``total = total + value``."""
    if store.how == "sum" or store.how != "name" or not isinstance(store.value, ast.BinOp):
        return store.value if store.how == "sum" else None
    if not isinstance(store.value.op, ast.Add):
        return None
    sides = (store.value.left, store.value.right)
    others = [side for side in sides if store.source.text_of(side) != store.container_text]
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


def _added_as_number(case: Case, store: Store, added: ast.expr, held: Any) -> Iterator[Proposal]:
    """Yield how what is added to a total loses its graph."""
    base: Any = loaded_type("torch", "Tensor")
    text = store.source.text_of(added)
    text = text if isinstance(added, _PRIMARY) else f"({text})"
    is_number = bool(base.numel(held) == 1)
    for call in (".item()", ".detach()") if is_number else (".detach()",):
        patch = case.patch()
        patch.replace(store.source, added, f"{text}{call}")
        what = "the number" if call == ".item()" else "the values without their graph"
        yield from case.proposal(f"Add only {what} to `{store.container_text}`.", patch)


def _kept_detached(case: Case, store: Store) -> Iterator[Proposal]:
    if store.value is None or not isinstance(store.statement, (ast.Assign, ast.AnnAssign)):
        return
    targets = store.statement.targets if isinstance(store.statement, ast.Assign) else [store.statement.target]
    if len(targets) != 1 or isinstance(targets[0], (ast.Tuple, ast.List)):
        patch = case.patch()
        patch.after(store.source, store.statement, [f"{store.container_text} = {store.container_text}.detach()"])
    else:
        text = store.source.text_of(store.value)
        patch = case.patch()
        text = text if isinstance(store.value, _PRIMARY) else f"({text})"
        patch.replace(store.source, store.value, f"{text}.detach()")
    yield from case.proposal(f"Keep `{store.container_text}` for the next run without its graph.", patch)


def gradient_cycle(case: Case) -> Iterator[Proposal]:
    """Yield how gradients that carry a graph (``backward(create_graph=True)``) are let go of."""
    is_gradient = any(step.reference == ".grad" for step in case.leak.path.steps) or case.holder.endswith(".grad")
    if not (is_gradient or case.leak.cause in ("immortal-cycle", "graph-kept")):
        return
    why = "with create_graph=True they refer to the graph, and the graph to them"
    names = case.names_in_run() if any(map(_is_create_graph, case.run_body)) else set[str]()
    for source, statement in _statements_with_graph(case):
        function = source.function_of(statement)
        nodes = list(ast.walk(function or statement))
        names |= {node.id for node in nodes if isinstance(node, ast.Name)}
        local = {_grad_of(node) for node in nodes} - {"", *case.program.namespace}
        patch = case.patch()
        if local and end_of(case, source, statement, patch, [f"{name}.grad = None" for name in sorted(local)]):
            yield from case.proposal(f"Set the gradients to None when they have been used: {why}.", patch)
    for name in sorted(names) if not adds_up_gradients(case) else ():
        line = _forgetting(name, case.program.namespace.get(name))
        if line:
            patch = case.patch()
            case.at_start_of_run(patch, line)
            yield from case.proposal(f"Set the gradients to None before each run (`{line}`): {why}.", patch)


def _statements_with_graph(case: Case) -> Iterator[tuple[SourceText, ast.stmt]]:
    for filename, line in (*case.keeping, *case.making):
        source = case.source(filename)
        statement = source.statement_at(line) if source is not None else None
        if source is not None and statement is not None and _is_create_graph(statement):
            yield source, statement


def _grad_of(node: ast.AST) -> str:
    """Return the variable whose gradient is read by *node*."""
    if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def _forgetting(name: str, thing: Any) -> str:
    """Return the statement that sets the gradients of *thing* to None; empty where it has none."""
    kinds = (loaded_type("torch.nn", "Module"), loaded_type("torch.optim", "Optimizer"))
    if any(kind is not None and is_kind_of(thing, kind) for kind in kinds):
        return f"{name}.zero_grad()"
    base: Any = loaded_type("torch", "Tensor")
    if is_tensor(thing) and base.is_leaf.__get__(thing) and base.requires_grad.__get__(thing):
        return f"{name}.grad = None"
    return ""


def _is_create_graph(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and any(word.arg == "create_graph" for word in node.keywords)
        for node in ast.walk(statement)
    )


_NEWEST = {
    "torch.Tensor": ("[-{n}:].clone()", "rows"), "numpy.ndarray": ("[-{n}:].copy()", "rows"),
    "pandas.core.frame.DataFrame": (".tail({n}).copy()", "rows"), "pandas.DataFrame": (".tail({n}).copy()", "rows"),
    "str": ("[-{n}:]", "characters"), "bytes": ("[-{n}:]", "bytes"), "tuple": ("[-{n}:]", "entries"),
    "list": ("[-{n}:]", "entries"),
}  # fmt: skip


def replaced_by_larger(case: Case) -> Iterator[Proposal]:
    """Yield how a variable that every run replaces by something longer keeps the newest part only."""
    store, held = case.store, case.held
    if case.leak.unit == "objects" or store is None or store.how not in ("name", "sum") or held is MISSING:
        return
    name = type_name(type(held))
    if name not in _NEWEST or last_name(store.container_text) != last_name(case.holder):
        return
    if (name == "list" and store.how == "sum") or not _refers_to_itself(store):
        return
    n_kept = rounded(case.leak.count_per_run / _size_of_row(held))
    suffix, what = _NEWEST[name]
    place = store.container_text
    patch = case.patch()
    patch.after(store.source, store.statement, [f"{place} = {place}{suffix.format(n=n_kept)}"])
    words = f"Keep only the newest {n_kept:,} {what} of `{place}`."
    yield from case.proposal(words, patch, emptied=(case.holder,))


def _size_of_row(held: Any) -> float:
    """Return how much one row of *held* counts where it is its bytes that are counted; 1 for text and entries."""
    if is_tensor(held):
        base: Any = loaded_type("torch", "Tensor")
        shape = base.size(held)
        return float(base.numel(held) * base.element_size(held) / max(shape[0], 1)) if len(shape) else 1.0
    if type_name(type(held)).startswith(("numpy.", "pandas.")):
        n_bytes = held.nbytes if hasattr(held, "nbytes") else held.memory_usage(deep=False).sum()
        return float(n_bytes / max(len(held), 1)) if held.shape else 1.0
    return 1.0


def _refers_to_itself(store: Store) -> bool:
    if store.how == "sum":
        return True
    wanted = store.container_text
    nodes = ast.walk(store.value) if store.value is not None else ()
    return any(isinstance(node, (ast.Name, ast.Attribute)) and store.source.text_of(node) == wanted for node in nodes)
