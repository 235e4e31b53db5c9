"""Name the cause of a leak, and what to change: one small inspector per cause, the most specific first."""

from __future__ import annotations

import re
from collections.abc import Callable

from leaklab.explain.cycles import UNSEEN_ROOT
from leaklab.explain.evidence import Cause, Evidence

_HOOKS = re.compile(r"_\w*hooks(_\w+)?\b")
_COLLECTED = ("key", "index", "element")
_PLACES = ("closure", "default", "partial", "frame-local")
_CALLBACKS = ("method", "function", "functools.partial", "weakref.finalize._Info", "weakref.WeakMethod")


Inspector = Callable[[Evidence], str | None]


def find_cause(evidence: Evidence) -> Cause:
    """Return the first cause whose inspector recognises *evidence*; ``unknown`` if none does."""
    for slug, inspector in INSPECTORS:
        advice = inspector(evidence)
        if advice is not None:
            return Cause(slug, advice)
    return Cause("unknown", f"Follow the path: {evidence.place} is the last object that has a reason to be alive.")


def notebook_history(e: Evidence) -> str | None:
    """The notebook keeps results (Out, _, _7) and sources (In, _i7)."""
    if not e.is_history:
        return None
    return (
        "The notebook itself remembers it. End the line with a semicolon or use print() so that nothing is stored in "
        "Out; release what is there with %reset -f out, then del _ , __ , ___ ."
    )


def hook_left(e: Evidence) -> str | None:
    """A hook was registered and its handle never removed."""
    hooked = [step for step in e.path.steps if _HOOKS.search(step.reference)]
    if not hooked or e.in_cycle:
        return None
    return (
        f"Each run registers a hook in {e.holder} and leaves it there. Keep the handle that the registration returns "
        "and call handle.remove() when the hook has done its work, or register it once, outside of what is repeated."
    )


def traceback_kept(e: Evidence) -> str | None:
    """A stored exception keeps the frames it went through, and their local variables."""
    if not any(step.kind == "traceback" for step in e.path.steps):
        return None
    return (
        f"{e.place} keeps an exception, and its traceback keeps every local variable of the frames it went through. "
        "Store str(error) or traceback.format_exc() instead, or set error.__traceback__ = None before storing it."
    )


def autograd_ctx(e: Evidence) -> str | None:
    """The ctx of a custom autograd function was stored."""
    if not any(kind.endswith("Backward") for kind in e.entry_kinds):
        return None
    return (
        f"{e.place} stores the ctx of a custom autograd function, with everything the forward pass put on it. "
        "Do not keep ctx after backward; pass tensors through ctx.save_for_backward, which backward frees."
    )


def optimizer_state(e: Evidence) -> str | None:
    """An optimizer collects parameter groups or state."""
    over = [
        step.reference
        for before, step in zip(e.path.steps, e.path.steps[1:], strict=False)
        if step.reference in (".state", ".param_groups") and "optim" in before.kind
    ]
    if not over or e.has_optimizer:
        return None
    return (
        f"The optimizer keeps parameters of earlier runs in {e.place}. Build a new optimizer instead of adding groups, "
        "or remove the old group and its state: for p in optimizer.param_groups.pop()['params']: "
        "optimizer.state.pop(p, None)."
    )


def run_switch(e: Evidence) -> str | None:
    """Whole training runs, models and optimizers, are kept."""
    if not (e.has_optimizer and e.has_tensors) or e.in_cycle or e.crossing is None:
        return None
    return (
        f"{e.place} keeps the model and the optimizer of every run. Keep the figures you need (metrics, a path to a "
        "checkpoint) and drop the rest before the next run begins."
    )


def callback_registry(e: Evidence) -> str | None:
    """A registry keeps a bound method or function, and with it the object."""
    registries = ("finalize", "atexit", ".callbacks", "handlers")
    by_name = any(name in step.reference or name in step.kind for step in e.steps_above for name in registries)
    if e.crossing is None or not (by_name or (e.entry_kinds & set(_CALLBACKS) and e.crossing.kind in _COLLECTED)):
        return None
    return (
        f"{e.place} keeps a callback of every run, and a bound method keeps its object. Unregister it when the object "
        "is done, or register weakref.WeakMethod(obj.method)."
    )


def thread_kept(e: Evidence) -> str | None:
    """A thread, a queue or a worker that never ends."""
    threads = ("threading.Thread", "multiprocessing.", "queue.", "torch.utils.data.dataloader")
    if not (e.path.root.startswith("thread") or any(kind.startswith(threads) for kind in e.kinds)):
        return None
    return (
        "Threads or workers started by the cell are still running, and keep what their functions use. Tell them to "
        "stop (an event, a sentinel in the queue), drain their queue, and join() them; or start them once."
    )


def closure_kept(e: Evidence) -> str | None:
    """A closure, a default argument, a partial or a suspended frame keeps it."""
    words = ("closure variable", "default of", "local ")
    through = any(step.reference.startswith(words) or ".__defaults__" in step.reference for step in e.steps_above)
    suspended = {"generator", "coroutine", "async_generator", "_asyncio.Task"}
    frames = e.entry_kinds & suspended or any(step.kind in suspended for step in e.path.steps)
    crosses = e.crossing is not None and e.crossing.kind in _PLACES
    if e.unit != "objects" or not (through or frames or crosses) or e.path.root.startswith("running"):
        return None
    if frames:
        return (
            f"{e.place} keeps suspended generators or coroutines, and their frames keep every local variable. Close "
            "them (gen.close(), coro.close()) or cancel their tasks, and take them out."
        )
    return (
        f"A function keeps it: {e.place}. Mutable default arguments and closure variables live as long as their "
        "function; use None as the default and make the list inside, or pass the value in."
    )


