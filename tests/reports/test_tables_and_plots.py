"""Tables and plots of a check: columns and types, what is missing, what many leaks become, nothing left in pyplot."""

from __future__ import annotations

import sys
from dataclasses import replace

import matplotlib as mpl
import pytest
import samples

from leaklab.reports.plots import plot_alt, plot_growth, plot_png
from leaklab.reports.tables import container_table, leak_table, object_table, run_table, tensor_table

TABLES = (object_table, tensor_table, container_table, run_table, leak_table)


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_table_has_the_columns_and_types_of_a_full_one(table):
    full, empty = table(samples.leaky_check(cuda=True)), table(samples.empty_check())
    assert len(full) > 0
    assert len(empty) == 0
    assert list(full.dtypes.items()) == list(empty.dtypes.items())
    assert full.index.name == empty.index.name


@pytest.mark.parametrize("table", TABLES)
def test_hostile_text_does_not_stop_a_table(table):
    assert len(table(samples.hostile_check()).to_string()) > 0


def test_a_level_that_was_not_measured_is_missing_and_not_zero():
    table = run_table(samples.leaky_check(cuda=False))
    assert table["accelerator_bytes"].isna().all()
    assert str(table.dtypes["heap_bytes"]) == "Int64"  # bytes stay whole numbers beside missing ones
    assert table.loc[12, "heap_bytes"] == 64 * samples.MIB + 36 * 10_924


def test_leaks_are_numbered_from_one():
    table = leak_table(samples.leaky_check())
    assert list(table.index) == [1, 2]
    assert table.loc[2, "cause"] == "hook-left"
    assert table["retained_bytes"].isna().tolist() == [False, True]


CHECKS = {
    "leak": samples.leaky_check(cuda=True),
    "clean": samples.clean_check(),
    "failed": samples.failed_check(),
    "empty": samples.empty_check(),
    "hostile": samples.hostile_check(),
    "one run": replace(samples.clean_check(), runs=samples.make_runs((3,))),
    "no heap": replace(samples.clean_check(), runs=(replace(samples.make_runs((3,))[0], heap_bytes=None),)),
}


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_can_be_drawn_without_a_warning(name):
    assert plot_png(CHECKS[name]).startswith(b"\x89PNG")


def test_no_figure_is_registered_with_pyplot():
    from matplotlib._pylab_helpers import Gcf

    before = list(Gcf.figs)
    plot_png(samples.leaky_check())
    assert list(Gcf.figs) == before


def test_the_figure_dies_with_its_last_reference():
    import gc
    import weakref

    figure = weakref.ref(plot_growth(samples.leaky_check()))
    gc.collect()
    assert figure() is None


def test_objects_of_no_leak_are_the_others():
    check = replace(samples.leaky_check(), runs=samples.make_runs((5,) * 12))
    left, _ = plot_growth(check).axes
    assert labels(left)[-1] == "other objects"
    assert [bar.get_height() for bar in left.containers[-1]] == [2] * 12


def test_leaks_beyond_the_fourth_are_drawn_as_one():
    leaks = (samples.hook_leak(),) * 6
    check = replace(samples.leaky_check(), leaks=leaks, runs=samples.make_runs((6,) * 12))
    left, _ = plot_growth(check).axes
    assert [label.split(":")[0] for label in labels(left)] == ["leak 1", "leak 2", "leak 3", "leak 4", "2 more leaks"]


def test_levels_are_drawn_as_changes_since_the_first_run():
    _, right = plot_growth(samples.leaky_check(cuda=True)).axes
    assert labels(right) == ["native heap", "accelerator", "tensors left so far"]
    for line in right.get_lines():
        assert line.get_ydata()[0] == 0
        assert line.get_ydata()[-1] == pytest.approx(11 * 3 * 10_924 / 1024)


def test_a_few_bytes_are_not_drawn_as_a_mountain():
    runs = tuple(replace(run, heap_bytes=1000 + run.number) for run in samples.make_runs((0,) * 12))
    _, right = plot_growth(replace(samples.clean_check(), runs=runs)).axes
    assert right.get_title(loc="left") == "Change of memory since run 1, KiB"
    assert right.get_ylim()[1] >= 1


def test_dollar_signs_are_no_formula():
    left, _ = plot_growth(samples.hostile_check()).axes
    assert not left.get_legend().get_texts()[0].get_parse_math()


def test_the_users_style_neither_reaches_the_figure_nor_is_changed():
    with mpl.rc_context({"text.color": "white", "axes.facecolor": "black", "lines.linewidth": 9}):
        figure = plot_growth(samples.leaky_check())
        assert mpl.rcParams["axes.facecolor"] == "black"
        assert figure.get_facecolor() == (0.0, 0.0, 0.0, 0.0)  # none: it is read on light pages and on dark
        assert figure.axes[0].get_facecolor() == (0.0, 0.0, 0.0, 0.0)
        assert figure.axes[1].get_lines()[0].get_linewidth() == 1.5


def test_the_alt_text_tells_the_figures():
    assert plot_alt(samples.leaky_check()) == (
        "Plot: 3 3 3 3 3 3 3 3 3 3 3 3 objects, made by runs 1 to 12 and still alive. "
        "The native heap went from 64.03 to 64.38 MiB."
    )
    assert plot_alt(samples.empty_check()) == "Plot without data: no run was measured."


def test_drawing_needs_no_pyplot():
    import subprocess

    code = """
import sys
sys.path.insert(0, sys.argv[1])
import samples
from leaklab.reports.plots import plot_png
plot_png(samples.leaky_check())
print("matplotlib.figure" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""
    command = [sys.executable, "-c", code, samples.__file__.rpartition("samples")[0]]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True False\n"


def test_a_figure_shows_itself_where_pyplot_was_never_loaded():
    figure = plot_growth(samples.leaky_check())
    assert figure._repr_png_().startswith(b"\x89PNG")
