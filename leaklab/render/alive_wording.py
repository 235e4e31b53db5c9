"""Put the figures of an `Alive` into words that its text, its page and its tables share."""

from __future__ import annotations

from collections.abc import Collection

from leaklab.model import RootPath, Status, Step
from leaklab.model.alive import Alive, AlivePath, AutogradHolder, CountItem, Cut, DirectReference, Hold
from leaklab.render.wording import shorten
from leaklab.words import format_bytes

HEADLINES = {
    Hold.HELD: "ALIVE",
    Hold.GARBAGE: "GARBAGE",
    Hold.IMMORTAL: "IMMORTAL",
    Hold.PROBABLE: "IMMORTAL?",
    Hold.UNSEEN: "UNSEEN",
    Hold.NOTHING: "FREE",
}
"""What the answer begins with."""
_NAME_LIMIT = 60
_N_STEPS = 30  # of a path that is told in full


def n_words(count: int, noun: str) -> str:
    """Return ``1 object``, ``2,000 objects``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def title_words(alive: Alive) -> str:
    """Return what was asked about, and what it is."""
    return f"{alive.asked}: {alive.what}" if alive.asked else alive.what


def told(path: RootPath, cut_at: Collection[int] = ()) -> tuple[RootPath, frozenset[int]]:
    """Return *path* as it is told, and where its cuts are then: a long one, through a graph, loses its middle."""
    n_left_out = len(path.steps) - _N_STEPS + 1
    if n_left_out <= 1:
        return path, frozenset(cut_at)
    n_head = _N_STEPS // 2
    words = f"({n_left_out:,} more)"
    gap = Step(words, "", "the table of paths and the JSON file have all of them", Status.UNKNOWN)
    steps = (*path.steps[:n_head], gap, *path.steps[n_head + n_left_out :])
    moved = (min(at, n_head) if at < n_head + n_left_out else at - n_left_out + 1 for at in cut_at)
    return RootPath(path.root, steps), frozenset(moved)


def path_title(alive: Alive, number: int) -> str:
    """Return the heading of path *number*, from 0."""
    path = alive.paths[number]
    many = f"{len(alive.paths)}{' shown' if alive.has_more_paths else ''}"
    name = f": {path.expression}" if path.expression else ""
    return f"Path {number + 1} of {many}{name}"


def holder_words(path: AlivePath) -> str:
    """Return the expression for what holds the object on *path*, or why there is none."""
    return path.holder or "no Python expression leads to what holds it"


def retained_words(alive: Alive) -> str:
    """Return what comes back if the object goes."""
    size = alive.retained
    least = "at least " if size.is_lower_bound else ""
    words = f"{least}{format_bytes(size.exclusive_bytes)} in {n_words(size.n_objects, 'object')} come back if it goes"
    if size.shared_bytes:
        words += f"; another {format_bytes(size.shared_bytes)} that it uses are kept by others too, and stay"
    return words


def wider_words(cut: Cut) -> str:
    """Return the smaller cut in one line, with what else it takes."""
    statements = "; ".join(reference.advice for reference in cut.references)
    size = (
        f"{n_words(cut.n_freed, 'object')}, {'at least ' if cut.is_lower_bound else ''}{format_bytes(cut.freed_bytes)}"
    )
    return f"or all that hangs on a variable: {statements}  (frees {size})"


def cut_title(cut: Cut, *, is_least: bool = True) -> str:
    """Return what the cut frees, and how far that is proved; *is_least* unless fewer would take a variable."""
    if not cut.references:
        return f"no set of references to cut is known: {cut.obstacle or 'nothing reaches it'}"
    n_references = len(cut.references)
    which = "this reference" if n_references == 1 else f"these {n_references} references"
    least = "at least " if cut.is_lower_bound else ""
    freed = f"{n_words(cut.n_freed, 'object')}, {least}{format_bytes(cut.freed_bytes)}"
    if not cut.frees_object:
        return f"cutting {which} frees {freed}, and not the object itself"
    proof = "no fewer would do" if cut.is_exact else "fewer may do"
    if not is_least:
        proof = "no fewer would do and leave your variables"
    return f"cutting {which} frees {freed} ({proof})"


def count_words(total: int, items: tuple[CountItem, ...], n_unexplained: int) -> str:
    """Return ``3 = 2 list + 1 unexplained``."""
    parts = [f"{item.count} {shorten(item.words, _NAME_LIMIT)}" for item in items if item.count]
    if n_unexplained > 0:
        parts.append(f"{n_unexplained} unexplained")
    return f"{total} = {' + '.join(parts)}" if parts else str(total)


def counts_words(alive: Alive) -> list[tuple[str, str]]:
    """Return label and explanation of each reference count; what the question itself held is left out."""
    counts = alive.counts
    rows = [("Python", count_words(counts.python, counts.python_items, counts.n_unexplained))]
    if counts.use_count is not None:
        rows.append(("C++", count_words(counts.use_count, counts.cpp_items, counts.n_unexplained_cpp)))
    return rows


def autograd_words(holder: AutogradHolder) -> str:
    """Return which node holds the object as what, and whose graph that is."""
    carrier = f", in the graph of {holder.carrier}" if holder.carrier else ", in a graph whose tensor was not found"
    kind = f" ({holder.carrier_kind})" if holder.carrier_kind else ""
    return f"{holder.node} {holder.role}{carrier}{kind}"


def reference_words(reference: DirectReference) -> str:
    """Return who refers to the object, and how often where it is more than once."""
    times = f" ({reference.count} times)" if reference.count > 1 else ""
    side = " [C++]" if reference.from_cpp else ""
    return f"{reference.holder}  {reference.reference}{times}{side}"
