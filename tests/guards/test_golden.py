"""Every output of leaklab in every form, made from stored records, is the golden text."""

from __future__ import annotations

import shlex

import forms_of_answers  # noqa: F401 - its forms are noted
import forms_of_comparisons  # noqa: F401 - its forms are noted
import forms_of_explorer  # noqa: F401 - its forms are noted
import forms_of_reports  # noqa: F401 - its forms are noted
import pytest
from forms import FORMS
from making import GOLDEN, RECORDS, WRITES, assert_golden, load, parts, saved

import leaklab
from leaklab.cli import main

COMMANDS = {
    "show_oom": "cuda show cuda_oom.pickle",
    "show_without_trace": "cuda show cuda_without_trace.pickle --audit",
    "show_nothing": "show missing.pickle",
    "show_no_snapshot": "cuda show check_clean.json",
    "show_no_folder": "cuda show cuda_oom.pickle --html missing/page.html",
    "diff_three": "cuda diff cuda_step_*.pickle",
    "diff_steady": "cuda diff cuda_steady_1.pickle cuda_steady_2.pickle cuda_steady_3.pickle --card 80GB",
    "diff_exact": "cuda diff cuda_step_1.pickle cuda_step_3.pickle --key exact",
    "diff_project": "cuda diff cuda_step_1.pickle cuda_step_3.pickle --key project",
    "diff_above": "cuda diff cuda_step_1.pickle cuda_step_3.pickle --fail-above 10MB",
    "diff_below": "cuda diff cuda_step_1.pickle cuda_step_3.pickle --fail-above 1GiB",
    "diff_written": "cuda diff cuda_step_*.pickle --html (FOLDER)/page.html --json (FOLDER)/record.json",
    "show_written": "cuda show cuda_oom.pickle --html (FOLDER)/page.html --json (FOLDER)/record.json",
    "diff_one": "diff cuda_step_1.pickle",
    "compare_fixed": "compare check_graph_kept.html check_graph_kept_fixed.json",
    "compare_not_fixed": "compare check_two_leaks.json check_two_leaks_one_fixed.json",
    "compare_notebooks": "compare notebook_before.html notebook_after.json",
    "compare_no_report": "compare whyalive_held.json notebook_after.json",
    "compare_nothing": "compare missing.json notebook_after.json",
    "compare_heaps": "compare heap_before.heap heap_after.heap --html (FOLDER)/page.html",
    "compare_processes": "compare process_out_of_memory.json process_asked.json",
    "compare_moments": "compare moment_before.npz moment_after.npz",
    "compare_kinds": "compare heap_before.heap process_asked.json",
    "heap": "heap heap_after.heap",
    "heap_find": "heap heap_after.heap --find 'bytes > 4 KiB'",
    "heap_why": "heap heap_after.heap --why model[0].weight",
    "heap_compare": "heap heap_before.heap --compare heap_after.heap",
    "heap_wrong": "heap heap_after.heap --find 'bytes >'",
    "heap_nothing": "heap check_clean.json",
    "merge_one_file": "merge ranks_seven.json",
    "merge_nothing": "merge missing",
    "merge_no_ranks": "merge whyalive_held.json",
    "run_no_notebook": "run missing.ipynb",
}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_is_the_golden_one(name, tmp_path):
    assert_golden(GOLDEN / name, FORMS[name](tmp_path))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_prints_the_golden_text(name, capsys, tmp_path):
    status = main(shlex.split(COMMANDS[name].replace("(FOLDER)", str(tmp_path))))
    printed = capsys.readouterr()
    text = parts(status=str(status), out=printed.out, err=printed.err)
    text = text.replace(str(RECORDS), "(RECORDS)").replace(str(tmp_path.resolve()), "(FOLDER)")
    assert_golden(GOLDEN / f"command_{name}.txt", text)


@pytest.mark.parametrize("command", [("show", "cuda_oom.pickle"), ("diff", "cuda_step_1.pickle", "cuda_step_2.pickle")])
def test_the_command_writes_what_the_function_writes(command, tmp_path, capsys):
    main(["cuda", *command, "--html", str(tmp_path / "page.html"), "--json", str(tmp_path / "record.json")])
    make = leaklab.load_cuda_snapshot if command[0] == "show" else leaklab.compare_cuda_snapshots
    view = make(command[1] if command[0] == "show" else list(command[1:]))
    assert (tmp_path / "page.html").read_text("utf-8") == view.to_html()
    assert (tmp_path / "record.json").read_text("utf-8") == view.to_json()


SAVED = {
    "check_two_leaks.json": (".html", ".json"),
    "whyalive_held.json": (".json", ".txt", ".dot"),
    "autograd_tensor.json": (".html", ".json", ".txt", ".dot"),
    "memdiff_named.json": (".html", ".json"),
    "cuda_oom.pickle": (".html", ".json", ".txt"),
}


@pytest.mark.parametrize(
    ("name", "suffix"), [(name, suffix) for name, suffixes in SAVED.items() for suffix in suffixes]
)
def test_save_writes_what_the_methods_return(name, suffix, tmp_path):
    view = load(name)
    forms = {".html": view.to_html, ".json": view.to_json, ".txt": view.__str__, ".dot": lambda: view.graph().dot}
    assert saved(view, suffix, tmp_path) == forms[suffix]()
    if suffix in (".html", ".json"):
        method = view.to_html if suffix == ".html" else view.to_json
        assert method(tmp_path / "again") is None
        assert (tmp_path / "again").read_text("utf-8") == forms[suffix]()


def test_no_golden_file_is_left_over():
    wanted = {*FORMS, *(f"command_{name}.txt" for name in COMMANDS)}
    found = {path.name for path in GOLDEN.iterdir()}
    if WRITES:
        for name in found - wanted:
            (GOLDEN / name).unlink()
        pytest.skip("the files that are not used any more were deleted")
    assert found == wanted
