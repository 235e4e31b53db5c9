"""Put a check, its leaks, their paths and the statements of a cell into the words that all writers share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from leaklab.model import Check, Leak, Outcome, RootPath, StatementGrowth, Status, Step
from leaklab.model.check import MemoryShare
from leaklab.model.sentences import MergedPaths, TreeLine, growth_sentence, more_words, objects_tree, site_words
from leaklab.text import (
    SHOWN_LIMIT,
    clipped,
    columns,
    format_bytes,
    format_rate,
    format_seconds,
    projected_runs,
    shorten,
    unit_words,
    visible,
    wrap,
)

STATEMENTS_TITLE = "Left behind per run, statement by statement"
STATEMENTS_NOTE = (
    "The table counts objects that a statement made and that were still alive some runs later; another statement may "
    "be the one that keeps them. Numbers, strings and arrays are not counted."
)
STATEMENT_COLUMNS = ("line", "objects", "tensors", "bytes")
_NOTHING = "."
"""Zeros would hide the few figures that matter."""


class StatementRow(NamedTuple):
    """One statement in words.

    Attributes:
        cells: Line, objects, tensors and bytes.
        source: The first line of its text.
        keeps: For which leaks it is the line that keeps; empty for none.
    """

    cells: tuple[str, str, str, str]
    source: str
    keeps: str


def statement_rows(statements: Sequence[StatementGrowth]) -> list[StatementRow]:
    """Return a row for each of *statements*."""
    return [_row(statement) for statement in statements]


def _row(one: StatementGrowth) -> StatementRow:
    lines = str(one.line) if one.end_line == one.line else f"{one.line}-{one.end_line}"
    figures = (
        format_rate(one.objects_per_run) if one.objects_per_run else _NOTHING,
        format_rate(one.tensors_per_run) if one.tensors_per_run else _NOTHING,
        format_bytes(one.bytes_per_run) if one.bytes_per_run else _NOTHING,
    )
    first, *rest = one.source.splitlines() or [""]
    keeps = "^ the line that keeps: " + ", ".join(f"`{holder}`" for holder in one.holders)
    return StatementRow((lines, *figures), first + (" ..." if rest else ""), keeps if one.holders else "")


_MOST_LINES = 16
_REFERENCE_LIMIT = 200


def object_lines(leak: Leak) -> list[TreeLine]:
    """Return the merged paths from the holder of *leak* to its objects; empty where its one path says the same."""
    if not any(len(way.references) > 1 for way in leak.ways) and len(leak.ways) <= 1:
        return []
    tree = objects_tree(leak)
    return tree_lines(tree, "objects" if tree.count >= sum(leak.kept[:-1]) else "objects that were looked at")


def tree_lines(tree: MergedPaths, noun: str) -> list[TreeLine]:
    """Return *tree* in lines, the many before the few.

    Args:
        tree: Merged paths.
        noun: What its counts are of, in the plural.
    """
    lines = list(_edges(tree, noun, 0))
    hidden = len(lines) - _MOST_LINES
    return lines if hidden <= 1 else [*lines[:_MOST_LINES], TreeLine(0, f"... and {hidden:,} more")]


def _edges(tree: MergedPaths, noun: str, depth: int) -> Iterator[TreeLine]:
    for child in tree.children:
        part = f"all {child.count:,}" if child.count == tree.count else f"{child.count:,} of {tree.count:,}"
        reference = shorten(child.reference, _REFERENCE_LIMIT)
        kind = f" ({shorten(child.kind)})" if child.kind else ""
        yield TreeLine(depth, f"{part}{f' {noun}' if not depth else ''} through `{reference}`{kind}")
        yield from _edges(child, noun, depth + 1)


LABEL_WIDTH = 14
_STATUS_WIDTH = 10
_NARROWEST, _WIDEST = 9, 34  # column of the references: a longer reference takes a line of its own
_FIELD_LIMIT = 300  # characters of one name: a name that a person has written is shown whole
_MARK = "<== here"

CAUSES = {
    "graph-kept": "an autograd graph is kept",
    "tensor-kept": "tensors are kept",
    "hook-left": "a hook is registered again and again",
    "closure-kept": "a closure keeps what it uses",
    "global-cache": "a cache without a limit",
    "cycle-garbage": "cyclic garbage that is not collected",
    "immortal-cycle": "a cycle that gc can never free",
    "traceback-kept": "a traceback keeps the frames of an error",
    "notebook-history": "the notebook keeps its own outputs",
    "deepcopy-kept": "copies are kept",
    "container-growth": "a container grows",
    "descriptor-left": "file descriptors are left open",
    "thread-or-worker-kept": "threads or workers are left running",
    "native": "memory outside Python",
    "optimizer-state": "the state of an optimizer grows",
    "autograd-ctx": "an autograd.Function keeps tensors on its context",
    "run-switch": "earlier training runs are kept",
    "callback-registry": "a registry of callbacks grows",
    "unknown": "no known cause fits",
}
"""What each slug of a cause means, in a few words."""
SECOND_CAUSES = {
    "child-processes": "each keeps a child process",
    "open-descriptors": "each keeps a file descriptor open",
    "finished-tasks": "tasks that have ended are kept with their results",
    "library-registry": "a table that a library keeps for itself grows",
    "module-tables": "a module gets buffers, parameters or parts under new names",
    "open-figures": "figures are left open",
    "pending-timers": "timers that have not run are kept",
    "state-dict-copies": "copies of a model's weights are kept",
    "thread-locals": "threads that do not end keep values of their own",
}
"""The same of the slugs that stand beside a cause only."""


class LeakFact(NamedTuple):
    """One piece of the evidence for a leak.

    Attributes:
        label: ``what``, ``evidence``, ``all paths``, ``also held``, ``also leaked``, ``would free``, ``other lines``,
            ``cause`` or ``id``.
        words: One or more sentences or expressions, not yet escaped or shortened; several only for ``all paths``,
            ``also held`` and ``other lines``.
        is_code: Whether the words are Python or another text to copy.
    """

    label: str
    words: tuple[str, ...]
    is_code: bool = False


def leak_facts(leak: Leak, width: int) -> list[LeakFact]:
    """Return what is known about *leak* beside its sentence, its path and its change, in the order of their weight.

    Facts that are not known are left out, and ``what`` where the path ends in it. *width* is the number of characters
    for the figures of ``evidence``.
    """
    also = [holder for holder in leak.holders if holder != leak.holder]
    if leak.n_places > 1:
        also.insert(0, f"{count_words(leak.n_places - 1, 'places')} like it, {rate_of_one_words(leak)} each")
    others = f"{others_words(leak.others)}, left by each run in the same place" if leak.others else ""
    is_on_path = bool(leak.path.steps) and leak.what == object_words(leak.path.steps[-1])
    facts = [
        LeakFact("what", ("" if is_on_path else leak.what,)),
        LeakFact("evidence", (leak_kept_words(leak, width) if leak.kept else leak.reason,)),
        LeakFact("all paths", tuple(line.indented for line in object_lines(leak))),
        LeakFact("also held", tuple(also), is_code=True),
        LeakFact("also leaked", (others,)),
        LeakFact("would free", (retained_words(leak),)),
        LeakFact("other lines", tuple(map(site_words, leak.sites[1:])), is_code=True),
        LeakFact("cause", ("; also ".join(map(cause_words, (leak.cause, *leak.also_causes))),)),
        LeakFact("id", (leak.fingerprint,), is_code=True),
    ]
    return [fact for fact in facts if any(fact.words)]


def code_parts(text: str) -> list[tuple[bool, str]]:
    """Return the parts of *text*, each with whether it stood between backticks; one part where one has no partner."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return [(False, text)]
    return [(bool(place % 2), part) for place, part in enumerate(parts) if part]


