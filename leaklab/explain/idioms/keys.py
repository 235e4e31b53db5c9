"""The key under which a run stores: what of it is new in every run, and makes no difference to what is stored."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from leaklab.cure.case import Case, Store, last_name
from leaklab.cure.source import Proposal, SourceText
from leaklab.runtime.containers import items_in, newest_pairs
from leaklab.runtime.objects import has_base, is_exactly, is_tensor, loaded_type, no_torch_functions, type_name

_N_SAMPLED = 64
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_LARGEST = 1_000_000
"""Tensors and arrays of more elements are not compared."""


def key_stays(case: Case) -> Iterator[Proposal]:
    """Yield how a key loses the part that no two runs have in common: ``(epoch, i)`` becomes ``i``.

    Only where what is stored is the same for all keys that differ in that part alone, as it is in a cache that never
    finds anything again: whoever looks a key up gets what would be made anew.
    """
    store, held = case.store, case.held
    if store is None or not has_base(type(held), dict):
        return
    node = _key_of(store, case.name)
    parts = [] if node is None else _parts_of(node)
    if node is None or not parts or len(parts) == 1 or not _is_known_here_only(case, store, node):
        return
    pairs = newest_pairs(held, _N_SAMPLED)
    rows = [row for key, _value in pairs if (row := _split(node, key))]
    if len(rows) < len(pairs):
        return
    for at, part in enumerate(parts):
        if _makes_no_difference(rows, [value for _key, value in pairs], at):
            patch, new = case.patch(), _without(store.source, node, at)
            for one in _alike(store.source, node):
                patch.replace(store.source, one, new)
            what = store.source.text_of(part)
            words = f"Leave `{what}` out of the key: the stored value is the same without it, and is then found again."
            yield from case.proposal(words, patch)
            return


def _key_of(store: Store, name: str) -> ast.Tuple | ast.JoinedStr | None:
    """Return the text of the key that *store* writes into what is called *name*, also where it has a variable."""
    targets = store.statement.targets if isinstance(store.statement, ast.Assign) else []
    found = [one.slice for one in targets if isinstance(one, ast.Subscript)]
    calls = (node for node in ast.walk(store.statement) if isinstance(node, ast.Call))
    found += [
        call.args[0]
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "setdefault" and call.args
        if last_name(store.source.text_of(call.func.value)) == name
    ]
    key: ast.expr | None = found[0] if found else None
    if isinstance(key, ast.Name):
        scope = store.source.function_of(store.statement) or store.source.tree
        named = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == key.id
        ]
        key = named[0].value if len(named) == 1 else None
    return key if isinstance(key, (ast.Tuple, ast.JoinedStr)) else None


def _parts_of(node: ast.Tuple | ast.JoinedStr) -> list[ast.expr]:
    if isinstance(node, ast.Tuple):
        return [] if any(isinstance(one, ast.Starred) for one in node.elts) else node.elts
    return [one.value for one in node.values if isinstance(one, ast.FormattedValue)]


def _split(node: ast.Tuple | ast.JoinedStr, key: Any) -> tuple[Any, ...]:
    """Return the parts of a live *key* that *node* has written; empty if it has not."""
    if isinstance(node, ast.Tuple):
        parts = items_in(key) if type(key) is tuple else []
        is_plain = len(parts) == len(node.elts) and all(is_exactly(one, _PLAIN) for one in parts)
        return tuple(parts) if is_plain else ()
    pattern = "".join(
        "(.*?)" if isinstance(one, ast.FormattedValue) else re.escape(str(ast.literal_eval(one))) for one in node.values
    )
    found = re.fullmatch(pattern, key, re.DOTALL) if type(key) is str else None
    return () if found is None else found.groups()


def _makes_no_difference(rows: Sequence[tuple[Any, ...]], values: Sequence[Any], at: int) -> bool:
    """Return whether the keys go into groups that differ in the part *at* alone, each with the same value."""
    groups: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
    for row, value in zip(rows, values, strict=True):
        groups.setdefault(row[:at] + row[at + 1 :], []).append((row[at], value))
    # The oldest ones of a sample may be the rest of a run.
    repeated = [group for group in groups.values() if len(group) > 1]
    return len(repeated) > len(groups) / 2 and all(
        one[0] != other[0] and _are_equal(one[1], other[1])
        for group in repeated
        for one, other in itertools.pairwise(group)
    )


def _are_equal(one: Any, other: Any) -> bool:
    """Return whether two values are data and the same, running no code of the user's."""
    if type(one) is not type(other):
        return False
    if is_exactly(one, _PLAIN):
        return bool(one == other)
    if is_exactly(one, (list, tuple)):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    tensor: Any = loaded_type("torch", "Tensor")
    if is_tensor(one) and type(one) is tensor:
        with no_torch_functions():
            return bool(one.numel() <= _LARGEST and one.shape == other.shape and (one == other).all())
    if type_name(type(one)) == "numpy.ndarray" and one.size <= _LARGEST and one.dtype.kind in "biufcSU":
        return bool(one.shape == other.shape and (one == other).all())
    return False


def _without(source: SourceText, node: ast.Tuple | ast.JoinedStr, at: int) -> str:
    """Return the text of *node* without its part *at*."""
    if isinstance(node, ast.Tuple):
        left = [source.text_of(one) for number, one in enumerate(node.elts) if number != at]
        return left[0] if len(left) == 1 else f"({', '.join(left)})"
    formatted = [one for one in node.values if isinstance(one, ast.FormattedValue)]
    return ast.unparse(ast.JoinedStr([one for one in node.values if one is not formatted[at]]))


def _alike(source: SourceText, node: ast.expr) -> Iterator[ast.expr]:
    """Yield *node* and what is written like it in the same function: the same key."""
    function = source.function_of(node)
    for one in ast.walk(function or source.tree):
        if isinstance(one, type(node)) and source.function_of(one) is function and ast.dump(one) == ast.dump(node):
            yield one


def _is_known_here_only(case: Case, store: Store, node: ast.expr) -> bool:
    """Return whether no other function writes, or takes apart, a key of that dict."""
    name, function = last_name(store.container_text), store.source.function_of(node)
    for source in case.sources:
        for one in source.nodes:
            if not isinstance(one, (ast.Name, ast.Attribute)) or last_name(source.text_of(one)) != name:
                continue
            if not isinstance(one.ctx, ast.Load) or source.function_of(one) is function:
                continue
            above = source.parent(one)
            is_asked = isinstance(above, ast.Attribute) and above.attr in ("clear", "values", "__len__")
            is_counted = isinstance(above, ast.Call) and source.text_of(above.func) == "len"
            if not (is_asked or is_counted):
                return False
    return True
