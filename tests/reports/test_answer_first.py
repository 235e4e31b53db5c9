"""The answer comes first: verdict, place, rate, line, the change that was tried, and its proof."""

from __future__ import annotations

import html
import re
import sys
from dataclasses import replace

import pytest
import samples

from leaklab.explain.idioms.advice import named
from leaklab.model.check import KeptCheck, NotebookChecks
from leaklab.model.cure import Cure, CureOutcome
from leaklab.model.paths import RootPath
from leaklab.model.sentences import growth_sentence, quoted
from leaklab.render.advice import advice_of, patch_text, proof_words
from leaklab.render.base import coloured, on_terminal
from leaklab.render.json import redacted
from leaklab.reports.check import LeakReport
from leaklab.reports.check_html import render_html, render_page
from leaklab.reports.check_text import render_text
from leaklab.reports.notebook import NotebookReport
from leaklab.reports.notebook_export import render_markdown
from leaklab.text import in_columns

CURED = samples.only(samples.cured_leak())
ANSWER = (
    "LEAK",
    "trainer.history",
    "32.0 KiB",
    "cell 4, line 8",
    "trainer.history.append(loss.item())",
    "same gradients",
)
"""In the order in which it is read."""


def positions(text, words=ANSWER):
    found, start = [], 0
    for word in words:
        start = text.index(word, start) + 1
        found.append(start)
    return found


@pytest.mark.parametrize("n_columns", [80, 100, 120])
def test_one_leak_is_answered_within_twelve_lines(n_columns):
    with in_columns(n_columns):
        lines = render_text(CURED).splitlines()
    positions(" ".join(" ".join(lines[:12]).partition("Evidence")[0].split()))


def test_of_many_leaks_a_table_by_line_stands_within_twelve_lines():
    here = "cell 4, line 8: pool[name].append(x)"
    leaks = tuple(
        replace(samples.cured_leak(), holder=f"pool['{n}']", sites=(f"{here}  # keeps it",)) for n in range(40)
    )
    with in_columns(80):
        lines = render_text(replace(samples.leaky_check(), leaks=leaks)).splitlines()[:12]
    top = "\n".join(lines)
    assert lines[0] == "LEAK  40 leaks leave 32.2 KiB every run, the largest in `pool['0']`"
    assert "40 places, 1.25 MiB every run" in " ".join(top.split())
    assert re.search(r"1 +`pool\['0'\]` +2 tensors \(32\.0 KiB\) +tried: Store only the number", top)
    assert top.count(here) == 1


@pytest.mark.parametrize("render", [render_html, render_page])
def test_in_html_the_answer_comes_before_everything_else(render):
    markup = render(CURED)
    positions(html.unescape(re.sub(r"<[^>]*>", "", markup)).partition("Evidence")[0])
    assert markup.index("Evidence") < markup.index("<img")


def test_in_markdown_the_answer_comes_before_the_evidence():
    answer, fold, _rest = html.unescape(render_markdown(CURED)).partition("<summary>Evidence")
    assert fold
    positions(answer.partition("\n## ")[2])


def test_the_changed_token_alone_is_marked():
    before, after = advice_of(samples.cured_leak()).diff
    assert (before.sign, before.text[slice(*before.marked)]) == ("-", "")
    assert (after.sign, after.text[slice(*after.marked)]) == ("+", ".item()")


def test_a_line_that_the_change_shows_is_told_by_its_place_alone():
    assert advice_of(samples.cured_leak()).line == "cell 4, line 8"
    assert advice_of(samples.history_leak()).line.endswith("loss = criterion(model(x), y)")


def test_each_place_of_several_changes_is_named():
    (cure,) = samples.cured_leak().cures
    second = replace(cure.changes[0], where="cell 2, line 1", before="a = 1", after="", line=1)
    leak = replace(samples.cured_leak(), cures=(replace(cure, changes=(*cure.changes, second)),))
    assert [(line.sign, line.text) for line in advice_of(leak).diff] == [
        ("@", "cell 4, line 8"),
        ("-", "trainer.history.append(loss)"),
        ("+", "trainer.history.append(loss.item())"),
        ("@", "cell 2, line 1"),
        ("-", "a = 1"),
    ]
    assert patch_text(leak).startswith("--- cell 4\n+++ cell 4\n@@ -8,1 +8,1 @@\n")


def test_the_whole_changed_cell_can_be_copied_exactly():
    markup = render_html(CURED)
    title, cell = re.search(
        r"<summary ([^>]*)>Copy the changed cell</summary><pre[^>]*>(.*?)</pre>", markup, re.DOTALL
    ).groups()
    assert html.unescape(cell) == samples.CHANGED_CELL
    assert "navigator.clipboard.writeText(text)" in html.unescape(title)


