"""Keep the reports of this notebook, export them as one, and read exported reports back.

A page becomes a PDF by a Chromium that is installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from leaklab.errors import ReportError
from leaklab.files import FilePath, write_bytes
from leaklab.model import Check
from leaklab.model.check import NOTEBOOK_SCHEMA, KeptCheck, KeptView, NotebookChecks
from leaklab.render.base import Forms, Report, check_target, known_suffix, read_bytes
from leaklab.render.json import NOTEBOOK_FORMAT, notebook_fields, read_record, redacted, tally_words
from leaklab.render.templates import without_buttons
from leaklab.reports.check import LeakReport
from leaklab.reports.comparison import NotebookComparison, compare_notebooks
from leaklab.reports.notebook_export import render_collection, render_markdown

_BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_PDF_SECONDS = 60.0  # measured on two shared cores: 2 s for a page of 250 KB, 10 s for one of 2.6 MB


def print_pdf(page: str, path: FilePath, *, seconds: float = _PDF_SECONDS) -> None:
    """Write *page*, an HTML page that needs no network, to *path* as PDF.

    The browser gets a profile of its own, which is gone afterwards, and no network; ``CHROMIUM`` in the environment
    names a program to use instead of those that are looked for.

    Raises:
        ReportError: if there is no such browser, it fails, or it takes longer than *seconds*.
    """
    browser = require_browser()
    with tempfile.TemporaryDirectory(prefix="leaklab-pdf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        source, printed = folder / "page.html", folder / "page.pdf"
        source.write_bytes(page.encode("utf-8", "backslashreplace"))
        _run(_command(browser, source, printed), folder, seconds)
        if not printed.is_file():
            msg = f"{browser} printed no PDF; save the report as .html and print that in a browser"
            raise ReportError(msg)
        write_bytes(path, printed.read_bytes())


def require_browser() -> str:
    """Return the program that prints.

    Raises:
        ReportError: if none is installed.
    """
    for name in filter(None, (os.environ.get("CHROMIUM"), *_BROWSERS)):
        if found := shutil.which(name):
            return found
    msg = (
        "a PDF needs Chromium or Chrome, and none was found: install one, name it in the environment variable CHROMIUM,"
        " or save the report as .html and print that in a browser"
    )
    raise ReportError(msg)


def _command(browser: str, source: Path, printed: Path) -> list[str]:
    options = [
        "--headless",
        "--disable-gpu",
        "--disable-dev-shm-usage",  # containers often have 64 MB of it, too little for a page of plots
        "--no-first-run",
        "--disable-extensions",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={source.parent / 'profile'}",
        "--no-pdf-header-footer",
        f"--print-to-pdf={printed}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--no-sandbox")  # root cannot have one, and the page is leaklab's own
    return [browser, *options, source.as_uri()]


def _run(command: list[str], folder: Path, seconds: float) -> None:
    process = subprocess.Popen(  # noqa: S603 - a browser found by name, on a page that leaklab wrote
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that it can be ended together with all that it started
    )
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        msg = f"{command[0]} took more than {seconds:g} seconds to print; save the report as .html instead"
        raise ReportError(msg) from error
    except OSError as error:
        msg = f"{command[0]} cannot be started: {error}; save the report as .html instead"
        raise ReportError(msg) from error
    finally:
        if process.poll() is None:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()


HOLDER = "LeakReportMagics"
"""Name of the registered magics that hold the journal: it lives and dies with the loaded extension."""
MAX_CHECKS, MAX_OTHERS = 200, 30
"""A record takes some 10 KB, other reports more: more of them would weigh on the notebook."""
_MARKUP_LIMIT = 300_000  # characters of one other report; a graph in it takes most of them


class Journal:
    """The reports that the magics of one notebook have shown, oldest first; the oldest are forgotten at the limit.

    It holds reports, which hold nothing of the user's.
    """

    def __init__(self) -> None:
        self._checks: list[tuple[LeakReport, str]] = []
        self._others: list[tuple[object, str]] = []
        self._n_forgotten = 0

    def note(self, report: object, place: str) -> None:
        """Keep what *report*, which a magic has just made, says.

        Args:
            report: A `LeakReport`, or any other report of leaklab, which is kept as it shows itself.
            place: Where it was made.
        """
        if type(report) is LeakReport:
            self._checks.append((report, place))
        else:
            self._others.append((report, place))
        self._n_forgotten += _shorten(self._checks, MAX_CHECKS) + _shorten(self._others, MAX_OTHERS)

    @property
    def last(self) -> Check | None:
        """The record of the last check, as far as it is known; None before the first."""
        return self._checks[-1][0].so_far if self._checks else None

    def collect(self, namespace: Mapping[str, Any], *, title: str = "", redact: bool = False) -> NotebookChecks:
        """Return all that was noted, and the reports of `leaklab.leakcheck` that variables in *namespace* hold."""
        noted = [KeptCheck(report.record, place) for report, place in self._checks]
        known = {id(entry.check) for entry in noted}
        # Copied first: another thread may make a variable meanwhile. `type` runs nobody's code, `isinstance` would.
        for name, value in list(namespace.items()):
            if type(value) is LeakReport and id(value.check) not in known:
                known.add(id(value.check))
                noted.append(KeptCheck(value.check, f"variable {name}"))
        views = tuple(_viewed(report, place) for report, place in self._others)
        collection = NotebookChecks(title, tuple(noted), views, tuple(self._notes()))
        return redacted_checks(collection) if redact else collection

    def _notes(self) -> Iterator[str]:
        if self._n_forgotten:
            kept = f"{MAX_CHECKS} checks and {MAX_OTHERS} other reports are kept"
            words = (
                "oldest report of this notebook is" if self._n_forgotten == 1 else "oldest reports of this notebook are"
            )
            yield f"the {self._n_forgotten:,} {words} missing, because only {kept}"


def journal_of(shell: Any) -> Journal | None:
    """Return the journal of the notebook; None if leaklab's magics are not loaded there."""
    journal = getattr(shell.magics_manager.registry.get(HOLDER), "journal", None)
    return journal if isinstance(journal, Journal) else None


