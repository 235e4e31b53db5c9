"""The version of leaklab, where the package lies, and what takes part besides."""

from __future__ import annotations

import os
import sys

__version__ = "0.2.0"

PACKAGE_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - `import leaklab` does not pay for pathlib
"""Code whose file lies in this folder is leaklab's own."""


def renamed(old: str, new: str) -> str:
    """Return the sentence of a deprecation: *old* is now called *new*, and how long both work."""
    return f"{old} is now called {new}; the old name works until leaklab 0.4, which will not come before June 2027"


def environment() -> tuple[tuple[str, str], ...]:
    """Return names and versions of what takes part: leaklab, Python, and torch where it is loaded."""
    import platform  # noqa: PLC0415 - `import leaklab` does not pay for it

    versions = (("leaklab", __version__), ("Python", platform.python_version()))
    torch = vars(sys.modules["torch.version"]) if "torch.version" in sys.modules else {}
    return (*versions, ("torch", str(torch["__version__"]))) if "__version__" in torch else versions
