"""The magic ``%leakwatch``: one line after every cell, and an alarm for one that keeps growing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

if TYPE_CHECKING:
    from leaklab.ask.watching import CellWatcher

_EVENTS = ("pre_run_cell", "post_run_cell")


@magics_class
class LeakWatchMagics(Magics):
    """The magic that watches cells; while it is off, nothing is registered."""

    def __init__(self, shell: Any = None, **kwargs: Any) -> None:
        super().__init__(shell=shell, **kwargs)
        self._watcher: CellWatcher | None = None

    @line_magic
    def leakwatch(self, line: str) -> None:
        """Say after every cell what it left behind: ``%leakwatch on``, ``off`` or ``status``.

        One line a cell: its time, how many tensors, other objects and bytes more there are than after the cell before,
        and the level of the native heap after each of the last cells.
        A cell whose executions all leave something behind, the first not counted, raises an alarm from the fourth on.
        Garbage is collected after every cell, which is most of the cost: some 0.1 s for 170,000 objects; ``status``
        tells what it was here.
        """
        words = line.split()
        actions = {"on": self._switch_on, "off": self.switch_off, "status": self._tell}
        if len(words) != 1 or words[0] not in actions:
            msg = f"%leakwatch takes one of on, off and status, not {line.strip()!r}"
            raise UsageError(msg)
        if words[0] == "off":
            print("leakwatch was not on" if self._watcher is None else "leakwatch is off")
        actions[words[0]]()

    def switch_off(self) -> None:
        """Stop watching; does nothing while it is off."""
        if self._watcher is not None:
            self._watcher = None
            for event, callback in zip(_EVENTS, (self._before_cell, self._after_cell), strict=True):
                self._events.unregister(event, callback)

    def _switch_on(self) -> None:
        if self._watcher is not None:
            print(self._watcher.status())
            return
        from leaklab.ask.watching import CellWatcher
        from leaklab.measure.heap_snapshot import notebook_context
        from leaklab.render.base import in_alarm

        shell: Any = self.shell
        in_notebook = getattr(shell, "kernel", None) is not None
        self._watcher = CellWatcher(
            lambda: notebook_context(shell.user_ns, shell).records,
            _write,
            encoding=_encoding,
            alarmed=lambda words: in_alarm(words, in_notebook=in_notebook),
        )
        self._watcher.start_cell()
        for event, callback in zip(_EVENTS, (self._before_cell, self._after_cell), strict=True):
            self._events.register(event, callback)
        print("leakwatch is on: one line after every cell; %leakwatch off ends it")

    def _tell(self) -> None:
        print("leakwatch is off" if self._watcher is None else self._watcher.status())

    @property
    def _events(self) -> Any:
        shell: Any = self.shell
        return shell.events

    def _before_cell(self, _info: Any) -> None:
        if self._watcher is not None:
            self._watcher.start_cell()

    def _after_cell(self, result: Any) -> None:
        # The result has the cell's value: it is not kept, not even in a name of this frame.
        source, number = result.info.raw_cell or "", result.execution_count
        del result
        if self._watcher is not None and not source.lstrip().startswith("%leakwatch"):
            # The shell has counted on by now, or not yet: that depends on its version. A cell without history has no
            # number of its own.
            shell: Any = self.shell
            self._watcher.end_cell(shell.execution_count if number is None else number, source)


def _encoding() -> str | None:
    return getattr(sys.stdout, "encoding", None)


def _write(text: str) -> None:
    sys.stdout.write(text)  # asked anew each time: a cell may have its own
