"""Parts of what is kept of each run that nothing reads, and that take the memory: they are left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leaklab.cure.case import Case, Store, name_of
from leaklab.cure.source import Proposal, SourceText
from leaklab.explain.idioms.containers import is_users_own
from leaklab.explain.idioms.windows import readers
from leaklab.heap.source_lines import sources_with

_GOING_THROUGH = frozenset({"min", "max", "sorted", "sum", "len", "enumerate", "reversed", "list", "zip", "any", "all"})
"""Functions that hand the entries to other code of the same text."""


def field_left_out(case: Case) -> Iterator[Proposal]:
    """Yield how what is kept of each run is stored without the part that takes the memory and that nothing reads.

    ``results.append({"lr": lr, "loss": loss, "model": model})``: the code reads the rates and the losses.
    """
    store = case.store
    if store is None or not isinstance(store.value, ast.Dict) or not is_users_own(case):
        return
    if any(_is_handed_on(source, node) for source, node in readers(case, store)):
        return
    for key, value in zip(store.value.keys, store.value.values, strict=True):
        if not isinstance(key, ast.Constant) or type(key.value) is not str:
            continue
        is_heavy = any(step.reference == f"[{key.value!r}]" for step in case.leak.path.steps)
        if not is_heavy or _is_read(case, store.source, key.value) or len(store.value.keys) == 1:
            continue
        patch = case.patch()
        patch.replace(store.source, store.value, _without(store, key, value))
        words = f"Leave `{key.value}` out of the entries of `{store.container_text}`: nothing reads it so far."
        yield from case.proposal(words, patch)


def _is_handed_on(source: SourceText, node: ast.expr) -> bool:
    """Return whether the container or one of its entries goes to code that may read all: ``pd.DataFrame(results)``."""
    part, above = node, source.parent(node)
    while isinstance(above, ast.Subscript) and above.value is part and not isinstance(above.slice, ast.Constant):
        part, above = above, source.parent(above)
    if isinstance(above, ast.Subscript) and above.value is part and isinstance(above.slice.value, int):  # type: ignore[attr-defined]  # a constant
        part, above = above, source.parent(above)
    if isinstance(above, ast.Call) and part in above.args:
        if name_of(above.func) not in _GOING_THROUGH:
            return True
        above = source.parent(above)  # `return min(results, key=...)`: one of them, as it is
    return isinstance(above, (ast.Return, ast.Yield))


def _mentions(text: str, word: str) -> int:
    try:
        nodes = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError):  # a cell with magics
        return text.count(word) + 1
    return sum(isinstance(node, ast.Constant) and node.value == word for node in nodes)


def _without(store: Store, key: ast.expr, value: ast.expr) -> str:
    """Return the dict that *store* stores as it is written, but for one pair."""
    source, whole = store.source, store.value
    if not isinstance(whole, ast.Dict):
        return ""
    begin, _end = source.span(whole)
    at = whole.values.index(value)
    first, last = source.span(key)[0], source.span(value)[1]
    following = whole.keys[at + 1] if at + 1 < len(whole.keys) else None
    if following is not None:
        last = source.span(following)[0]
    elif at:
        first = source.span(whole.values[at - 1])[1]
    text = source.text_of(whole)
    return text[: first - begin] + text[last - begin :]


def key_left_out(case: Case) -> Iterator[Proposal]:
    """Yield that what nothing reads is not stored under its key: ``trial.user_attrs["model"] = model``.

    What is stored is there already, so that nothing else is left undone.
    """
    keys = {step.reference for step in case.leak.path.steps}
    for source in case.sources:
        for node in source.nodes:
            target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
            key = target.slice if isinstance(target, ast.Subscript) else None
            if not isinstance(node, ast.Assign) or not isinstance(key, ast.Constant) or type(key.value) is not str:
                continue
            if f"[{key.value!r}]" not in keys or _is_read(case, source, key.value) or not _is_there(node.value):
                continue
            if _is_used_whole(case, name_of(target.value)):  # type: ignore[union-attr]  # a subscript
                continue
            patch = case.patch()
            patch.remove(source, node)
            words = f"Do not store `{key.value}` in `{source.text_of(target)}`: nothing reads it so far."  # type: ignore[arg-type]  # a subscript
            yield from case.proposal(words, patch)
            return


def _is_used_whole(case: Case, name: str) -> bool:
    """Return whether code may read all that is in what is called *name*: it is more than asked for a written key."""
    for source in case.sources:
        for node in source.nodes:
            is_it = isinstance(node, (ast.Name, ast.Attribute)) and name_of(node) == name
            if not is_it or not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]  # of both
                continue
            above = source.parent(node)
            is_item = isinstance(above, ast.Subscript) and above.value is node
            if not (is_item and isinstance(above.slice, ast.Constant)):  # type: ignore[union-attr]  # a subscript
                return True
    return False


def _is_there(value: ast.expr) -> bool:
    """Return whether *value* is a variable, or a collection of variables."""
    if isinstance(value, ast.Dict):
        return all(isinstance(one, (ast.Name, ast.Constant)) for one in value.values)
    if isinstance(value, (ast.List, ast.Tuple)):
        return all(isinstance(one, (ast.Name, ast.Constant)) for one in value.elts)
    return isinstance(value, ast.Name)


def _is_read(case: Case, where: SourceText, key: str) -> bool:
    """Return whether any code mentions *key* but the one place that stores it in *where*."""
    texts = {source.text for source in case.sources} | {text for _filename, text in sources_with(key)}
    return any(_mentions(text, key) > (text == where.text) for text in texts)
