"""A leak is reported with the line that keeps and the line that makes, and looking for them does no harm."""

from __future__ import annotations

import copy
import gc
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import leaklab
from leaklab.check.findings import Explained
from leaklab.check.line_search import find_lines, whose
from leaklab.check.session import CheckSession
from leaklab.check.traced_runs import _name_as_before, _visible_parts
from leaklab.explain.cycles.cycles import CYCLE_ROOT, Orphans
from leaklab.measure.census import FrozenCensus
from leaklab.measure.measurement import Measurement
from leaklab.model import Leak, RootPath, Settings, Status, Step
from leaklab.model.paths import CycleCertainty

pytestmark = pytest.mark.untraced

PATH = RootPath("notebook variable", (Step("kept", "list", "", Status.EXPECTED),))
LEAK = Leak("list", PATH, "kept", "unknown", "", 1.0, 1.0, "entries", (), "print", "because")
HISTORY: list[object] = []
CACHE: dict[str, object] = {}
SOURCE = Path(__file__).read_text().splitlines()


class Meter:
    def __init__(self):
        self.total = torch.zeros((), requires_grad=True)

    def update(self, value):
        self.total = self.total + value  # mark: rebinds


class Pair:
    def __init__(self):
        self.data = torch.rand(500)
        self.hook = lambda: self  # mark: closes the cycle of a copy

    def __deepcopy__(self, memo):
        copied = Pair()
        copied.data.copy_(self.data)
        return copied


METER = Meter()


def make(n: int):
    return torch.zeros(n)  # mark: makes


def train():
    HISTORY.append({"out": make(3000)})  # mark: appends
    CACHE[
        f"key {len(CACHE)}"
    ] = make(2000)  # fmt: skip  # mark: ends the statement
    METER.update(1.0)
    METER.total.sin()


def line(mark: str) -> str:
    """Where a site is that carries *mark*, as reports write it."""
    number = next(n for n, text in enumerate(SOURCE, 1) if text.endswith(f"# mark: {mark}"))
    return f"{Path(__file__).name}:{number} in "


@pytest.fixture(scope="module")
def report():
    yield leaklab.leakcheck(train, runs=16, cure=False)
    HISTORY.clear()
    CACHE.clear()
    METER.__init__()


def sites_of(report, holder: str) -> tuple[str, ...]:
    return next(leak.sites for leak in report.leaks if holder in leak.holder)


def test_the_line_that_appends_comes_first_then_the_one_that_makes(report):
    keeps, makes = sites_of(report, "HISTORY")
    assert line("appends") + 'train: HISTORY.append({"out": make(3000)})' in keeps
    assert keeps.endswith("# keeps it")
    assert line("makes") + "make: return torch.zeros(n)" in makes
    assert makes.endswith("# makes it")


def test_a_statement_of_several_lines_is_named_by_its_first(report):
    first = int(line("ends the statement").split(":")[1].split()[0]) - 2
    assert f":{first} in train: CACHE[" in sites_of(report, "CACHE")[0]


def test_a_graph_that_grows_is_kept_by_the_line_that_rebinds_its_holder(report):
    assert line("rebinds") + "Meter.update" in sites_of(report, "METER")[0]


def test_the_runs_for_lines_are_said_and_are_not_counted(report):
    assert report.verdict.n_runs <= 16
    assert any("more times, traced, to find the lines that leak" in note for note in report.notes)
    assert len(report.record.runs) == report.verdict.n_runs


class Loop:
    def __init__(self):
        self.data = torch.rand(3000)  # mark: makes in a cycle
        self.me = self  # mark: closes a cycle


PAIR = Pair()


def leaves_cycles():
    Loop()
    copy.deepcopy(PAIR)  # mark: copies


