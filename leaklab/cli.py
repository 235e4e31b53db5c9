"""The ``leaklab`` command: parse, run, print, and answer with an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import leaklab
from leaklab.commandline import CommandParser, passing_line, progress_bar
from leaklab.errors import LeaklabError, MissingExtraError
from leaklab.programs.commands import add_attach, add_watch, seconds
from leaklab.version import renamed

if TYPE_CHECKING:
    from leaklab.reports.cuda import CudaSnapshot
    from leaklab.reports.cuda_series import SnapshotComparison
    from leaklab.reports.ranks import RanksReport

    _Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - it has no other name

OK, FAILED, USAGE, GREW = 0, 1, 2, 3
"""Exit statuses; 2 is argparse's own."""

_EXPORTS = ("html", "md", "json", "pdf")
_NO_CHECK = (
    "the notebook made no check: it must load leaklab (%load_ext leaklab) and have a cell with %%leakcheck as its first"
    " line, or a variable that holds a report of leaklab.leakcheck"
)
OLD_COMMANDS = {"diff": "cuda diff", "show": "cuda show"}
"""Names that a command had before, with what it is called now; they still work."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv* (default: this process's) and return its exit status.

    0 means that what was asked for was done, 1 that it was not, with one line on stderr that says why, 3 that
    ``--fail-above`` was exceeded; argparse itself ends the process with 2 when the command line makes no sense.
    """
    parser = _parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return USAGE
    arguments = parser.parse_args(argv)
    try:
        if arguments.command in OLD_COMMANDS:
            new = OLD_COMMANDS[arguments.command]
            print(f"leaklab: {renamed(f'`leaklab {arguments.command}`', f'`leaklab {new}`')}", file=sys.stderr)
        perform: Callable[[argparse.Namespace], int | Callable[[], int]] = arguments.perform
        done = perform(arguments)
    except (LeaklabError, OSError) as error:
        print(f"leaklab: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("leaklab: interrupted", file=sys.stderr)
        return FAILED
    return done if isinstance(done, int) else done()  # a program of the user's, whose errors are its own


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="leaklab", description=leaklab.__doc__)
    parser.add_argument("--version", action="version", version=f"leaklab {leaklab.__version__}")
    commands: Any = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="find the leak of a small training loop and explain it",
        description="Execute the shipped notebook in a fresh kernel: a PyTorch training loop that leaks, the check that"
        " finds and explains the leak, the repair, and the check that proves it. Exit status 0 if all that succeeded.",
    )
    page = Path("leaklab_demo.html")
    demo.add_argument(
        "--html", type=Path, default=page, metavar="FILE", help="the page to write (default: %(default)s)"
    )
    demo.add_argument("--notebook", type=Path, metavar="FILE", help="also write the executed notebook")
    demo.add_argument(
        "--timeout", type=seconds, default=300.0, metavar="S", help="seconds to wait (default: %(default)g)"
    )
    demo.set_defaults(perform=_demo)
    _add_report_commands(commands)
    add_watch(commands)
    ask = commands.add_parser(
        "ask",
        help="ask a running process what it holds",
        description="Send a process that has called leaklab.listen() its signal, and print its answer: memory, objects"
        " by type, who holds the largest tensors. Exit status 1 if it does not listen, or does not answer in time.",
    )
    ask.add_argument("pid", type=int, metavar="PID", help="number of the process, on this machine, of the same user")
    ask.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="seconds to wait (default: %(default)g)"
    )
    ask.set_defaults(perform=_ask)
    add_attach(commands)
    heap = commands.add_parser(
        "heap",
        help="show what fills a saved heap",
        description="Read a file of leaklab.snapshot(references=True).save(FILE) and print what fills it: the holders"
        " that keep most alive, and the types. Nothing in the file is run. Works without torch.",
    )
    heap.add_argument("file", type=Path, metavar="FILE", help="the saved heap, .heap")
    heap.add_argument("--find", metavar="CONDITION", help="print the objects that match instead, e.g. 'bytes > 1 MiB'")
    heap.add_argument("--why", metavar="EXPRESSION", help="say why that object is alive instead")
    heap.add_argument("--compare", type=Path, metavar="LATER", help="print what differs in this later heap instead")
    heap.add_argument("--html", type=Path, metavar="FILE", help="also write a page that shows what keeps what alive")
    heap.set_defaults(perform=_heap)
    mcp = commands.add_parser(
        "mcp",
        help="serve an assistant: checks, reports and trials as tools of the Model Context Protocol",
        description="Answer an assistant on standard input and output. It may check the programs in one folder, read"
        " reports, ask why an object is alive, and try changes; each program that it names runs in a process of its"
        " own. Needs the extra leaklab[mcp].",
    )
    mcp.add_argument(
        "--root", type=Path, default=Path(), metavar="DIR", help="the folder of the programs (default: this one)"
    )
    mcp.add_argument(
        "--timeout", type=seconds, default=300.0, metavar="S", help="seconds for a call (default: %(default)g)"
    )
    mcp.set_defaults(perform=_mcp)
    cuda = commands.add_parser(
        "cuda",
        help="compare CUDA memory snapshots, or show one",
        description="Read files of torch.cuda.memory._dump_snapshot. Nothing in them is run. Works without a GPU.",
    )
    _add_cuda_commands(cuda.add_subparsers(dest="cuda_command", required=True, metavar="COMMAND"))
    _add_cuda_commands(commands, is_old=True)
    return parser


