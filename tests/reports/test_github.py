"""What is left of an exported report where GitHub shows it: no style, no script, no picture of our own, few tags.

The rules are those of the filter that GitHub published, https://github.com/gjtorikian/html-pipeline
(lib/html_pipeline/sanitization_filter.rb), but harder on us: the contents of a tag that is dropped stay, so that a
style sheet or a script would stand between the words.
"""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import markdown_it
import nbformat
import nh3
import pytest
import samples

from leaklab.explorer.session import Session
from leaklab.explorer.widget import ExplorerWidget
from leaklab.model.check import KeptCheck, NotebookChecks
from leaklab.reports.check import LeakReport
from leaklab.reports.check_html import render_html
from leaklab.reports.notebook import NotebookReport
from leaklab.reports.notebook_export import render_markdown

ROOT = Path(__file__).parents[2]
HEADINGS = {f"h{level}" for level in range(1, 7)}
BLOCKS = {"div", "p", "pre", "ol", "ul", "li", "blockquote", "hr", "br", "details", "summary", "dl", "dt", "dd", "tr"}
TABLES = {"table", "thead", "tbody", "tfoot", "td", "th"}
INLINE = {"b", "i", "strong", "em", "a", "code", "img", "tt", "ins", "del", "sup", "sub", "kbd", "q", "samp", "var"}
INLINE |= {"s", "strike", "ruby", "rt", "rp", "span", "mark", "small", "time", "wbr", "abbr", "cite", "dfn", "bdo"}
ALLOWED = HEADINGS | BLOCKS | TABLES | INLINE
ATTRIBUTES = {"*": {"title", "alt", "align", "open", "width", "height"}, "a": {"href"}, "img": {"src"}}
NEW_LINE = BLOCKS | HEADINGS | {"table"}
TOLD = (
    "LEAK 2 leaks leave 32.2 KiB every run, the largest in trainer.history",
    "trainer.history grows by 2 tensors (32.0 KiB) every run",
    "cell 4, line 7",
    "Each entry of trainer.history is a loss that still carries its graph",
    "before: trainer.history.append(loss)",
    "after: trainer.history.append(loss.item())",
)
"""What the sample's report has to say, in the order in which it is read."""
PATH = (
    "from: notebook variable",
    "expected trainer Trainer",
    "expected .history list, 13 entries",
    "leaked [3]",
    "<== here",
    "leaked ._saved_self torch.Tensor (64, 128) float32 cpu",
)
DRAWN_PATH = (
    "from notebook variable",
    "trainer",
    "expected Trainer a variable of this notebook",
    ".history",
    "expected list, 13 entries",
    "[3] let go here",
    "leaked torch.Tensor () float32 cpu made in run 3, still here after run 12",
    "._saved_self",
    "leaked torch.Tensor (64, 128) float32 cpu",
)


def sanitized(markup):
    return nh3.clean(
        markup, tags=ALLOWED, attributes=ATTRIBUTES, clean_content_tags=set(), url_schemes={"http", "https", "mailto"}
    )


class Reader(HTMLParser):
    """The lines that a reader sees, and what stands in for pictures."""

    def __init__(self, markup):
        super().__init__()
        self.text, self.alts = "", []
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        self.text += "\n" if tag in NEW_LINE else " " if tag in ("td", "th") else ""
        self.alts += [value for name, value in attrs if name == "alt"]

    def handle_endtag(self, tag):
        self.text += "\n" if tag in NEW_LINE else ""

    def handle_data(self, data):
        self.text += data

    @property
    def lines(self):
        return [" ".join(line.split()) for line in self.text.splitlines() if line.strip()]


def parsed(text):
    """The HTML of Markdown with GitHub's tables; HTML in it is let through, to the sanitizer."""
    return markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)


def of_markdown(text):
    return Reader(sanitized(parsed(text)))


def of_notebook(report, file):
    """As a notebook keeps the output of a cell, read back from its file."""
    output = nbformat.v4.new_output("display_data", report._repr_mimebundle_())
    cell = nbformat.v4.new_code_cell("%%leakcheck\nstep()", outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), file)
    return Reader(sanitized(nbformat.read(file, 4).cells[0].outputs[0].data["text/html"]))