@pytest.fixture(scope="module")
def garbage():
    """What is said in a program that has switched the collector off."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return leaklab.leakcheck(leaves_cycles, runs=8, namespace={}, cure=False)
    finally:
        gc.collect()
        if was_enabled:
            gc.enable()


def test_what_only_a_cycle_keeps_has_the_line_that_closes_it_before_the_one_that_makes(garbage):
    closes, makes = sites_of(garbage, "Loop")
    assert line("closes a cycle") + "Loop.__init__" in closes
    assert closes.endswith("# closes the cycle")
    assert line("makes in a cycle") + "Loop.__init__" in makes


def test_copies_that_a_cycle_keeps_have_the_line_that_copies_first(garbage):
    copies, closes = sites_of(garbage, "Pair")
    assert line("copies") + "leaves_cycles" in copies
    assert copies.endswith("# copies it")
    assert line("closes the cycle of a copy") + "Pair.__init__" in closes


def calls_of(**options) -> int:
    calls: list[int] = []
    kept: list[bytearray] = []

    def run():
        calls.append(1)
        kept.append(bytearray(4000))

    report = leaklab.leakcheck(run, runs=8, namespace={"kept": kept}, cure=False, **options)
    return len(calls) - 1 - report.verdict.n_runs


def test_without_sites_the_code_is_not_run_again():
    assert calls_of(sites=False) == 0


def test_a_function_that_cannot_be_run_again_keeps_its_verdict_and_says_so():
    numbers = iter(range(9))
    kept: list[bytearray] = []

    def run():
        next(numbers)
        kept.append(bytearray(4000))

    report = leaklab.leakcheck(run, runs=8, namespace={"kept": kept}, cure=False)
    assert report.leaked
    assert any("ended with StopIteration" in note for note in report.notes)


def leaky(kept: list[bytearray]):
    def run():
        kept.append(bytearray(4000))  # mark: keeps bytes

    return run


def test_a_tracer_and_tracemalloc_of_the_users_keep_their_settings_and_are_said():
    def own(frame, event, arg):
        return None

    kept: list[bytearray] = []
    tracemalloc.start(2)
    sys.settrace(own)
    try:
        report = leaklab.leakcheck(leaky(kept), runs=8, namespace={"kept": kept}, cure=False)
        assert sys.gettrace() is own
        assert tracemalloc.get_traceback_limit() == 2
    finally:
        sys.settrace(None)
        tracemalloc.stop()
    assert any("uses the tracer" in note for note in report.notes)
    assert any("already running with 2 frames" in note for note in report.notes)
    assert report.leaks[0].sites[0].endswith("kept.append(bytearray(4000))  # mark: keeps bytes  # makes it")


def test_when_the_time_is_over_no_line_is_looked_for():
    session = CheckSession(Settings(), seconds=60.0)
    session.measurement = Measurement(8, FrozenCensus(collects=False), collects=False, frozen_too=False)
    steps = find_lines(session, Explained(leaks=(LEAK,)))
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value.lines == ()
    assert "no time was left" in stop.value.value.later_notes[0]


def test_cells_are_named_as_the_notebook_does(notebook):
    notebook.run("history, other = [], []\ndef step():\n    history.append(bytearray(4000))")
    number = notebook.shell.execution_count - 1
    report = notebook.check("step()\nother.append(bytearray(4000))", "-n 8")
    assert sites_of(report, "history")[0] == (
        f"Cell In[{number}], line 3 in step: history.append(bytearray(4000))  # keeps it"
    )
    assert sites_of(report, "other")[0] == "this cell, line 3: other.append(bytearray(4000))  # keeps it"


def test_both_options_at_once_are_refused(notebook):
    typed = notebook.run("%%leakcheck --sites --no-sites\n1")
    assert "exclude each other" in str(typed.error)


def test_code_without_a_source_has_no_line_to_show():
    assert whose(__file__) is True
    assert whose(torch.__file__) is False
    assert whose(leaklab.__file__) is None
    assert whose("<string>") is False


NUMBERS: list[object] = []
N_CALLS = [0]


def test_a_leak_of_every_tenth_run_has_its_line():
    def seldom():
        N_CALLS[0] += 1
        if N_CALLS[0] % 10 == 0:
            NUMBERS.append(bytearray(20_000))

    report = leaklab.leakcheck(seldom, cure=False)
    (site,) = (site for leak in report.leaks[:1] for site in leak.sites if "keeps it" in site)
    assert "NUMBERS.append(bytearray(20_000))" in site


def test_a_thread_is_kept_by_the_line_that_started_it():
    stop = threading.Event()
    started = []

    def start():
        made = threading.Thread(target=wait_for, args=(stop,), daemon=True)
        made.start()
        started.append(made.ident)

    def wait_for(event):
        event.wait()

    try:
        report = leaklab.leakcheck(start, runs=12, cure=False)
    finally:
        stop.set()
    sites = [site for leak in report.leaks for site in leak.sites]
    assert any("made.start()  # keeps it" in site for site in sites), sites


def test_a_variable_of_the_function_that_called_the_check_is_watched():
    total, weight = torch.zeros(()), torch.ones(5, requires_grad=True)

    def add():
        nonlocal total
        total = total + weight.sum()

    report = leaklab.leakcheck(add, runs=16, cure=False)
    assert "total = total + weight.sum()  # keeps it" in report.leaks[0].sites[0]


def test_a_list_that_every_run_makes_anew_and_longer_is_watched_where_it_is_kept():
    METER.seen = []

    def remember():
        METER.seen = [*METER.seen, torch.zeros(200)]

    report = leaklab.leakcheck(remember, runs=16, cure=False)
    sites = [site for leak in report.leaks for site in leak.sites]
    assert any("METER.seen = [*METER.seen, torch.zeros(200)]  # keeps it" in site for site in sites), sites


def parts_of(*things: object) -> list[list[int]]:
    """Return the visible parts as places among *things*."""
    places = {id(thing): place for place, thing in enumerate(things)}
    return sorted([places[id(thing)] for thing in part] for part in _visible_parts(list(things)))


def test_a_cycle_that_python_shows_is_one_part():
    first, second = [], {}
    first.append(second)
    second["back"] = first
    assert parts_of(first, second) == [[0, 1]]


def test_a_cycle_through_a_graph_is_cut_where_nodes_begin_and_end():
    center = torch.ones(2, requires_grad=True)
    center.distance = (center * 2).sum()
    attributes, total = center.__dict__, center.distance.grad_fn
    product = total.next_functions[0][0]
    leaf = product.next_functions[0][0]
    whole = parts_of(center, attributes, center.distance, total, product, leaf)
    turned = parts_of(attributes, center.distance, total, product, leaf, center)
    del center.distance
    assert whole == [[0, 1, 2], [3], [4], [5]]
    assert turned == [[2], [3], [4], [5, 0, 1]]


def test_the_gradient_of_a_leaf_is_shown():
    weight = torch.ones(2, requires_grad=True)
    (gradient,) = torch.autograd.grad(weight.pow(3).sum(), [weight], create_graph=True)
    weight.grad = gradient
    found = parts_of(weight, gradient, gradient.grad_fn)
    weight.grad = None
    assert found == [[0, 1], [2]]


MODEL, GRADIENT = 7, 8
"""Addresses of types."""


def cycle(fingerprint: str, members: list[int], stage: CycleCertainty = CycleCertainty.PROVED) -> Orphans:
    return Orphans([], RootPath(CYCLE_ROOT, ()), stage, members=members, fingerprint=fingerprint)


def renamed(*cycles: Orphans) -> list[str]:
    """Vertices 0 and 1 are a counted run's model and gradient, 2 and 3 those of a traced run, 4 is another model."""
    kinds = np.array([MODEL, GRADIENT, MODEL, GRADIENT, MODEL])
    view = SimpleNamespace(kinds=kinds, birth_run=np.array([0, 0, 5, 5, 5]))
    _name_as_before(view, cycles, 5, {"leak"})
    return [one.fingerprint for one in cycles]


