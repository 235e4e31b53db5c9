"""Exported reports: what stands in them, what is read back, what a hostile text can do, what is hidden."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import samples

import leaklab
from leaklab.errors import ReportError
from leaklab.model.check import KeptCheck, KeptView, NotebookChecks
from leaklab.render.json import embedded, find_embedded, read_record
from leaklab.reports.check import LeakReport
from leaklab.reports.notebook import Journal, NotebookReport, load_report, print_pdf, require_browser
from leaklab.reports.notebook_export import SCRIPT, render_collection, render_markdown, with_classes, without_tooltips
from leaklab.text import TEXT_LIMIT, clipped, with_texts

PNG = b"\x89PNG"


def collection(*checks, **fields):
    return NotebookChecks(
        "training.ipynb", tuple(KeptCheck(check, f"In [{n}]") for n, check in enumerate(checks, 1)), **fields
    )


def page_of(wanted, **options):
    options = {"plot": lambda _check: PNG, **options}
    return render_collection(wanted, **options)


class Elements(HTMLParser):
    """Counts elements, collects words outside scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.open_parts, self._raw = [], [], 0, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._raw = tag in ("script", "style")
        self.open_parts += tag == "details" and ("open", None) in attrs

    def handle_endtag(self, tag):
        self._raw = False

    def handle_data(self, data):
        if not self._raw:
            self.words.append(data)


def test_a_page_reads_back_as_the_very_checks_it_was_made_of():
    wanted = collection(samples.leaky_check(), samples.clean_check(), samples.failed_check(), notes=("a note",))
    assert read_record(page_of(wanted).encode()) == wanted


def test_a_page_names_every_check_with_its_verdict_and_largest_holder():
    words = " ".join(Elements(page_of(collection(samples.leaky_check(), samples.bounded_check()))).words)
    for part in ("2 checks: 1 leak, 1 bounded", "training step", "check 2", "In [1]", "trainer.history", "32.2 KiB"):
        assert part in words


def test_a_page_has_one_script_of_its_own_which_alone_its_policy_allows():
    page = page_of(collection(samples.hostile_check()))
    assert Elements(page).tags.count("script") == 2
    assert page.count(f"<script>{SCRIPT}</script>") == 1
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)


def test_for_printing_every_part_is_open():
    shown, printed = (Elements(page_of(collection(samples.leaky_check()), is_open=choice)) for choice in (False, True))
    assert printed.open_parts == printed.tags.count("details") > shown.open_parts


def test_no_check_at_all_is_said():
    assert "no check was made" in page_of(collection())
    assert "no check was made" in render_markdown(collection())


def test_the_end_of_a_script_in_a_record_does_not_end_the_element():
    text = json.dumps({"name": "</script><script>alert(1)</script><!-- & \u2028"})
    page = f"<p>x</p>{embedded(text)}<p>y</p>"
    assert page.count("</script>") == 1
    assert json.loads(find_embedded(page.encode())) == json.loads(text)


def test_leaks_beyond_the_fortieth_of_a_check_stand_in_a_table():
    leaks = tuple(replace(samples.hook_leak(), holder=f"h{number}") for number in range(300))
    page = page_of(collection(replace(samples.leaky_check(), leaks=leaks)))
    assert "All 300 places" in page
    assert ">h299<" in page
    assert len(page) < 3_000_000


def test_a_string_of_a_megabyte_is_cut_and_the_page_stays_small():
    leak = replace(samples.history_leak(), what="x" * 1_000_000, holder="y" * 1_000_000, reason="z" * 1_000_000)
    wanted = collection(*(samples.only(leak),) * 3)
    assert len(page_of(wanted)) < 400_000
    assert len(render_markdown(wanted)) < 100_000
    assert clipped("a" * TEXT_LIMIT) == "a" * TEXT_LIMIT
    assert len(clipped("a" * (TEXT_LIMIT + 1))) == TEXT_LIMIT


def test_markdown_of_a_hostile_check_has_only_the_elements_it_is_written_with():
    text = render_markdown(collection(samples.hostile_check(), samples.leaky_check()))
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"</?([a-z]+)", outside)) == {"code", "details", "summary"}
    columns = {line.count("|") for line in outside.splitlines() if line.startswith("|")}
    assert columns == {6, 8}  # the leaks of a check, the contents


