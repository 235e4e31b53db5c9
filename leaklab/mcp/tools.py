"""The tools: what a client of the server may ask. Each call is answered in a process of its own, by `main`.

What a tool's docstring says is what the client reads. A program runs here, and only one that the client has named.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import leaklab
from leaklab.errors import LeaklabError
from leaklab.files import write_bytes
from leaklab.mcp.program import NOTEBOOK, CheckedProgram, run_whole, sentence_of
from leaklab.text import shorten

CALL, ANSWER = "call.json", "answer.json"
"""What the server asks, and where it finds what a tool has answered, in the folder of the reports."""
TOOLS = (
    "check", "read_report", "try_change", "compare", "why_alive", "find", "heap_shape", "cuda_snapshots", "read_more",
)  # fmt: skip
LIMIT_BYTES = 4096
"""UTF-8 of an answer."""
_ROOM_BELOW, _NAME_LIMIT = 160, 200
_REPORT, _ANSWER = re.compile(r"report-\d+"), re.compile(r"answer-\d+")
_HEAP = ".heap"
_LAST_SECONDS = 20.0
"""So long before its time is up, a kernel is asked for the checks that it has made."""


class Tools:
    """The tools, for one folder.

    Args:
        root: No file outside of this folder is read.
        store: The folder of the reports that calls have made.
        seconds: What a call may take.
    """

    def __init__(self, root: Path, store: Path, seconds: float) -> None:
        self._root, self._store, self._seconds = root.resolve(), store, seconds

    def check(
        self, path: str, *, function: str = "", cell: int = 0, seconds: float = 60.0, redact: bool = False
    ) -> str:
        """Say whether a program leaks memory, what grows, who holds it, by which line, and which change ends it.

        Runs: the function, again and again, in a new process; or the script; or the code cells of the notebook above
        the one that is checked, once, and that cell again and again; or a whole notebook once, with the checks in it.
        Returns a brief of the first leak, and the name of the report, for read_report, try_change and compare.

        Args:
            path: A script (.py) or a notebook (.ipynb), from the folder of this server on.
            function: Of the script, called without arguments, such as `step` or `trainer.step`; else all of it runs.
            cell: Number of a code cell of the notebook, from 1; 0 for the whole notebook.
            seconds: No new run starts after so many seconds of running.
            redact: Whether to hide strings, keys, comments and folders of the data.
        """
        file = self._inside(path)
        asked = {"path": path, "function": function, "cell": cell, "seconds": seconds, "redact": redact}
        if function:
            report: Any = leaklab.leakcheck(self._program(file).function(function), seconds=seconds, redact=redact)
        elif file.suffix == NOTEBOOK and not cell:
            report = run_whole(file, max(self._seconds - _LAST_SECONDS, 1), redact=redact)
        else:
            report = self._program(file, cell).checked_cell(f"-t {seconds}{' --redact' * redact}")
        name = f"report-{sum(1 for _ in self._store.glob('report-*.json')) + 1}"
        report.save(self._store / f"{name}.json")
        write_bytes(self._store / f"{name}.asked", json.dumps(asked).encode())
        words = report.brief(redact=redact) if hasattr(report, "brief") else str(report)
        return self._told(words, f"This report is called {name}. In a cell, line 1 is the line of %%leakcheck.")

    def read_report(self, report: str, *, leak: int = 0, whole: bool = False) -> str:
        """Read a report again, or one that is in a file. Runs nothing.

        Args:
            report: The name that check gave it, or a file (.json, .html).
            leak: Number of the leak, from 0.
            whole: Whether to return all of the report, with its runs, instead of what is needed for one leak.
        """
        loaded = self._loaded(report)
        return self._told(str(loaded) if whole or not hasattr(loaded, "brief") else loaded.brief(leak))

    def try_change(self, report: str, change: str, *, seconds: float = 120.0) -> str:
        """Try a change: does it end the leaks, and does the program still do what it did? No file is written.

        Runs: what check ran for this report, once more as it is, and then with the change, side by side.
        Returns the outcome (cured, lessened, no effect, harmful, not tried) with its figures. Once you have written a
        change that cures into the file, check that again, and compare both reports.

        Args:
            report: The name that check gave it.
            change: A unified diff, or the new source of the cell, of functions or of classes.
            seconds: What the trial may take.
        """
        kept = self._store / f"{report}.asked"
        if not _REPORT.fullmatch(report) or not kept.is_file():
            msg = f"check has made no report called {report!r}"
            raise LeaklabError(msg)
        asked = json.loads(kept.read_bytes())
        file, function, cell = self._inside(asked["path"]), asked["function"], asked["cell"]
        if function:
            called = self._program(file).function(function)
            cure = leaklab.try_change(leaklab.leakcheck(called, cure=False), change, called, seconds=seconds)
        elif file.suffix == NOTEBOOK and not cell:
            msg = "a change is tried on one cell: check that cell, not the whole notebook"
            raise LeaklabError(msg)
        else:
            again = self._program(file, cell).checked_cell(f"-t {seconds}", change)
            if not getattr(again, "leaks", ()) or not again.leaks[0].cures:
                return f"not tried: {again.verdict}"
            cure = again.leaks[0].cures[0]
        return self._told(f"{cure}\n\nchanged: {', '.join(one.where for one in cure.changes)}")

    def compare(self, before: str, after: str) -> str:
        """Say what became of the leaks of an earlier report in a later one: fixed, still there, new. Runs nothing.

        Args:
            before: The earlier report by its name, or a file: a report, a saved heap or a CUDA snapshot.
            after: The later one, of the same kind.
        """
        return self._told(str(leaklab.compare(self._loaded(before), self._loaded(after))))

    def why_alive(self, path: str, expression: str, *, cell: int = 0) -> str:
        """Say why an object is alive: every path to it, its holders, what would free it.

        Runs: all of a script, or the code cells of a notebook up to one of them; then the expression. Nothing for a
        saved heap.

        Args:
            path: A script, a notebook or a saved heap (.heap).
            expression: Python for the object, `trainer.history[0]`; in a saved heap its number will do.
            cell: Number of the last code cell to run, from 1; 0 for all.
        """
        file = self._inside(path)
        if file.suffix == _HEAP:
            heap = leaklab.SavedHeap.load(file)
            return self._told(str(heap.why(int(expression) if expression.isdecimal() else expression)))
        variables = self._program(file, cell).variables()
        return self._told(str(leaklab.whyalive(eval(expression, variables), namespace=variables)))  # noqa: S307 - named by the client

    def find(self, path: str, where: str, *, cell: int = 0) -> str:
        """Find objects, the largest first, with who holds each of them.

        Runs: all of a script, or the code cells of a notebook up to one of them. Nothing for a saved heap.

        Args:
            path: A script, a notebook or a saved heap (.heap).
            where: A condition, such as `bytes > 1 MiB and dtype == 'float32'`; it is read, not run.
            cell: Number of the last code cell to run, from 1; 0 for all.
        """
        file = self._inside(path)
        if file.suffix == _HEAP:
            return self._told(str(leaklab.SavedHeap.load(file).find(where=where)))
        return self._told(str(leaklab.find(where=where, namespace=self._program(file, cell).variables())))

    def heap_shape(self, path: str) -> str:
        """Say what fills a saved heap (.heap): the holders that keep most alive, and the types. Runs nothing."""
        return self._told(str(leaklab.SavedHeap.load(self._inside(path))))

    def cuda_snapshots(self, paths: list[str]) -> str:
        """Show one file of torch.cuda.memory._dump_snapshot, or say what grew between several. Runs nothing.

        Args:
            paths: The files, the earliest first; four or more of one run can prove a leak.
        """
        files = [self._inside(path) for path in paths]
        shown: Any = leaklab.load_cuda_snapshot if len(files) == 1 else leaklab.compare_cuda_snapshots
        return self._told(str(shown(files[0] if len(files) == 1 else files)))

    def read_more(self, answer: str, *, offset: int) -> str:
        """Return a further part of an answer that was too long. Runs nothing.

        Args:
            answer: The name that stands below the first part.
            offset: Where to go on, in characters.
        """
        file = self._store / f"{answer}.txt"
        if not _ANSWER.fullmatch(answer) or not file.is_file():
            msg = f"there is no answer called {answer!r} to go on with"
            raise LeaklabError(msg)
        return self._told(file.read_text(encoding="utf-8"), name=answer, offset=offset)

    def _told(self, text: str, below: str = "", *, name: str = "", offset: int = 0) -> str:
        """Return what fits into one answer of *text* from *offset* on, with how the rest can be had."""
        rest = text[offset:]
        if len(rest.encode()) + len(below.encode()) < LIMIT_BYTES:
            return f"{rest.rstrip()}\n\n{below}".rstrip()
        if not name:
            name = f"answer-{sum(1 for _ in self._store.glob('answer-*.txt')) + 1}"
            write_bytes(self._store / f"{name}.txt", text.encode(errors="replace"))
        part = rest.encode(errors="replace")[: LIMIT_BYTES - _ROOM_BELOW - len(below)].decode(errors="ignore")
        part = part[: part.rfind("\n") + 1] or part
        more = f'The answer has {len(text):,} characters; go on with read_more("{name}", offset={offset + len(part)}).'
        return f"{part.rstrip()}\n\n{below}\n{more}"

    def _inside(self, name: str) -> Path:
        """Return the file called *name*.

        Raises:
            LeaklabError: if it lies, or leads, outside of the folder, or is no file.
        """
        try:
            file = (self._root / name).resolve()
            is_inside, is_file = file.is_relative_to(self._root), file.is_file()
        except (OSError, ValueError, RuntimeError):  # too long, with a zero in it, a circle of links
            is_inside = is_file = False
        if not is_inside:
            msg = f"{shorten(name, _NAME_LIMIT)!r} is not in the folder of this server, or leads out of it"
            raise LeaklabError(msg)
        if not is_file:
            msg = f"there is no file {shorten(name, _NAME_LIMIT)!r} in the folder of this server"
            raise LeaklabError(msg)
        return file

    def _program(self, file: Path, cell: int = 0) -> CheckedProgram:
        return CheckedProgram(file, cell, self._store)

    def _loaded(self, name: str) -> Any:
        kept = self._store / f"{name}.json"
        return leaklab.load(kept if _REPORT.fullmatch(name) and kept.is_file() else self._inside(name))


def main() -> None:
    """Answer the call that stands in the working directory, and end this process."""
    store = Path.cwd()
    call = json.loads((store / CALL).read_bytes())
    try:
        tools = Tools(Path(call["root"]), store, call["seconds"])
        answer = {"text": getattr(tools, call["tool"])(**call["arguments"])}
    except BaseException as error:  # noqa: BLE001 - a program may end in any way, and each is an answer
        answer = {"error": sentence_of(error)}
    write_bytes(store / ANSWER, json.dumps(answer).encode())
    os._exit(0)  # threads that the program has left would be waited for
