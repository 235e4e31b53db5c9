"""The button *Apply and prove* below a report: it writes the change that held into its cell, and checks again.

Only the page can write into a cell that is not running: the kernel's own way, ``set_next_input``, writes in the place
of the cell that has just been run, and is heard when that ends. So the page's side of a widget finds the cell by its
text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from typing import Any

import traitlets
from anywidget import AnyWidget
from IPython.utils.capture import capture_output

from leaklab.errors import ChangeError, LeaklabError
from leaklab.model import Leak, Outcome
from leaklab.render.advice import cure_of
from leaklab.reports.check import AppliedChange, LeakReport, changed_cell
from leaklab.text import clip, well_formed

_MAGIC = "%%leakcheck"
_WORDS_OF = {
    Outcome.CLEAN: "proven: clean",
    Outcome.BOUNDED: "proven: bounded",
    Outcome.LEAK: "written, and the cell still leaks",
    Outcome.INCONCLUSIVE: "written, but not proven: the new check is inconclusive, and says why",
}
_BUTTONS, _MOST_BUTTONS = "_leaklab_buttons", 20
"""So many buttons of a notebook can be pressed; they are kept by its shell."""


@cache
def _read(name: str) -> str:
    """Return a file of the page; as text: anywidget, given the name of a file, never lets go of the widget."""
    return files(__package__).joinpath("js", name).read_text("utf-8")


class ProveWidget(AnyWidget):
    """The page's side is ``js/prove.js``; it sends ``{"did": ...}``: ``applied``, ``undone``, ``not found``.

    Attributes:
        shown: What the page shows: both texts, which cell it is, whether the change is offered or applied, and words.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    shown = traitlets.Dict().tag(sync=True)

    def __init__(self, change: AppliedChange, number: int, where: str, prove: Callable[[], LeakReport]) -> None:
        self._change, self._number, self._where, self._prove = change, number, where, prove
        super().__init__(_esm=_read("prove.js"), _css=_read("prove.css"), shown=self._now("offered", ""))
        self.on_msg(ProveWidget._received)

    def __repr__(self) -> str:
        """Return what is read where no widget can be shown."""
        return f"report.apply({self._number}) writes the change into a cell; running that proves it"

    def close(self) -> None:
        """Close this widget and the one inside it."""
        if self.comm is None:
            return
        self.on_msg(ProveWidget._received, remove=True)
        if self.layout is not None:
            self.layout.close()
        super().close()

    def _now(self, state: str, words: str) -> dict[str, str]:
        old, new = map(well_formed, (self._change.old, self._change.new))
        return {"old": old, "changed": new, "where": self._where, "state": state, "words": well_formed(words)}

    def _received(self, content: Any, _buffers: object) -> None:
        did = content.get("did") if type(content) is dict else None
        if did == "not found":
            words = f"{self._where} has changed since the check: nothing was written"
            words += f"; report.patch({self._number}) shows the change"
            self.shown = self._now("gone", words)
        elif did == "undone":
            self.shown = self._now("offered", "the old text is back; the report is about the changed text")
        elif did == "applied":
            self.shown = self._now("checking", f"written into {self._where}; the check runs again ...")
            self.shown = self._now("applied", self._outcome())

    def _outcome(self) -> str:
        """Check again, and return what came of it."""
        if threading.current_thread() is not threading.main_thread():
            return f"written; run {self._where} to check it"  # torch has a state of its own in each thread
        try:
            report = self._prove()
        except LeaklabError as error:
            return f"written, but not checked: {clip(str(error))}"
        except KeyboardInterrupt:
            return "written; the check was interrupted"
        except Exception as error:  # noqa: BLE001 - of the user's cell, whatever it is
            return f"written, but the check failed: {clip(repr(error))}"
        return _WORDS_OF[report.verdict.outcome]


def prove_button(shell: Any, report: LeakReport, show: Callable[[LeakReport], object]) -> ProveWidget | None:
    """Return the button for the first leak of *report* that a change in one cell cured; None without one.

    Args:
        shell: The user's shell.
        report: Complete.
        show: Puts the new report in the place of the old one.
    """
    for number, leak in enumerate(report.leaks):
        try:
            change = changed_cell(leak, number)
        except ChangeError:
            continue
        widget = ProveWidget(change, number, _where(leak), partial(_proven, shell, change, report, show))
        buttons: list[ProveWidget] = vars(shell).setdefault(_BUTTONS, [])
        buttons.append(widget)
        while len(buttons) > _MOST_BUTTONS:  # ipywidgets keeps for ever what is not closed
            buttons.pop(0).close()
        return widget
    return None


def _where(leak: Leak) -> str:
    cure = cure_of(leak)
    return cure.changes[0].where.partition(", line")[0] if cure is not None else ""


def _proven(shell: Any, change: AppliedChange, report: LeakReport, show: Callable[[LeakReport], object]) -> LeakReport:
    """Check again with the changed cell, show the report in the place of the one before, and return it."""
    from leaklab.explorer.in_notebook import CheckedCell, check_cell_again, find_cell

    new, cell = change.new, find_cell(shell, report.record.settings.name)
    if new.lstrip().startswith(_MAGIC):
        head, _, body = new.lstrip().partition("\n")
        cell = CheckedCell(head.removeprefix(_MAGIC).strip(), body)
    else:
        with capture_output():
            shell.run_cell(new, store_history=True).raise_error()
    if cell is None:
        msg = "no cell with the name of this check was run in this kernel: run it here first"
        raise ChangeError(msg)
    again = check_cell_again(shell, cell)
    show(again)
    return again
