"""What grows in place: containers of plain data, buffers, graphs."""

from __future__ import annotations

import array
import collections
import gc
import io
import itertools
import queue
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
import torch
from explain_builders import Node, view_of

import leaklab
from leaklab.check.growing_places import grown_graphs, grown_places
from leaklab.check.judging import Grown, Judgement
from leaklab.decide.growth import Growth, judge_checkpoints
from leaklab.explain.leaks.limits import has_known_names
from leaklab.explain.leaks.sizes import content_of
from leaklab.measure.slots import GrownSlot
from leaklab.model import Outcome

AT_RUNS = (0, 8, 15, 24)
STEADY = Growth(Outcome.LEAK, 2.0, "steady")
NOTHING = Growth(Outcome.CLEAN, 0.0, "nothing")


def grown(thing, per_run=1):
    """Say that *thing* got longer by so much in every run."""
    lengths = tuple(per_run * run for run in AT_RUNS)
    return Grown(id(thing), lengths, judge_checkpoints(lengths, AT_RUNS))


def judgement(*containers, slots=(), graph=NOTHING):
    return Judgement(
        at_runs=AT_RUNS, kinds={}, remade={}, containers=containers, slots=tuple(slots), graph=graph,
        native=None, accelerator=None,
    )  # fmt: skip


def slot_of(owner, thing, sizes, anchor=None):
    """Say that the slot of *owner* that holds *thing* grew; *anchor* refers to an owner the collector does not know."""
    slot = GrownSlot(id(anchor or owner), id(owner), id(thing), id(type(thing)), tuple(sizes))
    return Grown(slot, slot.sizes, judge_checkpoints(sizes, AT_RUNS))


def leaks_of(variables, *containers, runs=((), ()), slots=()):
    with view_of(variables, runs) as view:
        return [
            g.leak for g in grown_places(view, judgement(*containers, slots=slots)) if g.growth.outcome is Outcome.LEAK
        ]


def test_a_list_of_numbers_is_a_place_that_grows():
    losses = [1.5] * 24
    (leak,) = leaks_of({"losses": losses}, grown(losses))
    assert (leak.holder, leak.what, leak.unit, leak.count_per_run) == ("losses", "list entries: float", "entries", 1.0)
    assert leak.kept == ()
    assert str(leak.path) == "notebook variable: losses (list 24 entries)"


def test_its_row_tells_lengths_and_rates():
    losses = [1.5] * 24
    with view_of({"losses": losses}, ((), ())) as view:
        (found,) = grown_places(view, judgement(grown(losses)))
    row = found.row
    assert (row.kind, row.holder, row.unit, row.content) == ("list", "losses", "entries", "float")
    assert (row.lengths, row.at_runs, row.per_run) == ((0, 8, 15, 24), AT_RUNS, 1.0)
    assert row.outcome is Outcome.LEAK


def test_a_container_that_survivors_make_longer_is_not_reported_again():
    runs = [[Node()] for _ in range(24)]
    history = [born[0] for born in runs]
    with view_of({"history": history}, runs) as view:
        (found,) = grown_places(view, judgement(grown(history)))
    assert found.growth.outcome is Outcome.CLEAN
    assert found.row.outcome is Outcome.LEAK  # the table shows that it grew


def test_one_old_survivor_does_not_hide_numbers_that_pile_up_beside_it():
    runs = [[Node()], [], []]
    log = [runs[0][0], *[1.5] * 240]
    (leak,) = leaks_of({"log": log}, grown(log, per_run=10), runs=runs)
    assert leak.count_per_run == 10.0


def test_a_container_inside_a_survivor_is_the_survivors_affair():
    inner = [[1.5] * 24]
    assert leaks_of({"history": inner}, grown(inner[0]), runs=[[inner[0]], [], []]) == []


def test_a_container_that_nothing_reaches_is_left_out():
    orphan = [[1.5] * 24]
    with view_of({}, ((), ()), more=orphan) as view:
        assert grown_places(view, judgement(grown(orphan[0]))) == []


def test_places_that_differ_in_a_position_only_are_one_leak():
    buckets = [[1.5] * 24 for _ in range(50)]
    (leak,) = leaks_of({"buckets": buckets}, *map(grown, buckets))
    assert leak.count_per_run == 50.0
    assert (leak.holders, leak.n_places) == (("buckets[0]",), 50)
    assert leak.reason.endswith("50 places like it grow by 50 entries per run")