def _add_report_commands(commands: _Commands) -> None:
    run = commands.add_parser(
        "run",
        help="execute a notebook and export its checks",
        description="Execute a notebook in a fresh kernel of this Python, in the notebook's folder, and export the"
        " checks that it makes with %%leakcheck. The notebook itself is not changed. Exit status 1 if a cell fails, if"
        " the notebook makes no check, or with --fail-on-leak if a check finds a leak.",
    )
    run.add_argument("notebook", type=Path, metavar="NOTEBOOK", help="it must load leaklab: %%load_ext leaklab")
    for suffix in _EXPORTS:
        run.add_argument(f"--{suffix}", type=Path, metavar="FILE", help=f"write all checks to FILE.{suffix}")
    run.add_argument("--fail-on-leak", action="store_true", help="exit with 1 if a check finds a leak")
    run.add_argument("--redact", action="store_true", help="hide summaries, keys, strings and folders of the data")
    run.add_argument("--timeout", type=seconds, metavar="S", help="seconds to wait (default: no limit)")
    run.set_defaults(perform=_run)
    compare = commands.add_parser(
        "compare",
        help="compare two files, before and after: what is new, still there, gone or fixed",
        description="Compare two files of one kind that leaklab can open, the earlier first: reports (.html or .json),"
        " heap snapshots (.npz), saved heaps (.heap), CUDA snapshots (.pickle). For checks, the exit status is 0 if"
        " every check of the second file proves that nothing leaks.",
    )
    compare.add_argument("before", type=Path, metavar="BEFORE", help="the earlier file: before the repair")
    compare.add_argument("after", type=Path, metavar="AFTER", help="the later file, of the same kind")
    compare.add_argument("--html", type=Path, metavar="FILE", help="also write a page, with bars")
    compare.set_defaults(perform=_compare)
    merge = commands.add_parser(
        "merge",
        help="merge the reports of many ranks into one",
        description="Read the files rank_0.json, rank_1.json, ... in a folder, one for each process that checked the"
        " same program, and print one answer: which ranks leak, and which leaks they have in common. Exit status 1 if"
        " there is nothing to merge, with --fail-on-leak if a rank leaks, with --fail-on-growing if something grows"
        " so far as well.",
    )
    merge.add_argument("folder", type=Path, metavar="DIR", help="the folder, or one file that was merged before")
    merge.add_argument("--html", type=Path, metavar="FILE", help="also write a page, with the report of each rank")
    merge.add_argument("--json", type=Path, metavar="FILE", help="also write all figures")
    merge.add_argument("--fail-on-leak", action="store_true", help="exit with 1 if a rank leaks")
    merge.add_argument(
        "--fail-on-growing",
        action="store_true",
        help="exit with 1 also if something grows so far: a leak, or a buffer that fills, which more steps would tell",
    )
    merge.set_defaults(perform=_merge)


