"""Ask other tools about the leaks that leaklab is asked about, and print what each of them says.

Run it as ``python benchmarks/peers.py [TOOL ...]``, with objgraph, pympler, guppy3, memray and memory_profiler
installed. Every program below is run by each tool in a process of its own: five runs to warm up, twenty that the tool
looks at, called as the tool's own documentation says. The truth is counted without any tool: what malloc has handed
out, with Python's own allocator switched off. Then it prints, as Markdown, whether a tool's answer has the amount, the
line and the holder, what it says of programs that leak nothing, and its seconds. ``--json FILE`` keeps their words.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import types
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

N_WARM_UP, N_RUNS = 5, 20
N_ROWS = 5
"""A person reads so many rows of a table: a line or a holder further down is not counted as named."""
SMALLEST_ALARM = 1024
"""A tool that counts bytes raises an alarm on a clean program from so many bytes per run on."""


@dataclass(frozen=True)
class Program:
    """Something that is run again and again.

    Attributes:
        setup: Runs once.
        body: The lines of the function ``run``; those that keep and make end in ``# keeps`` and ``# makes``.
        holder: What should drop the reference, as an expression; empty where no Python object does, or nothing leaks.
        leaks: Whether every run leaves something.
    """

    setup: str
    body: str
    holder: str = ""
    leaks: bool = True

    @property
    def source(self) -> str:
        """The program as a file."""
        body = "".join(f"    {line}\n" for line in self.body.splitlines())
        return f"{self.setup}\n\n\ndef run():\n{body}"

    def lines(self) -> dict[int, str]:
        """What the lines do that have something to do with the leak."""
        marked = enumerate(self.source.splitlines(), 1)
        return {number: line.rsplit("# ", 1)[1] for number, line in marked if line.endswith(("# keeps", "# makes"))}


NET = "import torch\ntorch.manual_seed(0)\nnet = torch.nn.Linear(64, 64)\n"
PROGRAMS = {
    "losses with their graphs in a list": Program(
        NET + "history = []",
        "loss = net(torch.randn(32, 64)).square().mean()  # makes\nloss.backward()\nhistory.append(loss)  # keeps",
        "history",
    ),
    "predictions in an attribute": Program(
        NET + "class Evaluator:\n    pass\n\nevaluator = Evaluator()\nevaluator.outputs = []",
        "with torch.no_grad():\n    out = net(torch.randn(128, 64))  # makes\nevaluator.outputs.append(out)  # keeps",
        "evaluator.outputs",
    ),
    "NumPy arrays in a dict": Program(
        "import numpy as np\nimport torch\nframes = {}",
        "frame = np.ones(5000)  # makes\nframes[len(frames)] = frame  # keeps",
        "frames",
    ),
    "a hook in every run": Program(
        NET,
        "scale = torch.rand(64, 64)  # makes\n"
        "net.register_forward_hook(lambda module, args, output: output * scale.mean())  # keeps",
        "net._forward_hooks",
    ),
    "a tensor's hook that uses the tensor": Program(
        NET,
        "y = net(torch.randn(128, 64))  # makes\ny.register_hook(lambda gradient: gradient * y)  # keeps",
    ),
    "exceptions with their frames": Program(
        "import torch\nfailures = []\n\ndef step():\n    batch = torch.randn(100, 100)  # makes\n    raise ValueError",
        "try:\n    step()\nexcept ValueError as error:\n    failures.append(error)  # keeps",
        "failures",
    ),
    "an lru_cache without a limit": Program(
        "import functools\nimport torch\nlength = 5000\n\n@functools.lru_cache(None)\ndef positions(length):\n"
        "    return torch.arange(float(length)).sin()  # makes",
        "global length\nlength += 1\npositions(length)  # keeps",
        "positions",
    ),
    "new without delete in C++": Program(
        "import ctypes\nimport torch\nlibrary = ctypes.CDLL('libstdc++.so.6')\nnew = library._Znwm\n"
        "new.argtypes, new.restype = [ctypes.c_size_t], ctypes.c_void_p",
        "ctypes.memset(new(40_000), 1, 40_000)  # makes",
    ),
    "clean: training with Adam": Program(
        NET + "optimizer = torch.optim.Adam(net.parameters())",
        "optimizer.zero_grad()\nloss = net(torch.randn(32, 64)).square().mean()\nloss.backward()\noptimizer.step()",
        leaks=False,
    ),
    "clean: a deque(maxlen=40) that fills": Program(
        "import collections\nimport torch\nrecent = collections.deque(maxlen=40)",
        "recent.append(torch.randn(100, 100))",
        leaks=False,
    ),
    "clean: cycles that the collector frees": Program(
        "import torch\nclass Node:\n    pass",
        "node = Node()\nnode.me = node\nnode.data = torch.randn(100, 100)",
        leaks=False,
    ),
}  # fmt: skip


@dataclass
class Said:
    """What a tool says of one program.

    Attributes:
        words: The first rows, or the first lines of a report.
        bytes_per_run: As the tool states it; None where it states none.
        objects_per_run: Of the type that grows most.
        is_alarm: Whether a reader sees something that every run leaves.
        lines: Whether the line that ``makes`` or ``keeps`` is in the words.
        has_holder: Whether the holder is named.
        seconds: What the tool cost, beside the runs themselves.
    """

    words: list[str] = field(default_factory=list)
    bytes_per_run: float | None = None
    objects_per_run: float | None = None
    is_alarm: bool = False
    lines: list[str] = field(default_factory=list)
    has_holder: bool = False
    seconds: float = 0.0


class Running:
    """A program of a file, imported as the main module of its process would be."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        self.file = folder / "program.py"
        self.file.write_text(program.source, "utf-8")
        self.module = types.ModuleType("program")
        self.module.__file__ = str(self.file)
        sys.modules["program"] = self.module
        exec(compile(program.source, str(self.file), "exec"), vars(self.module))  # noqa: S102 - written above
        self.run: Callable[[], object] = self.module.run
        self.repeat(N_WARM_UP)

    def repeat(self, n: int) -> None:
        """Run it so many times."""
        for _ in range(n):
            self.run()

    @property
    def holder(self) -> object:
        """The object that should let go."""
        return eval(self.program.holder, vars(self.module)) if self.program.holder else None  # noqa: S307

    def named_lines(self, words: list[str]) -> list[str]:
        """Return which of the lines that matter stand in *words*."""
        found = {int(number) for number in re.findall(r"program\.py:(\d+)", "\n".join(words))}
        return sorted({what for number, what in self.program.lines().items() if number in found})


