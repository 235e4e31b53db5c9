"""Keep the reports of a process in a folder: readable at any time, of bounded size."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from leaklab.errors import LeaklabError, ReportError
from leaklab.files import FilePath, replacing
from leaklab.reports.process import ProcessReport

_MOST_SNAPSHOT_BYTES = 256 << 20
_PICKLE_PROTOCOL = 4  # torch's own viewer in the browser refuses 5
_SUFFIXES = (".txt", ".html")


class ReportFiles:
    """The files of one process: a text and a page, each written as a whole; a later report replaces them.

    Args:
        folder: Where they are written; made if it is missing.
        prefix: What their names begin with.
        keep: Of so many processes the files stay in the folder, those of this one included; older ones are removed.

    Raises:
        ReportError: if the folder cannot be made.
        ValueError: if *keep* is less than 1.
    """

    def __init__(self, folder: FilePath, prefix: str, keep: int) -> None:
        if keep < 1:
            msg = f"keep must be 1 or more, not {keep}"
            raise ValueError(msg)
        self.folder = Path(folder).absolute()  # the program may change its folder later
        self._prefix, self._keep = prefix, keep
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or error
            msg = f"cannot make the folder {os.fspath(folder)!r}: {reason}; give one that can be written"
            raise ReportError(msg) from error
        self._began = time.strftime("%Y%m%dT%H%M%S", time.gmtime(psutil.Process().create_time()))

    @property
    def text_file(self) -> Path:
        """The text; a process that was forked off has its own."""
        return self._file(".txt")

    def _file(self, ending: str) -> Path:
        return self.folder / f"{self._prefix}_{self._began}_{os.getpid()}{ending}"

    def write(self, report: ProcessReport) -> None:
        """Write *report*; where there is no memory left for the page, the text stands alone.

        Raises:
            ReportError: if the text cannot be written.
        """
        report.save(self.text_file)
        with suppress(MemoryError, ReportError):
            report.save(self._file(".html"))
        self._remove_older()

    def write_snapshot(self, take: Callable[[], dict[str, Any]]) -> tuple[str, str]:
        """Write the memory snapshot that *take* returns; return the name of its file, and why there is none."""
        file = self._file("_cuda.pickle")
        try:
            with replacing(file) as target:
                pickle.dump(take(), _Limited(target), protocol=_PICKLE_PROTOCOL)
        except (LeaklabError, OSError, RuntimeError, MemoryError) as error:
            return "", f"there is no snapshot of the accelerator: {error}"
        return file.name, ""

    def _remove_older(self) -> None:
        """Remove the files of processes before the latest; their names say when each of these began."""
        with suppress(OSError):
            names = {file.name for file in self.folder.glob(f"{self._prefix}_*") if file.is_file()}
            stems = sorted({"_".join(name.split(".")[0].removesuffix("_cuda").rsplit("_", 2)[1:]) for name in names})
            for stem in stems[: -self._keep]:
                for ending in (*_SUFFIXES, "_cuda.pickle"):
                    (self.folder / f"{self._prefix}_{stem}{ending}").unlink(missing_ok=True)


class _Limited:
    """A file that takes so many bytes and no more: the history of a long run may be many gigabytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, _MOST_SNAPSHOT_BYTES

    def write(self, data: bytes) -> int:
        """Write *data*.

        Raises:
            ReportError: if the file would get too large.
        """
        self._left -= memoryview(data).nbytes
        if self._left < 0:
            msg = f"it would be larger than {_MOST_SNAPSHOT_BYTES >> 20} MiB; record fewer events (max_entries)"
            raise ReportError(msg)
        return self._file.write(data)