def count_words(count: float, unit: str) -> str:
    """Return ``1 object``, ``2 entries``."""
    return unit_words(count, visible(unit))


def rate_of_one_words(leak: Leak) -> str:
    """Return what one of the places of *leak* gets: ``1 object per run``."""
    return f"{count_words(leak.count_per_run / leak.n_places, leak.unit)} per run"


def projection_words(check: Check) -> str:
    """Return what the verdict's rate comes to, empty where nothing grows in bytes.

    When memory is full is said only where that is near: after millions of runs nobody does anything about it.
    """
    verdict = check.verdict
    if not verdict.bytes_per_run:
        return ""
    n_runs = projected_runs(verdict.bytes_per_run)
    words = f"{n_runs:,} runs would keep {format_bytes(verdict.bytes_per_run * n_runs)}"
    if verdict.full_after_runs is not None and verdict.full_after_runs <= _NEAR_RUNS:
        words += f", free memory is used up after {_rounded(verdict.full_after_runs)}"
    return words


def _rounded(n_runs: int) -> str:
    """Return *n_runs* with two digits: what is projected is not known better."""
    n_zeros = max(len(str(n_runs)) - 2, 0)
    return f"{'about ' if n_zeros else ''}{unit_words(round(n_runs, -n_zeros), 'runs')}"


