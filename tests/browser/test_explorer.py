"""The explorer in front of a reader: JupyterLab and Chromium, one page for all of it, every control used."""

import re

import pytest
from jupyter_pages import (
    AXE,
    HARD_TO_READ,
    IDLE,
    RULES,
    START_MS,
    TIMEOUT_MS,
    expect,
    new_context,
    open_notebook,
    picture,
    run_all,
    stops,
    theme,
    watch,
    write,
)  # fmt: skip

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.untraced]

SETUP = """
%load_ext leaklab
import leaklab, torch, warnings
class Trainer: pass
trainer = Trainer()
trainer.history = []
also = {"copy": trainer.history}
model = torch.nn.Linear(64, 64)
table = {"big": torch.zeros(100_000)}
encoder = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 100))
optimizer = torch.optim.Adam(encoder.parameters())
output = encoder(torch.rand(64, 200)).square().mean()
output.backward(retain_graph=True)
optimizer.step()
"""
LEAK = """%%leakcheck --name epoch -n 12 -q --cure -t 300 -v report
loss = model(torch.ones(8, 64)).sum()
trainer.history.append(loss)"""
SHOWN = "torch.ones(3)"
EXPLORE = "explorer = leaklab.explore(report)"
CLOSED = "from ipywidgets.widgets import widget\n(explorer.is_closed, list(widget._instances.values()))"
HEAP = "heap = leaklab.explore()"
FOR_THE_DOCUMENTATION = """
.leaklab .ll-stage, .leaklab .ll-stage * { outline: none !important }
.leaklab > p:last-child { display: none }
"""
GROUPED = """
from types import SimpleNamespace
store = SimpleNamespace(**{f"kept_{number}": [] for number in range(12)})
def keep():
    for kept in vars(store).values():
        kept.append({"final" if len(kept) == 3 else "loss": torch.ones(50)})
many = leaklab.leakcheck(keep, runs=8, cure=False)
"""
EXPLORE_GROUPED = "grouped = leaklab.explore(many)"
HOSTILE = """
from leaklab.model import *
from leaklab import LeakReport
from dataclasses import replace
bad = "<script>document.title='pwned'</script><img src=x onerror=\\"document.title='pwned'\\">'&{}|\\u202e\\udc80"
bad += "A" * 1_000_000
step = Step(bad, bad, bad, Status.LEAKED, bad)
words = dict.fromkeys(("what", "holder", "reason", "cause"), bad)
path = RootPath(bad, (step, step))
leak = replace(report.leaks[0], advice=bad + "\\n    " + bad, sites=(bad,), path=path, **words)
hostile = LeakReport(replace(report.check, leaks=(leak,), notes=(bad,)))
from leaklab.explorer.widget import ExplorerWidget; from leaklab.explorer.session import Session
evil = ExplorerWidget(Session(hostile, get_ipython(), globals()))
display(evil)
"""


WITHOUT_NAME = """root => [...root.querySelectorAll('button, input, select, [role=group], aside')]
    .filter(one => !(one.ariaLabel || one.textContent.trim() || one.labels?.length || one.title))
    .map(one => one.outerHTML)
"""


@pytest.fixture(scope="module")
def opened(browser, lab):
    """One page with an executed notebook, and everything it complained of or asked outside this machine."""
    write(lab.files / "explore.ipynb", SETUP, LEAK, SHOWN, EXPLORE)
    context = new_context(browser, 1080, 1500)
    page = context.new_page()
    watch(page)
    open_notebook(page, lab.url("explore.ipynb"))
    run_all(page, ".leaklab .ll-panel .ll-code", state="attached")
    page.locator(".leaklab").last.get_by_role("tab", name="Graph").click()
    page.wait_for_selector(".leaklab .ll-stage svg", timeout=START_MS, state="attached")
    page.set_default_timeout(10_000)
    yield page
    context.close()


def type_and_run(page, code):
    """Append a cell with *code* and run it; its output area is the page's last."""
    page.evaluate(
        """async code => {
            const { content, context } = window.jupyterapp.shell.currentWidget;
            content.activeCellIndex = content.widgets.length - 1;
            await window.jupyterapp.commands.execute('notebook:insert-cell-below');
            content.activeCell.model.sharedModel.setSource(code);
            await window.jupyterapp.commands.execute('notebook:run-cell');
        }""",
        code.strip(),
    )


