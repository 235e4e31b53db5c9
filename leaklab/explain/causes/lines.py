"""Put the user's own line into an advice, changed where it stores too much."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from leaklab.explain.leaks.evidence import Evidence
from leaklab.explain.leaks.user_lines import SourceLine

_SPREADING = re.compile(r"\.(extend|extendleft|update|writelines)\s*\(")
_PRIMARY = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_OPERATORS = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Await)
HEAD_OF_GRAPH = ".grad_fn"
"""How a tensor refers to its graph."""
_POSITION = re.compile(r"\[\d+\]")
_IN_PLACE = "graph nodes"


def line_words(e: Evidence) -> str:
    """Return a sentence that names the line which puts things there; empty where none is known."""
    return f" The line that does it: {e.facts.line.place}." if e.facts.line is not None else ""


def changed_line(e: Evidence, call: str, before: str, after: str) -> tuple[str, str]:
    """Return the user's line and the same with *call* on the tensor that it stores.

    In a display or a call of several things the path says which of them is meant: ``['loss']`` below the entry is the
    value of that key. Where the line is not known, or does not say which part of it is stored, *before* and *after*.
    """
    line = e.facts.line
    changed = _changed(line, _below(e), call, is_sum=e.unit == _IN_PLACE) if line is not None else None
    return (before, after) if line is None or changed is None else (line.text, changed)


def _below(e: Evidence) -> Sequence[str]:
    """Return the references from what the holder refers to down to the leaked tensor.

    A holder that is a tensor itself has only let its graph leak: it is what the line stores.
    """
    if e.n_above and e.path.steps[e.n_above - 1].reference == HEAD_OF_GRAPH:
        return ()
    return [step.reference for step in e.path.steps[e.n_above :]]


def _changed(line: SourceLine, below: Sequence[str], call: str, *, is_sum: bool) -> str | None:
    """Return the statement of *line* with *call* on the stored tensor; None where that cannot be told."""
    if not line.added:
        return None
    try:
        added = ast.parse(line.added, mode="eval").body
    except (SyntaxError, ValueError):  # a statement that was cut out of its lines
        return None
    is_spread = _SPREADING.search(line.text) is not None or (not is_sum and _is_augmented(line.text))
    target = _one_of(added) if is_spread else added
    for reference in below:
        target = None if target is None else _part(target, reference)
    if not isinstance(target, (*_PRIMARY, *_OPERATORS)):
        return None
    if is_spread and target is added:  # a whole collection by its name
        return None
    return line.with_added(_with_call(line.added, target, call))


def _is_augmented(statement: str) -> bool:
    try:
        return any(isinstance(node, ast.AugAssign) for node in ast.parse(statement).body)
    except (SyntaxError, ValueError):
        return False


def _one_of(node: ast.expr) -> ast.expr | None:
    """Return the one item that the collection *node* is made of; None for several, or none that can be seen."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return node.elt
    if isinstance(node, ast.Dict):
        return node.values[0] if len(node.values) == 1 and node.keys[0] is not None else None
    if isinstance(node, (ast.List, ast.Tuple)):
        return node.elts[0] if len(node.elts) == 1 else None
    return None


def _part(node: ast.expr, reference: str) -> ast.expr | None:
    """Return the part of *node* that becomes what the object it makes refers to by *reference*."""
    if isinstance(node, ast.Dict):
        keyed = zip(node.keys, node.values, strict=True)
        found = [value for key, value in keyed if isinstance(key, ast.Constant) and f"[{key.value!r}]" == reference]
        return found[-1] if found and None not in node.keys else None
    if isinstance(node, (ast.List, ast.Tuple)):
        if any(isinstance(item, ast.Starred) for item in node.elts):
            return None
        return next((item for number, item in enumerate(node.elts) if f"[{number}]" == reference), None)
    if isinstance(node, ast.ListComp):
        return node.elt if _POSITION.fullmatch(reference) else None
    if isinstance(node, ast.Call):
        is_dict = isinstance(node.func, ast.Name) and node.func.id == "dict"
        named = {f"[{word.arg!r}]" if is_dict else f".{word.arg}": word.value for word in node.keywords}
        return named.get(reference)
    return None


def _with_call(source: str, node: ast.expr, call: str) -> str:
    """Return *source*, one line, with *call* behind *node*, which gets brackets where it needs them."""
    encoded = source.encode()  # the offsets of ast count bytes
    start, end = node.col_offset, node.end_col_offset
    words = encoded[start:end].decode()
    words = words if isinstance(node, _PRIMARY) else f"({words})"
    return f"{encoded[:start].decode()}{words}{call}{encoded[end:].decode()}"
