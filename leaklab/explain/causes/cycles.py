"""Causes in reference cycles: garbage that waits, and cycles that no collection can free."""

from __future__ import annotations

from leaklab.explain.causes.advice import Advice
from leaklab.explain.leaks.evidence import Evidence
from leaklab.model.cycles import Stage


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
    if e.stage is Stage.PROBABLE:
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
