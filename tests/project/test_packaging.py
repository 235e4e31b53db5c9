"""What is shipped, and what the papers around the code promise."""

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from run_all import LONGEST, together

import leaklab

ROOT = Path(__file__).parents[2]
MAX_LINES = 450
if sys.version_info >= (3, 11):
    import tomllib


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Names of the files in a freshly built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def fenced(file, language="bash"):
    """Every line of every fenced block of *language* in a Markdown file."""
    blocks = re.findall(
        rf"^```{language}\n(.*?)^```", (ROOT / file).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return [line for block in blocks for line in block.splitlines()]


def test_wheel_holds_the_stub_the_first_notebook_and_the_type_marker(wheel):
    assert {"leaklab/__init__.pyi", "leaklab/_notebooks/01_find_a_leak.ipynb", "leaklab/py.typed"} <= set(wheel)


def test_wheel_holds_the_alert_rules_and_the_dashboard(wheel):
    assert {"leaklab/metrics/files/alerts.yml", "leaklab/metrics/files/dashboard.json"} <= set(wheel)


def test_wheel_holds_nothing_but_the_package_and_its_metadata(wheel):
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"leaklab"}


def test_wheel_ships_the_notebook_of_the_checkout(wheel):
    name = "01_find_a_leak.ipynb"
    assert wheel[f"leaklab/_notebooks/{name}"] == (ROOT / "notebooks" / name).read_bytes()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs tomllib")
def test_every_dependency_is_pinned_in_the_constraints():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    pinned = {
        normal(line) for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line
    }
    assert {normal(line) for line in wanted} - pinned == set()


def normal(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-").replace(".", "-")


def test_continuous_integration_runs_the_test_command_of_the_readme():
    (command,) = [line for line in fenced("README.md") if "tests/run_all.py" in line]
    (call,) = re.findall(r"python tests/run_all\.py$", command)
    steps = [line for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines() if line.endswith(call)]
    assert len(steps) == 1
    assert steps[0].startswith('step "tests"')


def test_the_files_of_tests_that_take_longest_are_begun_first():
    first = [files[0].name if len(files) == 1 else files[0].parent.name for files in together()]
    assert first[: len(LONGEST)] == list(LONGEST)  # none of them was renamed or removed
    names = [file.name for files in together() for file in files]
    assert len(names) == len(set(names))  # pytest knows files outside of packages by their names


def test_every_module_opens_with_what_it_does_and_stays_readable():
    too_long = {
        file.name: len(file.read_text(encoding="utf-8").splitlines())
        for file in (ROOT / "leaklab").rglob("*.py")
        if len(file.read_text(encoding="utf-8").splitlines()) > MAX_LINES
    }
    silent = [
        file.name
        for file in (ROOT / "leaklab").rglob("*.py")
        if not ast.get_docstring(ast.parse(file.read_text("utf-8")))
    ]
    assert (too_long, silent) == ({}, [])


def test_no_two_classes_have_one_name():
    """Nor one with a leading underscore and one without: whoever searches for it finds both."""
    classes = [
        node.name.lstrip("_")
        for file in (ROOT / "leaklab").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert {name for name, n_classes in Counter(classes).items() if n_classes > 1} == set()


def test_importing_leaklab_loads_neither_torch_nor_the_front_ends():
    code = "import sys, leaklab; print(*({'torch', 'IPython', 'pandas', 'matplotlib', 'nbclient'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


IN_CONDA = {
    "torch": "pytorch", "matplotlib": "matplotlib-base", "graphviz": "python-graphviz",
    "nbconvert": "nbconvert-core",
}  # fmt: skip


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs tomllib")
def test_the_recipe_for_conda_asks_for_what_the_project_does():
    import yaml

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    wanted = {}
    for line in project["dependencies"]:
        name, least = re.match(r"([\w-]+)\s*(>=[\d.]+)", line).groups()
        wanted[normal(IN_CONDA.get(name, name))] = least
    asked = {normal(line.split()[0]): line.split()[1] for line in recipe["requirements"]["run"]}
    assert asked.pop("python") == project["requires-python"]
    assert asked == wanted
    assert recipe["context"]["version"] == leaklab.__version__


def test_who_cites_the_program_names_its_version():
    import yaml

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["cff-version"], cited["version"]) == ("1.2.0", leaklab.__version__)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with what the wheel installs, away from the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    for name, data in wheel.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def in_installed(folder, *arguments):
    """Run Python where leaklab is what the wheel has installed."""
    command = [sys.executable, *arguments]
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_module_of_the_wheel_can_be_imported(installed):
    said = in_installed(installed, str(ROOT / ".ci" / "import_all.py"))
    assert str(installed) in said
    n_modules = len([*(installed / "leaklab").rglob("*.py")])
    done, left_out = re.search(r"every module is imported: (\d+), left out for a missing extra: (\d+)", said).groups()
    assert int(done) + int(left_out) == n_modules - 2  # leaklab itself, and what `python -m leaklab` runs


@pytest.mark.nightly
def test_the_demo_of_the_wheel_finds_its_leak_and_proves_the_repair(installed):
    said = in_installed(installed, "-m", "leaklab", "demo")
    assert "LEAK" in said
    assert "fixed" in said.lower()
