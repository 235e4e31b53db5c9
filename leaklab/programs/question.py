"""What `leaklab attach` asks a program, and the files in which the answer comes."""

from __future__ import annotations

from typing import TypedDict

ANSWER, TAKEN, ERROR = "answer", "taken", "error"
"""Files that appear in the folder of a question: a saved report or nothing, that it is worked on, one sentence."""

BY_MAIN_THREAD = b"by the main thread"
"""What the second of them says where no thread was started for it."""


class Question(TypedDict):
    """What `leaklab attach` asks.

    Attributes:
        pid: Of the process that is asked.
        version: Of leaklab, of the asker.
        folder: Where the answer is written.
        act: ``look``, ``watch`` or ``stop``.
        named: With ``watch``, the function whose calls are the steps; empty to find the loop.
        total_steps: With ``watch``, the steps of the whole loop; None if nobody knows.
        python: The asker's Python, by the tag of its compiled files and its flags.
        packages: What leaklab needs, in order: name, the asker's folder, whether it fits any Python.
    """

    pid: int
    version: str
    folder: str
    act: str
    named: str
    total_steps: int | None
    python: list[str | None]
    packages: list[tuple[str, str | None, bool]]
