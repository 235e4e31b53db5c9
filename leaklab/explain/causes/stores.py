"""Causes in what collects: caches, containers, notebook history, threads, workers, native memory."""

from __future__ import annotations

import re

from leaklab.explain.causes.advice import Advice, line_words
from leaklab.explain.cycles import UNSEEN_ROOT
from leaklab.explain.evidence import Evidence
from leaklab.heap.known_holders import NATIVE_CACHES, known_holder
from leaklab.heap.roles import Role
from leaklab.model import Status
from leaklab.text import format_bytes

_SHOWN = (".HistoryManager.outputs", ".history_manager.outputs")
_TOP = 2
"""A dict that is a variable, or an attribute of a module, a class or a singleton, is at the top."""
_INNER = ".data"
_WEAK_KEYS = "weakref.WeakKeyDictionary"
_WRAPPERS = frozenset({_WEAK_KEYS, "weakref.WeakValueDictionary", "collections.UserDict"})
"""Classes that are a dict to their users, and have one inside."""
_WRITTEN_TO = frozenset({"_io.StringIO", "_io.BytesIO", "bytearray", "array.array"})
_NEWEST = {
    "torch.Tensor": "[-1000:].clone()", "numpy.ndarray": "[-1000:].copy()", "pandas.": ".tail(1000).copy()",
    "str": "[-100_000:]", "bytes": "[-100_000:]", "tuple": "[-1000:]",
}  # fmt: skip
"""What takes the newest part, for the types of which the newest part comes last, without keeping the rest alive."""
TASK_KINDS = frozenset({"_asyncio.Task", "asyncio.tasks.Task"})
_WORKERS = (
    "multiprocessing.context.", "multiprocessing.process.", "multiprocessing.pool.", "multiprocessing.managers.",
    "concurrent.futures.thread.", "concurrent.futures.process.",
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter",
)  # fmt: skip


def notebook_history(e: Evidence) -> Advice | None:
    """The notebook keeps results (Out, _, _7) and sources (In, _i7), or the text of all output."""
    if e.holder.endswith(_SHOWN):
        return Advice(
            f"IPython keeps the text of everything that cells print and display, in {e.holder}, as long as the kernel "
            "runs. Print and display less, or empty it between runs.",
            after="get_ipython().history_manager.outputs.clear()",
            unless="Not before %notebook, which exports these outputs.",
        )
    if not e.is_history:
        return None
    return Advice(
        "The notebook itself remembers it: every value that a cell ends with is stored in Out and in _. "
        "Release what is there with %reset -f out, then del _, __, ___ (or %config InteractiveShell.cache_size = 0).",
        before="model(x)",
        after="model(x);  # the semicolon stores nothing; so does print()",
        unless="Not if the outputs are used again by their number (Out[7], _7).",
    )


def cached_results(e: Evidence) -> Advice | None:
    """An ``lru_cache`` keeps results and the arguments they belong to."""
    if e.unit != "objects" or e.in_cycle or Role.CACHE not in e.roles_above:
        return None
    cache = e.holder if "(" not in e.holder and " " not in e.holder else "function"
    of_self = any("arguments of a cached call" in step.reference for step in e.path.steps)
    why = (
        " Its arguments are kept too: cached on a method, that is the object itself, self."
        if of_self
        else " Arguments that never repeat fill it for ever."
    )
    return Advice(
        f"The cache of {e.holder} keeps every result.{why} Bound it, key it by something that repeats, or empty it.",
        before="@functools.lru_cache(maxsize=None)",
        after=f"@functools.lru_cache(maxsize=16)  # or, between runs: {cache}.cache_clear()",
        unless="Not if the same arguments come again and recomputing is dear: then empty it between runs only.",
    )


def global_cache(e: Evidence) -> Advice | None:
    """A module-level or class-level store grows: a dictionary, a registry, a singleton's table."""
    above = e.steps_above
    on_class = any(Role.CLASS in roles for roles in e.roles[: max(len(above) - 1, 0)])
    is_mapping = "dict" in e.holder_kind.lower()
    wrapper = _wrapper(e)
    at_top = len(above) - bool(wrapper) <= _TOP and is_mapping
    keyed = e.crossing is None or e.crossing.kind == "key"
    known = known_holder(e.path)
    library = e.path.root.startswith("module ") and e.path.root != "module '__main__'" and is_mapping
    if e.unit != "objects" or e.in_cycle or not (on_class or ((at_top or library) and keyed)):
        return None
    if known is not None:
        return Advice(
            f"{e.place} is {known[1].name}: it lives as long as the program. Let go of it between runs.",
            after=known[1].release,
            unless="Not inside the loop if filling it again is dear.",
        )
    if wrapper == _WEAK_KEYS:
        return _values_hold_keys(e)
    return Advice(
        f"{e.place} lives as long as the program and never forgets.{line_words(e)} Bound it, key it by something that "
        "repeats, or hold the values weakly.",
        before=e.facts.line.text if e.facts.line is not None else f"{e.place}[key] = value",
        after=f"{e.place}[key] = value; len({e.place}) > 100 and {e.place}.pop(next(iter({e.place})))"
        if is_mapping
        else f"{e.place}.clear()  # when its entries have been used",
        unless="Not weakly if nobody else keeps the values: they would be gone at once.",
    )


