"""Write the tables of options into the reference pages, from the parsers themselves.

Run it as ``python docs/reference/write_options.py`` after an option has changed; a test fails until then.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from leaklab import cli
from leaklab.magics import MAGICS

FOLDER = Path(__file__).parent


def magic_parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every magic that has options, by the magic's name."""
    functions = {name: value for magics in MAGICS for name, value in vars(magics).items()}
    return {name: function.parser for name, function in functions.items() if hasattr(function, "parser")}


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command that has options, by the command's name; not those with an old name."""
    found = dict(_commands_of(cli._parser()))  # noqa: SLF001 - nobody else needs it
    return {name: parser for name, parser in found.items() if name not in cli.OLD_COMMANDS}


def _commands_of(parser: argparse.ArgumentParser, above: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:  # noqa: SLF001 - there is no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, command in action.choices.items():
                below = list(_commands_of(command, f"{above}{name} "))
                yield from below or [(f"{above}{name}", command)]


def table(parser: argparse.ArgumentParser) -> str:
    """Return the arguments and options of *parser* as a Markdown table."""
    rows = [row for action in parser._actions for row in _rows(action, parser)]  # noqa: SLF001 - there is no other way
    return "\n".join(["| option | meaning |", "| --- | --- |", *rows])


def _rows(action: argparse.Action, parser: argparse.ArgumentParser) -> Iterator[str]:
    if isinstance(action, argparse._HelpAction):  # noqa: SLF001
        return
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    if action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    names = ", ".join(f"`{' '.join(filter(None, (name, value)))}`" for name in action.option_strings or ("",))
    helped = (action.help or "") % {"default": action.default, "prog": parser.prog}
    yield f"| {names} | {helped[:1].upper()}{helped[1:]} |".replace("*.", "\\*.")


def filled(page: str, parsers: dict[str, argparse.ArgumentParser]) -> str:
    """Return *page* with every table between its two comments made anew.

    Raises:
        ValueError: if a parser has no place on the page, or a place no parser.
    """
    places = re.findall(r"<!-- options of ([\w ]+) -->", page)
    if sorted(places) != sorted(parsers):
        msg = f"the page has places for {sorted(places)}, but options are those of {sorted(parsers)}"
        raise ValueError(msg)
    return re.sub(
        r"(<!-- options of ([\w ]+) -->\n).*?(<!-- end -->)",
        lambda match: f"{match[1]}\n{table(parsers[match[2]])}\n\n{match[3]}",
        page,
        flags=re.DOTALL,
    )


def pages() -> dict[Path, str]:
    """Return what each reference page with options should be."""
    parsers = {"magics.md": magic_parsers(), "command.md": command_parsers()}
    return {FOLDER / name: filled((FOLDER / name).read_text("utf-8"), found) for name, found in parsers.items()}


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
        print(f"written: {file}")
