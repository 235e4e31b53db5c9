"""Causes in what collects: caches, containers, notebook history, threads, workers, native memory."""

from __future__ import annotations

import re

from leaklab.explain.causes.advice import (
    Advice,
    clearing,
    is_expression,
    is_private,
    is_users,
    may_release,
    named,
    place_words,
    written,
)
from leaklab.explain.cycles import UNSEEN_ROOT
from leaklab.explain.evidence import Evidence
from leaklab.explain.groups import MODULES
from leaklab.heap.known_holders import NATIVE_CACHES, KnownHolder, known_holder
from leaklab.heap.roles import Role
from leaklab.model import Status
from leaklab.text import format_bytes

_SHOWN = (".HistoryManager.outputs", ".history_manager.outputs")
_PYPLOT = "matplotlib._pylab_helpers"
_SOURCES = re.compile(r"^(In|_ih|_i\d*)\b|\binput_hist_(raw|parsed)\b")
_FRONT_END = ("IPython.", "ipykernel.")
_TOP = 2
"""A dict that is a variable, or an attribute of a module, a class or a singleton, is at the top."""
_INNER = ".data"
_WEAK_KEYS = "weakref.WeakKeyDictionary"
_WRAPPERS = frozenset({_WEAK_KEYS, "weakref.WeakValueDictionary", "collections.UserDict"})
"""Classes that are a dict to their users, and have one inside."""
_MAPPING = re.compile(r"((^|[._]|default)dict|Dict|Dictionary|Counter|mappingproxy)$")
"""Types that by their name are mappings: nothing is said of the methods of any other, a ``PredictionStore``, say."""
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
            f"IPython keeps the text of everything that cells print and display, in {named(e.holder)}, as long as the "
            "kernel runs. Print and display less, or empty it between runs: "
            "`get_ipython().history_manager.outputs.clear()`.",
            "Not before %notebook, which exports these outputs.",
        )
    if not e.is_history:
        return None
    if _SOURCES.search(e.holder):
        return Advice(
            f"The notebook keeps the source of every cell, in {named(e.holder)}: also of code that your cell hands to "
            "`run_cell`. Hand it over with `store_history=False`, or run generated code with `exec`."
        )
    return Advice(
        "The notebook itself remembers it: every value that a cell ends with is stored in Out and in _. End that line "
        "with a semicolon, or print the value: then nothing is stored. Release what is there with %reset -f out, then "
        "del _, __, ___ (or %config InteractiveShell.cache_size = 0).",
        "Not if the outputs are used again by their number (Out[7], _7).",
    )


def cached_results(e: Evidence) -> Advice | None:
    """An ``lru_cache`` keeps results and the arguments they belong to."""
    if e.unit != "objects" or e.in_cycle or Role.CACHE not in e.roles_above:
        return None
    place = written(e.holder)
    can = is_expression(place) and e.holder_kind.endswith("_lru_cache_wrapper")
    of_self = any("arguments of a cached call" in step.reference for step in e.path.steps)
    why = (
        "Its arguments are kept too: cached on a method, that is the object itself, `self`."
        if of_self
        else "Arguments that never repeat fill it for ever."
    )
    empty = f"`{place}.cache_clear()`" if can and not is_private(place) else "its `cache_clear()`"
    return Advice(
        f"The cache of {named(place)} keeps every result. {why} Give it a limit where it is decorated "
        f"(`functools.lru_cache(maxsize=16)`), use arguments that repeat, or empty it between runs: {empty}.",
        "Not if the same arguments come again and recomputing is dear: then empty it between runs only.",
    )


def global_cache(e: Evidence) -> Advice | None:
    """A module-level or class-level store grows: a dictionary, a registry, a singleton's table."""
    above = e.steps_above
    on_class = any(Role.CLASS in roles for roles in e.roles[: max(len(above) - 1, 0)])
    is_mapping = _MAPPING.search(e.holder_kind) is not None
    wrapper = _wrapper(e)
    at_top = len(above) - bool(wrapper) <= _TOP and is_mapping
    keyed = e.crossing is None or e.crossing.kind == "key"
    known = known_holder(e.path)
    library = e.path.root.startswith("module ") and e.path.root != "module '__main__'" and is_mapping
    if e.unit != "objects" or e.in_cycle or not (on_class or ((at_top or library) and keyed)):
        return None
    if known is not None:
        return _of_library(e, known[1])
    if wrapper == _WEAK_KEYS:
        return _values_hold_keys(e)
    if not is_users(e):
        return _table_of_library(e)
    where = "belongs to a class, lives as long as that," if on_class else "lives as long as the program,"
    if not is_mapping:
        return Advice(
            f"{place_words(e)} {where} and nothing is ever removed from it. Take an entry out when it is done, limit "
            f"its length, or empty it when its entries have been used{clearing(e)}.",
            "Not while somebody still needs the entries.",
        )
    place = written(e.holder.removesuffix(_INNER) if wrapper else e.holder)
    return Advice(
        f"{named(place)} {where} and nothing is ever removed from it. Limit its size "
        f"(`{place}.pop(next(iter({place})))` takes the oldest entry out), use keys that repeat, or empty it when its "
        f"entries have been used (`{place}.clear()`).",
        "Not if every entry is asked for again.",
    )


