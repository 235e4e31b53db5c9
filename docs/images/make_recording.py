"""Record the README's example, as a terminal shows it: an SVG of four frames, and the two texts of the README.

Run it as ``python docs/images/make_recording.py``: a quarter of a minute. Words and figures of picture and README come
from one run, so that they agree.
"""

import io
import os
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from IPython.core.interactiveshell import InteractiveShell

from leaklab.render.advice import advice_of
from leaklab.reports.check_text import card_text
from leaklab.text import in_columns

FOLDER = Path(__file__).parent
README, TARGET = FOLDER.parent.parent / "README.md", FOLDER / "recording.svg"
N_COLUMNS, N_ROWS = 92, 14
LETTER, LINE, MARGIN = 8.45, 20, 16
"""Pixels: the width of a letter of 14 px in any of the fonts below, at most."""
SECONDS = (3, 3, 6, 5)
"""How long each frame is seen."""
_ANSWER = 2  # the frame that stands where nothing moves
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
LOOKS = (
    (re.compile(r"^(LEAK)  "), "bad"),
    (re.compile(r"^(CLEAN)  "), "good"),
    (re.compile(r"^ {16}(- .*)"), "bad"),
    (re.compile(r"^ {16}(\+ .*)"), "good"),
    (re.compile(r"^( {2}(?:line|change|proof) )"), "faint"),
    (re.compile(r"^(In \[\d+\]: |   \.\.\.: )"), "faint"),
    (re.compile(r"^(leaklab: .*)"), "faint"),
)
STYLE = """
.paper {fill: #ffffff; stroke: #d0d7de} text {fill: #1f2328} .bad {fill: #b3261e} .good {fill: #1e7040}
.faint {fill: #5f6368}
@media (prefers-color-scheme: dark) {
.paper {fill: #0d1117; stroke: #30363d} text {fill: #e6edf3} .bad {fill: #ff8a80} .good {fill: #7ee2a8}
.faint {fill: #9198a1} }
"""
Frame = list[str]


class Terminal(io.StringIO):
    """Takes what is printed, and says that it is a terminal: so a check draws its line."""

    def isatty(self) -> bool:
        """Return that it is one."""
        return True


def recorded(run: Callable[[], object]) -> str:
    """Return what *run* prints."""
    terminal, before = Terminal(), sys.stdout
    sys.stdout = terminal
    os.environ["COLUMNS"] = "300"  # so that its line is not cut
    try:
        run()
    finally:
        sys.stdout = before
    return terminal.getvalue()


def record() -> tuple[str, str, list[Frame]]:
    """Run the README's example under a check, change it as the report says, check again.

    Returns:
        The report's answer, the sentence on what became of the leak, and the frames of the picture.
    """
    setup, cell = re.findall(
        r"^```python\n(import torch\n.*?)^```.*?^(%%leakcheck[^\n]*\n.*?)^```",
        README.read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )[0]
    setup = setup.replace("%load_ext leaklab\n", "")
    magic, body = cell.rstrip("\n").split("\n", 1)
    options = magic.removeprefix("%%leakcheck ")
    shell: Any = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "leaklab")

    def define(source: str) -> None:
        shell.run_cell(source, store_history=True).raise_error()

    def check(variable: str) -> str:
        words = options.replace("-v report", f"-v {variable}")
        return recorded(lambda: shell.run_cell_magic("leakcheck", words, body))

    define(setup)
    passing = [line.rstrip() for line in check("before").split("\r") if line.startswith("leaklab: ")]
    before = shell.user_ns["before"]
    old, new = (line.text for line in advice_of(before.leaks[0]).diff)
    define(setup.replace(old, new))
    again = check("after")
    after = shell.user_ns["after"]
    fate = str(before.compare(after))
    if fate not in again:
        msg = f"the second report does not begin with {fate!r}"
        raise RuntimeError(msg)
    with in_columns(N_COLUMNS):
        answer, second = card_text(before.record).rstrip("\n"), card_text(after.record).rstrip("\n")
    prompts = [f"In [2]: {magic}", f"   ...: {body}"]
    known = next((line for line in passing if "growing so far" in line), passing[-1])
    frames = [
        prompts,
        [*prompts, "", *wrapped(known)],
        [*prompts, "", *answer.splitlines()],
        [f"In [3]: {new.strip()}      # in train_step", f"In [4]: {magic}", f"   ...: {body}", "", *wrapped(fate), "",
         *second.splitlines()],
    ]  # fmt: skip
    return answer, fate, frames


def wrapped(text: str) -> list[str]:
    """Return *text* in lines of the picture."""
    return textwrap.wrap(text, N_COLUMNS)


def drawn(number: int, line: str) -> str:
    """Return *line* as the text of row *number*, what is known of it in its colour."""
    parts = escape(line)
    for pattern, look in LOOKS:
        if found := pattern.match(line):
            start, end = found.span(1)
            marked = f'<tspan class="{look}">{escape(line[start:end])}</tspan>'
            parts = escape(line[:start]) + marked + escape(line[end:])
            break
    y = MARGIN + LINE * (number + 1) - 6
    return f'<text x="{MARGIN}" y="{y}" xml:space="preserve">{parts}</text>'


def picture(frames: list[Frame]) -> str:
    """Return the frames as one SVG: one after the other, the answer alone where nothing may move."""
    total, begins = sum(SECONDS), [sum(SECONDS[:number]) for number in range(len(SECONDS))]
    rules, groups = [], []
    for number, (frame, begin, seconds) in enumerate(zip(frames, begins, SECONDS, strict=True)):
        start, end = (f"{100 * moment / total:.2f}%" for moment in (begin, begin + seconds))
        shown = f"{start}, {end} {{visibility: visible}}"
        behind = f" {100 * (begin + seconds) / total + 0.01:.2f}% {{visibility: hidden}}"
        hidden = "" if number == len(frames) - 1 else behind
        rules.append(f"@keyframes f{number} {{0% {{visibility: hidden}} {shown}{hidden}}}")
        at_rest = "visible" if number == _ANSWER else "hidden"
        rules.append(f".f{number} {{visibility: {at_rest}; animation: f{number} {total}s step-end infinite}}")
        groups.append(f'<g class="f{number}">{"".join(drawn(row, line) for row, line in enumerate(frame))}</g>')
    still = "@media (prefers-reduced-motion: reduce) {g {animation: none !important}}"
    width, height = round(N_COLUMNS * LETTER) + 2 * MARGIN, N_ROWS * LINE + 2 * MARGIN
    said = "A terminal: a cell is checked, the report names list, line and change, and the changed cell is proved"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{said}" font-family="{FONT}" font-size="14">\n<style>{STYLE}'
        + "\n".join((*rules, still))
        + f'</style>\n<rect class="paper" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="8"/>\n'
        + "\n".join(groups)
        + "\n</svg>\n"
    )


def main() -> None:
    """Write the picture and the texts of the README."""
    answer, fate, frames = record()
    too_long = [frame for frame in frames if len(frame) > N_ROWS]
    if too_long:
        msg = f"a frame has more than {N_ROWS} lines: {too_long[0]}"
        raise RuntimeError(msg)
    TARGET.write_text(picture(frames), "utf-8")
    page = README.read_text("utf-8")
    page = re.sub(r"```text\nLEAK  .*?```", lambda _: f"```text\n{answer}\n```", page, count=1, flags=re.DOTALL)
    page = re.sub(r"```text\n[^\n]*: fixed\n```", lambda _: f"```text\n{fate}\n```", page, count=1)
    README.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