def explorer_of(page, position=0):
    return page.locator(".leaklab").nth(position)


def tab(explorer, title):
    explorer.get_by_role("tab", name=title, exact=True).click()


def test_graph_is_drawn_by_the_bundled_graphviz(opened):
    explorer = explorer_of(opened)
    expect(explorer.locator(".ll-head")).to_contain_text("LEAK", timeout=TIMEOUT_MS)
    expect(explorer.locator(".ll-stage svg")).to_be_visible(timeout=TIMEOUT_MS)
    expect(explorer.locator(".ll-stage .ll-node").first).to_be_visible()
    picture(explorer, "explorer-recorded.png")


def test_a_node_is_opened_and_its_other_holder_appears(opened):
    explorer = explorer_of(opened)
    node = explorer.locator(".ll-stage .ll-node", has_text="list")
    node.focus()
    looks = node.evaluate("node => getComputedStyle(node.querySelector('path')).fill")
    opened.keyboard.press("Enter")
    expect(explorer.locator(".ll-stage[data-live=true] .ll-node", has_text="dict")).to_be_visible(timeout=TIMEOUT_MS)
    picture(explorer, "explorer-light.png", style=FOR_THE_DOCUMENTATION)
    here = opened.evaluate_handle("() => document.activeElement")
    assert here.evaluate("node => node.matches('.ll-node') && node.textContent.includes('list')")  # and not the page
    assert here.evaluate("node => getComputedStyle(node.querySelector('path')).fill") == looks


def test_the_dark_theme_is_followed(opened):
    theme(opened, "JupyterLab Dark")
    explorer = explorer_of(opened)
    node = explorer.locator(".ll-stage .ll-node text").nth(1)
    assert node.evaluate("text => getComputedStyle(text).fill") == "rgb(242, 242, 242)"
    picture(explorer, "explorer-dark.png", style=FOR_THE_DOCUMENTATION)
    theme(opened, "JupyterLab Light")


def test_an_ignored_holder_leaves_the_other_path(opened):
    explorer = explorer_of(opened)
    explorer.locator(".ll-stage .ll-node", has_text="Trainer").focus()
    opened.keyboard.press("h")
    expect(explorer.locator(".ll-ignored")).to_contain_text("trainer", timeout=TIMEOUT_MS)
    expect(explorer.locator(".ll-stage .ll-node", has_text="Trainer")).to_have_count(0)
    expect(explorer.locator(".ll-stage .ll-node", has_text="dict")).to_be_visible()
    explorer.locator(".ll-show").click()
    expect(explorer.locator(".ll-show")).to_have_count(0, timeout=TIMEOUT_MS)


def test_the_graph_is_searched_folded_and_zoomed(opened):
    explorer = explorer_of(opened)
    explorer.locator(".ll-stage").focus()
    opened.keyboard.press("/")
    opened.keyboard.type("list")
    expect(explorer.locator(".ll-hit")).to_have_count(1)
    opened.keyboard.press("Enter")
    before = explorer.locator(".ll-stage .ll-node").count()
    opened.keyboard.press("f")
    expect(explorer.locator(".ll-stage .ll-node", has_text="folded")).to_have_count(1)
    assert explorer.locator(".ll-stage .ll-node").count() < before
    for name in ("zoom-in", "zoom-out", "fit"):
        explorer.locator(f".ll-{name}").click()
    explorer.locator(".ll-reset").click()
    expect(explorer.locator(".ll-stage .ll-node", has_text="folded")).to_have_count(0, timeout=TIMEOUT_MS)
    explorer.locator(".ll-search").fill("")


def test_every_section_shows_something(opened):
    explorer = explorer_of(opened)
    for title, words in (
        ("Runs", "left behind"), ("Runs", "by the run that made them"), ("Change", "history"), ("Change", "keeps it"),
        ("Tables", "kind"),
    ):  # fmt: skip
        tab(explorer, title)
        expect(explorer.locator(".ll-panel")).to_contain_text(words)
        picture(explorer, f"explorer-{title.lower()}.png")


