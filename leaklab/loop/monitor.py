"""Watch a loop that runs once: a counter at every step, levels of memory now and then, checks of its stretches.

Nothing of the user's is held between two steps, and nothing is left behind by the watch itself: levels lie in one
table, states and checks are few and plain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from leaklab.decide.loop_states import LoopStates, per_step
from leaklab.errors import CheckRunningError, LeakFound
from leaklab.loop import running
from leaklab.loop.levels import LevelWatch, Schedule, free_memory, refuse_wrong
from leaklab.loop.own_cost import OwnCost
from leaklab.loop.stretch import LoopStretch, Roots, collect_before_checks, left_by_all, not_clean, without_their_memory
from leaklab.measure.cheap_counts import native_heap_bytes
from leaklab.measure.gauges import accelerator_bytes, rss_bytes
from leaklab.measure.level_history import count_tensors
from leaklab.model import Check, Leak
from leaklab.model.loop import LEVEL, Levels, LoopState, MonitorRecord, MonitorStatus, StateChange, StretchCheck
from leaklab.ranks.agreement import LoopSteps
from leaklab.reports.loop import MonitorReport
from leaklab.runtime.gc_control import user_has_frozen
from leaklab.strip.showing import MonitorOutput

if TYPE_CHECKING:
    from typing_extensions import Self

Item = TypeVar("Item")
_MOST_CHANGES, _MOST_CHECKS, _MOST_NOTES = 200, 8, 50
_END = "the end of the loop"
_LONGEST_PAUSE = 12
"""Collections of the whole heap that the longest pause takes: the one in which what grows is explained."""


class Monitor:
    """Watches one loop; `leaklab.monitor` makes it.

    Used as a context manager around the loop, with a call of `step` at the end of each of its steps; or by `start` and
    `stop`, which callbacks of a framework call. Between two steps it holds nothing of the user's, except that a check
    of a stretch refers to *roots* until the stretch ends. What the watch itself raises does not reach the loop: it ends
    the check and becomes a note.

    Args:
        name: What to call the loop.
        total_steps: Steps of the whole loop; may be set later. None if nobody knows.
        namespace: The variables among which holders are looked for first.
        roots: Objects, by the names they shall have in what is reported; held weakly. They replace *namespace*.
        overhead: The share of the loop's time that watching may take in the long run.
        first_step: The first check begins after so many steps: until then the loop warms up. None: after ten steps
            and five seconds, or after 200 steps.
        not_before: No check begins in the first so many seconds.
        on_change: Called with each `StateChange`; what it raises ends the loop.
        fail: Whether `step` raises `LeakFound` when a leak is certain and matters.
        quiet: Whether nothing is printed, and no strip shown.
        group: The ranks that run this loop, a ``torch.distributed.ProcessGroup`` or True; they look at the same steps.
        group_timeout: So many seconds a rank waits for the others; then it goes on alone.

    Raises:
        TypeError: if an argument is of the wrong type, or a root cannot be referred to weakly.
        ValueError: if a number is out of range.
    """

    def __init__(
        self,
        name: str = "",
        *,
        total_steps: int | None = None,
        namespace: dict[str, Any] | None = None,
        roots: Mapping[str, object] | None = None,
        overhead: float = 0.01,
        first_step: int | None = None,
        not_before: float = 0.0,
        on_change: Callable[[StateChange], object] | None = None,
        fail: bool = False,
        quiet: bool = False,
        group: Any = None,
        group_timeout: float = 300.0,
    ) -> None:
        refuse_wrong(name, total_steps=total_steps, overhead=overhead, first_step=first_step)
        self.name = name
        self.total_steps = total_steps
        self.fail = fail
        self.quiet = quiet
        self.on_change = on_change
        self._roots = Roots(namespace, roots)
        self._schedule = Schedule(overhead, first_step, not_before)
        self._group = None if group is None or group is False else (group, group_timeout)
        self._together: LoopSteps | None = None
        self._output = MonitorOutput(name)
        self._states = LoopStates()
        self._watch = LevelWatch(self._states)
        self._stretch: LoopStretch | None = None
        self._own = OwnCost()
        self._changes: list[StateChange] = []
        self._checks: list[StretchCheck] = []
        self._notes: list[str] = []
        self._step = 0
        self._next = 0
        self._started = self._ended = 0.0
        self._longest = self._own_seconds = 0.0
        self._failure = ""
        self._n_checks = 0
        self._n_tensors: int | None = None
        self._is_running = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del error, traceback  # they keep the frames of the loop
        self.stop("" if kind is None else kind.__name__)

    def start(self) -> None:
        """Begin to watch.

        Raises:
            RuntimeError: if the monitor has been started before.
            RankError: if there is no such *group*, or one of its ranks does not start its monitor in time.
        """
        if self._started:
            msg = f"{self!r} has been started before: make another one for another loop"
            raise RuntimeError(msg)
        self._schedule.begin(self.total_steps)
        if self._group is not None:
            self._together = LoopSteps(*self._group, max(self._schedule.next_check, 1), self._note)
        self._started = time.perf_counter()
        self._is_running = True
        self._watch.history.note(0, 0.0)
        self._next = 1
        running.begin(self)
        if not self.quiet:
            self._output.show(self)

    def stop(self, failure: str = "") -> None:
        """End the watch; a check under way ends with what it has found. Does nothing for a monitor that is stopped.

        Args:
            failure: Name of what ended the loop before its time; empty if it ended by itself.
        """
        if not self._is_running:
            return
        self._is_running = False
        self._next = 0  # a later step is to be told
        self._failure = failure
        if self._together is not None:
            self._together.leave(failure)
        with running.room_for_last_words(failure):
            try:
                if failure in ("SystemExit", "GeneratorExit"):
                    self._drop_stretch()
                else:
                    self._end_stretch(failure or _END)
                    self._look_last()
            finally:
                self._drop_stretch()
                self._ended = time.perf_counter()
                running.end(self, failure)
                self._output.end()

    def _look_last(self) -> None:
        """Read the levels once more, and tell what they say at the end."""
        try:
            self._read_levels()
            changes = self._judge_levels()
        except Exception as error:  # noqa: BLE001 - whatever it is: the error of the loop, if any, must come through
            self._note(f"the levels at the end could not be judged: {type(error).__name__}: {error}")
            return
        self._tell(changes, may_raise=False)

    def step(self, n_steps: int = 1) -> None:
        """Note that *n_steps* more steps of the loop were made; call it at the end of each.

        Raises:
            RuntimeError: if the monitor is not running.
            LeakFound: if *fail* is set, and a leak is certain and matters.
        """
        self._step += n_steps
        if self._step >= self._next:
            self._attend()

    def begin_again(self) -> None:
        """Note that the next step is of another loop: a check under way ends. Does nothing for a stopped monitor."""
        if self._is_running:
            self._end_stretch("the end of the loop before")
            self._schedule.begin_again(self._step, self._elapsed())
            self._set_next()

    def steps(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield *items*, and count a step after each of them, when the next one is asked for."""
        rest = iter(items)
        while True:
            try:
                yield next(rest)  # without a name, which would hold it during the next step
            except StopIteration:
                return
            self.step()

    @property
    def status(self) -> MonitorStatus:
        """What is known now; may be asked from any thread."""
        free = free_memory()
        places = self._states.standing
        holders = (place.leak.holder for place in places if place.leak is not None)
        last = self._checks[-1].check if self._checks else None
        return MonitorStatus(
            name=self.name,
            step=self._step,
            seconds=self._elapsed(),
            state=self._states.state,
            is_alarm=any(place.is_alarm for place in places),
            n_checks=self._n_checks,
            is_checking=self._stretch is not None,
            bytes_per_step=self._states.bytes_per_step,
            kept_bytes=sum(place.bytes_per_step * (self._step - place.since_step) for place in places),
            n_survivors=0 if last is None else sum(run.n_kept for run in last.runs),
            n_tensors=self._n_tensors,
            full_at_step=self._states.full_at_step(self._step, self.total_steps, free),
            total_steps=self.total_steps,
            heap_bytes=native_heap_bytes(),
            rss_bytes=rss_bytes(),
            accelerator_bytes=accelerator_bytes(),
            own_seconds=self._own_seconds,
            longest_seconds=self._longest,
            holder=next(holders, ""),
        )

    @property
    def levels(self) -> Levels:
        """Memory over the steps."""
        return self._watch.history.levels()

    @property
    def changes(self) -> tuple[StateChange, ...]:
        """The states that were come to, oldest first."""
        return tuple(self._changes)

    @property
    def record(self) -> MonitorRecord:
        """Everything that is known now."""
        return MonitorRecord(
            status=self.status,
            levels=self.levels,
            changes=self.changes,
            places=self._states.standing,
            stretches=tuple(self._checks),
            notes=tuple(self._notes),
            failure=self._failure,
        )

    @property
    def report(self) -> MonitorReport:
        """The report on what is known now; it holds nothing of the user's."""
        return MonitorReport(self.record)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<leaklab.Monitor{name}: step {self._step:,}, {self._states.state.value}>"

    def _attend(self) -> None:
        """Do what is due after this step, and set when to come again."""
        if not self._is_running:
            msg = "the monitor is not running: count steps inside its `with` block, or between start() and stop()"
            raise RuntimeError(msg)
        began, cpu_began = time.perf_counter(), time.thread_time()
        changes: list[StateChange] = []
        try:
            changes = self._due(began)
        except Exception as error:  # noqa: BLE001 - whatever it is: the user's loop must not die of the watch
            self._give_up(error)
        except BaseException:
            self._drop_stretch()
            raise
        finally:
            seconds = time.perf_counter() - began
            self._own_seconds += seconds
            self._schedule.spent_seconds += time.thread_time() - cpu_began
            self._longest = max(self._longest, seconds)
            self._set_next()
        self._tell(changes)

    def _due(self, now: float) -> list[StateChange]:
        changes = []
        if (stretch := self._stretch) is not None and self._step >= stretch.next_step:
            with self._own:
                check = stretch.advance(self._step)
            if check is not None:
                changes += self._take(check)
            elif stretch.growing:
                changes += self._take_growing(stretch, stretch.growing)
                stretch.growing.clear()
        if self._step >= self._watch.next_step(is_checking=self._stretch is not None):
            self._read_levels()
            changes += self._judge_levels()
        wants_check = (
            self._stretch is None
            and self._schedule.is_due(self._step, now - self._started)
            and self._schedule.may_check(now - self._started)
        )
        steps_per_run = self._steps_per_run() if wants_check else 0
        if self._together is not None:
            steps_per_run = self._together.agreed(self._step, steps_per_run, is_checking=self._stretch is not None)
        if steps_per_run:
            self._begin_stretch(steps_per_run)
        return changes

    def _set_next(self) -> None:
        due = [self._watch.next_step(is_checking=self._stretch is not None)]
        if self._together is not None:
            due.append(self._together.next_step)
        if self._stretch is not None:
            due.append(self._stretch.next_step)
        elif (next_check := self._schedule.next_step(self._step, self._elapsed())) > self._step:  # else too dear
            due.append(next_check)
        self._next = max(min(due), self._step + 1)

    def _read_levels(self) -> None:
        now = time.perf_counter()
        self._watch.read(self._step, now - self._started, self._seconds_per_step(now), self._own.memory)

    def _judge_levels(self) -> list[StateChange]:
        checked_at = self._checks[-1].last_step if self._checks else 0
        changes = self._watch.judge(
            self._step,
            self.total_steps,
            free_memory(),
            checked_at,
            is_checking=self._stretch is not None,
            is_last=not self._is_running,
        )
        if any(change.fingerprint.startswith(LEVEL) and change.state is LoopState.GROWING for change in changes):
            self._schedule.hasten(self._step)
        return changes

    def _steps_per_run(self) -> int:
        periods = self._watch.periods()
        per_step = self._seconds_per_step(time.perf_counter())
        if self._schedule.is_first:
            return self._schedule.steps_per_first_run(self._step, per_step, periods, is_frozen=user_has_frozen())
        return self._schedule.steps_per_run(self._step, per_step, self.total_steps, periods)

    def _begin_stretch(self, steps_per_run: int) -> None:
        self._own.seconds = 0.0
        if not self._n_checks:
            self._prepare(steps_per_run)
        stretch = LoopStretch(
            self.name,
            steps_per_run,
            self._roots.variables(),
            self._watch.lengths,
            n_first=-(-(self._step - self._schedule.loop_step) // steps_per_run) if self._schedule.is_first else 0,
            with_lines=not self._states.has_all_lines,  # a place that was found before has its line
        )
        try:
            with self._own:
                stretch.begin(self._step)
        except CheckRunningError:
            self._schedule.next_check = self._step + steps_per_run
            return
        self._stretch = stretch

    def _prepare(self, steps_per_run: int) -> None:
        """Collect what would hide in the first check, and say how long the loop will pause, by how long that took."""
        began = time.perf_counter()
        if freed := collect_before_checks(self._step):
            self._note(freed)
        if not self.quiet:
            self._output.announce(self._step, steps_per_run, _LONGEST_PAUSE * (time.perf_counter() - began))

    def _take_growing(self, stretch: LoopStretch, growing: list[Leak]) -> list[StateChange]:
        """Take in what a check says to grow that has not proven it."""
        leaks = [per_step(leak, stretch.steps_per_run) for leak in growing]
        steps, free = (stretch.first_step, self._step), free_memory()
        return self._states.take_growing(leaks, steps, self.total_steps, free, stretch.witness)

    def _take(self, check: Check, *, is_cut: bool = False) -> list[StateChange]:
        stretch, self._stretch = self._stretch, None
        if stretch is None:
            return []
        lengths, self._n_tensors = self._watch.lengths.read(), count_tensors()
        check = not_clean(check, self._states.emptied(lengths)) if is_cut else check
        done = StretchCheck(stretch.first_step, self._step, stretch.steps_per_run, check)
        self._checks.append(done)
        del self._checks[1 : 1 - _MOST_CHECKS]  # the first and the newest stay
        self._n_checks += 1
        told = self._states.take_check(done, self.total_steps, free_memory(), lengths, stretch.witness, is_cut=is_cut)
        self._states.note_native(stretch.native_bytes_per_step)
        self._schedule.end_check(self._step, self._own.seconds, self._states.next_look(done))
        return told

    def _end_stretch(self, reason: str) -> None:
        """End the check under way with what it has found."""
        if (stretch := self._stretch) is None:
            return
        began = time.perf_counter()
        try:
            with self._own:
                check = stretch.end_early(self._step, reason)
            lost = stretch.lost(check, {change.fingerprint for change in self._changes})
            changes = [] if check is None else self._take(without_their_memory(check, lost), is_cut=True)
            if check is not None and not changes:  # all that can be said of so few steps
                changes = self._take_growing(stretch, left_by_all(check))
            changes += self._take_growing(stretch, lost)
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)
            return
        self._own_seconds += time.perf_counter() - began
        self._tell(changes, may_raise=False)

    def _give_up(self, error: Exception) -> None:
        self._note(f"the check at step {self._step:,} was given up: {type(error).__name__}: {error}")
        self._drop_stretch()
        self._schedule.end_check(self._step, self._own.seconds, None)

    def _drop_stretch(self) -> None:
        stretch, self._stretch = self._stretch, None
        if stretch is not None:
            stretch.close()

    def _tell(self, changes: list[StateChange], *, may_raise: bool = True) -> None:
        for change in changes:
            self._changes.append(change)
            if len(self._changes) > _MOST_CHANGES:
                del self._changes[_MOST_CHANGES // 2]
            if not self.quiet:
                self._output.report(change)
            if self.on_change is not None:
                self.on_change(change)
        certain = [change for change in changes if change.state is LoopState.LEAK and change.is_alarm]
        if self.fail and certain and may_raise:
            raise LeakFound(certain[0].words)

    def _note(self, words: str) -> None:
        self._notes.append(words)
        del self._notes[:-_MOST_NOTES]

    def _elapsed(self) -> float:
        if not self._started:
            return 0.0
        return (time.perf_counter() if self._is_running else self._ended) - self._started

    def _seconds_per_step(self, now: float) -> float:
        return max(now - self._started - self._own_seconds, 0.0) / max(self._step, 1)
