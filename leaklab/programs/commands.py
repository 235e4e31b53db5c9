"""``leaklab watch`` and ``leaklab attach``: their options, and what they do."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from leaklab.errors import LeaklabError
from leaklab.files import say_on_stderr

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - it has no other name

_SUFFIXES = (".html", ".json", ".txt", ".md")


def add_watch(commands: Commands) -> None:
    """Add the command to those of ``leaklab``."""
    watch = commands.add_parser(
        "watch",
        help="run a Python program unchanged, and watch its loop",
        usage="leaklab watch [options] (FILE | -m MODULE) [arguments of the program]",
        description="Run a program as python would, and find its loop by what it calls anyway: its optimizer, a"
        " DataLoader, backward, its largest module, tasks. What grows from step to step is reported on stderr"
        " while the program runs and when it ends, whatever ends it. The exit status is the program's own.",
    )
    watch.add_argument("-m", action="store_true", dest="is_module", help="the program is a module, as of python -m")
    watch.add_argument(
        "--step",
        default="",
        metavar="MODULE:FUNCTION",
        help="a call of this function is a step; without MODULE: one at the top of FILE",
    )
    watch.add_argument(
        "--steps", type=_steps, metavar="N", help="total steps of the loop, to predict whether memory lasts"
    )
    watch.add_argument("--report", type=Path, metavar="FILE", help="also write the report: .html, .json, .txt, .md")
    watch.add_argument("--fail-on-leak", action="store_true", help="exit with 1, instead of 0, if a leak is certain")
    deaths = watch.add_mutually_exclusive_group()
    deaths.add_argument("--on-oom", type=Path, metavar="DIR", help="when memory runs out, write into DIR who held it")
    deaths.add_argument(
        "--on-death", type=Path, metavar="DIR", help="the same, also when an error, Ctrl-C or SIGTERM ends the program"
    )
    watch.add_argument(
        "--metrics", type=int, metavar="PORT", help="serve metrics to Prometheus on PORT; ranks take the next ports"
    )
    watch.add_argument("--quiet", action="store_true", help="say only what grows, and only at the end")
    # One argument for all: of two, the first would swallow a `--` behind it.
    watch.add_argument(
        "program",
        nargs=argparse.PARSER,
        metavar="FILE",
        help="the program, a file or a folder, or a module with -m, and its arguments",
    )
    own = frozenset(watch._option_string_actions)  # noqa: SLF001 - argparse has no public table of its options
    watch.set_defaults(perform=_prepared, own_options=own)


def _hint_at_late_options(target: str, rest: Sequence[str], own_options: Collection[str]) -> None:
    """Say on stderr that an option of leaklab's stands behind a program which does not know it."""
    late = [word for word in (one.partition("=")[0] for one in rest) if word in own_options and word.startswith("--")]
    if not late or "--" in rest:
        return
    try:
        text = Path(target).read_text("utf-8", "replace")
    except OSError:  # a module, or a folder
        return
    if late[0].lstrip("-").replace("-", "_") not in text and late[0] not in text:
        words = f"{late[0]} comes after {target}, which gets it: put options of leaklab before the program"
        say_on_stderr(f"leaklab watch: {words}\n")


def _prepared(arguments: argparse.Namespace) -> Callable[[], int]:
    """Return what runs the program: what that raises is not leaklab's.

    Raises:
        LeaklabError: if there is no such program, or an option makes no sense.
    """
    from leaklab.programs.running import MainProgram
    from leaklab.programs.watching import WatchOptions, run_watched

    module, _, function = arguments.step.rpartition(":")
    is_own = bool(arguments.step) and module in ("", "__main__")
    named = function if is_own else ""
    target, *rest = arguments.program
    _hint_at_late_options(target, rest, arguments.own_options)
    program = MainProgram(target, rest, is_module=arguments.is_module, named=named)
    if arguments.report is not None:
        from leaklab.render.base import check_target

        check_target(arguments.report, _SUFFIXES)
    writes_at_death = arguments.on_death is not None
    if arguments.on_oom is not None or writes_at_death:
        from leaklab.process.out_of_memory import on_oom

        on_oom(arguments.on_death if writes_at_death else arguments.on_oom, any_death=writes_at_death)
    if arguments.metrics is not None:
        from leaklab.metrics.prometheus import serve

        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        serve(arguments.metrics and arguments.metrics + local_rank)
    options = WatchOptions(
        arguments.report,
        arguments.steps,
        fails_on_leak=arguments.fail_on_leak,
        is_quiet=arguments.quiet,
        writes_at_death=writes_at_death,
    )
    return functools.partial(run_watched, program, options, f":{function}" if is_own else arguments.step)


def add_attach(commands: Commands) -> None:
    """Add the command to those of ``leaklab``."""
    attach = commands.add_parser(
        "attach",
        help="ask a running Python program that was not prepared, or watch its loop",
        description="Load leaklab into a running program, once, and print what `leaklab ask` prints for one that"
        " listens. The program goes on; only the loaded modules stay in it. Python 3.14 and later can load"
        " leaklab themselves, an older Python needs gdb; both need the right to trace the process. Exit status 1 if"
        " that fails.",
    )
    attach.add_argument("pid", type=int, metavar="PID", help="number of the process, on this machine, of the same user")
    act = attach.add_mutually_exclusive_group()
    act.add_argument("--watch", action="store_const", dest="act", const="watch", help="begin to watch its loop")
    act.add_argument(
        "--stop", action="store_const", dest="act", const="stop", help="end the watch, and print what was found"
    )
    attach.add_argument(
        "--step", default="", metavar="MODULE:FUNCTION", help="with --watch: a call of this function is a step"
    )
    attach.add_argument("--steps", type=_steps, metavar="N", help="with --watch: steps of the whole loop")
    attach.add_argument("--report", type=Path, metavar="FILE", help="also write the answer: .html, .json, .txt, .md")
    attach.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="seconds to wait (default: %(default)g)"
    )
    attach.set_defaults(perform=_attach, act="look")


def _attach(arguments: argparse.Namespace) -> int:
    from leaklab.programs.attaching import attach
    from leaklab.render.base import check_target, on_terminal

    if (arguments.step or arguments.steps) and arguments.act != "watch":
        msg = "--step and --steps say how a watch counts: give them with --watch"
        raise LeaklabError(msg)
    if arguments.report is not None:
        if arguments.act == "watch":
            msg = "a watch that begins has nothing to report yet: give --report with --stop"
            raise LeaklabError(msg)
        check_target(arguments.report, _SUFFIXES)
    pid = arguments.pid
    report = attach(
        pid,
        arguments.act,
        max_seconds=arguments.timeout,
        named=arguments.step,
        total_steps=arguments.steps,
    )
    if report is None:
        print(f"process {pid} is watched: `leaklab attach {pid}` shows its loop so far, with --stop what was found")
        return 0
    print(on_terminal(str(report)), end="")
    if arguments.report is not None:
        report.save(arguments.report)
        print(f"written: {arguments.report.resolve()}")
    return 0


def seconds(word: str) -> float:
    """Return the time limit that *word* says."""
    limit = float(word)
    if not limit > 0:
        msg = f"a time limit must be a positive number of seconds, not {word}"
        raise argparse.ArgumentTypeError(msg)
    return limit


def _steps(word: str) -> int:
    steps = int(word)
    if steps <= 0:
        msg = f"the steps of a loop must be a whole number above 0, not {word}"
        raise argparse.ArgumentTypeError(msg)
    return steps
