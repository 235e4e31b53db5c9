"""Paths drawn as graphs and written as text, from records alone, made by hand here."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import samples

from leaklab.model import RootPath, Status, Step
from leaklab.model.alive import AlivePath, CountItem, Counts, Cut, CutReference, FanIn, Hold, Retained, WhyAliveRecord
from leaklab.render.words import shown_path
from leaklab.reports.alive import BackReferenceGraph, WhyAlive
from leaklab.reports.back_graph import MAX_BOXES, graph_of_alive, graph_of_leak, objgraph_dot
from leaklab.reports.graphs import PathGraph, back_graph_dot, path_graph

TARGET = Step("['loss']", "torch.Tensor", "(2,) float32 cpu", Status.UNKNOWN, "the object you asked about")


def step(reference, kind, summary="", status=Status.UNKNOWN):
    return Step(reference, kind, summary, status)


def two_paths(**changes):
    """``trainer.history[0]['loss']`` and ``cache['loss']``, where both dicts are of one class and the cut is two."""
    first = RootPath(
        "notebook variable",
        (step("trainer", "Trainer", status=Status.EXPECTED), step(".history", "list", "1 entry"),
         step("[0]", "dict", "3 entries"), TARGET),
    )  # fmt: skip
    second = RootPath("notebook variable", (step("cache", "dict", "1 entry", Status.EXPECTED), TARGET))
    record = WhyAliveRecord(
        asked="loss",
        what="torch.Tensor (2,) float32 cpu",
        hold=Hold.HELD,
        reason="2 independent paths lead to it",
        paths=(
            AlivePath(second, "cache", "cache['loss']", (1, 0), cut_at=(1,)),
            AlivePath(
                first, "trainer.history[0]", "trainer.history[0]['loss']", (2, 3, 4, 0), (1,), "known to all"
            ),
        ),
        has_more_paths=False,
        references=(),
        n_references=2,
        autograd=(),
        retained=Retained(1024, 0, 3),
        cut=Cut(
            (
                CutReference("cache", "['loss']", "torch.Tensor", "del cache['loss']", is_statement=True),
                CutReference("work", "local 'x'", "list", "let the function return", is_statement=False),
            ),
            is_exact=True, frees_object=True, n_freed=17, freed_bytes=44_040_192,
        ),
        counts=Counts(3, (CountItem("dict", 2),), 2, (CountItem("its Python object", 1),)),
        fan_in=(FanIn(0, "dict", 1998, "records[0]"), FanIn(0, "Trainer", 1, "other")),
    )  # fmt: skip
    return replace(record, **changes)


def long_path(n_steps):
    steps = (*(step(f".s{i}", "Link") for i in range(n_steps - 1)), TARGET)
    path = AlivePath(RootPath("notebook variable", steps), "", "", (*range(1, n_steps), 0))
    return two_paths(paths=(path,), fan_in=())


def test_paths_meet_in_the_object_asked_about():
    graph = graph_of_alive(two_paths())
    assert [(box.role, box.kind) for box in graph.boxes] == [
        ("root", "notebook variable"), ("object", "dict"), ("asked", "torch.Tensor"), ("object", "Trainer"),
        ("object", "list"), ("object", "dict"), ("more", "and 1,998 more dicts"), ("more", "and one more Trainer"),
    ]  # fmt: skip
    assert [(arrow.source, arrow.target, arrow.reference) for arrow in graph.arrows] == [
        (0, 1, "cache"), (1, 2, "['loss']"), (0, 3, "trainer"), (3, 4, ".history"), (4, 5, "[0]"),
        (5, 2, "['loss']"), (6, 2, ""), (7, 2, ""),
    ]  # fmt: skip


def test_suspect_window_and_cut_are_marked():
    graph = graph_of_alive(two_paths())
    assert [arrow.reference for arrow in graph.arrows if arrow.is_suspect] == [
        "['loss']",
        ".history",
        "[0]",
        "['loss']",
    ]
    assert [(arrow.source, arrow.reference) for arrow in graph.arrows if arrow.is_cut] == [
        (1, "['loss']"),
        (3, ".history"),
    ]


@pytest.mark.parametrize("n_steps", [3, 60, 61, 5000])
def test_graph_never_has_more_boxes_than_can_be_read(n_steps):
    graph = graph_of_alive(long_path(n_steps))
    assert len(graph.boxes) <= MAX_BOXES
    assert graph.boxes[-1].role == "asked"
    left_out = [box.kind for box in graph.boxes if box.role == "more"]
    shown = sum(box.role in ("object", "asked") for box in graph.boxes)
    assert left_out == ([] if shown == n_steps else [f"... {n_steps - shown:,} more objects ..."])


def test_many_long_paths_are_all_shown_with_their_ends():
    paths = tuple(
        AlivePath(
            RootPath(f"module 'm{n}'", (*(step(f".s{i}", "Link") for i in range(40)), TARGET)), "", "",
            (*range(1 + 40 * n, 41 + 40 * n), 0),
        )
        for n in range(8)
    )  # fmt: skip
    graph = graph_of_alive(two_paths(paths=paths))
    assert len(graph.boxes) <= MAX_BOXES
    assert sum(box.role == "root" for box in graph.boxes) == 8


def test_all_text_in_the_drawing_is_escaped():
    evil = AlivePath(RootPath("<b>", (Step("['<i>\"']", "A & B", "x<y", Status.UNKNOWN),)), "", "", (0,))
    source = back_graph_dot(graph_of_alive(two_paths(paths=(evil,), fan_in=()))).source
    assert "A &amp; B" in source
    assert "<i>" not in source
    assert "<script" not in WhyAlive(two_paths(asked="<script>alert(1)</script>"))._fragment()


def test_legend_tells_what_occurs():
    source = back_graph_dot(graph_of_alive(two_paths())).source
    for words in ("expected", "unknown", "asked about", "one of them should have been dropped", "the smallest cut"):
        assert words in source
    assert "leaked" not in source


def test_objgraph_draws_our_boxes_and_nothing_else_of_the_heap():
    source = objgraph_dot(graph_of_alive(two_paths()))
    labels = re.findall(r'\[label="(.*?)", color|\[label="(.*?)", fontcolor', source)
    assert len([line for line in source.splitlines() if "label=" in line and "->" not in line]) == 8, labels
    assert source.count(" -> ") == 8
    assert 'label="dict\\n3 items\\nvia list[0]"' in source
    assert 'label="Trainer\\n' in source
    assert ' [label="loss",weight=2];' in source
    assert 'color="red"' in source


def test_objgraph_shows_a_cycle():
    cycle = RootPath("reference cycle", (step("", "Cam"), step(".act", "Tensor"), step(".owner", "Cam")))
    source = objgraph_dot(graph_of_alive(two_paths(paths=(), cycle=cycle, hold=Hold.IMMORTAL)))
    assert source.count(" -> ") == 3


def test_leak_is_drawn_by_objgraph_too():
    leak = samples.history_leak()
    source = PathGraph(leak, "objgraph").dot
    assert source.startswith("digraph ObjectGraph")
    n_boxes = len(graph_of_leak(leak).boxes)
    assert len([line for line in source.splitlines() if "label=" in line and "->" not in line]) == n_boxes


def test_both_styles_can_be_drawn():
    for style in ("leaklab", "objgraph"):
        svg = BackReferenceGraph(two_paths(), style).svg
        assert svg is not None
        assert svg.startswith("<svg")


def test_graph_without_any_path_shows_the_object_alone():
    graph = graph_of_alive(two_paths(paths=(), fan_in=(), hold=Hold.UNSEEN))
    assert [(box.role, box.kind) for box in graph.boxes] == [
        ("root", "unseen holder"),
        ("asked", "torch.Tensor (2,) float32 cpu"),
    ]


def test_text_tells_the_cut_with_its_proof_the_counts_and_the_remark():
    text = str(WhyAlive(two_paths()))
    assert "cutting these 2 references frees 17 objects, 42.0 MiB (no fewer would do)" in text
    assert "  - del cache['loss']\n  - let the function return\n" in text
    assert "reference count 3 = 2 dict + 1 unexplained" in text
    assert "use count 2 = 1 its Python object + 1 unexplained" in text
    assert "  known    known to all" in text
    assert max(map(len, text.splitlines())) <= 100


def test_long_path_is_told_by_its_ends_and_the_cut_stays_where_it_was():
    long = long_path(500)
    path = replace(long.paths[0], cut_at=(2, 250, 499))
    long = replace(long, paths=(path,))
    text = str(WhyAlive(long))
    assert text.count("(234 more)") == 2
    assert "  unknown   .s14 " in text
    assert "  unknown   .s15 " not in text
    assert "  unknown   .s498 " in text
    assert "  unknown   .s250 " in text
    assert len(text.splitlines()) < 90
    assert shown_path(path.path, path.cut_at)[1] == {2, 17, 33}
    assert WhyAlive(long)._fragment().count("cut here") == 3


def test_cut_that_is_not_known_says_why():
    cut = Cut((), is_exact=True, frees_object=False, n_freed=0, freed_bytes=0, obstacle="a module holds it")
    assert "no set of references to cut is known: a module holds it" in str(WhyAlive(two_paths(cut=cut)))


def test_a_cut_is_told_in_one_line():
    reference = CutReference("kept", "[0]", "a list", "kept.clear()", is_statement=True)
    cut = Cut((reference, replace(reference, advice="del loss")), True, True, 1, 4096, is_lower_bound=True)
    assert str(cut) == "kept.clear(); del loss"
    assert repr(cut) == "<Cut: kept.clear(); del loss  # frees 1 object, at least 4,096 bytes>"
    unknown = Cut((), is_exact=True, frees_object=False, n_freed=0, freed_bytes=0, obstacle="a module holds it")
    assert repr(unknown) == "<Cut: no set of references to cut is known: a module holds it>"


def line_of(source: str, start: str) -> str:
    """The one line of DOT text that begins with *start*."""
    (line,) = [line.strip() for line in source.splitlines() if line.strip().startswith(start)]
    return line


def test_more_than_five_other_kinds_are_counted():
    leak = replace(samples.history_leak(), others=tuple((f"kind{i}", 1.0) for i in range(8)))
    line = line_of(path_graph(leak).source, "others [")
    assert "kind4" in line
    assert "kind5" not in line
    assert "and 3 other kinds" in line


def test_a_place_that_does_not_grow_has_no_rate():
    assert "by each run" not in path_graph(samples.window()).source


def test_the_text_of_the_user_is_escaped():
    source = path_graph(samples.hostile_leak()).source
    assert "<script>" not in source
    assert "&lt;script&gt;" in source
    assert "\x1b" not in source


def test_a_very_long_name_is_cut_after_four_lines():
    source = path_graph(samples.hostile_leak()).source
    assert max(map(len, re.findall("K+", source))) == 38
    assert source.count("K" * 38) == 3


def test_a_path_of_200_objects_loses_its_middle_and_says_so():
    steps = tuple(Step(f".n{i}", "Node", "", Status.LEAKED) for i in range(200))
    leak = replace(samples.hook_leak(), path=RootPath("notebook variable", steps))
    source = path_graph(leak).source
    assert "141 more objects" in line_of(source, "cut171 [")
    assert len(re.findall(r"^\s+step\d+ \[", source, flags=re.MULTILINE)) == 59


def test_a_leak_that_nothing_in_python_holds_is_a_root_with_its_rate():
    leak = replace(samples.history_leak(), path=RootPath("nothing in Python", ()))
    source = path_graph(leak).source
    assert line_of(source, "root -> rate")
    assert line_of(source, "root -> others")
