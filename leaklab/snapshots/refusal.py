"""The error of a snapshot that cannot be opened, or of a recording that cannot be made."""

from __future__ import annotations

from leaklab.errors import LeaklabError


class SnapshotError(LeaklabError):
    """A memory snapshot cannot be read, written or taken; the message says what to do."""
