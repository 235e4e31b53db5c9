"""Put two known leaks into one cell, and ask whether a check names both, each with its own holder and line.

Run it as ``python benchmarks/pairs.py FOLDER ... [--pairs N] [--seed N] [--jobs N]``. A folder holds cases: Python
files of constants, of which ``SETUP`` runs once, ``CELL`` is checked, and ``TRUTH`` says ``leaks``, ``holder`` (a text
that the right path contains) and ``holders_ok`` (others that are right too). Of a pair the larger case is as it is; of
the other all numbers from 64 on may be divided by 16, so that it leaks up to a thousand times less. What each leaks
alone is measured by brute force. Names that both use are kept apart, the setups and the cells stand one after the
other, and each pair is checked by ``%%leakcheck`` in a process of its own.

A leak is named where a reported leak has its holder in the path, and the line that keeps it stands in its case. What is
told and belongs to neither case, though neither tells it alone, is wrong.
"""

import argparse
import ast
import concurrent.futures
import contextlib
import gc
import json
import multiprocessing
import os
import random
import re
import runpy
import signal
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

PROCESSES = multiprocessing.get_context("forkserver")
PRELOADED = ["torch", "leaklab", "matplotlib.pyplot", "IPython.core.interactiveshell", "psutil"]
NOTE = "small place"
"""Stands in a note on what is told as a part of another leak."""
BIG_NUMBER, DIVISOR = 64, 16
FEWEST_BYTES = 128
"""What a case must leak by brute force, per run: less is what malloc needs until it is warm."""


def numbers_divided(source: str) -> str:
    """Return *source* with its numbers from 64 on divided by 16."""

    def smaller(found: re.Match[str]) -> str:
        number = found.group()
        return str(int(number) // DIVISOR) if int(number) >= BIG_NUMBER else number

    return re.sub(r"(?<![\w.\[])\d+(?![\w.])", smaller, source)


@dataclass
class GlobalNames:
    """The global names of a source.

    Attributes:
        source: The source.
        places: Where they stand, as line and column in bytes.
        bound: Those that it binds.
        imported: Those that it imports.
    """

    source: str
    places: dict[tuple[int, int], str] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Look through the source."""
        self._lines = self.source.encode().splitlines()
        self._visit(ast.parse(self.source), frozenset(), is_top=True)

    def _visit(self, node: ast.AST, local: frozenset[str], *, is_top: bool) -> None:
        self._note(node, local, is_top=is_top)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner = (local | names_of(node)) - global_statements(node)
            body = node.body if isinstance(node.body, list) else [node.body]
            for child in ast.iter_child_nodes(node):
                self._visit(child, inner if child in body else local, is_top=is_top and child not in body)
            return
        inner = local
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            inner = local.union(*(stored(part.target) for part in node.generators))
        if isinstance(node, ast.ClassDef):
            inner = local.union(*map(stored, node.body))
        for child in ast.iter_child_nodes(node):
            self._visit(child, inner, is_top=is_top and not isinstance(node, ast.ClassDef))

    def _note(self, node: ast.AST, local: frozenset[str], *, is_top: bool) -> None:
        if isinstance(node, ast.Name) and node.id not in local:
            self.places[node.lineno, node.col_offset] = node.id
            if not isinstance(node.ctx, ast.Load):
                self.bound.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom) and is_top:
            self.imported |= stored(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and is_top:
            self._note_words(node.lineno, {node.name})
        elif isinstance(node, ast.Global):
            self._note_words(node.lineno, set(node.names))

    def _note_words(self, line: int, names: set[str]) -> None:
        self.bound |= names
        for word in re.finditer(rb"\w+", self._lines[line - 1]):
            if word.group().decode() in names:
                self.places[line, word.start()] = word.group().decode()


def stored(node: ast.AST) -> set[str]:
    """Return the names that a statement binds, without those of functions in it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    found = {node.id} if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) else set()
    if isinstance(node, ast.ExceptHandler) and node.name:
        found.add(node.name)
    if isinstance(node, ast.Import | ast.ImportFrom):
        found.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    if not isinstance(node, ast.Lambda):
        found.update(*map(stored, ast.iter_child_nodes(node)))
    return found


