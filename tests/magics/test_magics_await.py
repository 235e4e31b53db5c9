"""``%%leakcheck`` above a cell that awaits."""

from __future__ import annotations

import asyncio

import pytest
import torch
from notebook_shell import Notebook

pytestmark = pytest.mark.untraced

IMPORT = "import asyncio\n"


def test_a_cell_that_awaits_runs_as_often_as_any_other(notebook: Notebook):
    notebook.user["n"] = 0
    report = notebook.check(f"{IMPORT}await asyncio.sleep(0)\nn += 1", "-n 6")
    assert report.verdict.n_runs == 6
    assert notebook.user["n"] == 7


def test_a_clean_cell_that_awaits_is_clean(notebook):
    assert str(notebook.check(f"{IMPORT}await asyncio.sleep(0)").verdict).startswith("clean")


def test_a_leak_of_a_cell_that_awaits_is_found_with_its_holder(notebook):
    notebook.user.update(history=[], torch=torch)
    report = notebook.check(f"{IMPORT}await asyncio.sleep(0)\nhistory.append(torch.ones(1000))")
    assert report.leaked
    assert report.leaks[0].holder == "history"


@pytest.mark.parametrize(
    "cell",
    [
        "async with Lock(): ran = True",
        "async for ran in numbers(): pass",
        "ran = [x async for x in numbers()]",
        "ran = [await asyncio.sleep(0) for _ in range(2)]",
        "await asyncio.sleep(0, result=setattr(Lock, 'ran', 1) or 3)",
    ],
)
def test_every_way_to_await_is_seen(notebook, cell):
    notebook.run(f"{IMPORT}from asyncio import Lock\nasync def numbers():\n    yield 1\n")
    report = notebook.check(cell, "-n 5")
    assert report.check.failure == ""
    assert report.verdict.n_runs == 5


def test_the_awaited_value_of_the_last_expression_is_shown_once(notebook):
    shown = notebook.run(f"%%leakcheck -n 5\n{IMPORT}await asyncio.sleep(0, 'hel' + 'lo')").out
    assert shown.count("'hello'") == 1


def test_an_await_inside_a_function_needs_no_loop(notebook):
    report = notebook.check("async def later():\n    await thing()\n", "-n 5")
    assert report.verdict.n_runs == 5


def test_an_error_after_an_await_shows_the_users_line(notebook):
    typed = notebook.run(f"%%leakcheck -v found\n{IMPORT}await asyncio.sleep(0)\nraise ValueError('mine')")
    assert type(typed.error) is ValueError
    assert "----> 4 raise ValueError('mine')" in typed.out
    assert notebook.user["found"].check.failure == "ValueError in warm-up run 1"


def test_a_slip_in_the_line_above_an_await_is_one_sentence(notebook):
    typed = notebook.run(f"%%leakcheck -n 2\n{IMPORT}await asyncio.sleep(0)\nran = True")
    assert typed.err.startswith("UsageError: the number of runs must be at least 5")
    assert "ran" not in notebook.user


def test_the_shells_own_coroutine_runs_the_check(notebook):
    async def type_it() -> None:
        cell = f"%%leakcheck -q -v found -n 5\n{IMPORT}await asyncio.sleep(0)"
        transformed = notebook.shell.transform_cell(cell)
        await notebook.shell.run_cell_async(cell, transformed_cell=transformed)

    asyncio.run(type_it())
    assert notebook.user["found"].verdict.n_runs == 5


def test_o_returns_the_report_of_a_cell_that_awaits(notebook):
    typed = notebook.run(f"%%leakcheck -q -o -n 5\n{IMPORT}await asyncio.sleep(0)")
    assert typed.result.result.verdict.n_runs == 5