def test_runs_show_what_leaks_by_call_stack(opened):
    """Each frame is as wide as its bytes; what was chosen, by a click or with the keyboard, is told in full."""
    explorer = explorer_of(opened)
    tab(explorer, "Runs")
    region = explorer.get_by_role("region", name="What leaks, by call stack")
    boxes = region.locator(".icicle-plot button")
    expect(boxes.first).to_contain_text("what leaks, per run", timeout=TIMEOUT_MS)
    widths = boxes.evaluate_all("all => all.map(each => each.getBoundingClientRect().width)")
    assert len(widths) > 1
    assert max(widths) == widths[0] == pytest.approx(region.locator(".icicle-plot").bounding_box()["width"], abs=2)
    step = boxes.nth(1)
    name = step.get_attribute("title").partition(": ")[0]
    step.click()
    expect(region.locator("[aria-live]")).to_contain_text(f"{name}: ")
    expect(region.locator("[aria-live]")).to_contain_text("% of what leaks, per run")
    picture(explorer, "explorer-stacks.png")
    step.press("ArrowUp")
    expect(region.locator("[aria-live]")).to_contain_text("what leaks, per run: ")


def copied(opened, block):
    """What is in the clipboard after a click on the button of the *block*-th code; the button says that it is done."""
    button = explorer_of(opened).locator(".ll-panel .ll-code .ll-copy").nth(block)
    button.click()
    expect(button).to_have_text("copied")
    return opened.evaluate("async () => Clipboard.prototype.readText.call(window.clipboardOfThePage)")


def test_each_code_of_the_advice_is_copied_by_its_button(opened):
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.evaluate("() => { window.clipboardOfThePage = navigator.clipboard; }")
    tab(explorer_of(opened), "Change")
    codes = explorer_of(opened).locator(".ll-panel .ll-code pre")
    assert codes.all_inner_texts() == ["trainer.history.append(loss)", "trainer.history.append(loss.item())"]
    assert copied(opened, 0) == "trainer.history.append(loss)"
    assert copied(opened, 1) == "trainer.history.append(loss.item())"


def test_the_whole_changed_cell_is_copied_from_the_explorer_and_from_the_report(opened):
    # `navigator.clipboard` is the page's own again: the kernel is not asked.
    explorer = explorer_of(opened)
    explorer.locator(".ll-copy-cell").click()
    expect(explorer.locator(".ll-copy-cell")).to_have_text("Copied")
    read = "async () => Clipboard.prototype.readText.call(window.clipboardOfThePage)"
    cell = opened.evaluate(read)
    assert "self.history.append(loss.item())" in cell or "trainer.history.append(loss.item())" in cell
    opened.evaluate("async () => navigator.clipboard.writeText('')")
    opened.get_by_text("What the explorer below begins with").click()
    title = opened.locator('.jp-OutputArea summary[data-leaklab="copy"]').first
    title.click()
    expect(title).to_have_text("Copied")
    assert opened.evaluate(read) == cell


def test_code_is_copied_where_the_page_is_given_no_clipboard(opened):
    # So it is in a page that came over http from another machine.
    tab(explorer_of(opened), "Runs")
    tab(explorer_of(opened), "Change")
    without = "value => Object.defineProperty(navigator, 'clipboard', {value, configurable: true})"
    opened.evaluate(f"() => ({without})(undefined)")
    assert copied(opened, 0) == "trainer.history.append(loss)"
    opened.evaluate("() => { delete navigator.clipboard; }")


def test_a_table_is_sorted_and_filtered(opened):
    explorer = explorer_of(opened)
    tab(explorer, "Tables")
    panel = explorer.locator(".ll-panel")
    panel.locator(".ll-which").select_option("Tensors")
    rows = panel.locator("tbody tr")
    n_rows = rows.count()
    panel.get_by_role("button", name="shape").click()
    names = rows.locator("td:nth-child(2)").all_inner_texts()
    assert names == ["()", "(8, 64)"]
    panel.get_by_role("button", name="shape").click()
    assert rows.locator("td:nth-child(2)").all_inner_texts() == ["(8, 64)", "()"]
    panel.locator(".ll-filter").fill("64")
    assert 0 < rows.count() < n_rows


