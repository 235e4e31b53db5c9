"""Stores that live as long as the program: the notebook's history, caches of results, tables of libraries."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from leaklab.cure.case import Case, name_of
from leaklab.cure.ends import definition_of
from leaklab.cure.live import MISSING, attribute, evaluate, has_method
from leaklab.cure.source import FUNCTIONS, Proposal, SourceText
from leaklab.explain.counterparts import OF_LIBRARIES, OF_OWNERS, OF_OWNERS_READ, lets_go
from leaklab.explain.idioms.advice import (
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
from leaklab.explain.leaks.evidence import Evidence
from leaklab.explain.leaks.groups import MODULES
from leaklab.heap.known_holders import KnownHolder, known_holder
from leaklab.heap.roles import Role
from leaklab.model import Status
from leaklab.runtime.objects import LRU_CACHE, is_kind_of, type_name

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
_RELEASES_ALL = "it would also release objects that existed before the check"


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
        else "Arguments that never repeat make it grow without end."
    )
    empty = f"`{place}.cache_clear()`" if can and not is_private(place) else "its `cache_clear()`"
    return Advice(
        f"The cache of {named(place)} keeps every result. {why} Give it a limit where it is decorated "
        f"(`functools.lru_cache(maxsize=16)`), use arguments that repeat, or empty it between runs: {empty}.",
        "Not if the same arguments come again and recomputing is expensive: then empty it between runs only.",
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
        return table_of_library(e)
    where = "belongs to a class, lives as long as the class," if on_class else "lives as long as the program,"
    if not is_mapping:
        return Advice(
            f"{place_words(e)} {where} and nothing is ever removed from it. Take an entry out when it is done, limit "
            f"its length, or empty it after use{clearing(e)}.",
            "Not while somebody still needs the entries.",
        )
    place = written(e.holder.removesuffix(_INNER) if wrapper else e.holder)
    return Advice(
        f"{named(place)} {where} and nothing is ever removed from it. Limit its size "
        f"(`{place}.pop(next(iter({place})))` takes the oldest entry out), use keys that repeat, or empty it after "
        f"use (`{place}.clear()`).",
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
        "Not inside the loop if filling it again is expensive.",
        also=("library-registry",),
    )


def table_of_library(e: Evidence) -> Advice:
    """A table that a library keeps for itself: nothing of the user's writes into it."""
    module = re.match(r"module '(.+)'", e.path.root)
    owner, entry = e.owner, e.entry
    is_of_entry = entry is not None and entry.is_library and bool(entry.releases) and "_" not in entry.releases[0]
    whose = module[1] if module else owner.kind if owner is not None else ""
    whose = whose or (entry.kind.partition(".")[0] if entry is not None and is_of_entry else "a library")
    if owner is not None and owner.kind.startswith(_FRONT_END):
        return Advice(
            f"{named(e.place)} is a table of the notebook itself: every cell adds an entry, and so does code that "
            "your cell hands to `run_cell`. Run generated code with `exec`, or hand it over with "
            "`store_history=False`.",
            also=("library-registry",),
        )
    release, once = may_release(owner), "Do that once, outside the repeated code."
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
        "Every run leaves a module in `sys.modules` under a name of its own. It stays there until the program ends, "
        "with everything that its variables, functions and classes refer to. Use one name, so that each run replaces "
        f"the module of the run before, or take it out after use ({take}, for example).",
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


def cache_bounded(case: Case) -> Iterator[Proposal]:
    """Yield how a cached method keeps none of its objects, and how a cache keeps only the results used last."""
    function: Any = attribute(case.held, "__wrapped__") if is_kind_of(case.held, LRU_CACHE) else None
    definition = definition_of(case, function) if type(function) is types.FunctionType else None
    source = None if definition is None else case.source(function.__code__.co_filename)
    caching = [] if definition is None else [one for one in definition.decorator_list if _caches(one)]
    if source is None or definition is None or len(caching) != 1:
        return
    if source.class_of(definition) is not None and definition.args.args and len(definition.decorator_list) == 1:
        yield from _cached_beside_object(case, source, definition, caching[0])
    n_kept = case.n_kept(LRU_CACHE.cache_info(case.held).currsize)
    wrapper = re.sub(r"\b(lru_)?cache$", "lru_cache", source.text_of(_called(caching[0])))
    if wrapper.endswith("lru_cache") and (wrapper != "lru_cache" or "lru_cache" in case.program.namespace):
        words = f"Keep only the {n_kept} results of `{case.holder}` that were used last."
        yield from case.instead(words, source, caching[0], f"{wrapper}(maxsize={n_kept})")


