"""What has an end that no run brings about: threads, tasks, files, child processes."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Iterator
from typing import Any

from leaklab.cure.case import Case, called
from leaklab.cure.ends import Later, end_of, is_of_run, kept_name, statements, word_for
from leaklab.cure.live import MISSING, evaluate, has_method
from leaklab.cure.source import Patch, Proposal, SourceText
from leaklab.explain.counterparts import ENDS, TASK_KINDS, WORKERS, takes_one_out
from leaklab.explain.idioms.advice import Advice, clearing, is_expression, is_users, named, place_words, written
from leaklab.explain.idioms.in_use import still_running
from leaklab.explain.idioms.windows import readers, trimming
from leaklab.explain.leaks.evidence import Evidence
from leaklab.heap.known_holders import known_holder
from leaklab.heap.roles import Role
from leaklab.measure.process_counts import CHILDREN, DESCRIPTORS, ENDED
from leaklab.runtime.containers import first_items, items_in
from leaklab.runtime.objects import class_attribute, is_exactly, is_kind_of, type_name
from leaklab.text import format_bytes

_NAMES = {
    "open": "file", "figure": "figure", "subplots": "figure", "connect": "connection", "create_task": "task",
    "ensure_future": "task", "call_later": "handle", "call_at": "handle", "socket": "sock",
}  # fmt: skip
"""What is called so where a function makes it that has no name for it; else it is the last word of its class."""
_STARTING_TASKS = frozenset({"create_task", "ensure_future"})
_OF_MODULES = frozenset({"connect", "figure", "subplots"})
_N_SAMPLED = 16
_TIMERS = frozenset({"asyncio.events.TimerHandle", "threading.Timer"})
_THREAD_LOCALS = frozenset({"_thread._local", "_threading_local.local"})
_LIMITED = frozenset({"queue.Queue", "queue.LifoQueue", "queue.PriorityQueue", "asyncio.queues.Queue"})
_CLOSING = {
    "file": "Close the file that each run opens: `with open(...) as file:`, or `os.close(fd)` for a number that "
    "`os.open`, `os.dup` or `tempfile.mkstemp` returned.",
    "socket": "Close the socket that each run opens: `with socket.create_connection(...) as sock:`; what "
    "`sock.detach()` returned is closed by `os.close(fd)` alone.",
    "pipe": "Close both ends of the pipe that each run opens (`os.close(fd)`, `connection.close()`).",
}
_CLOSING_ANY = (
    "Close what each run opens: by `with` or `close()` where an object has it, by `os.close(fd)` where it is a number."
)
_ENDED = (
    "Each run starts a child process that ends, and nobody asks for its exit status, so that the system keeps its "
    "entry. Wait for it: `process.join()` or `process.wait()`, `os.waitpid(pid, 0)` after `os.fork()`."
)
_RUNNING = (
    "Each run starts a child process that is still there. End it and wait for it when the run ends: `with` around a "
    "`subprocess.Popen` or an executor, `terminate()` and then `join()` or `wait()`; or start it once for all runs."
)


def left_open(e: Evidence) -> Advice | None:
    """File descriptors that no object keeps."""
    if e.unit != DESCRIPTORS.unit:
        return None
    text = next((text for kind, text in _CLOSING.items() if kind in e.kinds), _CLOSING_ANY)
    if e.holder:
        return Advice(text)
    return Advice(f"{text} No growing Python object holds these descriptors, so nothing will close them for you.")


def left_running(e: Evidence) -> Advice | None:
    """Child processes that no object keeps."""
    if e.unit != CHILDREN.unit:
        return None
    if ENDED in e.kinds:
        return Advice(_ENDED)
    return Advice(_RUNNING, "Not if each of them ends by itself soon after its run.")


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
    is_thread_left = not is_expression(e.holder)  # what this thread itself has in a local is written like an attribute
    if is_thread_left and any(step.kind in _THREAD_LOCALS for step in e.path.steps):
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
    has_workers = Role.WORKERS in above or any(kind.startswith(WORKERS) for kind in e.kinds)
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
        f"{shown} is a queue that runs fill faster than it is emptied. Take its items{take}{limit}.",
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
        f"{who}, and keep what their functions use.{waits} Let the function return when the run ends (by an event that "
        "it checks, a last item in its queue, a timeout), and `join()` the thread; or start one thread for all runs. "
        "If a library started it, close what it belongs to.",
        "Not if it is one thread that serves all runs.",
    )


def _worker_words(e: Evidence) -> str:
    sizes = e.facts.children()
    if not sizes:
        return ""
    kept = "process is" if len(sizes) == 1 else "processes are"
    return (
        f" {len(sizes):,} child {kept} alive with {format_bytes(sum(sizes))} of resident memory, "
        "which the figures of this process do not include."
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
    forget = takes_one_out(e.holder_kind)
    how = f": `task.add_done_callback({written(e.place)}.{forget})` where it is put there" if forget else ""
    return Advice(
        f"{place_words(e)} keeps asyncio tasks that have ended, and each task keeps its result. Let each task leave "
        f"it when it is done{how}; or empty it after use{clearing(e)}.",
        "Not while somebody will still ask a task for its result.",
        also=("finished-tasks",),
    )


def ended(case: Case) -> Iterator[Proposal]:
    """Yield how something with an end (an executor, a timer, a figure, a file) is ended where its code ends."""
    for source, statement in _making(case):
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and called(node) in ENDS]
        if not calls or hasattr(statement, "body") or not _is_ended_so(case, calls[0]):
            continue
        patch = case.patch()
        end = _write_end(case, source, statement, calls[0], patch)
        if end:
            yield from _ended_and_forgotten(case, source, statement, calls[0], end)
            yield from case.proposal(f"End it when the run has used it: `{end}`.", patch)
            return


def _is_ended_so(case: Case, call: ast.Call) -> bool:
    """Return whether what *call* makes is ended as `ENDS` says.

    A task may end by itself, but for one that waits; and what a function of a module opens a method of the same name
    may not: ``signal.connect(function)``.
    """
    if isinstance(call.func, ast.Attribute) and called(call) in _OF_MODULES:
        return is_kind_of(evaluate(ast.unparse(call.func.value), case.program.namespace), types.ModuleType)
    return called(call) not in _STARTING_TASKS or still_running(first_items(case.held, _N_SAMPLED)) == "tasks"


def _making(case: Case) -> Iterator[tuple[SourceText, ast.stmt]]:
    """Yield the statements that may make what has an end, then those that make what they store or call a method of."""
    called_on = [
        (store.source, store.statement, store.value.id) for store in case.stores if isinstance(store.value, ast.Name)
    ]
    for source, statement in statements(case):
        yield source, statement
        call = statement.value if isinstance(statement, ast.Expr) else None
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
        ):
            called_on.append((source, statement, call.func.value.id))
    for source, statement, name in called_on:
        for one in source.siblings(statement):
            if isinstance(one, ast.Assign) and source.text_of(one.targets[0]) == name:
                yield source, one


def _write_end(
    case: Case, source: SourceText, statement: ast.stmt, call: ast.Call, patch: Patch, *, taken_out: str = ""
) -> str:
    """Write the statement that ends what *call* makes, behind its last use; return it, empty if there is none.

    Behind that comes *taken_out*, a statement with a place for the name of what was made, if there is one.
    """
    if isinstance(statement, ast.Assign) and statement.value is call:
        target = statement.targets[0]
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        if not isinstance(first, (ast.Name, ast.Attribute)):
            return ""
        name = source.text_of(first)
    else:
        name = kept_name(case, source, statement, _NAMES.get(called(call)) or word_for(call))
        if isinstance(statement, ast.Expr) and statement.value is call:
            patch.replace(source, statement, f"{name} = {source.text_of(call)}")
        else:
            patch.before(source, statement, [f"{name} = {source.text_of(call)}"])
            patch.replace(source, call, name)
    method = ENDS[called(call)]
    live = evaluate(name, case.program.namespace) if is_of_run(case, source, statement) else MISSING
    made_of: Any = case.program.namespace.get(called(call))
    end = method.partition("(")[0]
    if method and live is not MISSING and not has_method(live, end):
        return ""
    if method and is_kind_of(made_of, type) and class_attribute(made_of, end) is None:
        return ""
    pyplot = next((one for one in ("plt", "pyplot", "pylab") if one in case.program.namespace), "")
    end = f"{name}.{method}" if method else f"{pyplot}.close({name})" if pyplot else ""
    lines = [end, taken_out.format(name)] if taken_out else [end]
    # What waits for a clock is wanted after the run, too; it is ended when the next run starts it anew.
    later = Later.ALWAYS if method == "cancel()" and not taken_out else Later.NEVER
    return end if end and end_of(case, source, statement, patch, lines, later=later) else ""


def _ended_and_forgotten(
    case: Case, source: SourceText, statement: ast.stmt, call: ast.Call, end: str
) -> Iterator[Proposal]:
    """Yield the same for what is kept in a container besides: it is taken out again, or only the newest stay there."""
    store = next((store for store in case.stores if store.how in ("one", "item") and store.container is not None), None)
    if store is None:
        return
    place, patch = store.container_text, case.patch()
    holder, held = case.filled(store)
    takes = takes_one_out(type_name(type(held)))
    is_itself = store.value is call or store.source.text_of(store.value or call) == end.partition(".")[0]
    if takes and is_itself and source.function_of(store.statement) is source.function_of(statement):
        taken_out = f"{place}.{takes}({{}})"
        if _write_end(case, source, statement, call, patch, taken_out=taken_out):
            words = f"End it when the run has used it, and take it out of `{place}`: `{end}`."
            yield from case.proposal(words, patch)
        return
    lines, n_kept = trimming(case, place, held) if held is not MISSING and store.statement is not statement else ([], 0)
    if lines:
        _write_end(case, source, statement, call, patch)
        patch.after(store.source, store.statement, lines)
        words = f"End it when the run has used it: `{end}`. Keep only the newest {n_kept:,} entries of `{place}`."
        yield from case.proposal(words, patch, emptied=(holder,))


def tasks_leave(case: Case) -> Iterator[Proposal]:
    """Yield how tasks and futures that are done leave the list or set that keeps them, where nothing asks for them."""
    store, held = case.store, case.held
    if store is None or store.how != "one" or not is_exactly(held, (set, list)) or any(readers(case, store)):
        return
    kinds = {type_name(type(one)).rpartition(".")[2] for one in items_in(held)}
    if len(kinds) != 1 or not kinds <= _DONE_ONCE:
        return
    place, kind = store.container_text, kinds.pop().lower()
    if type(held) is set and isinstance(store.value, ast.Name):
        line = f"{store.source.text_of(store.value)}.add_done_callback({place}.discard)"
        yield from case.behind(f"Let each {kind} leave `{place}` when it is done.", store, line)
    elif type(held) is list:
        patch = case.patch()
        patch.before(
            store.source, store.statement, [f"{place}[:] = [{kind} for {kind} in {place} if not {kind}.done()]"]
        )
        yield from case.proposal(f"Keep in `{place}` only what is not done yet: nothing asks the others.", patch)


_DONE_ONCE = frozenset({"Task", "Future"})
"""Of asyncio and of concurrent.futures: they have ``done()`` and ``add_done_callback()``."""
