"""Run all tests: ``python tests/run_all.py``. Ends with 0 if all of them passed, and says at the end which did not.

Two runs of pytest are under way at any time. One is that of the single parts; ``--coverage`` measures which lines they
run, and takes half as long again. The others check a whole process, each file in a process of its own, forked from one
that has imported torch: a check goes through every object of its process, and with all test files imported these are
three times as many as a notebook with torch has. Coverage is never on there: a tracer's own growth would be in their
verdicts, and rightly.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from apart import Apart
from whole_checks import FOLDER, files_with_whole_checks

N_AT_ONCE = 2
FILE_SECONDS = 1200
PASSED, FAILED, NO_TESTS = 0, 1, 5


def main() -> int:
    """Run everything, also when something has failed; return how many of the runs failed."""
    parser = argparse.ArgumentParser(description="Run all tests.")
    parser.add_argument("--coverage", action="store_true", help="measure which lines the tests of single parts run")
    coverage = ["--cov"] if parser.parse_args().coverage else []
    # Those of single parts wait for servers and other processes: two workers do not keep two processors busy.
    failed = []
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        running = {pool.submit(single_parts, "-n", "2", *coverage, "-m", "not untraced"): "single parts"}
        for file in files_with_whole_checks():
            running[pool.submit(whole_checks, str(file))] = str(file.relative_to(FOLDER.parent))
        for done in as_completed(running):
            status, output, seconds = done.result()
            name = running[done]
            last = output.strip().rpartition("\n")[2].strip("= ")
            # A file whose framework is not installed is skipped as a whole, which pytest counts as no tests.
            is_fine = status == PASSED or (status == NO_TESTS and "skipped" in last)
            print(f"{name}: {last} ({seconds:.0f} s)" if is_fine else f"\n{name}\n{output}", flush=True)
            failed += [] if is_fine else [name]
    print(f"FAILED: {', '.join(failed)}" if failed else "all tests passed")
    return len(failed)


def single_parts(*arguments: str) -> tuple[int, str, float]:
    """Run pytest; return its exit status, what it wrote, and the seconds that it took."""
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", *arguments]
    done = subprocess.run(
        command, cwd=FOLDER.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout, time.monotonic() - started


def whole_checks(file: str) -> tuple[int, str, float]:
    """Run the whole checks of one file; return the same."""
    started = time.monotonic()
    with Apart(pytest_main, "-m", "untraced", file) as process:
        try:
            status, output = process.result(FILE_SECONDS), process.output
        except AssertionError as failure:  # it died, or did not end
            status, output = FAILED, str(failure)
    return status, output, time.monotonic() - started


def pytest_main(*arguments: str) -> int:
    """Run pytest in this process."""
    import pytest

    os.chdir(FOLDER.parent)
    # Only plug-ins and what tests share have assertions to rewrite, and neither is imported before.
    imported_before = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    return int(pytest.main(["-W", imported_before, *arguments]))


if __name__ == "__main__":
    sys.exit(main())
