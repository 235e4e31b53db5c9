from __future__ import annotations

import re
from dataclasses import replace

import samples

from leaklab.model import RootPath, Status, Step
from leaklab.reports.graphs import path_graph

RED, BLUE = "#b3261e", "#1f5fa8"


def line_of(source: str, start: str) -> str:
    """The one line of DOT text that begins with *start*."""
    (line,) = [line.strip() for line in source.splitlines() if line.strip().startswith(start)]
    return line


def test_expected_objects_are_blue_and_leaked_ones_red():
    source = path_graph(samples.history_leak()).source
    assert BLUE in line_of(source, "step1 [")
    assert RED in line_of(source, "step2 [")


def test_only_the_suspect_reference_is_bold_and_red():
    source = path_graph(samples.history_leak()).source
    edges = [line for line in source.splitlines() if re.match(r"\s+(root|step\d) -> step\d", line)]
    assert [("penwidth=2.6" in edge, RED in edge) for edge in edges] == [
        (False, False), (False, False), (True, True), (False, False), (False, False),
    ]  # fmt: skip


def test_each_edge_names_its_reference():
    source = path_graph(samples.history_leak()).source
    assert ".history" in line_of(source, "step0 -> step1")
    assert "[3]" in line_of(source, "step1 -> step2")


def test_the_rate_and_the_other_kinds_are_told():
    source = path_graph(samples.history_leak()).source
    assert "2 tensors (32.0 KiB)" in line_of(source, "rate [")
    assert "2 torch.autograd.AddmmBackward0" in line_of(source, "others [")
    assert line_of(source, "step1 -> others")


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
    assert "140 more objects" in line_of(source, "cut [")
    assert len(re.findall(r"^\s+step\d+ \[", source, flags=re.MULTILINE)) == 60


def test_a_leak_that_nothing_in_python_holds_is_a_root_with_its_rate():
    leak = replace(samples.history_leak(), path=RootPath("nothing in Python", ()))
    source = path_graph(leak).source
    assert line_of(source, "root -> rate")
    assert line_of(source, "root -> others")