def test_two_places_are_two_leaks():
    variables = {"a": [1.5] * 24, "b": [1.5] * 24}
    leaks = leaks_of(variables, grown(variables["a"]), grown(variables["b"]))
    assert len({leak.fingerprint for leak in leaks}) == 2


def test_variables_whose_names_stand_in_the_code_are_not_ever_more(tmp_path, monkeypatch):
    """The last part of a script, which a watch may see as well, binds a few names."""
    (tmp_path / "train.py").write_text("\n".join(f"loss_of_{letter} = 0.5" for letter in "abcdefghijklmnopqrstuvwx"))
    script = types.ModuleType("__main__")
    script.__file__ = str(tmp_path / "train.py")
    monkeypatch.setitem(sys.modules, "__main__", script)
    written = {"box": [], **{f"loss_of_{letter}": 1.5 for letter in "abcdefghijklmnopqrstuvwx"}}
    assert leaks_of(written, grown(written)) == []
    one_more = {**written, f"loss_of_{12}": 1.5}  # so that it does not stand here either
    assert [leak.holder for leak in leaks_of(one_more, grown(one_more))] == ["globals()"]


@pytest.mark.parametrize(
    ("newest", "is_known"),
    [
        ({"__slotnames__": []}, True),
        ({"__step_12__": []}, False),
        ({7: [], "__slotnames__": []}, False),
        ({7: []}, False),
    ],
)
def test_what_python_notes_in_a_class_is_not_ever_more_and_any_other_key_may_be(newest, is_known):
    table = {"width": 3, **newest}
    assert has_known_names(table, len(newest), is_namespace=False, is_of_class=True) is is_known
    assert not has_known_names(table, len(newest), is_namespace=False, is_of_class=False)


def test_a_table_of_any_keys_may_grow():
    letters = "abcdefghijklmnopqrstuvwx"
    table = {f"__{letter}__": [1.5] for letter in letters}
    assert [leak.holder for leak in leaks_of({"table": table}, grown(table))] == ["table"]
    mixed = {**dict.fromkeys(range(24), "user"), "__last__": [1]}
    assert [leak.holder for leak in leaks_of({"mixed": mixed}, grown(mixed))] == ["mixed"]


def test_the_namespace_itself_may_grow():
    variables = {"box": [], **{f"value{i}": 1.5 for i in range(24)}}
    (leak,) = leaks_of(variables, grown(variables))
    assert leak.holder == "globals()"
    assert eval(leak.holder, variables) is variables  # noqa: S307 - written above


def test_names_that_the_notebook_makes_for_its_history_are_not_the_users_variables():
    variables = {"box": [], **{f"_i{number}": f"cell {number}" for number in range(24)}}
    assert leaks_of(variables, grown(variables)) == []


@pytest.mark.parametrize(
    ("make", "what", "unit"),
    [
        (lambda: io.StringIO("x" * 5000), "_io.StringIO", "characters"),
        (lambda: io.BytesIO(b"x" * 5000), "_io.BytesIO", "bytes"),
    ],
)
def test_files_in_memory_grow_by_what_is_written(make, what, unit):
    box = Node(stream=make())
    slots = [slot_of(box, box.stream, (0, 1600, 3000, 4800))] if not gc.is_tracked(box.stream) else []
    containers = [] if slots else [grown(box.stream, 200)]
    (leak,) = leaks_of({"box": box}, *containers, slots=slots)
    assert (leak.holder, leak.unit, leak.count_per_run, leak.bytes_per_run) == ("box.stream", unit, 200.0, 200.0)
    assert leak.what.startswith(what)


def text():
    return "x" * 4800


@pytest.mark.parametrize(
    ("thing", "unit", "per_run"),
    [
        (text(), "characters", 200.0),
        (bytearray(4800), "bytes", 200.0),
        (torch.zeros(1200), "bytes", 200.0),
        (np.zeros(600), "bytes", 200.0),
    ],
)
def test_a_slot_whose_content_gets_bigger_is_a_place_that_grows(thing, unit, per_run):
    holder = [thing]
    (leak,) = leaks_of({"state": holder}, slots=[slot_of(holder, thing, (0, 1600, 3000, 4800))])
    assert (leak.holder, leak.unit, leak.count_per_run, leak.bytes_per_run) == ("state[0]", unit, per_run, per_run)


def test_a_variable_that_is_replaced_by_something_bigger_is_named():
    variables = {"box": [], "log": text()}
    (leak,) = leaks_of(variables, slots=[slot_of(variables, variables["log"], (0, 1600, 3000, 4800))])
    assert leak.holder == "log"
    assert str(leak.path) == "notebook variable: log (str 4,800 characters)"


