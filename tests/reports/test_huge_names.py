"""A record whose names and summaries have a megabyte each is shown in a readable size, in every form."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import samples

from leaklab.reports.check import LeakReport
from leaklab.reports.graphs import lines
from leaklab.reports.notebook_export import render_markdown
from leaklab.text import CELL_LIMIT, SHOWN_LIMIT, cell_text, clipped, shorten, visible, with_texts

MEGABYTE = 1_000_000
LARGEST = 200_000
NAMES = {"plain": "x" * MEGABYTE, "escaped in HTML": "<'" * (MEGABYTE // 2), "control": "\x1b" * MEGABYTE}


@pytest.fixture(scope="module", params=NAMES.values(), ids=NAMES.keys())
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