def names_of(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """Return the names of *function* itself: arguments, and what its body binds."""
    names = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    return names.union(*map(stored, function.body)) if isinstance(function.body, list) else names


def global_statements(function: ast.AST) -> set[str]:
    """Return what *function* declares to be global."""
    return {name for one in ast.walk(function) if isinstance(one, ast.Global) for name in one.names}


def renamed(source: str, names: set[str], suffix: str) -> str:
    """Return *source* with *suffix* at each of the global *names*."""
    lines = source.encode().splitlines()
    for (line, column), name in sorted(GlobalNames(source).places.items(), reverse=True):
        if name in names:
            text = lines[line - 1]
            end = column + len(name.encode())
            lines[line - 1] = text[:end] + suffix.encode() + text[end:]
    return b"\n".join(lines).decode() + "\n"


def together(first: dict[str, str], second: dict[str, str]) -> tuple[str, str, set[str]]:
    """Return setup and cell of two cases in one, and the names that were given a suffix in the second."""
    one, other = (GlobalNames(case["SETUP"] + case["CELL"]) for case in (first, second))
    shared = (other.bound & (one.bound | one.imported)) | (other.imported & one.bound)
    setup, cell = (renamed(second[part], shared, "_b") for part in ("SETUP", "CELL"))
    return first["SETUP"].rstrip() + "\n" + setup, first["CELL"].rstrip() + "\n" + cell, shared


def measure(setup: str, cell: str) -> dict:
    """Run *cell* without leaklab; return what a run leaves in objects and in bytes of the native heap."""
    import psutil
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_cell(setup).raise_error()
    code, levels, runs = compile(cell, "<cell>", "exec"), [], (8, 32, 56)
    for run in range(1, runs[-1] + 1):
        exec(code, shell.user_ns)  # noqa: S102 - the case's own code
        if run in runs:
            gc.collect()
            levels.append((len(gc.get_objects()), psutil.heap_info().heap_used + psutil.heap_info().mmap_used))
    objects, n_bytes = (min(later - before for before, later in pairwise(level)) for level in zip(*levels, strict=True))
    return {"objects": objects / (runs[1] - runs[0]), "bytes": n_bytes / (runs[1] - runs[0])}


def check(setup: str, cell: str, options: str) -> dict:
    """Return what ``%%leakcheck`` says of *cell*."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_cell(setup).raise_error()
    shell.run_line_magic("load_ext", "leaklab")
    shell.run_cell_magic("leakcheck", f"-q {options} -v _pair_report", cell)
    report = shell.user_ns["_pair_report"]
    leaks = [
        {
            "path": f"{leak.path} | {leak.holder} | {' | '.join(leak.holders)}",
            "holder": leak.holder,
            "cause": leak.cause,
            "bytes": leak.bytes_per_run,
            "sites": list(leak.sites),
        }
        for leak in report.leaks
    ]
    return {"verdict": str(report.verdict), "leaks": leaks, "notes": list(report.notes)}


TASKS = {"measure": measure, "check": check}
SECONDS = 400
"""After so long a process is ended."""


def answer(sender: Connection, task: str, arguments: tuple[str, ...]) -> None:
    """Send what *task* returns, and end this process whatever threads it has left."""
    os.setsid()
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        sender.send(TASKS[task](*arguments))
    except BaseException as error:  # noqa: BLE001 - whatever a case raises is its answer
        sender.send({"error": f"{type(error).__name__}: {error}"[:300]})
    os._exit(0)


def child(task: str, *arguments: str) -> dict:
    """Return the answer of `measure` or `check` in a new process, which has done nothing but imports before."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=answer, args=(sender, task, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(SECONDS) else {"error": f"no answer in {SECONDS} s"}
    except EOFError:
        return {"error": "the process ended"}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # and whatever it started
        process.join()


def load(folders: list[Path]) -> list[dict]:
    """Return the leaks of *folders* that can stand beside another: with a holder, collector on, no packages."""
    cases = []
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        case = runpy.run_path(str(path))
        truth = case["TRUTH"]
        if truth["leaks"] and truth["holder"] and not truth.get("mode") and "REQUIRES" not in case:
            cases.append({"name": path.stem, "SETUP": case["SETUP"], "CELL": case["CELL"], "truth": truth})
    return cases


def with_small_ones(cases: list[dict], jobs: int) -> list[dict]:
    """Return *cases* with those that were made smaller, each measured; what leaks no more, or fails, is left out."""
    small = [
        {**case, "name": case["name"] + "/small", **{part: numbers_divided(case[part]) for part in ("SETUP", "CELL")}}
        for case in cases
    ]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda case: child("measure", case["SETUP"], case["CELL"]), cases + small))
    return [
        {**case, **grows}
        for case, grows in zip(cases + small, found, strict=True)
        if "error" not in grows and grows["bytes"] >= FEWEST_BYTES
    ]


