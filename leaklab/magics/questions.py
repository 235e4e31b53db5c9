"""The line magics ``%whyalive`` and ``%autograd``: evaluate an expression, ask about it, display the answer."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import Bool, Integer, observe

from leaklab.errors import NO_MEMORY_TO_LOOK, NotEnoughMemoryError
from leaklab.magics.options import (
    ShellMagics,
    defaults_of,
    evaluated,
    output_options,
    parse_options,
    publish,
    split_line,
    warn_of_old_option,
)
from leaklab.reports.alive import WHYALIVE_SUFFIXES, WhyAlive
from leaklab.reports.autograd import AUTOGRAD_SUFFIXES, AutogradReport
from leaklab.text import shorten

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
