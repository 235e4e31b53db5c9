"""The magics: parse, call, display. ``%load_ext leaklab`` registers those in `MAGICS`.

Besides, a cell magic can wait for a cell that awaits, and the Tab key completes the options of every magic.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from leaklab.magics.leakcheck import LeakLab
from leaklab.magics.leaks import LeaksMagics
from leaklab.magics.line_magics import AutogradMagics, LeakReportMagics, LeakWatchMagics, WhyAliveMagics
from leaklab.magics.memdiff import MemDiffMagics
from leaklab.magics.options import ShellMagics

_CALLS = tuple(f"get_ipython().run_cell_magic({name!r}" for name in ("leakcheck", "leaks", "memdiff"))
_HOOK = "complete_command"

MAGICS = (LeakLab, LeaksMagics, AutogradMagics, WhyAliveMagics, MemDiffMagics, LeakWatchMagics, LeakReportMagics)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext leaklab``: register the magics; a second call replaces those of the first."""
    unload_ipython_extension(shell)
    for magics in MAGICS:
        registered = magics(shell=shell)
        shell.register_magics(registered)
        if isinstance(registered, LeaksMagics):
            registered.switch_on()
        if isinstance(registered, ShellMagics):
            for name in registered.magics["cell"]:  # what IPython looks for where another line is the first one
                shell.register_magic_function(registered.not_first, "line", f"%{name}")
    shell.input_transformers_post.append(AwaitRewriter(shell))
    complete_options(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext leaklab``: nothing of it stays in the shell."""
    forget_options(shell)
    manager = shell.magics_manager
    for magics in MAGICS:
        registered = manager.registry.pop(magics.__name__, None)
        if isinstance(registered, (LeaksMagics, LeakWatchMagics)):
            registered.switch_off()
        if registered is not None and registered in shell.configurables:
            shell.configurables.remove(registered)
    for kind in ("line", "cell"):
        functions: dict[str, Callable[..., object]] = manager.magics[kind]
        for name in [n for n, f in functions.items() if isinstance(getattr(f, "__self__", None), MAGICS)]:
            del functions[name]
    post = shell.input_transformers_post
    post[:] = [transform for transform in post if not isinstance(transform, AwaitRewriter)]


class AwaitRewriter:
    """Put ``await`` before the call of ``%%leakcheck`` or ``%%memdiff`` where the cell below it awaits.

    A magic cannot wait for a running event loop; the shell can, if the cell that it runs is a coroutine.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        """Rewrite the transformed *lines* of a cell."""
        text = "".join(lines)
        if not text.startswith(_CALLS):
            return lines
        return ["await " + text] if self._awaits(text) else lines

    def _awaits(self, text: str) -> bool:
        from leaklab.magics.cell import awaits

        try:
            call = ast.parse(text).body[0].value  # type: ignore[attr-defined]  # the shell wrote one expression
            return awaits(self._shell.transform_cell(ast.literal_eval(call.args[2])))
        except (SyntaxError, ValueError, AttributeError, IndexError):
            return False


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
