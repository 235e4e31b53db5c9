"""What the numbers of the names of references mean; those from 0 on stand for texts of a table."""

from __future__ import annotations

from typing import Final

UNNAMED: Final = -1
"""The number of a reference that has no name."""
FIRST_POSITION: Final = -2
"""The number of ``[0]``; ``[1]`` is one less, and so on. So are the keys of dicts that are small whole numbers."""
OWN_DICT: Final = ".__dict__"
