"""The public face: names, old and new, the classes that they give, and nothing imported before it is asked for."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import samples

import leaklab
from leaklab.cli import main
from leaklab.errors import ReportError
from leaklab.reports.check import LeakReport
from leaklab.version import renamed

OLD_NAMES = {
    "Moment": "HeapSnapshot",
    "compare_snapshots": "compare_cuda_snapshots",
    "load_snapshot": "load_cuda_snapshot",
    "record": "record_cuda",
    "run": "training_run",
}


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
def test_an_old_name_works_and_names_the_better_one_where_it_is_written(old, new):
    with pytest.warns(DeprecationWarning, match=rf"leaklab\.{old} is now called leaklab\.{new}") as caught:
        assert getattr(leaklab, old) is getattr(leaklab, new)
    assert caught[0].filename == __file__


def test_the_page_of_versions_says_of_every_old_name_when_it_goes():
    page = (Path(__file__).parents[2] / "docs" / "versions.md").read_text("utf-8")
    rows = {row.split("|")[1]: row for row in page.splitlines() if row.startswith("| `")}
    old_names = [*(f"leaklab.{old}" for old in OLD_NAMES), "leaklab diff", "leaklab show", "%config LeakLab.warmups"]
    for name in old_names:
        (row,) = (row for names, row in rows.items() if f"`{name}`" in names)
        assert "with 0.4, not before June 2027" in row
    assert renamed("a", "b").endswith("until leaklab 0.4, which will not come before June 2027")
    assert sum(names.count("`") // 2 for names in rows) == len(old_names)


def test_an_old_name_is_warned_of_where_it_is_imported():
    with pytest.warns(DeprecationWarning, match="leaklab.training_run") as caught:
        from leaklab import run
    assert {one.filename for one in caught} == {__file__}
    assert run is leaklab.training_run


def test_every_public_name_exists_and_is_no_old_one():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in leaklab.__all__:
            assert getattr(leaklab, name) is not None
    assert leaklab.__all__ == sorted(set(leaklab.__all__))
    assert not set(leaklab.__all__) & set(OLD_NAMES)


def test_a_name_that_never_was_is_said_to_be_none():
    with pytest.raises(AttributeError, match="module 'leaklab' has no attribute 'leakchek'"):
        _ = leaklab.leakchek


def test_every_class_that_a_user_holds_is_public():
    """What public functions and the methods of public classes return; records of plain data are in `leaklab.model`."""
    public = {getattr(leaklab, name) for name in leaklab.__all__}
    given = {kind for function in public_functions() for kind in returned_by(function)}
    assert {"AutogradGraph", "Comparison", "CudaRecorder", "CutResult", "ReportFigure", "TrainingRun"} <= {
        kind.__name__ for kind in given
    }
    assert {kind for kind in given - public if not kind.__module__.startswith("leaklab.model.")} == set()


def public_functions() -> Iterator[Any]:
    for name in leaklab.__all__:
        value = getattr(leaklab, name)
        if not inspect.isclass(value):
            yield value
            continue
        for base in value.__mro__:
            if base.__module__.startswith("leaklab."):
                members = [member for key, member in vars(base).items() if not key.startswith("_")]
                yield from (member for member in map(function_of, members) if member is not None)


def function_of(member: Any) -> Any:
    """Return the function behind a method, a class method, a property or a cached property; None for other things."""
    found = inspect.unwrap(getattr(member, "__func__", None) or getattr(member, "fget", None) or member)
    found = getattr(found, "func", found)
    return found if inspect.isfunction(found) else None


def returned_by(function: Any) -> set[type]:
    """Return the classes of leaklab in the type that *function* returns."""
    hint = getattr(function, "__annotations__", {}).get("return", "")
    words = set(re.findall(r"\w+", hint if isinstance(hint, str) else inspect.formatannotation(hint)))
    scope = {**vars(sys.modules[function.__module__]), **{name: getattr(leaklab, name) for name in leaklab.__all__}}
    found = [scope[word] for word in words if word in scope]
    return {kind for kind in found if inspect.isclass(kind) and kind.__module__.startswith("leaklab.")}


RECORDS = Path(__file__).parents[1] / "guards" / "records"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("check_clean.json", "LeakReport"),
        ("check_clean.html", "LeakReport"),
        ("notebook_before.json", "NotebookReport"),
        ("notebook_before.html", "NotebookReport"),
        ("whyalive_held.json", "WhyAlive"),
        ("autograd_list.json", "AutogradReport"),
        ("moment_after.npz", "HeapSnapshot"),
        ("cuda_oom.pickle", "CudaSnapshot"),
    ],
)
def test_load_opens_a_file_by_what_is_in_it(name, kind, tmp_path):
    as_saved = leaklab.load(RECORDS / name)
    assert type(as_saved) is getattr(leaklab, kind)
    renamed = tmp_path / "a file without a suffix"
    renamed.write_bytes((RECORDS / name).read_bytes())
    assert type(leaklab.load(str(renamed))) is type(as_saved)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"{}", "is not a file that leaklab can open"),
        (b'{"format": "leaklab wine"}', "is not a file that leaklab can open"),
        (b"[" * 100_000, "is not a file that leaklab can open"),
        (b"\xff\xfe\x00", "is not a file that leaklab can open"),
        (b"<html></html>", "is a page without a record"),
        (b"PK\x03\x04", "is not a heap snapshot that this leaklab can read"),
        (b"\x80\x04", "the file ends after 2 bytes"),
    ],
)
def test_load_refuses_other_files_in_one_sentence(content, words, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(leaklab.LeaklabError, match=words) as caught:
        leaklab.load(file)
    assert "\n" not in str(caught.value)


def test_load_says_what_it_cannot_read(tmp_path):
    with pytest.raises(leaklab.ReportError, match="give a file that leaklab wrote"):
        leaklab.load(tmp_path / "missing.json")
    with pytest.raises(leaklab.ReportError, match="give a file that leaklab wrote"):
        leaklab.load(tmp_path)


@pytest.mark.parametrize("command", ["diff", "show"])
def test_an_old_command_works_and_one_line_names_the_new_one(command, tmp_path, capsys):
    missing = [str(tmp_path / "missing.pickle")] * (2 if command == "diff" else 1)
    assert main([command, *missing]) == main(["cuda", command, *missing]) == 1
    note, old, new = capsys.readouterr().err.splitlines()
    begin = f"leaklab: `leaklab {command}` is now called `leaklab cuda {command}`; the old name works until leaklab "
    assert note.startswith(begin)
    assert old == new


def test_the_package_can_be_run_as_the_command():
    done = subprocess.run([sys.executable, "-m", "leaklab", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"leaklab {leaklab.__version__}\n"


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("check_clean.json", "check"),
        ("notebook_before.json", "collection"),
        ("autograd_list.json", "retention"),
        ("cuda_step_series.json", "series"),
        ("cuda_oom.pickle", "facts"),
    ],
)
def test_the_record_of_every_report_is_called_record_and_its_old_name_works(name, old):
    report = leaklab.load(RECORDS / name)
    assert report.record == getattr(report, old)


def facades():
    """Each package that gives out names of its modules, and where each name is."""
    for found in pkgutil.iter_modules(leaklab.__path__, "leaklab."):
        package = importlib.import_module(found.name) if found.ispkg else None
        if package is not None and "__getattr__" in vars(package):
            yield package, inspect.getclosurevars(vars(package)["__getattr__"]).nonlocals["homes"]


FACADES = list(facades())


@pytest.mark.parametrize(("package", "homes"), FACADES, ids=[package.__name__ for package, _ in FACADES])
def test_every_name_of_a_facade_is_in_its_module(package, homes):
    for name, module in homes.items():
        given = getattr(package, name)
        assert given is getattr(importlib.import_module(f"{package.__name__}.{module}"), name)
        assert getattr(given, "__module__", None) in {None, f"{package.__name__}.{module}"} or not callable(given)


@pytest.mark.parametrize(("package", "homes"), FACADES, ids=[package.__name__ for package, _ in FACADES])
def test_no_name_of_a_facade_is_a_module(package, homes):
    assert not homes.keys() & {module.name for module in pkgutil.iter_modules(package.__path__)}


def test_a_name_that_no_module_has_is_an_attribute_error():
    assert len(FACADES) == 2
    with pytest.raises(AttributeError, match=r"module 'leaklab\.metrics' has no attribute 'nothing'"):
        leaklab.metrics.nothing  # noqa: B018 - asking is the test


def test_a_facade_imports_nothing_by_itself():
    code = "import sys, leaklab.metrics; print(*(name for name in sys.modules if name.startswith('leaklab.')))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) == {"leaklab.lazy", "leaklab.metrics"}


def test_of_a_file_that_cannot_be_ours_only_the_beginning_is_read(tmp_path):
    for name in ("zeros", "zeros.json", "zeros.html", "zeros.npz"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(6_000_000_000)  # it takes no room on the disk; read, it would take all memory
        for opened in (leaklab.load, leaklab.load_report, leaklab.LeakReport.from_json, leaklab.HeapSnapshot.load):
            with pytest.raises(ReportError, match=r"is not a (file that leaklab can open|heap snapshot): give"):
                opened(tmp_path / name)


def test_a_page_and_a_record_that_are_cut_off_are_said_to_be(tmp_path):
    report = LeakReport(samples.leaky_check())
    for name, text in (("page.html", report.to_html()), ("record.json", report.to_json())):
        (tmp_path / name).write_text(text[: len(text) // 2])
        with pytest.raises(ReportError, match=f"'.*{name}' is cut off or damaged: copy it again"):
            leaklab.load(tmp_path / name)


def test_what_is_no_report_is_not_compared():
    with pytest.raises(ReportError, match="compare takes two reports, two snapshots, or the names of their files"):
        leaklab.compare(1, 2)
