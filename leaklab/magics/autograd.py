"""The line magic ``%autograd``: what the graph behind an expression keeps alive."""

from __future__ import annotations

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import magic_arguments

from leaklab.asking.retaining import SUFFIXES, AutogradReport, autograd
from leaklab.magics.expressions import evaluated, split_line
from leaklab.magics.options import output_options, parse_options, publish
from leaklab.magics.shell_magics import ShellMagics
from leaklab.render.wording import shorten

_LIMIT = 200


@magics_class
class AutogradMagics(ShellMagics):
    """The magic that looks into autograd graphs."""

    @magic_arguments()
    @output_options(SUFFIXES)
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
        options = parse_options(self.autograd, written, SUFFIXES)
        report = self._report(expression.rstrip(";").rstrip())
        publish(report, options, self._namespace)
        return report if options.output else None

    def _report(self, expression: str) -> AutogradReport:
        __tracebackhide__ = True
        namespace = self._namespace
        values = evaluated(expression, namespace) if expression else []
        try:
            if not expression:
                return autograd(namespace=namespace)
            return autograd(values.pop(), name=shorten(expression, _LIMIT), namespace=namespace)
        except ValueError as error:
            problem = str(error)
        # Raised out here: inside, it would carry the first error, whose frames hold what the expression made.
        raise UsageError(problem)
