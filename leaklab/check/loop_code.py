"""Ask the code of a loop that goes on whether anything in it could end the growth of what leaks.

A loop ends too soon for the rules that need no code, which follow what grows to eight times the steps. Its functions
are watched for two runs more, and read then: which of them fill the container, and what else is written there about it.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Generator, Iterator
from dataclasses import replace

from leaklab.check.findings import Explained
from leaklab.check.line_search import whose
from leaklab.check.memory import keeps_graphs
from leaklab.check.session import CheckSession, Ran
from leaklab.lines.branches import BranchWatch, Names
from leaklab.lines.later_code import LaterCode
from leaklab.lines.open_branches import OpenBranches
from leaklab.model import Leak

_N_RUNS = 2
_RUNNING = "running function "
_LOCAL = re.compile(r"local '(\w+)'")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")


def read_loop_code(session: CheckSession, explained: Explained) -> Generator[int, Ran, Explained]:
    """Note which leaks nothing could end that is written in the user's files, if each run has left as many.

    What another thread does is not seen: where one has run, nothing is said.
    """
    asked = [leak for leak in explained.leaks if leak.fingerprint in explained.names and _is_exact(leak)]
    if session.loop is None or session.failure or not asked or session.clocks.busy():
        return explained
    watch = BranchWatch(whose, running_too=True)
    for _ in range(_N_RUNS):
        with watch:
            _seconds, failure = yield session.next_run
        if failure:
            return explained
    code = OpenBranches(watch)
    endless = (leak.fingerprint for leak in asked if _is_endless(code, watch, leak, explained.names[leak.fingerprint]))
    session.loop.note_endless(frozenset(endless))
    return explained


def _is_exact(leak: Leak) -> bool:
    """Return whether each run left as many; of the last two it is not known what they leave."""
    return len(set(leak.kept[:-2])) <= 1


def _is_endless(code: OpenBranches, watch: BranchWatch, leak: Leak, names: Names) -> bool:
    """Return whether no code ends the growth of *leak*, lets go of its holder or asks for what was kept for that.

    What has the container may be replaced as a whole: ``meter = Meter()`` for each epoch. What is asked for after the
    loop is collected for that, unless it carries its graph, which nobody wants then.
    """
    references = [step.reference for step in leak.path.steps]
    first = _LOCAL.match(references[0]) or _IDENTIFIER.match(references[0])
    variables = frozenset(first.groups() or [first[0]]) if first is not None else frozenset[str]()
    if leak.path.root.startswith(_RUNNING):
        function = leak.path.root.removeprefix(_RUNNING).rpartition(".")[2]
        codes = [place[0] for place in watch.running if place is not None and place[0].co_name == function]
        names = replace(names, free={**names.free, **dict.fromkeys(codes, variables)})
    if not code.of(names).is_endless:
        return False
    wide = replace(
        names,
        anywhere=names.anywhere.union(*map(_IDENTIFIER.findall, references)),
        variables=names.variables | variables,
    )
    later = LaterCode(watch, _files_with(wide.anywhere | wide.variables))
    return not (later.may_drop(wide) or (later.may_read(names) and not keeps_graphs(leak)))


def _files_with(names: frozenset[str]) -> Iterator[str]:
    """Yield the user's files, of all modules that are loaded, in whose text one of *names* stands."""
    filenames = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for filename in sorted(name for name in filenames if type(name) is str and name.endswith(".py") and whose(name)):
        if not names.isdisjoint(_IDENTIFIER.findall("".join(linecache.getlines(filename)))):
            yield filename
