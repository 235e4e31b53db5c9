"""The report and its explorer in Notebook 7, the other page that many notebooks are read in."""

import pytest
from jupyter_pages import (
    START_MS,
    TIMEOUT_MS,
    assert_report_is_readable,
    expect,
    new_context,
    open_notebook,
    picture,
    run,
    watch,
    write,
)

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.untraced]

SETUP = """
%load_ext leaklab
import torch
model = torch.nn.Linear(64, 64)
history = []
also = {"copy": history}
"""
LEAK = """
%%leakcheck --name epoch -n 12 -q -v report
history.append(model(torch.ones(8, 64)).sum())
"""
EXPLORE = "report.explore()"


@pytest.fixture(scope="module")
def opened(browser, notebook7):
    """A page with the executed notebook."""
    write(notebook7.files / "leak.ipynb", SETUP, LEAK, EXPLORE)
    context = new_context(browser, 1100, 1600)
    page = context.new_page()
    watch(page)
    open_notebook(page, notebook7.url("leak.ipynb"))
    page.evaluate("() => window.jupyterapp.allPluginsActivated")
    page.errors.clear()  # 7.6.5 raises one itself while it starts, with any notebook: its shortcuts are read too early
    run(page, "notebook:run-all-cells")
    graph = page.locator(".leaklab").get_by_role("tab", name="Graph", exact=True)
    graph.wait_for(timeout=START_MS)
    graph.click()  # it opens with the advice
    page.wait_for_selector(".leaklab .ll-stage svg", timeout=TIMEOUT_MS, state="attached")
    yield page
    context.close()


def test_it_is_notebook_7(opened):
    assert opened.evaluate("() => [window.jupyterapp.name, window.jupyterapp.version[0]]") == ["Jupyter Notebook", "7"]


def test_the_static_report_is_shown_above_the_explorer(opened):
    assert_report_is_readable(opened, ".jp-OutputArea-output")
    report, explorer = (
        opened.locator(".jp-OutputArea-output").locator("details, .leaklab").first,
        opened.locator(".leaklab"),
    )
    assert report.bounding_box()["y"] < explorer.bounding_box()["y"]


def test_a_node_is_opened_and_its_other_holder_appears(opened):
    explorer = opened.locator(".leaklab")
    other_holder = explorer.locator(".ll-stage .ll-node", has_text="dict")
    expect(other_holder).to_have_count(0)
    explorer.locator(".ll-stage .ll-node", has_text="list").click()
    explorer.get_by_role("button", name="open", exact=True).click()
    expect(other_holder).to_be_visible(timeout=TIMEOUT_MS)
    picture(opened, "notebook7.png")
    picture(explorer, "notebook7-explorer.png")


def test_the_memory_is_walked_with_keys_that_the_notebook_leaves_to_it(opened):
    explorer = opened.locator(".leaklab")
    n_cells = opened.locator(".jp-Cell").count()
    explorer.get_by_role("tab", name="Memory", exact=True).press("Enter")
    boxes = explorer.locator(".icicle-plot button")
    expect(boxes.first).to_be_visible(timeout=TIMEOUT_MS)
    boxes.first.focus()
    for key in ("ArrowDown", "ArrowDown", "Backspace", "a", "b", "d", "d"):  # letters are commands of the notebook
        opened.keyboard.press(key)
    expect(explorer.locator(".icicle nav")).to_contain_text("all objects")
    assert opened.locator(".jp-Cell").count() == n_cells
    explorer.locator(".ll-where").fill("shape == (64, 64)")
    opened.keyboard.press("Enter")
    row = explorer.locator(".ll-objects tbody tr").first
    row.press("Enter")
    expect(explorer.locator(".ll-drawer h4").first).to_contain_text("model.weight", timeout=TIMEOUT_MS)
    picture(explorer, "notebook7-memory.png")


def test_the_notebook_is_saved_and_its_cell_run_while_the_focus_is_in_the_explorer(opened):
    explorer = opened.locator(".leaklab")
    explorer.locator(".ll-where").focus()
    opened.keyboard.press("Control+s")
    opened.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    explorer.locator(".ll-where").focus()
    opened.keyboard.press("Shift+Enter")
    expect(explorer.get_by_role("tab", name="Change")).to_have_attribute("aria-selected", "true", timeout=TIMEOUT_MS)
    expect(explorer).to_have_count(1)


def test_nothing_left_the_machine_and_nothing_was_complained_of(opened):
    assert (opened.outside, opened.errors) == ([], [])
