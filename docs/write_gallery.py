"""Write the gallery of causes: run each program below under a check and put down what the report says.

Run it as ``python docs/write_gallery.py`` after a word of the advice has changed: about five minutes.
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from IPython.core.interactiveshell import InteractiveShell

from leaklab.model import Leak
from leaklab.render.advice import advice_of, cure_of
from leaklab.render.words import cause_words

PAGE = Path(__file__).with_name("gallery_of_causes.md")
HEAD = """# Gallery of causes

One small program for each kind of leak, with the symptom that people notice, and what the report says: who holds it,
the cause, and the change that was tried, or the advice where none was. The page is made by running the programs
(`python docs/write_gallery.py`, with `--cure -t 120`, so that the trials have time on a busy machine).
[The table of all causes](how_it_works.md#explaining) says what each name means, and
[Changes that were tried](changes_that_were_tried.md) what a trial does and does not do.
"""


class Program(NamedTuple):
    """One leak: its title, what people notice, what runs once and what runs again and again."""

    title: str
    symptom: str
    setup: str
    cell: str


PROGRAMS = (
    Program(
        "A list of losses",
        "Memory grows a little with every step, and more with a larger network.",
        "import torch\nnet = torch.nn.Linear(64, 1)\nhistory = []",
        "loss = net(torch.randn(32, 64)).square().mean()\nloss.backward()\nhistory.append(loss)",
    ),
    Program(
        "A running total",
        "Each step is a little slower than the one before.",
        "import torch\nnet = torch.nn.Linear(64, 1)\ntotal = torch.zeros(())",
        "loss = net(torch.randn(32, 64)).square().mean()\nloss.backward()\ntotal = total + loss",
    ),
    Program(
        "A hidden state that is carried on",
        "A recurrent network runs out of memory after some hundred sequences, or backward() asks for `retain_graph`.",
        "import torch\nrnn = torch.nn.GRU(16, 16)\nhidden = torch.zeros(1, 4, 16)",
        "out, hidden = rnn(torch.randn(5, 4, 16), hidden)\nscore = float(out.mean())",
    ),
    Program(
        "Predictions of every batch",
        "Validation needs more memory the longer it runs; the accelerator is full at the end of the epoch.",
        "import torch\nnet = torch.nn.Linear(64, 64)\npredictions = []",
        "with torch.no_grad():\n    predictions.append(net(torch.randn(128, 64)))",
    ),
    Program(
        "A hook in every run",
        "Each run is slower than the one before, and what the hooks keep piles up.",
        "import torch\nnet = torch.nn.Linear(64, 64)\nseen = []",
        "scale = torch.rand(64, 64)\n"
        "net.weight.register_hook(lambda gradient: gradient * scale)\n"
        "net(torch.randn(8, 64)).sum().backward()",
    ),
    Program(
        "A cache without a limit",
        "Memory grows as long as new inputs come.",
        "import torch\nPOSITIONS = {}\nlength = 100",
        "length += 1\n"
        "if length not in POSITIONS:\n"
        "    POSITIONS[length] = torch.arange(float(length)).sin()\n"
        "table = POSITIONS[length]",
    ),
    Program(
        "Figures that stay open",
        "matplotlib warns that more than 20 figures have been opened.",
        "import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt",
        "figure, axes = plt.subplots()\naxes.plot(range(100))",
    ),
    Program(
        "A handler for every run",
        "Each message appears twice, then three times, then four times.",
        "import logging\nlog = logging.getLogger('training')\nlog.propagate = False",
        "handler = logging.NullHandler()\nlog.addHandler(handler)\nlog.info('begin')",
    ),
    Program(
        "A default value that is shared",
        "A function remembers what earlier calls have given it.",
        "import torch\ndef smooth(x, window=[]):\n    window.append(x)\n    return sum(window[-5:]) / len(window[-5:])",
        "average = smooth(torch.randn(100, 100))",
    ),
    Program(
        "Exceptions that are kept",
        "Memory grows with every failed batch.",
        "import torch\nfailures = []\ndef step():\n    activations = torch.randn(100, 100)\n"
        "    raise ValueError('a bad batch')",
        "try:\n    step()\nexcept ValueError as error:\n    failures.append(error)",
    ),
    Program(
        "A queue that nobody empties",
        "A service that answers more slowly than it is asked.",
        "import queue\nimport torch\nrequests = queue.Queue()",
        "requests.put(torch.randn(100, 100))\nrequests.put(torch.randn(100, 100))\ndone = requests.get()",
    ),
    Program(
        "Copies of the model",
        "Early stopping keeps every state that was the best for a while.",
        "import copy\nimport torch\nnet = torch.nn.Linear(64, 64)\nbest = []",
        "best.append(copy.deepcopy(net))",
    ),
    Program(
        "Groups of an optimizer",
        "An optimizer gets slower and larger with every task.",
        "import torch\nbase = torch.nn.Linear(64, 64)\noptimizer = torch.optim.Adam(base.parameters())",
        "head = torch.nn.Linear(64, 64)\n"
        "optimizer.add_param_group({'params': head.parameters()})\n"
        "optimizer.zero_grad()\n"
        "head(base(torch.randn(8, 64))).sum().backward()\n"
        "optimizer.step()",
    ),
    Program(
        "Models of earlier runs",
        "A search over settings runs out of memory after some trials.",
        "import torch\nresults = {}\ntrial = 0",
        "trial += 1\nnet = torch.nn.Linear(64, 64)\n"
        "net(torch.randn(8, 64)).sum().backward()\nresults[trial] = net",
    ),
    Program(
        "A hook that uses its own tensor",
        "No variable holds anything, `gc.collect()` frees nothing, and memory grows.",
        "import torch\nnet = torch.nn.Linear(64, 64)\n"
        "def step():\n    y = net(torch.randn(128, 64))\n"
        "    y.register_hook(lambda gradient: gradient * y)\n    y.sum().backward()",
        "step()",
    ),
    Program(
        "A tensor that is made larger",
        "Each step is slower than the one before; the number of tensors stays the same.",
        "import torch\nscores = torch.zeros(0)",
        "scores = torch.cat([scores, torch.randn(1000)])",
    ),
    Program(
        "Threads that wait for ever",
        "The number of threads grows, and each keeps what its function uses.",
        "import threading\nimport torch\nstop = threading.Event()",
        "batch = torch.randn(100, 100)\n"
        "threading.Thread(target=lambda x: stop.wait(), args=(batch,), daemon=True).start()",
    ),
    Program(
        "Files that stay open",
        "After some hours: `OSError: Too many open files`.",
        "import os",
        "number = os.open('/dev/null', os.O_RDONLY)\ndata = os.read(number, 10)",
    ),
    Program(
        "Cycles, while the collector is off",
        "Memory falls after `gc.collect()`, and grows again.",
        "import gc\nimport torch\ngc.disable()\nclass Node:\n    pass",
        "node = Node()\nnode.me = node\nnode.data = torch.randn(100, 100)",
    ),
)  # fmt: skip


def said_of(program: Program) -> dict[str, str]:
    """Return what a check says of *program*; it runs in this process, which must be a fresh one."""
    shell: Any = InteractiveShell.instance()
    shell.run_cell(program.setup, store_history=True).raise_error()
    shell.run_line_magic("load_ext", "leaklab")
    shell.run_cell_magic("leakcheck", "-q --cure -t 120 -v report", program.cell)
    report = shell.user_ns["report"]
    leak = report.leaks[0]
    causes = "; also ".join(map(cause_words, (leak.cause, *leak.also_causes)))
    return {"held by": leak.holder, "cause": causes, "says": says(leak)}


def says(leak: Leak) -> str:
    """Return the change that cured, with its proof, or else the advice."""
    advice, cured = advice_of(leak), cure_of(leak)
    if cured is None:
        return advice.text
    shown = (one for one in advice.diff if one.sign != "@" or len(cured.changes) > 1)
    return "\n".join((advice.words, *(f"    {one.sign} {one.text}" for one in shown), f"Proof: {advice.proof}."))


def section(program: Program, said: dict[str, str]) -> str:
    """Return one program as Markdown."""
    code = f"```python\n{program.setup}\n```\n\n<!-- not run: it leaks -->\n```python\n%%leakcheck\n{program.cell}\n```"
    told = "\n".join(wrapped(line) for line in said["says"].splitlines() if not line.startswith(_OF_FIGURES))
    report = f"held by: {said['held by']}\ncause:   {said['cause']}\n\n{told}"
    return f"## {program.title}\n\n{program.symptom}\n\n{code}\n\n```text\n{report}\n```\n"


def wrapped(line: str) -> str:
    """Return *line* in lines that fit the page; code as it is."""
    return line if line.startswith(" ") else textwrap.fill(line, _WIDTH, break_long_words=False)


_WIDTH = 100
_OF_FIGURES = ("Letting go of it frees", "The runs get slower")


def main() -> int:
    """Write the page, each program in a process of its own; return the exit status."""
    if len(sys.argv) > 1:
        print(json.dumps(said_of(PROGRAMS[int(sys.argv[1])])))
        return 0
    parts = [HEAD]
    for number, program in enumerate(PROGRAMS):
        command = [sys.executable, __file__, str(number)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - itself
        parts.append(section(program, json.loads(done.stdout.splitlines()[-1])))
        print(program.title, flush=True)
    PAGE.write_text("\n".join(parts), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
