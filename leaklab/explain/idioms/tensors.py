"""Tensors that are stored, copies of a whole object, links to what earlier runs made."""

from __future__ import annotations

import ast
import itertools
import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leaklab.cure.case import Case, Store
from leaklab.cure.edits import local_names, own_names
from leaklab.cure.live import MISSING, attribute, evaluate, newest
from leaklab.cure.source import Patch, Proposal, SourceText
from leaklab.explain.idioms.advice import Advice, clearing, is_users, named, place_words, written
from leaklab.explain.leaks.evidence import Evidence, is_view
from leaklab.model import Status
from leaklab.runtime.autograd_graph import has_graph
from leaklab.runtime.containers import entries_in, first_items, item_at, items_in, values_in
from leaklab.runtime.objects import (
    class_attribute,
    has_base,
    is_exactly,
    is_kind_of,
    is_tensor,
    loaded_type,
    module_dict,
    no_torch_functions,
)
from leaklab.runtime.ours import Origin, origin_of

_OF_STATE = re.compile(r"\['([\w.]+\.)?(weight|bias|running_mean|running_var)'\]")
_CONTAINERS = frozenset({"list", "dict", "set", "tuple", "collections.deque", "collections.OrderedDict"})
_ATTRIBUTE = re.compile(r"\.[^\W\d]\w*")
_MOST_ITEMS = 100


def tensor_kept(e: Evidence) -> Advice | None:
    """A tensor is stored and never taken out."""
    if not e.has_tensors or e.crossing is None:
        return None
    if e.crossing.kind in ("attribute", "slot"):
        return _linked(e)
    if e.facts.is_scalar:
        return Advice(
            f"{place_words(e)} keeps a tensor of one number for every run. Store the number itself (`.item()`).",
            "Not if backward() is still to be called on it.",
        )
    if any(step.reference.startswith(("key <torch.", "[<torch.")) for step in e.steps_above[-1:]):
        return Advice(
            f"{place_words(e)} has tensors as keys. Tensor keys are compared by identity, so a new tensor is never "
            "found there again, and every run adds an entry. Use a key that repeats (a name, a shape, a number), or "
            f"empty it when it has been used{clearing(e)}.",
            also=("global-cache",),
        )
    if _is_state_dict(e):
        return Advice(
            f"{place_words(e)} keeps the weights of a model (a `state_dict`) from every run. Keep only the best or "
            f"the newest, or write each to a file with `torch.save`; or empty it after use{clearing(e)}.",
            "Not if all of them are compared at the end.",
            also=("state-dict-copies",),
        )
    part = ""
    if e.facts.are_views:
        part = (
            " Each is a part of a far larger tensor, and keeps all of that in memory: store a copy of the part "
            "(`.clone()`)."
        )
    return Advice(
        f"{place_words(e)} keeps the tensors of every run.{part} Store only the numbers that are needed, keep only "
        f"the newest entries, or empty it after use{clearing(e)}.",
        "Not if all of them are needed together at the end; then move them off the accelerator (`.cpu()`), and let go "
        "of them after use.",
    )


def _is_state_dict(e: Evidence) -> bool:
    """Return whether what is stored is what ``state_dict()`` returns, or a copy of that."""
    pairs = zip(e.path.steps[e.n_to_holder :], e.path.steps[e.n_to_holder + 1 :], strict=False)
    return any(
        owner.kind in {"collections.OrderedDict", "dict"} and _OF_STATE.fullmatch(held.reference)
        for owner, held in pairs
    )


def _linked(e: Evidence) -> Advice:
    """An attribute leads to what earlier runs made: to the one before, or to a collection that is made anew."""
    if e.entry_kinds and e.entry_kinds <= _CONTAINERS:
        return Advice(
            f"Every run leaves more tensors in {named(e.place)}. Keep only the newest of them, or set it to an empty "
            "one when they have been used.",
            "Not if all of them are needed together at the end.",
        )
    how = f": `{written(e.place)} = None`" if is_users(e) else ""
    return Advice(
        f"{named(e.place)} links to the objects of earlier runs, each to the previous one. Cut the link when it is no "
        f"longer needed{how}.",
        "Not while something still walks back along these links.",
    )


