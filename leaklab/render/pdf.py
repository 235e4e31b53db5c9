"""Print a page as PDF, by a Chromium that is installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from leaklab.errors import ReportError
from leaklab.files import FilePath, write_bytes

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
