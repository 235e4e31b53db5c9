"""The line magic ``%whyalive``: evaluate, ask, display."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import Bool, Integer

from leaklab.asking.why import SUFFIXES, WhyAlive, answer
from leaklab.magics.expressions import evaluated, split_line
from leaklab.magics.options import output_options, parse_options, publish
from leaklab.magics.shell_magics import ShellMagics
from leaklab.render.wording import shorten

_EXPRESSION_LIMIT = 200


@magics_class
class WhyAliveMagics(ShellMagics):
    """The magic that asks why an object is alive; ``%config WhyAliveMagics.paths = 4`` sets its default."""

    paths = Integer(8, min=1, help="How many independent paths to show (-n).").tag(config=True)
    summaries = Bool(default_value=True, help="Show shapes and lengths of values.").tag(config=True)

    @magic_arguments()
    @argument("-n", "--paths", type=int, help="How many independent paths to show (default 8).")
    @output_options(SUFFIXES)
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
        options = parse_options(self.whyalive, written, SUFFIXES)
        expression = expression.rstrip(";").rstrip()
        if not expression:
            msg = "%whyalive needs an expression: %whyalive model.layers[0].weight"
            raise UsageError(msg)
        report = self._answer(expression, options)
        publish(report, options, self._namespace)
        return report if options.output else None

    def _answer(self, expression: str, options: Any) -> WhyAlive:
        __tracebackhide__ = True
        borrowed = evaluated(expression, self._namespace)
        try:
            return answer(
                borrowed,
                self._namespace,
                asked=shorten(expression, _EXPRESSION_LIMIT),
                max_paths=self.paths if options.paths is None else options.paths,
                summaries=self.summaries,
            )
        except (TypeError, ValueError) as error:
            problem = str(error)
        raise UsageError(problem)
