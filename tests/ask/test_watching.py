"""`leaklab.watch` around blocks and functions, and ``%leakwatch`` after cells."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
import torch

import leaklab
from leaklab.ask.watching import CellWatcher, watch

pytestmark = pytest.mark.untraced

KEPT: list[object] = []


def kept_shapes(watched: watch) -> dict[str, int]:
    assert watched.diff is not None
    return dict(zip(watched.diff.tensors["shape"], watched.diff.tensors["n_born"], strict=True))


def test_a_block_inside_a_block_has_a_report_of_its_own(capsys):
    again = leaklab.watch("outer", quiet=True)
    with again:
        KEPT.append(torch.ones(3, 5))
        with again:
            KEPT.append(torch.ones(5, 7))
        assert kept_shapes(again) == {"(5, 7)": 1}
    assert kept_shapes(again) == {"(3, 5)": 1, "(5, 7)": 1}
    assert repr(again).startswith("<leaklab.watch 'outer': +")
    assert capsys.readouterr().out == ""


def test_exceptions_pass_through_and_nothing_of_the_block_is_kept():
    class MineError(Exception):
        pass

    watched = leaklab.watch()
    value = torch.ones(2)
    with pytest.raises(MineError), watched:
        raise MineError
    assert watched.diff is not None
    assert watched.diff.record.failure == "MineError"
    seen = weakref.ref(value)
    del value
    gc.collect()
    assert seen() is None


def test_a_function_keeps_its_name_and_value_and_is_told_by_name(capsys):
    watching = leaklab.watch()

    @watching
    def make(n: int) -> int:
        """Make a tensor."""
        KEPT.append(torch.ones(n, 2))
        return n

    assert make(9) == 9
    assert make.__doc__ == "Make a tensor."
    assert kept_shapes(watching) == {"(9, 2)": 1}
    shown = capsys.readouterr().out
    assert shown.startswith(
        "test_a_function_keeps_its_name_and_value_and_is_told_by_name.<locals>.make: before -> after"
    )
    assert "+1 torch.Tensor (9, 2) float32 cpu, 72 B, held by KEPT[" in shown


def test_coroutines_and_generators_are_watched_to_their_end():
    watching = leaklab.watch(quiet=True)

    @watching
    async def work() -> str:
        await asyncio.sleep(0)
        KEPT.append(torch.ones(4, 4))
        return "done"

    assert asyncio.run(work()) == "done"
    assert kept_shapes(watching) == {"(4, 4)": 1}

    @watching
    def numbers():
        KEPT.append(torch.ones(6, 6))
        got = yield 1
        return got

    running = numbers()
    assert next(running) == 1
    with pytest.raises(StopIteration) as stopped:
        running.send("value")
    assert stopped.value.value == "value"
    assert kept_shapes(watching) == {"(6, 6)": 1}


def test_an_asynchronous_generator_is_refused():
    async def numbers():
        yield 1

    with pytest.raises(TypeError, match="cannot decorate an asynchronous generator"):
        leaklab.watch()(numbers)


@pytest.mark.parametrize("wrong", [3, [], "text"])
def test_only_functions_are_decorated(wrong):
    with pytest.raises(TypeError, match="decorates a function, not"):
        leaklab.watch()(wrong)


def test_a_forgotten_pair_of_parentheses_is_told():
    with pytest.raises(TypeError, match=r"write @leaklab.watch\(\) with parentheses"):
        leaklab.watch(lambda: 1)


def test_a_cell_that_leaves_a_tensor_each_time_raises_one_alarm():
    lines: list[str] = []
    watcher = CellWatcher(list, lines.append)
    for number in range(1, 6):
        watcher.start_cell()
        KEPT.append(torch.ones(1000))
        watcher.end_cell(number, "  keep.append(torch.ones(1000))\n")
    assert "+1 tensor (+3.91 KiB), " in lines[0]
    alarms = [line for line in lines if "ALARM" in line]
    (alarm,) = alarms
    first, second = alarm.splitlines()
    assert first == (
        "leakwatch ALARM In[4]: each of the last 3 executions of this cell left +1 tensor, +3.91 KiB in tensors"
    )
    assert second.startswith("    what to do: write %%leakcheck above this cell")
    assert watcher.status().startswith("leakwatch is on: 5 cells watched, 1 alarm; watching took ")


def test_the_levels_of_the_last_cells_are_drawn_and_an_alarm_is_coloured():
    lines: list[str] = []
    watcher = CellWatcher(list, lines.append, encoding=lambda: "latin-1", alarmed="<{}>".format)
    for number in range(1, 5):
        watcher.start_cell()
        KEPT.append(torch.ones(3_000_000))
        watcher.end_cell(number, "keep.append(torch.ones(3_000_000))\n")
    drawn = lines[3].rsplit("  ", 1)[1].split()[0]
    assert len(drawn) == 4
    assert drawn.isascii()
    assert list(drawn) == sorted(drawn, key="_.-=*#".index)
    assert lines[4].startswith("<leakwatch ALARM In[4]>: ")


def test_the_notebook_is_watched_from_on_to_off(notebook):
    notebook.user["torch"] = torch
    callbacks = notebook.shell.events.callbacks
    n_before = {name: len(callbacks[name]) for name in ("pre_run_cell", "post_run_cell")}
    assert notebook.run("%leakwatch status").out == "leakwatch is off\n"
    assert "leakwatch is on" in notebook.run("%leakwatch on").out
    assert "+1 tensor (+12 B), " in notebook.run("x = torch.ones(3)").out
    assert "1 cell watched" in notebook.run("%leakwatch status").out
    assert notebook.run("%leakwatch off").out == "leakwatch is off\n"
    assert notebook.run("y = torch.ones(3)").out == ""
    assert {name: len(callbacks[name]) for name in n_before} == n_before
    assert "takes one of on, off and status, not 'maybe'" in str(notebook.run("%leakwatch maybe").error)
    notebook.run("%leakwatch on")
    notebook.run("%unload_ext leaklab")
    without = {name: n - 1 for name, n in n_before.items()}  # also of what %leaks notes
    assert {name: len(callbacks[name]) for name in n_before} == without
