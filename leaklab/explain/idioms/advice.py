"""Write an advice: what to change, in words and in the user's own names; when not to; what it frees.

Only a change that was tried is shown as code (`leaklab.cure`). What stands here was not, so it is said in words: it
names the object that keeps, the line that puts things there, and calls that the object has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from leaklab.explain.leaks.evidence import Evidence
from leaklab.explain.leaks.ownership import Owner
from leaklab.heap.nodes import VARIABLE_WORDS
from leaklab.model import Leak
from leaklab.model.check import GRAPH_UNIT
from leaklab.model.sentences import shortened
from leaklab.text import format_rate

SLOWING = frozenset({
    "graph-kept", "hook-left", "container-growth", "global-cache", "callback-registry", "tensor-kept", "closure-kept",
    "optimizer-state",
})  # fmt: skip
"""Causes under which each run walks, calls or copies what the runs before it left."""
NAMESPACE = "globals()"
"""The holder of what is a variable itself."""
HEAD_OF_GRAPH = ".grad_fn"
"""How a tensor refers to its graph."""
_WRAPPED = re.compile(r"\.(forward|step|backward|__call__)$")
"""A method that runs call, and that holds one layer more after each."""
_CLEARED = frozenset({
    "list", "dict", "set", "collections.deque", "collections.OrderedDict", "collections.defaultdict",
    "xml.etree.ElementTree.Element",
})  # fmt: skip
_NO_COLLECTIONS = (")", "._modules", "._parameters", "._buffers")
"""The ends of holders that nobody empties: what a call returns, and the tables that a module consists of."""
_PRIVATE = re.compile(r"(^|\.)_[^_\W]")
_INTERNAL = re.compile(r"\.__\w+__\b|\.cell_contents$")
_OF_FUNCTION = re.compile(r"(closure variable|default of) '(\w+)' of (.+)")
_ATTRIBUTE = re.compile(r"\.__dict__\['([^\W\d]\w*)'\]")


@dataclass(frozen=True, slots=True)
class Advice:
    """What to change.

    Attributes:
        text: One to four sentences, in the user's own names.
        unless: When the change would be wrong; a sentence.
        also: Slugs of what else is so, beside the cause.
    """

    text: str
    unless: str = ""
    also: tuple[str, ...] = ()

    def write(self) -> str:
        """Return the advice as text."""
        return "\n".join(filter(None, (f"{self.text[:1].upper()}{self.text[1:]}", self.unless)))


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause by its slug, the advice for this case, and the slugs of what else is so."""

    slug: str
    plan: Advice
    also: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """The advice as text."""
        return self.plan.write()


def with_effect(leaks: Sequence[Leak], slower: float | None = None, n_runs: int = 0) -> list[Leak]:
    """Return *leaks* with a last sentence in the advice of those by which runs get slower.

    What every run calls or walks, the hooks and the graph that runs add to, slows it for certain: where one of these
    grows, none of the others is blamed, however large. Where something is only kept, it may be read again by each run.

    Args:
        leaks: Their causes decide which of them can be what slows the runs.
        slower: How many times as long the last runs took as the first; None if they did not get slower.
        n_runs: How many runs there were; 0 leaves out by how much one run is slower than the one before.
    """
    blamed = [[leak.fingerprint for leak in leaks if is_one(leak)] for is_one in (_is_run_again, _may_be_read_again)]
    chosen = next(filter(None, blamed), [])
    if slower is None or not chosen:
        return list(leaks)
    # The figures are those of the middle of the last and of the first third.
    share = 100 * (slower - 1) / (n_runs * 2 / 3) if n_runs else 0.0
    each = f", and each run adds {format_rate(share)} % of the first runs' time" if share else ""
    words = f"The runs get slower as it grows: the last ones took {slower:.1f} times as long as the first ones{each}."
    return [
        replace(leak, advice=f"{leak.advice}\n{words}") if leak.advice and leak.fingerprint in chosen else leak
        for leak in leaks
    ]


def _is_run_again(leak: Leak) -> bool:
    return leak.cause == "hook-left" or leak.unit == GRAPH_UNIT or bool(_WRAPPED.search(leak.holder))


def _may_be_read_again(leak: Leak) -> bool:
    return leak.cause in SLOWING


def with_line(advice: str, place: str, does: str = "keeps it") -> str:
    """Return *advice* with a sentence at the end of its first line that names the line of the user's code."""
    first, *more = advice.splitlines() or [""]
    return "\n".join((f"{first} The line that {does}: {place}.", *more)) if first and place else advice


def written(expression: str) -> str:
    """Return *expression* as people type it: ``h.cache`` for ``h.__dict__['cache']``."""
    return _ATTRIBUTE.sub(r".\1", expression)


def is_expression(holder: str) -> bool:
    """Return whether *holder* is Python, not words for something that Python has no way to."""
    return bool(holder) and re.search(r"\w \w|\w #", re.sub(r"'[^']*'", "", holder)) is None


def is_gradient(holder: str) -> bool:
    """Return whether *holder* is Python that reads the gradient of a tensor."""
    return holder.endswith(".grad") and is_expression(holder)


def named(expression: str) -> str:
    """Return *expression* as code between words; words as they are."""
    return f"`{shortened(written(expression))}`" if is_expression(expression) else expression


def is_private(holder: str) -> bool:
    """Return whether the way to a holder leads through names that its owner keeps for itself."""
    return _PRIVATE.search(written(holder)) is not None


def is_users(e: Evidence) -> bool:
    """Return whether the holder is a plain container or a variable of the user's, whose code may be changed."""
    is_module = e.path.root.startswith("module ") and e.path.root != "module '__main__'"
    if is_module and not e.facts.is_users_module:
        return False
    if not is_expression(e.holder) or _INTERNAL.search(written(e.holder)):
        return False
    if e.owner is None:  # nobody but a module or a notebook has the name: `_cache` in one of the user's is the user's
        return e.facts.is_users_module or e.path.root == VARIABLE_WORDS or not is_private(e.holder)
    # What the user puts into an object of a library's stands in a plain container of the user's, not in its own.
    return not e.owner.is_library or bool(e.owner.code and e.owner.code == e.holder)


def place_words(e: Evidence) -> str:
    """Return the place that keeps, as a person says it: a variable of a function by its name."""
    if e.holder == NAMESPACE:
        return "the notebook"
    above = e.path.steps[: e.n_to_holder]
    found = _OF_FUNCTION.fullmatch(above[-1].reference) if above and e.place == e.holder else None
    if found is None:
        return named(e.place)
    what = "variable" if found[1] == "closure variable" else "default value of"
    return f"the {what} `{found[2]}` of `{found[3]}`"


def clearing(e: Evidence) -> str:
    """Return the call that empties the holder, if it has one and is the user's own: `` (`history.clear()`)``."""
    can = e.holder_kind in _CLEARED and e.place == e.holder and is_users(e) and not e.holder.endswith(_NO_COLLECTIONS)
    return f" (`{written(e.holder)}.clear()`)" if can else ""


def may_release(owner: Owner | None) -> str:
    """Return a sentence with the calls of an object that by their names may let go; empty without any."""
    if owner is None or not owner.releases:
        return ""
    can = is_expression(owner.code) and not is_private(owner.code)
    place = written(owner.code) if can else owner.kind.rpartition(".")[2]
    *others, last = [f"`{place}.{name}()`" for name in owner.releases]
    calls = f"{', '.join(others)} or {last}" if others else last
    return f" By the name, {calls} may release it."
