"""Causes in torch: graphs carried along, stored tensors, reference cycles, optimizers, metric copies."""

from __future__ import annotations

import re

from leaklab.explain.causes.advice import HEAD_OF_GRAPH, Advice, changed_line, line_words
from leaklab.explain.evidence import Evidence
from leaklab.heap.roles import Role
from leaklab.model.paths import CycleCertainty
from leaklab.text import unit_words

_CLEARED = frozenset({"list", "dict", "set", "collections.deque", "collections.OrderedDict", "collections.defaultdict"})


def graph_kept(e: Evidence) -> Advice | None:
    """A tensor with its autograd graph is stored or added to, or hidden state is carried without detach."""
    if e.unit == "graph nodes":
        return _growing_graph(e)
    if not e.has_graph or e.crossing is None:
        return None
    if e.crossing.text == HEAD_OF_GRAPH and e.facts.line is None:
        return _handed_on(e)
    number = e.facts.is_scalar
    call = ".item()" if number else ".detach()"
    before, after = changed_line(e, call, _storing(e, "loss"), _storing(e, f"loss{call}"))
    return Advice(
        f"What is stored in {e.place} still carries its autograd graph: the operations of its run and, where no "
        f"backward() has run through them, what they saved.{line_words(e)} "
        f"Store {'the number' if number else 'the values without the graph'} instead.",
        before,
        after,
        "Not if backward() is called through it later: then do that first, and clear the container after it.",
    )


def _handed_on(e: Evidence) -> Advice:
    """A state that every run computes from that of the run before, and replaces."""
    owner = re.fullmatch(r"(.+)(?:\[\d+\]|(\.\w+))", e.holder) if e.facts.is_in_tuple else None
    place = e.holder if owner is None else owner[1]
    cut = f"{place}.detach()"
    if owner is not None:
        cut = f"{f'{place}._make' if owner[2] else 'tuple'}(state.detach() for state in {place})"
    number = ", or add plain numbers (.item())" if e.facts.is_scalar else ""
    return Advice(
        f"Every run computes {place} from the {place} of the run before, so {place} carries the graph of all runs, and "
        f"that keeps what their operations saved. Cut the history between runs{number}.",
        after=f"{place} = {cut}  # before the next run computes with it",
        unless="Not if one backward() is meant to go through all the runs: then the graph has to grow. Where no "
        "backward() follows at all, compute under torch.no_grad().",
    )


def _growing_graph(e: Evidence) -> Advice:
    before, after = changed_line(
        e, ".detach()", f"{e.holder} = {e.holder} + loss", f"{e.holder} = {e.holder} + loss.detach()"
    )
    return Advice(
        f"{e.holder} carries its whole history: every run adds nodes to its graph, so the graph grows, and each "
        f"backward() through it gets slower.{line_words(e)} Add values without their graph (loss.detach()), or "
        f"cut the history between runs: {e.holder} = {e.holder}.detach().",
        before,
        after,
        "Not if one backward() at the end is meant to go through all the runs; then the graph has to grow.",
    )


def _storing(e: Evidence, value: str) -> str:
    """Return a statement that stores *value* where it leaks, as it is written for a holder of that type."""
    if e.steps_above and e.steps_above[-1].reference == HEAD_OF_GRAPH:
        return f"{e.holder} = {value}"
    place = e.place if e.place.isidentifier() or "." in e.place else "kept"
    if e.crossing is not None and e.crossing.kind == "key" and "dict" in e.holder_kind.lower():
        return f"{place}[key] = {value}"
    return f"{place}.append({value})"


def autograd_ctx(e: Evidence) -> Advice | None:
    """The ctx of a custom autograd function was stored."""
    by_name = any("." not in kind.removeprefix("__main__.") and kind.endswith("Backward") for kind in e.entry_kinds)
    is_entry = e.n_above <= len(e.roles) and e.path.steps and Role.CTX in e.roles[e.n_above - 1]
    if e.in_cycle or e.crossing is None or not (is_entry or by_name) or e.crossing.kind == "hidden":
        return None
    return Advice(
        f"{e.place} stores the ctx of a custom autograd function, with everything the forward pass put on it. "
        "Do not keep ctx after backward; hand tensors to ctx.save_for_backward, which backward frees.",
        before="ctx.x = x; saved.append(ctx)",
        after="ctx.save_for_backward(x)",
    )


