"""The first proposal for a leak is the change that a reviewer would ask for, and it cures."""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import linecache
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import PROGRAMS as OTHERS
from programs import Leaking
from programs_of_causes import CAUSES
from programs_of_definitions import DEFINITIONS
from programs_of_ways_out import WAYS_OUT

from leaklab.cure.case import Case
from leaklab.cure.source import Program, Proposal
from leaklab.explain.idioms import proposals_for
from leaklab.model import Leak, RootPath, Status, Step
from leaklab.model.cure import Change

PROGRAMS = OTHERS | WAYS_OUT | CAUSES | DEFINITIONS
_CELL, _SETUP = "<the cell>", "<the setup>"
_N_RUNS = 8
_THREADS = frozenset({"timers", "threads that wait", "executors", "a timer that a function returns"})
"""Their proposals are thought out from the text alone: threads that no test ends would disturb the others."""


def _line_of(program: Leaking, part: str) -> tuple[tuple[str, int], ...]:
    for filename, text in ((_CELL, program.cell), (_SETUP, program.setup)):
        for number, line in enumerate(text.splitlines(), 1):
            if part and part in line:
                return ((filename, number),)
    return ()


def _leak(program: Leaking) -> Leak:
    steps = [Step(program.holder, "object", "", Status.EXPECTED)]
    steps += [Step(reference, kind, "", Status.LEAKED) for reference, kind in program.path]
    return Leak(
        what="torch.Tensor", path=RootPath(program.root, tuple(steps)), holder=program.holder, cause=program.cause,
        advice="", bytes_per_run=1.0, count_per_run=program.per_run, unit=program.unit,
        kept=(round(program.per_run),) * _N_RUNS if program.unit == "objects" else (), fingerprint="f", reason="",
    )  # fmt: skip


def _proposals(name: str) -> tuple[Proposal, ...]:
    program = PROGRAMS[name]
    variables: dict[str, Any] = {"__name__": "__main__"}
    if name not in _THREADS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # create_graph=True: torch says that it leaks
            exec(compile(program.setup, _SETUP, "exec"), variables)  # noqa: S102 - a program of ours
            for _ in range(_N_RUNS):
                exec(compile(program.cell, _CELL, "exec"), variables)  # noqa: S102 - a program of ours
    else:
        variables.update(executors=[1, 2], pool=None)
        del variables["pool"]
    texts = {_CELL: program.cell, _SETUP: program.setup}
    known = Program(
        variables,
        lambda filename: texts.get(filename) or _library_text(filename),
        lambda filename, line: f"{filename}, line {line}",
        _CELL,
    )
    keeping, making = _line_of(program, program.keeps), _line_of(program, program.makes)
    try:
        return proposals_for(Case(_leak(program), known, keeping, making))
    finally:
        _close(variables)


def _library_text(filename: str) -> str | None:
    return "".join(linecache.getlines(filename)) or None


def _close(variables: dict[str, Any]) -> None:
    """Undo what a program has registered outside of its own variables."""
    if "plt" in variables:
        variables["plt"].close("all")
    if "logger" in variables:
        variables["logger"].handlers.clear()
        variables["logger"].filters.clear()
    for pool in variables["memory"].pools if "memory" in variables else ():
        pool.shutdown()
    for timer in variables.get("timers", ()):
        timer.cancel()
        timer.join()
    if "loop" in variables:
        tasks = asyncio.all_tasks(variables["loop"])
        for task in tasks:
            task.cancel()
        if tasks:
            variables["loop"].run_until_complete(asyncio.wait(tasks))
        variables["loop"].close()
    variables.clear()


def _applied(program: Leaking, changes: tuple[Change, ...]) -> tuple[str, str]:
    texts = {_CELL: program.cell, _SETUP: program.setup}
    for change in sorted(changes, key=lambda change: -change.line):
        lines = texts[change.filename].split("\n")
        n_lines = len(change.before.split("\n"))
        assert lines[change.line - 1 : change.line - 1 + n_lines] == change.before.split("\n")
        lines[change.line - 1 : change.line - 1 + n_lines] = change.after.split("\n") if change.after else []
        texts[change.filename] = "\n".join(lines)
    return texts[_SETUP], texts[_CELL]


@pytest.fixture(scope="module")
def firsts() -> dict[str, tuple[Proposal, ...]]:
    """The proposals of every program."""
    found = {name: _proposals(name) for name in PROGRAMS}
    gc.collect()
    return found


@pytest.fixture(scope="module")
def measured(firsts: dict[str, tuple[Proposal, ...]]) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What each program leaves without and with its first proposal, measured in a process without leaklab."""
    named = [(name, found[0].changes) for name, found in firsts.items() if found and found[0].changes]
    pairs = [(PROGRAMS[name].setup, PROGRAMS[name].cell) for name, _ in named]
    pairs += [_applied(PROGRAMS[name], changes) for name, changes in named]
    script = Path(__file__).with_name("without_leaklab.py")
    done = subprocess.run(
        [sys.executable, str(script)], input=json.dumps(pairs), capture_output=True, text=True, check=True, timeout=600
    )
    answers = json.loads(done.stdout)
    return {name: (answers[at], answers[at + len(named)]) for at, (name, _) in enumerate(named)}


def _written(proposal: Proposal) -> Iterator[str]:
    for change in proposal.changes:
        yield from change.after.split("\n")


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.changed])
def test_the_first_proposal_is_what_a_reviewer_would_write(name: str, firsts: dict[str, tuple[Proposal, ...]]) -> None:
    """The user's own line is changed, and no other character of it."""
    found = firsts[name]
    assert found, "no proposal"
    lines, written = PROGRAMS[name].changed.split("\n"), list(_written(found[0]))
    assert lines in [written[at : at + len(lines)] for at in range(len(written))], written


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.changed])
def test_the_first_proposal_cures_where_leaklab_is_not_there(
    name: str, measured: dict[str, tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    """Nothing grows any more, nothing is raised, the same parameters have gradients."""
    before, after = measured[name]
    assert "error" not in before | after, (before, after)
    assert before["objects"] > 0.5 or before["bytes"] > 300, "the program itself does not leak"
    assert after["objects"] <= max(0.5, 0.1 * before["objects"]), (before, after)
    assert after["bytes"] <= max(512, 0.1 * before["bytes"]), (before, after)
    assert after["gradients"] == before["gradients"]


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if not program.changed])
def test_where_no_change_is_sure_nothing_but_words_is_offered(
    name: str, firsts: dict[str, tuple[Proposal, ...]]
) -> None:
    """A library's table, a thread that waits, a finalizer: no line is changed."""
    assert not any(proposal.changes for proposal in firsts[name])


