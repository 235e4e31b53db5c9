"""Say why each object on a path has a reason to be alive, or has none: LeakCanary's statuses with their reasons.

A reason is a fact that the code under test cannot have set by mistake: when an object was born, and what it is. The
references between the last expected and the first leaked object are the suspects.
"""

from __future__ import annotations

from dataclasses import replace

from leaklab.explain.paths.known_holders import with_known_holders
from leaklab.explain.paths.paths import Described
from leaklab.explain.view import OLD, HeapView
from leaklab.model import RootPath, Status, Step
from leaklab.objects import is_kind_of, loaded_type

MODULE_WORDS = "a module is never leaking"


def with_reasons(view: HeapView, vertex: int, described: Described, n_runs: int) -> RootPath:
    """Return the path to *vertex* with the reason for the status beside the steps that decide.

    These are the last step that is expected, and each leaked one whose run of birth is another than that of the step
    before it. Known holders are named.

    Args:
        view: The heap.
        vertex: Where the path ends.
        described: The path in words, as ``view.describe(vertex)`` returned it.
        n_runs: Measured runs.
    """
    vertices = view.path(vertex)
    path = with_known_holders(described.path)
    if not vertices:
        return path
    steps = list(path.steps)
    last_expected = max((i for i, step in enumerate(steps) if step.status is Status.EXPECTED), default=-1)
    before = ""
    for number, (step, position) in enumerate(zip(steps, described.positions, strict=True)):
        words = _reason(view, vertices[position], step, n_runs)
        decides = number == last_expected or (step.status is Status.LEAKED and words != before)
        before = words
        if decides and words and not step.note:
            steps[number] = replace(step, note=words)
    return replace(path, steps=tuple(steps))


def _reason(view: HeapView, vertex: int, step: Step, n_runs: int) -> str:
    run = int(view.run_of[vertex])
    if step.status is Status.LEAKED:
        if run == OLD:
            return ""  # a node that only the graph knows: nobody saw it being born
        if run == n_runs - 1:
            return f"made in run {n_runs}, kept by what an earlier run left"
        return f"made in run {run + 1} of {n_runs}, still here"
    module = loaded_type("torch.nn", "Module")
    if run == OLD and module is not None and is_kind_of(view.objects[vertex], module):
        return "a model that was there before the first run"
    if run == OLD:
        return "was there before the first run"
    return f"the newest: made in run {n_runs}" if run == n_runs - 1 else ""
