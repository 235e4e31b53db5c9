"""Run all tests: ``python tests/run_all.py``. Ends with 0 if all of them passed, and says at the end which did not.

Two runs of pytest are under way at any time. One is that of the single parts; ``--coverage`` measures which lines they
run, and takes half as long again. The others check a whole process, each file in a process of its own: a check goes
through every object of its process, and with all test files imported these are three times as many as a notebook with
torch has. Coverage is never on there: a tracer's own growth would be in their verdicts, and rightly.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from whole_checks import FOLDER, files_with_whole_checks

N_AT_ONCE = 2
PASSED, NO_TESTS = 0, 5


def main() -> int:
    """Run everything, also when something has failed; return how many of the runs failed."""
    parser = argparse.ArgumentParser(description="Run all tests.")
    parser.add_argument("--coverage", action="store_true", help="measure which lines the tests of single parts run")
    coverage = ["--cov"] if parser.parse_args().coverage else []
    # Those of single parts wait for browsers and servers half of the time: two of them keep one processor busy.
    runs = {"single parts": ("-n", "2", *coverage, "-m", "not untraced")}
    for file in files_with_whole_checks():
        runs[str(file.relative_to(FOLDER.parent))] = "-m", "untraced", str(file)
    failed = []
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        running = {pool.submit(pytest, *arguments): name for name, arguments in runs.items()}
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


def pytest(*arguments: str) -> tuple[int, str, float]:
    """Run pytest; return its exit status, what it wrote, and the seconds that it took."""
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", *arguments]
    done = subprocess.run(
        command, cwd=FOLDER.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout, time.monotonic() - started


if __name__ == "__main__":
    sys.exit(main())
