from __future__ import annotations

import gc
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, replace
from functools import partial

import pytest
import samples

from leaklab.errors import ReportError
from leaklab.model import Outcome, Verdict
from leaklab.render import drawing as picture_module
from leaklab.render.base import check_target
from leaklab.reports.check import SUFFIXES, LeakReport
from leaklab.reports.graphs import PathGraph

LEAKY = LeakReport(samples.leaky_check())
CLEAN = LeakReport(samples.clean_check())
ALL = [
    LEAKY, CLEAN, LeakReport(samples.bounded_check()), LeakReport(samples.failed_check()),
    LeakReport(samples.empty_check()), LeakReport(samples.hostile_check()),
]  # fmt: skip


def with_leaks(*leaks, outcome=Outcome.LEAK):
    check = samples.leaky_check()
    return LeakReport(replace(check, leaks=leaks, bounded=(), verdict=replace(check.verdict, outcome=outcome)))


@pytest.mark.parametrize(
    ("outcome", "leaked"),
    [(Outcome.LEAK, True), (Outcome.CLEAN, False), (Outcome.BOUNDED, False), (Outcome.INCONCLUSIVE, False)],
)
def test_only_the_outcome_leak_is_leaked(outcome, leaked):
    assert LeakReport(replace(samples.clean_check(), verdict=Verdict(outcome, "because", 5))).leaked is leaked


def test_tables_are_computed_anew_each_time():
    assert LEAKY.objects is not LEAKY.objects
    assert list(LEAKY.objects.index) == ["torch.Tensor", "function", "dict"]
    assert len(LEAKY.tensors) == 2
    assert len(LEAKY.containers) == 1
    assert len(LEAKY.runs) == 12


def test_a_report_holds_nothing_but_its_check():
    assert [field.name for field in fields(LeakReport)] == ["_record", "_ranks", "_rerun", "_since"]
    assert LEAKY._rerun is None  # only where the check was made is it known how to run the code again
    assert LEAKY._since is None  # what a check of the same name found before stands in that one alone
    held = [thing for thing in gc.get_referents(LEAKY) if thing is not LeakReport and thing is not None]
    assert held == [LEAKY.check]
    assert LEAKY.ranks is None  # elsewhere the report of all ranks, which holds nothing but its record either
    with pytest.raises(FrozenInstanceError):
        LEAKY._record = None


@pytest.mark.parametrize("report", ALL)
def test_a_report_survives_pickling(report):
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301 - our own bytes


@pytest.mark.parametrize("report", ALL)
def test_the_repr_is_one_short_line(report):
    assert len(repr(report)) < 120
    assert repr(report).isprintable()


def test_ipython_shows_the_text_in_a_terminal():
    from IPython.core.interactiveshell import InteractiveShell

    format_dict, _ = InteractiveShell.instance().display_formatter.format(CLEAN)
    assert format_dict["text/plain"] == str(CLEAN)
    InteractiveShell.clear_instance()


def test_json_makes_the_round_trip_through_text_and_file(tmp_path):
    file = tmp_path / "report.json"
    text = LEAKY.to_json()
    LEAKY.to_json(file)
    assert LeakReport.from_json(text) == LeakReport.from_json(file) == LeakReport.from_json(str(file)) == LEAKY


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ReportError, match=r"cannot read '.*none\.json': No such file"):
        LeakReport.from_json(tmp_path / "none.json")


def test_text_that_is_neither_json_nor_a_file_is_an_error():
    with pytest.raises(ReportError, match="cannot read"):
        LeakReport.from_json("verdict\x00")


@pytest.mark.parametrize(
    ("suffix", "start"), [(".html", "<!DOCTYPE html>"), (".json", '{"format"'), (".CSV", "leak,what,")]
)
def test_the_suffix_decides_how_a_report_is_saved(tmp_path, suffix, start):
    file = tmp_path / f"report{suffix}"
    CLEAN.save(file)
    assert file.read_text(encoding="utf-8").startswith(start)


