"""What the guards share: where the records lie, how each is read, and how a golden file is compared or written.

A golden file is compared character by character. Who changes the markup of pages and not what they say has
``LEAKLAB_WRITE_GOLDEN=markup`` write them: then no golden file is written that says something else than before.

Only the public face of leaklab is used here and in the tests of this folder, but for the last three functions below.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import typing
import zlib
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

import leaklab

HERE = Path(__file__).parent
RECORDS, GOLDEN, PUBLIC = HERE / "records", HERE / "golden", HERE / "public"
WRITES = os.environ.get("LEAKLAB_WRITE_GOLDEN") == "1"
WRITES_MARKUP = os.environ.get("LEAKLAB_WRITE_GOLDEN") == "markup"

FAKE_DOT = """#!/bin/sh
printf '<svg xmlns="http://www.w3.org/2000/svg" width="8pt" height="8pt" viewBox="0 0 8 8"><text>%s</text></svg>\\n' \\
  "dot of $(sed -E 's/o[0-9]{6,}/o/g' | cksum)"
"""
"""Stands on the PATH for Graphviz: the same picture on every machine, told apart by the sum of its source.

Objgraph names boxes by addresses, which are left out.
"""


def assert_golden(path: Path, text: str) -> None:
    """Compare *text* with the golden file, or write it where LEAKLAB_WRITE_GOLDEN=1 asks for that."""
    data = text.encode("utf-8", "backslashreplace")
    if WRITES:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        pytest.skip(f"written, not compared: {path.relative_to(HERE)}")
    assert path.exists(), f"{path.relative_to(HERE)} is missing: LEAKLAB_WRITE_GOLDEN=1 writes it, then read it"
    now, golden = data.decode("utf-8"), path.read_bytes().decode("utf-8")
    if path.suffix == ".html" and now != golden:
        assert reading(now) == reading(golden)
        if WRITES_MARKUP:
            path.write_bytes(data)
            pytest.skip(f"the markup was written, the words are the same: {path.relative_to(HERE)}")
        pytest.fail(f"the markup of {path.name} changed, its words did not: LEAKLAB_WRITE_GOLDEN=markup writes it")
    assert now.split("\n") == golden.split("\n")


def names(pattern: str) -> list[str]:
    return sorted(path.name for path in RECORDS.glob(pattern))


def load(name: str) -> Any:
    """Read the record in the file *name* as a user would, or, where there is no reader, as `rebuilt`."""
    path = RECORDS / name
    kind = name.partition("_")[0]
    if kind in ("check", "notebook"):
        return leaklab.load_report(path)
    if kind == "whyalive":
        return leaklab.WhyAlive.from_json(path)
    if kind == "autograd":
        return leaklab.AutogradReport.from_json(path)
    if kind == "ranks":
        return leaklab.RanksReport.load(path)
    if kind == "moment":
        return leaklab.HeapSnapshot.load(path)
    if kind in ("found", "heap", "kernel", "monitor", "process"):
        return leaklab.load(path)
    if name.endswith(".pickle"):
        return leaklab.load_cuda_snapshot(path)
    return rebuilt(name)


def rebuilt(name: str) -> Any:
    """Make a MemDiff or a run of its JSON, for which leaklab has no reader."""
    fields = json.loads((RECORDS / name).read_text("utf-8"))
    if name.startswith("memdiff"):
        record = typing.get_type_hints(leaklab.MemDiff)["record"]
        return leaklab.MemDiff(msgspec.convert(fields, record))
    run = leaklab.training_run(fields["name"], namespace={}, show=False)
    run.record = msgspec.convert(fields, _kind_of_run_records())
    return run


@functools.cache
def _kind_of_run_records() -> type:
    with leaklab.training_run("nothing", namespace={}, show=False) as run:
        pass
    return type(run.record)


def settled(text: str) -> str:
    """Take out of a page what differs between machines or is no text, and break its lines where blocks meet."""
    text = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]*", "data:image/png;base64,(PNG)", text)
    text = re.sub(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]*)", _decoded, text)
    text = re.sub(
        r'(<script type="application/json" data-leaklab="record">).*?(</script>)',
        r"\1(RECORD)\2",
        text,
        flags=re.DOTALL,
    )
    text = re.sub(r"(<script>).*?(</script>)", r"\1(SCRIPT)\2", text, flags=re.DOTALL)
    text = re.sub(r"'sha256-[A-Za-z0-9+/=]+'", "'sha256-(SCRIPT)'", text)
    return _with_styles_below(re.sub(rf">(?=</?(?:{'|'.join(BLOCKS)})\b)", ">\n", text))


BLOCKS = (
    "body", "br", "circle", "details", "div", "figure", "h1", "h2", "h3", "h4", "head", "hr", "html", "img", "li",
    "link", "main", "meta", "nav", "ol", "p", "path", "polyline", "pre", "rect", "script", "section", "style",
    "summary", "svg", "table", "tbody", "td", "text", "tfoot", "th", "thead", "title", "tr", "ul",
)  # fmt: skip
"""Before these a line may break, and what stands in two of them are two words."""
SAYING = ("alt", "aria-label", "charset", "content", "data-leaklab", "href", "http-equiv", "id", "open", "role", "src",
          "title")  # fmt: skip
"""What a tag says beside its text."""
ACTING = (
    "a",
    "button",
    "form",
    "iframe",
    "img",
    "input",
    "link",
    "meta",
    "object",
    "script",
    "style",
    "summary",
    "svg",
)
"""Tags that do more than lay text out: none comes or goes unseen."""


class _Reader(HTMLParser):
    """Reads a page aloud: every word, and each tag that says or does something."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.said: list[str] = []
        self._run = ""
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = [f"{name}={value!r}" for name, value in sorted(attrs) if name in SAYING or name.startswith("on")]
        if tag in BLOCKS or told or tag in ACTING:
            self.end_run()
        self._preformatted += tag == "pre"
        if told or tag in ACTING:
            self.said.append(f"<{' '.join((tag if tag in ACTING else '*', *told))}>")

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCKS:
            self.end_run()
        self._preformatted -= tag == "pre"

    def handle_data(self, data: str) -> None:
        self._run += data

    def end_run(self) -> None:
        # Indentation is said in code; elsewhere a browser shows one space for any number of them.
        self.said += self._run.rstrip().split("\n") if self._preformatted else self._run.split()
        self._run = ""


