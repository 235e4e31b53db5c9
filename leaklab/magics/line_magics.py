"""The line magics: ``%whyalive`` and ``%autograd`` ask, ``%leakreport`` exports, ``%leakwatch`` watches the cells."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython import get_ipython
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import Bool, Integer, observe

from leaklab.errors import NO_MEMORY_TO_LOOK, NotEnoughMemoryError, ReportError
from leaklab.magics.options import (
    CellEvents,
    ShellMagics,
    defaults_of,
    evaluated,
    output_options,
    parse_options,
    parsed,
    publish,
    split_line,
    unquoted,
    warn_of_old_option,
)
from leaklab.render.json import tally_words
from leaklab.reports.alive import WHYALIVE_SUFFIXES, WhyAlive
from leaklab.reports.autograd import AUTOGRAD_SUFFIXES, AutogradReport
from leaklab.reports.notebook import Journal, NotebookReport, check_export_target, journal_of
from leaklab.text import shorten

if TYPE_CHECKING:
    from leaklab.ask.watching import CellWatcher


_EXPRESSION_LIMIT = 200


@magics_class
class WhyAliveMagics(ShellMagics):
    """The magic that asks why an object is alive; ``%config LeakLab.paths = 4`` sets its default."""

    paths = Integer(None, min=1, allow_none=True, help="Old name of LeakLab.paths.").tag(config=True)
    summaries = Bool(None, allow_none=True, help="Old name of LeakLab.summaries.").tag(config=True)

    @observe("paths", "summaries")
    def _take_over(self, change: Any) -> None:
        if change.new is not None:
            warn_of_old_option(f"WhyAliveMagics.{change.name}", f"LeakLab.{change.name}")
            setattr(defaults_of(self.shell), change.name, change.new)
            setattr(self, change.name, None)  # so that the same value set again is seen again

    @magic_arguments()
    @argument("-n", "--paths", type=int, help="How many independent paths to show (default 8).")
    @argument("-p", "--path", action="store_true", help="Stop at the best path: no sizes, no counts, nothing to cut.")
    @output_options(WHYALIVE_SUFFIXES)
    @no_var_expand
    @line_magic
    def whyalive(self, line: str) -> object:
        """Say why an object is alive: ``%whyalive [options] EXPRESSION``.

        Every independent path from a variable, a module or a running function to the object, what the object keeps
        alive, its reference counts explained, and the fewest references to cut so that it goes. Options stand before
        the expression, which is taken as it is written. Asking keeps nothing alive.

        Example::

            %whyalive -v why trainer.history[0]["loss"]
        """
        __tracebackhide__ = True
        written, expression = split_line(self.whyalive, line)
        options = parse_options(self.whyalive, written, WHYALIVE_SUFFIXES)
        expression = expression.rstrip(";").rstrip()
        if not expression:
            msg = "%whyalive needs an expression: %whyalive model.layers[0].weight"
            raise UsageError(msg)
        report = self._answer(expression, options)
        publish(report, options, self._namespace)
        return report if options.output else None

    def _answer(self, expression: str, options: Any) -> WhyAlive:
        __tracebackhide__ = True
        defaults = defaults_of(self.shell)
        borrowed = evaluated(expression, self._namespace)
        try:
            from leaklab.ask.alive import answer

            return answer(
                borrowed,
                self._namespace,
                asked=shorten(expression, _EXPRESSION_LIMIT),
                max_paths=defaults.paths if options.paths is None else options.paths,
                only_path=options.path,
                summaries=defaults.summaries,
            )
        except (TypeError, ValueError, NotEnoughMemoryError) as error:
            problem = str(error)
        except MemoryError:
            problem = NO_MEMORY_TO_LOOK
        # In one line: IPython would need more memory for a traceback than there is.
        raise UsageError(problem)


@magics_class
class AutogradMagics(ShellMagics):
    """The magic that looks into autograd graphs."""

    @magic_arguments()
    @output_options(AUTOGRAD_SUFFIXES)
    @no_var_expand
    @line_magic
    def autograd(self, line: str) -> object:
        """Show what the autograd graph behind an expression keeps alive: ``%autograd [options] [EXPR]``.

        EXPR is a tensor, a list of losses, a module, or anything that leads to tensors; without it, all variables of
        the notebook are examined. Options stand before the expression, which is taken as it is written.

        Saved tensors are told by operation, by forward line (of graphs made under
        ``torch.autograd.set_detect_anomaly(True)``) and one by one; nothing is unpacked or computed again.

        Example::

            %autograd -v kept trainer.losses
        """
        __tracebackhide__ = True
        written, expression = split_line(self.autograd, line)
        options = parse_options(self.autograd, written, AUTOGRAD_SUFFIXES)
        report = self._report(expression.rstrip(";").rstrip())
        publish(report, options, self._namespace)
        return report if options.output else None

    def _report(self, expression: str) -> AutogradReport:
        __tracebackhide__ = True
        from leaklab.ask.autograd import autograd

        namespace = self._namespace
        values = evaluated(expression, namespace) if expression else []
        try:
            if not expression:
                return autograd(namespace=namespace)
            return autograd(values.pop(), name=shorten(expression, _EXPRESSION_LIMIT), namespace=namespace)
        except ValueError as error:
            problem = str(error)
        except MemoryError:
            problem = NO_MEMORY_TO_LOOK
        # Raised out here: inside, it would carry the first error, whose frames hold what the expression made.
        raise UsageError(problem)


@magics_class
class LeakReportMagics(Magics):
    """The magic that exports the checks of this notebook; it holds their journal as long as the extension is loaded."""

    def __init__(self, shell: Any = None, **kwargs: Any) -> None:
        super().__init__(shell=shell, **kwargs)
        self.journal = Journal()

    @magic_arguments()
    @argument(
        "file", type=unquoted, help="FILE.html, FILE.json, FILE.txt, FILE.md or FILE.pdf (needs Chromium or Chrome)."
    )
    @argument("--redact", action="store_true", help="Hide summaries, keys, strings and folders of your data.")
    @argument("--title", type=unquoted, default="", help="A title for the report.")
    @argument("-q", "--quiet", action="store_true", help="Display nothing.")
    @no_var_expand
    @line_magic
    def leakreport(self, line: str) -> None:
        """Write every check of this notebook to one file: ``%leakreport [options] FILE``.

        The page holds the contents with all verdicts, every check folded, its tables, plots and graphs, and the
        records themselves: `leaklab compare` and `leaklab.load_report` read it back. It asks nothing of any server.

        Besides the checks of ``%%leakcheck`` it holds reports of `leaklab.leakcheck` that a variable refers to, and
        what the other magics have shown.

        Example::

            %leakreport --title "Training, before the repair" leaks.html
        """
        __tracebackhide__ = True
        options = parsed(self.leakreport, line)
        shell: Any = self.shell
        try:
            check_export_target(options.file)
            collection = self.journal.collect(shell.user_ns, title=options.title, redact=options.redact)
            if not (collection.checks or collection.views):
                msg = "this notebook has no check yet: put %%leakcheck above a cell and run it, then export"
                raise UsageError(msg)
            NotebookReport(collection).save(options.file)
        except ReportError as error:
            raise UsageError(str(error)) from None
        if not options.quiet:
            print(f"{tally_words(collection)}\nsaved to {Path(options.file).resolve()}")


def hand_over(path: str) -> None:
    """Write the checks of the notebook that runs this to *path*, as JSON; none where leaklab was never loaded."""
    shell = get_ipython()
    journal = journal_of(shell) or Journal()
    NotebookReport(journal.collect(shell.user_ns)).save(path)


@magics_class
class LeakWatchMagics(Magics):
    """The magic that watches cells; while it is off, nothing is registered."""

    def __init__(self, shell: Any = None, **kwargs: Any) -> None:
        super().__init__(shell=shell, **kwargs)
        self._watcher: CellWatcher | None = None
        self._events: CellEvents | None = None

    @line_magic
    def leakwatch(self, line: str) -> None:
        """Say after every cell what it left behind: ``%leakwatch on``, ``off`` or ``status``.

        One line a cell: its time, how many tensors, other objects and bytes more there are than after the cell before,
        and the level of the native heap after each of the last cells.
        A cell whose executions all leave something behind, the first not counted, raises an alarm from the fourth on.
        Garbage is collected after every cell, which is most of the cost: some 0.1 s for 170,000 objects; ``status``
        tells what it was here.
        """
        words = line.split()
        actions = {"on": self._switch_on, "off": self.switch_off, "status": self._tell}
        if len(words) != 1 or words[0] not in actions:
            msg = f"%leakwatch takes one of on, off and status, not {line.strip()!r}"
            raise UsageError(msg)
        if words[0] == "off":
            print("leakwatch was not on" if self._watcher is None else "leakwatch is off")
        actions[words[0]]()

    def switch_off(self) -> None:
        """Stop watching; does nothing while it is off."""
        if self._events is not None:
            self._events.end()
            self._watcher = self._events = None

    def _switch_on(self) -> None:
        if self._watcher is not None:
            print(self._watcher.status())
            return
        from leaklab.ask.watching import CellWatcher
        from leaklab.measure.heap_snapshot import notebook_context
        from leaklab.render.base import in_alarm

        shell: Any = self.shell
        in_notebook = getattr(shell, "kernel", None) is not None
        self._watcher = CellWatcher(
            lambda: notebook_context(shell.user_ns, shell).records,
            _write,
            encoding=_encoding,
            alarmed=lambda words: in_alarm(words, in_notebook=in_notebook),
        )
        self._watcher.start_cell()
        self._events = CellEvents(shell, self._watcher.start_cell, partial(_end_cell, shell, self._watcher))
        print("leakwatch is on: one line after every cell; %leakwatch off ends it")

    def _tell(self) -> None:
        print("leakwatch is off" if self._watcher is None else self._watcher.status())


def _end_cell(shell: Any, watcher: CellWatcher, number: int | None, source: str) -> None:
    if not source.lstrip().startswith("%leakwatch"):
        # The shell has counted on by now, or not yet: that depends on its version. A cell without history has no number
        # of its own.
        watcher.end_cell(shell.execution_count if number is None else number, source)


def _encoding() -> str | None:
    return getattr(sys.stdout, "encoding", None)


def _write(text: str) -> None:
    sys.stdout.write(text)  # asked anew each time: a cell may have its own