def test_a_page_that_forbids_scripts_of_elements_has_none():
    page = NotebookReport(NotebookChecks("", (KeptCheck(CURED, "In [3]"),))).to_html()
    assert "onclick" not in page
    assert 'data-leaklab="copy"' in page


@pytest.mark.parametrize("cell", ["", "x = '\x1b[31m'", "x = '\u202e'"])
def test_a_cell_that_cannot_be_shown_exactly_is_not_offered(cell):
    (cure,) = samples.cured_leak().cures
    leak = replace(samples.cured_leak(), cures=(replace(cure, changed_cell=cell),))
    assert "Copy the changed cell" not in render_html(samples.only(leak))


def test_a_redacted_report_has_no_whole_cell():
    assert "for x, y in loader" in LeakReport(CURED).to_json()
    assert "for x, y in loader" not in LeakReport(redacted(CURED)).to_json()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "`trainer.history` grows by 2 tensors (32.0 KiB) every run"),
        ({"what": "torch.Tensor (3,) and 2 other kinds"}, "`trainer.history` grows by 2 tensors (32.0 KiB) every run"),
        ({"what": "dict and 2 other kinds"}, "`trainer.history` grows by 2 objects (32.0 KiB) every run"),
        ({"what": "numpy.ndarray"}, "`trainer.history` grows by 2 arrays (32.0 KiB) every run"),
        ({"what": "demo.Batch", "count_per_run": 1.0}, "`trainer.history` grows by 1 Batch object (32.0 KiB)"),
        ({"what": "weakref", "bytes_per_run": 0.0}, "`trainer.history` grows by 2 weak references every run"),
        ({"unit": "entries", "count_per_run": 1.0}, "`trainer.history` grows by 1 entry (32.0 KiB) every run"),
        ({"n_places": 40}, "40 places like `trainer.history` grow by 2 tensors (32.0 KiB) every run"),
        ({"holder": "closure of 'f'"}, "every run leaves 2 tensors (32.0 KiB) behind, held by closure of 'f'"),
        ({"holder": ""}, "every run leaves 2 tensors (32.0 KiB) behind"),
        ({"holder": "a`b"}, "every run leaves 2 tensors (32.0 KiB) behind, held by a`b"),
    ],
)  # fmt: skip
def test_counts_are_told_on_the_right_type(changes, sentence):
    assert growth_sentence(replace(samples.history_leak(), **changes)).startswith(sentence)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "every run leaves 1 thread (16.0 KiB) running, such as 'Thread-12 (wait)'"),
        (
            {"what": "torch.Tensor", "count_per_run": 3.0, "kept": (3, 0, 3, 3, 6, 3, 3, 0, 3, 3, 6, 0)},
            "every run leaves 1 thread (16.0 KiB) running",
        ),
        ({"count_per_run": 2.0, "kept": (2,) * 12, "n_places": 24}, "every run leaves 2 threads (16.0 KiB) running"),
        (
            {"what": "demo.Worker", "count_per_run": 1 / 3, "kept": (1, 0, 0) * 4, "n_places": 4},
            "every 3rd run leaves 1 thread (48.0 KiB) running",
        ),
        ({"n_places": 1}, "every run leaves 1 thread (16.0 KiB) running"),
        ({"what": "demo.Batch", "n_places": 4}, "4 places like a frame in thread 'Thread-12 (wait)' grow by 1 Batch"),
        (
            {"what": "demo.Batch", "n_places": 1},
            "every run leaves 1 Batch object (16.0 KiB) behind, held by a frame in thread 'Thread-12 (wait)'",
        ),
    ],
    ids=["one", "with tensors", "two", "every third run", "under one name", "four serve all runs", "one serves all"],
)
def test_threads_that_stay_are_told_as_threads_and_what_a_few_of_them_pile_up_is_not(changes, sentence):
    of_threads = {
        "path": RootPath("thread 'Thread-12 (wait)'", ()),
        "holder": "a frame in thread 'Thread-12 (wait)'",
        "what": "threading.Thread",
        "bytes_per_run": 16.0 * 1024,
        "count_per_run": 1.0,
        "kept": (1,) * 11 + (0,),
        "n_places": 11,
    }
    assert growth_sentence(replace(samples.history_leak(), **{**of_threads, **changes})).startswith(sentence)


class Terminal:
    def isatty(self):
        return True


def test_colour_is_for_terminals_only_and_can_be_switched_off(monkeypatch):
    text = render_text(CURED)
    assert on_terminal(text) == text  # captured: no terminal
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert on_terminal(text).startswith("\x1b[1;31mLEAK\x1b[0m  ")
    monkeypatch.setenv("NO_COLOR", "1")
    assert on_terminal(text) == text


