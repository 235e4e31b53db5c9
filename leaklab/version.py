"""The version of leaklab, and where the package lies."""

from __future__ import annotations

import os

__version__ = "0.1.0"

PACKAGE_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - `import leaklab` does not pay for pathlib
"""Code whose file lies in this folder is leaklab's own."""
