"""What the help of the magics and commands says of their options is complete and true."""

from __future__ import annotations

import argparse
import re

import pytest

from leaklab import cli
from leaklab.errors import ReportError
from leaklab.magics import MAGICS
from leaklab.render.base import check_target
from leaklab.reports import check as report
from leaklab.reports import heap_diff

PARSERS = {name: value.parser for magics in MAGICS for name, value in vars(magics).items() if hasattr(value, "parser")}


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return every command, and the commands below it."""
    found = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    direct = {command.prog: command for choices in found for command in choices.values()}
    return direct | {name: one for command in direct.values() for name, one in commands_of(command).items()}


COMMANDS = commands_of(cli._parser())


@pytest.mark.parametrize(
    ("magic", "suffixes"),
    [
        ("leakcheck", [".html", ".json", ".txt", ".md", ".csv", ".collapsed", ".speedscope.json"]),
        ("memdiff", [".html", ".json", ".txt", ".md", ".csv"]),
        ("whyalive", [".html", ".json", ".txt", ".md", ".svg", ".dot"]),
        ("autograd", [".html", ".json", ".txt", ".md", ".csv", ".svg", ".dot"]),
    ],
)
def test_the_help_of_save_names_the_files_that_this_magic_writes(magic, suffixes):
    save = next(action for action in PARSERS[magic]._actions if "-T" in action.option_strings)
    assert re.findall(r"FILE((?:\.\w+)+)", save.help) == suffixes


def test_a_difference_refuses_the_suffix_of_another_report_before_anything_runs(tmp_path):
    check_target(tmp_path / "report.md", report.SUFFIXES)
    with pytest.raises(ReportError, match=r"must end in \.html or \.json or \.txt or \.md or \.csv, not in '\.svg'"):
        check_target(tmp_path / "difference.svg", heap_diff.SUFFIXES)


@pytest.mark.parametrize("parser", [*PARSERS.values(), *COMMANDS.values()], ids=[*PARSERS, *COMMANDS])
def test_every_option_is_explained(parser):
    told = [action for action in parser._actions if not isinstance(action, argparse._SubParsersAction)]
    silent = [action.dest for action in told if not action.help or action.help is argparse.SUPPRESS]
    assert silent == []
