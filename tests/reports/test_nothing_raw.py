"""What a file or a name says is no command, no formula and no markup, and has a readable size in every form."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import samples

import leaklab
from leaklab.errors import LeaklabError
from leaklab.model import RootPath, Status
from leaklab.model.paths import Step
from leaklab.model.process import HeldTensors, ProcessLevels, ProcessRecord
from leaklab.reports.check import LeakReport
from leaklab.reports.graphs import lines
from leaklab.reports.notebook_export import render_markdown
from leaklab.reports.process import ProcessReport
from leaklab.text import CELL_LIMIT, SHOWN_LIMIT, cell_text, clipped, shorten, visible, with_texts

RECORDS = Path(__file__).parents[1] / "guards" / "records"
NAMES = sorted(file.name for file in RECORDS.glob("*.json") if not file.name.startswith("run_"))
# A window's title, a bell, a colour, an overwritten line, reversed text, a command of 8-bit terminals, line ends.
COMMANDS = "\x1b]0;t\x07\x1b[31m\rr\u202ex\x00\x9b\u2066y\x85z\u2028"
FORMULA = "=1+2"
MARKUP = "<b onclick=x>"
WORDS_OF_THE_FORMAT = {"born", "died", "replaced", "grown", "shrunk"}


def poisoned(text: str) -> str:
    half = len(text) // 2
    return text if text in WORDS_OF_THE_FORMAT else FORMULA + text[:half] + COMMANDS + MARKUP + text[half:]


@functools.cache
def hostile(name: str):
    report = leaklab.load(RECORDS / name)
    return report._around(with_texts(report.record, poisoned))


def raw(text: str, allowed: str = "\n") -> set[str]:
    return {letter for letter in text if not letter.isprintable() and letter not in allowed}


@pytest.mark.parametrize("name", NAMES)
def test_a_terminal_gets_no_command(name, tmp_path):
    report = hostile(name)
    texts = [str(report), repr(report), report._repr_mimebundle_()["text/plain"]]
    for suffix in (".txt", ".md", ".json"):
        report.save(tmp_path / f"r{suffix}")
        texts.append((tmp_path / f"r{suffix}").read_text("utf-8"))
    texts += [str(report.verdict)] if hasattr(report, "verdict") else []
    leaks = [getattr(leak, "leak", leak) for leak in getattr(report, "leaks", ())]  # of ranks each has its ranks
    texts += [str(leak.path) for leak in leaks]
    texts += list(getattr(report, "lines", ()) if name.startswith("memdiff") else ())
    assert [raw(text) for text in texts] == [set()] * len(texts)
    assert not raw(repr(report), "")


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("notebook")])
def test_a_page_gets_no_markup_and_no_command(name):
    report = hostile(name)
    for markup in (report._repr_html_() or "", report.to_html()):
        shown = re.sub(r"<script[^>]*>.*?</script>", "", markup, flags=re.DOTALL)
        assert MARKUP not in shown
        assert not raw(shown)


@pytest.mark.parametrize("name", [name for name in NAMES if re.match("check|autograd|memdiff|cuda.*series", name)])
def test_a_spreadsheet_gets_no_formula_and_no_command(name, tmp_path):
    hostile(name).save(tmp_path / "r.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "r.csv").read_text("utf-8"))))
    assert len({len(row) for row in rows}) == 1
    cells = [cell for row in rows for cell in row]
    assert [cell for cell in cells if cell[:1] in tuple("=+@\t\r") or re.match(r"-(?!\d)", cell)] == []
    assert not any(raw(cell) for cell in cells)


@pytest.mark.parametrize("name", NAMES)
def test_json_says_the_same_without_a_raw_character(name):
    report = hostile(name)
    text = report.to_json()
    assert not raw(text)
    assert any(COMMANDS in value for value in strings_of(json.loads(text)))


def strings_of(value):
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings_of(item)


def test_a_character_beyond_the_first_plane_comes_back():
    report = leaklab.load(RECORDS / "check_tensors_kept.json")
    told = with_texts(report.record, lambda text: text + "\U000e0001\U0001f600\ufeff\x7f")
    again = leaklab.LeakReport.from_json(leaklab.LeakReport(told).to_json())
    assert again.record == told
    assert not raw(leaklab.LeakReport(told).to_json())


@pytest.mark.parametrize("word", ["\x1b[2J", "\x07", "\u202e", "\x9b"])
def test_what_a_forged_file_makes_leaklab_say_is_one_line_without_commands(word, tmp_path):
    forged = json.loads((RECORDS / "check_tensors_kept.json").read_text("utf-8"))
    forged["verdict"]["outcome"] = f"leak{word}\nleaklab: all is well"
    (tmp_path / "r.json").write_text(json.dumps(forged), encoding="utf-8")
    for read in (leaklab.load, leaklab.load_report, leaklab.LeakReport.from_json):
        with pytest.raises(LeaklabError) as caught:
            read(tmp_path / "r.json")
        assert not raw(str(caught.value))


@pytest.mark.parametrize("opened", ['{"format": "leaklab check", "leaks": ' + "[" * 200_000, "[" * 200_000])
@pytest.mark.parametrize("closed", ["", "]" * 200_000 + "}"])
def test_json_that_is_nested_too_deeply_is_refused(opened, closed, tmp_path):
    (tmp_path / "r.json").write_text(opened + closed, encoding="utf-8")
    (tmp_path / "r.html").write_text(
        f'<script type="application/json" data-leaklab="record">{opened}{closed}</script>', encoding="utf-8"
    )
    for name in ("r.json", "r.html"):
        for read in (leaklab.load, leaklab.load_report, leaklab.LeakReport.load):
            with pytest.raises(LeaklabError, match=r"^[^\n]*$"):
                read(tmp_path / name)


@pytest.mark.parametrize(
    "name", ["check_two_leaks.json", "notebook_after.json", "whyalive_held.json", "check_clean.html"]
)
def test_a_byte_order_mark_is_no_part_of_a_file(name, tmp_path):
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (RECORDS / name).read_bytes())
    assert leaklab.load(tmp_path / name).record == leaklab.load(RECORDS / name).record


def test_a_byte_order_mark_is_no_part_of_a_text():
    report = leaklab.load(RECORDS / "check_two_leaks.json")
    assert leaklab.LeakReport.from_json("\ufeff" + report.to_json()).record == report.record


def test_a_figure_draws_every_name_as_it_is_written():
    report = leaklab.load(RECORDS / "check_tensors_kept.json")
    figure = report.plot()
    figure.suptitle("costs $5, not $\\frac$\x1b")
    assert figure.png().startswith(b"\x89PNG")


MEGABYTE = 1_000_000
LARGEST = 200_000
LONG = {"plain": "x" * MEGABYTE, "escaped in HTML": "<'" * (MEGABYTE // 2), "control": "\x1b" * MEGABYTE}


@pytest.fixture(scope="module", params=LONG.values(), ids=LONG.keys())
def report(request):
    """A report on two leaks and a bounded place, in which every text is a megabyte long."""
    check = replace(samples.leaky_check(), bounded=(samples.window(),), notes=("a note",), failure="an error")
    return LeakReport(with_texts(check, lambda text: text + request.param))


@pytest.fixture(scope="module")
def widest(report):
    """How many characters a page may need for one: ``&#x27;``, ``\\u001b``."""
    return 1 if "x" * 99 in report.check.verdict.reason else 6


