"""Causes in how training is set up: whole runs kept, optimizers that collect, copies of a metric."""

from __future__ import annotations

from leaklab.explain.causes.advice import Advice
from leaklab.explain.causes.lines import line_words
from leaklab.explain.leaks.evidence import Evidence
from leaklab.explain.paths.roles import Role
from leaklab.words import unit_words


def deepcopy_kept(e: Evidence) -> Advice | None:
    """Copies of one object that was there before: the metric that is deep-copied for every batch."""
    original = e.facts.original
    if not original or (e.in_cycle and e.cycle_is_hidden):
        return None
    where = "a reference cycle of each copy with itself" if e.in_cycle else e.place
    waiting = (
        " The copies are cyclic garbage, which waits for a collection that is switched off here: gc.collect() frees "
        "them."
        if e.gc_is_off
        else ""
    )
    return Advice(
        f"Every run leaves a copy of {original} behind, kept by {where}.{waiting}{line_words(e)} Copy the values that "
        "are needed, not the object.",
        before=f"snapshot = copy.deepcopy({original})",
        after=f"value = float({original}.compute())  # or {{name: t.clone() for name, t in state.items()}}",
        unless="Not if the copies are meant to live side by side, as an ensemble does.",
    )


def optimizer_state(e: Evidence) -> Advice | None:
    """An optimizer collects parameter groups or state, or one is made anew for the same parameters."""
    if e.in_cycle:
        return None
    is_remade = (
        bool(e.entry_kinds)
        and all(kind.startswith("torch.optim.") for kind in e.entry_kinds)
        and e.has_tensors
        and not any("Parameter" in kind or kind.startswith("torch.nn.modules.") for kind in e.kinds)
    )
    if is_remade:
        return Advice(
            f"{e.place} keeps the optimizers of earlier runs, and each has state of its own (momentum, averages) for "
            f"every parameter.{line_words(e)} Make one optimizer and use it again, or drop the old one.",
            before="optimizer = torch.optim.Adam(model.parameters())  # in every run",
            after="optimizer.state.clear()  # the same optimizer, its state made anew",
        )
    if Role.OPTIMIZER_STATE not in e.roles_above or e.has_optimizer:
        return None
    gone = e.facts.gone_parameters
    words = f" It has state of {unit_words(gone, 'parameters')} in no group any more." if gone else ""
    owner = e.holder.removesuffix(".param_groups").removesuffix(".state")
    return Advice(
        f"The optimizer keeps parameters of earlier runs in {e.place}.{words} Build a new optimizer instead of adding "
        "groups, or remove the old group together with its state.",
        before=f"{owner}.add_param_group({{'params': new}})",
        after=f"for p in {owner}.param_groups.pop()['params']: {owner}.state.pop(p, None)",
        unless="Not while the old parameters are still trained.",
    )


def run_switch(e: Evidence) -> Advice | None:
    """Whole training runs, models and optimizers, are kept."""
    if not (e.has_optimizer and e.has_tensors) or e.in_cycle or e.crossing is None:
        return None
    line = e.facts.line
    kept = line.with_added("metrics") if line is not None and line.added else f"{e.place}[name] = metrics"
    return Advice(
        f"{e.place} keeps the model and the optimizer of every run, so that two of them share the memory when the next "
        f"one starts.{line_words(e)} Keep the figures you need (metrics, the path of a checkpoint) and drop the rest "
        "before the next run begins.",
        before=line.text if line is not None else f"{e.place}[name] = trainer",
        after=f"{kept}  # the figures only; for the weights: torch.save(model.state_dict(), path)",
        unless="Not if the runs are compared live, model against model; `with leaklab.run(name)` tells what survives.",
    )