def effort_words(check: Check) -> str:
    """Return what was run: its name, the number of runs, the time they took."""
    n_runs = check.verdict.n_runs
    name = f' of "{shorten(check.settings.name, 80)}"' if check.settings.name else ""
    seconds = sum(run.seconds for run in check.runs)
    took = f" in {format_seconds(seconds)}" if check.runs else ""
    return f"{unit_words(n_runs, 'runs')}{name}{took}"


def share_words(share: MemoryShare) -> str:
    """Return how much of the growth of one kind of memory is explained, and what is known of the rest."""
    most = "up to " if share.possible_bytes > _MUCH * share.grown_bytes else ""
    percent = f"{share.explained_bytes / share.grown_bytes:.0%}".replace("%", " %")
    explained, grown = format_bytes(share.explained_bytes), format_bytes(share.grown_bytes)
    if explained.split()[-1] == grown.split()[-1]:
        explained = explained.split()[0]
    by_estimate = min(share.estimated_bytes, share.grown_bytes)
    words = [f"{most}{explained} of {grown} ({percent}) that {share.memory} grows by every run"]
    if most:
        words.append(f"{format_bytes(share.possible_bytes)} that grow in place may lie in Python's own memory instead")
    if by_estimate > _MUCH * share.grown_bytes:
        words.append(f"{format_bytes(by_estimate)} of it by an estimate of C++ objects")
    own = share.known_bytes + share.estimated_bytes
    if own > (1 + _MUCH) * share.grown_bytes:
        words.append(f"the leaked objects add up to {format_bytes(own)}")
    if share.rest:
        words.append(f"the remaining {format_bytes(share.rest_bytes)} {share.rest}")
    return "; ".join(words)


_MUCH = 0.1
"""So much of the growth more or less is told."""
_NEAR_RUNS = 100_000
"""A training that repeats its step so often is run; one that repeats it millions of times is not."""


def failure_words(check: Check) -> str:
    """Return why the check ended early; empty where it did not, or where the verdict's own sentence says it."""
    if not check.failure or (check.failure in check.verdict.reason and not is_leak(check)):
        return ""
    return f"The check ended early: {visible(check.failure).rstrip('.')}. What was measured until then is shown."