def _caches(decorator: ast.expr) -> bool:
    return name_of(_called(decorator)) in ("cache", "lru_cache")


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _cached_beside_object(
    case: Case, source: SourceText, definition: ast.FunctionDef | ast.AsyncFunctionDef, caching: ast.expr
) -> Iterator[Proposal]:
    """Yield how a cached method lets go of its objects: without ``self`` if it does not use that, else a cache each."""
    receiver, name, patch = definition.args.args[0].arg, definition.name, case.patch()
    used = [node for node in ast.walk(definition) if isinstance(node, ast.Name) and node.id == receiver]
    if not used:
        patch.before(source, definition, ["@staticmethod"])
        patch.without_first_parameter(source, definition)
        yield from case.proposal(f"Cache `{name}` without the object, which it does not use.", patch)
        return
    methods = getattr(source.class_of(definition), "body", [])
    makes = next((one for one in methods if isinstance(one, FUNCTIONS) and one.name == "__init__"), None)
    if makes is None or not makes.args.args:
        return
    place = f"{makes.args.args[0].arg}.{name}"
    patch.without_decorator(source, caching)
    patch.after(source, makes.body[-1], [f"{place} = {source.text_of(caching)}({place})"])
    yield from case.proposal(f"Give each object its own cache for `{name}`: both are freed together.", patch)


def results_emptied(case: Case) -> Iterator[Proposal]:
    """Yield how a cache of results is emptied where a run begins, which no later run gains by."""
    name = case.holder
    if not case.is_variable or not is_kind_of(case.held, LRU_CACHE):
        return
    for proposal in case.at_start(f"Begin each run with an empty cache of `{name}`.", f"{name}.cache_clear()"):
        yield replace(
            proposal, drops=(f"later runs do not use what `{name}` has computed: a limit keeps only the newest")
        )


def library_calls(case: Case) -> Iterator[Proposal]:
    """Yield, in words, the call by which a library releases what one of its tables keeps.

    None is tried: such a call releases what was there before the check as well, and nothing could put that back.
    """
    for pattern, call in OF_LIBRARIES:
        if re.search(pattern, case.holder):
            yield Proposal(f"Release what the library keeps: `{call}`.", not_tried=_RELEASES_ALL)
            return
    yield from _of_owner(case)


def _of_owner(case: Case) -> Iterator[Proposal]:
    """Yield the release call of the object of a library that is on the path."""
    place = case.holder
    while "." in place or "[" in place:
        place = re.sub(r"(\.\w+|\[[^\]]*\])$", "", place) if re.search(r"(\.\w+|\[[^\]]*\])$", place) else ""
        owner = evaluate(place, case.program.namespace) if place else MISSING
        if owner is MISSING:
            return
        kind = type_name(type(owner))
        for pattern, call in OF_OWNERS:
            if re.search(pattern, kind) and has_method(owner, call):
                words, line = f"Release what it has collected: `{place}.{call}()`.", f"{place}.{call}()"
                if _is_read(case, place):
                    yield from case.at_end(words, line, emptied=(place,))
                else:
                    yield Proposal(words, not_tried=_RELEASES_ALL)
                return


def _is_read(case: Case, place: str) -> bool:
    """Return whether the run asks *place* for what it has collected: it may begin anew with the next run."""
    nodes = (node for statement in case.run_body for node in ast.walk(statement))
    asked = (node for node in nodes if isinstance(node, ast.Attribute) and node.attr in OF_OWNERS_READ)
    return any(ast.unparse(node.value) == place for node in asked)


def maybe_calls(case: Case) -> Iterator[Proposal]:
    """Yield in words the calls that, by their names, may release what a library's table keeps."""
    root = re.match(r"module '(.+)'", case.leak.path.root)
    module = sys.modules.get(root[1]) if root else None
    if module is None or "site-packages" not in (getattr(module, "__file__", "") or ""):
        return
    names = [name for name, value in vars(module).items() if lets_go(name, of_module=True) and inspect.isroutine(value)]
    if names:
        calls = ", ".join(f"`{module.__name__}.{name}()`" for name in sorted(names)[:3])
        yield Proposal(f"The table belongs to {module.__name__}; {calls} may release it.")