def table_of_module(e: Evidence) -> Advice | None:
    """A module gets one more buffer, parameter or part by every run, under a name of its own."""
    found = re.search(r"\._(buffers|parameters|modules)$", e.holder)
    if found is None or e.in_cycle or e.crossing is None or not any(Role.MODULE in roles for roles in e.roles):
        return None
    name = e.holder[: found.start()]
    one = {"buffers": "buffer", "parameters": "parameter", "modules": "part"}[found[1]]
    return Advice(
        f"{name} gets one more {one} by every run, each under a name of its own, and keeps all of them.{line_words(e)} "
        f"Use one name, so that each replaces the one before, or take the old one out: del {name}.NAME.",
        unless="Not if the module computes with all of them.",
    )


def _wrapper(e: Evidence) -> str:
    """Return the name of the class whose instances keep their entries in the holder, their dict ``.data``; else ""."""
    pairs = zip(e.steps_above, e.steps_above[1:], strict=False)
    found = (owner.kind for owner, step in pairs if step.reference == _INNER and step.status is not Status.LEAKED)
    return next((kind for kind in found if kind in _WRAPPERS), "") if e.holder.endswith(_INNER) else ""


def _values_hold_keys(e: Evidence) -> Advice:
    place = e.holder.removesuffix(_INNER)
    return Advice(
        f"An entry of {place} goes with its key, but a value that refers to its own key keeps both of them for as long "
        f"as {place} lives.{line_words(e)} Store what does not lead back to the key.",
        before=e.facts.line.text if e.facts.line is not None else f"{place}[key] = {{'key': key, 'mean': mean}}",
        after=f"{place}[key] = {{'mean': mean}}  # or, in the value, weakref.ref(key)",
        unless="Not if the keys are kept by something else on purpose: then that is what holds them.",
    )


def has_tasks(e: Evidence) -> bool:
    """Return whether asyncio tasks keep what leaks, or are it."""
    return bool(e.entry_kinds & TASK_KINDS) or any(step.kind in TASK_KINDS for step in e.path.steps)


def is_result_of_task(e: Evidence) -> bool:
    """Return whether what leaks is the result of asyncio tasks, which have ended then."""
    pairs = zip(e.path.steps, e.path.steps[1:], strict=False)
    return any(task.kind in TASK_KINDS and held.reference == "._result" for task, held in pairs)


def finished_tasks(e: Evidence) -> Advice | None:
    """A collection of asyncio tasks that have ended, each with its result."""
    if e.unit != "objects" or e.in_cycle or e.crossing is None or not is_result_of_task(e):
        return None
    forget = {"set": f"{e.place}.discard", "list": f"{e.place}.remove"}.get(e.holder_kind)
    return Advice(
        f"{e.place} keeps asyncio tasks that have ended, and each task keeps its result.{line_words(e)} Take the "
        "result and drop the task when it is done.",
        after=f"task.add_done_callback({forget})  # for each task, when it is put there"
        if forget
        else f"{e.place}.clear()  # when the results have been used",
        unless="Not while somebody will still ask a task for its result.",
    )


def _replaced(e: Evidence) -> Advice:
    """Something that cannot get longer itself: in every run a larger one takes its place."""
    newest = next((call for kind, call in _NEWEST.items() if e.holder_kind.startswith(kind)), "")
    return Advice(
        f"Every run puts something larger into {e.holder}: all that was there, and more.{line_words(e)} Keep the parts "
        "in a list and join them once at the end, write them to a file as they come, or keep the newest part only.",
        after=f"{e.holder} = {e.holder}{newest}  # the newest part only" if newest else "",
        unless="Not if all of it is needed at the end; then write it to a file as it comes." if newest else "",
    )


