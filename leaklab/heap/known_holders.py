"""Recognise library holders known for what they keep, with the call that releases it.

A table of data: each entry is a pattern over a path's record, the name of the holder, and the call that releases it.
The release calls are those that the libraries document or export for the purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from leaklab.heap.shortest_paths import Start
from leaklab.model import RootPath, Step
from leaklab.runtime.ours import OUTPUT_NAMES

_NEEDS_OWNER: dict[str, Callable[[str], bool]] = {
    "accelerator.free_memory()": lambda owner: owner.startswith("accelerate."),
    "model.trainer = None": lambda owner: "." in owner,
}
_ANY = ""
_HISTORY = (
    "the notebook remembers results: end a line with a semicolon so that nothing is stored; %reset -f out and then "
    "del _ , __ , ___ release what is there"
)


@dataclass(frozen=True, slots=True)
class KnownHolder:
    """A library's holder.

    Attributes:
        name: What it is, for a note: ``the cache of torch.compile``.
        release: What releases it, in code where there is a call.
        reference: Matches the reference of a step: for the first step the root's own expression.
        kind: Matches the name of that step's type.
        root: Matches the words for the root.
        is_asked_for: Whether an entry gets there only by a call that somebody makes for it: a library does not fill it
            for itself.
    """

    name: str
    release: str
    reference: str = ""
    kind: str = ""
    root: str = ""
    is_asked_for: bool = False

    def matches(self, root: str, step: Step, *, is_first: bool = True) -> bool:
        """Return whether *step* of a path from *root* is this holder; one recognised by its root alone comes first."""
        if not (is_first or self.reference or self.kind):
            return False
        wanted = ((self.root, root), (self.reference, step.reference), (self.kind, step.kind))
        return all(re.search(pattern, text) for pattern, text in wanted if pattern)

    @property
    def words(self) -> str:
        """One sentence for a note."""
        return f"known holder: {self.name}; {self.release} lets go"


KNOWN_HOLDERS: tuple[KnownHolder, ...] = (
    KnownHolder(
        "the compilation caches of torch.compile", "torch._dynamo.reset()",
        root=r"^module 'torch\.(_dynamo|_inductor|_functorch)",
    ),
    KnownHolder(
        "the compilation caches of torch.compile", "torch._dynamo.reset()", kind=r"^torch\._(dynamo|inductor)\."
    ),
    KnownHolder(
        "torch.fx, which keeps the source text of every graph it generates",
        "linecache.clearcache()",
        reference=r"^torch\.fx\.graph_module\._loader\b",
    ),
    KnownHolder(
        "the notebook's list of outputs", "%reset -f out, then del _, __, ___,", reference=rf"^({OUTPUT_NAMES})$"
    ),
    KnownHolder(
        "IPython's copy of names hidden from %who",
        "del get_ipython().user_ns_hidden[name]",
        reference=r"\.user_ns_hidden$",
    ),
    KnownHolder(
        "the last uncaught exception, with every frame it went through",
        "sys.last_exc = sys.last_value = sys.last_traceback = None",
        reference=r"^sys\.last_(exc|value|traceback)$",
    ),
    KnownHolder(
        "the traceback that IPython shows again by %tb",
        "get_ipython().last_syntax_error = None and a cell that succeeds",
        reference=r"\.(last_syntax_error|_last_traceback)$",
        kind=r"Error|Exception|traceback|list",
    ),
    KnownHolder(
        "IPython's record of the last cell, its result and its traceback",
        "running another cell, then %reset -f out,",
        reference=r"^\.(InteractiveTB|SyntaxTB|last_execution_result|displayhook)$",
    ),
    KnownHolder(
        "logging's table of all loggers, which is never emptied",
        "logging.getLogger(name) with one name for all runs",
        reference=r"\.loggerDict$",
        is_asked_for=True,
    ),
    KnownHolder(
        "the list of warning filters, which each new filter makes longer",
        "warnings.catch_warnings() around what sets a filter",
        reference=r"\b_?warnings\.filters$",
        is_asked_for=True,
    ),
    KnownHolder(
        "the import path (sys.path), which each insertion makes longer",
        "a test whether the folder is there already",
        reference=r"^sys\.path$",
        is_asked_for=True,
    ),
    KnownHolder("pyplot's list of open figures", "plt.close('all')", root=r"^module '(matplotlib|pylab)\b"),
    KnownHolder(
        "a debugger", "ending its session, or turning off its data viewer,", root=r"^module '_?(pdb|bdb|debugpy|pydevd)"
    ),
    KnownHolder(
        "a picture of a frame's variables, made by a debugger or profiler",
        "reading frame.f_locals again, or leaving the debugger,",
        reference=r"^\.f_locals$",
        kind=r"^dict$",
    ),
    KnownHolder(
        "a trainer that its own model card refers to",
        "trainer.model.model_card_data.trainer = None",
        reference=r"^\.model_card_data$",
    ),
    KnownHolder(
        "the module's back reference to its trainer", "model.trainer = None", reference=r"^\._trainer$",
        kind=r"^(lightning|pytorch_lightning)\.",
    ),
    KnownHolder(
        "the accelerator's lists of everything it has prepared",
        "accelerator.free_memory()",
        reference=r"^\._(models|optimizers|schedulers|dataloaders)$",
        kind=r"^list$",
        root="",
    ),
    KnownHolder(
        "a list state of a metric, longer with every update", "metric.reset()", kind=r"^torchmetrics\."
    ),
    KnownHolder(
        "the writer's queue and thread for TensorBoard events",
        "writer.close()",
        kind=r"^(torch\.utils\.tensorboard|tensorboard(X)?)\b",
    ),
    KnownHolder(
        "pytest's record of a failed test",
        "traceback.clear_frames(error.__traceback__) in a hook",
        kind=r"^_pytest\._code\.code\.(ExceptionInfo|TracebackEntry|Traceback)$",
    ),
    KnownHolder(
        "a memo of everything that it has pickled, so that a second pickle may refer to the first", "its clear_memo()",
        kind=r"^_pickle\.Pickler$",
    ),
    KnownHolder("a cache of results", "its cache_clear()", kind=r"_lru_cache_wrapper$"),
)  # fmt: skip
"""The most specific first. (Where several steps match, the one nearest to what leaks counts.)"""


def known_holder(path: RootPath) -> tuple[int, KnownHolder] | None:
    """Return the last step of *path* that is a known holder of what comes after it, and which one; None if none is."""
    found: tuple[int, KnownHolder] | None = None
    owner = ""
    for position, step in enumerate(path.steps):
        for known in KNOWN_HOLDERS:
            right_owner = _NEEDS_OWNER.get(known.release, _any_owner)
            if known.matches(path.root, step, is_first=not position) and right_owner(owner):
                found = position, known
                break
        owner = step.kind
    return found


def _any_owner(_owner: str) -> bool:
    return True


def with_known_holders(path: RootPath) -> RootPath:
    """Return *path* with a note at its known holder, if it has one and the step has no note yet."""
    found = known_holder(path)
    if found is None or path.steps[found[0]].note:
        return path
    position, known = found
    steps = list(path.steps)
    steps[position] = replace(steps[position], note=known.words)
    return replace(path, steps=tuple(steps))


@dataclass(frozen=True, slots=True)
class NativeCache:
    """Memory below Python that looks like a leak and is none.

    Attributes:
        name: What keeps it.
        sign: How it shows in the figures.
        release: What gives it back, or bounds it.
    """

    name: str
    sign: str
    release: str


NATIVE_CACHES: tuple[NativeCache, ...] = (
    NativeCache(
        "oneDNN's primitive cache",
        "the native heap grows with every new shape and stops at 1,024 primitives",
        "set ONEDNN_PRIMITIVE_CACHE_CAPACITY before torch is imported",
    ),
    NativeCache(
        "the caching allocator of the accelerator",
        "reserved memory stays while allocated memory falls",
        "torch.accelerator.empty_cache() or torch.cuda.empty_cache()",
    ),
    NativeCache(
        "cuBLAS workspaces",
        "8 to 32 MiB for each stream and handle, once",
        "torch._C._cuda_clearCublasWorkspaces()",
    ),
    NativeCache(
        "the arenas of malloc",
        "the process stays large while the bytes in use fall",
        "nothing needs to be done: the next allocation reuses them",
    ),
)
"""Not leaks: named where native memory grows, so that nobody hunts for them."""


class _Known(NamedTuple):
    """A kind of holder that is no one library's: where its paths begin, what is on them, and what to say."""

    root: str
    reference: str
    words: str