def deepcopy_kept(e: Evidence) -> Advice | None:
    """Copies of one object that was there before: the metric that is deep-copied for every batch."""
    original = e.facts.original
    if not original or (e.in_cycle and e.cycle_is_hidden):
        return None
    where = "a reference cycle of each copy with itself" if e.in_cycle else place_words(e)
    waiting = (
        " The copies are cyclic garbage, which waits for a collection that is switched off here: gc.collect() frees "
        "them."
        if e.gc_is_off
        else ""
    )
    keep = f" Keep only the newest or best of them, or let go of them when they have been used{clearing(e)};"
    return Advice(
        f"Every run leaves a copy of {named(original)} behind, kept by {where}.{waiting}"
        f"{'' if e.in_cycle else keep} {'Copy' if e.in_cycle else 'or copy'} the values that are needed, not the whole "
        "object.",
        "Not if the copies are meant to live side by side, as an ensemble does.",
    )


def link_cut(case: Case) -> Iterator[Proposal]:
    """Yield how an object that each run makes lets go of the one of the run before: ``root.parent = None``.

    The objects must be of one class, and the newest a variable or an attribute of one. What is called needs the one
    below that it wraps, and what a library has under a name of its own is used there: neither is cut.
    """
    link = _link(case)
    if not link or class_attribute(type(case.held), "__call__") is not None or _is_of_library(case):
        return
    place = f"{case.holder}{link}"
    words = f"At the end of each run, cut `{place}`: it links to the objects of all earlier runs."
    yield from case.at_end(words, f"{place} = None")


def wrapped_once(case: Case) -> Iterator[Proposal]:
    """Yield how a run that wraps what the run before has wrapped, ``opt = prepare(opt)``, wraps what is inside.

    The objects must be of one class, each with the one before in an attribute that it calls: in a chain of data the
    one before is no inside.
    """
    for source in case.sources if case.cell is not None else ():
        for node in source.nodes:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            function = source.function_of(node)
            is_of_run = source is case.cell if function is None else _is_programs(node.targets[0], function)
            if not is_of_run:
                continue
            place = source.text_of(node.targets[0])
            inside = [one for one in node.value.args if source.text_of(one) == place]
            link = _inner(evaluate(place, case.program.namespace), case)
            if len(inside) != 1 or not link or not _is_called_through(case, link):
                continue
            if kind := _class_in_words(case, source, node, place):
                words = f"Wrap `{place}` once: only where it is no `{kind}` yet."
                yield from case.under(words, source, node, f"if not isinstance({place}, {kind}):")
            words = f"Wrap what is inside `{place}`, not what the run before has wrapped already."
            yield from case.instead(words, source, inside[0], f'getattr({place}, "{link}", {place})')


def _class_in_words(case: Case, source: SourceText, statement: ast.Assign, place: str) -> str:
    """Return the class of what *place* is, as the notebook writes it; empty where to wrap once would not be the same.

    A wrapper may have learned something, which the next one would begin anew. Where another argument differs by run,
    or it has been wrapped once already before the first run, each run is to have its own.
    """
    call, kind = statement.value, type(evaluate(place, case.program.namespace))
    others = [one for one in getattr(call, "args", []) if source.text_of(one) != place]
    others += [word.value for word in getattr(call, "keywords", [])]
    changing = case.bound_in_run() | local_names(source.function_of(statement))
    is_same = all(isinstance(one, ast.Constant) or getattr(one, "id", None) not in {None, *changing} for one in others)
    outside = (node for one in case.sources for node in one.tree.body if node is not statement)
    begun = (node for node in outside if isinstance(node, ast.Assign))
    is_wrapped = any(
        ast.unparse(node.targets[0]) == place and kind.__name__ in ast.unparse(node.value) for node in begun
    )
    is_known = evaluate(kind.__name__, case.program.namespace) is kind
    is_notebooks = kind.__module__ == case.program.namespace.get("__name__")
    return kind.__name__ if is_known and is_notebooks and is_same and not is_wrapped else ""


def _is_programs(place: ast.expr, function: ast.AST) -> bool:
    """Return whether no name in *place*, which *function* sets, is a variable of its own."""
    names = {node.id for node in ast.walk(place) if isinstance(node, ast.Name)}
    return names.isdisjoint(own_names(function))


def _is_called_through(case: Case, link: str) -> bool:
    """Return whether code calls what is in the attribute *link*, or a method of that."""
    calls = (node for source in case.sources for node in source.nodes if isinstance(node, ast.Call))
    inside = (node for call in calls for node in ast.walk(call.func) if isinstance(node, ast.Attribute))
    return any(node.attr == link for node in inside)