def test_a_dict_of_numbers_counts_entries():
    counts = dict.fromkeys(range(1000, 1024), 1.5)
    holder = [counts]
    (leak,) = leaks_of({"state": holder}, slots=[slot_of(holder, counts, (0, 8, 15, 24))])
    assert (leak.what, leak.unit, leak.count_per_run) == ("dict entries: float", "entries", 1.0)


def untracked(**entries):
    """Make a dict that the collector does not know, as it does by itself before CPython 3.14."""
    made = dict(entries)
    gc.collect()
    return made


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the collector knows every dict")
def test_a_slot_of_a_dict_that_the_collector_does_not_know_is_named_through_what_refers_to_it():
    holder = [untracked(log=text())]
    assert not gc.is_tracked(holder[0])
    slot = slot_of(holder[0], holder[0]["log"], (0, 1600, 3000, 4800), anchor=holder)
    (leak,) = leaks_of({"state": holder}, slots=[slot])
    assert leak.holder == "state[0]['log']"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the collector knows every dict")
def test_a_slot_of_a_dict_that_is_gone_is_left_out():
    holder = [untracked(log=text())]
    slot = slot_of(holder[0], holder[0]["log"], (0, 1600, 3000, 4800), anchor=holder)
    holder[0] = text()
    assert leaks_of({"state": holder}, slots=[slot]) == []


def test_a_slot_that_now_holds_something_else_is_left_out():
    holder = [text()]
    slot = slot_of(holder, holder[0], (0, 1600, 3000, 4800))
    holder[0] = b"other"
    assert leaks_of({"state": holder}, slots=[slot]) == []


class Bare:
    """Its attributes are set from outside: no method mentions them."""


def test_an_attribute_is_named_though_looking_at_its_object_has_made_a_dict_of_the_attributes():
    bare = Bare()
    bare.number, bare.cache = 1, dict.fromkeys(range(1000, 1024), 1.5)
    slot = slot_of(bare, bare.cache, (0, 8, 15, 24))
    assert vars(bare)["cache"] is bare.cache
    (leak,) = leaks_of({"bare": bare}, slots=[slot])
    assert (leak.holder, leak.what, leak.count_per_run) == ("bare.cache", "dict entries: float", 1.0)


def test_a_slot_that_is_gone_is_left_out():
    holder = [text()]
    slot = slot_of(holder, holder[0], (0, 1600, 3000, 4800))
    holder.clear()
    assert leaks_of({"state": holder}, slots=[slot]) == []


class Rebel(list):
    """Lies about its content."""

    def __reversed__(self):
        raise AssertionError

    def __iter__(self):
        raise AssertionError

    def __len__(self):
        raise AssertionError


@pytest.mark.parametrize(
    ("thing", "n_new", "name", "least", "most"),
    [
        ([1.5, "x" * 1000, "y" * 1000], 2, "str", 1000, 1100),
        ([np.zeros(1000) for _ in range(3)], 3, "numpy.ndarray", 8000, 8300),
        ({i: f"{i}" * 250 for i in range(1000, 1005)}, 5, "str", 1000, 1150),
        ({"a", "b"}, 2, "str", 40, 70),
        ((1.5, 2.5), 1, "float", 24, 40),
        (collections.deque(["x" * 1000] * 3), 2, "str", 500, 1100),
        (array.array("d", [1.5] * 1000), 10, "", 8, 9),
        (Rebel(["x" * 1000]), 1, "str", 1000, 1100),
        (io.StringIO(), 5, "", 1, 1),
        ([], 5, "", 0, 0),
    ],
)
def test_the_newest_entries_tell_the_content_and_its_bytes(thing, n_new, name, least, most):
    content, n_bytes = content_of(thing, n_new)
    assert content == name
    assert least <= n_bytes <= most


def test_an_entry_held_many_times_is_counted_once():
    shared = "x" * 10_000
    _, n_bytes = content_of([shared] * 100, 100)
    assert n_bytes < 200


def test_a_graph_that_gets_longer_is_shown_at_its_tensor():
    total = torch.zeros(1, requires_grad=True)
    for _ in range(24):
        total = total + 1
    with view_of({"total": total}, ((), ())) as view:
        (found,) = grown_graphs(view, judgement(graph=STEADY))
    assert (found.leak.holder, found.leak.unit, found.leak.count_per_run) == ("total", "graph nodes", 2.0)
    assert found.leak.cause == "graph-kept"
    assert found.leak.path.steps[-1].reference == ".grad_fn"
    assert found.row is None


