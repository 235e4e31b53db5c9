"""Draw cause, change and cure of the README's leak, with the words and the figures of two real reports.

Run it as ``python docs/images/make_cure_svg.py``: a quarter of a minute.
"""

import re
import textwrap
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from IPython.core.interactiveshell import InteractiveShell

from leaklab.render.advice import advice_of
from leaklab.text import signed_bytes

FOLDER = Path(__file__).parent
TARGET = FOLDER / "cause_change_cure.svg"
WIDTH, HEIGHT, MARGIN = 960, 290, 12
PANEL = (WIDTH - 4 * MARGIN) / 3
LETTER = 7.85
"""Width of one letter of code in pixels, at a size of 13."""
RED, GREEN, GREY, INK = "#b3261e", "#1e7040", "#5f6368", "#1f2328"
CODE = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_STEP = 10
"""Of so many runs one is drawn."""
FAINT = {RED: "#fdecea", GREEN: "#e6f4ea"}


def reports() -> tuple[Any, Any]:
    """Run the README's example under a check, change it as the report says, check again."""
    readme = (FOLDER.parent.parent / "README.md").read_text("utf-8")
    setup, cell = re.findall(
        r"^```python\n(import torch\n.*?)^```.*?^%%leakcheck[^\n]*\n(.*?)^```", readme, re.DOTALL | re.MULTILINE
    )[0]
    setup = setup.replace("%load_ext leaklab\n", "")
    shell: Any = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "leaklab")
    shell.run_cell(setup, store_history=True).raise_error()
    shell.run_cell_magic("leakcheck", "-q -v before", cell)
    old, new = (line.text for line in advice_of(shell.user_ns["before"].leaks[0]).diff)
    shell.run_cell(setup.replace(old, new), store_history=True).raise_error()
    shell.run_cell_magic("leakcheck", "-q -v after", cell)
    return shell.user_ns["before"], shell.user_ns["after"]


class Panel:
    """A column of the picture, written from top to bottom."""

    def __init__(self, number: int, title: str, colour: str) -> None:
        self.left = MARGIN + number * (PANEL + MARGIN)
        self.top = 84.0
        place = f'x="{self.left}" y="{MARGIN}" width="{PANEL:.1f}"'
        self.parts = [
            f'<rect {place} height="{HEIGHT - 2 * MARGIN}" rx="8" fill="#fff" stroke="#d0d7de"/>',
            f'<rect {place} height="5" rx="2.5" fill="{colour}"/>',
        ]
        at = f'x="{self.left + 14}" y="48" font-family="{SANS}" font-size="18" font-weight="600"'
        self.parts.append(f'<text {at} fill="{INK}">{escape(title)}</text>')

    def write(self, text: str, colour: str = INK, *, font: str = SANS, band: str = "", bold: bool = False) -> None:
        """Write *text* in lines that fit, on a *band* of colour if one is given."""
        wide = int((PANEL - 28) / LETTER)
        for line in textwrap.wrap(text, wide, subsequent_indent="  " if font == CODE else "") or [""]:
            if band:
                at = f'x="{self.left + 8}" y="{self.top - 13.5}" width="{PANEL - 16:.1f}" height="20"'
                self.parts.append(f'<rect {at} fill="{band}"/>')
            weight = ' font-weight="600"' if bold else ""
            self.parts.append(
                f'<text x="{self.left + 14}" y="{self.top}" font-family="{font}" font-size="13" '
                f'fill="{colour}"{weight} xml:space="preserve">{escape(line)}</text>'
            )
            self.top += 20
        self.top += 6

    def plot(self, before: list[float], after: list[float]) -> None:
        """Draw two levels, in bytes above that of the first run."""
        n = min(len(before), len(after))
        left, top, width, height = self.left + 14, self.top + 4, PANEL - 146, 104
        most = max(*before[:n], *after[:n], 1.0)
        bottom = top + height
        self.parts.append(f'<path d="M{left} {top}V{bottom}H{left + width}" fill="none" stroke="{GREY}"/>')
        for levels, colour, name in ((before, RED, "before"), (after, GREEN, "after")):
            points = [
                f"{left + width * i / (n - 1):.1f},{bottom - height * max(level, 0) / most:.1f}"
                for i, level in enumerate(levels[:n])
                if i % _STEP == 0 or i == n - 1
            ]
            self.parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
            y = float(points[-1].split(",")[1])
            words = f"{name} {signed_bytes(levels[n - 1])}"
            self.parts.append(
                f'<text x="{left + width + 4:.1f}" y="{min(y + 4, bottom - 2):.1f}" font-family="{SANS}" '
                f'font-size="12" fill="{colour}">{words}</text>'
            )
        self.top = bottom + 18
        self.write(f"native heap over {n} runs", GREY)


def picture(before: Any, after: Any) -> str:
    """Return the picture as SVG."""
    leak = before.leaks[0]
    advice = advice_of(leak)
    cause, change, cure = Panel(0, "Cause", RED), Panel(1, "Change", "#1f5fa8"), Panel(2, "Cure", GREEN)
    cause.write(f"LEAK  {before.verdict.reason.partition(';')[0]}".replace("`", ""), RED, bold=True)
    cause.write(advice.line)
    cause.write(advice.diff[0].text, font=CODE, band=FAINT[RED])
    for step in leak.path.steps:
        cause.write(f"{step.reference}  {step.kind}, {step.summary}", GREY, font=CODE)
    change.write(advice.words.replace("`", ""), bold=True)
    for line in advice.diff:
        colour = RED if line.sign == "-" else GREEN
        change.write(f"{line.sign} {line.text}", colour, font=CODE, band=FAINT[colour])
    change.write(f"Tried before it was shown: {advice.proof}.", GREY)
    cure.write(f"{after.verdict.outcome.value.upper()}  {after.verdict.reason.partition(':')[0]}", GREEN, bold=True)
    levels = [[float(level - one.runs.heap_bytes.iloc[0]) for level in one.runs.heap_bytes] for one in (before, after)]
    cure.plot(*levels)
    parts = "\n".join((*cause.parts, *change.parts, *cure.parts))
    said = "Three panels: the report of a leak, the changed line with its proof, the level of memory before and after"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">\n'
        f"{parts}\n</svg>\n"
    )


def main() -> None:
    """Write the picture."""
    TARGET.write_text(picture(*reports()), "utf-8")


if __name__ == "__main__":
    main()
