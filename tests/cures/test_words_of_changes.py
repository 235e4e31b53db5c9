"""What is said of a change: what it drops, what it does to a cache, what is harm and what only comes and goes."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.cure.behaviour import Observer, pointless_cache
from leaklab.cure.case import Case
from leaklab.cure.edits import NotTriedError, are_apart, merged
from leaklab.cure.judging import LevelGain, is_settling, judge_trial
from leaklab.cure.source import Program, Proposal
from leaklab.explain.idioms import Idiom, proposals_for
from leaklab.model import Leak, RootPath, Status, Step
from leaklab.model.cure import Change, CureOutcome

SETUP = """\
import collections, functools, logging, weakref
class View:
    def draw(self, *args): return args
class Handle:
    def __init__(self, call): self.call = call
    def cancel(self): pass
class Job: pass
def call(*args): return args
view, n = View(), 0
"""


def proposals(setup: str, cell: str, holder: str, cause: str = "container-growth") -> tuple[Proposal, ...]:
    variables: dict[str, Any] = {"__name__": "__main__"}
    exec(SETUP + setup, variables)  # noqa: S102 - a program of ours
    for _ in range(8):
        exec(cell, variables)  # noqa: S102
    leak = Leak(
        what="object", holder=holder, path=RootPath("notebook variable", (Step(holder, "o", "", Status.EXPECTED),)),
        cause=cause, advice="", bytes_per_run=1.0, count_per_run=1.0, unit="objects", kept=(1,) * 8, fingerprint="f",
        reason="",
    )  # fmt: skip
    line = next(number for number, text in enumerate(cell.splitlines(), 1) if holder in text)
    program = Program(variables, {"<cell>": cell}.get, lambda _name, number: f"line {number}", "<cell>")
    return proposals_for(Case(leak, program, (("<cell>", line),)))


@pytest.mark.parametrize(("setup", "cell", "holder"), [
    ("jobs = []", "jobs.append(lambda n=n: n)", "jobs"),
    ("jobs = set()", "jobs.add(functools.partial(call, View()))", "jobs"),
    ("jobs = {}", "n += 1\njobs[n] = View().draw", "jobs"),
    ("jobs = {'app.py': [call]}", "jobs['app.py'].append(View().draw)", "jobs['app.py']"),
    ("jobs = collections.deque()", "jobs.append((1, View().draw))", "jobs"),
    ("jobs = []", "jobs.append(weakref.WeakMethod(view.draw))", "jobs"),
    ("jobs = []", "jobs.append(Handle(call))", "jobs"),
    ("jobs = []", "jobs.append(logging.NullHandler())", "jobs"),
    ("class Bus: pass\nbus = Bus()\nbus.listeners = []", "bus.listeners.append(View())", "bus.listeners"),
    ("jobs = [Job() for _ in range(30)]", "jobs.append(View())", "jobs"),
])  # fmt: skip
def test_whoever_empties_a_registry_drops_what_is_live(setup, cell, holder):
    tried = [one for one in proposals(setup, cell, holder) if one.emptied]
    assert tried
    assert all("that may be in use" in one.drops for one in tried)


@pytest.mark.parametrize(("setup", "cell", "holder"), [
    ("rows = []", "rows.append(bytearray(9))", "rows"),
    ("rows = {}", "rows[view, id(n)] = [1.0, 'text']", "rows"),
    ("rows = []", "rows.append(View())", "rows"),
    ("rows = []", "rows.append(View)", "rows"),
    ("rows = [1, 2, 3] * 9", "rows.append((View(), 3))", "rows"),
    ("hooks_seen = []", "hooks_seen.append('text')", "hooks_seen"),
    ("handlers = []", "handlers.append('text')", "handlers"),
    ("rows = [weakref.ref(view)] * 0", "rows.append(weakref.ref(View()))", "rows"),
])  # fmt: skip
def test_data_of_the_user_may_be_let_go(setup, cell, holder):
    tried = proposals(setup, cell, holder)
    assert tried
    assert not any(one.drops for one in tried)


@pytest.mark.parametrize(("setup", "cell", "line"), [
    ("jobs = []", "jobs.append(view.draw)", "jobs.remove(view.draw)"),
    ("jobs = set()", "jobs.add(lambda: 1)", 'if "callback" in globals():\n    jobs.discard(callback)'),
    ("jobs = {}", "n += 1\njobs[n] = View().draw", 'if "n" in globals():\n    jobs.pop(n, None)\nn += 1'),
    ("jobs = {}", "n += 1\njobs[n] = View().draw\nprint(n)", "jobs.pop(n, None)"),
])  # fmt: skip
def test_the_entry_of_a_run_is_taken_out_by_itself(setup, cell, line):
    first = proposals(setup, cell, "jobs", "callback-registry")[0]
    assert line in "\n".join(change.after for change in first.changes)
    assert not first.drops


def test_the_cause_chooses_the_changes(monkeypatch):
    """Others are asked only where the cause has none that fits the code, or is unknown."""

    def own(_case: Case) -> Iterator[Proposal]:
        yield Proposal("Own.")

    def other(_case: Case) -> Iterator[Proposal]:
        yield Proposal("Other.")

    table = (Idiom("graph-kept", lambda _: None, (own,)), Idiom("native", lambda _: None))
    monkeypatch.setattr("leaklab.explain.idioms.IDIOMS", table)
    monkeypatch.setattr("leaklab.explain.idioms.CHANGES", (other, own))
    for cause, words in (("graph-kept", ["Own."]), ("native", ["Other.", "Own."]), ("unknown", ["Other.", "Own."])):
        assert [one.words for one in proposals("rows = []", "rows.append(1)", "rows", cause)] == words


def test_a_fault_of_ours_in_one_kind_of_change_costs_no_other(monkeypatch):
    def broken(_case: Case) -> Iterator[Proposal]:
        yield Proposal("Half.")
        msg = "no such node"
        raise KeyError(msg)

    def whole(_case: Case) -> Iterator[Proposal]:
        yield Proposal("Whole.")

    monkeypatch.setattr("leaklab.explain.idioms.CHANGES", (broken, whole))
    with pytest.warns(RuntimeWarning, match="left out changes of one kind, `broken`: KeyError: 'no such node'"):
        found = proposals("rows = []", "rows.append(1)", "rows", "unknown")
    assert [one.words for one in found] == ["Whole."]


def test_a_cache_that_serves_later_runs_is_pointless_when_it_is_emptied():
    @functools.cache
    def table(key: object) -> object:
        return key

    def run(number: int) -> None:
        _ = table(number), [table(key) for key in "abc"]

    for number in range(20):
        run(number)
    observer = Observer(lambda: nullcontext(gc.get_objects()), {})
    observer.begin()
    for number in range(20, 28):
        run(number)
    before = observer.end()
    observer.begin()
    for number in range(28, 36):
        table.cache_clear()
        run(number)
    after = observer.end()
    assert pointless_cache(before, after, 8) == "the cache no longer helps later runs: each computes 4 results (was 1)"
    assert not pointless_cache(before, before, 8)


def gain(**columns: tuple[float, float]) -> LevelGain:
    names = ("objects", "native", "accelerator", "blocks", "descriptors", "children", "nodes", "registered", "threads")
    return LevelGain(6, containers={}, **{name: columns.get(name, (0.0, 0.0)) for name in names})


@given(entry=st.floats(2_000, 1e9), first=st.booleans())
def test_an_entry_that_comes_and_goes_is_no_harm(entry, first):
    after = gain(native=(entry, -entry) if first else (0.0, entry))
    assert judge_trial(gain(native=(9_000.0, 9_000.0)), after) is not CureOutcome.HARMFUL


@given(entry=st.floats(5_000, 1e9))
def test_what_the_trial_keeps_alive_is_not_the_change(entry):
    reference, control = gain(native=(9_000.0, 9_000.0)), gain(native=(9_000.0 + entry, 9_000.0 + entry))
    after = gain(native=(entry, entry))
    assert judge_trial(reference, gain(native=(1e5, 1e5))) is CureOutcome.HARMFUL
    assert judge_trial(reference, after.without(control, reference)) is CureOutcome.CURED


def test_what_a_change_lets_go_of_hides_nothing_that_grows():
    assert is_settling(gain(objects=(-5.0, 3.0)))
    assert is_settling(gain(objects=(9.0, 0.0)))
    assert not is_settling(gain(objects=(3.0, 3.0)))
    assert not is_settling(gain(objects=(-10.0, 0.0)))


def change(after: str, before: str = "a.append(x); b.append(y)", line: int = 1) -> Change:
    return Change("here", before, after, "<cell>", line)


def test_changes_of_one_line_become_one():
    first, second = change("a.append(x.item()); b.append(y)"), change("a.append(x); b.append(y.item())")
    assert merged([first, second]) == (change("a.append(x.item()); b.append(y.item())"),)
    assert not are_apart([first], [second])
    ends = change("a.append(x); b.append(y)\na.clear()"), change("a.append(x); b.append(y)\nb.clear()")
    assert merged(ends) == (change("a.append(x); b.append(y)\na.clear()\nb.clear()"),)
    assert are_apart(*([one] for one in ends))
    with pytest.raises(NotTriedError):
        merged([first, change("a.append(0); b.append(y)")])
