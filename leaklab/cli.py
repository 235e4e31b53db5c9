"""The ``leaklab`` command: parse, run, print, and answer with an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import leaklab
from leaklab.errors import LeaklabError

if TYPE_CHECKING:
    from leaklab.demo import Demo

OK, FAILED = 0, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv* (default: this process's) and return its exit status.

    0 means that what was asked for was done, 1 that it was not, with one line on stderr that says why; argparse itself
    ends the process with 2 when the command line makes no sense.
    """
    arguments = _parser().parse_args(argv)
    try:
        return _demo(arguments)
    except (LeaklabError, OSError) as error:
        print(f"leaklab: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("leaklab: interrupted", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="leaklab", description=leaklab.__doc__)
    parser.add_argument("--version", action="version", version=f"leaklab {leaklab.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
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
        "--timeout", type=_seconds, default=300.0, metavar="S", help="seconds to wait (default: %(default)g)"
    )
    return parser


def _seconds(word: str) -> float:
    seconds = float(word)
    if not seconds > 0:
        msg = f"a time limit must be a positive number of seconds, not {word}"
        raise argparse.ArgumentTypeError(msg)
    return seconds


def _demo(arguments: argparse.Namespace) -> int:
    from leaklab.demo import as_page, find_notebook, run_demo, save_notebook

    for file in filter(None, (arguments.html, arguments.notebook)):
        _refuse_missing_folder(file)  # before half a minute of work, not after it
    print(f"running {find_notebook()} in a fresh kernel ...", flush=True)
    demo = run_demo(max_seconds=arguments.timeout)
    arguments.html.write_text(as_page(demo.notebook), encoding="utf-8")
    _print_findings(demo)
    print(f"\nthe whole story, as one page: {arguments.html.resolve()}")
    if arguments.notebook:
        save_notebook(demo.notebook, arguments.notebook)
        print(f"the executed notebook: {arguments.notebook.resolve()}")
    if demo.failure:
        print(f"leaklab: {demo.failure}", file=sys.stderr)
        return FAILED
    return OK


def _refuse_missing_folder(file: Path) -> None:
    if not file.resolve().parent.is_dir():
        msg = f"cannot write {file}: the folder {file.resolve().parent} does not exist"
        raise LeaklabError(msg)


def _print_findings(demo: Demo) -> None:
    print("\nthe training loop as it was written:")
    print(demo.before)
    print("\nthe same loop, repaired:")
    print(f"  {demo.after.verdict}")
