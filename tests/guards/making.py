"""What the guards share: where the records lie, how each is read, and how a golden file is compared or written.

Only the public face of leaklab is used here and in the tests of this folder.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import typing
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import leaklab

HERE = Path(__file__).parent
RECORDS, GOLDEN, PUBLIC = HERE / "records", HERE / "golden", HERE / "public"
WRITES = os.environ.get("LEAKLAB_WRITE_GOLDEN") == "1"

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
    assert data.decode("utf-8").split("\n") == path.read_bytes().decode("utf-8").split("\n")


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
    """Take out of a page what differs between machines or is no text, and break its lines where tags meet."""
    text = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]*", "data:image/png;base64,(PNG)", text)
    text = re.sub(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]*)", _decoded, text)
    text = re.sub(r'(<script type="application/json"[^>]*>).*?(</script>)', r"\1(RECORD)\2", text, flags=re.DOTALL)
    text = re.sub(r"(<script>).*?(</script>)", r"\1(SCRIPT)\2", text, flags=re.DOTALL)
    text = re.sub(r"'sha256-[A-Za-z0-9+/=]+'", "'sha256-(SCRIPT)'", text)
    return _with_styles_below(text.replace("><", ">\n<"))


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


def all_causes() -> list[str]:
    """Every slug that a leak can have as its cause.

    The one import of leaklab's internals in this folder: no public function lists them. Change it when that moves.
    """
    from leaklab.render import CAUSES

    return list(CAUSES)