def reading(markup: str) -> list[str]:
    """Return what a page says and does, without how it is laid out: redesigned, it still reads so.

    One item for each word, for each line of code, and for each tag that has an address, an id, a role, a hint, or an
    effect.
    """
    reader = _Reader()
    reader.feed(re.sub(r"(?m)^s[0-9a-f]{8} .*\n?", "", markup))
    reader.close()
    reader.end_run()
    return reader.said


def _with_styles_below(text: str) -> str:
    """Write each style once, at the end, under a name that depends on nothing but itself: markup is half styles."""
    styles: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        name = f"s{zlib.crc32(match[1].encode()):08x}"
        styles[name] = match[1]
        return f'style="{name}"'

    body = re.sub(r'style="([^"]{10,})"', named, text)
    return body + "".join(f"\n{name} {style}" for name, style in sorted(styles.items(), key=lambda item: item[1]))


def _decoded(match: re.Match[str]) -> str:
    picture = base64.b64decode(match[1]).decode("utf-8")
    return "data:image/svg+xml;base64,(" + " ".join(re.findall(r">([^<>]+)<", picture)) + ")"


def script_of(page: str) -> str:
    """Return the script that `settled` takes out of a page."""
    found = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    return found[1] if found else ""


def parts(**texts: str) -> str:
    """Join texts under their names."""
    return "".join(f"#### {name}\n{text}{'' if text.endswith(chr(10)) else chr(10)}\n" for name, text in texts.items())


def headed(**fragments: str) -> str:
    """Join fragments of HTML under their names."""
    return "".join(f"<h1>{escape(name)}</h1>\n{fragment}\n" for name, fragment in fragments.items())


def shown(view: Any) -> str:
    """Return what a terminal shows of *view*; asserted to be what a notebook shows as text."""
    bundle = view._repr_mimebundle_()
    assert bundle["text/plain"] == str(view)
    return parts(repr=repr(view), str=str(view))