def ask_gc(running: Running) -> Said:
    """Count tensors in `gc.get_objects`, the recipe of many forum threads."""
    import torch

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())

    before = tensors()
    running.repeat(N_RUNS)
    grown = (tensors() - before) / N_RUNS
    return Said([f"{grown:+g} tensors per run"], objects_per_run=grown, is_alarm=grown >= 1)


def ask_objgraph(running: Running) -> Said:
    """Ask which types grow, then for a chain of references to the newest object of the one that grows most."""
    objgraph = importlib.import_module("objgraph")
    objgraph.growth()
    running.repeat(N_RUNS)
    rows = [row for row in objgraph.growth(limit=10) if row[2] >= N_RUNS]
    said = Said([f"{name} {count} +{grown}" for name, count, grown in rows], is_alarm=bool(rows))
    if rows:
        said.objects_per_run = rows[0][2] / N_RUNS
        for name, _count, _grown in rows[:N_ROWS]:
            chain = objgraph.find_backref_chain(objgraph.by_type(name)[-1], objgraph.is_proper_module)
            said.words.append(" -> ".join(type(one).__name__ for one in chain))
            said.has_holder |= running.holder is not None and any(one is running.holder for one in chain)
    return said


def ask_pympler(running: Running) -> Said:
    """Ask for the rows of its difference of summaries."""
    tracker = importlib.import_module("pympler.tracker").SummaryTracker()
    tracker.diff()
    running.repeat(N_RUNS)
    rows = sorted((row for row in tracker.diff() if row[1] >= N_RUNS), key=lambda row: -row[2])
    said = Said([f"{name} {count:+d} {size:+d} B" for name, count, size in rows[:10]], is_alarm=bool(rows))
    if rows:
        said.bytes_per_run = sum(row[2] for row in rows) / N_RUNS
        said.objects_per_run = rows[0][1] / N_RUNS
    return said


