"""Record what a person sees while ``%%leakcheck`` runs: each change of the output, with the seconds since the start.

Usage: ``python benchmarks/first_words.py [NAME ...]``; without names all of `CELLS`. Each cell has a kernel of its own,
as in a notebook. Prints a line for each frame: the progress line, the first lines of a report, what the cell printed.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import time

from jupyter_client.manager import start_new_kernel

MOST_SECONDS = 600.0
REPORT_LINES = 7
SETUP = """
import os, time
os.environ["MPLBACKEND"] = "agg"
import torch
model = torch.nn.Linear(784, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [(torch.randn(32, 784), torch.randint(10, (32,))) for _ in range(60)]
history = []

def train_step(x, y, seconds=0.0):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    time.sleep(seconds)
    return loss
%load_ext leaklab
"""
CELLS = {
    "a step of a millisecond": "%%leakcheck -v r\nhistory.append(train_step(*data[0]))",
    "an epoch of four seconds": (
        "%%leakcheck -v r\nfor x, y in data[:20]:\n    history.append(train_step(x, y, seconds=0.2))"
    ),
    "a training of two minutes": (
        "%%leakcheck -v r\nfor epoch in range(10):\n    for x, y in data:\n"
        "        history.append(train_step(x, y, seconds=0.2))"
    ),
}


def record(cell: str) -> None:
    """Run *cell* in a kernel and print what its output shows, whenever that changes."""
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        client.execute_interactive(SETUP, timeout=MOST_SECONDS)
        began, shown = time.perf_counter(), ""
        # The next cell asks for the report, and waits for the changes that are still tried.
        for asked, words in ((client.execute(cell), "the cell has ended"), (client.execute("r.leaks"), "")):
            while True:
                message = client.get_iopub_msg(timeout=MOST_SECONDS)
                kind, content = message["msg_type"], message["content"]
                if kind == "status" and content["execution_state"] == "idle":
                    if message["parent_header"].get("msg_id") == asked:
                        break
                    continue
                told = words_of(kind, content)
                if told and told != shown:
                    print(f"{time.perf_counter() - began:6.1f} s  {told}", flush=True)
                    shown = told
            print(f"{time.perf_counter() - began:6.1f} s  {words}" if words else "", flush=True)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def words_of(kind: str, content: dict[str, dict[str, str]]) -> str:
    """Return what a message shows; empty for one that shows nothing."""
    if kind in ("display_data", "update_display_data"):
        text = content["data"].get("text/plain", "")
        lines = text.splitlines()[:REPORT_LINES] if "text/html" in content["data"] else text.splitlines()
        return "\n          ".join(lines)
    return str(content.get("text", "")) if kind == "stream" else ""


def main() -> int:
    """Record the cells that are asked for."""
    for name in sys.argv[1:] or CELLS:
        print(f"\n{name}")
        with contextlib.suppress(queue.Empty):
            record(CELLS[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
