"""``%leaks``: the right first line for five full kernels, the right magic for what it is asked, and next to no cost."""

from __future__ import annotations

import gc
import json
import sys
import time
import weakref

import pytest
import torch
from notebook_shell import Notebook

import leaklab
from leaklab.model.kernel import Suspicion
from leaklab.text import format_bytes

LOAD = "%load_ext leaklab"


@pytest.fixture
def kernel(notebook: Notebook) -> Notebook:
    """A notebook that has just begun, so that its cells are counted from the first."""
    notebook.run("%reload_ext leaklab")
    return notebook


def looked(kernel: Notebook, *cells: str) -> leaklab.KernelReport:
    for cell in cells:
        kernel.run(cell)
    typed = kernel.run("%leaks -q -v seen")
    assert typed.error is None, typed.err
    return kernel.user["seen"]


def first_line(report: leaklab.KernelReport) -> str:
    """What stands first below the two lines that say how much there is, with its command."""
    lines = str(report).splitlines()[2:]
    end = next(number for number, line in enumerate(lines) if line.startswith(" " * 14 + "%") or "import " in line)
    return " ".join(" ".join(lines[: end + 1]).split())


NET = "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))"
KERNELS = {
    "outputs": (
        [NET, *["torch.ones(200_000)"] * 5, "net"],
        Suspicion.OUTPUTS,
        (
            "3.82 MiB `Out` remembers 5 results that no variable holds; the largest is torch.Tensor (200000,) float32"
            " cpu %leaks --let-go"
        ),
    ),
    "graphs": (
        [f"{NET}\nlosses = []", *["losses.append(net(torch.ones(256, 64)).mean())"] * 5],
        Suspicion.GRAPHS,
        "`losses` keeps the graphs of 5 tensors; the largest is torch.Tensor (256, 512) float32 cpu %autograd losses",
    ),
    "hooks": (
        [NET]
        + [
            (
                "batch = torch.ones(1000, 64)\ndef watch(module, args, out, batch=batch):\n    pass\n"
                "handle = net[0].register_forward_hook(watch)"
            )
        ]
        * 6,
        Suspicion.HOOKS,
        (
            "1.22 MiB the hook `watch` is registered 6 times on `net[0]._forward_hooks`; the largest is torch.Tensor"
            " (1000, 64) float32 cpu %whyalive list(net[0]._forward_hooks.values())[-1]"
        ),
    ),
    "figures": (
        ["import matplotlib.pyplot as plt", *["figure = plt.figure()\nplt.plot(range(50_000))"] * 6],
        Suspicion.FIGURES,
        'their drawings in C++, of unknown size, come on top import matplotlib.pyplot as plt; plt.close("all")',
    ),
    "figures in a list": (
        [
            "import matplotlib.pyplot as plt\nkept = []",
            *["kept.append(plt.figure())\nplt.plot(range(50_000))\nplt.close('all')"] * 6,
        ],
        Suspicion.FIGURES,
        "`kept` keeps 6 figures of matplotlib; their drawings in C++, of unknown size, come on top %whyalive kept",
    ),
    "error": (
        [
            "import torch\ndef train(n):\n    batch = torch.ones(n, 1000)\n    return batch @ torch.ones(3)",
            "train(500)",
            "1",
        ],
        Suspicion.EXCEPTION,
        (
            "1.91 MiB the last error (RuntimeError) keeps the variables of its functions; the largest is `batch` in"
            " train(), torch.Tensor (500, 1000) float32 cpu %leaks --let-go"
        ),
    ),
    "a list that grows": (
        ["import torch\nhistory = []", *["history.append(torch.ones(100_000))"] * 6],
        Suspicion.CELL,
        "(`history.append(torch.ones(100_000))`): each of its last 5 executions added 391 KiB %leaks In[",
    ),
    "a model": (
        [NET, "frozen = torch.ones(1_000_000)\nnet(torch.ones(9, 64)).sum().backward()"],
        Suspicion.HOLDER,
        "3.81 MiB `frozen` holds torch.Tensor (1000000,) float32 cpu %whyalive frozen",
    ),
}


