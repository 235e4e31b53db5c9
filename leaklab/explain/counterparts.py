"""How to let go: which call undoes which other one, what ends what was begun, what lets go by its name.

The only home of that knowledge, for advice and for changes: what is entered here is said, and written, everywhere.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Collection, Iterator
from typing import Final

from leaklab.runtime.objects import type_name

_PAIRS: Final = (
    ("register", "unregister"), ("subscribe", "unsubscribe"), ("connect", "disconnect"), ("observe", "unobserve"),
    ("attach", "detach"), ("bind", "unbind"), ("on", "off"), ("listen", "unlisten"), ("watch", "unwatch"),
    ("mpl_connect", "mpl_disconnect"), ("install", "uninstall"), ("register", "deregister"), ("mount", "unmount"),
    ("acquire", "release"), ("push", "pop"), ("start", "stop"), ("begin", "end"), ("enable", "disable"),
    ("track", "untrack"), ("hook", "unhook"), ("link", "unlink"), ("load", "unload"), ("enter", "leave"),
    ("join", "leave"), ("checkout", "checkin"), ("schedule", "unschedule"), ("follow", "unfollow"),
    ("enter_context", "close"),
)  # fmt: skip
_BEGINNINGS: Final = (
    ("add_", "remove_"), ("add", "remove"), ("register_", "unregister_"), ("on_", "off_"), ("register_", "remove_"),
    ("register_", "deregister_"), ("subscribe_", "unsubscribe_"), ("connect_", "disconnect_"), ("attach_", "detach_"),
    ("push_", "pop_"), ("start_", "stop_"), ("begin_", "end_"), ("enable_", "disable_"), ("acquire_", "release_"),
    ("open_", "close_"), ("create_", "delete_"), ("create_", "remove_"), ("new_", "delete_"), ("track_", "untrack_"),
    ("load_", "unload_"), ("add_", "delete_"), ("add_", "discard_"), ("install_", "uninstall_"),
)  # fmt: skip
_ONE_ENTRY: Final = ((list, "append", "remove"), (set, "add", "discard"), (collections.deque, "append", "remove"))
_OF_MODULES: Final = ("close", "clear", "reset", "remove", "unregister", "free", "release", "shutdown", "cancel")
_OF_OBJECTS: Final = (
    *_OF_MODULES, "shut_down", "stop", "terminate", "detach", "unsubscribe", "disconnect", "off", "discard", "pop",
    "flush", "drain",
)  # fmt: skip
_SETS: Final = (("ContextVar", "set", "reset"), ("Context", "set", "reset"))
OF_HANDLES: Final = (
    "cancel", "remove", "disconnect", "unsubscribe", "unobserve", "dispose", "unregister", "off", "unlink",
)  # fmt: skip
"""Methods of the handle that a registration returns: whatever has one keeps something that is called back."""
OF_RESULTS: Final = (
    *OF_HANDLES, "close", "stop", "shutdown", "terminate", "release", "detach", "cleanup", "finish", "end", "leave",
    "undo", "restore",
)  # fmt: skip
"""Methods that end what a call has made or begun, the surest first."""
UNDO_FUNCTIONS: Final = frozenset({
    "off", "unsub", "unsubscribe", "unregister", "unobserve", "remove", "remove_listener", "cancel", "dispose", "stop",
    "undo", "detach", "disconnect", "restore", "release", "close", "unbind", "cleanup", "teardown",
})  # fmt: skip
"""What a function is called that a registration returns to be called when it is over."""
OF_EVENTS: Final = frozenset({"unobserve", "mpl_disconnect", "unregister", "cancel"})
"""What takes back something that waits for a person or a clock: it is wanted after the cell, too."""
UNDO_WORDS: Final = {"remove_parametrizations": "leave_parametrized=False"}
"""What a function that undoes must be told besides, by its name: else it keeps what it undoes for good."""
DRAWN: Final = (
    ("matplotlib.lines.", "lines"), ("matplotlib.collections.", "collections"), ("matplotlib.patches.", "patches"),
    ("matplotlib.text.", "texts"), ("matplotlib.image.", "images"),
)  # fmt: skip
"""By which name axes have what is drawn into them, by its type."""
HANDLES: Final = frozenset({"cid", "token", "handle", "id", "tag", "sid", "subscription", "identifier", "handle_id"})
"""What the parameter of a counterpart is called that wants what the registration returned."""
_OF_HANDLE: Final = ("_id", "_token", "_handle", "_cid")
SCOPES: Final = {
    "warnings.filterwarnings": "warnings.catch_warnings()", "warnings.simplefilter": "warnings.catch_warnings()",
}  # fmt: skip
"""What changes a setting of all code, and the context manager that brings it back."""
ENDS: Final = {
    "ThreadPoolExecutor": "shutdown()", "ProcessPoolExecutor": "shutdown()", "Pool": "terminate()",
    "ThreadPool": "terminate()", "Timer": "cancel()", "SummaryWriter": "close()", "socket": "close()",
    "open": "close()", "TemporaryFile": "close()", "NamedTemporaryFile": "close()",
    "TemporaryDirectory": "cleanup()", "figure": "", "subplots": "", "mmap": "close()", "Manager": "shutdown()",
    "Popen": "wait()", "connect": "close()", "Session": "close()", "Client": "close()", "create_task": "cancel()",
    "ensure_future": "cancel()", "call_later": "cancel()", "call_at": "cancel()",
}  # fmt: skip
"""What a constructor's object is ended by; empty for a figure, which pyplot closes."""
OF_LIBRARIES: Final = (
    (r"matplotlib\._pylab_helpers", "plt.close('all')"),
    (r"^linecache\.cache", "linecache.clearcache()"),
    (r"^torch\._(dynamo|inductor)", "torch._dynamo.reset()"),
    (r"^pyro\.params", "pyro.clear_param_store()"),
    (r"Widget\._instances|_instances$", "Widget.close_all()"),
    (r"(history_manager|HistoryManager)\.outputs", "get_ipython().history_manager.outputs.clear()"),
)
"""What empties a table that a library keeps for all of its users, by the expression of the table."""
OF_OWNERS: Final = ((r"^torchmetrics\.", "reset"), (r"^accelerate\.", "free_memory"), (r"tensorboard", "close"))
"""The method by which an object of a library lets go of what it has collected, by its type."""
OF_OWNERS_READ: Final = ("compute", "prepare")
"""What a run that calls it has done with the object when it ends: the next run begins anew."""
WORKERS: Final = (
    "multiprocessing.context.", "multiprocessing.process.", "multiprocessing.pool.", "multiprocessing.managers.",
    "concurrent.futures.thread.", "concurrent.futures.process.",
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter",
)  # fmt: skip
"""How the types of threads, processes and pools begin that work for somebody until they are ended."""
TASK_KINDS: Final = frozenset({"_asyncio.Task", "asyncio.tasks.Task"})
"""The types of asyncio tasks."""
STARTERS: Final = ("multiprocessing.", "concurrent.futures.process.", "torch.utils.data.", "joblib.")
"""How the types of all begin that start processes, whatever of them it is that keeps one."""


