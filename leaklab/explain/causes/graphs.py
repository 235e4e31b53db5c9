"""Causes in autograd: a graph carried along, a stored ctx, tensors that are never taken out."""

from __future__ import annotations

import re

from leaklab.explain.causes.advice import Advice
from leaklab.explain.causes.lines import HEAD_OF_GRAPH, changed_line, line_words
from leaklab.explain.leaks.evidence import Evidence
from leaklab.explain.paths.roles import Role


def graph_kept(e: Evidence) -> Advice | None:
    """A tensor with its autograd graph is stored or added to, or hidden state is carried without detach."""
    if e.unit == "graph nodes":
        return _growing_graph(e)
    if not e.has_graph or e.crossing is None:
        return None
    number = e.facts.is_scalar
    call = ".item()" if number else ".detach()"
    before, after = changed_line(e, call, _storing(e, "loss"), _storing(e, f"loss{call}"))
    return Advice(
        f"What is stored in {e.place} still carries its autograd graph, and the graph keeps the activations of its "
        f"run.{line_words(e)} Store {'the number' if number else 'the values without the graph'} instead.",
        before,
        after,
        "Not if backward() is called through it later: then do that first, and clear the container after it.",
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
    # mean() refuses whole numbers and truth values.
    number = ".float().mean().item()" if re.search(r"\b(u?int\d+|bool)\b", e.what) else ".mean().item()"
    before, after = changed_line(e, number, _storing(e, "x"), _storing(e, f"x{number}"))
    return Advice(
        f"{e.place} keeps the tensors of every run.{line_words(e)} Reduce them to the numbers that are needed as they "
        f"come, or empty it when they have been used: {e.place}.clear().",
        before,
        after,
        "Not if all values are needed together at the end; then move them off the accelerator (.cpu()) and clear it "
        "after use.",
    )