_KNOWN: Final = tuple(
    _Known(*row)
    for row in (
        (
            "exception being handled",
            _ANY,
            "it lives as long as the except block that handles it",
        ),
        (
            r"module 'linecache'|module 'warnings'|module 'logging",
            _ANY,
            "a table of the standard library",
        ),
        (
            _ANY,
            r"_\w*hooks(_\w+)?\b",
            "a hook holds it: keep the handle that its registration returns, and call handle.remove()",
        ),
        (r"thread ", _ANY, "it goes when the thread's function returns"),
        (r"running function ", _ANY, "it goes when that function returns"),
        ("running loop", _ANY, "it goes when that loop ends"),
        ("context variable", _ANY, "a context variable keeps it: var.reset(token), or set it to something else"),
        ("signal handler", _ANY, "a signal handler keeps it: signal.signal(number, signal.SIG_DFL)"),
    )
)


def remark_on(start: Start | None, path: RootPath) -> str:
    """Return what is known of the holder of a path, empty if it is nobody's but the user's.

    Args:
        start: Where the path begins.
        path: The path, of which the table of `known_holders` is asked first.
    """
    if start is None:
        return ""
    if start.is_history:
        return _HISTORY
    if (found := known_holder(path)) is not None:
        return found[1].words
    references = " ".join(step.reference for step in path.steps)
    for known in _KNOWN:
        if re.match(known.root, start.words) and re.search(known.reference, references):
            return known.words
    return f"a library holds it for itself: {start.words}" if start.is_library else ""
