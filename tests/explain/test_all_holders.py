"""Everything that keeps survivors alive on its own, and what comes back when all of it lets go."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from explain_builders import N_RUNS, Node, everything_below, vertex_of, view_of
from samples import history_leak

import leaklab
from leaklab.explain.leaks import holders as independent
from leaklab.explain.leaks.groups import group_survivors
from leaklab.explain.leaks.holders import RetainedBytes, hold_of
from leaklab.explain.leaks.sizes import GroupSizer
from leaklab.render.words import retained_words


def held_of(variables, runs):
    """Return what holds the survivors of the first and only group."""
    with view_of(variables, runs) as view:
        groups, _orphans = group_survivors(view)
        (group,) = groups
        leaked = [vertex_of(view, thing) for born in runs[:-1] for thing in born]
        return hold_of(view, group, leaked)


def survivors(**more):
    return [[Node(data="x" * 10_000 + str(number), **more)] for number in range(N_RUNS)]


def everything(runs):
    return [thing for born in runs for thing in born]


def test_the_only_holder_frees_what_it_holds():
    runs = survivors()
    hold = held_of({"history": everything(runs)}, runs)
    assert hold.holders == ("history",)
    assert (N_RUNS - 1) * 10_000 < hold.retained_bytes < (N_RUNS - 1) * 11_000


def test_two_lists_are_both_named_and_free_only_together():
    runs = survivors()
    trainer = Node(seen=everything(runs), log={"last": everything(runs)})
    hold = held_of({"trainer": trainer}, runs)
    assert sorted(hold.holders) == ["trainer.log['last']", "trainer.seen"]
    for holder in hold.holders:
        assert eval(holder, {"trainer": trainer}) in (trainer.seen, trainer.log["last"])  # noqa: S307 - our own
    assert hold.retained_bytes > (N_RUNS - 1) * 10_000


def test_who_keeps_few_of_them_is_not_named_and_what_it_keeps_does_not_come_back():
    runs = survivors()
    variables = {"history": everything(runs), "best": runs[1]}
    hold = held_of(variables, runs)
    assert hold.holders == ("history",)
    assert (N_RUNS - 2) * 10_000 < hold.retained_bytes < (N_RUNS - 2) * 11_000


def test_a_second_holder_of_what_hangs_on_the_entries_is_found():
    things = [Node(data="x" * 10_000 + str(number)) for number in range(N_RUNS)]
    runs = [[{"thing": thing}] for thing in things]
    with view_of({"rows": everything(runs), "things": things}, [[row, row["thing"]] for (row,) in runs]) as view:
        groups, _orphans = group_survivors(view)
        group = next(group for group in groups if "rows" in view.describe(group.holder).expressions)
        hold = hold_of(view, group, [vertex_of(view, thing) for thing in things[:-1]])
    assert set(hold.holders) == {"rows", "things"}


def test_the_newest_link_of_a_chain_of_survivors_is_its_holder():
    link, runs = None, []
    for _ in range(N_RUNS):
        link = Node(before=link)
        runs.append([link])
    variables = {"link": link}
    del link
    with view_of(variables, runs) as view:
        (group,), _orphans = group_survivors(view)
        hold = hold_of(view, group, [vertex_of(view, born[0]) for born in runs[:-1]])
    assert len(hold.holders) == 1
    assert eval(hold.holders[0].removesuffix(".before"), variables) is variables["link"]  # noqa: S307 - our own
    assert hold.retained_bytes > 0


def test_no_more_holders_are_named_than_a_reader_can_use():
    runs = survivors()
    variables = {f"list_{letter}": everything(runs) for letter in "abcdefghijkl"}
    hold = held_of(variables, runs)
    assert len(hold.holders) == independent.MAX_HOLDERS
    assert hold.retained_bytes == 0  # the others keep all of it


def test_only_so_many_leaks_are_weighed_and_the_rest_is_said(monkeypatch):
    monkeypatch.setattr(independent, "MAX_MEASURED", 1)
    runs = survivors()
    with view_of({"history": everything(runs)}, runs) as view:
        sizes = RetainedBytes(view)
        (group,), _orphans = group_survivors(view)
        assert sizes.hold(group, group.entries) is not None
        assert sizes.notes == ()
        assert sizes.hold(group, group.entries) is None
        assert sizes.of_orphans(group.entries) is None
        assert "for 1 of the leaks only" in sizes.notes[0]


@pytest.fixture(scope="module")
def report():
    history, cache = [], {}

    def step():
        tensor = torch.zeros(10_000)
        history.append(tensor)
        cache[len(cache)] = tensor

    namespace = {"history": history, "cache": cache}
    return leaklab.leakcheck(step, runs=6, namespace=namespace), namespace


def test_a_leaked_tensor_in_two_containers_names_both(report):
    checked, namespace = report
    (leak,) = checked.leaks
    assert leak.holders[0] == leak.holder
    assert {id(eval(holder, namespace)) for holder in leak.holders} == {  # noqa: S307 - our own
        id(namespace["history"]),
        id(namespace["cache"]),
    }
    n_left = sum(leak.kept[:-1])
    assert n_left * 40_000 <= leak.retained_bytes < (n_left + 1) * 40_000
    assert "KiB when both holders let go; one of them alone is not enough" in str(checked)


@pytest.mark.parametrize(
    ("n_bytes", "holders", "words"),
    [
        (None, ("a",), ""),
        (2048, ("a",), "2.00 KiB when the holder lets go"),
        (2048, ("a", "b"), "2.00 KiB when both holders let go; one of them alone is not enough"),
        (2048, ("a", "b", "c"), "2.00 KiB when all 3 holders let go; fewer are not enough"),
        (0, ("a",), "nothing when the holder lets go: something else also holds it"),
    ],
)
def test_the_words_say_who_has_to_let_go(n_bytes, holders, words):
    assert retained_words(replace(history_leak(), retained_bytes=n_bytes, holders=holders)) == words


def test_weighing_keeps_nothing_alive():
    runs = survivors()
    variables = {"history": everything(runs)}
    hold = held_of(variables, runs)
    variables.clear()
    below = len(everything_below(hold))
    assert below <= 3
    gc.collect()


class Channel:
    """Refers back to where it is kept, in one of many ways; what it has of its own is *data*."""

    def __init__(self, number, **back):
        self.data, self.headers = f"{number:02000}", {f"{number} {key:0100}": None for key in range(5)}
        for name, value in back.items():  # not by the dict of attributes: there is none yet
            setattr(self, name, value)

    def changed(self):
        """Be a callback."""


def closure_over(*things):
    return lambda: things


def kept_back(registry):
    """Return the ways in which leaked objects refer back, each with what the registry gets of a new channel."""
    return {
        "a dict of theirs": lambda number: Channel(number, registry=registry),
        "a bound method": lambda number: Channel(number, registry=registry).changed,
        "a list of all": lambda number: Channel(number, everybody=registry["entries"]),
        "a weak reference": lambda number: Channel(number, home=registry["home"]),
        "a closure": lambda number: closure_over(Channel(number), registry),
        "the one before": lambda number: Channel(number, before=(registry["entries"] or [None])[-1]),
        "their own cycle": lambda number: Channel(number, part=(part := Node(registry=registry)), of=part),
    }


@pytest.mark.parametrize("way", kept_back({}))
def test_what_leaks_and_what_would_be_freed_are_one_count_however_objects_refer_back(way):
    home = Node()
    registry = {"entries": [], "owner": home, "home": weakref.ref(home)}
    make, runs = kept_back(registry)[way], []
    for number in range(N_RUNS):
        known = {id(thing) for thing in everything_below(registry, Channel.changed)}
        registry["entries"].append(make(number))
        runs.append([thing for thing in everything_below(registry["entries"][-1]) if id(thing) not in known])
    with view_of({"registry": registry}, runs) as view:
        (group,) = group_survivors(view)[0]
        summary = GroupSizer(view).count(group.members, group.entries)
        hold = hold_of(view, group, summary.main_objects)
    assert summary.n_bytes > (N_RUNS - 1) * 2500
    assert hold.retained_bytes == pytest.approx(summary.n_bytes, rel=0.1)