def undoing(call: str) -> Iterator[str]:
    """Yield the names of the methods that may take back what the method *call* has registered."""
    found = [undoes for does, undoes in _PAIRS if call == does]
    found += [
        undoes + call.removeprefix(does) for does, undoes in _BEGINNINGS if call.startswith(does) and call != does
    ]
    yield from dict.fromkeys(found)


def undoing_function(call: str, names: Collection[str]) -> Iterator[str]:
    """Yield the functions, of *names* in one module, that may take back what its function *call* has done there.

    Of ``register_parametrization`` that is ``remove_parametrizations``, of ``weight_norm`` ``remove_weight_norm``.
    """
    wanted = [*undoing(call), f"remove_{call}", f"un{call}", f"un_{call}", f"undo_{call}", "remove"]
    yield from (name for one in wanted for name in (one, f"{one}s") if name in names)


def takes_result(kind: str, call: str) -> str:
    """Return the method that puts back what *call* has set, given what that returned; empty without one."""
    return next((undoes for of, does, undoes in _SETS if call == does and kind.endswith(of)), "")


def takes_one_out(kind: str, call: str = "") -> str:
    """Return the method that takes one entry out of a plain container again; empty if it is none.

    Args:
        kind: Name of its type.
        call: The method that put the entry there; empty where that does not matter.
    """
    fitting = (out for of, puts, out in _ONE_ENTRY if type_name(of) == kind and call in ("", puts))
    return next(fitting, "")


def is_handle(parameter: str) -> bool:
    """Return whether a counterpart whose parameter is called so wants what the registration returned."""
    return parameter in HANDLES or parameter.endswith(_OF_HANDLE)


def lets_go(name: str, *, of_module: bool = False) -> bool:
    """Return whether a method, or a function of a module, lets go of something by its name: ``clear_cache``."""
    return (_FUNCTION if of_module else _METHOD).match(name) is not None


_METHOD, _FUNCTION = (re.compile(rf"^({'|'.join(names)})(_\w+)?$") for names in (_OF_OBJECTS, _OF_MODULES))
