"""A brief holds what somebody needs to propose a change, in 4 KiB, and with ``redact`` nothing of the data."""

from __future__ import annotations

from dataclasses import replace

import pytest
import samples
from markdown_it import MarkdownIt

from leaklab.model.cure import Change, Cure, CureOutcome
from leaklab.reports.brief import LIMIT_BYTES, cut_to
from leaklab.reports.check import LeakReport

TRAINER = '''\
class Trainer:
    """Pa55 of the docstring,
    # and no comment"""
    def __init__(self):
        self.losses = {}  # Pa55 is said here
        self.tag = f"Pa55 {1 + 1}"
    def step(self):
        self.losses["Pa55 " + str(len(self.losses))] = [bytearray(3000)]  # Pa55 again
trainer = Trainer()
'''


def with_sites(*sites: str, cures: tuple[Cure, ...] = ()) -> LeakReport:
    return LeakReport(samples.only(replace(samples.history_leak(), sites=sites, cures=cures)))


@pytest.mark.untraced
def test_a_brief_has_the_lines_with_those_around_them_and_what_was_tried(notebook):
    assert notebook.run(TRAINER).error is None
    brief = notebook.check("n = 1\ntrainer.step()", "--cure -n 16 -t 120", cures=True).brief()
    assert brief.startswith("# leak: `trainer.losses` grows by 1 ")
    assert "- held by: `trainer.losses`" in brief
    assert '>    8         self.losses["Pa55 " + str(len(self.losses))] = [bytearray(3000)]  # Pa55 again\n' in brief
    assert "     9 trainer = Trainer()\n```" in brief
    assert "\n## Tried\n\n- " in brief
    assert "\n  ```diff\n  @@ " in brief
    assert "\n## What would count as cured\n" in brief
    assert len(brief.encode()) <= LIMIT_BYTES


@pytest.mark.untraced
def test_a_redacted_brief_holds_names_and_no_data(notebook):
    assert notebook.run(TRAINER).error is None
    report = notebook.check("word = 'Pa55'\ntrainer.step()  # Pa55", "-n 16")
    assert "Pa55" in report.brief()
    brief = report.brief(redact=True)
    assert "Pa55" not in brief
    assert ">    8         self.losses['hidden " in brief
    assert " = [bytearray(3000)]  # keeps it`" in brief
    assert "     9 trainer = Trainer()\n```" in brief


def test_a_report_that_was_loaded_has_the_lines_alone():
    report = LeakReport.from_json(with_sites("cell 4, line 7: a = 1").to_json())
    assert "- `cell 4, line 7: a = 1`" in report.brief()
    assert "```python" not in report.brief()


@pytest.mark.parametrize("number", [1, -1])
def test_a_leak_that_is_not_there_is_refused(number):
    with pytest.raises(IndexError, match=f"there is no leak {number}: this report has 1"):
        with_sites().brief(number)


def test_where_nothing_leaks_the_verdict_is_said():
    assert LeakReport(samples.clean_check()).brief().startswith("# clean: ")


@pytest.mark.parametrize("huge", ["ä" * 9000, "x\n" * 3000, "`" * 5000, "\n```\n# heading\n" * 300])
def test_a_brief_is_never_longer_than_four_kib_and_its_fences_are_closed(huge):
    cure = Cure(huge, (Change(huge, huge, huge),) * 9, CureOutcome.NO_EFFECT, huge)
    leak = replace(samples.history_leak(), what=huge, advice=huge, holder=huge, holders=(huge,) * 9, reason=huge)
    check = samples.only(replace(leak, sites=(huge,) * 9, cures=(cure,) * 9))
    brief = LeakReport(replace(check, leaks=(*check.leaks, *check.leaks))).brief(1)
    assert len(brief.encode()) <= LIMIT_BYTES
    told = [token.content for token in MarkdownIt().parse(brief) if token.type == "inline" and token.level == 1]
    assert not any("heading" in words and not words.startswith(("leak: ", "`")) for words in told)


def test_what_is_cut_off_ends_with_a_closed_fence():
    assert cut_to("a\n````text\nbbb\nccccccccccccccccccccccccccccc\n````\n", 40) == "a\n````text\nbbb\n````\n...\n"
    assert cut_to("short", 40) == "short"