def container_growth(e: Evidence) -> Advice | None:
    """A container gets longer, or a buffer bigger, by every run."""
    if e.unit in ("bytes", "characters") and e.holder_kind not in _WRITTEN_TO:
        return _replaced(e)
    if e.unit in ("entries", "bytes", "characters"):
        each = f", {format_bytes(e.facts.bytes_per_entry)} for each entry" if e.facts.bytes_per_entry else ""
        kind = f" ({e.what}{each})" if e.unit == "entries" else ""
        return Advice(
            f"{e.holder} grows by every run{kind}.{line_words(e)} Keep a sum or the newest entries only, or empty "
            "it once its content has been used.",
            before=e.facts.line.text if e.facts.line is not None else f"{e.holder} = []",
            after=f"{e.holder} = collections.deque(maxlen=100)  # or {e.holder}.clear() when it has been used"
            if e.unit == "entries"
            else f"{e.holder}.clear()  # or seek(0) and truncate() for a stream",
            unless="Not if all of it is needed at the end; then write it to a file as it comes.",
        )
    if e.crossing is None or e.has_tensors or e.crossing.kind not in ("key", "index", "element"):
        return None
    return Advice(
        f"{e.place} gets one more entry by every run.{line_words(e)} Remove entries when they are done, or bound "
        "its length.",
        before=e.facts.line.text if e.facts.line is not None else f"{e.place}.append(entry)",
        after=f"{e.place}.clear()  # when the entries have been used",
        unless="Not while something still iterates over it.",
    )


_TIMERS = frozenset({"asyncio.events.TimerHandle", "threading.Timer"})
_THREAD_LOCALS = frozenset({"_thread._local", "_threading_local.local"})


def thread_kept(e: Evidence) -> Advice | None:
    """A thread, a queue, a pool or a worker that never ends."""
    if e.in_cycle:
        return None
    if e.entry_kinds and e.entry_kinds <= _TIMERS:
        return Advice(
            f"{e.place} keeps timers that have not run yet, with what their functions and contexts use. Cancel a timer "
            "that nobody waits for any more.",
            before="loop.call_later(delay, function)",
            after="timer = loop.call_later(delay, function); timer.cancel()  # when the run ends",
            unless="Not before its function has run if somebody counts on that.",
        )
    if any(step.kind in _THREAD_LOCALS for step in e.path.steps):
        return Advice(
            f"{e.place} belongs to threads that earlier runs started and that have not ended: what a thread keeps in a "
            "threading.local goes when the thread ends. End the threads, or start them once.",
            before="pool = ThreadPoolExecutor()  # in every run",
            after="with ThreadPoolExecutor() as pool: ...  # ends its threads",
            unless="Not if the same few threads serve all runs.",
        )
    above = e.roles_above & {Role.THREAD, Role.WORKERS, Role.QUEUE}
    has_workers = Role.WORKERS in above or any(kind.startswith(_WORKERS) for kind in e.kinds)
    has_threads = e.path.root.startswith("thread") or any(kind.startswith("threading.Thread") for kind in e.kinds)
    if not (above or has_workers or has_threads):
        return None
    if has_workers:
        return Advice(
            f"{e.place} keeps worker processes or pools that earlier runs started.{_worker_words(e)} Start them once "
            "and use them again, or shut them down.",
            before="loader = DataLoader(data, num_workers=4, persistent_workers=True)  # in every run",
            after="build the loader before the loop; or, to let it go: del loader (pools: pool.shutdown())",
            unless="Not if each run needs another data set; then drop the old loader first.",
        )
    if above == {Role.QUEUE} and (known := known_holder(e.path)) is not None:
        return Advice(f"{e.place} is {known[1].name}. Release it when the run has used it.", after=known[1].release)
    if above == {Role.QUEUE}:
        return Advice(
            f"{e.place} is a queue that is filled and not emptied. Let somebody take its items, or bound it.",
            before="box = queue.Queue()",
            after="box = queue.Queue(maxsize=8)  # put() then waits until an item is taken",
            unless="Not with a bound if the same thread puts and takes: it would wait for itself.",
        )
    return Advice(
        "Threads started by the cell are still running, and keep what their functions use. Tell them to stop (an "
        "event, a sentinel in the queue), drain their queue, and join() them; or start them once.",
        before="threading.Thread(target=work).start()",
        after="stop.set(); thread.join()  # at the end of the run",
        unless="Not if it is one thread that serves all runs.",
    )


def _worker_words(e: Evidence) -> str:
    if not e.facts.n_workers:
        return ""
    kept = "process is" if e.facts.n_workers == 1 else "processes are"
    return (
        f" {e.facts.n_workers:,} child {kept} alive with {format_bytes(e.facts.worker_bytes)} resident memory, "
        "which no figure of this process contains."
    )


def native(e: Evidence) -> Advice | None:
    """Nothing in Python explains it: not even a cycle, where collections run and do not free it."""
    if e.path.root != UNSEEN_ROOT and not e.in_cycle:
        return None
    text = (
        "Its holder is not seen: no reference in Python keeps it. Look at extension modules (a reference count that is "
        "never taken back), at C++ objects, and at compiled or traced code that is made again in every run."
    )
    if e.unit != "bytes":
        return Advice(text)
    harmless = "; ".join(f"{cache.name} ({cache.sign})" for cache in NATIVE_CACHES)
    return Advice(f"{text} What stops growing is no leak: {harmless}.")
