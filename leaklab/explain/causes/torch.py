"""Causes in torch: graphs carried along, stored tensors, reference cycles, optimizers, metric copies."""

from __future__ import annotations

import re

from leaklab.explain.causes.advice import (
    HEAD_OF_GRAPH,
    NAMESPACE,
    Advice,
    clearing,
    is_expression,
    is_users,
    named,
    place_words,
    written,
)
from leaklab.explain.evidence import Evidence
from leaklab.heap.roles import Role
from leaklab.model.paths import CycleCertainty
from leaklab.text import unit_words

_BY_ATTRIBUTES = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
"""A variable, or an attribute of one: what a statement can bind anew, whatever it is."""
_OF_STATE = re.compile(r"\['([\w.]+\.)?(weight|bias|running_mean|running_var)'\]")
_CONTAINERS = frozenset({"list", "dict", "set", "tuple", "collections.deque", "collections.OrderedDict"})


def graph_kept(e: Evidence) -> Advice | None:
    """A tensor with its autograd graph is stored or added to, or hidden state is carried without detach."""
    if e.unit == "graph nodes":
        return _growing_graph(e)
    if not e.has_graph or e.crossing is None:
        return None
    if e.crossing.text == HEAD_OF_GRAPH:
        return _handed_on(e)
    if e.facts.is_scalar:
        what = "Store the number instead: `.item()`."
    else:
        what = (
            "Store the values without their graph (`.detach()`), for every tensor that is stored there. They still "
            f"pile up then: keep only the newest, or empty it when they have been used{clearing(e)}."
        )
    return Advice(
        f"What is stored in {place_words(e)} still carries its autograd graph: the operations of its run and, where no "
        f"backward() has run through them, what they saved. {what}",
        "Don't do this if you still need backward() on these tensors: call it first, then let go of them. Detach what "
        "is stored, not what the loss is computed from.",
    )


def _handed_on(e: Evidence) -> Advice:
    """A state that every run computes from that of the run before, and replaces."""
    if e.holder.endswith(".grad") and is_expression(e.holder):
        place = written(e.holder)
        return Advice(
            f"`{place}` is a gradient that carries a graph, as backward(create_graph=True) makes it, and every "
            "backward() adds to it: so it carries the graph of all runs. Set it to None when it has been used "
            f"(`{place} = None`, or `zero_grad()` of its optimizer), or take gradients with `torch.autograd.grad(..., "
            "create_graph=True)`, which stores none.",
            "Not between runs whose gradients are meant to add up.",
        )
    owner = re.fullmatch(r"(.+)(?:\[\d+\]|(\.\w+))", e.holder) if e.facts.is_in_tuple else None
    place = e.holder if owner is None else owner[1]
    cut = f"{written(place)}.detach()"
    if owner is not None:
        make = f"{written(place)}._make" if owner[2] else "tuple"
        cut = f"{make}(state.detach() for state in {written(place)})"
    how = (
        f": `{written(place)} = {cut}`"
        if _BY_ATTRIBUTES.fullmatch(written(place))
        else ", by `.detach()` on each tensor"
    )
    number = "; or add plain numbers (`.item()`)" if e.facts.is_scalar else ""
    return Advice(
        f"Every run computes {named(place)} from the {named(place)} of the run before, so it carries the graph of all "
        f"runs, and that keeps what their operations saved. Cut the history between two runs{how}, before the next run "
        f"computes with it{number}.",
        "Not if one backward() is meant to go through all the runs: then the graph has to grow. Where no backward() "
        "follows at all, compute under torch.no_grad().",
    )


def _growing_graph(e: Evidence) -> Advice:
    is_bound = _BY_ATTRIBUTES.fullmatch(written(e.holder)) is not None and not e.facts.is_in_tuple
    how = f": `{written(e.holder)} = {written(e.holder)}.detach()`" if is_bound else " with `.detach()`"
    return Advice(
        f"{named(e.holder)} carries its whole history: every run adds nodes to its graph, so the graph grows, and each "
        f"backward() through it gets slower. Add values without their graph (`.detach()`, or `.item()` for one "
        f"number), or cut the history between runs{how}.",
        "Not if one backward() at the end is meant to go through all the runs; then the graph has to grow.",
    )


def autograd_ctx(e: Evidence) -> Advice | None:
    """The ctx of a custom autograd function was stored."""
    by_name = any("." not in kind.removeprefix("__main__.") and kind.endswith("Backward") for kind in e.entry_kinds)
    is_entry = e.n_above <= len(e.roles) and e.path.steps and Role.CTX in e.roles[e.n_above - 1]
    if e.in_cycle or e.crossing is None or not (is_entry or by_name) or e.crossing.kind == "hidden":
        return None
    return Advice(
        f"{place_words(e)} keeps the `ctx` of a custom autograd.Function from every run, with everything the forward "
        "pass put on it. Don't store `ctx`; take the values out of it that are needed, and empty what was collected "
        f"when it has been read{clearing(e)}. Tensors for backward() belong in `ctx.save_for_backward(...)`, which "
        "lets go of them after backward()."
    )


