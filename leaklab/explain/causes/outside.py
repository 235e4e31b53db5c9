"""Causes outside of the objects' references: threads, workers, native memory."""

from __future__ import annotations

from leaklab.explain.causes.advice import Advice
from leaklab.explain.cycles.cycles import UNSEEN_ROOT
from leaklab.explain.leaks.evidence import Evidence
from leaklab.explain.paths.known_holders import NATIVE_CACHES
from leaklab.explain.paths.roles import Role
from leaklab.words import format_bytes

_WORKERS = (
    "multiprocessing.context.", "multiprocessing.process.", "multiprocessing.pool.", "multiprocessing.managers.",
    "concurrent.futures.thread.", "concurrent.futures.process.",
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter",
)  # fmt: skip


def thread_kept(e: Evidence) -> Advice | None:
    """A thread, a queue, a pool or a worker that never ends."""
    if e.in_cycle:
        return None
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
