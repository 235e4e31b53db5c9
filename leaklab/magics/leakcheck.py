"""The cell magic ``%%leakcheck``: parse, call the pipeline, display."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import Bool, Float, Integer

from leaklab.cells import Cell
from leaklab.collect.native_sites import require_memray
from leaklab.errors import LeakFound, MissingExtraError
from leaklab.magics.last_checks import compare_with_last
from leaklab.magics.options import output_options, parse_options, publish, unquoted
from leaklab.magics.progress import ProgressLine
from leaklab.magics.shell_magics import ShellMagics
from leaklab.model import MIN_RUNS, Settings
from leaklab.pipeline import Steps, check_steps
from leaklab.render.redaction import redacted
from leaklab.report import SUFFIXES, LeakReport
from leaklab.running import Finished, drive, drive_async, without_own_frames


@magics_class
class LeakLab(ShellMagics):
    """The magics of leaklab; the defaults of their options are set by ``%config LeakLab.runs = 60`` and the like."""

    runs = Integer(40, min=MIN_RUNS, help="Upper limit of measured runs (-n).").tag(config=True)
    warmups = Integer(1, min=0, help="Runs before the baseline (-w).").tag(config=True)
    seconds = Float(60.0, min=0.001, help="No new run starts after this many seconds (-t).").tag(config=True)
    summaries = Bool(default_value=True, help="Show shapes and lengths of values in reports.").tag(config=True)

    @magic_arguments()
    @argument("-n", "--runs", type=int, help="Upper limit of measured runs; fewer are made where that answers.")
    @argument("-w", "--warmup", type=int, help="Runs before measuring, for imports and caches (default 1).")
    @argument("-t", "--seconds", type=float, help="Start no new run after this many seconds of running (default 60).")
    @argument("--setup", type=unquoted, default="", help="Code to run once before, not measured.")
    @argument("--name", type=unquoted, default="", help="A name for this check, shown in its report.")
    @argument("--sites", action="store_true", help="Run a few more times, traced, for the lines; also without a leak.")
    @argument("--no-sites", action="store_true", help="Never run more times to find the lines that leak.")
    @argument(
        "--native", action="store_true", help="Name the C or C++ code that leaks (needs leaklab[native]: memray)."
    )
    @argument("--redact", action="store_true", help="Hide summaries, keys, strings and folders of your data.")
    @argument("--show-output", action="store_true", help="Show the output of every run, not only of the first.")
    @argument("--fail-on-leak", action="store_true", help="Raise LeakFound after the display if the cell leaks.")
    @output_options(SUFFIXES)
    @no_var_expand
    @line_cell_magic
    def leakcheck(self, line: str, cell: str | None = None) -> object:
        """Run the cell repeatedly and say whether it leaks, what grows, and who holds it.

        The cell runs in your namespace, as under ``%%time``; its side effects happen in every run. The first run's
        output is shown, the others' dropped.

        Example::

            %%leakcheck -n 24 -v report
            loss = trainer.step(batch)
        """
        __tracebackhide__ = True
        if cell is None:
            msg = "%leakcheck checks a whole cell: write %%leakcheck as its first line, and the code below"
            raise UsageError(msg)
        options = parse_options(self.leakcheck, line, SUFFIXES)
        settings = self._settings(options)
        try:
            code = Cell(self.shell, cell)
            setup = Cell(self.shell, options.setup, n_lines_above=0) if options.setup else None
        except SyntaxError as error:
            raise error.with_traceback(None)  # noqa: B904 - the compiler's own frames tell the user nothing
        if setup is not None and setup.awaits:
            msg = "--setup cannot await: run that code in a cell above"
            raise UsageError(msg)
        if setup is not None:
            setup.run(shown=True)
        steps = check_steps(settings, self._namespace, code.cell_name)
        progress = ProgressLine(self.shell, settings, is_shown=not (options.quiet or options.show_output))
        if code.awaits:
            return self._check_awaiting(code, steps, options, settings, progress)
        once = progress.ticking(lambda number: code.run(shown=_is_shown(number, settings, options)))
        try:
            return self._finish(drive(steps, once), options, progress)
        finally:
            progress.close()

    async def _check_awaiting(
        self, code: Cell, steps: Steps, options: Any, settings: Settings, progress: ProgressLine
    ) -> object:
        __tracebackhide__ = True
        once = progress.ticking(lambda number: code.run_async(shown=_is_shown(number, settings, options)))
        try:
            return self._finish(await drive_async(steps, once), options, progress)
        finally:
            progress.close()

    def _settings(self, options: Any) -> Settings:
        if options.sites and options.no_sites:
            msg = "--sites and --no-sites exclude each other: give one of them"
            raise UsageError(msg)
        try:
            if options.native:
                require_memray()
            return Settings(
                max_runs=self.runs if options.runs is None else options.runs,
                n_warmups=self.warmups if options.warmup is None else options.warmup,
                max_seconds=self.seconds if options.seconds is None else options.seconds,
                name=options.name,
                summaries=self.summaries,
                sites=True if options.sites else False if options.no_sites else None,
                native=options.native,
            )
        except (ValueError, MissingExtraError) as error:
            raise UsageError(str(error)) from None

    def _finish(self, finished: Finished, options: Any, progress: ProgressLine) -> object:
        """Show and store the report, then raise what the cell raised."""
        __tracebackhide__ = True
        report = LeakReport(redacted(finished.check) if options.redact else finished.check)
        try:
            publish(report, options, self._namespace, failed=finished.error is not None, show=progress.show)
            if finished.error is not None:
                raise without_own_frames(finished.error)
        finally:
            # This frame will be part of the error's traceback: without the name there is no cycle of the two.
            del finished
        compare_with_last(self, report.check, quiet=options.quiet)
        if options.fail_on_leak and report.leaked:
            raise LeakFound(str(report.verdict))
        return report if options.output else None


def _is_shown(number: int, settings: Settings, options: Any) -> bool:
    """Show the first run, be it a warm-up or measured; the others on request."""
    first = number == (0 if settings.n_warmups else 1)
    return bool(options.show_output or first)
