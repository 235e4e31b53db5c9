"""Each cause is recognised by its own evidence, and not by evidence that only looks like it."""

from __future__ import annotations

import pytest

from leaklab.explain.causes import INSPECTORS, find_cause
from leaklab.explain.cycles import CYCLE_ROOT, UNSEEN_ROOT
from leaklab.explain.evidence import Evidence
from leaklab.explain.references import Reference
from leaklab.model import RootPath, Status, Step


def steps_of(text):
    """Make steps of ``history list, [3] torch.Tensor!``: reference and kind, ``!`` for a leaked one."""
    steps = []
    for part in filter(None, text.split(", ")):
        reference, _, kind = part.rstrip("!").rpartition(" ")
        steps.append(Step(reference, kind, "", Status.LEAKED if part.endswith("!") else Status.EXPECTED))
    return tuple(steps)


def reference(text, kind):
    return Reference(text, text, text, kind)


INDEX, KEY = reference("[3]", "index"), reference("['a']", "key")
ATTRIBUTE = reference(".last", "attribute")


def evidence(steps="", *, root="notebook variable", holder="history", crossing=None, **changes):
    values = {
        "holder_kind": "list", "entry_kinds": frozenset(), "kinds": frozenset(), "what": "list", "unit": "objects",
        "has_tensors": False, "has_graph": False,
    }  # fmt: skip
    return Evidence(path=RootPath(root, steps_of(steps)), holder=holder, crossing=crossing, **(values | changes))


TENSORS = {"has_tensors": True, "kinds": frozenset({"torch.Tensor"})}
PLAIN = "history list, [3] torch.Tensor!"

CASES = {
    "notebook-history": evidence("Out dict, [7] torch.Tensor!", is_history=True, crossing=KEY, **TENSORS),
    "immortal-cycle": evidence(
        " Node!, .grad torch.Tensor!", root=CYCLE_ROOT, in_cycle=True, cycle_is_hidden=True, **TENSORS
    ),
    "cycle-garbage": evidence(" Node!, .me Node!", root=CYCLE_ROOT, in_cycle=True, gc_is_off=True),
    "native": evidence(root=UNSEEN_ROOT),
    "traceback-kept": evidence("errors list, [3] ValueError!, .__traceback__ traceback!", crossing=INDEX),
    "hook-left": evidence(
        "model Net, ._forward_hooks collections.OrderedDict, [3] function!",
        holder="model._forward_hooks", holder_kind="collections.OrderedDict", crossing=KEY,
        entry_kinds=frozenset({"function"}),
    ),
    "autograd-ctx": evidence(
        "saved list, [3] MyFunctionBackward!", crossing=INDEX, entry_kinds=frozenset({"MyFunctionBackward"})
    ),
    "thread-or-worker-kept": evidence("local 'x' of work() list!", root="thread 'prefetch'"),
    "optimizer-state": evidence(
        "opt torch.optim.sgd.SGD, .param_groups list, [3] dict!", holder="opt.param_groups", crossing=INDEX, **TENSORS
    ),
    "run-switch": evidence(
        "runs list, [3] Trainer!", holder="runs", crossing=INDEX, has_optimizer=True, **TENSORS
    ),
    "callback-registry": evidence(
        "bus Bus, .listeners list, [3] method!", crossing=INDEX, entry_kinds=frozenset({"method"}),
        kinds=frozenset({"method"}),
    ),
    "closure-kept": evidence(
        "remember function, closure variable 'kept' of remember list, [3] list!", crossing=INDEX
    ),
    "graph-kept": evidence(PLAIN, crossing=INDEX, has_graph=True, **TENSORS),
    "global-cache": evidence("cache dict, ['a'] list!", holder="cache", holder_kind="dict", crossing=KEY),
    "container-growth": evidence("history list, [3] Record!", crossing=INDEX, kinds=frozenset({"Record"})),
    "tensor-kept": evidence(PLAIN, crossing=INDEX, **TENSORS),
}  # fmt: skip


