"""Write why an object is alive as plain text of at most 100 columns, in words that its page shares."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from leaklab.model import RootPath, Status, Step
from leaklab.model.alive import AlivePath, AutogradHolder, CountItem, Cut, DirectReference, Hold, WhyAliveRecord
from leaklab.render.words import render_path
from leaklab.text import SHOWN_LIMIT, clipped, format_bytes, shorten, unit_words, wrap

HEADLINES = {
    Hold.HELD: "ALIVE",
    Hold.GARBAGE: "GARBAGE",
    Hold.IMMORTAL: "IMMORTAL",
    Hold.PROBABLE: "IMMORTAL?",
    Hold.UNSEEN: "UNSEEN",
    Hold.NOTHING: "FREE",
}
"""What the answer begins with."""
_LABEL_WIDTH = 11
_N_REFERENCES = 8
_TITLE_LIMIT = 300
_CODE_LIMIT = 400
_NAME_LIMIT = 60
_N_STEPS = 30  # of a path that is told in full


def title_words(alive: WhyAliveRecord) -> str:
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


def path_title(alive: WhyAliveRecord, number: int) -> str:
    """Return the heading of path *number*, from 0."""
    path = alive.paths[number]
    many = f"{len(alive.paths)}{' shown' if alive.has_more_paths else ''}"
    name = f": {path.expression}" if path.expression else ""
    if alive.only_path:
        return f"The best path{name}"
    return f"Path {number + 1} of {many}{name}"


def holder_words(path: AlivePath) -> str:
    """Return the expression for what holds the object on *path*, or why there is none."""
    return path.holder or "no Python expression leads to what holds it"


def retained_words(alive: WhyAliveRecord) -> str:
    """Return what comes back if the object goes."""
    size = alive.retained
    least = "at least " if size.is_lower_bound else ""
    words = (
        f"{least}{format_bytes(size.exclusive_bytes)} in {unit_words(size.n_objects, 'objects')} come back if it goes"
    )
    if size.shared_bytes:
        words += f"; another {format_bytes(size.shared_bytes)} stay, because other objects use them too"
    return words


def wider_words(cut: Cut) -> str:
    """Return the smaller cut in one line, with what else it takes."""
    statements = "; ".join(reference.advice for reference in cut.references)
    return f"or let go of the whole variable: {statements}  (frees {_freed_words(cut)})"


def cut_title(cut: Cut, *, is_least: bool = True) -> str:
    """Return what the cut frees, and how far that is proved; *is_least* unless fewer would take a variable."""
    if not cut.references:
        return f"no set of references to cut is known: {cut.obstacle or 'nothing reaches it'}"
    n_references = len(cut.references)
    which = "this reference" if n_references == 1 else f"these {n_references} references"
    freed = _freed_words(cut)
    if not cut.frees_object:
        return f"cutting {which} frees {freed}, and not the object itself"
    proof = "no fewer would do" if cut.is_exact else "fewer may be enough"
    if not is_least:
        proof = "the fewest that leave your variables in place"
    return f"cutting {which} frees {freed} ({proof})"


def _freed_words(cut: Cut) -> str:
    least = "at least " if cut.is_lower_bound else ""
    return f"{unit_words(cut.n_freed, 'objects')}, {least}{format_bytes(cut.freed_bytes)}"


def count_words(total: int, items: tuple[CountItem, ...], n_unexplained: int) -> str:
    """Return ``3 = 2 list + 1 unexplained``."""
    parts = [f"{item.count} {shorten(item.words, _NAME_LIMIT)}" for item in items if item.count]
    if n_unexplained > 0:
        parts.append(f"{n_unexplained} unexplained")
    return f"{total} = {' + '.join(parts)}" if parts else str(total)


def counts_words(alive: WhyAliveRecord) -> list[tuple[str, str]]:
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


def render_alive(alive: WhyAliveRecord) -> str:
    """Return the whole answer, what keeps the object alive first."""
    alive = clipped(alive, SHOWN_LIMIT)
    blocks = [list(_head(alive)), *_path_blocks(alive), list(_cycle(alive)), list(_cut(alive.cut, alive.wider_cut))]
    if not alive.only_path:
        blocks += [list(_figures(alive)), list(_references(alive)), list(_autograd(alive))]
    blocks.append(list(_notes(alive.notes)))
    environment = ", ".join(f"{name} {version}" for name, version in alive.environment)
    blocks.append(wrap(f"{alive.n_heap:,} objects looked at; {environment}" if alive.n_heap else environment, "", ""))
    return "\n\n".join("\n".join(block) for block in blocks if any(block)) + "\n"


def render_paths(alive: WhyAliveRecord) -> str:
    """Return the paths alone, or the cycle where there is none."""
    alive = clipped(alive, SHOWN_LIMIT)
    blocks = [*_path_blocks(alive), list(_cycle(alive))]
    return "\n\n".join("\n".join(block) for block in blocks if block) or "\n".join(wrap(alive.reason, "", ""))


def _head(alive: WhyAliveRecord) -> Iterator[str]:
    word = HEADLINES[alive.hold]
    yield from wrap(shorten(title_words(alive), _TITLE_LIMIT), f"{word}  ", " " * (len(word) + 2))
    yield from wrap(alive.reason, " " * (len(word) + 2), " " * (len(word) + 2))


def _path_blocks(alive: WhyAliveRecord) -> list[list[str]]:
    return [list(_path(alive, number)) for number in range(len(alive.paths))]


def _path(alive: WhyAliveRecord, number: int) -> Iterator[str]:
    path = alive.paths[number]
    yield from wrap(shorten(path_title(alive, number), _TITLE_LIMIT), "", "  ")
    yield from _fact("held by", shorten(holder_words(path), _TITLE_LIMIT))
    for position, line in enumerate(render_path(told(path.path)[0]).splitlines()):
        yield ("  path" if position == 0 else "").ljust(_LABEL_WIDTH) + line
    if path.remark:
        yield from _fact("known", path.remark)


def _cycle(alive: WhyAliveRecord) -> Iterator[str]:
    if alive.cycle is not None:
        yield "The cycle that keeps it"
        yield from (" " * _LABEL_WIDTH + line for line in render_path(alive.cycle).splitlines())
    if alive.cycle_cut is not None:
        yield from _fact("to cut", shorten(alive.cycle_cut.how, _CODE_LIMIT))
        yield from _fact("", alive.cycle_cut.words)


def _cut(cut: Cut | None, wider: Cut | None) -> Iterator[str]:
    if cut is None:
        return
    yield from wrap(f"To let it go: {cut_title(cut, is_least=wider is None)}", "", "  ")
    are_statements = all(reference.is_statement for reference in cut.references)
    for reference in cut.references:
        yield from wrap(shorten(reference.advice, _CODE_LIMIT), "    " if are_statements else "  - ", "      ")
        if not reference.is_statement:
            yield from wrap(f"({reference.holder}  {reference.reference})", "    ", "      ")
    if wider is not None:
        yield from wrap(wider_words(wider), "  ", "    ")


def _figures(alive: WhyAliveRecord) -> Iterator[str]:
    yield from _fact("frees", retained_words(alive))
    for label, words in counts_words(alive):
        yield from _fact(f"{label}", f"reference count {words}" if label == "Python" else f"use count {words}")


def _references(alive: WhyAliveRecord) -> Iterator[str]:
    if not alive.references:
        return
    yield f"Direct references ({alive.n_references:,})"
    for reference in alive.references[:_N_REFERENCES]:
        yield from wrap(shorten(reference_words(reference), _TITLE_LIMIT), "  - ", "    ")
    if len(alive.references) > _N_REFERENCES:
        yield f"  - {len(alive.references) - _N_REFERENCES:,} more are in .references"


def _autograd(alive: WhyAliveRecord) -> Iterator[str]:
    if alive.autograd:
        yield "Autograd"
    for holder in alive.autograd[:_N_REFERENCES]:
        yield from wrap(shorten(autograd_words(holder), _TITLE_LIMIT), "  - ", "    ")


def _notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield "Notes"
    for note in notes:
        yield from wrap(note, "  - ", "    ")


def _fact(label: str, text: str) -> list[str]:
    return wrap(text, f"  {label}".ljust(_LABEL_WIDTH), " " * _LABEL_WIDTH)