def _inner(outer: object, case: Case) -> str:
    """Return the attribute in which *outer* has another object of its class, and which is on the path; else empty."""
    for step in case.leak.path.steps:
        name = step.reference[1:] if _ATTRIBUTE.fullmatch(step.reference) else ""
        found = attribute(outer, name) if name and outer is not MISSING else MISSING
        if found is not MISSING and type(found) is type(outer):
            return name
    return ""


def _is_of_library(case: Case) -> bool:
    owner = case.program.namespace[case.holder.partition(".")[0]]
    if not is_kind_of(owner, types.ModuleType):
        return False
    filename = (module_dict(owner) or {}).get("__file__")
    return type(filename) is not str or origin_of(filename) is not Origin.USER


def _link(case: Case) -> str:
    """Return the attribute that leads to the object before, ``.parent``; empty if there is none."""
    if not case.is_variable or case.holder.endswith(("]", ")")):
        return ""
    steps = case.leak.path.steps
    for owner, held in itertools.pairwise(steps):
        is_first = held.status is Status.LEAKED and owner.status is not Status.LEAKED
        if is_first and owner.kind == held.kind and _ATTRIBUTE.fullmatch(held.reference):
            before = attribute(case.held, held.reference[1:])
            return held.reference if before is not MISSING and type(before) is type(case.held) else ""
    return ""


@dataclass(frozen=True)
class Detachment:
    """How to write the stored expression so that nothing of a run stays in it.

    Attributes:
        pieces: Each part of it and what to write there instead.
        numbers: Whether all tensors of it become numbers; otherwise some stay, without their graph or copied.
        words: What is stored then.
    """

    pieces: tuple[tuple[ast.expr, str], ...]
    numbers: bool
    words: str

    def of_tensors(self) -> Detachment:
        """Return the same where the code calls methods of tensors on what is stored: no number has these."""
        pieces = tuple((node, ".detach()".join(text.rsplit(".item()", 1))) for node, text in self.pieces)
        return Detachment(pieces, numbers=False, words="the values without their graph")

    def apply(self, patch: Patch, store: Store) -> None:
        """Write the pieces."""
        for node, text in self.pieces:
            patch.replace(store.source, node, text)


def cut_of(case: Case, store: Store) -> Detachment | None:
    """Return how to cut what *store* stores; None where that is not known, or nothing of it is a tensor to be cut."""
    if store.value is None:
        return None
    value, node = _stored(case, store), store.value
    if value is MISSING:
        return None
    with no_torch_functions():
        pieces = list(_pieces(store, node, value, is_entry=store.how == "many"))
    if not pieces or any(piece is None for piece in pieces):
        return None
    sure = [piece for piece in pieces if piece is not None]
    written = tuple((node, text) for node, text, _ in sure)
    numbers = all(is_number for *_, is_number in sure)
    is_copied = not any(".detach()" in text for _, text in written)
    words = "only the number" if numbers else "copies of the part" if is_copied else "the values without their graph"
    return Detachment(written, numbers, words)


def _stored(case: Case, store: Store) -> Any:
    """Return the object that was stored last."""
    held = case.held
    if held is MISSING or store.how == "name":
        return held
    if store.how == "sum":
        return newest(held) if has_base(type(held), list) else held
    return newest(held)


Piece = tuple[ast.expr, str, bool]


def _pieces(store: Store, node: ast.expr, value: Any, *, is_entry: bool = False) -> Iterator[Piece | None]:
    """Yield the changes to *node*, whose value was *value*; None for one that would be needed and cannot be written.

    With *is_entry* the value is one of those that *node*, a collection, has put there.
    """
    if is_entry:
        inner = _one_item(node)
        if inner is not None:
            yield from _pieces(store, inner, value)
        elif is_tensor(value) and _is_worth(value):
            call, is_number = _call_for([value])
            yield node, f"[item{call} for item in {store.source.text_of(node)}]", is_number
        return
    if is_tensor(value):
        if _is_worth(value):
            call, is_number = _call_for([value])
            yield node, f"{store.source.operand(node)}{call}", is_number
        return
    if not _holds_tensors(value):
        return
    parts = _parts(node, value)
    if parts is None:
        yield _whole(store, node, value)
        return
    for part, below in parts:
        yield from _pieces(store, part, below)


