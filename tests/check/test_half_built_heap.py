"""Heaps hold unfinished objects: every public function is asked about one that is full of them, and none dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.untraced  # looks at a whole heap, in a process of its own


def test_no_question_ends_the_process() -> None:
    """Lists with empty places, parsers, tables that change, frames in every state, objects that were never ready."""
    program = Path(__file__).parents[1] / "half_built_questions.py"
    command = [sys.executable, "-X", "faulthandler", program, "1", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("asked everything\n")
