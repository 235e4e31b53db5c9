"""The ranks that check together: they meet before each run, hear who has failed, and hand in what they found.

They meet in a gloo group of their own, and leave words in the store that the job was started with. So nothing of this
touches a device, a group of the user's, or the counts of one; no mode of torch sees it, because it calls the backend
itself.
"""

from __future__ import annotations

import ctypes
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from leaklab.errors import RankError

N_NUMBERS = 4
"""So many numbers a rank brings to a meeting, at most."""
_SHORTEST, _LONGEST = 2e-5, 2e-3
"""Seconds between two looks whether the others have come: interrupts get through, and a quick run stays quick."""
_LISTEN_SECONDS = 0.25
"""Who waits for so long asks the store whether another rank has ended the check."""
_ANSWER_SECONDS = 10.0
"""After the end of all, so long is waited for a rank to say that it is there."""
_ENDED, _READ = "ended", "read"
_counts: Counter[tuple[int, ...]] = Counter()
"""How often these ranks have met to check: the words of one check are not taken for those of another."""
Value = TypeVar("Value")


class RankGroup:
    """The ranks that check together, seen from one of them.

    Attributes:
        rank: Its number among all processes of the job.
        ranks: The numbers of all that check together; the first gathers what they found.
        n_meetings: How often they have met.
        waited_seconds: What the meetings took, most of it waiting for slower ranks.

    Args:
        rank: As above.
        ranks: As above.
        store: That all of them can reach.
        seconds: So long a rank waits for the others.

    Raises:
        RankError: if one of the others does not come in time.
    """

    def __init__(self, rank: int, ranks: Sequence[int], store: Any, seconds: float) -> None:
        self.rank = rank
        self.ranks = tuple(ranks)
        self.n_meetings = 0
        self.waited_seconds = 0.0
        self._seconds = seconds
        self._store = store
        self._missing: list[int] = []
        self._gloo: Any = None
        self._is_meeting = False
        if len(self.ranks) > 1:
            self._connect()

    @property
    def is_first(self) -> bool:
        """Whether this rank gathers what all of them found."""
        return self.rank == self.ranks[0]

    def _connect(self) -> None:
        import torch  # noqa: PLC0415 - no check of one process needs the rest
        from torch import distributed  # noqa: PLC0415

        self._say(f"here/{self.rank}", "")
        if absent := self._absent("here", self._seconds):
            self.give_up("waited in vain")
            msg = (
                f"{named_ranks(absent)} did not start this check within {self._seconds:g} s: it has to be started on "
                "every rank of the group"
            )
            raise RankError(msg)
        self._gloo = distributed.ProcessGroupGloo(
            self._store, self.ranks.index(self.rank), len(self.ranks), timeout=timedelta(seconds=self._seconds)
        )
        self._numbers = np.zeros(N_NUMBERS)
        self._shared = torch.from_numpy(self._numbers)
        self._largest = distributed.AllreduceOptions()
        self._largest.reduceOp = distributed.ReduceOp(distributed.ReduceOp.MAX)
        self.meet()  # what the first meeting makes is no run's

    def meet(self, *numbers: float, seconds: float | None = None) -> tuple[float, ...]:
        """Wait for all ranks; return the largest of each of the *numbers* that they bring.

        Args:
            *numbers: Of this rank, at most `N_NUMBERS`.
            seconds: So long the others are waited for, if that is less than usually.

        Raises:
            RankError: if a rank has ended the check, cannot be reached any more, or does not come in time.
        """
        if len(self.ranks) == 1:
            return numbers
        self._numbers[: len(numbers)] = numbers
        began = time.monotonic()
        self._is_meeting = True
        work = self._gloo.allreduce([self._shared], self._largest)
        try:
            self._wait(work, began, self._seconds if seconds is None else min(seconds, self._seconds))
            self._is_meeting = False
        finally:
            self.n_meetings += 1
            self.waited_seconds += time.monotonic() - began
        return tuple(self._numbers[: len(numbers)].tolist())

    def _wait(self, work: Any, began: float, seconds: float) -> None:
        """Wait as Python does, which hears an interrupt; the library's own wait hears nothing until it is over."""
        pause, listen_at = _SHORTEST, began + _LISTEN_SECONDS
        while not work.is_completed():
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)
            if (now := time.monotonic()) < listen_at:
                continue
            listen_at = now + _LISTEN_SECONDS
            if self._hears(_ENDED):
                raise self._reason()
            if now - began > seconds:
                raise self._reason(seconds)
        try:
            work.wait()
        except RuntimeError:  # its words are addresses
            raise self._reason() from None

    def _reason(self, waited: float = 0.0) -> RankError:
        """Return what ended the check, after having told the others.

        Args:
            waited: For so many seconds, in vain; 0.0 where a connection was lost.
        """
        self._say(_ENDED, "")
        self._leave()
        self._say(f"left/{self.rank}", "")
        absent = self._absent("left", 0.0 if self.failed_ranks() else min(_ANSWER_SECONDS, self._seconds))
        if failed := self.failed_ranks():
            return RankError(failure_words(failed))
        self._missing = absent
        if waited:
            return RankError(f"{named_ranks(absent) if absent else 'a rank'} did not arrive within {waited:g} s")
        if not absent:
            return RankError("the ranks lost each other")
        if len(absent) == len(self.ranks) - 1 > 1:
            return RankError("no other rank answers any more: at least one of them was killed or has ended")
        return RankError(f"{named_ranks(absent)} was killed or has ended")

    def fail(self, words: str) -> None:
        """Let the others know at the next meeting what this rank did: ``ended with ValueError``."""
        self._say(f"failed/{self.rank}", words)

    def give_up(self, words: str) -> None:
        """Meet the others no more, who hear in *words* what this rank did."""
        self.fail(words)
        self._say(f"found/{self.rank}", "")
        self._say(f"left/{self.rank}", "")
        self._say(_ENDED, "")
        if self.is_first:
            self._say(_READ, "")
        self._leave()

    def failed_ranks(self) -> dict[int, str]:
        """Return the ranks that do not go on, each with what it did."""
        failed = [rank for rank in self.ranks if self._hears(f"failed/{rank}")]
        return {rank: self._read(f"failed/{rank}") for rank in failed}

    def hand_in(self, text: str, seconds: float | None = None) -> dict[int, str] | None:
        """Give *text* to the first rank; return there what all have given, elsewhere None.

        A rank waits until the first has read it: what the launcher does when a process ends hurts nobody then.

        Args:
            text: Of this rank.
            seconds: So long the others are waited for, if that is less than usually.
        """
        self._say(f"found/{self.rank}", text)
        seconds = self._seconds if seconds is None else min(seconds, self._seconds)
        if not self.is_first:
            if self.ranks[0] not in self._missing:
                self._wait_until(lambda: self._hears(_READ), seconds)
            return None
        awaited = [rank for rank in self.ranks if rank not in self._missing]
        self._wait_until(lambda: self._hears(*(f"found/{rank}" for rank in awaited)), seconds)
        found = {rank: self._read(f"found/{rank}") for rank in awaited if self._hears(f"found/{rank}")}
        for rank in found:
            self._ask(partial(self._store.delete_key, f"found/{rank}"), otherwise=False)
        return {rank: text for rank, text in found.items() if text}

    def answer(self, words: str) -> None:
        """Tell the others, who wait for it, that all is read, with *words* for them."""
        self._say(_READ, words)

    def answered(self) -> str:
        """Return the words of the first rank; empty if it had none."""
        return self._read(_READ) if self._hears(_READ) else ""

    def close(self) -> None:
        """Let go of the group: there are no more meetings."""
        self._leave()

    def _leave(self) -> None:
        """Let go of the group, although a meeting may be under way in its threads."""
        if self._is_meeting and self._gloo is not None:
            # Whoever drops it waits for that meeting until the time limit: it lives as long as the process instead.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._gloo))
        self._gloo = None

    def _absent(self, word: str, seconds: float) -> list[int]:
        """Wait until all ranks have said *word*; return those that have not in time."""
        if self._wait_until(lambda: not self._silent(word), seconds):
            return []
        return self._silent(word)

    def _silent(self, word: str) -> list[int]:
        if self._hears(*(f"{word}/{rank}" for rank in self.ranks)):
            return []
        return [rank for rank in self.ranks if not self._hears(f"{word}/{rank}")]

    def _wait_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        end, pause = time.monotonic() + seconds, _LONGEST
        while not is_so():
            if time.monotonic() > end:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LISTEN_SECONDS)
        return True

    def _say(self, key: str, text: str) -> None:
        self._ask(lambda: self._store.set(key, text.encode() + b"."), otherwise=None)

    def _hears(self, *keys: str) -> bool:
        return bool(self._ask(lambda: self._store.check(list(keys)), otherwise=False))

    def _read(self, key: str) -> str:
        data: bytes = self._ask(lambda: self._store.get(key), otherwise=b".")
        return data[:-1].decode()

    def _ask(self, question: Callable[[], Value], *, otherwise: Any) -> Any:
        """Ask the store, which may be gone with the rank that had it."""
        try:
            return question()
        except RuntimeError:
            return otherwise