def ask_guppy(running: Running) -> Said:
    """Ask heapy for what is new since a mark, and for shortest paths to the largest kind."""
    heapy = importlib.import_module("guppy").hpy()
    heapy.setrelheap()
    running.repeat(N_RUNS)
    heap = heapy.heap()
    rows = [row for row in heap.bytype.stat.get_rows() if row.count >= N_RUNS]
    said = Said([f"{row.name} {row.count} {row.size} B" for row in rows], is_alarm=bool(rows))
    if rows:
        said.bytes_per_run = heap.size / N_RUNS
        said.objects_per_run = rows[0].count / N_RUNS
        names = [name for name in running.program.holder.split(".") if name]
        for row in rows[:N_ROWS]:
            paths = str(heap.bytype[row.index].byid[0].shpaths)
            said.words.append(paths[:400])
            said.has_holder |= bool(names) and all(re.search(rf"\b{name}\b", paths) for name in names)
    return said


def ask_tracemalloc(running: Running) -> Said:
    """Compare two snapshots by stacks of ten frames."""
    import tracemalloc

    tracemalloc.start(10)
    running.repeat(1)
    gc.collect()
    before = tracemalloc.take_snapshot()
    running.repeat(N_RUNS)
    gc.collect()
    rows = tracemalloc.take_snapshot().compare_to(before, "traceback")
    tracemalloc.stop()
    own = [row for row in rows if "tracemalloc" not in row.traceback[0].filename and row.size_diff > 0]
    total = sum(row.size_diff for row in own) / N_RUNS
    is_alarm = total >= SMALLEST_ALARM or any(row.count_diff >= N_RUNS for row in own)
    said = Said([traced(row) for row in own[:N_ROWS]], bytes_per_run=total, is_alarm=is_alarm)
    said.lines = running.named_lines(said.words)
    return said


def traced(row: Any) -> str:
    """Return a row of tracemalloc's comparison with the frames of its program."""
    own = [frame for frame in row.traceback if frame.filename.endswith("program.py")]
    return f"{row.size_diff:+} B {row.count_diff:+} at {', '.join(short(str(frame)) for frame in own) or 'elsewhere'}"


def ask_memray(running: Running) -> Said:
    """Ask for the records that are not freed at the end of the block."""
    memray = importlib.import_module("memray")
    gc.collect()
    file = running.file.with_name("memray.bin")
    with memray.Tracker(file, trace_python_allocators=True):
        running.repeat(N_RUNS)
        gc.collect()
    rows = []
    with memray.FileReader(file) as reader:
        for one in reader.get_leaked_allocation_records(merge_threads=True):
            frames = [frame for frame in one.stack_trace() if "program.py" in frame[1]]
            where = f"{Path(frames[0][1]).name}:{frames[0][2]} {frames[0][0]}" if frames else "elsewhere"
            rows.append((one.size, f"{one.size} B in {one.n_allocations} allocations at {where}"))
    rows.sort(reverse=True)
    total = sum(size for size, _words in rows) / N_RUNS
    said = Said([words for _size, words in rows[:N_ROWS]], bytes_per_run=total, is_alarm=total >= SMALLEST_ALARM)
    said.lines = running.named_lines(said.words)
    return said


def ask_memory_profiler(running: Running) -> Said:
    """Ask for the resident memory before and after."""
    usage = importlib.import_module("memory_profiler").memory_usage
    before = usage(-1, interval=0.01, timeout=0.05)[-1]
    running.repeat(N_RUNS)
    gc.collect()
    grown = (usage(-1, interval=0.01, timeout=0.05)[-1] - before) * 2**20 / N_RUNS
    return Said([f"{grown:+.0f} B per run"], bytes_per_run=grown, is_alarm=grown >= SMALLEST_ALARM)


def ask_leaklab(running: Running) -> Said:
    """Check the function, with every setting as it is."""
    import leaklab

    with contextlib.redirect_stdout(io.StringIO()):
        report = leaklab.leakcheck(running.run)
    words = str(report).partition("\nEvidence")[0].splitlines()
    said = Said([short(line) for line in words[:12]], is_alarm=report.leaked, lines=running.named_lines(words))
    if report.leaked:
        said.bytes_per_run = report.verdict.bytes_per_run
        wanted = running.program.holder
        said.has_holder = bool(wanted) and any(leak.holder == wanted for leak in report.leaks)
        said.words += [f"change: {line}" for leak in report.leaks[:1] for line in [leak.advice][:1] if line]
    return said


TOOLS = {
    "gc alone": ask_gc,
    "objgraph": ask_objgraph,
    "pympler": ask_pympler,
    "guppy3": ask_guppy,
    "tracemalloc": ask_tracemalloc,
    "memray": ask_memray,
    "memory_profiler": ask_memory_profiler,
    "leaklab": ask_leaklab,
}


