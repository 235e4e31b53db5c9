"""Causes in code that is kept: closures, defaults, suspended frames, tracebacks."""

from __future__ import annotations

from leaklab.explain.causes.advice import Advice
from leaklab.explain.leaks.evidence import Evidence
from leaklab.explain.paths.known_holders import known_holder
from leaklab.explain.paths.roles import Role

_PLACES = ("closure", "default", "partial", "frame-local")
_WORDS = ("closure variable", "default of", "local ")
_PARTIAL = "functools.partial"
_SUSPENDED = frozenset({"generator", "coroutine", "async_generator", "_asyncio.Task", "asyncio.tasks.Task"})


def is_argument_of_partial(e: Evidence) -> bool:
    """Return whether a partial holds what leaks as one of its own arguments: it calls with it, and never calls it."""
    pair = e.steps_above[-2:]
    return len(pair) > 1 and pair[0].kind == _PARTIAL and pair[1].reference.startswith((".args", ".keywords"))


def traceback_kept(e: Evidence) -> Advice | None:
    """A stored exception keeps the frames it went through, and their local variables."""
    if not e.any_role(Role.TRACEBACK) or e.in_cycle:
        return None
    known = known_holder(e.path)
    if e.path.root == "last exception":
        return Advice(
            "The interpreter remembers the last uncaught exception, and its traceback keeps every local variable of "
            "the frames it went through, until another exception takes its place.",
            after="sys.last_exc = sys.last_value = sys.last_traceback = None",
            unless="Not before %debug or pdb.pm(), which need it.",
        )
    release = f" ({known[1].name}: {known[1].release} lets go.)" if known is not None else ""
    return Advice(
        f"{e.place} keeps an exception, and its traceback keeps every local variable of the frames it went "
        f"through.{release} Store the text instead, or cut the traceback off.",
        before="errors.append(error)",
        after="errors.append(traceback.format_exc())  # or error.with_traceback(None)",
        unless="Not if the exception is raised again later and its origin should be shown.",
    )


def closure_kept(e: Evidence) -> Advice | None:
    """A closure, a default argument, a partial or a suspended frame keeps it."""
    through = any(step.reference.startswith(_WORDS) or ".__defaults__" in step.reference for step in e.steps_above)
    crosses = e.crossing is not None and e.crossing.kind in _PLACES
    crosses = crosses or is_argument_of_partial(e)
    suspended = bool(e.entry_kinds & _SUSPENDED) or e.any_role(Role.SUSPENDED)
    if e.unit != "objects" or not (through or suspended or crosses) or e.path.root.startswith("running"):
        return None
    if suspended:
        return Advice(
            f"{e.place} keeps suspended generators or coroutines, and their frames keep every local variable until "
            "they end. Close them when they have served, or cancel their tasks, and take them out.",
            before="first = next(stream)",
            after="first = next(stream); stream.close()",
            unless="Not while somebody will still ask for the next value.",
        )
    if any(step.reference.startswith("default of") or "__kwdefaults__" in step.reference for step in e.steps_above):
        return Advice(
            f"A default argument keeps it: {e.place}. It is made once, with the function, and lives as long as that.",
            before="def f(x, seen=[]):",
            after="def f(x, seen=None):\n    seen = [] if seen is None else seen",
            unless="Not if the calls are meant to share it; then make that visible and bound its size.",
        )
    return Advice(
        f"A function keeps it: {e.place}. What a closure or a partial refers to lives as long as the function does: do "
        "not wrap the wrapper of the run before, and hand values in as arguments.",
        before="step = wrap(step, x)",
        after="step = wrap(original_step, x)",
        unless="Not if every layer is really called for.",
    )
