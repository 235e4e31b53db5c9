"""The extension in the shell: loaded, unloaded, configured, beside matplotlib."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import traitlets
from notebook_shell import Notebook

from leaklab.magics import AwaitRewriter
from leaklab.magics.leakcheck import LeakLab

pytestmark = pytest.mark.untraced


def traces(notebook: Notebook) -> dict[str, int]:
    """How often leaklab is to be found in the shell."""
    shell = notebook.shell
    magics = shell.magics_manager.magics
    return {
        "magics": sum(
            isinstance(getattr(f, "__self__", None), LeakLab) for kind in magics.values() for f in kind.values()
        ),
        "transformers": sum(isinstance(t, AwaitRewriter) for t in shell.input_transformers_post),
        "configurables": sum(isinstance(c, LeakLab) for c in shell.configurables),
        "registry": sum(isinstance(m, LeakLab) for m in shell.magics_manager.registry.values()),
    }


ONCE = {"magics": 3, "transformers": 1, "configurables": 1, "registry": 1}
NEVER = dict.fromkeys(ONCE, 0)


def test_loading_says_nothing(notebook):
    notebook.run("%unload_ext leaklab")
    typed = notebook.run("%load_ext leaklab")
    assert (typed.out, typed.err, typed.error) == ("", "", None)


def test_loading_twice_or_reloading_leaves_one_of_everything(notebook):
    import leaklab

    notebook.run("%reload_ext leaklab")
    assert traces(notebook) == ONCE
    leaklab.load_ipython_extension(notebook.shell)
    assert traces(notebook) == ONCE


def test_unloading_leaves_nothing(notebook):
    notebook.run("%unload_ext leaklab")
    assert traces(notebook) == NEVER
    assert notebook.shell.find_cell_magic("leakcheck") is None


def test_unloading_what_was_never_loaded_is_no_error(notebook):
    import leaklab

    leaklab.unload_ipython_extension(notebook.shell)
    leaklab.unload_ipython_extension(notebook.shell)
    assert traces(notebook) == NEVER


def test_defaults_are_set_by_config(notebook):
    notebook.user["n"] = 0
    notebook.run("%config LeakLab.runs = 6")
    notebook.run("%config LeakLab.warmup = 2")
    assert notebook.check("n += 1").verdict.n_runs == 6
    assert notebook.user["n"] == 8


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("LeakLab.warmups", "warmup", 3),
        ("WhyAliveMagics.paths", "paths", 2),
        ("WhyAliveMagics.summaries", "summaries", False),
    ],
)
def test_an_old_name_of_a_default_works_and_is_warned_of(notebook, old, new, value):
    with pytest.warns(DeprecationWarning, match=rf"%config {old} is now called LeakLab\.{new}"):
        notebook.run(f"%config {old} = {value}")
    (magics,) = [c for c in notebook.shell.configurables if isinstance(c, LeakLab)]
    assert getattr(magics, new) == value


def test_the_paths_of_whyalive_are_a_default_of_leaklab(notebook):
    notebook.run("x = [1.0]\na = {'x': x}\nb = {'x': x}\nc = {'x': x}\n%whyalive -q -v every x")
    notebook.run("%config LeakLab.paths = 2")
    notebook.run("%config LeakLab.summaries = False")
    notebook.run("%whyalive -q -v few x")
    assert len(notebook.user["every"].record.paths) == 4
    assert len(notebook.user["few"].record.paths) == 2
    assert "entr" not in str(notebook.user["few"])


def test_more_runs_than_by_default_can_be_configured(notebook):
    notebook.run("%config LeakLab.runs = 60")
    assert notebook.check("pass").check.settings.max_runs == 60


@pytest.mark.parametrize(
    ("trait", "value"), [("runs", 3), ("warmup", -1), ("warmups", -1), ("paths", 0), ("seconds", 0.0)]
)
def test_a_default_that_allows_no_verdict_is_refused(notebook, trait, value):
    (magics,) = [c for c in notebook.shell.configurables if isinstance(c, LeakLab)]
    with pytest.raises(traitlets.TraitError, match=f"'{trait}' trait of a LeakLab instance"):
        setattr(magics, trait, value)


def test_a_refused_default_changes_nothing(notebook, caplog):
    notebook.run("%config LeakLab.runs = 3")
    assert "should not be less than 5" in caplog.text
    assert notebook.check("pass").check.settings.max_runs is None


def test_summaries_can_be_switched_off(notebook):
    notebook.run("%config LeakLab.summaries = False")
    assert notebook.check("pass", "-n 5").check.settings.summaries is False


FIGURE = "plt.figure()\nplt.plot([1, 2])\n"


def test_inline_figures_do_not_pile_up(notebook):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    backend = pyplot.get_backend()
    try:
        pyplot.switch_backend("module://matplotlib_inline.backend_inline")
        pyplot.ion()  # as `%matplotlib inline` does
        notebook.user["plt"] = pyplot
        report = notebook.check(FIGURE)
        assert pyplot.get_fignums() == []
        assert not report.leaked, str(report)
    finally:
        pyplot.close("all")
        pyplot.ioff()
        pyplot.switch_backend(backend)


def test_figures_that_stay_open_are_a_leak(notebook):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    backend = pyplot.get_backend()
    try:
        pyplot.switch_backend("agg")
        notebook.user["plt"] = pyplot
        assert notebook.check(FIGURE, "-n 12").leaked
    finally:
        pyplot.close("all")
        pyplot.switch_backend(backend)


def test_a_check_leaves_the_shell_as_it_was(notebook):
    shell = notebook.shell
    notebook.check("pass", "-n 5")

    def state() -> tuple[object, ...]:
        return (
            id(shell.display_pub),
            len(shell.input_transformers_post),
            len(shell.ast_transformers),
            shell.compile.flags,
            len(shell.events.callbacks["post_execute"]),
            sorted(name for name in shell.user_ns_hidden if not name.startswith("_i")),
        )

    before = state()
    notebook.check("pass", "-n 5")
    assert state() == before


def test_loading_the_extension_loads_no_stage_of_a_check():
    code = (
        "import sys, IPython.core.interactiveshell as i, leaklab\n"
        "leaklab.load_ipython_extension(i.InteractiveShell.instance())\n"
        "stages = ('leaklab.check.pipeline', 'leaklab.heap', 'scipy', 'torch')\n"
        "print([name for name in stages if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_leakwatch_names_the_cell_that_has_run():
    cells = ("%load_ext leaklab", "%leakwatch on", "kept = []", "kept.append([])")
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        f"for cell in {cells!r}:\n"
        "    shell.run_cell(cell, store_history=True).raise_error()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.findall(r"^leakwatch (In\[\d+\])", done.stdout, re.MULTILINE) == ["In[3]", "In[4]"]