def test_a_cache_that_is_emptied_in_every_run_is_said_to_serve_no_later_one(
    firsts: dict[str, tuple[Proposal, ...]],
) -> None:
    """It ends the growth, and what the cache is for; a bound stands before it."""
    bound, emptied = firsts["a cache of a function"][:2]
    assert "later runs do not use" in emptied.drops
    assert not bound.drops


def test_a_bound_on_what_nothing_reads_yet_says_so(firsts: dict[str, tuple[Proposal, ...]]) -> None:
    """A cache is read by its keys."""
    unread = "or as many as you will read: nothing reads them so far"
    assert unread in firsts["copies of a model"][0].words
    assert unread not in firsts["a cache of a function"][0].words


def test_every_proposal_is_a_program_and_says_what_it_does(firsts: dict[str, tuple[Proposal, ...]]) -> None:
    """A change is the source as it stands and Python that takes its place; at most five for a leak."""
    for name, found in firsts.items():
        assert len(found) <= 5
        for proposal in found:
            assert proposal.words.endswith(".")
            for text in _applied(PROGRAMS[name], proposal.changes):
                ast.parse(text)
            for change in proposal.changes:
                assert change.where
                assert textwrap.dedent(change.after) != textwrap.dedent(change.before)


@pytest.mark.parametrize(
    ("cell", "changed"),
    [
        ("sys.path.insert(0, '/a/folder')", ["if '/a/folder' not in sys.path:", "    sys.path.insert(0, '/a/folder')"]),
        ("number = len(sys.path)\nsys.path.append(f'/a/folder/{number}')", []),
    ],
)
def test_the_list_of_a_librarys_module_is_never_emptied(
    monkeypatch: pytest.MonkeyPatch, cell: str, changed: list[str]
) -> None:
    """Without ``sys.path`` nothing is imported any more: what is there already is not added again, else nothing."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    leaking = Leaking(
        setup="import sys", cell=cell, holder="sys.path", cause="container-growth",
        keeps="insert" if "insert" in cell else "append", changed="", unit="entries", per_run=1.0,
    )  # fmt: skip
    monkeypatch.setitem(PROGRAMS, "folders", leaking)
    found = _proposals("folders")
    assert [line for proposal in found for line in _written(proposal)] == changed


def test_a_field_is_left_out_where_no_entry_goes_to_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = "results = []\ndef show(one):\n    return len(one)\ndef trial(lr):\n"
    setup += "    results.append({'lr': lr, 'loss': 2 * lr, 'model': [0] * 900})\n    return "
    for tail, is_left_out in (
        ("min(results, key=lambda one: one['loss'])['lr']", True),
        ("sum(one['loss'] for one in results) / len(results)", True),
        ("min(results, key=lambda one: one['loss'])", False),
        ("results[-1]", False),
        ("show(results)", False),
        ("len(results[-1]['model'])", False),
    ):
        leaking = Leaking(
            setup + tail, "x = trial(0.1)", "results", "container-growth", "results.append", "",
            path=(("[7]", "dict"), ("['model']", "list")),
        )  # fmt: skip
        monkeypatch.setitem(PROGRAMS, "search", leaking)
        assert any(one.words.startswith("Leave `model` out") for one in _proposals("search")) is is_left_out, tail


def test_what_was_there_from_the_start_is_not_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for begins, is_emptied in (("[[0] * 50 for _ in range(10)]", False), ("[]", True)):
        setup = (
            f"world = {begins}\ndef tick():\n    world.extend([[0] * 50, [0] * 50])\n    return sum(map(len, world))"
        )
        leaking = Leaking(setup, "n = tick()", "world", "container-growth", "world.extend", "", per_run=2.0)
        monkeypatch.setitem(PROGRAMS, "world", leaking)
        texts = [change.after for one in _proposals("world") for change in one.changes]
        assert any("world.clear()" in text for text in texts) is is_emptied


def test_what_waits_to_be_taken_is_not_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two batches that are fetched one is used: a bound would end the growth, and lose the batches."""
    setup = "pending = []\ndef fetch(n):\n    for _ in range(n):\n        pending.append([0] * 500)\n"
    setup += "def take():\n    return pending.pop(0)"
    leaking = Leaking(setup, "fetch(2)\nn = len(take())", "pending", "container-growth", "pending.append", "")
    monkeypatch.setitem(PROGRAMS, "batches", leaking)
    found = _proposals("batches")
    assert found
    assert all("may be in use" in proposal.drops for proposal in found)