def _add_cuda_commands(commands: _Commands, *, is_old: bool = False) -> None:
    diff = commands.add_parser(
        "diff",
        help="old name of: leaklab cuda diff" if is_old else "compare CUDA memory snapshots by call stack",
        description="Compare two or more files of torch.cuda.memory._dump_snapshot by call stack. Three or more"
        " of one run are judged, and four can prove a leak. Works without a GPU. Exit status 0 if that succeeded, 3 if"
        " live memory grew by more than --fail-above.",
    )
    diff.add_argument("files", nargs="+", metavar="FILE", help="snapshots, or patterns such as 'snap_*.pickle'")
    diff.add_argument(
        "--fail-above", type=_bytes, metavar="SIZE", help="exit with 3 if live bytes grew by more than this, e.g. 10MB"
    )
    diff.add_argument("--card", type=_bytes, metavar="SIZE", help="memory of the card, e.g. 80GB, for the projection")
    diff.add_argument(
        "--key",
        choices=("auto", "exact", "project"),
        default="auto",
        help="match call stacks line by line, or by file name and function of your own frames (default: %(default)s)",
    )
    show = commands.add_parser(
        "show",
        help="old name of: leaklab cuda show" if is_old else "show one CUDA memory snapshot",
        description="Show one file of torch.cuda.memory._dump_snapshot: live bytes by call stack, pools, peak,"
        " out-of-memory events. Nothing in the file is run. Works without a GPU.",
    )
    show.add_argument("file", type=Path, metavar="FILE", help="the snapshot")
    for command, perform in ((diff, _cuda_diff), (show, _cuda_show)):
        command.set_defaults(perform=perform)
        command.add_argument("--html", type=Path, metavar="FILE", help="also write a page")
        command.add_argument("--json", type=Path, metavar="FILE", help="also write all figures")
        command.add_argument(
            "--audit",
            action="store_true",
            help="audit files of any size before opening them, not only small ones: safer, up to three times slower",
        )


