"""``%%leakcheck`` in a real shell: its options, what it shows, what it stores."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace

import pytest
import torch
from notebook_shell import Notebook

from leaklab.magics.leakcheck import LeakLab
from leaklab.magics.options import parse_options
from leaklab.model import Outcome, Settings
from leaklab.reports.check import SUFFIXES, LeakReport

pytestmark = pytest.mark.untraced

LEAKY = "history.append(torch.ones(1000))"
QUICK = "-n 6 --no-sites --no-cure"
"""Where it is not the check that is tested; one test makes it with its defaults."""


@pytest.fixture
def history(notebook: Notebook) -> list[object]:
    notebook.user["torch"] = torch
    notebook.user["history"] = []
    return notebook.user["history"]


def test_the_report_of_a_leaky_cell_is_shown_once_and_names_its_holder(notebook, history):
    shown = notebook.run(f"%%leakcheck\n{LEAKY}").out
    assert shown.count("LEAK ") == 1
    assert "LEAK  `history` grows by 1 tensor (" in shown


def test_the_line_magic_checks_one_statement_behind_its_options(notebook, history):
    shown = notebook.run(f"%leakcheck {QUICK} -v found {LEAKY}").out
    assert "LEAK  `history` grows by 1 tensor (" in shown
    assert notebook.user["found"].verdict.n_runs == 6
    assert len(history) == 7


def test_help_tells_every_option(notebook):
    shown = notebook.run("%leakcheck?").out
    for option in ("-n", "-w", "-t", "--setup", "--name", "-q", "-o", "-v", "-T", "--show-output", "--fail-on-leak"):
        assert option in shown
    assert "Run the cell repeatedly and say whether it leaks" in shown


OPTIONS = {
    "": {},
    "-n 6": {"max_runs": 6},
    "--runs 6": {"max_runs": 6},
    "-w 3": {"n_warmups": 3},
    "-t 0.5": {"max_seconds": 0.5},
    "--name 'my first check'": {"name": "my first check"},
    "--no-summaries": {"summaries": False},
    "--sites": {"sites": True},
    "--no-sites": {"sites": False},
    "--cure": {"cure": True},
    "--no-cure": {"cure": False},
    "--statements": {"statements": True},
    "--min-bytes 4KiB": {"min_bytes": 4096},
}


@pytest.mark.parametrize(("line", "fields"), OPTIONS.items(), ids=OPTIONS)
def test_each_option_is_a_field_of_the_settings(notebook, line, fields):
    magics = notebook.shell.find_cell_magic("leakcheck").__self__
    assert magics._settings(parse_options(LeakLab.leakcheck, line, SUFFIXES)) == replace(Settings(), **fields)


@pytest.mark.parametrize(("options", "n_calls"), [("-n 6", 7), ("-n 6 -w 3", 9)])
def test_the_measured_runs_are_limited_and_the_warm_up_comes_on_top(notebook, history, options, n_calls):
    assert notebook.check(LEAKY, f"--no-sites {options}").verdict.n_runs == 6
    assert len(history) == n_calls


def test_the_report_is_shown_with_its_name_and_stored_and_is_no_value_of_the_cell(notebook, history):
    typed = notebook.run(f"%%leakcheck {QUICK} --name 'my first check' -v found\n{LEAKY}")
    assert '"my first check"' in typed.out
    assert notebook.user["found"].leaked
    assert typed.result.result is None
    assert notebook.user["Out"] == {}
    assert notebook.user.get("_", "") == ""


def test_q_shows_nothing(notebook, history):
    assert notebook.run(f"%%leakcheck {QUICK} -q\n{LEAKY}").out == ""


def test_o_returns_the_report(notebook, history):
    result = notebook.run(f"%%leakcheck {QUICK} -q -o\n{LEAKY}").result.result
    assert type(result) is LeakReport
    assert result.leaked


def test_the_report_is_saved_in_the_form_its_suffix_asks_for(notebook, history, tmp_path):
    target = tmp_path / "a report.json"
    assert f"saved to {target}" in notebook.run(f"%%leakcheck {QUICK} -T '{target}'\n{LEAKY}").out
    assert json.loads(target.read_text(encoding="utf-8"))["verdict"]["outcome"] == "leak"


def test_t_ends_the_check_after_so_many_seconds(notebook, history):
    report = notebook.check(f"import time\ntime.sleep(0.06)\n{LEAKY}", "-t 0.2")
    assert 2 <= report.verdict.n_runs <= 8, "as long again, while a question is open"


def test_setup_runs_once_and_may_hold_quotes_and_blanks(notebook):
    notebook.check("words.append([])", "--no-sites -n 5 --setup \"words = ['a b'] ; n = 1\"")
    assert notebook.user["words"][0] == "a b"
    assert len(notebook.user["words"]) == 7


def test_output_of_the_first_run_only_is_shown(notebook):
    assert notebook.run("%%leakcheck -n 5\nprint('hel' + 'lo')").out.count("hello") == 1


@pytest.mark.parametrize(("options", "n_runs"), [("-w 0", 5), ("-w 2", 7)])
def test_show_output_shows_every_run(notebook, options, n_runs):
    assert notebook.run(f"%%leakcheck -n 5 {options} --show-output\nprint('hel' + 'lo')").out.count("hello") == n_runs


def test_the_last_expression_is_shown_once_and_not_kept(notebook):
    typed = notebook.run("%%leakcheck -n 5\n'hel' + 'lo'  # a remark")
    assert typed.out.count("'hello'") == 1
    assert notebook.user["Out"] == {}
    assert notebook.user.get("_", "") == ""


@pytest.mark.parametrize("last", ["'hel' + 'lo';", "'hel' + 'lo' ;\n# a remark\n"])
def test_a_semicolon_suppresses_the_last_expression(notebook, last):
    assert "'hello'" not in notebook.run(f"%%leakcheck -n 5\n{last}").out


def test_a_semicolon_in_a_comment_suppresses_nothing(notebook):
    assert "'hello'" in notebook.run("%%leakcheck -n 5\n'hel' + 'lo'  # once;").out


def test_names_that_the_cell_assigns_stay(notebook):
    notebook.check("answer = 42", "-n 5")
    assert notebook.user["answer"] == 42


def test_the_source_of_functions_defined_in_the_cell_is_known(notebook):
    notebook.check("def double(x):\n    return 2 * x\n", "-n 5")
    assert inspect.getsource(notebook.user["double"]) == "def double(x):\n    return 2 * x\n"


def test_lines_that_only_the_shell_understands_run_in_the_cell(notebook):
    notebook.check("x = 1\n%who\nx?", "-n 5")
    assert notebook.user["x"] == 1


def test_future_imports_are_legal_in_the_cell(notebook):
    notebook.check("from __future__ import annotations\ndef f(x: Unknown): ...\n", "-n 5")
    assert notebook.user["f"].__annotations__ == {"x": "Unknown"}


def test_braces_and_dollars_of_the_line_are_no_variables(notebook, history):
    notebook.user["x"] = "expanded"
    assert notebook.check(LEAKY, "-n 5 --name '$x {x}'").check.settings.name == "$x {x}"


def test_the_magic_may_be_called_from_code(notebook, history):
    notebook.run(f"get_ipython().run_cell_magic('leakcheck', '{QUICK} -q -v found', {LEAKY!r})")
    assert notebook.user["found"].leaked


def test_the_magic_works_below_another_one(notebook, history):
    shown = notebook.run(f"%%time\n%%leakcheck {QUICK} -v found\n{LEAKY}").out
    assert "Wall time" in shown
    assert notebook.user["found"].leaked


def test_fail_on_leak_raises_after_the_display(notebook, history):
    typed = notebook.run(f"%%leakcheck {QUICK} --fail-on-leak -v found\n{LEAKY}")
    assert type(typed.error).__name__ == "LeakFound"
    assert str(typed.error) == str(notebook.user["found"].verdict)
    assert typed.out.index("grows by") < typed.out.index("LeakFound")


def test_fail_on_leak_lets_a_clean_cell_pass(notebook):
    assert notebook.run("%%leakcheck --fail-on-leak\npass").error is None


def test_a_limit_of_a_billion_runs_costs_no_memory(notebook):
    assert notebook.check("pass", "-n 1000000000").verdict.n_runs < 1000


OLDER = """
class Meter:
    def __init__(self):
        self.values = []

    def update(self, value):
        self.values.append(value)