@pytest.fixture
def no_figures():
    """The tests of a process share matplotlib's list of figures."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.parametrize(("cells", "kind", "words"), KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.usefixtures("no_figures")
def test_first_line_of_a_full_kernel_says_what_fills_it_and_what_to_run_next(kernel, cells, kind, words):
    report = looked(kernel, *cells)
    assert report.record.suspects[0].kind is kind, str(report)
    assert words in first_line(report)
    loaded = leaklab.KernelReport.from_json(report.to_json())
    assert loaded == report


def test_empty_kernel_gets_one_sentence(kernel):
    report = looked(kernel, "x = 1")
    assert str(report).startswith("nothing stands out in this kernel: ")
    assert len(str(report).splitlines()) == 1


def test_what_two_hold_goes_only_if_both_let_go(kernel, no_figures):
    report = looked(kernel, "import matplotlib.pyplot as plt", *["plt.figure(); plt.plot(range(50_000))"] * 5)
    (figures,) = [one for one in report.record.suspects if one.kind is Suspicion.FIGURES]
    assert figures.command == 'import matplotlib.pyplot as plt; plt.close("all")\n%leaks --let-go'
    for command in figures.command.splitlines():
        kernel.run(command)
    gc.collect()
    import matplotlib.figure

    assert not [thing for thing in gc.get_objects() if type(thing) is matplotlib.figure.Figure]


def test_notebook_lets_go_of_what_it_keeps_itself(kernel):
    kernel.run("import torch\ntorch.ones(200_000)")
    kernel.run("torch.ones(3) @ torch.ones(4)")
    kept = weakref.ref(next(value for value in kernel.user["_oh"].values() if torch.is_tensor(value)))
    typed = kernel.run("%leaks --let-go")
    assert typed.out.startswith("let go: Out, _, __, ___ and their hidden copies: 1 value")
    gc.collect()
    assert kept() is None
    assert "keeps nothing" in kernel.run("%leaks --let-go").out


def test_handlers_that_pile_up_on_a_logger_are_named(kernel):
    import logging

    cell = "import logging\nlogging.getLogger('of a test').addHandler(logging.StreamHandler())"
    try:
        report = looked(kernel, *[cell] * 12)
    finally:
        logging.getLogger("of a test").handlers.clear()
    assert report.record.suspects[0].kind is Suspicion.CALLBACKS
    assert "`logging.getLogger('of a test').handlers` has logging.StreamHandler 12 times" in str(report)
    assert report.commands[0] == "%whyalive logging.getLogger('of a test').handlers[-1]"


ASKED = {
    "kept[0]": "%whyalive kept[0]",
    "losses": "%autograd losses",
    "dict(a=losses[0])": "%leakcheck dict(a=losses[0])",
    "add": "%leakcheck add()",
    "add()": "%leakcheck add()",
    "x = add()": "%leakcheck x = add()",
    "lambda: add()": "%leakcheck (lambda: add())()",
    "Box": "leaklab.find(Box)",
}


@pytest.mark.parametrize(("asked", "told"), ASKED.items(), ids=ASKED.keys())
def test_what_is_asked_goes_to_the_magic_that_answers_it(kernel, asked, told):
    kernel.run(
        f"{NET}\nclass Box: pass\nkept = [Box()]\nlosses = [net(torch.ones(2, 64)).sum()]\ndef add(): return [1]"
    )
    options = "-q -v seen --no-cure -n 4" if "leakcheck" in told else "-q -v seen"
    if "leakcheck" in told:
        kernel.shell.magics_manager.magics["line"]["leakcheck"] = lambda line: kernel.user.update(seen=line)
        options = ""
    typed = kernel.run(f"%leaks {options} {asked}")
    assert typed.error is None
    assert typed.out.splitlines()[0] == told
    seen = kernel.user["seen"]
    assert (
        seen == told.removeprefix("%leakcheck ")
        if "leakcheck" in told
        else type(seen).__module__.startswith("leaklab.")
    )


@pytest.mark.untraced
def test_cell_is_checked_by_its_number(kernel):
    kernel.run("history = []")
    kernel.run("history.append([1])")
    number = len(kernel.user["In"]) - 1
    typed = kernel.run(f"%leaks -q -v seen In[{number}]")
    assert typed.error is None, typed.err
    assert typed.out == f"%%leakcheck -q -v seen of In[{number}]: history.append([1])\n"
    assert kernel.user["seen"].leaked


REFUSED = {
    "In[999]": "there is no cell In[999] in this kernel",
    "train": "train needs arguments: write the call, as in %leaks train(model, batch)",
    "kept[0": "'kept[0' is not valid Python: ",
    "await wait()": "await wait() uses await: write %%leakcheck above it in a cell of its own",
    "missing": "there is no variable 'missing'",
}


@pytest.mark.parametrize(("asked", "words"), REFUSED.items(), ids=REFUSED.keys())
def test_what_cannot_be_asked_is_one_sentence(kernel, asked, words):
    kernel.run("def train(model, batch, epochs=1): pass\nasync def wait(): pass")
    typed = kernel.run(f"%leaks {asked}")
    assert words in str(typed.error)


def test_bookkeeping_costs_next_to_nothing_and_collects_no_garbage(kernel):
    """At most 0.3 gc.collect() a cell is allowed; it is a thousandth."""
    kernel.run("import torch")
    magics = kernel.shell.magics_manager.registry["LeaksMagics"]
    began = time.perf_counter()
    gc.collect()
    collection = time.perf_counter() - began
    n_collections = sum(generation["collections"] for generation in gc.get_stats())
    n_cells = 200
    began = time.perf_counter()
    for number in range(n_cells):
        magics._levels.start_cell()
        magics._levels.end_cell(number, "x = 1")
    each = (time.perf_counter() - began) / n_cells
    assert each < 0.3 * collection
    assert sum(generation["collections"] for generation in gc.get_stats()) == n_collections


def test_table_of_cells_has_a_size_that_never_changes(kernel):
    from leaklab.measure.cell_levels import N_CELLS, CellLevels

    levels = CellLevels()
    for number in range(N_CELLS + 7):
        levels.start_cell()
        levels.end_cell(number, f"cell {number % 2}")
    runs = levels.runs()
    assert sum(len(one.n_bytes) for one in runs) == N_CELLS
    assert [one.number for one in runs] == [N_CELLS + 5, N_CELLS + 6]


def test_what_a_cell_makes_lives_no_longer_for_being_counted(kernel):
    kernel.run("import torch")
    kernel.run("thing = torch.ones(3)")
    kept = weakref.ref(kernel.user["thing"])
    kernel.run("del thing")
    assert kept() is None


def test_unloading_takes_the_bookkeeping_away(kernel):
    def ours():
        callbacks = kernel.shell.events.callbacks.values()
        return [
            one for each in callbacks for one in each if type(getattr(one, "__self__", None)).__name__ == "CellEvents"
        ]

    assert len(ours()) == 2
    kernel.run("%reload_ext leaklab")
    assert len(ours()) == 2
    kernel.run("%unload_ext leaklab")
    assert ours() == []
    kernel.run(LOAD)


def test_button_says_in_html_what_the_notebook_runs(kernel):
    report = looked(kernel, "import torch\nkept = torch.ones(1_000_000)")
    markup = report._repr_mimebundle_()["text/html"]
    arguments = markup.partition('data-commandlinker-args="')[2].partition('"')[0].replace("&quot;", '"')
    assert json.loads(arguments)["args"] == {"text": "%whyalive kept"}
    assert "<button" not in report.to_html()


def test_levels_of_an_accelerator_are_told_with_what_no_tensor_explains(kernel, monkeypatch):
    from leaklab.ask import kernel as ask

    monkeypatch.setattr(ask, "levels_by_device", lambda: {"cuda:0": (3 << 20, 8 << 20)})
    report = looked(kernel, "import torch")
    assert "cuda:0 3.00 MiB allocated of 8.00 MiB reserved" in str(report)
    assert "allocated on cuda:0 by what is unknown: no tensor of Python uses it" in str(report)
    assert "torch has reserved it on cuda:0 and does not use it" in str(report)
    assert "import torch; torch.cuda.empty_cache()" in report.commands


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_memory_of_a_card_is_that_of_its_tensors(kernel):
    """What else is allocated there, such as the workspace of a product of matrices, no tensor explains."""
    report = looked(kernel, "import torch\nkept = torch.ones(5_000_000, device='cuda')")
    (device,) = report.record.devices
    assert (device.device, device.tensors) == ("cuda:0", 20_000_000)
    assert device.tensors <= device.allocated <= device.reserved
    allocated, reserved = format_bytes(device.allocated), format_bytes(device.reserved)
    assert f"cuda:0 {allocated} allocated of {reserved} reserved" in str(report)
    kernel.run("del kept")
    assert "torch has reserved it on cuda:0 and does not use it" in str(looked(kernel))
