"""By which paths a place keeps its objects, merged: whole checks of programs whose paths are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from samples import history_leak, leaky_check

import leaklab
from leaklab.model import RootPath, Status, Step
from leaklab.model.check import Way
from leaklab.model.sentences import MergedPaths, merge_ways, places_tree, without_positions
from leaklab.render.json import from_json, redacted, to_json
from leaklab.reports.check_html import render_html
from leaklab.reports.check_text import render_text


def ways_of(run):
    (leak,) = leaklab.leakcheck(run, runs=8, sites=False, cure=False).leaks
    return {"".join(way.references): way.count for way in leak.ways}


def leak_at(*references, n_places=1, sites=("Cell In[1], line 1",)):
    steps = [Step(reference, "X", "", Status.EXPECTED) for reference in references]
    path = RootPath("notebook variable", (*steps, Step("[3]", "torch.Tensor", "", Status.LEAKED)))
    holder = "".join(references)
    return replace(
        history_leak(), path=path, holder=holder, fingerprint=holder, n_places=n_places, sites=sites, holders=(holder,)
    )


def edges(tree):
    return [(child.reference, child.count, edges(child)) for child in tree.children]


@pytest.mark.untraced
def test_dicts_of_which_one_has_another_key():
    history = []

    def run():
        history.append({"final" if len(history) == 3 else "loss": torch.ones(100)})

    assert ways_of(run) == {"[i]['loss']": 6, "[i]['final']": 1}


@pytest.mark.untraced
def test_fixed_places_of_a_small_list_stay_apart_and_many_are_one():
    history = []

    def run():
        history.append({"pair": [torch.ones(10), torch.ones(10)], "all": [torch.ones(9) for _ in range(5)]})

    assert ways_of(run) == {"[i]['pair'][0]": 7, "[i]['pair'][1]": 7, "[i]['all'][i]": 35}


@pytest.mark.untraced
def test_hooks_keep_what_their_closures_use():
    model = torch.nn.Linear(2, 2)

    def run():
        mask = torch.ones(500)
        model.register_forward_hook(lambda *_: mask)

    (words,) = ways_of(run)
    assert words.startswith("[i]closure variable 'mask'")


@pytest.mark.untraced
def test_the_links_of_a_chain_are_one_way():
    box = {"head": None}

    def run():
        box["head"] = (torch.ones(100), box["head"])

    ways = ways_of(run)
    assert sum(ways.values()) == 7
    assert max(ways, key=ways.get).endswith("...[0]")


def test_what_paths_share_is_told_once():
    tree = merge_ways([Way(("[i]", ".loss"), "Tensor", 23), Way(("[i]", ".aux", "[0]"), "Tensor", 1)])
    assert tree.count == 24
    assert edges(tree) == [("[i]", 24, [(".loss", 23, []), (".aux[0]", 1, [])])]


def test_what_ends_in_the_midst_of_a_longer_path_is_kept_apart():
    tree = merge_ways([Way(("[i]",), "dict", 5), Way(("[i]", "['x']"), "Tensor", 5)])
    assert tree.children == (MergedPaths("[i]", 10, "dict", (MergedPaths("['x']", 5, "Tensor"),)),)


def test_positions_and_numbered_names_are_one_where_there_are_many():
    few = [("a", f"[{i}]") for i in range(3)]
    assert without_positions(few) == few
    assert set(without_positions([("a", f"[{i}]", ".x") for i in range(4)])) == {("a", "[i]", ".x")}
    assert set(without_positions([("a", f".kept_{i}") for i in range(4)])) == {("a", ".kept_#")}
    assert set(without_positions([("a", f"['{name}']") for name in "abcdefghi"])) == {("a", "[i]")}


def test_places_of_two_objects_are_two_branches():
    leaks = [*(leak_at("net", f".layers[{i}]", ".cache") for i in range(6)), leak_at("net", ".head", ".cache")]
    assert edges(places_tree(leaks)) == [("net", 7, [(".layers[i].cache", 6, []), (".head.cache", 1, [])])]


def test_places_told_as_one_count_as_many():
    tree = places_tree([leak_at("H", "['site0']", n_places=40), leak_at("other")])
    assert edges(tree) == [("H['site#']", 40, []), ("other", 1, [])]


def test_a_place_at_the_end_of_a_long_chain_is_told_by_both_ends_of_its_path():
    tree = places_tree([leak_at("head", *["[1]"] * 3_000, f".cache{n}") for n in range(2)])
    ((reference, count, _below),) = edges(tree)
    assert (reference.startswith("head[1]"), "..." in reference, count) == (True, True, 2)


def many_of_one_line():
    leaks = tuple(leak_at("store", f".kept_{i:02}") for i in range(40))
    return replace(leaky_check(), leaks=(*leaks, leak_at("other", sites=("Cell In[1], line 2",))))


def test_many_leaks_of_one_line_are_one_group_with_its_members_folded():
    check = many_of_one_line()
    text = render_text(check)
    assert "all 40 places through `store.kept_#`" in text
    assert "... 37 more of this line" in text
    markup = render_html(check)
    assert "all 40 places through" in markup
    assert "All 40 places" in markup
    first, second = leaklab.LeakReport(check).groups
    assert (len(first.rows), first.tree.count, len(second.rows)) == (40, 40, 1)
    assert second.place_lines == []


def test_the_report_counts_the_objects_on_each_edge():
    ways = (Way(("[i]", "['loss']"), "torch.Tensor", 23), Way(("[i]", "['final']"), "torch.Tensor", 1))
    leak = replace(history_leak(), ways=ways, kept=(2,) * 13)
    text = render_text(replace(leaky_check(), leaks=(leak,)))
    assert "all 24 objects through `[i]`" in text
    assert "  23 of 24 through `['loss']` (torch.Tensor)" in text
    looked_at = render_text(replace(leaky_check(), leaks=(replace(leak, kept=(50,) * 13),)))
    assert "all 24 objects that were looked at through `[i]`" in looked_at


def test_a_record_keeps_its_ways_and_redacts_their_keys():
    ways = (Way(("[i]", "['patient 7']"), "torch.Tensor", 3),)
    check = replace(leaky_check(), leaks=(replace(history_leak(), ways=ways),))
    assert from_json(to_json(check)) == check
    assert "patient" not in to_json(redacted(check))
    assert '"ways"' not in to_json(leaky_check())
