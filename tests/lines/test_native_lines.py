"""Native growth is named by the function that allocates, and told apart from what libraries cache."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import leaklab
from leaklab.errors import MissingExtraError
from leaklab.lines.native import NativeTraces, _growths, _short, require_memray
from leaklab.measure.cheap_counts import native_heap_bytes
from leaklab.measure.gauges import native_caches_off

memray = pytest.importorskip("memray") if importlib.util.find_spec("memray") else None
needs_memray = pytest.mark.skipif(memray is None, reason="memray is not installed")
needs_heap = pytest.mark.skipif(native_heap_bytes() is None, reason="the C library does not tell its level")


@dataclass
class Record:
    """A record as memray gives it."""

    size: int
    n_allocations: int
    native: list[tuple[str, str, int]]
    python: list[tuple[str, str, int]] = field(default_factory=lambda: [("step", "train.py", 7)])

    def native_stack_trace(self):
        return self.native

    def stack_trace(self):
        return self.python

    def hybrid_stack_trace(self):
        return [*self.native, *self.python]


COPY = [("operator new(unsigned long)", "", 0), ("lib::Graph::copy()", "", 0), ("lib::run(int)", "", 0)]
CLONE = [("malloc", "", 0), ("lib::Node::clone(int)", "", 0), ("lib::Graph::copy()", "", 0), ("lib::run(int)", "", 0)]
OF_PYTHON = [("_PyObject_Malloc", "Objects/obmalloc.c", 1), ("dictresize", "Objects/dictobject.c", 2)]


def growths(*records: Record):
    return _growths(records, 3, lambda filename: filename == "train.py")


def test_the_innermost_function_under_which_most_was_allocated_is_named():
    (found,) = growths(Record(3000, 3, COPY), Record(3000, 6, CLONE))
    assert found.function == "lib::Graph::copy"
    assert found.line == ("train.py", 7, "step")
    assert found.bytes_per_run == 2000
    assert found.stacks == {
        (("", 0, "lib::Graph::copy"), ("", 0, "lib::run"), ("train.py", 7, "step")): 3000,
        (("", 0, "lib::Node::clone"), ("", 0, "lib::Graph::copy"), ("", 0, "lib::run"), ("train.py", 7, "step")): 3000,
    }


def test_what_not_every_run_left_is_the_newest_value_of_something():
    assert growths(Record(90_000, 1, COPY), Record(90_000, 2, COPY)) == []


def test_memory_of_pythons_own_objects_is_not_native_growth():
    assert growths(Record(90_000, 3, OF_PYTHON)) == []


def test_without_a_line_of_the_users_none_is_made_up():
    (found,) = growths(Record(3000, 3, COPY, [("work", "library.py", 3)]))
    assert found.line is None


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("lib::run(std::vector<int, std::allocator<int> >&)", "lib::run"),
        ("lib::Box<int>::open(int)", "lib::Box::open"),
        ("plain", "plain"),
    ],
)
def test_a_function_is_named_without_its_arguments(function, name):
    assert _short(function) == name


def test_a_missing_memray_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'leaklab\[native\]'"):
        require_memray()
    with pytest.raises(MissingExtraError, match="memray"):
        leaklab.leakcheck(lambda: None, native=True)


def test_the_magic_says_it_in_one_line(notebook, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    typed = notebook.run("%%leakcheck --native\n1")
    assert type(typed.error).__name__ == "UsageError"
    assert "leaklab[native]" in str(typed.error)


def users_code(filename: str) -> bool:
    return filename == __file__


KEPT: list[torch.Tensor] = []


def keeps_a_storage():
    KEPT.append(torch.empty(5000))


@needs_memray
def test_three_runs_under_memray_name_line_and_function_and_leave_the_profiler_alone():
    keeps_a_storage()
    profiler, traces = sys.getprofile(), NativeTraces(users_code, 3)
    with traces:
        for _ in range(3):
            keeps_a_storage()
    KEPT.clear()
    first = traces.growths[0]
    assert first.line[0] == __file__
    assert first.line[2] == "keeps_a_storage"
    assert 20_000 <= first.bytes_per_run < 21_000
    assert first.function.startswith("at::")
    assert sys.getprofile() is profiler
    assert not Path(traces._folder.name).exists()


@needs_memray
def test_a_tracker_of_the_users_is_kept_and_said(tmp_path):
    traces = NativeTraces(users_code, 3)
    with memray.Tracker(tmp_path / "users.bin"), traces:
        pass
    assert "Tracker" in traces.problem
    assert traces.growths == ()


@needs_heap
@pytest.mark.untraced
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
def test_a_cache_of_compiled_operations_is_bounded_and_no_leak():
    convolution, size = torch.nn.Conv2d(3, 16, 3), [16]

    def new_shape_in_every_run():
        size[0] += 1
        with torch.no_grad():
            convolution(torch.zeros(2, 3, size[0], size[0]))

    report = leaklab.leakcheck(new_shape_in_every_run, runs=16)
    assert not report.leaked, str(report)
    assert "oneDNN" in report.verdict.reason
    assert torch._C._get_mkldnn_enabled()


def test_the_switch_of_onednn_is_put_back_also_after_an_error():
    before = torch._C._get_mkldnn_enabled()

    def fails_inside():
        with native_caches_off() as free_buffers:
            assert not torch._C._get_mkldnn_enabled()
            free_buffers()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails_inside()
    assert torch._C._get_mkldnn_enabled() == before


@needs_heap
@pytest.mark.untraced
def test_looking_at_the_heap_does_not_lower_the_level_that_is_measured():
    kept: list[torch.Tensor] = []

    def keeps_native_memory():
        kept.append(torch.empty(20_000))

    report = leaklab.leakcheck(keeps_native_memory, runs=16, sites=False, namespace={"kept": kept})
    levels = report.runs["heap_bytes"].tolist()
    steps = [after - before for before, after in pairwise(levels[1:])]
    assert [step for step in steps if not 79_000 < step < 84_000] == []