@pytest.mark.parametrize("refuse", [CLEAN.save, partial(check_target, suffixes=SUFFIXES)])
def test_a_folder_is_no_file_to_write_to(tmp_path, refuse):
    (tmp_path / "r.csv").mkdir()
    with pytest.raises(ReportError, match=r"^cannot write "):
        refuse(tmp_path / "r.csv")


def test_a_target_that_can_be_written_is_accepted_and_left_alone(tmp_path):
    check_target(tmp_path / "r.html", SUFFIXES)
    assert list(tmp_path.iterdir()) == []


def test_the_plot_is_a_figure_of_two_axes():
    assert len(LEAKY.plot().axes) == 2


@pytest.mark.parametrize("number", [2, -1])
def test_a_leak_that_is_not_there_has_no_graph(number):
    with pytest.raises(IndexError, match=f"there is no leak {number}: this report has 2, numbered from 0"):
        LEAKY.graph(number)


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.setattr(picture_module, "draw_svg", lambda source: "<svg>drawn</svg>")


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(picture_module, "draw_svg", lambda source: None)


def test_a_graph_is_shown_as_an_image(drawn):
    bundle = LEAKY.graph()._repr_mimebundle_()
    assert bundle["text/html"].startswith('<img src="data:image/svg+xml;base64,')
    assert bundle["text/plain"] == str(LEAKY.graph())


def test_a_graph_that_cannot_be_drawn_is_shown_as_text(undrawn):
    bundle = LEAKY.graph()._repr_mimebundle_()
    assert bundle["text/html"].startswith("<pre")
    assert "&lt;== here" in bundle["text/html"]


def test_a_graph_is_saved_as_its_suffix_says(drawn, tmp_path):
    starts = {
        "g.svg": "<svg>drawn</svg>",
        "g.dot": "digraph {",
        "g.gv": "digraph {",
        "g.txt": "from: notebook variable",
    }
    for name, start in starts.items():
        LEAKY.graph().save(tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)


def test_a_graph_that_cannot_be_drawn_is_not_saved(undrawn, tmp_path):
    with pytest.raises(ReportError, match=r"nothing here can draw the graph: .*pip install pygraphviz"):
        LEAKY.graph().save(tmp_path / "g.svg")
    assert not (tmp_path / "g.svg").exists()


def test_the_repr_of_a_graph_is_one_line():
    assert repr(PathGraph(samples.hook_leak())) == "<PathGraph of 4 objects; str() shows the path>"


@pytest.mark.parametrize(
    ("n_bytes", "words"),
    [(208.0, "still leaks"), (215.0, "still leaks"), (20.0, "still leaks, but less"), (900.0, "leaks even more")],
)
def test_the_rates_of_a_staying_leak_are_compared(n_bytes, words):
    after = with_leaks(replace(samples.hook_leak(), bytes_per_run=n_bytes))
    comparison = with_leaks(samples.hook_leak()).compare(after)
    assert not comparison.fixed
    assert comparison.lines[0].endswith(f": {words}")


def test_leaks_without_bytes_are_compared_by_count():
    before = replace(samples.hook_leak(), bytes_per_run=0.0, count_per_run=4.0)
    comparison = with_leaks(before).compare(with_leaks(replace(before, count_per_run=1.0)))
    assert comparison.lines[0].endswith("was 4 objects per run, now 1 object per run: still leaks, but less")


def test_a_leak_that_became_bounded_is_fixed():
    after = replace(samples.bounded_check(), bounded=(samples.hook_leak(),))
    comparison = with_leaks(samples.hook_leak()).compare(LeakReport(after))
    assert comparison.fixed
    assert comparison.lines[0].endswith("now bounded: fixed")


def test_leaks_of_one_fingerprint_are_added_up():
    comparison = with_leaks(samples.hook_leak(), samples.hook_leak()).compare(CLEAN)
    assert len(comparison.lines) == 1
    assert "was 416 B per run" in str(comparison)


def test_importing_the_report_imports_neither_pandas_nor_matplotlib():
    code = "import leaklab.reports.check, sys; print({'pandas', 'matplotlib', 'graphviz'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
