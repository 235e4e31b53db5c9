"""A check for which no memory is left reports what it has."""

from __future__ import annotations

import sys

import psutil
import pytest
from apart import apart
from IPython.core.interactiveshell import InteractiveShell

pytestmark = pytest.mark.untraced


def _checked_with_little_memory(extra_bytes: int) -> tuple[str, str]:
    """Check a leaking cell that, from its fifth run on, leaves the process only so many bytes more."""
    import resource

    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    shell.run_line_magic("load_ext", "leaklab")
    shell.user_ns.update(kept=[], runs=[0], resource=resource, psutil=psutil, extra_bytes=extra_bytes)
    cell = """
kept.append([bytearray(8)]); runs[0] += 1
if runs[0] > 5:
    now = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (now + extra_bytes, resource.RLIM_INFINITY))
"""
    try:
        shell.run_cell_magic("leakcheck", "-q --no-sites -v report", cell)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    report = shell.user_ns["report"]
    return report.verdict.outcome, report.verdict.reason


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces RLIMIT_AS")
@pytest.mark.parametrize("extra_bytes", [0, 1 << 20])
def test_a_check_that_runs_out_of_memory_reports_what_it_has(extra_bytes):
    outcome, reason = apart(_checked_with_little_memory, extra_bytes)
    assert (outcome, "memory ran out" in reason) == ("inconclusive", True)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces RLIMIT_AS")
@pytest.mark.parametrize("extra_bytes", [16 << 20, 32 << 20, 64 << 20])
def test_a_check_with_little_memory_is_right_or_says_so(extra_bytes):
    outcome, reason = apart(_checked_with_little_memory, extra_bytes)
    assert outcome == "leak" or "memory ran out" in reason