def test_colour_changes_no_character():
    text = render_text(CURED)
    assert "\x1b[32m+ trainer.history.append(loss.item())\x1b[0m" in coloured(text)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured(text)) == text


def test_the_text_is_as_wide_as_the_terminal_and_files_are_not(monkeypatch, tmp_path):
    report = LeakReport(CURED)
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    narrow = str(report)
    report.save(tmp_path / "report.txt")
    monkeypatch.undo()
    assert max(map(len, narrow.splitlines())) <= 80
    assert (tmp_path / "report.txt").read_text("utf-8") == str(report) != narrow


def with_trials(*trials):
    """The sample's leak, whose advice names its line, with changes that were tried without curing it."""
    advice = "The list grows. The line that keeps it: train.py:8 in step. Empty it.\nNot if all of it is needed."
    cures = tuple(Cure(f"Change {number}.", (), *trial) for number, trial in enumerate(trials, 1))
    return replace(samples.cured_leak(), advice=advice, cures=cures)


def test_the_figures_of_a_proof_stand_before_and_after():
    assert advice_of(samples.cured_leak()).proof == "32.0 KiB -> 0 B every run; same gradients; 8 runs"
    assert proof_words("it came to nothing.") == "it came to nothing"


def test_of_changes_that_are_no_cure_the_best_is_told_and_the_others_are_evidence():
    advice = advice_of(
        with_trials((CureOutcome.LESSENED, "less"), (CureOutcome.HARMFUL, "worse"), (CureOutcome.NOT_TRIED, "no time"))
    )
    assert advice.text.splitlines() == [
        "The list grows. Empty it.",
        "Not if all of it is needed.",
        "Tried: Change 1. That makes the leak smaller but does not end it.",
    ]
    assert advice.tried == (
        "Change 1: makes the leak smaller but does not end it (less)",
        "Change 2: does harm (worse)",
    )


def test_a_change_that_has_a_cost_is_told_with_what_it_ends_and_what_it_costs():
    """That it does not end the leak would be wrong."""
    evidence = "8 runs with this change: 0 B per run (was 318 KiB), but it would drop callbacks that may be in use"
    advice = advice_of(with_trials((CureOutcome.LESSENED, evidence), (CureOutcome.HARMFUL, "worse")))
    assert advice.text.splitlines()[2:] == [
        "Tried: Change 1. With that, a run leaves 0 B (was 318 KiB), but it would drop callbacks that may be in use."
    ]
    assert advice.tried == (f"Change 1: has a cost ({evidence})", "Change 2: does harm (worse)")


def test_changes_that_were_not_tried_are_one_sentence():
    advice = advice_of(with_trials(*[(CureOutcome.NOT_TRIED, "no time was left: --cure -t 300")] * 3))
    assert advice.text.splitlines()[2:] == ["3 changes are known, not tried: no time was left: --cure -t 300."]
    assert advice.tried == ()


def test_when_memory_is_full_is_said_where_that_is_near():
    check = samples.leaky_check()
    for n_runs, words in ((42, "after 42 runs"), (44_881, "after about 45,000 runs"), (4_488_139, "")):
        text = render_text(replace(check, verdict=replace(check.verdict, full_after_runs=n_runs)))
        assert ("free memory is used up" in text) == bool(words)
        assert words in " ".join(text.split())


def test_a_change_of_a_file_is_copied_as_a_patch():
    (cure,) = samples.cured_leak().cures
    leak = replace(samples.cured_leak(), cures=(replace(cure, changed_cell=""),))
    found = re.search(r"Copy the patch</summary><pre[^>]*>(.*?)</pre>", render_html(samples.only(leak)), re.DOTALL)
    assert found is not None
    assert html.unescape(found[1]) == patch_text(leak)


def test_of_several_leaks_the_first_is_unfolded_and_each_has_its_share():
    first, second = samples.cured_leak(), replace(samples.hook_leak(), bytes_per_run=32_772.0 / 3)
    markup = render_html(replace(samples.leaky_check(), leaks=(first, second)))
    assert [float(share) for share in re.findall(r'title="([\d.]+)% of all"', markup)] == [75.0, 25.0]
    opened = [part.startswith("<details open") for part in re.findall(r"<details[^>]*>(?=<summary[^>]*><span)", markup)]
    assert opened == [True, False]


def test_a_chain_of_one_reference_is_written_as_its_first_and_its_last():
    assert quoted("tracer.current" + ".parent" * 40) == "`tracer.current.parent ... .parent`"
    assert quoted("rows" + "[-1]" * 4 + ".data") == "`rows[-1] ... [-1].data`"
    assert quoted("a.b.b.b[0].c") == "`a.b.b.b[0].c`"
    assert named("node" + ".after" * 5) == "`node.after ... .after`"