def numbers_words(numbers: Sequence[int], width: int) -> str:
    """Return *numbers* in at most *width* characters: all of them, or ``0 x30, 1 x2``, or the first and the last."""
    full = " ".join(map(str, numbers))
    if len(full) <= width:
        return full
    runs = [(number, len(list(group))) for number, group in groupby(numbers)]
    packed = ", ".join(f"{number} x{n}" if n > 1 else str(number) for number, n in runs)
    if len(packed) <= width:
        return packed
    for n_shown in range(len(numbers) // 2, 0, -1):
        cut = f"{' '.join(map(str, numbers[:n_shown]))} ... {' '.join(map(str, numbers[-n_shown:]))}"
        if len(cut) <= width:
            return cut
    return f"{len(numbers)} figures"


def kept_words(kept: Sequence[int], width: int) -> str:
    """Return what is left of each run's objects, oldest run first, in about *width* characters."""
    runs = "run 1" if len(kept) == 1 else f"runs 1 to {len(kept)}"
    tail = f"objects, made by {runs} and still alive"
    return f"{numbers_words(kept, max(width - len(tail) - 1, 12))} {tail}"


def leak_kept_words(leak: Leak, width: int) -> str:
    """Return what is left of each run but the last, whose objects are in use."""
    kept = leak.kept[:-1]
    runs = "run 1" if len(kept) == 1 else f"each of runs 1 to {len(kept)}"
    unit = visible(leak.unit)
    if kept and min(kept) == max(kept) and kept[0]:
        return f"{runs} left {count_words(kept[0], leak.unit)} alive; those of run {len(kept) + 1} are in use"
    tail = f"{unit} of runs 1 to {len(kept)} still alive; those of run {len(kept) + 1} are in use"
    return f"{numbers_words(kept, max(width - len(tail) - 1, 12))} {tail}"


def cause_words(slug: str) -> str:
    """Return the slug of a cause with its meaning."""
    meaning = CAUSES.get(slug) or SECOND_CAUSES.get(slug)
    return f"{slug} ({meaning})" if meaning else visible(slug)


def object_words(step: Step) -> str:
    """Return the kind of a step's object and its summary, as far as there is one."""
    separator = " " if step.summary.startswith("(") else ", "  # a shape reads on from ``torch.Tensor``
    return separator.join(filter(None, (step.kind, step.summary)))


def retained_words(leak: Leak) -> str:
    """Return what comes back if those that are named let go; empty where it was not computed."""
    if leak.retained_bytes is None:
        return ""
    n_holders = max(len(leak.holders), 1)
    who, enough = {
        1: ("the holder lets go" if leak.n_places == 1 else f"all {leak.n_places:,} places let go", ""),
        2: ("both holders let go", "; one of them alone is not enough"),
    }.get(n_holders, (f"all {n_holders} holders let go", "; fewer are not enough"))
    if not leak.retained_bytes:
        return f"nothing when {who}: something else also holds it"
    return f"{format_bytes(leak.retained_bytes)} when {who}{enough}"


def others_words(others: Iterable[tuple[str, float]]) -> str:
    """Return ``1 dict, 2 function`` for what each run leaves beside the leak."""
    return ", ".join(f"{format_rate(count)} {shorten(kind, 60)}" for kind, count in others)


def suspect_references(path: RootPath) -> range:
    """Return the positions of the references of which one should have been dropped.

    They lead from the last expected object to the first leaked one. Empty where no reference can be blamed: nothing on
    the path is leaked, or it has no root and begins with a leaked object.
    """
    steps = path.steps
    undue = [index for index, step in enumerate(steps) if step.status is not Status.EXPECTED]
    if not undue:
        return range(0)
    first_leaked = next((index for index in undue if steps[index].status is Status.LEAKED), undue[-1])
    expected = [index for index in range(first_leaked) if steps[index].status is Status.EXPECTED]
    first = expected[-1] + 1 if expected else 0
    if not steps[first].reference:
        first += 1
    return range(first, first_leaked + 1)


_WORTH_A_WORD = 0.05
"""A place that is not decided is told beside leaks if it gains this share of what they do, or more."""


def undecided_words(check: Check, width: int) -> str:
    """Return what did not decide: of an inconclusive check what is left of each run, beside leaks which place it is.

    Empty where all is decided.
    """
    if is_leak(check):
        least = _WORTH_A_WORD * check.verdict.bytes_per_run
        places = [place for place in check.undecided if place.bytes_per_run >= least]
        if not places:
            return ""
        return f"not decided: {growth_sentence(places[0])} so far; {places[0].reason}{more_words(places, 'place')}"
    if check.verdict.outcome is not Outcome.INCONCLUSIVE or not check.runs:
        return ""
    return kept_words([run.n_kept for run in check.runs], width)


def is_leak(check: Check) -> bool:
    """Return whether the verdict is a leak; ``bounded`` counts as none."""
    return check.verdict.outcome is Outcome.LEAK


_N_STEPS = 30
"""Of a path that is shown in full."""


def shown_positions(path: RootPath, n_most: int, also: Iterable[int] = ()) -> list[int]:
    """Return the positions of the steps of *path* to show: all, or first and last ones and what is to be looked at.

    Args:
        path: May have hundreds of steps: through a graph, along a linked list.
        n_most: So many are shown in full; of more, one less.
        also: Positions that are shown, as the ends of the suspect references are, with what is beside them.
    """
    n_steps = len(path.steps)
    if n_steps <= n_most:
        return list(range(n_steps))
    suspects = suspect_references(path)
    ends = (*suspects[:1], *suspects[-1:], *also)
    beside = {at for end in ends for at in (end - 1, end, end + 1) if 0 <= at < n_steps}
    return sorted({*range(n_most // 2), *beside, *range(n_steps + n_most // 2 - n_most + 1, n_steps)})


def shown_path(path: RootPath, cut_at: Collection[int] = ()) -> tuple[RootPath, frozenset[int]]:
    """Return *path* as it is shown, and where its cuts are then: of a long one a step says how many are left out."""
    positions = shown_positions(path, _N_STEPS, cut_at)
    steps: list[Step] = []
    cuts = []
    for before, at in zip((-1, *positions), positions, strict=False):
        if left_out := path.steps[before + 1 : at]:
            statuses = {step.status for step in left_out}
            status = statuses.pop() if len(statuses) == 1 else Status.UNKNOWN
            steps.append(Step(f"({len(left_out):,} more)", "", "the JSON file has all of them", status))
        cuts += [len(steps)] if at in cut_at else []
        steps.append(path.steps[at])
    return RootPath(path.root, tuple(steps)), frozenset(cuts)


def render_path(path: RootPath, cut_at: Collection[int] = ()) -> str:
    """Return *path* root first, one reference per line, the suspect references underlined and marked.

    Of more than 30 steps those are shown that `shown_path` has. The lines leave room for a label beside them.
    """
    width = columns() - LABEL_WIDTH
    path, _cuts = shown_path(clipped(path, SHOWN_LIMIT), cut_at)
    if not path.steps:
        return shorten(path.root, _FIELD_LIMIT)
    suspects = suspect_references(path)
    widest = min(_WIDEST, width // 3)
    column = min(max(_NARROWEST, *(len(visible(step.reference)) for step in path.steps)), widest)
    lines = wrap(f"from: {shorten(path.root, _FIELD_LIMIT)}", width=width)
    for index, step in enumerate(path.steps):
        lines += _step_lines(step, column, suspect_mark(index, suspects), width)
    return "\n".join(lines)


def suspect_mark(index: int, suspects: range) -> str:
    """Return how the reference at *index* is marked; empty where it is not suspected."""
    if index not in suspects:
        return ""
    return _MARK if len(suspects) == 1 else f"{_MARK} (one of {len(suspects)} suspects)"


def _step_lines(step: Step, column: int, mark: str, width: int) -> Iterator[str]:
    """Yield status, reference and object; the underline below a suspect reference; the note."""
    reference = shorten(step.reference, _FIELD_LIMIT)
    status = f"{step.status.value:<{_STATUS_WIDTH}}"
    blank = " " * _STATUS_WIDTH
    indent = " " * (_STATUS_WIDTH + column + 2)
    words = shorten(object_words(step), _FIELD_LIMIT)
    if len(reference) <= column:
        yield from wrap(words, f"{status}{reference:<{column}}  ", indent, width)
    else:
        yield from wrap(reference, status, blank, width)
        yield from wrap(words, indent, indent, width)
    if mark:
        yield f"{blank}{'~' * min(len(reference), column):<{column}}  {mark}"
    if step.note:
        yield from wrap(shorten(step.note, _FIELD_LIMIT), indent, indent, width)
