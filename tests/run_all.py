"""Run all tests: ``python tests/run_all.py``. Ends with 0 if all of them passed, and says at the end which did not.

With files as arguments it runs those.

Each file with whole checks is run in a process of its own, forked from one that has imported torch: a check goes
through every object of its process, and with all test files imported these are three times as many as a notebook with
torch has. The other files of a folder share a process: to start one takes a second.

``--coverage`` measures which lines the tests of single parts run. Coverage is never on where a whole process is
checked: a tracer's own growth would be in its verdicts, and rightly.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from apart import Apart

FOLDER = Path(__file__).parent
N_AT_ONCE = 3  # some wait for servers and other processes: two do not keep two processors busy
FILE_SECONDS = 1200
MOST_REASONS = 12  # lines of each file that are said again at the end, where a cut-off log still has them
PASSED, FAILED, NO_TESTS = 0, 1, 5
LONGEST = (
    "browser", "test_engines.py", "test_notebooks.py", "test_assistant.py", "test_no_leaks.py", "test_leaks.py",
    "test_trials.py", "test_monitor.py", "test_slow_cells.py", "test_hostile_objects.py", "test_plugin.py",
    "test_container_lengths.py", "test_replaced_places.py", "test_try_change.py", "test_magics.py",
    "test_statements.py", "test_line_search.py", "test_unseen_parts.py", "reports", "guards", "explain", "heap",
    "cures", "magics", "test_bad_input.py", "test_first_patient.py", "test_api.py", "test_wrong_changes.py",
    "test_one_check.py", "test_joint_changes.py", "torchfree", "test_explain_whole.py", "test_memory.py",
    "ask", "test_turns.py", "test_running_sums.py", "test_gradients.py", "test_large_libraries.py",
)  # fmt: skip
"""Half a minute and more, the longest first: begun last, one of them would run alone at the end."""


def main() -> int:
    """Run everything, also when something has failed; return how many files failed."""
    parser = argparse.ArgumentParser(description="Run all tests.")
    parser.add_argument("files", nargs="*", type=Path, help="only these files of tests")
    parser.add_argument("--coverage", action="store_true", help="measure which lines the tests of single parts run")
    options = parser.parse_args()
    if options.coverage:
        command = [sys.executable, "-m", "pytest", "-n", "2", "--cov", "-m", "not untraced"]
        return subprocess.run(command, cwd=FOLDER.parent, check=False).returncode
    failed: list[str] = []
    reasons: list[str] = []
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        chosen = [(file.resolve(),) for file in options.files] or together()
        running = {pool.submit(run, *files): name_of(*files) for files in chosen}
        for done in as_completed(running):
            status, output, seconds = done.result()
            name = running[done]
            last = output.strip().rpartition("\n")[2].strip("= ")
            # A file whose framework is not installed is skipped as a whole, which pytest counts as no tests.
            is_fine = status == PASSED or (status == NO_TESTS and "skipped" in last)
            print(f"{name}: {last} ({seconds:.0f} s)" if is_fine else f"\n{name}\n{output}", flush=True)
            if not is_fine:
                failed.append(name)
                reasons += [line for line in output.splitlines() if line.startswith(("FAILED ", "E  "))][:MOST_REASONS]
    print("\n".join([*reasons, f"FAILED: {', '.join(failed)}"]) if failed else "all tests passed")
    return len(failed)


def together() -> list[tuple[Path, ...]]:
    """Return all files of tests, those together that share a process; what takes longest first."""
    browser = FOLDER / "browser"
    shared: dict[Path, list[Path]] = {}
    for file in sorted(FOLDER.rglob("test_*.py")):
        if file.parent == browser:
            shared[browser] = [browser]
        else:
            is_alone = re.search(r"untraced|leakcheck\(", file.read_text("utf-8"))
            shared.setdefault(file if is_alone else file.parent, []).append(file)
    order = {name: place for place, name in enumerate(LONGEST)}
    return [tuple(shared[key]) for key in sorted(shared, key=lambda key: order.get(key.name, len(LONGEST)))]


def name_of(*files: Path) -> str:
    """Return the file as it is written in this checkout, or the folder of several."""
    return str((files[0] if len(files) == 1 else files[0].parent).relative_to(FOLDER.parent))


def run(*files: Path) -> tuple[int, str, float]:
    """Run the tests of *files* in one process; return pytest's status, what it wrote, and the seconds that it took."""
    started = time.monotonic()
    with Apart(pytest_main, *map(str, files)) as process:
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
