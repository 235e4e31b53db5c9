"""Changes are tried in a copy of the process while the kernel is free, where somebody sits before the notebook."""

import queue
import time

import pytest
from jupyter_client.manager import start_new_kernel

SECONDS = 120.0
SETUP = """
%load_ext leaklab
import time
history = []
"""
CELL = "%%leakcheck -v report -n 8\ntime.sleep(0.2)\nhistory.append(bytearray(50_000))"


@pytest.fixture(scope="module")
def kernel():
    manager, client = start_new_kernel(kernel_name="python3")
    client.execute_interactive(SETUP, timeout=SECONDS, allow_stdin=False)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def shown_until_idle(kernel, code, *, allow_stdin=True):
    """Run *code*; return what was shown or printed until it had ended, each text once."""
    asked, shown = kernel.execute(code, allow_stdin=allow_stdin), []
    while True:
        message = kernel.get_iopub_msg(timeout=SECONDS)
        kind, content = message["msg_type"], message["content"]
        shown += [words] if (words := words_of(kind, content)) else []
        is_of_cell = message["parent_header"].get("msg_id") == asked
        if is_of_cell and kind == "status" and content["execution_state"] == "idle":
            return shown


def words_of(kind, content):
    if kind in ("display_data", "update_display_data", "execute_result"):
        return content["data"]["text/plain"]
    return content.get("text", "") if kind == "stream" else ""


def next_report(kernel):
    """Return the next text that begins with a verdict."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            message = kernel.get_iopub_msg(timeout=1.0)
        except queue.Empty:
            continue
        if (words := words_of(message["msg_type"], message["content"])).startswith("LEAK"):
            return words
    pytest.fail("no report came")


def test_the_kernel_is_free_while_changes_are_tried_and_the_change_comes_into_the_report(kernel):
    shown = shown_until_idle(kernel, CELL)
    reports = [text for text in shown if text.startswith("LEAK")]
    assert len(reports) == 1
    assert "proof " not in reports[0]
    assert "the kernel is free" in shown[-1]
    before = "print(report._record.check.leaks[0].cures, report.so_far.verdict.outcome.value)"
    assert shown_until_idle(kernel, before) == ["() leak\n"]
    complete = next_report(kernel)
    assert "change " in complete
    assert "-> 0 B every run" in complete
    shown = shown_until_idle(kernel, "print(report.leaks[0].cures[0].outcome.value)")
    assert shown[-1] == "cured\n"
    assert any("report.apply(0) writes" in text for text in shown[:-1])  # the button, in the place of the line


def test_whoever_asks_for_the_report_gets_a_complete_one(kernel):
    shown_until_idle(kernel, CELL)
    asked = (
        "import pickle\nagain = pickle.loads(pickle.dumps(report))\n"
        "print(again == report, again.leaks[0].cures[0].outcome.value)"
    )
    assert "True cured\n" in shown_until_idle(kernel, asked)


def test_the_next_check_waits_for_the_trials_of_the_last(kernel):
    shown_until_idle(kernel, CELL)
    shown = shown_until_idle(kernel, "%%leakcheck -v other -n 8\nx = bytearray(1000)")
    complete = next(place for place, text in enumerate(shown) if "-> 0 B every run" in text)
    assert any("the changes of the last check are still being tried" in text for text in shown[:complete])
    assert any(text.startswith("CLEAN") for text in shown[complete:])


@pytest.mark.parametrize("options", ["-q", "--redact"])
def test_a_report_that_is_used_at_once_is_complete_when_the_cell_ends(kernel, options):
    shown_until_idle(kernel, CELL.replace("-v", f"{options} -v"))
    assert shown_until_idle(kernel, "print(type(report._record).__name__)") == ["Check\n"]


def test_where_nobody_sits_before_the_notebook_the_report_is_complete_when_the_cell_ends(kernel):
    shown = shown_until_idle(kernel, CELL, allow_stdin=False)
    assert not any("the kernel is free" in text for text in shown)
    assert shown_until_idle(kernel, "print(type(report._record).__name__)") == ["Check\n"]
