"""Write an advice: what to change, the user's own line before and after, when not to, what it frees."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from leaklab.explain.evidence import Evidence
from leaklab.heap.source_lines import SourceLine
from leaklab.model import Leak
from leaklab.text import format_bytes, unit_words

PREDICTABLE = frozenset({
    "graph-kept", "tensor-kept", "hook-left", "global-cache", "container-growth", "closure-kept", "callback-registry",
    "run-switch", "optimizer-state", "traceback-kept", "notebook-history", "autograd-ctx", "deepcopy-kept",
})  # fmt: skip
"""Causes whose advice lets go of everything that the holder keeps, so that its retained bytes are what comes back."""
SLOWING = frozenset({
    "graph-kept", "hook-left", "container-growth", "global-cache", "callback-registry", "tensor-kept", "closure-kept",
    "optimizer-state",
})  # fmt: skip
"""Causes under which each run walks, calls or copies what the runs before it left."""
_SPREADING = re.compile(r"\.(extend|extendleft|update|writelines)\s*\(")
_PRIMARY = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_OPERATORS = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Await)
HEAD_OF_GRAPH = ".grad_fn"
"""How a tensor refers to its graph."""
_POSITION = re.compile(r"\[\d+\]")
_IN_PLACE = "graph nodes"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to change.

    Attributes:
        text: One to three sentences, in the user's own names.
        before: The line as it is, or as such a line looks; shown only together with *after*.
        after: The same line changed, or where *before* is empty a line to add; several are separated by a line break.
        unless: When the change would be wrong; a sentence.
    """

    text: str
    before: str = ""
    after: str = ""
    unless: str = ""

    def write(self) -> str:
        """Return the advice as text: sentences, and code indented by four blanks."""
        lines = [self.text]
        if self.before and self.after:
            lines.append(f"    before: {self.before}")
        if self.after:
            first, *more = self.after.splitlines()
            lines.append(f"    {'after:' if self.before else 'add:  '}  {first}")
            lines += [f"            {line}" for line in more]
        if self.unless:
            lines.append(self.unless)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause by its slug, and the advice for this case."""

    slug: str
    plan: Advice

    @property
    def advice(self) -> str:
        """The advice as text."""
        return self.plan.write()


def with_effect(leak: Leak, slower: float | None = None) -> Leak:
    """Return *leak* with last sentences in its advice: that runs get slower by it, and what the change frees.

    Args:
        leak: Its own figures are used; without retained bytes, or where the cure is not to let go, nothing is said of
            what comes back.
        slower: How many times as long the last runs took as the first; None if they did not get slower.
    """
    if not leak.advice:
        return leak
    lines = [leak.advice]
    if slower is not None and leak.cause in SLOWING:
        lines.append(f"The runs get slower as it grows: {slower:.1f} times as long at the end as at the start.")
    if leak.cause in PREDICTABLE and leak.retained_bytes:
        lines.append(_effect_words(leak, leak.retained_bytes))
    return replace(leak, advice="\n".join(lines))


def _effect_words(leak: Leak, retained_bytes: int) -> str:
    n_kept = sum(leak.kept)
    what = ""
    if leak.unit == "objects" and n_kept > 0:
        what = f" ({unit_words(n_kept, leak.unit)} that {unit_words(len(leak.kept), 'runs')} left)"
    rate = unit_words(10 * leak.count_per_run, leak.unit)
    if leak.bytes_per_run > 0:
        rate = f"{rate}, {format_bytes(10 * leak.bytes_per_run)}"
    return f"Letting go of it frees {format_bytes(retained_bytes)}{what}; every 10 runs it keeps {rate} more."


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