def tensor_kept(e: Evidence) -> Advice | None:
    """A tensor is stored and never taken out."""
    if not e.has_tensors or e.crossing is None:
        return None
    if e.crossing.kind in ("attribute", "slot"):
        return Advice(
            f"{e.place} links to what earlier runs made. Cut it when it is no longer needed.",
            after=f"{e.place} = None",
            unless="Not while something still walks back along these links.",
        )
    before, after = "", f"{e.place}.clear()  # when they have been used" if e.holder_kind in _CLEARED else ""
    if e.facts.is_scalar:
        before, after = changed_line(e, ".item()", _storing(e, "x"), _storing(e, "x.item()"))
    return Advice(
        f"{e.place} keeps the tensors of every run.{line_words(e)} Reduce them to the numbers that are needed as they "
        "come, keep only the newest, or empty it when they have been used.",
        before,
        after,
        "Not if all values are needed together at the end; then move them off the accelerator (.cpu()) and clear it "
        "after use.",
    )


def cycle_garbage(e: Evidence) -> Advice | None:
    """Garbage in cycles that no collection frees, because it is switched off or looks elsewhere."""
    if not (e.in_cycle and e.gc_is_off) or e.cycle_is_hidden:
        return None
    return Advice(
        "The objects refer to each other in a circle, and the collector that would free them is switched off, or they "
        "are frozen. Collect from time to time (and before any gc.freeze()), or break the circle: hold one of the "
        "references weakly, or set it to None.",
        before="self.owner = owner",
        after="self.owner = weakref.ref(owner)  # called where it is used: self.owner()",
        unless="Not weakly if this reference is the only one that keeps its object.",
    )


def immortal_cycle(e: Evidence) -> Advice | None:
    """A cycle through autograd's C++ side, which the collector can never free."""
    if not (e.in_cycle and e.cycle_is_hidden):
        return None
    before, after = _cut(e)
    sure = "it is never freed"
    if e.certainty is CycleCertainty.PROBABLE:
        sure = "it is probably never freed (one of its owners cannot be read from Python)"
    return Advice(
        f"The cycle runs through autograd's C++ side, where Python's collector cannot see: {sure}. {_where(e)}",
        before,
        after,
    )


def _where(e: Evidence) -> str:
    """Return what to cut, as precisely as it is known."""
    if e.cut is None:
        return (
            "Cut one of its references: remove the hook's handle, set tensor.grad = None, or use torch.autograd.grad "
            "instead of backward(create_graph=True)."
        )
    words = f"Cut it at {e.cut.reference}: {e.cut.how}. {e.cut.words}"
    return f"{words} leaklab.cut_cycles() tries it and says what comes back." if e.cut.is_safe else words


def _cut(e: Evidence) -> tuple[str, str]:
    """Return the change that opens this kind of circle."""
    references = [step.reference for step in e.path.steps]
    if any("hook" in reference for reference in references):
        return "tensor.register_hook(hook)", "handle = tensor.register_hook(hook); ...; handle.remove()"
    if ".grad" in references:
        return (
            "loss.backward(create_graph=True)",
            "grads = torch.autograd.grad(loss, parameters, create_graph=True)",
        )
    return "", ""


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
        and all(kind.startswith("torch.optim.") and ".lr_scheduler." not in kind for kind in e.entry_kinds)
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
    on_class = any(Role.CLASS in roles for roles in e.roles[: max(len(e.steps_above) - 1, 0)])
    has_runs = e.has_optimizer or (e.has_models and not on_class)
    if not (has_runs and e.has_tensors) or e.in_cycle or e.crossing is None:
        return None
    what = "the model and the optimizer" if e.has_optimizer else "the model"
    line = e.facts.line
    kept = line.with_added("metrics") if line is not None and line.added else f"{e.place}[name] = metrics"
    return Advice(
        f"{e.place} keeps {what} of every run, so that two of them share the memory when the next "
        f"one starts.{line_words(e)} Keep the figures you need (metrics, the path of a checkpoint) and drop the rest "
        "before the next run begins.",
        before=line.text if line is not None else f"{e.place}[name] = trainer",
        after=f"{kept}  # the figures only; for the weights: torch.save(model.state_dict(), path)",
        unless="Not if the runs are compared live, model against model;"
        " `with leaklab.training_run(name)` tells what survives.",
    )
