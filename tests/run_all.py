"""Run all tests: ``python tests/run_all.py``. Ends with 0 if all of them passed, and says at the end which did not.

First those of single parts; ``--coverage`` measures which lines they run, and takes half as long again. Then those that
check a whole process, each file in a process of its own: a check goes through every object of its process, and with all
test files imported these are three times as many as a notebook with torch has. Coverage is never on there: a tracer's
own growth would be in their verdicts, and rightly.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from whole_checks import FOLDER, files_with_whole_checks

N_AT_ONCE = 2
PASSED, NO_TESTS = 0, 5


def main() -> int:
    """Run both parts, also the second one if the first failed; return how many of the runs failed."""
    parser = argparse.ArgumentParser(description="Run all tests.")
    parser.add_argument("--coverage", action="store_true", help="measure which lines the tests of single parts run")
    arguments = parser.parse_args()
    failed = [] if run_parts(with_coverage=arguments.coverage) == PASSED else ["tests of single parts"]
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        running = {pool.submit(run_file, file): file for file in files_with_whole_checks()}
        for done in as_completed(running):
            status, output, seconds = done.result()
            file = running[done].relative_to(FOLDER.parent)
            last = output.strip().rpartition("\n")[2].strip("= ")
            # A file whose framework is not installed is skipped as a whole, which pytest counts as no tests.
            is_fine = status == PASSED or (status == NO_TESTS and "skipped" in last)
            print(f"{file}: {last} ({seconds:.0f} s)" if is_fine else f"\n{file}\n{output}", flush=True)
            failed += [] if is_fine else [str(file)]
    print(f"FAILED: {', '.join(failed)}" if failed else "all tests passed")
    return len(failed)


def run_parts(*, with_coverage: bool) -> int:
    """Run the tests that check no whole process; return pytest's exit status."""
    coverage = ["--cov"] if with_coverage else []
    return pytest("-n", str(N_AT_ONCE), *coverage, "-m", "not untraced").returncode


def run_file(file: Path) -> tuple[int, str, float]:
    """Run the whole checks of one file; return pytest's exit status, what it wrote, and the seconds that it took."""
    started = time.monotonic()
    done = pytest("-m", "untraced", str(file), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout, time.monotonic() - started


def pytest(*arguments: str, stdout: int | None = None, stderr: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=FOLDER.parent, stdout=stdout, stderr=stderr, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