meter = Meter()
"""


def test_an_object_of_a_class_that_was_defined_anew_is_told_to_be_made_again(notebook):
    notebook.run(f"import torch\n{OLDER}")
    code = "meter.update(torch.zeros(2000))"
    assert notebook.check(code, cures=True).leaks[0].cures
    notebook.run(OLDER.replace("self.values.append(value)", "self.values[:] = [value]").replace("meter = Meter()", ""))
    leak = notebook.check(code, cures=True).leaks[0]
    assert leak.advice.startswith(
        "`meter` was made before the class `Meter` was defined anew: it still runs the older code. Make it again, then "
        "check again."
    )
    assert leak.cures == ()
    notebook.run("meter = Meter()")
    assert notebook.check(code).verdict.outcome is Outcome.CLEAN


def test_of_an_object_within_another_it_is_said_which_one_is_older(notebook):
    notebook.run(f"import torch\n{OLDER}\nclass Trainer: pass\ntrainer = Trainer()\ntrainer.meter = meter\ndel meter")
    notebook.run(OLDER.replace("meter = Meter()", ""))
    (leak,) = notebook.check("trainer.meter.update(torch.zeros(2000))").leaks
    assert leak.advice.startswith("`trainer.meter` was made before the class `Meter` was defined anew: it still runs")
