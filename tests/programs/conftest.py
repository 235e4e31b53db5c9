"""What the tests of `leaklab attach` share: whether a debugger may be used here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from leaklab.errors import LeaklabError
from leaklab.programs import entering


@pytest.fixture(scope="session")
def gdb():
    """Skip where no debugger may look into a process of ours, or fail where it is required (LEAKLAB_REQUIRE_GDB=1)."""
    problem = ""
    if sys.platform != "linux" or sys.version_info >= (3, 14):
        pytest.skip("the way through gdb is for Linux, and Python before 3.14")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            entering.entrance_to(process.pid)
        except LeaklabError as error:
            problem = str(error)
        finally:
            process.kill()
    if problem:
        (pytest.fail if os.environ.get("LEAKLAB_REQUIRE_GDB") else pytest.skip)(problem)
