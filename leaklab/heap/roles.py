"""Find the part an object plays in keeping others alive: hook store, optimizer, thread, cache.

Roles are read from the objects themselves, from their real types along the mro and from what they are reached by, so
that a handler that the user derived from ``logging.Handler`` is one whatever it is called. `roles_by_name` does what
can be done where only a record is left.
"""

from __future__ import annotations

import enum
import functools
import re
import types
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from leaklab.heap.names.reference import Reference
from leaklab.heap.shortest_paths import Start
from leaklab.model import RootPath, Status, Step
from leaklab.runtime.objects import is_kind_of, loaded_type, mro_of

_LRU_CACHE: type = type(functools.lru_cache(print))
_HOOK_STORE = re.compile(r"\._(?:\w+_)?hooks(?:_\w+)?$")
_GLOBAL_HOOKS = re.compile(r"^torch\.[\w.]+\._global_\w*hooks\w*$")
_STATE = (".state", ".param_groups")
# Registries that are no class of their own: by the expression of the place.
_REGISTRIES = frozenset({"gc.callbacks", "sys.meta_path", "sys.path_hooks", "weakref.finalize._registry"})
_FINALIZER: type = weakref.finalize.__dict__["_Info"]
_LOG_STORES = (".handlers", ".filters")
ASKED = "the object you asked about"
_GRAPH = "part of an autograd graph"


class Role(str, enum.Enum):
    """The parts that matter for a cause."""

    HOOKS = "hooks"  # a store that torch calls from: one entry for each hook registered
    MODULE = "module"
    TENSOR = "tensor"
    OPTIMIZER = "optimizer"
    OPTIMIZER_STATE = "optimizer state"  # .state or .param_groups of an optimizer
    THREAD = "thread"
    WORKERS = "workers"  # processes, pools, executors, loaders with workers
    QUEUE = "queue"
    TRACEBACK = "traceback"
    EXCEPTION = "exception"
    SUSPENDED = "suspended"  # a generator, coroutine or task that has not ended
    CACHE = "cache"  # functools.lru_cache and its like
    CLASS = "class"
    FUNCTION = "function"
    CTX = "ctx"  # of a custom autograd function
    CALLBACKS = "callbacks"  # a registry that a library calls back from
    OBSERVED = "observed"  # has traits that others may watch
    LOGGING = "logging"  # a logger or a handler


_OF_TYPE: tuple[tuple[str, str, Role], ...] = (
    ("torch.nn", "Module", Role.MODULE),
    ("torch", "Tensor", Role.TENSOR),
    ("torch.optim", "Optimizer", Role.OPTIMIZER),
    ("threading", "Thread", Role.THREAD),
    ("multiprocessing.process", "BaseProcess", Role.WORKERS),
    ("multiprocessing.pool", "Pool", Role.WORKERS),
    ("concurrent.futures", "Executor", Role.WORKERS),
    ("torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter", Role.WORKERS),
    ("queue", "Queue", Role.QUEUE),
    ("queue", "SimpleQueue", Role.QUEUE),
    ("multiprocessing.queues", "Queue", Role.QUEUE),
    ("multiprocessing.queues", "SimpleQueue", Role.QUEUE),
    ("asyncio", "Queue", Role.QUEUE),
    ("types", "TracebackType", Role.TRACEBACK),
    ("builtins", "BaseException", Role.EXCEPTION),
    ("types", "GeneratorType", Role.SUSPENDED),
    ("types", "CoroutineType", Role.SUSPENDED),
    ("types", "AsyncGeneratorType", Role.SUSPENDED),
    ("asyncio", "Task", Role.SUSPENDED),
    ("builtins", "type", Role.CLASS),
    ("types", "FunctionType", Role.FUNCTION),
    ("types", "MethodType", Role.FUNCTION),
    ("functools", "partial", Role.FUNCTION),
    ("torch.autograd.function", "BackwardCFunction", Role.CTX),
    ("torch.autograd.function", "FunctionCtx", Role.CTX),
    ("weakref", "finalize", Role.CALLBACKS),
    ("matplotlib.cbook", "CallbackRegistry", Role.CALLBACKS),
    ("IPython.core.events", "EventManager", Role.CALLBACKS),
    ("traitlets", "HasTraits", Role.OBSERVED),
    ("logging", "Filterer", Role.LOGGING),
)
"""Where a class is found once its module is loaded, and what its objects are."""


_HOOKED = frozenset({Role.MODULE, Role.TENSOR, Role.OPTIMIZER})


def roles_of(things: Sequence[object], references: Sequence[Reference]) -> tuple[frozenset[Role], ...]:
    """Return the roles of each of *things*, the objects of a path; *references* lead to them, one for each."""
    known = _known_types()
    found: list[frozenset[Role]] = []
    for thing, reference in zip(things, references, strict=True):
        own = roles_of_object(thing, known)
        before = found[-1] if found else frozenset[Role]()
        found.append(own | _by_reference(before, reference.text, is_store=type(thing) is not types.FunctionType))
    return tuple(found)