def fragment(view: Any) -> str:
    """Return what a notebook shows of *view*."""
    bundle = view._repr_mimebundle_()
    assert sorted(bundle) in (["text/html", "text/plain"], ["text/plain"])
    return settled(bundle.get("text/html", "(no HTML)")) + "\n"


def saved(view: Any, suffix: str, folder: Path) -> str:
    """Return what `save` writes to a file of that suffix."""
    path = folder / f"saved{suffix}"
    assert view.save(path) is None
    return path.read_bytes().decode("utf-8")


def table(frame: Any) -> str:
    """Return a DataFrame as text that no width of a terminal changes: its types, and its rows as CSV."""
    types = ", ".join(f"{name} {kind}" for name, kind in frame.dtypes.astype(str).items())
    return f"{frame.index.name or ''}: {types}\n{frame.to_csv(lineterminator=chr(10))}"


def tables(view: Any, *attributes: str) -> str:
    return parts(**{name: table(getattr(view, name)) for name in attributes})


def graph(picture: Any, *, markup: bool = True) -> str:
    """Return a graph in every form but its pixels."""
    numbers: dict[str, str] = {}
    dot = re.sub(r"\bo\d{6,}\b", lambda found: numbers.setdefault(found[0], f"o{len(numbers)}"), picture.dot)
    html = {"html": fragment(picture)} if markup else {}
    return parts(repr=repr(picture), alt=picture.alt, str=str(picture), dot=dot, **html)


def figure(drawn: Any) -> str:
    """Return what a matplotlib figure says: its words and its figures, not its pixels."""
    lines = []
    for axes in drawn.axes:
        titles = [axes.get_title(loc=place) for place in ("left", "center", "right")]
        legend = axes.get_legend()
        lines += [f"axes {' '.join(filter(None, titles))!r}", f"  x {axes.get_xlabel()!r}, y {axes.get_ylabel()!r}"]
        lines += [f"  legend {text.get_text()!r}" for text in (legend.get_texts() if legend else ())]
        for line in axes.lines:
            lines.append(f"  line {line.get_label()!r}: {_figures(line.get_xdata())}; {_figures(line.get_ydata())}")
        for bar in axes.patches:
            lines.append(f"  bar {_figures([*bar.get_xy(), bar.get_width(), bar.get_height()])}")
        lines += [f"  area {_named(area.get_label())}" for area in axes.collections]
        lines += [f"  text {text.get_text()!r}" for text in axes.texts]
    return "\n".join(lines) + "\n"


def _figures(values: Any) -> str:
    return " ".join(f"{float(value):.4g}" for value in values)


def _named(label: str) -> str:
    """Return *label*, but not what matplotlib calls what has none."""
    return "" if label.startswith("_child") else repr(label)


def paths_of(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield every field in a JSON value, with the type of what it holds."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths_of(item, f"{path}.{key}")
        return
    if isinstance(value, list):
        yield path, "list"
        for item in value:
            yield from paths_of(item, f"{path}[]")
        return
    yield path, "null" if value is None else type(value).__name__


def all_causes() -> list[str]:
    """Every slug that a leak can have as its cause: no public function lists them. Change the import when it moves."""
    from leaklab.render.words import CAUSES

    return list(CAUSES)


def strip_forms(report: Any) -> dict[str, str]:
    """What the live strip of a loop shows of a watch: no public function draws a record. Change the import as above."""
    from leaklab.strip.drawing import strip_html, strip_line, strip_text

    record = report.record
    text = parts(line=strip_line(record.status), text=strip_text(record))
    return {"text": text, "html": settled(strip_html(record)) + "\n"}


def strip_messages(report: Any) -> dict[str, Any]:
    """What the strip's page is sent."""
    from leaklab.strip.widget import levels_data, news_data, now_data

    record = report.record
    card = dict.fromkeys(("accelerator", "reserved"), "what is taken of a card now")
    return {"now": {**now_data(record.status), **card}, "news": news_data(record), "levels": levels_data(record.levels)}
