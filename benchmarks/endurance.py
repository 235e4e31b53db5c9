"""Use one kernel for long: a thousand checks and magics must leave nothing behind, threads at work must not disturb.

    python benchmarks/endurance.py                 # 1,000 rounds
    python benchmarks/endurance.py --minutes 10    # checks while ten threads make, change and drop objects

The first part counts what is alive after every hundred rounds: objects, bytes in malloc's heap, threads, descriptors.
The second part checks a clean and a leaking cell by turns while the threads work, and counts wrong verdicts: a clean
cell called a leak without a note on the threads, a leak that is not found.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import threading
import time
from contextlib import redirect_stdout, suppress
from io import StringIO
from tempfile import TemporaryDirectory

import psutil
import torch
from IPython.core.interactiveshell import InteractiveShell
from measuring import Bars

ROUNDS, EVERY, WARM = 1000, 100, 200
CELLS = {
    "clean": "loss = (net(x).square().mean()).item()",
    "leaking": "kept.append(torch.zeros(64))",
    "raising": "1 / 0",
}


def levels(shell: InteractiveShell) -> tuple[int, int, int, int]:
    """Return objects, bytes that malloc has handed out, threads, descriptors.

    IPython 9 keeps what is displayed for its ``%notebook``, 40 KiB for the page of a report: that is dropped first.
    """
    getattr(shell.history_manager, "outputs", {}).clear()
    gc.collect()
    heap = psutil.heap_info()
    process = psutil.Process()
    return len(gc.get_objects()), heap.heap_used + heap.mmap_used, process.num_threads(), process.num_fds()


def one_round(shell: InteractiveShell, number: int) -> None:
    """Use every magic once, the check with cells that leak, do not leak and raise."""
    kind = ("clean", "leaking", "clean", "raising")[number % 4]
    with suppress(ZeroDivisionError):
        shell.run_cell_magic("leakcheck", "-n 6 --no-sites -v report", CELLS[kind])
    shell.run_cell("kept.clear()")
    if number % 5 == 0:
        shell.run_line_magic("memdiff", "--mark before")
        shell.run_line_magic("memdiff", "before")
        shell.run_line_magic("whyalive", "x")
    if number % 25 == 0:
        shell.run_cell_magic("leakcheck", "-n 12 -v report", CELLS["leaking"])
        with TemporaryDirectory() as folder:
            shell.run_line_magic("leakreport", f"{folder}/report.html")
        shell.run_cell("kept.clear()")


def started_shell() -> InteractiveShell:
    """Return a shell with the extension and the variables that the cells use."""
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    shell.run_cell("import torch; net, x, kept = torch.nn.Linear(8, 2), torch.randn(4, 8), []").raise_error()
    shell.run_line_magic("load_ext", "leaklab")
    return shell


def many_rounds(bars: Bars) -> None:
    """Run the rounds, and compare what is alive after the first and the last of the settled ones."""
    shell, seen = started_shell(), []
    for number in range(ROUNDS + 1):
        if number % EVERY == 0:
            seen.append(levels(shell))
            print(number, *(f"{level:,}" for level in seen[-1]), file=sys.stderr, flush=True)
        with redirect_stdout(StringIO()):
            one_round(shell, number)
    first, last, n_rounds = seen[WARM // EVERY], seen[-1], ROUNDS - WARM
    for what, before, after, bar in zip(
        ("objects per round", "bytes of malloc per round", "threads", "descriptors"),
        first,
        last,
        (0.05, 100, 0, 0),
        strict=True,
    ):
        bars.at_most(what, (after - before) / (n_rounds if "per round" in what else 1), bar)


def work(stop: threading.Event, seed: int) -> None:
    """Make, change and drop objects of many kinds until *stop*."""
    draw, table, chain = random.Random(seed), {}, []  # noqa: S311 - no secret
    while not stop.is_set():
        key = draw.randrange(500)
        table[key] = draw.choice([[1], {"a": [2]}, torch.zeros(8), lambda key=key: key, {3}, "text" * 9])
        chain.append([chain[-1:] if chain else None])
        if len(chain) > draw.randrange(50, 100):
            chain.clear()
        if draw.random() < 0.05:
            table.clear()
        if draw.random() < 0.2:
            time.sleep(0.0005)


def beside_threads(bars: Bars, minutes: float) -> None:
    """Check by turns while ten threads work."""
    shell, stop = started_shell(), threading.Event()
    threads = [threading.Thread(target=work, args=(stop, seed), daemon=True) for seed in range(10)]
    for thread in threads:
        thread.start()
    n_checks, n_false, n_missed, ends = 0, 0, 0, time.monotonic() + 60 * minutes
    while time.monotonic() < ends:
        for kind in ("clean", "leaking"):
            shell.run_cell_magic("leakcheck", "-q -t 20 -v report", CELLS[kind])
            report, n_checks = shell.user_ns["report"], n_checks + 1
            has_word = any("thread" in note for note in report.check.notes)
            named = any("kept" in leak.holder for leak in report.leaks)
            n_false += kind == "clean" and report.leaked and not has_word
            n_missed += kind == "leaking" and not named
            print(kind, report.verdict, "|", *report.check.notes, file=sys.stderr, flush=True)
        shell.run_cell("kept.clear()")
    stop.set()
    for thread in threads:
        thread.join()
    print(f"{n_checks} checks")
    bars.at_most("clean cells called a leak without a word", n_false, 0)
    bars.at_most("leaking cells whose place is not named", n_missed, 0)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.0, help="check beside ten threads for so long instead")
    minutes, bars = parser.parse_args().minutes, Bars()
    if minutes:
        beside_threads(bars, minutes)
    else:
        many_rounds(bars)
    raise SystemExit(bool(bars.n_missed))


if __name__ == "__main__":
    main()