def test_the_kernel_explains_and_looks_behind_the_graph(opened):
    explorer = explorer_of(opened)
    tab(explorer, "Graph")
    explorer.locator(".ll-explain").click()
    expect(explorer.locator(".ll-result")).to_contain_text("path leads to it", timeout=TIMEOUT_MS)
    picture(explorer, "explorer-explain.png")
    tab(explorer, "Autograd")
    explorer.locator(".ll-autograd").click()
    expect(explorer.locator(".ll-result")).to_contain_text("saved tensor", timeout=TIMEOUT_MS)
    expect(explorer.locator(".ll-picture svg")).to_be_visible(timeout=TIMEOUT_MS)
    picture(explorer, "explorer-autograd.png")


def in_memory(explorer, label):
    return explorer.locator(f'.icicle-plot button[aria-label^="{label}, "]')


def test_the_memory_is_walked_with_the_keyboard_and_an_object_is_inspected(opened):
    explorer = explorer_of(opened)
    tab(explorer, "Memory")
    expect(in_memory(explorer, "your variables")).to_be_visible(timeout=TIMEOUT_MS)
    explorer.locator(".icicle-plot button").first.focus()
    expect(in_memory(explorer, "table")).to_be_visible()
    opened.keyboard.press("ArrowDown")
    for _ in range(12):
        if opened.evaluate("document.activeElement.ariaLabel").startswith("table, "):
            break
        opened.keyboard.press("ArrowRight")
    opened.keyboard.press("Enter")
    opened.keyboard.press("ArrowDown")
    drawer = explorer.locator(".ll-drawer")
    expect(drawer.locator("h4").first).to_have_text("table['big']", timeout=TIMEOUT_MS)
    expect(drawer).to_contain_text("(100000,)")
    crumbs = explorer.locator(".icicle nav button")
    assert crumbs.all_inner_texts() == ["all objects", "your variables", "table"]
    opened.keyboard.press("Backspace")
    opened.keyboard.press("Backspace")
    expect(in_memory(explorer, "libraries")).to_be_visible()
    in_memory(explorer, "your variables").click()
    expect(in_memory(explorer, "table")).to_be_visible()


def test_all_objects_are_searched_and_one_of_them_asked_about(opened):
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    explorer = explorer_of(opened)
    explorer.locator(".ll-kind").fill("Tensor")
    explorer.locator(".ll-where").fill("shpe == (1,)")
    explorer.locator(".ll-find").press("Enter")
    expect(explorer.locator(".ll-status.ll-bad")).to_contain_text("did you mean", timeout=TIMEOUT_MS)
    explorer.locator(".ll-kind").fill("Parameter")
    explorer.locator(".ll-where").fill("shape == (64, 64)")
    opened.keyboard.press("Enter")
    expect(explorer.locator(".ll-status")).to_contain_text("1 of ", timeout=TIMEOUT_MS)
    explorer.locator(".ll-objects tbody tr").first.focus()
    opened.keyboard.press("Enter")
    drawer = explorer.locator(".ll-drawer")
    expect(drawer.locator("h4").first).to_have_text("model.weight", timeout=TIMEOUT_MS)
    for words in ("(64, 64)", "float32", "requires_grad", "comes back if it goes", "Holders:"):
        expect(drawer).to_contain_text(words)
    drawer.locator(".ll-values").press("Enter")
    expect(drawer.locator(".ll-result")).to_contain_text("and 4,056 more", timeout=TIMEOUT_MS)
    drawer.locator(".ll-why").press("Enter")
    expect(drawer.locator(".ll-result")).to_contain_text("model.weight", timeout=TIMEOUT_MS)
    drawer.locator(".ll-name").fill("weakly")
    drawer.locator(".ll-put").press("Enter")
    expect(explorer.locator(".ll-status")).to_contain_text("weakly() returns the object", timeout=TIMEOUT_MS)
    drawer.locator(".ll-copy-expression").press("Enter")
    expect(explorer.locator(".ll-status")).to_contain_text("copied: model.weight")
    drawer.locator(".ll-holders tbody tr").first.press("Enter")
    expect(drawer.locator("h4").first).not_to_have_text("model.weight", timeout=TIMEOUT_MS)
    explorer.locator(".ll-objects tbody tr").first.click()
    expect(drawer.locator("h4").first).to_have_text("model.weight", timeout=TIMEOUT_MS)