def test_markdown_of_a_single_check_is_saved_by_its_suffix(tmp_path):
    LeakReport(samples.leaky_check()).save(tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# training step\n")
    assert "### Leak 1: <code>trainer.history</code> grows by 2 tensors &#40;32.0 KiB&#41; every run" in text


def test_a_fence_is_longer_than_the_backticks_in_it():
    leak = replace(samples.history_leak(), advice="use ````x````")
    assert "`````text\nuse ````x````\n`````" in render_markdown(samples.only(leak))


def test_the_page_of_a_single_check_is_read_back(tmp_path):
    report = LeakReport(samples.hostile_check())
    report.to_html(tmp_path / "one.html")
    assert leaklab.load_report(tmp_path / "one.html").check == LeakReport.from_json(report.to_json()).check


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>no record</html>", "this page carries no record"),
        (b'{"form', "this is not JSON, or the file is damaged"),
        (b'{"format": "something"}', "not a file of leaklab"),
        (b'{"format": "leaklab checks", "schema": 99}', "upgrade leaklab to read it"),
    ],
)
def test_a_file_that_holds_no_report_is_refused_in_a_sentence(tmp_path, content, message):
    (tmp_path / "file.html").write_bytes(content)
    with pytest.raises(ReportError, match=message):
        load_report(tmp_path / "file.html")


def test_styles_of_many_elements_become_classes():
    markup, rules = with_classes('<b style="color:red">x</b>' * 5 + '<i style="color:blue" title="t">y</i>')
    assert markup == "<b class=s0>x</b>" * 5 + '<i style="color:blue" title="t">y</i>'
    assert rules == ".s0 {color:red}"
    assert without_tooltips('<span title="run 1" class=s0></span>') == "<span class=s0></span>"


def test_with_texts_changes_every_text_and_no_member_of_an_enum():
    check = with_texts(samples.leaky_check(), str.upper)
    assert check.leaks[0].path.steps[0].reference == "TRAINER"
    assert check.verdict.outcome is samples.leaky_check().verdict.outcome
    assert check.runs == samples.leaky_check().runs


def named(check, name):
    return replace(check, settings=replace(check.settings, name=name))


def test_a_journal_keeps_the_newest_two_hundred_and_says_how_many_it_forgot():
    journal = Journal()
    for number in range(203):
        journal.note(LeakReport(named(samples.clean_check(), str(number))), f"In [{number}]")
    kept = journal.collect({})
    assert [noted.check.settings.name for noted in kept.checks] == [str(number) for number in range(3, 203)]
    assert kept.notes[0].startswith("the 3 oldest reports of this notebook are missing")


def test_a_report_that_a_variable_holds_is_exported_once():
    journal, noted, other = Journal(), LeakReport(samples.leaky_check()), LeakReport(samples.clean_check())
    journal.note(noted, "In [1]")
    places = [kept.place for kept in journal.collect({"r": noted, "s": other, "t": other, "x": 1}).checks]
    assert places == ["In [1]", "variable s"]


class Shown:
    def __repr__(self):
        return "<Shown a thing>"

    def _repr_mimebundle_(self):
        return {"text/plain": "text", "text/html": "<p>markup</p>"}


def test_other_reports_are_exported_as_they_show_themselves_and_left_out_of_redacted_ones():
    journal = Journal()
    journal.note(Shown(), "In [2]")
    assert journal.collect({}).views == (KeptView("Shown a thing", "In [2]", "text", "<p>markup</p>"),)
    assert "<p>markup</p>" in page_of(journal.collect({}))
    hidden = journal.collect({}, redact=True)
    assert (hidden.views, hidden.redacted) == ((), True)
    assert hidden.notes[-1] == "1 report of another magic is left out: --redact knows only checks"


def test_a_pdf_is_printed_by_the_browser_that_is_installed(tmp_path):
    try:
        require_browser()
    except ReportError:
        pytest.skip("there is no Chromium")
    print_pdf("<p>printed</p>", tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_without_a_browser_a_pdf_is_refused_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ReportError, match=r"a PDF needs Chromium or Chrome.*save the report as \.html"):
        NotebookReport(collection()).save(tmp_path / "page.pdf")


def test_a_browser_that_hangs_is_ended(monkeypatch, tmp_path):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CHROMIUM", str(slow))
    with pytest.raises(ReportError, match=r"took more than 0\.2 seconds to print"):
        print_pdf("<p>", tmp_path / "page.pdf", seconds=0.2)
