"""Decide whether a container that gains plain data for ever is a log, or a table that nobody empties.

A program that runs for days keeps its losses, and somebody reads them: a **log** is a sequence of numbers or of
messages, or a mapping from numbers that rise to numbers. A **table** has keys, members or texts that no later run meets
again: names, tuples, hashes, configurations. It was made for looking up, and grows unread: that is a leak, however
small. So is a log that gains more than `LOG_BYTES` in every run.
"""

from __future__ import annotations

LOG_BYTES = 512
"""Per run: some sixteen numbers with their places in a list."""


def is_log(*, gains_log_entries: bool, bytes_per_run: float) -> bool:
    """Return whether what grows is a log.

    Args:
        gains_log_entries: Whether all that is new are numbers, short records of numbers, or messages, that have their
            place by coming later: in a sequence, or under keys that rise.
        bytes_per_run: What each run adds.
    """
    return gains_log_entries and bytes_per_run < LOG_BYTES
