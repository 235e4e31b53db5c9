"""The magics: parse, call, display. One module each; `MAGICS` is the list that ``%load_ext leaklab`` registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leaklab.magics.autograd import AutogradMagics
from leaklab.magics.awaiting import AwaitRewriter
from leaklab.magics.completing import complete_options, forget_options
from leaklab.magics.leakcheck import LeakLab
from leaklab.magics.leakreport import LeakReportMagics
from leaklab.magics.leakwatch import LeakWatchMagics
from leaklab.magics.memdiff import MemDiffMagics
from leaklab.magics.whyalive import WhyAliveMagics

MAGICS = (LeakLab, AutogradMagics, WhyAliveMagics, MemDiffMagics, LeakWatchMagics, LeakReportMagics)


def load(shell: Any) -> None:
    """Register the magics; a second call replaces those of the first."""
    unload(shell)
    for magics in MAGICS:
        shell.register_magics(magics(shell=shell))
    shell.input_transformers_post.append(AwaitRewriter(shell))
    complete_options(shell)


def unload(shell: Any) -> None:
    """Take back everything that `load` did."""
    forget_options(shell)
    manager = shell.magics_manager
    for magics in MAGICS:
        registered = manager.registry.pop(magics.__name__, None)
        if isinstance(registered, LeakWatchMagics):
            registered.switch_off()
        if registered is not None and registered in shell.configurables:
            shell.configurables.remove(registered)
    for kind in ("line", "cell"):
        functions: dict[str, Callable[..., object]] = manager.magics[kind]
        for name in [n for n, f in functions.items() if isinstance(getattr(f, "__self__", None), MAGICS)]:
            del functions[name]
    post = shell.input_transformers_post
    post[:] = [transform for transform in post if not isinstance(transform, AwaitRewriter)]