def tensor_kept(e: Evidence) -> Advice | None:
    """A tensor is stored and never taken out."""
    if not e.has_tensors or e.crossing is None:
        return None
    if e.crossing.kind in ("attribute", "slot"):
        return _linked(e)
    if e.facts.is_scalar:
        return Advice(
            f"{place_words(e)} keeps a tensor of one number for every run. Store the number itself (`.item()`).",
            "Not if backward() is still to be called on it.",
        )
    if any(step.reference.startswith(("key <torch.", "[<torch.")) for step in e.steps_above[-1:]):
        return Advice(
            f"{place_words(e)} has tensors as keys. Tensors are told apart by identity, so a new tensor is never found "
            "there again, and every run adds an entry. Use a key that repeats (a name, a shape, a number), or empty it "
            f"when it has been used{clearing(e)}.",
            also=("global-cache",),
        )
    if _is_state_dict(e):
        return Advice(
            f"{place_words(e)} keeps the weights of a model (a `state_dict`) from every run. Keep only the best or the "
            f"newest, or write each to a file with `torch.save`; or empty it when they have been used{clearing(e)}.",
            "Not if all of them are compared at the end.",
            also=("state-dict-copies",),
        )
    part = ""
    if e.facts.are_views:
        part = (
            " Each is a part of a far larger tensor, and keeps all of that in memory: store a copy of the part "
            "(`.clone()`)."
        )
    return Advice(
        f"{place_words(e)} keeps the tensors of every run.{part} Store only the numbers that are needed, keep only the "
        f"newest entries, or empty it when they have been used{clearing(e)}.",
        "Not if all of them are needed together at the end; then move them off the accelerator (`.cpu()`), and let go "
        "of them after use.",
    )


def _is_state_dict(e: Evidence) -> bool:
    """Return whether what is stored is what ``state_dict()`` returns, or a copy of that."""
    pairs = zip(e.path.steps[e.n_to_holder :], e.path.steps[e.n_to_holder + 1 :], strict=False)
    return any(
        owner.kind in {"collections.OrderedDict", "dict"} and _OF_STATE.fullmatch(held.reference)
        for owner, held in pairs
    )


def _linked(e: Evidence) -> Advice:
    """An attribute leads to what earlier runs made: to the one before, or to a collection that is made anew."""
    if e.entry_kinds and e.entry_kinds <= _CONTAINERS:
        return Advice(
            f"Every run leaves more tensors in {named(e.place)}. Keep only the newest of them, or set it to an empty "
            "one when they have been used.",
            "Not if all of them are needed together at the end.",
        )
    how = f": `{written(e.place)} = None`" if is_users(e) else ""
    return Advice(
        f"{named(e.place)} links to what earlier runs made, each to the one before. Cut the link when it is no longer "
        f"needed{how}.",
        "Not while something still walks back along these links.",
    )


def cycle_garbage(e: Evidence) -> Advice | None:
    """Garbage in cycles that no collection frees, because it is switched off or looks elsewhere."""
    if not (e.in_cycle and e.gc_is_off) or e.cycle_is_hidden:
        return None
    if (attribute := _of_ctx(e)) is not None:
        return Advice(
            f"`ctx{attribute}` keeps an output of the custom autograd.Function, and the output leads back to `ctx` "
            "through its graph; the collector that would free this circle is switched off, or the objects are frozen. "
            "Hand the tensor to `ctx.save_for_backward(...)` instead, which makes no circle; or call `gc.collect()` "
            "from time to time.",
            also=("autograd-ctx",),
        )
    return Advice(
        f"The objects refer to each other in a circle{_circle(e)}, and the collector that would free them is switched "
        "off, or they are frozen. Call `gc.collect()` from time to time (and before any `gc.freeze()`), or break the "
        "circle: hold one of the references weakly (`weakref.ref`), or set it to None when the object is done.",
        "Not weakly if this reference is the only one that keeps its object.",
    )


def _of_ctx(e: Evidence) -> str | None:
    """Return the attribute of ``ctx`` by which a tensor leads back to itself, ``.y``; None if none does."""
    pairs = zip(e.path.steps, e.path.steps[1:], strict=False)
    found = (
        after.reference
        for before, after in pairs
        if before.reference == HEAD_OF_GRAPH
        and before.kind.endswith("Backward")
        and _BY_ATTRIBUTES.fullmatch(after.reference.removeprefix("."))
    )
    return next(found, None)


def _circle(e: Evidence) -> str:
    references = [step.reference for step in e.path.steps if step.reference.startswith(".")]
    kinds = [step.kind for step in e.path.steps[:1]]
    return f" ({kinds[0]}{''.join(references)})" if references and kinds and len(references) <= len(_SHORT) else ""


_SHORT = range(4)


def immortal_cycle(e: Evidence) -> Advice | None:
    """A cycle through autograd's C++ side, which the collector can never free."""
    if not (e.in_cycle and e.cycle_is_hidden):
        return None
    sure = "it is never freed"
    if e.certainty is CycleCertainty.PROBABLE:
        sure = "it is probably never freed (one of its owners cannot be read from Python)"
    return Advice(f"The cycle runs through {_unseen(e)}, where Python's collector cannot see: {sure}. {_where(e)}")


