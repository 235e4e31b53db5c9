"""Leaks in test suites: a plug-in for pytest, and one assertion for other runners.

Nothing here imports torch before a check begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaklab.lazy import lazy_names

if TYPE_CHECKING:
    from leaklab.testing.assertion import assert_no_leak

__all__ = ["assert_no_leak"]
__getattr__ = lazy_names(
    __name__,
    {
        "assertion": "assert_no_leak",
    },
)