def redacted_checks(collection: NotebookChecks) -> NotebookChecks:
    """Return *collection* with every check blanked by `redacted`; the other reports are left out, and that is said."""
    if collection.redacted:
        return collection
    notes = [*collection.notes, "summaries, keys, strings and folders are hidden (--redact)"]
    if collection.views:
        n_views = len(collection.views)
        words = "report of another magic is" if n_views == 1 else "reports of other magics are"
        notes.append(f"{n_views:,} {words} left out: --redact knows only checks")
    checks = tuple(replace(noted, check=redacted(noted.check)) for noted in collection.checks)
    return replace(collection, checks=checks, views=(), notes=tuple(notes), redacted=True)


def _shorten(entries: list[Any], limit: int) -> int:
    """Drop the oldest *entries* above *limit*; return how many."""
    n_too_many = max(len(entries) - limit, 0)
    del entries[:n_too_many]
    return n_too_many


def _viewed(report: object, place: str) -> KeptView:
    bundle: dict[str, str] = {}
    show = getattr(report, "_repr_mimebundle_", None)
    if show is not None:
        bundle = show()
    markup = without_buttons(bundle.get("text/html", ""))
    return KeptView(
        title=repr(report).strip("<>"),
        place=place,
        text=bundle.get("text/plain") or str(report),
        markup=markup if len(markup) <= _MARKUP_LIMIT else "",
    )


def _render_summary(notebook: NotebookChecks) -> str:
    """Return one line for each check."""
    lines = [tally_words(notebook)]
    for number, noted in enumerate(notebook.checks, 1):
        name = noted.check.settings.name
        lines.append(f"  {number}. {f'{name}: ' if name else ''}{noted.check.verdict}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, repr=False)
class NotebookReport(Report[NotebookChecks]):
    """All checks of a notebook, as ``%leakreport`` or ``leaklab run`` exported them.

    Attributes:
        record: The checks, with every figure.
    """

    _forms: ClassVar = Forms(
        kind=NotebookChecks,
        format=NOTEBOOK_FORMAT,
        schema=NOTEBOOK_SCHEMA,
        text=_render_summary,
        html=lambda _: "",  # one line for each check is all there is to show: `save` draws them
        page=render_collection,
        more={".md": render_markdown},
        fields=notebook_fields,
    )
    record: NotebookChecks

    @property
    def collection(self) -> NotebookChecks:
        """The record, by its older name."""
        return self.record

    @property
    def reports(self) -> tuple[LeakReport, ...]:
        """The checks, in the order in which they were made."""
        return tuple(LeakReport(noted.check) for noted in self.record.checks)

    @property
    def leaked(self) -> bool:
        """Whether any of the checks found a leak."""
        return any(report.leaked for report in self.reports)

    def compare(self, other: NotebookReport | LeakReport) -> NotebookComparison:
        """Return what became of these checks in *other*, made after the repair."""
        return compare_notebooks(self.record, other.record)

    def save(self, path: FilePath) -> None:
        """Write all checks to *path*: ``.html`` one page, ``.md``, ``.json`` the record, ``.txt``, ``.pdf``.

        Raises:
            ReportError: for any other suffix, a file that cannot be written, or a PDF where no Chromium is installed.
        """
        if known_suffix(path, SUFFIXES) == ".pdf":
            require_browser()  # before the drawing, which may take half a minute
            print_pdf(render_collection(self.record, is_open=True), path)
        else:
            Report.save(self, path)

    def __repr__(self) -> str:
        return f"<NotebookReport {tally_words(self.record)}>"


SUFFIXES = (*NotebookReport._forms.suffixes, ".pdf")  # noqa: SLF001
"""Of the files that all checks of a notebook can be saved to."""


def load_report(path: FilePath) -> LeakReport | NotebookReport:
    """Return the report in a file that leaklab wrote, ``.html`` or ``.json``.

    Args:
        path: A file of ``%leakreport``, ``leaklab run``, ``report.to_html`` or ``report.to_json``.

    Returns:
        A `LeakReport` for a file of one check, a `NotebookReport` for a file of a whole notebook.

    Raises:
        ReportError: if the file cannot be read, or holds no report that this version can read.
    """
    record = read_record(read_bytes(path))
    return NotebookReport(record) if isinstance(record, NotebookChecks) else LeakReport(record)


def check_export_target(path: FilePath) -> None:
    """Find out before a long run whether `NotebookReport.save` could write to *path*; writes nothing.

    Raises:
        ReportError: if the suffix is unknown, there is no such folder, or a PDF cannot be made here.
    """
    check_target(path, SUFFIXES)
    if known_suffix(path, SUFFIXES) == ".pdf":
        require_browser()