def test_every_cause_has_a_case():
    assert set(CASES) == {slug for slug, _ in INSPECTORS}


@pytest.mark.parametrize("slug", CASES)
def test_the_cause_is_recognised_by_its_evidence(slug):
    cause = find_cause(CASES[slug])
    assert cause.slug == slug
    assert len(cause.advice) > 40


NEAR_MISSES = {
    "a user's list that is called Out in an object": (
        evidence("box Box, .Out list, [3] torch.Tensor!", crossing=INDEX, **TENSORS),
        "tensor-kept",
    ),
    "a cycle of Python alone where the collector runs": (
        evidence(" Node!, .me Node!", root=CYCLE_ROOT, in_cycle=True),
        "native",
    ),
    "an exception without a traceback": (evidence("errors list, [3] ValueError!", crossing=INDEX), "container-growth"),
    "an attribute that is called webhooks": (
        evidence("site Site, .webhooks list, [3] Record!", crossing=INDEX),
        "container-growth",
    ),
    "a node of torch, which is no ctx": (
        evidence(
            "saved list, [3] AddBackward0!", crossing=INDEX, entry_kinds=frozenset({"torch.autograd.AddBackward0"})
        ),
        "container-growth",
    ),
    "a thread that only looks on": (
        evidence("threads list, [3] Record!", holder="threads", crossing=INDEX),
        "container-growth",
    ),
    "the state of something that is no optimizer": (
        evidence(
            "game Game, .state dict, ['a'] torch.Tensor!",
            holder="game.state",
            holder_kind="dict",
            crossing=KEY,
            **TENSORS,
        ),
        "tensor-kept",
    ),
    "an optimizer alone": (
        evidence("runs list, [3] torch.optim.sgd.SGD!", crossing=INDEX, has_optimizer=True),
        "container-growth",
    ),
    "an object that keeps functions": (
        evidence("history list, [3] Record!", crossing=INDEX, kinds=frozenset({"function"})),
        "container-growth",
    ),
    "a function that is on no path": (
        evidence("history list, [3] torch.Tensor!", crossing=INDEX, **TENSORS),
        "tensor-kept",
    ),
    "a graph that nothing Python refers to": (evidence(root=UNSEEN_ROOT, has_graph=True), "native"),
    "a dict deep inside an object": (
        evidence(
            "trainer Trainer, .logs Logs, .steps dict, ['a'] Record!",
            holder="trainer.logs.steps",
            holder_kind="dict",
            crossing=KEY,
        ),
        "container-growth",
    ),
    "an attribute that links objects": (
        evidence("root Node, .last Node!", holder="root", crossing=ATTRIBUTE),
        "unknown",
    ),
}


@pytest.mark.parametrize(("near", "expected"), NEAR_MISSES.values(), ids=NEAR_MISSES.keys())
def test_evidence_that_only_looks_alike_has_another_cause(near, expected):
    assert find_cause(near).slug == expected


def test_a_graph_that_grows_in_place_is_kept_by_its_tensor():
    cause = find_cause(evidence("total torch.Tensor, .grad_fn AddBackward0!", holder="total", unit="graph nodes"))
    assert cause.slug == "graph-kept"
    assert "total carries its whole history" in cause.advice


def test_the_place_to_cut_is_the_attribute_that_crosses():
    links = evidence("root Node, .last torch.Tensor!", holder="root", crossing=ATTRIBUTE, **TENSORS)
    assert links.place == "root.last"
    assert "root.last = None" in find_cause(links).advice


def test_the_steps_above_end_at_the_first_that_leaks():
    found = evidence("a Node, .b list, [3] Node!, .c Node!")
    assert [step.reference for step in found.steps_above] == ["a", ".b", "[3]"]


def test_where_nothing_leaks_all_steps_are_above():
    assert len(evidence("a Node, .b list").steps_above) == 2
