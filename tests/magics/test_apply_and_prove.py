"""What the button *Apply and prove* does when the page has written the change into its cell."""

from __future__ import annotations

from typing import Any

import pytest
from notebook_shell import Notebook

from leaklab.magics.prove import ProveWidget, prove_button
from leaklab.model import Outcome
from leaklab.reports.check import AppliedChange, LeakReport

pytestmark = pytest.mark.untraced

_CELL = "history.append(torch.ones(200, 10).sum())"


@pytest.fixture
def report(notebook: Notebook) -> LeakReport:
    """The report of a cell whose change held."""
    notebook.run("import torch\nhistory = []")
    found: LeakReport = notebook.check(_CELL, "--cure --name epoch", cures=True)
    return found


def test_the_check_runs_again_with_the_change_and_its_report_takes_the_place(
    notebook: Notebook, report: LeakReport
) -> None:
    shown: list[Any] = []
    button = prove_button(notebook.shell, report, shown.append)
    assert button is not None
    assert "report.apply(0)" in repr(button)  # what is read where no widget can be shown
    assert button.shown["state"] == "offered"
    assert button.shown["old"].endswith(_CELL)
    assert button.shown["changed"].endswith("history.append(torch.ones(200, 10).sum().item())")
    button._received({"did": "applied"}, [])
    assert button.shown["words"].startswith("proven: "), button.shown
    assert [one.leaked for one in shown] == [False]
    button._received({"did": "undone"}, [])
    assert button.shown["state"] == "offered"
    button._received({"did": "not found"}, [])
    assert "nothing was written" in button.shown["words"]
    button._received("anything else", [])
    button.close()
    assert button.comm is None


def test_nothing_is_called_proven_that_the_new_check_leaves_open(notebook: Notebook) -> None:
    notebook.run("n, ring = 0, {}")
    undecided = notebook.check("n += 1\nring[f'slot {n % 30}'] = bytearray(5000)", "-n 6")
    assert undecided.verdict.outcome is Outcome.INCONCLUSIVE
    button = ProveWidget(AppliedChange("x = 1", "x = 2"), 1, "this cell", lambda: undecided)
    assert "report.apply(1)" in repr(button)
    button._received({"did": "applied"}, [])
    assert button.shown["words"].startswith("written, but not proven"), button.shown
    button.close()


def test_no_button_is_offered_where_no_change_held(notebook: Notebook) -> None:
    notebook.run("import torch\nhistory = []")
    report = notebook.check(_CELL)
    assert report.leaked
    assert prove_button(notebook.shell, report, lambda _: None) is None