@pytest.mark.parametrize("width", [900, 1500])
@pytest.mark.parametrize("colours", ["Light", "Dark"])
def test_the_memory_is_read_in_both_themes_and_widths(opened, colours, width):
    theme(opened, f"JupyterLab {colours}")
    opened.set_viewport_size({"width": width, "height": 1500})
    explorer = explorer_of(opened)
    opened.wait_for_timeout(200)
    assert explorer.evaluate("root => root.scrollWidth <= root.clientWidth")
    assert explorer.evaluate(WITHOUT_NAME) == []
    assert explorer.evaluate(HARD_TO_READ) == []
    picture(explorer, f"explorer-memory-{colours.lower()}-{width}.png", style=FOR_THE_DOCUMENTATION)
    theme(opened, "JupyterLab Light")
    opened.set_viewport_size({"width": 1080, "height": 1500})


def test_an_object_of_the_memory_is_shown_in_the_graph_and_the_row_comes_back(opened):
    explorer = explorer_of(opened)
    explorer.locator(".ll-in-graph").press("Enter")
    expect(explorer.locator(".ll-about")).to_contain_text("model.weight")
    expect(explorer.locator(".ll-stage[data-live=true] .ll-node", has_text="Linear")).to_be_visible(timeout=TIMEOUT_MS)
    explorer.locator(".ll-row-again").press("Enter")
    expect(explorer.locator(".ll-about")).to_have_count(0)
    expect(explorer.locator(".ll-stage .ll-node", has_text="list").first).to_be_visible(timeout=TIMEOUT_MS)


def test_the_memory_is_saved_and_read_again(opened, lab):
    explorer = explorer_of(opened)
    tab(explorer, "Memory")
    expect(explorer.locator(".ll-drawer h4").first).to_have_text("model.weight", timeout=TIMEOUT_MS)  # as it was left
    explorer.locator(".ll-file-of-memory").fill("memory.html")
    explorer.locator(".ll-save-memory").press("Enter")
    expect(explorer.locator(".ll-status")).to_contain_text("saved to", timeout=TIMEOUT_MS)
    assert "model.weight" in (lab.files / "memory.html").read_text("utf-8")
    explorer.locator(".ll-read").press(" ")
    expect(explorer.locator(".ll-objects")).to_have_count(0, timeout=TIMEOUT_MS)
    expect(in_memory(explorer, "your variables")).to_be_visible(timeout=TIMEOUT_MS)


def test_release_says_first_what_it_will_do(opened):
    explorer = explorer_of(opened)
    explorer.locator(".ll-tools .ll-release").click()
    expect(explorer.locator(".ll-question")).to_contain_text("1 x torch.Tensor", timeout=TIMEOUT_MS)
    explorer.locator(".ll-yes").click()
    expect(explorer.locator(".ll-status")).to_contain_text("released", timeout=TIMEOUT_MS)


def test_export_asks_before_it_replaces_a_file(opened, lab):
    explorer = explorer_of(opened)
    explorer.locator(".ll-file").fill("seen.json")
    explorer.locator(".ll-export").click()
    expect(explorer.locator(".ll-status")).to_contain_text("saved to", timeout=TIMEOUT_MS)
    assert (lab.files / "seen.json").stat().st_size > 1000
    explorer.locator(".ll-export").click()
    expect(explorer.locator(".ll-question")).to_contain_text("replaces", timeout=TIMEOUT_MS)
    explorer.locator(".ll-no").click()
    expect(explorer.locator(".ll-question")).to_be_empty()


SAME_AS_BEFORE = re.compile(r"was ([\d.]+ KiB) per run, now \1 per run: still leaks")


def test_run_again_checks_the_cell_and_compares(opened):
    explorer = explorer_of(opened)
    explorer.locator(".ll-again").click()
    expect(explorer.locator(".ll-question")).to_contain_text("trainer.history.append(loss)", timeout=TIMEOUT_MS)
    explorer.locator(".ll-yes").click()
    expect(explorer.locator(".ll-comparison")).to_contain_text(SAME_AS_BEFORE, timeout=60_000)
    picture(explorer, "explorer-compared.png")
    explorer.locator(".ll-no").click()
    explorer.locator(".ll-compare").click()
    expect(explorer.locator(".ll-comparison")).to_contain_text(SAME_AS_BEFORE, timeout=TIMEOUT_MS)


