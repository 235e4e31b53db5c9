"""The cell magic ``%%leakcheck``: parse, call the pipeline, display."""

from __future__ import annotations

import ast
import keyword
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display
from traitlets import Bool, Float, Integer

from leaklab.cells import Cell, awaits
from leaklab.errors import LeakFound, ReportError
from leaklab.model import MIN_RUNS, Settings
from leaklab.pipeline import Steps, check_steps
from leaklab.report import LeakReport, check_target
from leaklab.running import Finished, drive, drive_async, without_own_frames


def unquoted(text: str) -> str:
    """Take off the quotes that the shell's splitting leaves around an option's value."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


@magics_class
class LeakLab(Magics):
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
    @argument("-q", "--quiet", action="store_true", help="Display nothing.")
    @argument("-o", "--output", action="store_true", help="Return the report as the value of the cell.")
    @argument("-v", "--variable", type=unquoted, default="", help="Store the report in this variable.")
    @argument("-T", "--save", type=unquoted, default="", help="Save the report: FILE.html, FILE.json or FILE.csv.")
    @argument("--show-output", action="store_true", help="Show the output of every run, not only of the first.")
    @argument("--fail-on-leak", action="store_true", help="Raise LeakFound after the display if the cell leaks.")
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
        options = self._parse(line)
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
        steps = check_steps(settings, self._namespace)
        if code.awaits:
            return self._check_awaiting(code, steps, options, settings)
        return self._finish(drive(steps, lambda number: code.run(shown=_is_shown(number, settings, options))), options)

    async def _check_awaiting(self, code: Cell, steps: Steps, options: Any, settings: Settings) -> object:
        __tracebackhide__ = True
        return self._finish(
            await drive_async(steps, lambda number: code.run_async(shown=_is_shown(number, settings, options))), options
        )

    @property
    def _namespace(self) -> dict[str, Any]:
        shell: Any = self.shell
        namespace: dict[str, Any] = shell.user_ns
        return namespace

    def _parse(self, line: str) -> Any:
        options = parse_argstring(self.leakcheck, line)
        if options.variable and (not options.variable.isidentifier() or keyword.iskeyword(options.variable)):
            msg = f"-v needs the name of a variable, not {options.variable!r}"
            raise UsageError(msg)
        if options.save:
            try:
                check_target(Path(options.save))
            except ReportError as error:
                raise UsageError(str(error)) from None
        return options

    def _settings(self, options: Any) -> Settings:
        try:
            return Settings(
                max_runs=self.runs if options.runs is None else options.runs,
                n_warmups=self.warmups if options.warmup is None else options.warmup,
                max_seconds=self.seconds if options.seconds is None else options.seconds,
                name=options.name,
                summaries=self.summaries,
            )
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _finish(self, finished: Finished, options: Any) -> object:
        """Show and store the report, then raise what the cell raised."""
        __tracebackhide__ = True
        report = LeakReport(finished.check)
        try:
            self._publish(report, options, failed=finished.error is not None)
            if finished.error is not None:
                raise without_own_frames(finished.error)
        finally:
            # This frame will be part of the error's traceback: without the name there is no cycle of the two.
            del finished
        if options.fail_on_leak and report.leaked:
            raise LeakFound(str(report.verdict))
        return report if options.output else None

    def _publish(self, report: LeakReport, options: Any, *, failed: bool) -> None:
        """Store, display and save the report as the options say."""
        __tracebackhide__ = True
        if options.variable:
            self._namespace[options.variable] = report
        if not options.quiet:
            display(report)
        if not options.save:
            return
        try:
            report.save(options.save)
        except ReportError as error:
            if not failed:
                raise UsageError(str(error)) from None
            print(error, file=sys.stderr)  # the cell's own error follows
        else:
            if not options.quiet:
                print(f"saved to {Path(options.save).resolve()}")


def _is_shown(number: int, settings: Settings, options: Any) -> bool:
    """Show the first run, be it a warm-up or measured; the others on request."""
    first = number == (0 if settings.n_warmups else 1)
    return bool(options.show_output or first)


class AwaitRewriter:
    """Put ``await`` before the call of ``%%leakcheck`` where the cell below it awaits.

    A magic cannot wait for a running event loop; the shell can, if the cell that it runs is a coroutine.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        """Rewrite the transformed *lines* of a cell."""
        text = "".join(lines)
        if not text.startswith("get_ipython().run_cell_magic('leakcheck'"):
            return lines
        return ["await " + text] if self._awaits(text) else lines

    def _awaits(self, text: str) -> bool:
        try:
            call = ast.parse(text).body[0].value  # type: ignore[attr-defined]  # the shell wrote one expression
            return awaits(self._shell.transform_cell(ast.literal_eval(call.args[2])))
        except (SyntaxError, ValueError, AttributeError, IndexError):
            return False


def load(shell: Any) -> None:
    """Register the magics; a second call replaces those of the first."""
    unload(shell)
    magics = LeakLab(shell=shell)
    shell.register_magics(magics)
    shell.input_transformers_post.append(AwaitRewriter(shell))


def unload(shell: Any) -> None:
    """Take back everything that `load` did."""
    registry = shell.magics_manager.registry.pop(LeakLab.__name__, None)
    if registry is not None and registry in shell.configurables:
        shell.configurables.remove(registry)
    for kind in ("line", "cell"):
        functions: dict[str, Callable[..., object]] = shell.magics_manager.magics[kind]
        for name in [n for n, f in functions.items() if isinstance(getattr(f, "__self__", None), LeakLab)]:
            del functions[name]
    post = shell.input_transformers_post
    post[:] = [transform for transform in post if not isinstance(transform, AwaitRewriter)]
