"""What a check leaves behind: the user's variables after it beside those of a twin that made as many plain runs.

Run it as ``python benchmarks/no_trace.py FOLDER [--only PART] [--children on|off] [--isolated] [--jobs N]``.
The folder holds cases: Python files with the texts SETUP and CELL. Each is checked in a process of its own, with the
trials of changes; the cell counts its runs in a list among the user's variables. A twin then makes that many runs
without leaklab. Of everything that the variables lead to the types and lengths are compared, of tensors shapes, graphs
and whether there is a gradient; of the process open files, threads, streams, filters, handlers, hooks, the collector.
``--programs FILE FIRST COUNT`` adds programs of a module that has ``program(kind, seed)``.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import logging
import os
import runpy
import signal
import sys
import threading
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from marked_answers import ask, give

from leaklab.measure.cheap_counts import open_descriptors
from leaklab.measure.process_counts import descriptor_kind

SECONDS = 400
"""After so long a process is ended."""
COUNTER = "runs_made"
MOST_PARTS = 200_000
LEAST_ADDRESS = 1_000_000
"""A key that is not below is one, and another one in the next process."""
HIDDEN = {"In", "Out", "get_ipython", "exit", "quit", "open", "the_report", COUNTER}


def key_name(key: object, place: int) -> str:
    """Return what a key is called in this process as in the twin."""
    is_same = type(key) is str or (type(key) is int and key < LEAST_ADDRESS)
    return repr(key) if is_same else f"{type(key).__name__} {place}"


def named_parts(thing: Any) -> list[tuple[str, Any]]:
    """Return what *thing* leads to, with names; nothing of modules and of what libraries define."""
    if isinstance(thing, dict):
        parts = [(f"[{key_name(key, n)}]", value) for n, (key, value) in enumerate(list(dict.items(thing)))]
    elif isinstance(thing, (list, tuple, collections.deque)):
        parts = [(f"[{n}]", value) for n, value in enumerate(list(thing))]
    elif isinstance(thing, (set, frozenset)):
        return [("{}", value) for value in sorted(thing, key=lambda value: type(value).__name__)]
    elif isinstance(thing, types.FunctionType):
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        parts = [(f".{name}", cell.cell_contents) for name, cell in cells if cell != types.CellType()]
        parts += [(".__defaults__", thing.__defaults__), (".__dict__", thing.__dict__)]
    elif isinstance(thing, types.MethodType):
        parts = [(".__self__", thing.__self__), (".__func__", thing.__func__)]
    elif isinstance(thing, type):
        parts = [(f".{name}", value) for name, value in vars(thing).items()] if thing.__module__ == "__main__" else []
    else:
        parts = []
    attributes = (
        None if isinstance(thing, (type, types.ModuleType, types.FunctionType)) else getattr(thing, "__dict__", None)
    )
    if type(attributes) is dict:
        parts += [(f".{name}", value) for name, value in attributes.items()]
    return parts


def description(thing: Any) -> str:
    """Return the type and what must not differ."""
    kind = f"{type(thing).__module__}.{type(thing).__qualname__}"
    if kind.startswith("torch.") and hasattr(thing, "requires_grad") and hasattr(thing, "shape"):
        node = type(thing.grad_fn).__name__
        has_gradient = thing.is_leaf and thing.grad is not None
        return f"{kind} {tuple(thing.shape)} {thing.dtype} {node} {has_gradient} {thing.requires_grad}"
    if isinstance(thing, (list, tuple, dict, set, frozenset, collections.deque, str, bytes, bytearray)):
        is_text = isinstance(thing, (str, bytes))  # a text may hold an address or a time
        return kind if is_text else f"{kind} of {len(thing)}"
    return kind


def state_of_variables(namespace: dict[str, Any]) -> dict[str, str]:
    """Return for the path of each part of the variables what it is."""
    found: dict[str, str] = {}
    seen: set[int] = set()
    alive = []
    queue = collections.deque(
        (name, value) for name, value in namespace.items() if name not in HIDDEN and not name.startswith("_")
    )
    while queue and len(found) < MOST_PARTS:
        path, thing = queue.popleft()
        found[path] = description(thing)
        if id(thing) in seen or isinstance(thing, types.ModuleType):
            continue
        seen.add(id(thing))
        alive.append(thing)
        queue += [(path + name, part) for name, part in named_parts(thing)]
    return found


def state_of_process() -> dict[str, str]:
    """Return what the process has beside the variables."""
    torch = sys.modules.get("torch")
    loggers = [logging.getLogger(), *map(logging.getLogger, sorted(logging.Logger.manager.loggerDict))]
    descriptors = [number for number in open_descriptors() if number > sys.__stderr__.fileno()]
    kinds = collections.Counter(descriptor_kind(number) for number in descriptors)
    figures = sys.modules.get("matplotlib._pylab_helpers")
    return {
        "open files": str(sorted(kinds.items())),
        "threads": str(sorted(thread.name.rstrip("0123456789") for thread in threading.enumerate())),
        "streams": str([type(stream).__name__ for stream in (sys.stdin, sys.stdout, sys.stderr)]),
        "hooks": str([type(hook).__qualname__ for hook in (sys.excepthook, sys.displayhook, sys.unraisablehook)]),
        "warning filters": str(len(warnings.filters)),
        "handlers": str([(each.name, len(each.handlers), len(each.filters)) for each in loggers if each.handlers]),
        "signals": str([str(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]),
        "collector": str((gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count() > 2000)),
        "tracing": str((sys.gettrace(), sys.getprofile())),
        "figures": str(len(figures.Gcf.figs) if figures else 0),
        "gradients": str(torch.is_grad_enabled() if torch else ""),
        "torch threads": str(torch.get_num_threads() if torch else ""),
    }  # fmt: skip


def say_state(path: str, n_runs: int, options: str) -> None:
    """Check the case, or make *n_runs* runs of it, and print what there is afterwards as JSON."""
    import random

    import torch  # noqa: F401 - a check loads it, with its handlers and filters
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    from leaklab.magics.cell import Cell

    case = json.loads(os.environ["CASE"]) if path == "-" else runpy.run_path(path)
    config = Config()
    config.HistoryManager.enabled = False  # its thread and its file come and go
    shell = InteractiveShell.instance(config=config)
    shell.run_cell(case["SETUP"]).raise_error()
    shell.user_ns[COUNTER] = []
    shell.run_line_magic("load_ext", "leaklab")
    random.seed(0)
    cell = case["CELL"].strip("\n") + f"\n{COUNTER}.append(None)\n"
    if n_runs:
        code = Cell(shell, cell)
        for number in range(n_runs):
            code.run(number, shown=False)
        code.outputs.forget()
        del code
    else:
        shell.run_cell_magic("leakcheck", f"-q -v the_report {options}", cell)
    report = shell.user_ns.pop("the_report", None)
    said = "" if report is None else str(report.verdict.outcome.value)
    cures = [] if report is None else [cure.outcome.value for leak in report.leaks for cure in leak.cures]
    del report
    gc.collect()
    told = {"n_runs": len(shell.user_ns[COUNTER]), "said": said, "cures": cures,
            "variables": state_of_variables(shell.user_ns), "process": state_of_process()}  # fmt: skip
    give(told)


def told_by(path: str, case: str, n_runs: int, options: str, children: str) -> dict[str, Any]:
    """Return the state that a process of its own tells."""
    environment = {"CASE": case, "LEAKLAB_CHILDREN": "1" if children == "on" else "0", "PYTHONHASHSEED": "0"}
    arguments = [__file__, "-", "--one", path, str(n_runs), f"--options={options}"]
    found: dict[str, Any] = ask(arguments, environment, SECONDS)
    return found


def differences(after: dict[str, Any], twin: dict[str, Any]) -> list[str]:
    """Return what differs, one line each, the shortest paths first."""
    found = []
    for part in ("process", "variables"):
        names = sorted({*after[part], *twin[part]}, key=lambda name: (len(name), name))
        for name in names:
            is_now, would_be = after[part].get(name, "nothing"), twin[part].get(name, "nothing")
            if is_now != would_be:
                found.append(f"{name}: {is_now}, not {would_be}")
    return found


def compared(name: str, path: str, case: str, args: argparse.Namespace) -> tuple[str, bool]:
    """Return a line on one case, with the first differences below, and whether there is none."""
    options = f"{args.options} {'--isolated' if args.isolated else ''}"
    after = told_by(path, case, 0, options, args.children)
    if "error" in after:
        return f"{name}: the check failed: {after['error']}", False
    twin = told_by(path, case, after["n_runs"], options, args.children)
    if "error" in twin:
        return f"{name}: the twin failed: {twin['error']}", False
    found = differences(after, twin)
    if args.isolated and after["n_runs"] != 1:
        found.insert(0, f"{after['n_runs']} runs were made in this process, not 1")
    line = f"{name}: {after['said']}, {after['n_runs']} runs, {len(after['cures'])} changes, {len(found)} differences"
    return "\n    ".join([line, *found[: args.most]]), not found


def main() -> None:
    """Print what differs, case by case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", default="")
    parser.add_argument("--children", choices=("on", "off"), default="on")
    parser.add_argument("--isolated", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--most", type=int, default=5, help="differences that are shown of a case")
    parser.add_argument("--options", default="--cure", help="of %%%%leakcheck")
    parser.add_argument("--programs", nargs=3, metavar=("FILE", "FIRST", "COUNT"))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        say_state(args.one[0], int(args.one[1]), args.options)
    cases = [(path.stem, str(path), "") for path in sorted(Path(args.folder).glob("*.py")) if args.only in path.stem]
    if args.programs:
        file, first, count = Path(args.programs[0]), int(args.programs[1]), int(args.programs[2])
        for seed in range(first, first + count):
            for kind in ("clean", "leak"):
                setup = f"import sys; sys.path.insert(0, {str(file.parent)!r})\nfrom {file.stem} import program\n"
                setup += f"step, state, *_rest = program({kind!r}, {seed})"
                cases.append((f"{kind} {seed}", "-", json.dumps({"SETUP": setup, "CELL": "step()"})))
    n_same = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for line, is_same in pool.map(lambda case: compared(*case, args), cases):
            print(line, flush=True)
            n_same += is_same
    print(f"{n_same} of {len(cases)} as after plain runs")


if __name__ == "__main__":
    main()