SECTIONS = {
    "Change": ".ll-source", "Runs": ".ll-chart", "Graph": ".ll-stage .ll-node", "Autograd": ".ll-autograd",
    "Memory": ".icicle-plot button", "Tables": ".ll-which",
}  # fmt: skip
ANSWERS = {"Graph": ".ll-explain", "Autograd": ".ll-autograd"}


@pytest.mark.parametrize("colours", ["Light", "Dark"])
def test_axe_finds_nothing_in_any_section(opened, axe, colours):
    theme(opened, f"JupyterLab {colours}")
    opened.evaluate(axe)
    explorer = explorer_of(opened)
    findings = {}
    for title, shown in SECTIONS.items():
        tab(explorer, title)
        expect(explorer.locator(f".ll-panel {shown}").first).to_be_visible(timeout=TIMEOUT_MS)
        if title in ANSWERS:
            explorer.locator(ANSWERS[title]).click()
            expect(explorer.locator(".ll-panel .ll-result .ll-strong")).to_be_visible(timeout=TIMEOUT_MS)
        if found := [*explorer.evaluate(AXE, RULES[colours]), *explorer.evaluate(HARD_TO_READ)]:
            findings[title] = found
    theme(opened, "JupyterLab Light")
    assert findings == {}


def test_the_keys_come_to_every_section_and_all_that_is_in_it(opened):
    explorer = explorer_of(opened)
    tab(explorer, next(iter(SECTIONS)))
    found, tabs = {}, explorer.get_by_role("tab")
    for place, title in enumerate(tabs.all_inner_texts()):
        expect(tabs.nth(place)).to_be_focused()
        expect(tabs.nth(place)).to_have_attribute("aria-selected", "true")
        expect(explorer.locator(f".ll-panel {SECTIONS[title]}").first).to_be_visible(timeout=TIMEOUT_MS)
        missed, unseen, _n = stops(opened, explorer)
        if missed or unseen:
            found[title] = [missed[:3], unseen[:3]]
        tabs.nth(place).press("ArrowRight")
    expect(tabs.first).to_be_focused()  # the last one is followed by the first
    assert found == {}


def test_while_a_cell_runs_the_explorer_says_busy(opened):
    opened.evaluate(
        """() => {
            const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
            kernel.requestExecute({code: 'import time; time.sleep(2)'});
        }"""
    )
    explorer = explorer_of(opened)
    tab(explorer, "Graph")
    explorer.locator(".ll-look").click()
    expect(explorer.locator(".ll-wait")).to_contain_text("busy", timeout=5_000)
    expect(explorer.locator(".ll-stage[data-live=true]")).to_be_visible(timeout=TIMEOUT_MS)
    expect(explorer.locator(".ll-wait")).to_be_empty(timeout=TIMEOUT_MS)


def test_closing_leaves_no_widget_in_the_kernel(opened):
    explorer_of(opened).locator(".ll-close").click()
    expect(explorer_of(opened)).to_have_count(0, timeout=TIMEOUT_MS)
    type_and_run(opened, CLOSED)
    expect(opened.locator(".jp-OutputArea-executeResult").last).to_contain_text("(True, [])", timeout=TIMEOUT_MS)


def test_the_living_heap_is_explored_without_a_report(opened, axe):
    type_and_run(opened, HEAP)
    explorer = explorer_of(opened)
    expect(explorer.locator(".ll-head")).to_contain_text("HEAP", timeout=TIMEOUT_MS)
    expect(explorer.locator(".icicle-plot button").first).to_be_visible(timeout=TIMEOUT_MS)
    picture(explorer, "explorer-heap-memory.png")
    opened.evaluate(axe)
    assert [*explorer.evaluate(AXE, {}), *explorer.evaluate(HARD_TO_READ)] == []
    explorer.locator(".ll-list .ll-filter").fill("trainer")
    explorer.locator(".ll-list .ll-row").first.click()
    expect(explorer.locator(".ll-stage .ll-node", has_text="Trainer")).to_be_visible(timeout=TIMEOUT_MS)
    picture(explorer, "explorer-heap.png")
    explorer.locator(".ll-close").click()


def number_of_the_exploring_cell(page):
    """The number of the cell's last execution, None while it is executed."""
    return page.evaluate(
        """() => {
            const { content } = window.jupyterapp.shell.currentWidget;
            const cell = content.widgets.find(cell => cell.model.sharedModel.source.startsWith('grouped ='));
            return cell.model.executionCount;
        }"""
    )