def _unseen(e: Evidence) -> str:
    is_array = any(step.kind == "numpy.ndarray" for step in e.path.steps)
    has_graph = any(step.reference.startswith((HEAD_OF_GRAPH, ".grad", "saved for")) for step in e.path.steps)
    return "a NumPy array of objects" if is_array and not has_graph else "autograd's C++ side"


def _where(e: Evidence) -> str:
    """Return what to cut, as precisely as it is known."""
    references = [step.reference for step in e.path.steps]
    how = ""
    if ".grad" in references:
        how = (
            " Gradients carry a graph after backward(create_graph=True): set them to None when they have been used, or "
            "take them with `torch.autograd.grad(..., create_graph=True)`, which stores nothing in `.grad`."
        )
    elif any("hook" in reference for reference in references):
        how = " Keep the handle that the hook's registration returns, and call its `remove()` when the run ends."
    if e.cut is None:
        return (how or " Cut one of its references: a hook's handle, or a `.grad` that carries a graph.").strip()
    words = f"Cut it at {e.cut.reference}: {e.cut.how}. {e.cut.words}".rstrip(".") + f".{how}"
    return f"{words} leaklab.cut_cycles() tries it and says what comes back." if e.cut.is_safe else words


def deepcopy_kept(e: Evidence) -> Advice | None:
    """Copies of one object that was there before: the metric that is deep-copied for every batch."""
    original = e.facts.original
    if not original or (e.in_cycle and e.cycle_is_hidden):
        return None
    where = "a reference cycle of each copy with itself" if e.in_cycle else place_words(e)
    waiting = (
        " The copies are cyclic garbage, which waits for a collection that is switched off here: gc.collect() frees "
        "them."
        if e.gc_is_off
        else ""
    )
    keep = f" Keep only the newest or best of them, or let go of them when they have been used{clearing(e)};"
    return Advice(
        f"Every run leaves a copy of {named(original)} behind, kept by {where}.{waiting}"
        f"{'' if e.in_cycle else keep} {'Copy' if e.in_cycle else 'or copy'} the values that are needed, not the whole "
        "object.",
        "Not if the copies are meant to live side by side, as an ensemble does.",
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
        release = ""
        if e.owner is not None and e.owner.kind.startswith("accelerate.") and is_expression(e.owner.code):
            release = f" `{written(e.owner.code)}.free_memory()` lets go of what it has prepared."
        return Advice(
            f"{named(e.place)} keeps the optimizers of earlier runs, and each has state of its own (momentum, "
            f"averages) for every parameter. Make one optimizer before the loop and use it again.{release}"
        )
    if Role.OPTIMIZER_STATE not in e.roles_above or e.has_optimizer:
        return None
    gone = e.facts.gone_parameters
    owner = e.holder.removesuffix(".param_groups").removesuffix(".state")
    if e.place.endswith(".state") and gone:
        return Advice(
            f"{named(owner)} has state of {unit_words(gone, 'parameters')} in no group any more: each run replaces "
            f"parameters and leaves the state of the old ones in {named(e.place)}. Make a new optimizer when the "
            f"parameters are replaced, or take the state of an old one out (`{written(owner)}.state.pop(...)` with "
            "it).",
            "Not while the old parameters are still trained.",
        )
    words = f" It has state of {unit_words(gone, 'parameters')} in no group any more." if gone else ""
    return Advice(
        f"{named(owner)} keeps parameters of earlier runs in {named(e.place)}.{words} Make a new optimizer instead of "
        "adding a group in each run, or take the old group out together with the state of its parameters "
        f"(`{written(owner)}.param_groups.pop()`, and `{written(owner)}.state.pop(...)` for each of them).",
        "Not while the old parameters are still trained.",
    )


def run_switch(e: Evidence) -> Advice | None:
    """Whole training runs, models and optimizers, are kept."""
    on_class = any(Role.CLASS in roles for roles in e.roles[: max(len(e.steps_above) - 1, 0)])
    has_runs = e.has_optimizer or (e.has_models and not on_class)
    if not (has_runs and e.has_tensors) or e.in_cycle or e.crossing is None:
        return None
    what = "the model and the optimizer" if e.has_optimizer else "the model"
    if e.holder == NAMESPACE:
        newest = f" (the newest is `{e.path.steps[0].reference}`)" if e.path.steps else ""
        return Advice(
            f"Every run binds {what} to a new variable of the notebook{newest}, and no variable is ever deleted. Use "
            "one name, so that each run replaces what the run before made, or `del` the old variables.",
            "Not if the runs are compared live, model against model.",
        )
    return Advice(
        f"{place_words(e)} keeps {what} of every run, so that two of them share the memory when the next one starts. "
        "Keep the figures you need (metrics, the path of a checkpoint), save weights to a file, and let go of the rest "
        f"before the next run begins{clearing(e)}.",
        "Not if the runs are compared live, model against model; `with leaklab.training_run(name)` tells what "
        "survives.",
    )
