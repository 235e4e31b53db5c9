"""Complete the options of leaklab's magics with the Tab key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_HOOK = "complete_command"


def complete_options(shell: Any) -> None:
    """Let *shell* complete the options of every registered magic of leaklab."""
    for command, function in _commands(shell):
        shell.set_hook(_HOOK, _Completer(function), str_key=command)


def forget_options(shell: Any) -> None:
    """Take back what `complete_options` did."""
    chains = shell.strdispatchers.get(_HOOK)
    if chains is None:
        return
    for command in [key for key, chain in chains.strs.items() if any(_is_ours(entry) for entry in chain)]:
        del chains.strs[command]


class _Completer:
    """Returns the options of one magic, where one is being typed."""

    def __init__(self, function: Any) -> None:
        self.options = sorted(option for action in function.parser._actions for option in action.option_strings)  # noqa: SLF001 - argparse has no other list of its options

    def __call__(self, _shell: Any, event: Any) -> list[str]:
        if not event.symbol.startswith("-"):
            return []
        return [option for option in self.options if option.startswith(event.symbol)]


def _commands(shell: Any) -> Iterator[tuple[str, Any]]:
    for kind, marks in (("line", "%"), ("cell", "%%")):
        for name, function in shell.magics_manager.magics[kind].items():
            owner = type(getattr(function, "__self__", None))
            if owner.__module__.startswith("leaklab.") and hasattr(function, "parser"):
                yield marks + name, function


def _is_ours(entry: tuple[int, Any]) -> bool:
    return isinstance(getattr(entry[1], "__func__", None), _Completer)  # the shell makes a method of its own of it