def draw(cases: list[dict], n_pairs: int, seed: int) -> list[tuple[dict, dict]]:
    """Return pairs of a larger and a smaller leak, evenly from 1 to 10, 10 to 100 and 100 to 1,000 times as large."""
    dice, pairs = random.Random(seed), []  # noqa: S311 - nothing is secret
    while len(pairs) < n_pairs:
        decade = len(pairs) % 3
        large, small = dice.sample(cases, 2)
        if large["name"].partition("/")[0] == small["name"].partition("/")[0] or large["name"].endswith("/small"):
            continue
        if 10**decade <= large["bytes"] / small["bytes"] < 10 ** (decade + 1):
            pairs.append((large, small))
    return pairs


def holders_of(case: dict, shared: set[str]) -> list[str]:
    """Return the texts that name the holder of *case*, with the names that were given a suffix."""
    told = [case["truth"]["holder"], *case["truth"].get("holders_ok", [])]
    return [renamed_words(one, shared) for one in told]


def renamed_words(text: str, names: set[str]) -> str:
    """Return *text* with the suffix at each of *names*."""
    return re.sub(r"[A-Za-z_]\w*", lambda name: name.group() + "_b" * (name.group() in names), text)


def names(leak: dict, holders: list[str], source: str) -> bool:
    """Return whether *leak* has one of *holders*, and a line of *source* where a line is known."""
    sources = {line.strip() for line in source.splitlines()}
    lines = [site.rpartition("  # ")[0].partition(": ")[2].strip() for site in leak["sites"]]
    return any(one in leak["path"] for one in holders) and (not lines or any(line in sources for line in lines))


def judge(pair: tuple[dict, dict], alone: dict[str, list[str]], options: str) -> dict:
    """Check a pair, and say which of the two is named, which is in a note only, and what is told beside them."""
    first, second = sorted(pair, key=lambda case: isinstance(ast.parse(case["CELL"]).body[-1], ast.Expr))
    setup, cell, shared = together(first, second)
    said = child("check", setup, cell, options)
    row = {"pair": [case["name"] for case in pair], "ratio": pair[0]["bytes"] / pair[1]["bytes"], **said}
    if "error" in said:
        return {**row, "named": [False, False], "noted": [False, False], "wrong": [said["error"]]}
    named, noted, known = [], [], []
    for case in pair:
        apart = shared if case is second else set()
        holders = holders_of(case, apart)
        source = "".join(renamed(case[part], apart, "_b") for part in ("SETUP", "CELL"))
        named.append(any(names(leak, holders, source) for leak in said["leaks"]))
        noted.append(not named[-1] and any(one in note for one in holders for note in said["notes"] if NOTE in note))
        known += holders
    wrong = [leak for leak in said["leaks"] if not any(one in leak["path"] for one in known)]
    for case in pair if wrong else ():
        apart = shared if case is second else set()
        if case["name"] not in alone:
            single = child("check", case["SETUP"], case["CELL"], options)
            alone[case["name"]] = [leak["holder"] for leak in single.get("leaks", [])]
        holders = [renamed_words(one, apart) for one in alone[case["name"]]]
        wrong = [leak for leak in wrong if leak["holder"] not in holders]
    return {**row, "named": named, "noted": noted, "wrong": [leak["holder"] for leak in wrong]}


def line_of(row: dict) -> str:
    """Return what was found for one pair."""
    signs = [
        "yes" if named else "note" if noted else "NO" for named, noted in zip(row["named"], row["noted"], strict=True)
    ]
    first, second = row["pair"]
    found = f"{' '.join(signs):9} {len(row.get('leaks', []))} {row['wrong'] or ''}"
    return f"{first:40.40} {second:44.44} 1/{row['ratio']:<5.0f} {found}"


def main() -> None:
    """Draw the pairs, check them, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--options", default="--no-cure", help="what is given to %%%%leakcheck")
    parser.add_argument("--measured", type=Path, help="a file that keeps what each case leaks alone")
    parser.add_argument("--json", type=Path, help="a file for all answers")
    args = parser.parse_args()
    os.environ["MPLBACKEND"] = "agg"
    PROCESSES.set_forkserver_preload(PRELOADED)
    if args.measured and args.measured.exists():
        cases = json.loads(args.measured.read_text("utf-8"))
    else:
        cases = with_small_ones(load(args.folders), args.jobs)
        if args.measured:
            args.measured.write_text(json.dumps(cases), "utf-8")
    pairs, alone = draw(cases, args.pairs, args.seed), {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = []
        for row in pool.map(lambda pair: judge(pair, alone, args.options), pairs):
            rows.append(row)
            print(line_of(row), flush=True)
    both = sum(all(row["named"]) for row in rows)
    print(
        f"{len(rows)} pairs: both named in {both}, called a consequence in {sum(any(row['noted']) for row in rows)}, "
        f"wrong in {sum(bool(row['wrong']) for row in rows)}"
    )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), "utf-8")


if __name__ == "__main__":
    main()
