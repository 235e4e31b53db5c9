"""Let IPython keep of a run's dropped output what it would keep if the cell were run again.

From version 9 on IPython remembers what every cell prints, and what it displays where no kernel does that. The check
drops the output of most runs: without this, a cell whose output fills the memory would look clean.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from IPython.core import history
from IPython.utils.capture import capture_output

from leaklab.check.ranking import BOOKKEEPING_BYTES
from leaklab.runtime.objects import is_exactly

_HistoryOutput: Any = getattr(history, "HistoryOutput", None)


class OutputRecords:
    """What IPython keeps of the runs whose output is dropped; `forget` takes it away again.

    Args:
        shell: The user's shell.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    @contextmanager
    def captured(self, number: int) -> Iterator[None]:
        """Drop what is printed and displayed inside, but for IPython's records of it where these are large.

        Args:
            number: Of the run. Each has records of its own, as each execution of the cell would.
        """
        records, publisher = self._records, self._shell.display_pub
        keeps_displays = getattr(publisher, "store_display_history", True)  # a kernel's has the switch, off by default
        with capture_output():
            patched: list[Any] = []
            if records is not None and hasattr(self._shell, "_tee"):
                for stream, kind in ((sys.stdout, "out_stream"), (sys.stderr, "err_stream")):
                    stream.write = _printing(stream.write, records, -1 - number, kind)  # type: ignore[method-assign]
                    patched.append(stream)
            if records is not None and keeps_displays:
                capturing = self._shell.display_pub
                capturing.publish = _displaying(capturing.publish, records, -1 - number)
                patched.append(capturing)
            try:
                yield
            finally:
                for thing in patched:  # each refers to itself by its new function
                    vars(thing).pop("write", None)
                    vars(thing).pop("publish", None)
                if records is not None and _length(records.get(-1 - number, ())) < BOOKKEEPING_BYTES:
                    records.pop(-1 - number, None)

    def forget(self) -> None:
        """Take away the records of all runs whose output was dropped."""
        records = self._records
        for key in [] if records is None else [key for key in list(records) if key < 0]:
            del records[key]

    @property
    def _records(self) -> Any:
        """What IPython keeps, by the number of the execution; None where it keeps nothing. Ours are below 0."""
        return None if _HistoryOutput is None else getattr(self._shell.history_manager, "outputs", None)


def _length(records: Iterable[Any]) -> int:
    """Return how many characters and bytes *records* keep, but for nested data."""
    found = (text for record in records for value in record.bundle.values() for text in _texts(value))
    return sum(map(len, found))


def _texts(value: object) -> Sequence[str | bytes]:
    if type(value) is list:
        return value
    return (value,) if is_exactly(value, (str, bytes)) else ()  # type: ignore[return-value]  # the type was asked


def _printing(write: Callable[..., Any], records: Any, key: int, kind: str) -> Callable[..., Any]:
    """Return *write*, with which IPython also keeps the text; as in its own `InteractiveShell._tee`."""

    def write_and_keep(text: str, *args: Any) -> Any:
        result = write(text, *args)
        if text:
            of_run = records.setdefault(key, [])
            if not of_run or of_run[-1].output_type != kind:
                of_run.append(_HistoryOutput(output_type=kind, bundle={"stream": []}))
            of_run[-1].bundle["stream"].append(text)
        return result

    return write_and_keep


def _displaying(publish: Callable[..., Any], records: Any, key: int) -> Callable[..., Any]:
    """Return *publish*, with which IPython also keeps what is shown."""

    def publish_and_keep(data: Any, *args: Any, **options: Any) -> Any:
        records.setdefault(key, []).append(_HistoryOutput(output_type="display_data", bundle=data))
        return publish(data, *args, **options)

    return publish_and_keep
