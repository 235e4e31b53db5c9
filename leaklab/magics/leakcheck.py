"""The cell magic ``%%leakcheck``: check a cell, show how far it is, and compare with the last check of that name."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import Bool, Float, Integer, observe

from leaklab.errors import ChangeError, LeakFound, MissingExtraError
from leaklab.magics.first_run import AnsweredError, FirstRun
from leaklab.magics.options import (
    MAX_PATHS,
    ShellMagics,
    output_options,
    parse_options,
    publish,
    split_line,
    unquoted,
    warn_of_old_option,
)
from leaklab.magics.progress_line import ProgressLine
from leaklab.model import MIN_RUNS, Check, Outcome, Settings
from leaklab.reports.check import SUFFIXES, LeakReport, said_since
from leaklab.reports.comparison import Comparison, compare_checks
from leaklab.text import read_bytes_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaklab.check.cures import TrialsBeside
    from leaklab.check.runner import Finished
    from leaklab.check.session import Steps
    from leaklab.magics.cell import Cell
    from leaklab.ranks.agreement import Agreement
    from leaklab.reports.loop import MonitorReport

MAX_NAMES = 50
"""Checks that are kept for a comparison, some kilobytes each; of more names the longest unused are forgotten."""


@magics_class
class LeakLab(ShellMagics):
    """The magics of leaklab; the defaults of their options are set by ``%config LeakLab.runs = 60`` and the like."""

    runs = Integer(None, min=MIN_RUNS, allow_none=True, help="Upper limit of measured runs (-n).").tag(config=True)
    warmup = Integer(1, min=0, help="Runs before the baseline (-w).").tag(config=True)
    warmups = Integer(None, min=0, allow_none=True, help="Old name of warmup.").tag(config=True)
    seconds = Float(60.0, min=0.001, help="No new run starts after this many seconds (-t).").tag(config=True)
    summaries = Bool(default_value=True, help="Show shapes and lengths of values in reports.").tag(config=True)
    _trials: TrialsBeside | None = None
    paths = Integer(MAX_PATHS, min=1, help="How many independent paths %whyalive shows (-n).").tag(config=True)

    @observe("warmups")
    def _take_over_warmups(self, change: Any) -> None:
        if change.new is not None:
            warn_of_old_option("LeakLab.warmups", "LeakLab.warmup")
            self.warmup = change.new
            self.warmups = None  # so that the same value set again is seen again

    @magic_arguments()
    @argument("-n", "--runs", type=int, help="Upper limit of measured runs; the check stops earlier when it is sure.")
    @argument("-w", "--warmup", type=int, help="Runs before measuring, for imports and caches (default 1).")
    @argument(
        "-t",
        "--seconds",
        type=float,
        help="Start no new run after this many seconds (default 60); what a verdict needs may take as long again.",
    )
    @argument("--setup", type=unquoted, default="", help="Code to run once before, not measured.")
    @argument("--name", type=unquoted, default="", help="A name for this check, shown in its report.")
    @argument(
        "--sites", action="store_true", help=("Run a few more times, traced, to find the lines, even without a leak.")
    )
    @argument("--no-sites", action="store_true", help="Make no extra runs to find the lines that leak.")
    @argument("--cure", action="store_true", help="Try changes that would end a leak, for as long as -t allows.")
    @argument("--no-cure", action="store_true", help="Never run the code with changes that would end a leak.")
    @argument(
        "--try",
        dest="written",
        type=unquoted,
        default="",
        metavar="NAME",
        help="Try the change that this variable holds (a unified diff, or new source), and no other.",
    )
    @argument(
        "--native", action="store_true", help="Name the C or C++ code that leaks (needs leaklab[native]: memray)."
    )
    @argument(
        "--statements",
        action="store_true",
        help="Run a few more times to count what each statement leaves behind.",
    )
    @argument("--no-summaries", action="store_true", help="Do not show shapes and lengths of values.")
    @argument("--redact", action="store_true", help="Hide summaries, keys, strings and folders of your data.")
    @argument("--show-output", action="store_true", help="Show the output of every run, not only of the first.")
    @argument(
        "--isolated",
        action="store_true",
        help=("Run the cell once here; make all other runs in a copy of the process."),
    )
    @argument("--group", action="store_true", help="Check together with the other ranks of a torchrun job.")
    @argument("--group-timeout", type=float, default=300.0, help="Seconds that a rank waits for the others (300).")
    @argument(
        "--min-bytes",
        type=unquoted,
        default="0",
        metavar="SIZE",
        help="Leaks of fewer bytes per run go to the notes, e.g. 1KiB; threads and callbacks always count.",
    )
    @argument("--fail-on-leak", action="store_true", help="Raise LeakFound after the display if the cell leaks.")
    @output_options(SUFFIXES)
    @no_var_expand
    @line_cell_magic
    def leakcheck(self, line: str, cell: str | None = None) -> object:
        """Run the cell repeatedly and say whether it leaks, what grows, and who holds it.

        The cell runs in your namespace, as under ``%%time``; its side effects happen in every run. The first run's
        output is shown, the others' dropped. ``%leakcheck STATEMENT`` checks one statement; options stand before it.

        Example::

            %%leakcheck -n 24 -v report
            loss = trainer.step(batch)
        """
        __tracebackhide__ = True
        from leaklab.check.api import report_on
        from leaklab.check.pipeline import check_steps
        from leaklab.check.runner import drive, isolated_steps
        from leaklab.magics.cell import Cell

        written, statement = split_line(self.leakcheck, line) if cell is None else (line, "")
        if cell is None and not statement:
            msg = "%leakcheck needs a statement to check, such as %leakcheck step(), or %%leakcheck and code below it"
            raise UsageError(msg)
        options = parse_options(self.leakcheck, written, SUFFIXES)
        settings = self._settings(options)
        try:
            code = Cell(self.shell, statement, n_lines_above=0) if cell is None else Cell(self.shell, cell)
            setup = Cell(self.shell, options.setup, n_lines_above=0) if options.setup else None
        except SyntaxError as error:
            raise error.with_traceback(None)  # noqa: B904 - the compiler's own frames tell the user nothing
        if setup is not None and setup.awaits:
            msg = "--setup cannot await: run that code in a cell above"
            raise UsageError(msg)
        agreement = self._agreement(options)
        progress = ProgressLine(
            self.shell,
            settings,
            is_shown=not (options.quiet or options.show_output),
            make_report=partial(report_on, agreement=None, redact=options.redact),
        )
        self.wait_for_trials(progress.say)
        if setup is not None:
            with agreement or nullcontext():
                setup.run(shown=True)
        make_steps = partial(
            check_steps,
            settings,
            self._namespace,
            code.cell_name,
            code,
            among_ranks=agreement is not None,
            on_progress=None if options.isolated else progress.on_progress,
            beside=self._take_trials if progress.can_go_on and not _is_used_at_once(options) else None,
        )
        steps = isolated_steps(make_steps, awaits=code.awaits) if options.isolated else make_steps()
        if agreement is not None:
            steps = agreement.agreed(steps)
        steps = self._with_change(steps, options, code, settings, progress)
        if code.awaits:
            return self._check_awaiting(code, steps, options, settings, progress, agreement=agreement)
        once: Callable[[int], object] = progress.ticking(
            lambda number: code.run(number, shown=_is_shown(number, settings, options))
        )
        first = FirstRun(self._namespace, settings, progress.say)
        if not (options.isolated or agreement is not None or options.written):
            once = first.watching(once)
        try:
            with agreement or nullcontext():
                finished = drive(steps, once)
                if first.report is not None:
                    return self._finish_first_run(first.report, finished, code, options, progress)
                return self._finish(finished, code, options, progress, agreement)
        finally:
            code.outputs.forget()
            if self._trials is None or self._trials.are_over:
                progress.close()

    def _take_trials(self, trials: TrialsBeside) -> None:
        self._trials = trials

    def wait_for_trials(self, say: Callable[[str], object]) -> None:
        """Wait for the trials of the last check, if some are under way: beside a new check they would disturb it."""
        trials, self._trials = self._trials, None
        if trials is not None and not trials.are_over:
            say("the changes of the last check are still being tried; interrupt to end that")
            trials()

    async def _check_awaiting(
        self,
        code: Cell,
        steps: Steps,
        options: Any,
        settings: Settings,
        progress: ProgressLine,
        *,
        agreement: Agreement | None,
    ) -> object:
        __tracebackhide__ = True
        from leaklab.check.runner import drive_async

        once = progress.ticking(lambda number: code.run_async(number, shown=_is_shown(number, settings, options)))
        try:
            with agreement or nullcontext():
                return self._finish(await drive_async(steps, once), code, options, progress, agreement)
        finally:
            code.outputs.forget()
            progress.close()

    def _settings(self, options: Any) -> Settings:
        if options.sites and options.no_sites:
            msg = "--sites and --no-sites exclude each other: give one of them"
            raise UsageError(msg)
        if options.written and options.group:
            msg = "--try and --group exclude each other: if the trial failed on one rank, the others would wait for it"
            raise UsageError(msg)
        if options.written and (options.cure or options.no_cure):
            msg = "--try tries your change and no other: leave out --cure and --no-cure"
            raise UsageError(msg)
        if options.cure and options.no_cure:
            msg = "--cure and --no-cure exclude each other: give one of them"
            raise UsageError(msg)
        try:
            if options.native:
                from leaklab.lines.native import require_memray

                require_memray()
            return Settings(
                max_runs=self.runs if options.runs is None else options.runs,
                n_warmups=self.warmup if options.warmup is None else options.warmup,
                max_seconds=self.seconds if options.seconds is None else options.seconds,
                name=options.name,
                summaries=self.summaries and not options.no_summaries,
                sites=True if options.sites else False if options.no_sites else None,
                native=options.native,
                cure=True if options.cure else False if options.no_cure or options.written else None,
                statements=options.statements,
                min_bytes=read_bytes_words(options.min_bytes),
            )
        except (ValueError, MissingExtraError) as error:
            raise UsageError(str(error)) from None

    def _agreement(self, options: Any) -> Agreement | None:
        """Return what the ranks agree by, where they are to check together."""
        if not options.group:
            return None
        if options.isolated:
            msg = "--isolated and --group exclude each other: ranks that check together run in their own processes"
            raise UsageError(msg)
        from leaklab.ranks.agreement import Agreement

        try:
            return Agreement(group=True, seconds=options.group_timeout)
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _with_change(self, steps: Steps, options: Any, code: Cell, settings: Settings, progress: ProgressLine) -> Steps:
        """Return *steps*, and behind them the trial of the change that ``--try`` names.

        Raises:
            UsageError: for what is wrong with it, before the cell has run.
        """
        if not options.written:
            return steps
        from leaklab.check.trying import then_tried, written_proposal

        if options.written not in self._namespace:
            msg = f"--try needs the name of a variable that holds the change: there is none called {options.written!r}"
            raise UsageError(msg)
        checked = code.checked()
        try:
            proposal = written_proposal(self._namespace[options.written], checked)
        except ChangeError as error:
            raise UsageError(str(error)) from None
        return then_tried(steps, proposal, checked, settings.max_seconds, lambda: progress.say("trying your change"))

    def _finish(
        self, finished: Finished, code: Cell, options: Any, progress: ProgressLine, agreement: Agreement | None
    ) -> object:
        """Show and store the report, then raise what the cell raised; of many ranks only the first shows and saves."""
        __tracebackhide__ = True
        from leaklab.check.api import refuse_end, refuse_leak, report_on
        from leaklab.check.runner import without_own_frames

        trials = self._trials
        made = partial(report_on, finished.check, agreement, redact=options.redact, rerun=code.rerun())
        comparison = None if finished.error is not None else compared_with_last(self, made().so_far)

        def make_report(**options: Any) -> LeakReport:
            return said_since(made(**options), comparison)

        report = make_report(trials=trials)
        if agreement is not None and report.ranks is None:
            options.quiet, options.save = True, ""
        failed = finished.error is not None
        try:
            with code.outputs.on_screen():
                if trials is None:
                    publish(report, options, self._namespace, failed=failed, show=progress.show, shown=report.ranks)
                else:
                    publish(report, options, self._namespace, show=progress.show_beside, shown=make_report())
                    trials.begin(lambda check: progress.show(said_since(LeakReport(check), comparison)))
            if finished.error is not None:
                raise without_own_frames(finished.error)
        finally:
            # This frame will be part of the error's traceback: without the name there is no cycle of the two.
            del finished
        refuse_end(report, agreement)
        if options.fail_on_leak:
            refuse_leak(report, "" if agreement is None else agreement.leaking)
        return report if options.output else None

    def _finish_first_run(
        self, report: MonitorReport, finished: Finished, code: Cell, options: Any, progress: ProgressLine
    ) -> object:
        """Show and store what the first run has told, where that was enough, or all that there is."""
        __tracebackhide__ = True
        from leaklab.check.runner import without_own_frames

        is_interrupted = finished.error is not None and not isinstance(finished.error, AnsweredError)
        try:
            with code.outputs.on_screen():
                publish(report, options, self._namespace, failed=is_interrupted, show=progress.show)
            if is_interrupted and finished.error is not None:
                raise without_own_frames(finished.error)
        finally:
            # This frame will be part of the error's traceback: without the name there is no cycle of the two.
            del finished
        if options.fail_on_leak and report.leaked:
            leak = LeakFound(str(report.leaks[0].reason))
            leak.leaklab_report = report
            raise leak
        return report if options.output else None


def _is_used_at_once(options: Any) -> bool:
    """Return whether the report has to be complete when the cell ends."""
    at_once = (options.quiet, options.output, options.save, options.fail_on_leak, options.redact, options.written)
    return any(at_once) or options.isolated


def _is_shown(number: int, settings: Settings, options: Any) -> bool:
    """Show the first run, be it a warm-up or measured; the others on request."""
    first = number == (0 if settings.n_warmups else 1)
    return bool(options.show_output or first)


def compared_with_last(owner: object, check: Check) -> Comparison | None:
    """Say what became of the leaks that the last check of the same ``--name`` found, and remember this check.

    A check that ended early or came to no verdict is compared but not remembered: the next one is then compared with
    what was proven last.

    Args:
        owner: Whoever lives as long as the notebook's magics; the records are kept in its ``__dict__``, so that no
            module has a state and unloading the extension forgets them.
        check: Of the cell that has just been run. Records hold nothing of the user's.

    Returns:
        The comparison; None for a check without a name, for the first of its name, and where neither leaks.
    """
    name = check.settings.name
    if not name:
        return None
    memory: dict[str, Check] = vars(owner).setdefault("_last_checks", {})
    before = memory.get(name)
    if check.verdict.outcome is not Outcome.INCONCLUSIVE and not check.failure:
        memory.pop(name, None)
        memory[name] = check  # at the end: the names that come first are the longest unused
        for forgotten in list(memory)[:-MAX_NAMES]:
            del memory[forgotten]
    if before is None:
        return None
    comparison = compare_checks(before, check)
    if not comparison.lines or not (before.leaks or check.leaks):
        return None
    return comparison