@pytest.fixture(scope="module")
def bundle(report):
    return report._repr_mimebundle_()


@pytest.mark.parametrize("kind", ["text/plain", "text/html"])
def test_what_a_notebook_shows_stays_small(bundle, kind, widest):
    images = sum(map(len, re.findall('base64,[^"]*', bundle[kind])))
    assert 1_000 < len(bundle[kind]) - images < LARGEST / 2 * widest
    assert images < LARGEST / 2 + 20_000
    assert "could be drawn" not in bundle["text/plain"]


def test_files_for_readers_stay_small(report, widest):
    assert len(render_markdown(report.check)) < LARGEST * widest
    assert len(report.to_html()) < 4 * LARGEST * widest  # it carries the record, in which texts may be longer


def test_graphs_stay_small(report):
    graph = report.graph()
    assert max(len(graph.dot), len(str(graph)), len(graph.alt), len(repr(graph))) < 20_000
    assert len(repr(report)) < 1_000


def test_cells_of_tables_stay_small(report):
    tables = (report.objects, report.tensors, report.containers)
    cells = [cell for table in tables for cell in table.reset_index().to_numpy().ravel() if isinstance(cell, str)]
    assert cells
    assert max(map(len, cells)) <= CELL_LIMIT


def test_a_name_is_cut_before_its_characters_are_looked_at():
    class Watched(str):
        __slots__ = ()

        def isprintable(self):
            raise AssertionError

    assert shorten(Watched("a" * 500 + "b" * 500), 90) == "a" * 57 + "..." + "b" * 30
    assert "..." in lines(Watched("a" * 5_000))


@pytest.mark.parametrize("limit", [10, 31])
@pytest.mark.parametrize("text", ["", "abc", "\x1b" * 40, "a\x1b" * 30, "ab" * 100, "a" * 19 + "\n", "\n" + "a" * 62])
def test_a_short_form_is_that_of_the_whole_text(text, limit):
    whole = visible(text)
    n_tail = limit // 3
    middle_cut = f"{whole[: limit - n_tail - 3]}...{whole[len(whole) - n_tail :]}"
    assert shorten(text, limit) == (whole if len(whole) <= limit else middle_cut)


def test_a_record_without_long_texts_is_left_as_it_is():
    check = samples.leaky_check()
    assert clipped(check, SHOWN_LIMIT) is check


def test_only_long_texts_of_a_record_are_cut():
    check = replace(samples.leaky_check(), notes=("short", "n" * 5_000))
    assert clipped(check, 100).notes == ("short", "n" * 77 + "..." + "n" * 20)
    assert clipped(check, 100).runs is check.runs


def test_a_text_of_several_lines_may_be_longer_than_one_line():
    assert len(clipped("one\n" + "n" * 5_000, 100)) == 300
    assert len(clipped("n" * 5_000 + "\n", 100)) == 100
    assert len(clipped("one\n" + "n" * 5_000)) == 4_000


def test_a_cell_of_a_table_is_a_text_that_can_be_stored():
    assert cell_text("\udc80") == "\\udc80"
    assert cell_text(7) == 7
    assert len(cell_text("x" * MEGABYTE)) == CELL_LIMIT


def test_long_path_loses_its_middle():
    steps = tuple(Step(f".next_functions[{number}]", "Node", "", Status.UNKNOWN) for number in range(5000))
    held = HeldTensors("the graph of losses", "torch.Tensor", 1, 1, 1, RootPath("notebook variable", steps))
    record = ProcessRecord("asked", "now", 1, "", ProcessLevels(1), n_objects=1, tensors=(held,))
    assert ".next_functions[3]  (4,992 more)  .next_functions[4996]" in " ".join(str(ProcessReport(record)).split("\n"))