def _of_library(e: Evidence, known: KnownHolder) -> Advice:
    if _PYPLOT in e.path.root:
        return Advice(
            "pyplot keeps every figure open until it is closed. Call `plt.close(...)` with the figure when the run has "
            "shown or saved it: the one that `plt.figure()` or `plt.subplots()` returned, or `plt.gcf()` for the "
            "current one.",
            "`plt.close('all')` would close your other figures, too.",
            also=("open-figures",),
        )
    return Advice(
        f"{named(e.place)} is {known.name}: it lives as long as the program. Let go of it between runs: "
        f"{known.release}.",
        "Not inside of the loop if filling it again is dear.",
        also=("library-registry",),
    )


def _table_of_library(e: Evidence) -> Advice:
    """A table that a library keeps for itself: nothing of the user's writes into it."""
    module = re.match(r"module '(.+)'", e.path.root)
    owner, entry = e.owner, e.entry
    is_of_entry = entry is not None and entry.is_library and bool(entry.releases) and "_" not in entry.releases[0]
    whose = module[1] if module else owner.kind if owner is not None else ""
    whose = whose or (entry.kind.partition(".")[0] if entry is not None and is_of_entry else "a library")
    if owner is not None and owner.kind.startswith(_FRONT_END):
        return Advice(
            f"{named(e.place)} is what the notebook keeps for itself: it gets an entry with every cell, also with code "
            "that your cell hands to `run_cell`. Run generated code with `exec`, or hand it over with "
            "`store_history=False`.",
            also=("library-registry",),
        )
    release, once = may_release(owner), "Make or ask for that once, outside of what is repeated."
    if entry is not None and is_of_entry:
        name = entry.kind.rpartition(".")[2]
        release = (
            f" By the name, `{entry.releases[0]}()` of each {name} may take it out again: call it when the run ends."
        )
    return Advice(
        f"{named(e.place)} is a table that {whose} keeps for itself: it gets an entry when your code makes, registers "
        f"or asks for something, and keeps it. {once}{release} Don't write into the table yourself.",
        also=("library-registry",),
    )


def left_in_modules(e: Evidence) -> Advice | None:
    """A module that every run makes, or imports under a new name, stays in ``sys.modules``."""
    if e.holder != MODULES or e.in_cycle:
        return None
    newest = re.fullmatch(r"module ('.+')", e.path.root)
    take = f"`sys.modules.pop({newest[1] if newest else 'name'}, None)`"
    return Advice(
        "Every run leaves a module in `sys.modules` under a name of its own. There it stays until the program ends, "
        "with everything that its variables, functions and classes refer to. Use one name, so that each run replaces "
        f"the module of the run before, or take it out when it has been used ({take}, for example).",
        "Not while something is still to be imported from it, or unpickled by its name.",
    )


def kept_by_known(e: Evidence) -> Advice | None:
    """An object of a library that is known for what it keeps, as a pickler for what it has pickled, is the holder."""
    known = known_holder(e.path)
    if known is None or known[0] != e.n_to_holder - 1 or e.unit != "objects" or e.in_cycle or e.crossing is None:
        return None
    place, own = written(e.holder), known[1].release.partition("its ")[2]
    release = f"`{place}.{own}`" if own and is_expression(place) else known[1].release
    return Advice(
        f"{named(e.place)} has {known[1].name}. Let go of it between runs: {release}.",
        also=("library-registry",),
    )


def table_of_module(e: Evidence) -> Advice | None:
    """A module gets one more buffer, parameter or part by every run, under a name of its own."""
    found = re.search(r"\._(buffers|parameters|modules)$", e.holder)
    if found is None or e.in_cycle or e.crossing is None or not any(Role.MODULE in roles for roles in e.roles):
        return None
    name = written(e.holder[: found.start()])
    one = {"buffers": "buffer", "parameters": "parameter", "modules": "part"}[found[1]]
    key = re.fullmatch(r"\['([^\W\d]\w*)'\]|\.([^\W\d]\w*)", e.crossing.text)
    example = f" (`del {name}.{key[1] or key[2]}`, for example)" if key else ""
    return Advice(
        f"`{name}` gets one more {one} by every run, each under a name of its own, and keeps all of them. Use one "
        f"name, so that each replaces the one before, or delete the old one when it has been used{example}.",
        "Not if the module computes with all of them.",
        also=("module-tables",),
    )


