"""Store numbers or values without their graph: every leaking value of the expression that is stored."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leaklab.cure.case import Case, Store
from leaklab.cure.live import MISSING, newest
from leaklab.cure.source import Patch
from leaklab.runtime.containers import entries_in, first_items, item_at, items_in, values_in
from leaklab.runtime.objects import has_base, is_exactly, is_tensor, loaded_type, no_torch_functions

_PRIMARY = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_MOST_ITEMS = 100


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

    def apply(self, patch: Patch, store: Store) -> None:
        """Write the pieces."""
        for node, text in self.pieces:
            patch.replace(store.source, node, text)


def cut_of(case: Case, store: Store) -> Detachment | None:
    """Return how to cut what *store* stores; None where that cannot be told, or nothing of it is a tensor to be cut."""
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
            yield node, f"{_in_brackets(store, node)}{call}", is_number
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
        known = [(part, value.get(key, MISSING)) for key, part in zip(keys, node.values, strict=True)]
        return known if all(below is not MISSING for _, below in known) else None
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
    text = _in_brackets(store, node)
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


def has_graph(tensor: Any) -> bool:
    """Return whether *tensor* was computed and carries its graph."""
    base: Any = loaded_type("torch", "Tensor")
    return base.grad_fn.__get__(tensor) is not None


def is_view(tensor: Any) -> bool:
    """Return whether the storage of *tensor* is at least twice as large as what it shows."""
    base: Any = loaded_type("torch", "Tensor")
    try:
        with no_torch_functions():
            return bool(base.untyped_storage(tensor).nbytes() >= 2 * base.numel(tensor) * base.element_size(tensor))
    except (RuntimeError, NotImplementedError):  # a tensor without a storage of its own
        return False


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


def _in_brackets(store: Store, node: ast.expr) -> str:
    text = store.source.text_of(node)
    return text if isinstance(node, _PRIMARY) else f"({text})"
