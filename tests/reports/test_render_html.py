from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import samples

from leaklab.model import RootPath, Status, Step
from leaklab.render.templates import ACCENT, CALM, DOUBTFUL, GOOD
from leaklab.reports.check_html import render_html, render_page

CHECKS = {
    "leak": samples.leaky_check(cuda=True),
    "clean": samples.clean_check(),
    "bounded": samples.bounded_check(),
    "failed": samples.failed_check(),
    "empty": samples.empty_check(),
    "cycle": samples.only(samples.cycle_leak()),
    "hostile": samples.hostile_check(),
}
ALLOWED_TAGS = {
    "div", "span", "b", "br", "code", "pre", "details", "summary", "table", "thead", "tbody", "tr", "th", "td",
    "ul", "li", "img",
}  # fmt: skip
ALLOWED_ATTRIBUTES = {"style", "open", "title", "src", "alt"}
VOID_TAGS = {"br", "img", "meta", "hr"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that tags are closed in order."""

    def __init__(self, markup: str):
        super().__init__()
        self.tags, self.attributes, self.words, self.still_open = [], [], [], []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID_TAGS:
            self.still_open.append(tag)

    def handle_endtag(self, tag):
        assert self.still_open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def values(self, wanted):
        return [value for _, name, value in self.attributes if name == wanted]


@pytest.mark.parametrize("name", CHECKS)
def test_only_what_survives_a_sanitizer_is_used(name):
    markup = render_html(CHECKS[name])
    reader = Reader(markup)
    assert reader.still_open == []
    assert set(reader.tags) <= ALLOWED_TAGS
    assert {attribute for _, attribute, _ in reader.attributes} <= ALLOWED_ATTRIBUTES
    assert not [style for style in reader.values("style") if "var(" in style or "url(" in style]


@pytest.mark.parametrize("name", CHECKS)
def test_nothing_is_asked_of_a_server(name):
    for markup in (render_html(CHECKS[name]), render_page(CHECKS[name])):
        assert all(source.startswith("data:image/") for source in Reader(markup).values("src"))
        without_pictures = re.sub(r'src="data:image/[^"]*"', "", markup)
        assert not re.search(r"https?:|//[a-z]|@import|<link|<base", without_pictures)


def test_the_text_of_the_user_is_escaped():
    for markup in (render_html(samples.hostile_check()), render_page(samples.hostile_check())):
        assert "<script" not in markup
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in markup
        assert all(c.isprintable() or c == "\n" for c in markup)


def test_a_quote_does_not_end_an_attribute():
    leak = replace(samples.hook_leak(), path=RootPath('" onerror="alert(1)', (Step("a", "b", "", Status.LEAKED),)))
    reader = Reader(render_html(samples.only(leak)))
    assert {attribute for _, attribute, _ in reader.attributes} <= ALLOWED_ATTRIBUTES
    assert any('" onerror="alert(1)' in words for words in reader.words)


def test_the_path_is_drawn_without_a_picture_and_marks_where_to_let_go():
    markup = render_html(samples.only(samples.history_leak()))
    words = " ".join(" ".join(Reader(markup).words).split())
    for part in (
        "from notebook variable",
        "trainer",
        "expected Trainer",
        ".history",
        "[3] let go here",
        "._saved_self",
    ):
        assert part in words
    assert all(source.startswith("data:image/png") for source in Reader(markup).values("src"))


def test_more_than_20_rows_are_counted_and_the_view_is_named():
    check = replace(samples.leaky_check(), objects=samples.object_rows() * 9, runs=samples.make_runs((1,) * 200))
    markup = render_html(check)
    assert "7 more rows are in report.objects" in markup
    assert "180 more rows are in report.runs" in markup
    assert len(markup) < 160_000


def test_all_leaks_stand_in_a_table_and_those_of_one_line_and_cause_are_told_once():
    hooks = tuple(replace(samples.hook_leak(), sites=("train.py:3: hook()",), holder=f"h{n}") for n in range(13))
    markup = render_html(replace(samples.leaky_check(), leaks=hooks))
    assert [markup.count(f">h{n}<") for n in range(13)] == [2] + [1] * 12  # in the answer, and all in the table
    assert "All 13 places" in markup


@pytest.mark.parametrize("name", CHECKS)
def test_a_report_is_smaller_than_150_kb(name):
    assert len(render_html(CHECKS[name])) < 150_000


def test_several_checks_share_one_page():
    page = render_page(samples.leaky_check(), samples.clean_check(), title="both")
    assert "<title>both</title>" in page
    assert page.index("LEAK") < page.index("<hr>") < page.index("CLEAN")


def test_a_leak_without_advice_and_runs_of_birth_is_shown_without_them():
    leak = replace(samples.hook_leak(), advice="", kept=())
    markup = render_html(samples.only(leak))
    assert "<b>Change</b>" not in markup
    assert leak.reason in markup
    assert "run 1: 1 still alive" not in markup.partition("Objects (")[0]


def test_more_than_60_runs_are_told_in_numbers():
    leak = replace(samples.hook_leak(), kept=(1,) * 61)
    markup = render_html(samples.only(leak))
    assert "run 1: 1 still alive" not in markup
    assert "1 x61 objects, made by runs 1 to 61" in markup


def test_a_page_of_no_check_is_an_empty_page():
    assert "<title></title>" in render_page()


@pytest.mark.parametrize("colour", [ACCENT, CALM, GOOD, DOUBTFUL])
def test_a_colour_is_read_as_text_on_white_and_on_its_own_pale_ground(colour):
    ink = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    pale = [0.88 + 0.12 * part for part in ink]
    assert contrast(ink, [1, 1, 1]) >= contrast(ink, pale) >= 4.5


def contrast(ink: list[float], ground: list[float]) -> float:
    """The ratio of WCAG 2.2."""
    low, high = sorted((luminance(ink), luminance(ground)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: list[float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