def _wrapper(e: Evidence) -> str:
    """Return the name of the class whose instances keep their entries in the holder, their dict ``.data``; else ""."""
    pairs = zip(e.steps_above, e.steps_above[1:], strict=False)
    found = (owner.kind for owner, step in pairs if step.reference == _INNER and step.status is not Status.LEAKED)
    return next((kind for kind in found if kind in _WRAPPERS), "") if e.holder.endswith(_INNER) else ""


def _values_hold_keys(e: Evidence) -> Advice:
    place = written(e.holder.removesuffix(_INNER))
    return Advice(
        f"An entry of {named(place)} goes with its key, but a value that refers to its own key keeps both of them for "
        f"as long as {named(place)} lives. Store values that do not lead back to the key, or only a `weakref.ref` to "
        "it.",
        "Not if the keys are kept by something else on purpose: then that is what holds them.",
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
    forget = {"set": "discard", "list": "remove"}.get(e.holder_kind)
    how = f": `task.add_done_callback({written(e.place)}.{forget})` where it is put there" if forget else ""
    return Advice(
        f"{place_words(e)} keeps asyncio tasks that have ended, and each task keeps its result. Let each task leave it "
        f"when it is done{how}; or empty it when the results have been used{clearing(e)}.",
        "Not while somebody will still ask a task for its result.",
        also=("finished-tasks",),
    )


def _replaced(e: Evidence) -> Advice:
    """Something that cannot get longer itself: in every run a larger one takes its place."""
    newest = next((call for kind, call in _NEWEST.items() if e.holder_kind.startswith(kind)), "")
    place = written(e.holder)
    how = f": `{place} = {place}{newest}`, with the length that you need" if newest and is_expression(place) else ""
    return Advice(
        f"Every run puts something larger into {named(place)}: all that was there, and more. Keep the parts in a list "
        f"and join them once at the end, write them to a file as they come, or keep the newest part only{how}.",
        "Not if all of it is needed at the end; then write it to a file as it comes.",
    )


def container_growth(e: Evidence) -> Advice | None:
    """A container gets longer, or a buffer bigger, by every run."""
    if e.unit in ("bytes", "characters") and e.holder_kind not in _WRITTEN_TO:
        return _replaced(e)
    if e.unit in ("entries", "bytes", "characters"):
        each = f", {format_bytes(e.facts.bytes_per_entry)} for each entry" if e.facts.bytes_per_entry else ""
        kind = f" ({e.what}{each})" if e.unit == "entries" else ""
        if not is_users(e) and not is_local(e) and e.unit == "entries":
            return _table_of_library(e)
        return Advice(
            f"{place_words(e)} grows by every run{kind}. {_how_to_limit(e)}",
            "Not if all of it is needed at the end; then write it to a file as it comes.",
        )
    if e.crossing is None or e.has_tensors or e.crossing.kind not in ("key", "index", "element"):
        return None
    if not is_users(e) and not is_local(e):
        return _table_of_library(e)
    return Advice(
        f"{place_words(e)} gets one more entry by every run. Take entries out when they are done, keep only the "
        f"newest, or empty it when they have been used{clearing(e)}.",
        "Not while somebody still needs the entries.",
    )


def is_local(e: Evidence) -> bool:
    """Return whether the holder is a variable of a function of the user's, or reached through one."""
    if e.owner is not None and e.owner.is_library:
        return False
    return any(step.reference.startswith(("closure variable", "default of", "local ")) for step in e.steps_above)


def _how_to_limit(e: Evidence) -> str:
    place = written(e.holder)
    if e.holder_kind in ("_io.StringIO", "_io.BytesIO") and is_users(e):
        return f"Empty it when it has been read: `{place}.seek(0); {place}.truncate()`."
    if e.holder_kind == "collections.deque" and is_users(e):
        return (
            "Give it a limit where it is made (`collections.deque(maxlen=...)`), or empty it once its content has been "
            f"used{clearing(e)}."
        )
    if e.holder_kind == "list" and is_users(e):
        return (
            "Keep a sum or the newest entries only (`del "
            f"{place}[:-100]` leaves the last 100), or empty it once its content has been used{clearing(e)}."
        )
    return f"Keep a sum or the newest entries only, or empty it once its content has been used{clearing(e)}."


_TIMERS = frozenset({"asyncio.events.TimerHandle", "threading.Timer"})
_THREAD_LOCALS = frozenset({"_thread._local", "_threading_local.local"})
_LIMITED = frozenset({"queue.Queue", "queue.LifoQueue", "queue.PriorityQueue", "asyncio.queues.Queue"})


def thread_kept(e: Evidence) -> Advice | None:
    """A thread, a queue, a pool or a worker that never ends."""
    if e.in_cycle:
        return None
    if e.entry_kinds and e.entry_kinds <= _TIMERS:
        is_thread = "threading.Timer" in e.entry_kinds
        call = "`threading.Timer(...)`" if is_thread else "`loop.call_later(...)` or `call_at(...)`"
        return Advice(
            f"{place_words(e)} keeps timers that have not run yet, with what their functions and contexts use. Keep "
            f"what {call} returns, and call its `cancel()` when nobody waits for it any more.",
            "Not before its function has run if somebody counts on that.",
            also=("pending-timers",),
        )
    if any(step.kind in _THREAD_LOCALS for step in e.path.steps):
        local = next((owner.code for owner in e.facts.owners if owner.kind in _THREAD_LOCALS and owner.code), e.place)
        return Advice(
            f"{named(local)} keeps values of threads that earlier runs started and that have not ended: what a thread "
            "keeps in a `threading.local` goes when the thread ends. End the threads when the run ends (an executor by "
            "its `shutdown()`, or `with ThreadPoolExecutor() as pool:`), or start them once and use them again.",
            "Not if the same few threads serve all runs.",
            also=("thread-locals",),
        )
    above = e.roles_above & {Role.THREAD, Role.WORKERS}
    # A queue that itself is what leaks is an entry of somebody's list: nobody has to take anything out of it.
    above |= {Role.QUEUE} & frozenset[Role]().union(*e.roles[: e.n_to_holder])
    has_workers = Role.WORKERS in above or any(kind.startswith(_WORKERS) for kind in e.kinds)
    has_threads = e.path.root.startswith("thread") or any(kind.startswith("threading.Thread") for kind in e.kinds)
    if not (above or has_workers or has_threads):
        return None
    if has_workers:
        return _workers_kept(e)
    known = known_holder(e.path)
    if above == {Role.QUEUE} and known is not None:
        return Advice(f"{named(e.place)} is {known[1].name}. Release it when the run has used it: {known[1].release}.")
    if above == {Role.QUEUE}:
        return _queue_kept(e)
    return _thread_runs(e)


def _workers_kept(e: Evidence) -> Advice:
    kinds = {*e.entry_kinds, *e.kinds}
    if any(kind.startswith("torch.utils.data.") for kind in kinds):
        how = (
            "Build the DataLoader once and use it for all runs; or let go of it when the run ends: its workers end "
            f"with its iterator{clearing(e)}."
        )
    elif any(kind.startswith("concurrent.futures.") for kind in kinds):
        how = "Make the executor once and use it again, or call its `shutdown()` when the run ends (`with` does so)."
    elif any(kind.startswith("multiprocessing.pool.") for kind in kinds):
        how = "Make the pool once and use it again, or call its `terminate()` or `close()` when the run ends."
    else:
        how = "Start them once and use them again, or end them when the run ends (`terminate()` and `join()`)."
    kept = "Worker processes, threads or pools that earlier runs started are still there."
    if is_users(e):
        kept = f"{place_words(e)} keeps worker processes, threads or pools that earlier runs started."
    return Advice(
        f"{kept}{_worker_words(e)} {how}",
        "Not if the same few workers serve all runs.",
    )


def _queue_kept(e: Evidence) -> Advice:
    queue = next((owner for owner, roles in zip(e.facts.owners, e.roles, strict=False) if Role.QUEUE in roles), None)
    place = written(queue.code) if queue is not None and is_expression(queue.code) else ""
    shown = f"`{place}`" if place else place_words(e)
    take = f" (`{place}.get()`)" if place else ""
    kind = queue.kind if queue is not None else ""
    limit = ", or give it a limit where it is made (`maxsize=`), so that `put()` waits" if kind in _LIMITED else ""
    return Advice(
        f"{shown} is a queue that every run fills and that nobody empties fast enough. Let somebody take its "
        f"items{take}{limit}.",
        "Not with a limit if the same thread puts and takes: it would wait for itself." if limit else "",
    )


def _thread_runs(e: Evidence) -> Advice:
    name = re.match(r"thread '(.+)'", e.path.root)
    function = re.match(r"local '\w+' of (.+)", e.path.steps[0].reference) if e.path.steps else None
    at = f", now in `{function[1]}`" if function else ""
    who = (
        f"Threads that the runs started (`{name[1]}`{at}) have not ended"
        if name
        else "Threads that the runs started have not ended"
    )
    waits = (
        " It waits there until somebody takes from the queue."
        if function and function[1].endswith("Queue.put()")
        else ""
    )
    waits = waits or (
        " It waits there until somebody puts something into the queue."
        if function and function[1].endswith("Queue.get()")
        else ""
    )
    return Advice(
        f"{who}, and keep what their functions use.{waits} Let the function return when the run ends (an event that it "
        "asks, a last item in its queue, a timeout), and `join()` the thread; or start one thread for all runs. If a "
        "library started it, close what it belongs to.",
        "Not if it is one thread that serves all runs.",
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
