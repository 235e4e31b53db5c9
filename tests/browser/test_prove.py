"""The button that writes a change into its cell and checks again, in JupyterLab and in Notebook 7."""

import pytest
from jupyter_pages import expect, hard_to_use, open_notebook, picture, run, stops, watch, write

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.untraced]

SETUP = "%load_ext leaklab\nimport torch\nnet = torch.nn.Linear(64, 64)\nhistory = []"
LEAK = "%%leakcheck --name epoch\nloss = net(torch.ones(8, 64)).pow(2).mean()\nhistory.append(loss)"
MENDED = "%%leakcheck --name epoch\nloss = net(torch.ones(8, 64)).pow(2).mean()\nhistory.append(loss.item())"
TEXT = "() => window.jupyterapp.shell.currentWidget.content.model.cells.get(1).sharedModel.source"


@pytest.mark.parametrize("name", ["lab", "notebook7"])
def test_a_change_is_applied_and_proven_and_taken_back(browser, request, axe, name):
    """Go the whole way: the leak, the button, one green card, and the old text again."""
    server = request.getfixturevalue(name)
    write(server.files / "prove.ipynb", SETUP, LEAK)
    page = browser.new_context(viewport={"width": 1100, "height": 1400}).new_page()
    watch(page)
    open_notebook(page, server.url("prove.ipynb"))
    page.evaluate("() => window.jupyterapp.allPluginsActivated")
    page.errors.clear()  # Notebook 7.6.5 raises one while it starts, with any notebook
    run(page, "notebook:run-all-cells")
    button = page.get_by_role("button", name="Apply and prove")
    expect(button).to_have_count(1, timeout=180_000)
    picture(page, f"prove-{name}-offered.png", full_page=True)
    beside = "button => button.closest('div').previousElementSibling?.querySelector('[data-leaklab=copy]') !== null"
    assert button.evaluate(beside), "it does not stand in the card of the change"
    button.scroll_into_view_if_needed()
    assert hard_to_use(page, page.locator(".leaklab-prove"), axe) == []
    assert stops(page, page.locator(".leaklab-prove"))[:2] == ([], [])
    button.press("Enter")
    said = page.locator(".leaklab-prove [role=status]")
    expect(said).to_contain_text("proven: clean", timeout=180_000)
    assert page.evaluate(TEXT) == MENDED
    cards = page.locator(".jp-OutputArea-output").filter(has=page.locator("details"))
    expect(cards.filter(has_text="clean")).to_have_count(1, timeout=30_000)
    expect(page.locator(".jp-OutputArea-output").filter(has_text="grows by")).to_have_count(0)
    picture(page, f"prove-{name}-proven.png", full_page=True)
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(said).to_contain_text("the old text is back", timeout=30_000)
    assert page.evaluate(TEXT) == LEAK
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(1).click()
    page.keyboard.press("Control+z")  # the editor knows what the button wrote as what was typed
    assert page.evaluate(TEXT) == MENDED
    assert (page.outside, page.errors) == ([], [])
    page.context.close()
