"""What leaks, by call stack: every byte at the calls that allocated it, in the report and for other programs."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import leaklab
from leaklab.check.stacks import named_stacks
from leaklab.errors import ReportError
from leaklab.heap.source_lines import LineWriter
from leaklab.model.stacks import AllocationStack, AllocationStacks, FrameNode, StackFrame, frame_tree
from leaklab.reports.stacks import collapsed, speedscope, visible_frames

THIS = "test_stacks.py"
KEPT: list[object] = []


@pytest.fixture(autouse=True)
def _empty():
    KEPT.clear()
    yield
    KEPT.clear()


def small():
    return torch.zeros(1_000)


def large():
    return torch.zeros(3_000)


def keeps_two_tensors():
    KEPT.append((small(), large()))


def own_names(report: leaklab.LeakReport) -> dict[tuple[str, ...], float]:
    """Return the share of each stack, by the names of the user's frames, outermost first."""
    stacks = report.record.stacks
    total = sum(stack.bytes_per_run for stack in stacks.stacks)
    shares: dict[tuple[str, ...], float] = {}
    for stack in stacks.stacks:
        names = tuple(frame.name for frame in reversed(stacks.frames_of(stack)) if frame.is_yours)
        shares[names] = shares.get(names, 0.0) + stack.bytes_per_run / total
    return shares


def test_bytes_are_divided_among_the_calls_that_allocated_them():
    report = leaklab.leakcheck(keeps_two_tensors, cure=False)
    shares = own_names(report)
    assert shares["keeps_two_tensors", "large"] == pytest.approx(0.75, abs=0.02)
    assert shares["keeps_two_tensors", "small"] == pytest.approx(0.25, abs=0.02)
    (leak,) = report.leaks
    assert sum(stack.bytes_per_run for stack in report.record.stacks.stacks) == pytest.approx(leak.bytes_per_run)
    assert {stack.fingerprint for stack in report.record.stacks.stacks} == {leak.fingerprint}


NET = nn.Sequential(nn.Linear(8, 1_000), nn.Tanh(), nn.Linear(1_000, 1))


def forward(x):
    return NET(x)


def keeps_a_graph():
    loss = forward(torch.ones(4, 8)).sum()
    KEPT.append(loss)


def test_what_a_kept_graph_saves_is_at_the_line_of_the_forward_pass():
    """A loss of four bytes keeps 16 kB: the result of the tanh, made in a library that `forward` called."""
    report = leaklab.leakcheck(keeps_a_graph, cure=False)
    assert own_names(report)["keeps_a_graph", "forward"] > 0.95
    stacks = report.record.stacks
    innermost = stacks.frames_of(stacks.stacks[0])[0]
    assert innermost.name == "Tanh.forward"
    assert innermost.place == "torch/nn/modules/activation.py"
    assert not innermost.is_yours
    # The graph saves the weights as well, 36 kB: they are older than the runs, and no bytes of theirs.
    assert stacks.stacks[0].bytes_per_run > 0.95 * report.leaks[0].bytes_per_run


class Row:
    def __init__(self, number):
        self.text = f"{number}" * 4_000


def keeps_objects():
    KEPT.append(Row(len(KEPT) % 10))


def test_objects_that_are_no_tensors_have_stacks_too():
    report = leaklab.leakcheck(keeps_objects, cure=False)
    assert set(own_names(report)) >= {("keeps_objects", "Row.__init__")}


def made_model():
    return nn.Sequential(nn.Linear(100, 100), nn.Sequential(nn.Linear(100, 300), nn.Linear(300, 10)))


def keeps_models():
    KEPT.append(made_model())


def array(n):
    return np.zeros(n)


def keeps_arrays():
    KEPT.append({"a": array(1_000), "b": array(3_000).copy()})


def fails():
    values = torch.zeros(5_000)
    raise ValueError(values.shape)


def keeps_errors():
    try:
        fails()
    except ValueError as error:
        KEPT.append(error)


@pytest.mark.parametrize(
    ("function", "truth"),
    [
        (keeps_models, {"Linear.__init__": 0.94}),  # two levels down, ten references
        (keeps_arrays, {"array": 0.25, "keeps_arrays": 0.75}),
        (keeps_errors, {"fails": 1.0}),  # a variable of a frame of a traceback of an exception
    ],
)
def test_what_lies_deep_is_at_the_call_that_allocated_it(function, truth):
    report = leaklab.leakcheck(function, cure=False)
    found: dict[str, float] = {}
    for stack in report.record.stacks.stacks:
        name = report.record.stacks.frames_of(stack)[0].name
        found[name] = found.get(name, 0.0) + stack.bytes_per_run / report.leaks[0].bytes_per_run
    assert {name: found.get(name) for name in truth} == pytest.approx(truth, abs=0.04)


@pytest.fixture(scope="module")
def two():
    """A report of two stacks that share their outermost frame."""
    return leaklab.leakcheck(keeps_two_tensors, cure=False)


