"""The line magic ``%leakreport``: all checks of this notebook in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from IPython import get_ipython
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from leaklab.errors import ReportError
from leaklab.magics.options import unquoted
from leaklab.render.json import tally_words
from leaklab.reports.notebook import Journal, NotebookReport, check_export_target, journal_of


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
        options = parse_argstring(self.leakreport, line)
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