def short(line: str) -> str:
    """Return *line* without the folder of the program."""
    return re.sub(r"/\S*/(program\.py)", r"\1", line)


def truth(running: Running) -> Said:
    """Count by brute force: the bytes that malloc has handed out, Python's objects among them."""
    from leaklab.measure.cheap_counts import native_heap_bytes

    gc.collect()
    before = native_heap_bytes()
    running.repeat(N_RUNS)
    gc.collect()
    after = native_heap_bytes()
    assert before is not None
    assert after is not None
    return Said(bytes_per_run=(after - before) / N_RUNS)


def one(tool: str, name: str) -> Said:
    """Let *tool* look at the program *name*, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        running = Running(PROGRAMS[name], Path(folder))
        started = time.perf_counter()
        said = truth(running) if tool == "truth" else TOOLS[tool](running)
        said.seconds = time.perf_counter() - started
    return said


def asked(tool: str, name: str) -> Said:
    """Let *tool* look at the program *name*, in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", tool, name]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({"PYTHONMALLOC": "malloc"} if tool == "truth" else {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return Said([f"failed: {done.stderr.strip().splitlines()[-1]}"])
    return Said(**json.loads(done.stdout.splitlines()[-1]))


def table(answers: dict[str, dict[str, Said]], true_bytes: dict[str, float]) -> str:
    """Return one row for each tool: how many leaks it notices, what it names of them, its false alarms, its seconds."""
    leaking = [name for name in true_bytes if PROGRAMS[name].leaks]
    clean = [name for name in true_bytes if not PROGRAMS[name].leaks]
    held = [name for name in leaking if PROGRAMS[name].holder]
    rows = ["| tool | notices | amount within 20 % | line | holder | false alarms | seconds, median (most) |"]
    rows.append("| --- " * 7 + "|")
    for tool, said in answers.items():
        n_seen = sum(said[name].is_alarm for name in leaking)
        n_right = sum(
            (stated := said[name].bytes_per_run) is not None and abs(stated - true_bytes[name]) <= true_bytes[name] / 5
            for name in leaking
        )
        n_lines = sum(bool(said[name].lines) for name in leaking)
        n_holders = sum(said[name].has_holder for name in held)
        n_false = sum(said[name].is_alarm for name in clean)
        times = [one.seconds for one in said.values()]
        shares = f"{n_seen} of {len(leaking)} | {n_right} | {n_lines} | {n_holders} of {len(held)}"
        seconds = f"{statistics.median(times):.2f} ({max(times):.2f})"
        rows.append(f"| {tool} | {shares} | {n_false} of {len(clean)} | {seconds} |")
    return "\n".join(rows)


def cells(answers: dict[str, dict[str, Said]], true_bytes: dict[str, float]) -> str:
    """Return one row for each program: what each tool states per run, in bytes, or in objects."""
    rows = [f"| program | truth | {' | '.join(answers)} |", "| --- " * (len(answers) + 2) + "|"]
    for name, counted in true_bytes.items():
        stated = [figure(said[name]) for said in answers.values()]
        rows.append(f"| {name} | {counted / 1024:.1f} | {' | '.join(stated)} |")
    return "\n".join(rows)


def figure(said: Said) -> str:
    """Return what is stated per run: KiB, or a number of objects, and a dash where nothing is noticed."""
    if not said.is_alarm:
        return "failed" if said.words and said.words[0].startswith("failed") else "-"
    if said.bytes_per_run is not None:
        return f"{said.bytes_per_run / 1024:.1f}"
    return f"{said.objects_per_run:g} objects"


def main() -> int:
    """Ask the tools of the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"of {', '.join(TOOLS)}; all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the words of every tool")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(asdict(one(*arguments.one))))
        return 0
    true_bytes = {name: asked("truth", name).bytes_per_run or 0.0 for name in PROGRAMS}
    answers = {tool: {name: asked(tool, name) for name in PROGRAMS} for tool in arguments.tools or TOOLS}
    print(table(answers, true_bytes), "\nKiB per run that is stated:", cells(answers, true_bytes), sep="\n\n")
    if arguments.json:
        words = {tool: {name: asdict(said) for name, said in by.items()} for tool, by in answers.items()}
        arguments.json.write_text(json.dumps({"truth": true_bytes, "tools": words}, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