def _parts(node: ast.expr, value: Any) -> Sequence[tuple[ast.expr, Any]] | None:
    """Return the expressions that *node* is made of, each with its value; None where it shows none."""
    if isinstance(node, ast.Dict) and type(value) is dict:
        keys = [key.value if isinstance(key, ast.Constant) else MISSING for key in node.keys]
        rest = {key: below for key, below in value.items() if key not in keys}
        known = [
            (part, rest if key is None else value.get(name, MISSING))
            for key, name, part in zip(node.keys, keys, node.values, strict=True)
        ]
        return known if all(below is not MISSING for _, below in known) and node.keys.count(None) <= 1 else None
    if isinstance(node, (ast.List, ast.Tuple)) and is_exactly(value, (list, tuple)) and len(node.elts) == len(value):
        is_plain = not any(isinstance(item, ast.Starred) for item in node.elts)
        return list(zip(node.elts, items_in(value), strict=True)) if is_plain else []
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and is_exactly(value, (list, tuple)) and value:
        return [(node.elt, item_at(value, 0))]
    if isinstance(node, ast.DictComp) and type(value) is dict and value:
        return [(node.value, inner) for _, inner in entries_in(value, 1)]
    if isinstance(node, ast.Call) and not node.args and all(word.arg for word in node.keywords):
        is_dict = isinstance(node.func, ast.Name) and node.func.id == "dict" and type(value) is dict
        fields = value if is_dict else _fields(value)
        known = [(word.value, fields.get(word.arg or "", MISSING)) for word in node.keywords]
        return known if all(below is not MISSING for _, below in known) else None
    if isinstance(node, ast.Call) and type(value) is not dict:
        names = getattr(type(value), "__match_args__", ())
        fields = _fields(value)
        if type(names) is tuple and len(node.args) <= len(names):
            known = [(part, fields.get(name, MISSING)) for part, name in zip(node.args, names, strict=False)]
            known += [(word.value, fields.get(word.arg or "", MISSING)) for word in node.keywords]
            return known if all(below is not MISSING for _, below in known) else None
    return None


def _fields(value: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        names = getattr(type(value), "_fields", ())
        is_named = has_base(type(value), tuple) and type(names) is tuple
        return dict(zip(names, items_in(value), strict=False)) if is_named else {}
    return found if type(found) is dict else {}


def _whole(store: Store, node: ast.expr, value: Any) -> Piece | None:
    """Return the change of a name or call that stands for a whole collection of tensors."""
    text = store.source.operand(node)
    if type(value) is dict or type(value).__name__ == "OrderedDict":
        tensors = values_in(value)
        if all(is_tensor(one) for one in tensors):
            call, is_number = _call_for(tensors)
            return node, f"{{name: tensor{call} for name, tensor in {text}.items()}}", is_number
    if is_exactly(value, (list, tuple)) and all(map(is_tensor, tensors := items_in(value))):
        call, is_number = _call_for(tensors)
        inner = f"tensor{call} for tensor in {text}"
        return node, f"[{inner}]" if type(value) is list else f"tuple({inner})", is_number
    return None


def _call_for(tensors: Sequence[Any]) -> tuple[str, bool]:
    """Return what to call on each of *tensors*, and whether that gives numbers.

    A slice of a far larger tensor keeps all of that: it is copied.
    """
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions():
        if all(base.numel(one) == 1 for one in tensors):
            return ".item()", True
    carries = any(has_graph(one) for one in tensors)
    return (".detach()" if carries else "") + (".clone()" if any(is_view(one) for one in tensors) else ""), False


def _is_worth(tensor: Any) -> bool:
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions():
        is_parameter = base.is_leaf.__get__(tensor) and base.requires_grad.__get__(tensor)
        return not is_parameter and bool(base.numel(tensor) == 1 or has_graph(tensor) or is_view(tensor))


def _holds_tensors(value: Any) -> bool:
    below: Any
    if has_base(type(value), dict):
        below = [inner for _, inner in entries_in(value, _MOST_ITEMS)]
    elif is_exactly(value, (list, tuple)) or has_base(type(value), tuple):
        below = first_items(value, _MOST_ITEMS)
    else:
        below = list(_fields(value).values())[:_MOST_ITEMS]
    return any(
        (is_tensor(one) and _is_worth(one)) or (is_exactly(one, (dict, list, tuple)) and _holds_tensors(one))
        for one in below
    )


def _one_item(node: ast.expr) -> ast.expr | None:
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        return node.elt
    if isinstance(node, ast.DictComp):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)) and len(node.elts) == 1:
        return node.elts[0]
    if isinstance(node, ast.Dict) and len(node.values) == 1:
        return node.values[0]
    return None
