"""Tell, when a training run ends, what of it survives: ``with leaklab.training_run("A"): ...``.

The run that is switched away from, whose model, optimizer or trainer is still held when the next one starts, is what
doubles the memory. Everything alive at the start is the baseline; what was made since and is alive after a collection
at the end is grouped by who holds it. Nothing of the run is kept here, only numbers and words.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from leaklab.explain.training_run import training_survivor_bytes, training_survivors
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.view import Births
from leaklab.measure.census import DisturbedError
from leaklab.measure.checkpoint import whole_heap
from leaklab.measure.gauges import accelerator_bytes, peak_accelerator_bytes, peak_rss_bytes, rss_bytes
from leaklab.measure.measurement import choose_baseline
from leaklab.model.process import MemoryLevels, Survivor, TrainingRunRecord
from leaklab.reports.training_run import TrainingRun, run_text
from leaklab.runtime.addresses import Addresses, addresses_of, kinds_of, types_at
from leaklab.runtime.gc_control import collect_quietly, gc_paused, user_has_frozen
from leaklab.runtime.objects import has_base, is_tensor_type, loaded_type
from leaklab.runtime.referents import get_referents
from leaklab.runtime.sizes import storage_bytes
from leaklab.text import printable


def training_run(name: str, *, namespace: dict[str, Any] | None = None, show: bool = True) -> TrainingRun:
    """Return a context manager that tells at its end what of the run inside survives, and who holds it.

    Args:
        name: What to call the run.
        namespace: The variables among which holders are looked for first; by default the caller's globals.
        show: Whether to print what was found at the end; it can be read from the returned object in any case.

    Raises:
        TypeError: if *name* is no text.
    """
    _refuse_nameless(name)
    variables = sys._getframe(1).f_globals if namespace is None else namespace  # noqa: SLF001 - the caller's globals
    return TrainingRun(name, _RunObserver(name, variables, show=show))


def _refuse_nameless(name: object) -> None:
    if not isinstance(name, str):
        msg = f"a run needs a name, such as leaklab.training_run('A'), not {type(name).__name__}"
        raise TypeError(msg)


class _RunObserver:
    """What looks at the heap before and after a run; used once.

    Args:
        name: What the user calls the run.
        namespace: The user's variables.
        show: Whether to print at the end.
    """

    def __init__(self, name: str, namespace: dict[str, Any], *, show: bool) -> None:
        self._name, self._namespace, self._show = name, namespace, show

    def begin(self) -> None:
        """Take everything alive now as the baseline."""
        collect_quietly()
        self._earlier = _models_alive(self._namespace)
        self._before = _levels()  # after that look, so that its own memory is not taken for the peak of the run
        self._untracked = _untracked_dicts()
        self._modules = frozenset(sys.modules)
        # Garbage is collected before counting, also where the user's collector is off: a run is not switched often.
        self._taker = choose_baseline(user_froze=user_has_frozen(), cell_freezes=False, collects=True)
        self._taker.begin()
        self._taker.mark()
        self._started = time.perf_counter()

    def end(self, failure: str) -> TrainingRunRecord:
        """Return what of the run is left, and print it where that is wanted."""
        seconds = time.perf_counter() - self._started
        born, notes = self._born()
        collect_quietly()
        after = _levels()
        born = born[~np.isin(born, self._untracked)]
        new_modules = sorted(name for name in frozenset(sys.modules) - self._modules if type(name) is str)
        record = TrainingRunRecord(
            self._name,
            seconds,
            (),
            0,
            0,
            self._before,
            after,
            self._earlier,
            (*notes, *_import_notes(len(new_modules))),
            failure,
        )
        record = _with_survivors(record, born, self._namespace, new_modules)
        if self._show:
            sys.stdout.write(printable(run_text(record)))
        return record

    def _born(self) -> tuple[Addresses, tuple[str, ...]]:
        """Return the addresses of what was born since the start and lives, and what to say about that."""
        try:
            return self._taker.take().addresses, ()
        except DisturbedError as disturbed:
            words = (
                f"the block {'froze' if disturbed.how == 'frozen' else 'thawed'} the collector's objects (gc.freeze)"
            )
            return np.empty(0, np.int64), (
                f"{words}: objects that the run left cannot be distinguished from older ones",
            )
        finally:
            self._taker.end()


def _untracked_dicts() -> Addresses:
    """Return the addresses of dicts that the collector does not know yet: with the first object in them it will.

    Empty dicts and dicts of plain data are such; without this list they would seem to be made when they are filled.
    """
    with gc_paused():
        referents = get_referents(*gc.get_objects())
        try:
            return np.array(
                [id(thing) for thing in referents if type(thing) is dict and not gc.is_tracked(thing)], np.int64
            )
        finally:
            referents.clear()


def _import_notes(n_modules: int) -> tuple[str, ...]:
    if not n_modules:
        return ()
    words = (
        "1 module was imported; its contents are"
        if n_modules == 1
        else f"{n_modules:,} modules were imported; their contents are"
    )
    return (f"{words} not listed",)


def _with_survivors(
    record: TrainingRunRecord, born: Addresses, namespace: dict[str, Any] | None, new_modules: list[str]
) -> TrainingRunRecord:
    if not len(born):
        return record
    with gc_paused():  # between the two listings nothing may die whose address is kept
        with whole_heap() as objects:
            alive = born[np.isin(born, addresses_of(objects))]
        # As if it were the first of two runs: everything that it left is there without the second one's doing.
        births = Births(alive, np.zeros(len(alive), np.int64), 2)
        with borrow_heap(births, namespace, [born, alive]) as view:
            n_tensors, n_bytes = training_survivor_bytes(view)
            return replace(
                record, survivors=training_survivors(view, new_modules), n_tensors=n_tensors, tensor_bytes=n_bytes
            )


def _models_alive(namespace: dict[str, Any] | None) -> tuple[Survivor, ...]:
    """Return the models and optimizers alive now: what the run that starts has to share its memory with."""
    bases = [loaded_type("torch.nn", "Module"), loaded_type("torch.optim", "Optimizer")]

    def is_part(kind: type) -> bool:
        return any(base is not None and has_base(kind, base) for base in bases)

    with gc_paused():  # between the two listings nothing may die whose address is kept
        with whole_heap() as objects:
            if not _of_types(objects, is_part):
                return ()
            # With all tensors: those that only a model reaches are counted as its own.
            found = [id(thing) for thing in _of_types(objects, lambda kind: is_part(kind) or is_tensor_type(kind))]
        births = Births(np.array(sorted(found), np.int64), np.zeros(len(found), np.int64), 2)
        with borrow_heap(births, namespace, [births.addresses]) as view:
            return tuple(survivor for survivor in training_survivors(view) if survivor.models or survivor.n_optimizers)


def _of_types(objects: list[object], is_wanted: Callable[[type], bool]) -> list[object]:
    """Return those of *objects* whose type is wanted; each type is asked for once."""
    kinds = kinds_of(objects)
    wanted = [address for address, kind in types_at(kinds).items() if is_wanted(kind)]
    return [objects[at] for at in np.flatnonzero(np.isin(kinds, wanted)).tolist()]


def _levels() -> MemoryLevels:
    with gc_paused():
        objects = gc.get_objects()
        try:
            tensors = sum(storage_bytes(_of_types(objects, is_tensor_type)).values())
        finally:
            objects.clear()
    return MemoryLevels(tensors, rss_bytes(), accelerator_bytes(), peak_rss_bytes(), peak_accelerator_bytes())
