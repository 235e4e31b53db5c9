"""``%leaks`` in JupyterLab and in Notebook 7: a click puts what to run next into a new cell below."""

import pytest
from jupyter_pages import expect, hard_to_use, open_notebook, picture, run_all, stops, watch, write

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.untraced]

SETUP = "%load_ext leaklab\nimport torch\nnet = torch.nn.Linear(64, 64)\nlosses = []"
STEP = "losses += [net(torch.ones(2000, 64)).relu().mean() for _ in range(5)]"
TEXTS = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => cell.sharedModel.source)"""


@pytest.mark.parametrize("name", ["lab", pytest.param("notebook7", marks=pytest.mark.nightly)])
def test_click_puts_the_next_command_into_a_new_cell(browser, request, axe, name):
    server = request.getfixturevalue(name)
    write(server.files / "leaks.ipynb", SETUP, STEP, "%leaks", "last = 1")
    page = browser.new_context(viewport={"width": 1000, "height": 900}).new_page()
    watch(page)
    open_notebook(page, server.url("leaks.ipynb"))
    page.evaluate("() => window.jupyterapp.allPluginsActivated")
    page.errors.clear()  # Notebook 7.6.5 raises one while it starts, with any notebook
    run_all(page, "text=keeps the graphs of")
    buttons = page.get_by_role("button", name="to a new cell")
    picture(page, f"leaks-{name}.png")
    answer = page.locator(".jp-OutputArea-output").filter(has=buttons).first
    assert hard_to_use(page, answer, axe) == []
    assert stops(page, answer)[:2] == ([], [])
    buttons.first.press("Enter")
    expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(5)
    assert page.evaluate(TEXTS) == [SETUP, STEP, "%leaks", "%autograd losses", "last = 1"]
    picture(page, f"leaks-{name}-clicked.png")
    assert (page.outside, page.errors) == ([], [])
    page.context.close()