def test_collapsed_stacks_are_what_flame_graph_programs_read(two, tmp_path):
    two.save(tmp_path / "leak.collapsed")
    lines = (tmp_path / "leak.collapsed").read_text("utf-8").splitlines()
    found = {}
    for line in lines:
        stack, _, n_bytes = line.rpartition(" ")
        found[tuple(frame.rpartition(" ")[2] for frame in stack.split(";"))] = int(n_bytes)
    assert found["keeps_two_tensors", "large"] == pytest.approx(3 * found["keeps_two_tensors", "small"], rel=0.05)
    assert sum(found.values()) == pytest.approx(two.leaks[0].bytes_per_run, abs=len(found))


def test_a_profile_of_speedscope_has_a_weight_for_every_sample(two, tmp_path):
    two.save(tmp_path / "leak.speedscope.json")
    file = json.loads((tmp_path / "leak.speedscope.json").read_text("utf-8"))
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    (profile,) = file["profiles"]
    assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "bytes", 0)
    assert len(profile["samples"]) == len(profile["weights"])
    assert sum(profile["weights"]) == profile["endValue"]
    frames = file["shared"]["frames"]
    assert {number for sample in profile["samples"] for number in sample} == set(range(len(frames)))
    assert {"keeps_two_tensors", "small", "large"} <= {frame["name"] for frame in frames}
    assert all(frame["file"].endswith(THIS) and frame["line"] > 0 for frame in frames if "file" in frame)


def test_a_page_draws_them_and_has_them_again_when_it_is_read(two, tmp_path):
    two.save(tmp_path / "leak.html")
    page = (tmp_path / "leak.html").read_text("utf-8")
    assert "What leaks, by call stack" in page
    assert re.search(r'title="[^"]*test_stacks\.py:\d+ large: [\d.]+ KiB, 7\d\.\d% of all"', page)
    assert leaklab.LeakReport.load(tmp_path / "leak.html").record.stacks == two.record.stacks


def test_the_table_has_a_row_for_each_stack(two):
    table = two.stacks
    assert list(table.columns) == ["stack", "leak", "bytes_per_run", "share", "frames"]
    assert len(table) == len(two.record.stacks.stacks)
    assert table["share"].sum() == pytest.approx(1)
    assert re.fullmatch(rf"\S*{THIS}:\d+ large <- \S*{THIS}:\d+ keeps_two_tensors", table["stack"][0])


@pytest.mark.parametrize("suffix", [".collapsed", ".speedscope.json"])
def test_where_nothing_leaks_there_is_nothing_to_save(tmp_path, suffix):
    report = leaklab.leakcheck(small)
    with pytest.raises(ReportError, match="no call stacks to save"):
        report.save(tmp_path / f"clean{suffix}")
    assert not list(tmp_path.iterdir())


def test_a_name_of_two_suffixes_is_no_name_of_the_last(two, tmp_path):
    two.save(tmp_path / "leak.json")
    assert json.loads((tmp_path / "leak.json").read_text("utf-8"))["format"] == "leaklab check"
    with pytest.raises(ReportError, match="must end in"):
        two.save(tmp_path / ".speedscope")


def deep(n_frames: int) -> FrameNode:
    return frame_tree([([f"deep.py:{number} call" for number in range(n_frames)], 100, 1)], "all")


def test_what_a_label_holds_breaks_no_line_of_collapsed_stacks():
    tree = frame_tree([(["a.py:1 f;g\nh", "b.py:2 <lambda>"], 5, 1), (["a.py:1 f;g\nh"], 2, 1)], "all")
    assert sorted(collapsed(tree).splitlines()) == [r"a.py:1 f,g\nh 2", r"a.py:1 f,g\nh;b.py:2 <lambda> 5"]


def test_stacks_as_deep_as_the_interpreter_allows_are_written():
    tree = deep(300)
    assert collapsed(tree).count(";") == 299
    assert len(json.loads(speedscope(tree, "deep"))["profiles"][0]["samples"][0]) == 300
    shown, depth = visible_frames(tree), 0
    while shown.children:
        (shown,), depth = shown.children, depth + 1
    assert depth == 60


def test_a_stack_is_its_frames_by_number():
    frames = (StackFrame("step", "train.py", 3, True), StackFrame("relu", "torch/nn/functional.py", 9, False))
    stacks = AllocationStacks(frames, (AllocationStack("f", (1, 0), 8.0),))
    assert [frame.label for frame in stacks.frames_of(stacks.stacks[0])] == [
        "torch/nn/functional.py:9 relu", "train.py:3 step",
    ]  # fmt: skip
    assert stacks
    assert not AllocationStacks()


def keeps_empty_tensors():
    KEPT.append([torch.zeros(0), torch.zeros(0)])


def test_what_takes_no_byte_of_storage_breaks_nothing():
    report = leaklab.leakcheck(keeps_empty_tensors, cure=False)
    assert report.leaked
    assert all(stack.bytes_per_run > 0 for stack in report.record.stacks.stacks)


def test_sizes_of_nothing_are_no_stacks():
    writer = LineWriter(lambda _filename: "")
    assert named_stacks({((__file__, 1, "f"),): 0}, writer) == ()
    sized = named_stacks({((__file__, 1, "f"),): 0, ((__file__, 2, "g"),): 8}, writer)
    assert [(frames[0].name, n_bytes) for frames, n_bytes in sized] == [("g", 8)]
