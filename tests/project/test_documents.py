"""What README and docs/ say is what the code does, as far as that can be checked."""

import ast
import importlib.util
import re
import runpy
from pathlib import Path

import pytest

import leaklab
from leaklab.magics import MAGICS
from leaklab.render.words import CAUSES, SECOND_CAUSES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
HOOKS = {"load_ipython_extension", "unload_ipython_extension"}


def name_of(page):
    return str(page.relative_to(ROOT))


def script(file):
    """A script of docs/, which is no package, as a module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run_pages = script(DOCS / "run_pages.py")
write_options = script(DOCS / "reference" / "write_options.py")


def magic_names():
    """Every magic, as it is written: those that take a cell with two signs."""
    names = {}
    for magics in MAGICS:
        for kind, functions in magics.magics.items():
            names |= dict.fromkeys(functions, "") | {name: "%%" for name in functions if kind == "cell"}
    return sorted(f"{signs or '%'}{name}" for name, signs in names.items())


def anchors(page):
    """Where links into *page* can lead: its headings, as both GitHub and the site name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def compiles(source):
    """Whether *source* is Python once its line magics are taken out."""
    try:
        ast.parse(re.sub(r"^\s*%.*$", "", source, flags=re.MULTILINE))
    except SyntaxError:
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_compile(page):
    assert [source for source in run_pages.blocks(page, all_of_them=True) if not compiles(source)] == []


@pytest.mark.parametrize("page", [*PAGES, CONTRIBUTING], ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(page):
    dead = []
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text("utf-8")):
        file = (page.parent / target).resolve() if target else page
        is_generated = file.name == "python.md"  # its headings come from docstrings: `mkdocs build --strict` sees them
        if not file.exists() or (anchor and not is_generated and anchor not in anchors(file)):
            dead.append(f"{target}#{anchor}")
    assert dead == []


def test_every_page_has_its_place_in_the_site():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert [name for page in PAGES[1:] if (name := page.relative_to(DOCS).as_posix()) not in navigation] == []


@pytest.mark.parametrize(("page", "word"), [("out_of_memory.md", "OOM"), ("faq.md", "RSS"), ("glossary.md", "OOM")])
def test_the_search_of_the_site_finds_words_in_brackets(page, word):
    separator = re.search(r"separator: '(.+)'", (ROOT / "mkdocs.yml").read_text("utf-8"))[1]
    assert word in re.split(separator, (DOCS / page).read_text("utf-8"))


def test_tables_of_options_are_those_of_the_parsers():
    stale = [page.name for page, wanted in write_options.pages().items() if page.read_text("utf-8") != wanted]
    assert stale == [], "run: python docs/reference/write_options.py"


def test_reference_has_every_public_name_and_no_other():
    named = re.findall(r"^::: leaklab\.(\w+)$", (DOCS / "reference" / "python.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(set(leaklab.__all__) - HOOKS)


def test_every_public_name_says_what_it_is():
    assert [name for name in leaklab.__all__ if not getattr(leaklab, name).__doc__] == []


@pytest.mark.parametrize("page", ["README.md", "docs/reference/magics.md"])
def test_every_magic_is_named(page):
    text = (ROOT / page).read_text("utf-8")
    assert [name for name in magic_names() if not re.search(rf"(?<!%){name}\b", text)] == []


def test_table_of_causes_has_every_cause():
    named = re.findall(r"^\| `([a-z-]+)` \|", (DOCS / "how_it_works.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted([*CAUSES, *SECOND_CAUSES])


def files_of_the_map():
    """Every file and folder in the tree of CONTRIBUTING.md."""
    (tree,) = re.findall(r"^```text\n(leaklab/\n.*?)^```", CONTRIBUTING.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    folder = ROOT / "leaklab"
    for line in filter(None, tree.splitlines()[1:]):
        is_inside = line.startswith(" " * 8)
        for name in re.match(r"[\w./]+(?:, [\w./]+)*", line.strip())[0].split(", "):
            folder = folder if is_inside else ROOT / "leaklab" / name
            yield folder / name if is_inside else folder


def test_the_map_for_contributors_names_files_that_exist_and_every_folder():
    named = list(files_of_the_map())
    assert [str(file) for file in named if not file.exists()] == []
    packages = {file.parent for file in (ROOT / "leaklab").glob("*/__init__.py")}
    assert packages | set((ROOT / "leaklab").glob("*.py")) - {ROOT / "leaklab" / "__init__.py"} <= set(named)


@pytest.mark.parametrize("page", [*PAGES, CONTRIBUTING], ids=name_of)
def test_files_and_folders_that_a_text_names_exist(page):
    """Contributors are told of the files of leaklab from its folder on."""
    named = re.findall(r"`((?:leaklab|tests|benchmarks)/(?:\w+/)*(?:\w+\.py)?)`", page.read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []
    from_leaklab = re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text("utf-8")) if page == CONTRIBUTING else []
    assert [name for name in from_leaklab if not ((ROOT / name).exists() or (ROOT / "leaklab" / name).exists())] == []


def test_the_layers_for_contributors_are_those_of_the_contract():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    layers = re.findall(r'^    "([\w |]+)",', project[project.index("layers = [") :].partition("]")[0], re.MULTILINE)
    assert len(layers) > 5
    assert "\n".join(layers) in CONTRIBUTING.read_text("utf-8")


@pytest.mark.notebook
def test_readme_runs_from_top_to_bottom_and_finds_its_leak():
    shown = run_pages.words(run_pages.run_page(ROOT / "README.md"))
    assert shown.startswith("LEAK")
    assert "`history` grows by 1 tensor" in shown
    assert "cause       graph-kept" in shown


def test_gallery_of_causes_shows_the_programs_that_it_is_made_of():
    page = (DOCS / "gallery_of_causes.md").read_text("utf-8")
    written = runpy.run_path(str(DOCS / "write_gallery.py"))
    for program in written["PROGRAMS"]:
        assert f"## {program.title}\n\n{program.symptom}\n\n```python\n{program.setup}\n```" in page
        assert f"%%leakcheck\n{program.cell}\n```" in page
