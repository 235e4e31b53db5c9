"""What a file or a name says reaches no terminal as a command, no spreadsheet as a formula, no page as markup."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

import leaklab
from leaklab.errors import LeaklabError
from leaklab.text import with_texts

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