def _bytes(word: str) -> int:
    from leaklab.text import read_bytes_words

    try:
        return read_bytes_words(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _cuda_diff(arguments: argparse.Namespace) -> int:
    from leaklab.ask.cuda import compare_cuda_snapshots, find_snapshots
    from leaklab.text import format_bytes

    _refuse_missing_folders(arguments)
    files = find_snapshots(arguments.files)
    with progress_bar("reading snapshots") as progress:
        comparison = compare_cuda_snapshots(
            files,
            key=arguments.key,
            card_bytes=arguments.card,
            audited=arguments.audit or None,
            progress=progress,
        )
    print(comparison, end="")
    _write_views(arguments, comparison)
    limit = arguments.fail_above
    if limit is not None and comparison.growth_bytes > limit:
        grown = format_bytes(comparison.growth_bytes)
        print(f"leaklab: live memory grew by {grown}, more than {format_bytes(limit)}", file=sys.stderr)
        return GREW
    return OK


def _cuda_show(arguments: argparse.Namespace) -> int:
    from leaklab.ask.cuda import load_cuda_snapshot

    _refuse_missing_folders(arguments)
    with progress_bar("reading") as progress:
        snapshot = load_cuda_snapshot(arguments.file, audited=arguments.audit or None, progress=progress)
    print(snapshot, end="")
    _write_views(arguments, snapshot)
    return OK


def _write_views(arguments: argparse.Namespace, views: CudaSnapshot | SnapshotComparison | RanksReport) -> None:
    for file, write in ((arguments.html, views.to_html), (arguments.json, views.to_json)):
        if file is not None:
            write(file)
            print(f"written: {file.resolve()}")


def _refuse_missing_folders(arguments: argparse.Namespace) -> None:
    for file in filter(None, (arguments.html, arguments.json)):
        _refuse_missing_folder(file)


@contextmanager
def _cells() -> Iterator[Callable[[int, int, str], None]]:
    """Say which cell of a notebook runs."""
    with passing_line() as say:
        yield lambda number, total, source: say(f"cell {number} of {total}: {source}")


@contextmanager
def _demo_steps() -> Iterator[tuple[Callable[[int, int, str], None], Callable[[str], None]]]:
    """Print each step of the demo as it begins, and what a check says of itself in a line that passes."""
    from leaklab.notebooks import DEMO_STEPS

    numbers = {first_line: number for number, first_line in enumerate(DEMO_STEPS, 1)}
    with passing_line() as say:

        def begin(number: int, total: int, source: str) -> None:
            if words := DEMO_STEPS.get(source):
                say("")
                print(f"  {numbers[source]} of {len(numbers)}  {words}", flush=True)
            else:
                say(f"cell {number} of {total}: {source}")

        yield begin, say


def _demo(arguments: argparse.Namespace) -> int:
    from leaklab.notebooks import LABEL_WIDTH, as_page, run_demo, save_notebook, words_of
    from leaklab.render.base import on_terminal, write_text

    for file in filter(None, (arguments.html, arguments.notebook)):
        _refuse_missing_folder(file)  # before half a minute of work, not after it
    print("A training loop that leaks, in a fresh kernel: found, explained, repaired. It takes about a minute.")
    with _demo_steps() as (on_cell, on_words):
        demo = run_demo(max_seconds=arguments.timeout, on_cell=on_cell, on_words=on_words)
    write_text(arguments.html, as_page(demo))
    print(f"\n{on_terminal(words_of(demo))}")
    if arguments.notebook:
        save_notebook(demo.notebook, arguments.notebook)
        print("  the executed notebook".ljust(LABEL_WIDTH) + str(arguments.notebook.resolve()))
    print("  all of it, as one page".ljust(LABEL_WIDTH) + str(arguments.html.resolve()))
    if demo.failure:
        print(f"leaklab: {demo.failure}", file=sys.stderr)
        return FAILED
    return OK


def _ask(arguments: argparse.Namespace) -> int:
    from leaklab.process.ask import ask
    from leaklab.render.base import on_terminal

    print(on_terminal(ask(arguments.pid, arguments.timeout)), end="")
    return OK


def _mcp(arguments: argparse.Namespace) -> int:
    try:
        from leaklab.mcp.server import serve
    except ImportError as error:
        msg = "`leaklab mcp` needs the package mcp, 2 or later, which is not installed: pip install 'leaklab[mcp]'"
        raise MissingExtraError(msg) from error
    if not arguments.root.is_dir():
        msg = f"there is no folder {str(arguments.root)!r} to serve"
        raise LeaklabError(msg)
    serve(arguments.root, arguments.timeout)
    return OK


def _heap(arguments: argparse.Namespace) -> int:
    from leaklab.render.base import on_terminal
    from leaklab.reports.saved_heap import SavedHeap

    heap = SavedHeap.load(arguments.file)
    answers = []
    if arguments.find is not None:
        answers.append(str(heap.find(where=arguments.find)))
    if arguments.why is not None:
        answers.append(str(heap.why(int(arguments.why) if arguments.why.isdecimal() else arguments.why)))
    if arguments.compare is not None:
        answers.append(str(heap.compare(SavedHeap.load(arguments.compare))))
    if arguments.html is not None:
        heap.to_html(arguments.html)
    print(on_terminal("\n".join(answers or [str(heap)])), end="")
    return OK


def _run(arguments: argparse.Namespace) -> int:
    from leaklab.notebooks import run_notebook
    from leaklab.render.base import known_suffix, on_terminal
    from leaklab.reports.notebook import check_export_target

    files = [file for suffix in _EXPORTS if (file := getattr(arguments, suffix)) is not None]
    for file in files:
        known_suffix(file, [f".{suffix}" for suffix in _EXPORTS])
        check_export_target(file)  # before minutes of work, not after it
    with _cells() as on_cell:
        run = run_notebook(arguments.notebook, max_seconds=arguments.timeout, redact=arguments.redact, on_cell=on_cell)
    print(on_terminal(str(run.report)))
    for file in files:
        run.report.save(file)
        print(f"written: {file.resolve()}")
    problem = run.failure or ("" if run.report.reports else _NO_CHECK)
    if not problem and arguments.fail_on_leak and run.report.leaked:
        problem = "a check found a leak (--fail-on-leak)"
    if problem:
        print(f"leaklab: {problem}", file=sys.stderr)
    return FAILED if problem else OK


def _compare(arguments: argparse.Namespace) -> int:
    from leaklab.ask.comparing import compare
    from leaklab.render.base import on_terminal
    from leaklab.reports.comparison import NotebookComparison

    if arguments.html is not None:
        _refuse_missing_folder(arguments.html)
    comparison = compare(arguments.before, arguments.after)
    print(on_terminal(str(comparison).rstrip("\n")))
    if arguments.html is not None:
        comparison.to_html(arguments.html)
        print(f"written: {arguments.html.resolve()}")
    return OK if not isinstance(comparison, NotebookComparison) or comparison.passed else FAILED


def _merge(arguments: argparse.Namespace) -> int:
    from leaklab.ranks.gathering import merge
    from leaklab.render.base import on_terminal

    _refuse_missing_folders(arguments)
    report = merge(arguments.folder)
    print(on_terminal(str(report)), end="")
    _write_views(arguments, report)
    fails_on_growing = arguments.fail_on_growing
    if not (fails_on_growing or arguments.fail_on_leak):
        return OK
    if report.leaked:
        print(f"leaklab: a rank leaks (--fail-on-{'growing' if fails_on_growing else 'leak'})", file=sys.stderr)
        return FAILED
    if report.grows:
        passes = "which is no leak yet, and does not fail; --fail-on-growing lets it fail"
        print(
            f"leaklab: in a rank something grows so far, {'which fails' if fails_on_growing else passes}."
            " Whether it goes on shows at twice the steps.",
            file=sys.stderr,
        )
    return FAILED if report.grows and fails_on_growing else OK


def _refuse_missing_folder(file: Path) -> None:
    if not file.resolve().parent.is_dir():
        msg = f"cannot write {file}: the folder {file.resolve().parent} does not exist"
        raise LeaklabError(msg)