def test_objects_of_the_same_types_that_another_cycle_keeps_in_the_traced_runs_are_the_same_leak():
    assert renamed(cycle("leak", [0, 1]), cycle("other", [2, 3])) == ["", "leak"]


def test_a_leak_that_is_found_again_keeps_its_own_cycles():
    assert renamed(cycle("leak", [0, 1, 2, 3]), cycle("other", [4])) == ["leak", "other"]


def test_other_types_or_another_stage_are_another_leak():
    others = (cycle("other", [4]), cycle("garbage", [2, 3], CycleCertainty.GARBAGE))
    assert renamed(cycle("leak", [0, 1]), *others)[1:] == ["other", "garbage"]


def run_slowly(kept: list[object], traced: list[bool], make) -> None:
    traced.append(tracemalloc.is_tracing())
    for _ in range(200):
        torch.ones(4).mul(2)
    time.sleep(0.06)
    kept.append(make())


def ring():
    pair = [torch.ones(500)]  # mark: a tensor of a ring
    pair.append(pair)


def test_operations_of_a_long_run_are_noted_without_tracemalloc():
    kept: list[object] = []
    traced: list[bool] = []
    report = leaklab.leakcheck(
        lambda: run_slowly(kept, traced, lambda: make(700)), namespace={"kept": kept}, runs=12, cure=False
    )
    (leak,) = report.leaks
    assert [site.rpartition("# ")[2] for site in leak.sites] == ["keeps it", "makes it"], leak.sites
    assert "mark: makes" in leak.sites[1]
    assert traced
    assert not any(traced)


def test_of_what_no_holder_keeps_python_objects_are_traced_in_runs_of_their_own():
    traced: list[bool] = []
    gc.disable()
    try:
        report = leaklab.leakcheck(lambda: run_slowly([], traced, ring), runs=12, namespace={}, cure=False)
    finally:
        gc.enable()
        gc.collect()
    assert any("mark: a tensor of a ring" in site for leak in report.leaks for site in leak.sites), str(report)
    assert any(traced)