def rank_group(group: object, seconds: float) -> RankGroup:
    """Let this process and the others of *group* check together. Each of them has to call this.

    Args:
        group: A ``torch.distributed.ProcessGroup``, or True for all processes of the job.
        seconds: So long a rank waits for the others before the check is ended.

    Raises:
        TypeError: if one of them is of the wrong type.
        ValueError: if *seconds* is not above 0.
        RankError: if there is no such group, or a rank of it does not come.
    """
    if type(seconds) not in {int, float}:
        msg = f"group_timeout must be a number of seconds, not {type(seconds).__name__}"
        raise TypeError(msg)
    if not seconds > 0:
        msg = f"group_timeout must be above 0 seconds, not {seconds:g}"
        raise ValueError(msg)
    distributed: Any = import_module("torch.distributed")
    if not distributed.is_available():
        msg = "group needs torch.distributed, which this build of torch does not have"
        raise RankError(msg)
    if not distributed.is_initialized():
        msg = (
            "group needs a process group: start the processes with torchrun, and call "
            "torch.distributed.init_process_group() first"
        )
        raise RankError(msg)
    if not distributed.is_gloo_available():
        msg = "group needs the backend gloo, by which the ranks agree, and this build of torch does not have it"
        raise RankError(msg)
    chosen = distributed.group.WORLD if group is True else group
    if chosen == distributed.GroupMember.NON_GROUP_MEMBER and type(chosen) is int:
        msg = "this process is not a member of the group: check on its members only"
        raise RankError(msg)
    if not isinstance(chosen, distributed.ProcessGroup):
        msg = (
            "group must be True, for all processes, or a torch.distributed.ProcessGroup such as "
            f"mesh.get_group('dp'), not {type(group).__name__}"
        )
        raise TypeError(msg)
    ranks = tuple(distributed.get_process_group_ranks(chosen))
    _counts[ranks] += 1
    name = f"leaklab/{zlib.crc32(repr(ranks).encode()):08x}/{_counts[ranks]}"
    store = distributed.PrefixStore(name, distributed.distributed_c10d._get_default_store())  # noqa: SLF001 - no public way
    return RankGroup(distributed.get_rank(), ranks, store, float(seconds))


def failure_words(failed: Mapping[int, str]) -> str:
    """Return a sentence on ranks that do not go on, each with what it did."""
    return ", ".join(f"rank {rank} {words}" for rank, words in sorted(failed.items()))


def named_ranks(ranks: Iterable[int]) -> str:
    """Return a list of ranks in words: ``rank 3``, ``ranks 1 and 3``."""
    numbers = [str(rank) for rank in ranks]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"ranks {', '.join(numbers[:-1])} and {numbers[-1]}"