def graph_kept(e: Evidence) -> str | None:
    """A tensor with its autograd graph is stored or added to."""
    if e.unit == "graph nodes":
        return (
            f"{e.holder} carries its whole history: every run adds nodes to its graph, and backward through it would "
            "get slower and slower. Add numbers instead: loss.item(), or loss.detach()."
        )
    if not e.has_graph or e.crossing is None:
        return None
    return (
        f"What is stored in {e.place} still carries its autograd graph, and the graph keeps the activations. Store "
        "loss.item() or tensor.detach() (and .cpu()) instead, and clear it when the epoch ends."
    )


def global_cache(e: Evidence) -> str | None:
    """A module-level or class-level dict, or an unbounded lru_cache, grows."""
    above = e.steps_above
    cached = any("cached result" in step.reference or "lru_cache" in step.kind for step in above)
    on_class = any(step.kind in ("type", "abc.ABCMeta") for step in above[:-1])
    at_top = len(above) <= 2 and (e.holder_kind.endswith("dict") or "dict" in e.holder_kind.lower())  # noqa: PLR2004
    keyed = e.crossing is None or e.crossing.kind == "key"
    if e.unit != "objects" or not (cached or on_class or (at_top and keyed)):
        return None
    if cached:
        return (
            f"The cache of {e.holder} keeps every result: arguments that never repeat fill it for ever. Bound it with "
            f"lru_cache(maxsize=...), or empty it with {e.holder}.cache_clear()."
        )
    return (
        f"{e.place} lives as long as the program and never forgets. Bound it (a maximal size, an lru_cache), key it by "
        "something that repeats, or hold the values weakly (weakref.WeakValueDictionary)."
    )


def container_growth(e: Evidence) -> str | None:
    """A container gets longer, or a buffer bigger, by every run."""
    if e.unit in ("entries", "bytes", "characters"):
        return (
            f"{e.holder} grows by every run. Keep a sum or the newest entries only (collections.deque(maxlen=...)), or "
            f"empty it once its content has been used: {e.holder}.clear()."
        )
    if e.crossing is None or e.has_tensors or e.crossing.kind not in ("key", "index", "element"):
        return None
    return f"{e.place} gets one more entry by every run. Remove entries when they are done, or bound its length."


def tensor_kept(e: Evidence) -> str | None:
    """A tensor is stored and never taken out."""
    if not e.has_tensors or e.crossing is None:
        return None
    if e.crossing.kind in ("attribute", "slot"):
        return f"{e.place} links to what earlier runs made. Cut it when it is no longer needed: {e.place} = None."
    return (
        f"{e.place} keeps the tensors of every run. Reduce them to numbers as they come, or empty it when they have "
        f"been used: {e.place}.clear()."
    )


def cycle_garbage(e: Evidence) -> str | None:
    """Garbage in cycles that no collection frees, because it is switched off or looks elsewhere."""
    if not (e.in_cycle and e.gc_is_off) or e.cycle_is_hidden:
        return None
    return (
        "The objects refer to each other in a circle, and the collector that would free them is switched off, or they "
        "are frozen. Call gc.collect() from time to time (and before any gc.freeze()), or break the circle: hold one "
        "of the references with weakref.ref, or set it to None."
    )


def immortal_cycle(e: Evidence) -> str | None:
    """A cycle through autograd's C++ side, which the collector can never free."""
    if not (e.in_cycle and e.cycle_is_hidden):
        return None
    return (
        "The cycle runs through autograd's C++ side, where Python's collector cannot see: it is never freed. Cut one "
        "of its references: remove the hook's handle, set tensor.grad = None, or use torch.autograd.grad instead of "
        "backward(create_graph=True)."
    )


def native(e: Evidence) -> str | None:
    """Nothing in Python explains it: not even a cycle, where collections run and do not free it."""
    if e.path.root != UNSEEN_ROOT and not e.in_cycle:
        return None
    return (
        "No reference in Python keeps it: look at extension modules (a reference count that is never taken back), at "
        "C++ objects, and at compiled or traced code that is made again in every run."
    )


INSPECTORS: tuple[tuple[str, Inspector], ...] = (
    ("notebook-history", notebook_history),
    ("immortal-cycle", immortal_cycle),
    ("cycle-garbage", cycle_garbage),
    ("native", native),
    ("traceback-kept", traceback_kept),
    ("hook-left", hook_left),
    ("autograd-ctx", autograd_ctx),
    ("thread-or-worker-kept", thread_kept),
    ("optimizer-state", optimizer_state),
    ("run-switch", run_switch),
    ("callback-registry", callback_registry),
    ("closure-kept", closure_kept),
    ("graph-kept", graph_kept),
    ("global-cache", global_cache),
    ("container-growth", container_growth),
    ("tensor-kept", tensor_kept),
)