def test_leaks_of_one_line_are_folded_and_their_paths_are_merged(opened, axe):
    opened.evaluate(axe)
    type_and_run(opened, GROUPED)
    type_and_run(opened, EXPLORE_GROUPED)
    explorer = explorer_of(opened)
    rows = explorer.locator(".ll-list tbody tr")
    expect(rows).to_have_count(1, timeout=60_000)
    head = rows.first
    expect(head).to_contain_text("12 leaks")
    expect(head).to_contain_text("in keep: kept.append(")
    expect(explorer.locator(".ll-list .ll-bar")).to_contain_text("12 rows, 12 of them folded")
    expect(explorer.locator(".ll-panel .ll-ways").first).to_contain_text("6 of 7 through ['loss']")
    expect(explorer.locator(".ll-panel .ll-ways").nth(1)).to_have_text("all 12 places through store.kept_#")
    picture(explorer, "explorer-grouped.png")
    head.locator(".ll-fold").press("Enter")
    expect(rows).to_have_count(13)
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        opened.keyboard.press(key)
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
    assert explorer.locator(".ll-list [aria-selected=true]").count() == 1
    picture(explorer, "explorer-unfolded.png")
    assert explorer.evaluate(AXE, {}) == []
    theme(opened, "JupyterLab Dark")
    opened.set_viewport_size({"width": 900, "height": 1500})
    opened.wait_for_timeout(200)
    assert explorer.evaluate(HARD_TO_READ) == []
    assert explorer.evaluate("root => root.scrollWidth <= root.clientWidth")
    picture(explorer, "explorer-unfolded-dark.png")
    theme(opened, "JupyterLab Light")
    opened.set_viewport_size({"width": 1080, "height": 1500})
    explorer.get_by_role("button", name="bytes per run").click()
    expect(rows.first).to_contain_text("12 leaks")
    rows.first.locator(".ll-fold").press(" ")
    expect(rows).to_have_count(1)
    expect(rows.first).to_have_attribute("aria-selected", "true")
    explorer.locator(".ll-list .ll-filter").fill("kept_11")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("store.kept_11")
    expect(explorer.locator(".ll-list .ll-bar")).to_contain_text("1 of 12 rows")


def test_the_notebook_is_saved_and_its_cell_run_while_the_focus_is_in_the_explorer(opened):
    explorer = explorer_of(opened)
    explorer.locator(".ll-list .ll-filter").focus()
    number = number_of_the_exploring_cell(opened)
    # Jupyter saves by itself every two minutes, and did so a moment ago where the machine is slow.
    opened.evaluate("() => { window.jupyterapp.shell.currentWidget.context.model.dirty = true; }")
    opened.keyboard.press("Control+s")
    opened.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    explorer.get_by_role("tab", name="Runs").focus()
    opened.keyboard.press("Shift+Enter")
    expect(explorer.locator(".ll-list .ll-fold")).to_have_text("\u25b8 12 leaks", timeout=TIMEOUT_MS)
    opened.wait_for_function(IDLE)
    assert number_of_the_exploring_cell(opened) == number + 1
    expect(opened.locator(".leaklab")).to_have_count(1)
    explorer.locator(".ll-close").click()


def test_hostile_names_execute_nothing_and_keep_the_layout(opened):
    title = opened.title()
    type_and_run(opened, HOSTILE)
    explorer = explorer_of(opened)
    expect(explorer.locator(".ll-tabs")).to_be_visible(timeout=TIMEOUT_MS)
    for name in ("Graph", "Change", "Runs", "Autograd"):
        tab(explorer, name)
        expect(explorer.locator(".ll-panel")).to_be_visible()
    picture(explorer, "explorer-hostile.png")
    assert explorer.locator("script, img").count() == 0
    assert explorer.evaluate("root => root.scrollWidth <= root.clientWidth")
    assert "pwned" not in opened.title()
    assert title.split()[0] == opened.title().split()[0]
    explorer.locator(".ll-close").click()


def test_nothing_left_the_machine_and_nothing_was_complained_of(opened):
    assert (opened.outside, opened.errors) == ([], [])
