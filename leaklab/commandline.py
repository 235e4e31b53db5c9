"""What commands share: a parser that guesses what was meant, and a line on the terminal that passes."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from leaklab.text import did_you_mean, shorten

_QUIET_SECONDS = 0.5
_BAR_WIDTH = 40
_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<known>.*)\)")


class CommandParser(argparse.ArgumentParser):
    """Names the command or the option that was meant, below the usage of the command that was given."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and refuse here what is left: the parser of a command knows its own options, and its usage."""
        parsed, left = super().parse_known_args(args, namespace)
        if left:
            known = [option for option in self._option_string_actions if option.startswith("--")]
            guess = did_you_mean(left[0].partition("=")[0], known)
            self.error(f"unrecognized arguments: {' '.join(left)}{guess}")
        return parsed, left

    def error(self, message: str) -> NoReturn:
        """End with status 2, the usage and *message*, behind it a command that is spelt like the one that was given."""
        if found := _CHOICE.search(message):
            message += did_you_mean(found["word"], re.findall(r"[\w-]+", found["known"]))
        super().error(message)


@contextmanager
def passing_line() -> Iterator[Callable[[str], None]]:
    """Write words over those before, in one line of stderr if that is a terminal; leave nothing of them behind.

    No words take away those that stand there.
    """
    n_drawn = 0

    def say(words: str) -> None:
        nonlocal n_drawn
        if sys.stderr.isatty():
            shown = shorten(words, shutil.get_terminal_size().columns - 1)
            print(f"\r{shown:<{n_drawn}}", end="" if words else "\r", file=sys.stderr, flush=True)
            n_drawn = len(shown)

    try:
        yield say
    finally:
        if n_drawn:
            print(f"\r{'':<{n_drawn}}\r", end="", file=sys.stderr, flush=True)


@contextmanager
def progress_bar(words: str) -> Iterator[Callable[[int, int], None]]:
    """Draw a progress bar if the work takes long."""
    started = time.monotonic()
    with passing_line() as say:

        def progress(done: int, total: int) -> None:
            if time.monotonic() - started > _QUIET_SECONDS:
                n_full = _BAR_WIDTH * done // max(total, 1)
                say(f"{words} [{'#' * n_full:<{_BAR_WIDTH}}]")

        yield progress