def in_order(lines, wanted):
    """Those of *wanted* that are in no line after the line of the one before it."""
    missing, rest = [], iter(lines)
    for words in wanted:
        seen = list(rest)
        places = [place for place, line in enumerate(seen) if words in line]
        missing += [] if places else [words]
        rest = iter(seen[places[0] + 1 :] if places else seen)
    return missing


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Every way in which a report gets to GitHub."""
    folder = tmp_path_factory.mktemp("github")
    report = LeakReport(samples.leaky_check())
    report.save(folder / "one.md")
    NotebookReport(NotebookChecks("training", (KeptCheck(report.check, "In [3]"),))).save(folder / "all.md")
    return {
        "one.md": of_markdown((folder / "one.md").read_text("utf-8")),
        "all.md": of_markdown((folder / "all.md").read_text("utf-8")),
        "notebook": of_notebook(report, folder / "notebook.ipynb"),
    }


WAYS = pytest.mark.parametrize("way", ["one.md", "all.md", "notebook"])


@WAYS
def test_verdict_rate_holder_path_and_advice_are_read_in_this_order(shown, way):
    assert in_order(shown[way].lines, (*TOLD, *(DRAWN_PATH if way == "notebook" else PATH))) == []


@WAYS
def test_no_word_of_a_style_or_a_script_stands_in_the_text(shown, way):
    drawn = render_html(samples.leaky_check())
    declarations = {part.strip() for style in re.findall(r'style="([^"]*)"', drawn) for part in style.split(";")} - {""}
    assert "border-collapse:collapse" in declarations
    assert [words for words in (*declarations, "</", "&lt;", "&#") if words in shown[way].text] == []


def test_the_rules_would_show_a_style_sheet_and_a_script():
    markup = "<style>p {color: red}</style><script>go()</script><p style='color:red' class='x'>words</p>"
    assert sanitized(markup) == "p {color: red}go()<p>words</p>"


def test_the_plot_of_the_runs_is_told_where_pictures_of_our_own_are_dropped():
    markup = sanitized(render_html(samples.leaky_check()))
    assert "data:" not in markup
    assert any("objects, made by runs 1 to 12 and still alive" in alt for alt in Reader(markup).alts)


def test_hostile_names_stay_words():
    markup = parsed(render_markdown(samples.hostile_check()))
    assert "<script" not in markup
    assert samples.ATTACK in of_markdown(render_markdown(samples.hostile_check())).text


def test_the_pictures_of_the_readme_are_there_and_small():
    text = (ROOT / "README.md").read_text("utf-8")
    names = re.findall(r'(?:src|srcset)="([^"]+)"|!\[[^]]*\]\(([^)]+)\)', text)
    sizes = {name: (ROOT / name).stat().st_size for name in map("".join, names)}
    assert "docs/images/recording.svg" in sizes
    assert [name for name, size in sizes.items() if size > 250_000] == []


def test_in_place_of_the_explorer_a_sentence_is_read():
    widget = ExplorerWidget(Session(LeakReport(samples.leaky_check()), None, {}))
    try:
        bundle, _ = widget._repr_mimebundle_()
    finally:
        widget.close()
    assert "run this cell again; the report is shown above" in bundle["text/plain"]


def test_the_recording_of_the_readme_and_its_text_are_of_one_run():
    """Every line of both texts stands in the picture, word for word, and the picture has light and dark colours."""
    page, picture = (path.read_text("utf-8") for path in (ROOT / "README.md", ROOT / "docs/images/recording.svg"))
    shown = [html.unescape(re.sub(r"<[^>]*>", "", text)) for text in re.findall(r"<text.*?</text>", picture)]
    answer, fate = (
        re.search(pattern, page, re.DOTALL)[1]
        for pattern in (r"```text\n(LEAK  .*?)\n```", r"\n([^\n]*now 0: fixed)\n")
    )
    assert [line for line in (*answer.splitlines(), fate) if line not in shown] == []
    assert "prefers-color-scheme: dark" in picture
    assert "prefers-reduced-motion" in picture