def roles_of_object(thing: object, known: Sequence[tuple[type, Role]] | None = None) -> frozenset[Role]:
    """Return what the type of *thing* alone says."""
    mro = mro_of(type(thing))
    roles = {role for kind, role in (_known_types() if known is None else known) if any(base is kind for base in mro)}
    if type(thing) is _LRU_CACHE:
        roles.add(Role.CACHE)
    if type(thing) is _FINALIZER:
        roles.add(Role.CALLBACKS)
    return frozenset(roles)


def _known_types() -> list[tuple[type, Role]]:
    """Return the types of the table that exist in this process: what is not imported has no objects."""
    found = ((loaded_type(module, name), role) for module, name, role in _OF_TYPE)
    return [(kind, role) for kind, role in found if kind is not None]


def _by_reference(before: Iterable[Role], text: str, *, is_store: bool) -> frozenset[Role]:
    """Return what the way to an object says of it: the object before it, and the name of the reference."""
    roles: set[Role] = set()
    above = frozenset(before)
    if is_store and (_GLOBAL_HOOKS.match(text) or (above & _HOOKED and _HOOK_STORE.match(text))):
        roles.add(Role.HOOKS)
    if Role.OPTIMIZER in above and text in _STATE:
        roles.add(Role.OPTIMIZER_STATE)
    if text in _REGISTRIES or (Role.OBSERVED in above and text == "._trait_notifiers"):
        roles.add(Role.CALLBACKS)
    if Role.LOGGING in above and text in _LOG_STORES:
        roles.add(Role.CALLBACKS)
    return frozenset(roles)


_BY_NAME: tuple[tuple[re.Pattern[str], Role], ...] = (
    (re.compile(r"^torch\.nn\.modules\."), Role.MODULE),
    (re.compile(r"^torch\.(nn\.parameter\.)?(Tensor|Parameter)$"), Role.TENSOR),
    (re.compile(r"^torch\.optim\."), Role.OPTIMIZER),
    (re.compile(r"^threading\.\w*Thread$"), Role.THREAD),
    (re.compile(r"^(multiprocessing\.(process|context|pool)|concurrent\.futures)\."), Role.WORKERS),
    (re.compile(r"^torch\.utils\.data\.dataloader\."), Role.WORKERS),
    (re.compile(r"^(multiprocessing\.queues|queue|_queue|asyncio\.queues)\."), Role.QUEUE),
    (re.compile(r"^traceback$"), Role.TRACEBACK),
    (re.compile(r"^(generator|coroutine|async_generator|_asyncio\.Task)$"), Role.SUSPENDED),
    (re.compile(r"_lru_cache_wrapper$"), Role.CACHE),
    (re.compile(r"^(type|abc\.ABCMeta)$"), Role.CLASS),
    (re.compile(r"^(function|method|functools\.partial)$"), Role.FUNCTION),
    (re.compile(r"^weakref\.finalize\b"), Role.CALLBACKS),
    (re.compile(r"^logging\."), Role.LOGGING),
)


def roles_by_name(path: RootPath) -> tuple[frozenset[Role], ...]:
    """Return the roles of the steps of a record, of which only the names of the types are left."""
    found: list[frozenset[Role]] = []
    for step in path.steps:
        before = found[-1] if found else frozenset[Role]()
        roles = _by_names_of(step) | _by_reference(before, step.reference, is_store=step.kind != "function")
        # A class name does not show whether it is a module: what is named like torch's stores counts as one.
        found.append(roles | {Role.HOOKS} if _HOOK_STORE.match(step.reference) else roles)
    return tuple(found)


def _by_names_of(step: Step) -> frozenset[Role]:
    return frozenset(role for pattern, role in _BY_NAME if pattern.search(step.kind))


def with_reasons(
    steps: Sequence[Step], things: Sequence[object], in_graph: Sequence[bool], start: Start | None
) -> Iterator[Step]:
    """Yield *steps* with the status of each, and with the reason for it as its note.

    What a variable names, modules, classes and the parts of a model are there for their own sake, as long as everything
    before them is. Whether anything else is still wanted is unknown. The last step is the
    object asked about, whose place is in question.

    *things* has the object of each step, *in_graph* whether it belongs to an autograd graph; *start* is None where
    unknown.
    """
    is_expected = True
    for position, (step, thing) in enumerate(zip(steps, things, strict=True)):
        if position == len(steps) - 1:
            yield replace(step, status=Status.UNKNOWN, note=ASKED)
            return
        reason = (_of_start(start) if position == 0 else _of_kind(thing)) if is_expected else ""
        is_expected = bool(reason)
        status = Status.EXPECTED if is_expected else Status.UNKNOWN
        yield replace(step, status=status, note=reason or (_GRAPH if in_graph[position] else ""))


def _of_start(start: Start | None) -> str:
    if start is None:
        return ""
    if start.is_history:
        return "the notebook's own memory of results"
    if start.is_variable:
        return "a variable of yours"
    if start.words.startswith("module "):
        return "a variable of a module"
    if start.words.startswith(("thread ", "running ")):
        return "a variable of a function that is running"
    return start.words


def _of_kind(thing: object) -> str:
    if is_kind_of(thing, types.ModuleType):
        return "a module lives as long as the program"
    if is_kind_of(thing, type):
        return "a class lives as long as its module"
    module = loaded_type("torch.nn", "Module")
    if module is not None and is_kind_of(thing, module):
        return "a part of a model that is kept on purpose"
    return ""
