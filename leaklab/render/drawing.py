"""Draw DOT text as SVG with the first Graphviz that works here, always in a process of its own.

In the process of the notebook a layout would stop all other threads, and neither Ctrl-C nor a time limit could end it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from leaklab.errors import ReportError
from leaklab.files import FilePath
from leaklab.render.base import Displayed, save_by_suffix
from leaklab.render.templates import render

_SIMPLER = "splines=line nslimit=1 nslimit1=1 mclimit=0.2"
"""Straight edges and a hasty layout: 0.1 seconds for a graph that else takes 9."""
_FIRST_SHARE = 0.6  # of the time limit, for the beautiful layout; the rest is left for the simpler one
_MAX_SVG_BYTES = 4_000_000
_PYGRAPHVIZ = """
import sys
sys.path += sys.argv[1:]
import pygraphviz
source = sys.stdin.buffer.read().decode("utf-8")
sys.stdout.buffer.write(pygraphviz.AGraph(string=source).draw(format="svg", prog="dot"))
"""


def draw_svg(dot_source: str, *, seconds: float = 10) -> str | None:
    """Draw *dot_source* with ``dot``, else ``graphviz-pure``, else pygraphviz, whichever is installed and works.

    A layout that takes too long is tried once more with straight edges.

    Returns:
        The ``<svg>`` element without prologue, or None where nothing here can draw it in the time given. Never raises.
    """
    deadline = time.monotonic() + seconds
    for find_command in _LADDER:
        command = find_command()
        if command is None:
            continue
        try:
            svg = _run(command, dot_source, seconds=(deadline - time.monotonic()) * _FIRST_SHARE)
        except TimeoutError:
            # Every Graphviz has the same layout: what is too much for one is too much for the next.
            with contextlib.suppress(OSError):
                return _run(command, _simplified(dot_source), seconds=deadline - time.monotonic())
            return None
        except OSError:  # the program cannot be started, or there is no room for its files
            continue
        if svg is not None:
            return svg
    return None


def _program(name: str) -> Callable[[], list[str] | None]:
    """Return a finder of the command *name* on the PATH, or beside the interpreter: kernels often run without PATH."""

    def find() -> list[str] | None:
        folders = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
        found = shutil.which(name, path=os.pathsep.join(folders))
        return None if found is None else [found, "-Tsvg"]

    return find


def _pygraphviz() -> list[str] | None:
    """Return the command that draws by pygraphviz in a fresh interpreter, if it is installed.

    ``-I`` shuts out the working folder and its possible ``pygraphviz.py``; the user's own site-packages, which it
    shuts out too, are let in again.
    """
    if not sys.executable or importlib.util.find_spec("pygraphviz") is None:
        return None
    user_site = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [sys.executable, "-I", "-c", _PYGRAPHVIZ, *user_site]


_LADDER: tuple[Callable[[], list[str] | None], ...] = (_program("dot"), _program("graphviz-pure"), _pygraphviz)


def _simplified(dot_source: str) -> str:
    """Return *dot_source* with the attributes of a fast layout; set last, they hold."""
    head, brace, tail = dot_source.rpartition("}")
    return f"{head}\ngraph [{_SIMPLER}]\n{brace}{tail}" if brace else dot_source


def _run(command: list[str], dot_source: str, *, seconds: float) -> str | None:
    """Return what *command* makes of *dot_source*, None if it fails.

    Files instead of pipes: a helper that the command starts and leaves behind would hold a pipe open for ever.

    Raises:
        TimeoutError: if it takes longer than *seconds*; the process is dead by then.
        OSError: if it cannot be started, or no temporary file can be made.
    """
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as drawing:
        source.write(dot_source.encode("utf-8", "backslashreplace"))
        source.seek(0)
        process = subprocess.Popen(  # noqa: S603 - the program is found by name, the DOT text is only its input
            command,
            stdin=source,
            stdout=drawing,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that it can be ended together with all that it started
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        try:
            returncode = process.wait(timeout=max(seconds, 0.0))
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        finally:
            _end(process)
        drawing.seek(0)
        text = drawing.read(_MAX_SVG_BYTES).decode("utf-8", "replace")
    start, end = text.find("<svg"), text.rfind("</svg>")
    return text[start : end + len("</svg>")] if returncode == 0 and 0 <= start < end else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End *process* and its children; also after Ctrl-C."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()


class Picture(Displayed):
    """A graph to look at. It holds nothing but a record, and is drawn anew each time it is asked for."""

    __slots__ = ()

    @property
    @abstractmethod
    def dot(self) -> str:
        """The graph as DOT text."""

    @property
    @abstractmethod
    def alt(self) -> str:
        """The graph in one line, for those who cannot see it."""

    @property
    def svg(self) -> str | None:
        """The graph as an ``<svg>`` element; None where no Graphviz is installed or it takes too long."""
        return draw_svg(self.dot)

    @property
    def markup(self) -> Markup:
        """The graph as HTML: the picture, or the text where nothing here can draw."""
        svg = self.svg
        return render("drawing.html.j2", svg=svg, text=str(self) if svg is None else "", alt=self.alt)

    def save(self, path: FilePath) -> None:
        """Write the graph to *path*: ``.svg`` the picture, ``.dot`` or ``.gv`` its source, ``.txt`` as text.

        Raises:
            ReportError: for any other suffix, a file that cannot be written, or a picture that nothing here can draw.
        """
        source = lambda: self.dot  # noqa: E731 - drawn only if it is asked for
        save_by_suffix(path, {".svg": self.svg_file, ".dot": source, ".gv": source, ".txt": lambda: f"{self}\n"})

    def svg_file(self) -> str:
        """Return what a file with the picture holds.

        Raises:
            ReportError: if nothing here can draw it.
        """
        svg = self.svg
        if svg is None:
            msg = "nothing here can draw the graph: `pip install pygraphviz`, or save it as .dot or .txt"
            raise ReportError(msg)
        return f"{svg}\n"

    def _fragment(self) -> str:
        return self.markup