@pytest.mark.parametrize("variables", [{}, {"plain": torch.ones(3)}])
def test_without_a_tensor_that_carries_it_no_graph_is_reported(variables):
    with view_of(variables, ((), ())) as view:
        assert grown_graphs(view, judgement(graph=STEADY)) == []


def test_a_graph_that_does_not_grow_is_not_reported():
    with view_of({"total": torch.zeros(1, requires_grad=True) + 1}, ((), ())) as view:
        assert grown_graphs(view, judgement()) == []


@pytest.mark.untraced
@pytest.mark.parametrize(("name", "is_leak"), [("seen", True), ("_seen", False)])
def test_a_librarys_table_with_a_public_name_is_the_users_to_empty(name, is_leak):
    """The texts that a library notes for itself are aside; what a variable of the user's leads to by name is not."""
    state, numbers = type("State", (), {"__module__": "torch.nn"})(), itertools.count()
    setattr(state, name, {})
    report = leaklab.leakcheck(
        lambda: getattr(state, name).update({f"run {next(numbers)}": "done"}),
        namespace={"state": state}, sites=False, cure=False,
    )  # fmt: skip
    assert [leak.holder for leak in report.leaks] == ["state.seen"] * is_leak
    assert any("a library's own table" in note for note in report.notes) is not is_leak


def flushed(limit, n_nodes):
    hold = []

    def cell():
        value = torch.ones(4, requires_grad=True)
        for _ in range(n_nodes):
            value = value * 2
        hold.append(value.sum())
        if len(hold) > limit:
            del hold[: len(hold) // 2]

    return cell


def carried():
    state = {"h": torch.ones(4, requires_grad=True)}

    def cell():
        state["h"] = state["h"] * 2

    return cell


def made_anew():
    history, state, weight = [], {}, torch.ones(4, requires_grad=True)

    def cell():
        history.append(1.0)
        value = torch.zeros(4)
        for each in history:
            value = value * weight + each
        state["h"] = value

    return cell


def in_a_thread():
    step, results = carried(), queue.SimpleQueue()
    wanted, thread = queue.SimpleQueue(), None

    def work():
        while wanted.get() is not None:
            step()
            results.put(True)

    def cell():
        nonlocal thread
        if thread is None:
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
        wanted.put(True)
        results.get()

    return cell


@pytest.mark.parametrize(
    ("make", "arguments", "causes"),
    [
        (flushed, (3, 1), set()), (flushed, (4, 1), set()), (flushed, (3, 4), set()), (carried, (), {"graph-kept"}),
        (made_anew, (), {"graph-kept"}), (in_a_thread, (), {"thread-or-worker-kept"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("n_beside", [0, 1, 40])
def test_a_graph_gets_longer_where_one_tensor_has_what_was_added(make, arguments, causes, n_beside):
    # The first kept three graphs of three nodes after six runs, two after three, one before: as steady as one graph.
    kept = torch.ones(4, requires_grad=True)
    for _ in range(n_beside):  # was there before: no graph that gets longer, however long it is
        kept = kept * 3
    report = leaklab.leakcheck(make(*arguments), namespace={"kept": kept}, sites=False, runs=6)
    assert (report.verdict.outcome is Outcome.LEAK) == bool(causes)
    assert {leak.cause for leak in report.leaks} == causes
    assert not any("kept" in leak.holder for leak in report.leaks)


def test_a_loss_that_each_run_replaces_is_not_named_for_small_graphs_that_pile_up():
    losses, latest, weight = [], {}, torch.ones(4, requires_grad=True)

    def cell():
        value = weight
        for _ in range(60):
            value = value * 2
        latest["loss"] = value.sum()
        losses.append((weight * 2).sum())

    report = leaklab.leakcheck(cell, namespace={"losses": losses, "latest": latest}, sites=False, runs=6)
    assert [leak.holder for leak in report.leaks] == ["losses"]


def test_what_leaklab_has_looked_up_is_no_row_of_the_table_of_containers():
    """In a fresh process: the first graph that is looked at fills a cache of leaklab's."""
    code = (
        "import torch, leaklab\nkept = []\nweight = torch.ones(9, requires_grad=True)\n"
        "report = leaklab.leakcheck(lambda: kept.append((weight * 2).sum()), cure=False)\n"
        "print(*report.containers.index, sep='|')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "kept" in done.stdout
    assert "leaklab" not in done.stdout
