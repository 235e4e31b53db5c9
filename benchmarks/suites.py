"""Run test suites under ``--leakcheck=all``: of others, compared with brute force, and one whose leaks are planted.

Run it as ``python benchmarks/suites.py FOLDER [SUITE ...]``; each suite is fetched from PyPI as a source archive into
FOLDER, unless it is there. For each it prints a table: the test, what leaklab says, the seconds that took, and what
`brute_force.py` counts, which calls each test up to 1,275 times without leaklab. Then it says whether two processes
(``-n 2``) give the same answers, and what GitHub is told of a leak that is put into one test. Minutes for each suite.

The suite ``harbour`` is that of ``programs/harbour``, a library with thirty leaks of as many kinds: each line that
leaks names the test that calls it. It is told how many are found, how many with their line, and which of the other
tests are called a leak.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SMALL_BYTES = 64
"""Brute force says that something stays from one object per call on, or from so many bytes."""


@dataclass(frozen=True)
class Suite:
    """A source archive with its tests.

    Attributes:
        release: As pip names it.
        tests: Folder or files of the tests.
        path: Folder of the package, for imports.
        leak_in: A file, and a text in it behind which the leak is put; empty where none is.
        environment: What the tests want set.
    """

    release: str
    tests: str
    path: str
    leak_in: tuple[str, str] = ("", "")
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> str:
        """The folder in the archive."""
        return self.release.replace("==", "-")


SUITES = {
    "einops": Suite(
        "einops==0.8.2",
        "einops/tests",
        ".",
        ("einops/tests/test_packing.py", "def test_numpy_trivial(H=13, W=17):\n"),
        (("EINOPS_TEST_BACKENDS", "numpy,torch"),),
    ),
    "cachetools": Suite("cachetools==8.0.1", "tests", "src"),
}
LEAK = "    KEPT.append(np.zeros(1000))\n"
KEPT = "\n\nKEPT = []\n"


def fetch(suite: Suite, folder: Path) -> Path:
    """Return the unpacked archive below *folder*."""
    there = folder / suite.folder
    if not there.exists():
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:", "--no-deps", suite.release]
        subprocess.run([*pip, "-d", str(folder)], check=True)
        with tarfile.open(folder / f"{suite.folder}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return there


def pytest_of(suite: Suite, there: Path, *options: str, **environment: str) -> tuple[str, float]:
    """Return what pytest prints, and the seconds that it takes."""
    plain = ("-p", "no:cacheprovider", "-p", "no:randomly", "-c", os.devnull, "--rootdir", str(there))
    paths = [str(there / suite.path), str(HERE), os.environ.get("PYTHONPATH", "")]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **dict(suite.environment), **environment}
    started = time.perf_counter()
    command = [sys.executable, "-m", "pytest", suite.tests, *plain, *options]
    done = subprocess.run(command, cwd=there, env=settings, capture_output=True, text=True, check=False)
    return done.stdout, time.perf_counter() - started


def outcomes(there: Path, file: str) -> dict[str, tuple[str, str]]:
    """Return for each test what leaklab says, and the seconds that took."""
    found = {}
    for case in ET.parse(there / file).iter("testcase"):  # noqa: S314 - pytest has written it
        said = {one.get("name"): one.get("value") for one in case.iter("property")}
        name = f"{case.get('classname')}.{case.get('name')}"
        found[name] = said.get("leaklab_outcome") or "-", said.get("leaklab_seconds") or "0"
    return found


def words_of(counted: dict[str, object]) -> tuple[str, bool | None]:
    """Return what brute force says in words, and whether something stays; None where that is not known."""
    if "not_called" in counted:
        return f"not called: {counted['not_called']}", None
    objects, n_bytes = float(counted["objects"]), float(counted["bytes"])
    return f"{objects:8.2f} objects {n_bytes:10.0f} B a call", objects >= 1 or n_bytes >= SMALL_BYTES


def report(name: str, folder: Path, chosen: str) -> int:
    """Print all that is to be known of one suite; return how many answers are wrong."""
    suite = SUITES[name]
    there = fetch(suite, folder)
    _text, bare = pytest_of(suite, there, "-q", "-k", chosen, "-p", "no:leaklab")
    checks = ("-q", "-k", chosen, "--leakcheck=all")
    text, checked = pytest_of(suite, there, *checks, "--junitxml=one.xml")
    print(f"{suite.release}: {bare:.0f} s without checks, {checked:.0f} s with --leakcheck=all")
    print("  " + "\n  ".join(text.strip().splitlines()[-2:]))
    pytest_of(suite, there, "-k", chosen, "-p", "no:leaklab", "-p", "brute_force", "--brute-force=brute.json")
    one = outcomes(there, "one.xml")
    brute = {}
    for test, counted in json.loads((there / "brute.json").read_text("utf-8")).items():
        file, _, rest = test.partition("::")
        brute[".".join([file.removesuffix(".py").replace("/", "."), *rest.split("::")])] = counted
    n_wrong = 0
    for test, (outcome, seconds) in one.items():
        counted, stays = words_of(brute.get(test, {"not_called": "not collected"}))
        wrong = (outcome == "leak" and stays is False) or (outcome == "clean" and stays is True)
        n_wrong += wrong
        print(f"  {test[-70:]:<70} {outcome:<15} {float(seconds):6.2f} s  {counted}{'  DIFFERS' if wrong else ''}")
    pytest_of(suite, there, *checks, "-n", "2", "--junitxml=two.xml")
    two = outcomes(there, "two.xml")
    differ = [test for test in one if one[test][0] != two.get(test, ("missing", ""))[0]]
    print(f"  -n 2: {len(one) - len(differ)} of {len(one)} answers are the same {differ or ''}")
    return n_wrong + len(differ) + not_told(suite, there)


def report_planted(folder: Path) -> int:
    """Print what is found of the leaks in ``programs/harbour``; return how many answers are wrong."""
    suite = Suite("harbour==0", "test_harbour.py", ".")
    there = HERE / "programs" / "harbour"
    _text, bare = pytest_of(suite, there, "-q", "-p", "no:leaklab")
    junit = folder / "harbour.xml"
    _text, checked = pytest_of(suite, there, "-q", "--leakcheck=all", f"--junitxml={junit}")
    planted = {
        match[1]: f"{path.relative_to(there)}:{number}"
        for path in there.rglob("*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (match := re.search(r"# LEAK (test_\w+)$", line))
    }
    n_found = n_lines = n_false = 0
    for case in ET.parse(junit).iter("testcase"):  # noqa: S314 - pytest has written it
        name = (case.get("name") or "").partition("[")[0]
        said = {one.get("name"): one.get("value") for one in case.iter("property")}
        is_leak = said.get("leaklab_outcome") == "leak"
        text = "".join(failure.text or "" for failure in case.iter("failure")).partition("    fingerprint ")[0]
        has_line = planted.get(name, "") in text
        n_found += is_leak and name in planted
        n_lines += is_leak and name in planted and has_line
        n_false += is_leak and name not in planted
        if is_leak != (name in planted) or (is_leak and not has_line):
            print(f"  {name}: {said.get('leaklab_outcome')}, planted in {planted.get(name, 'no line')}\n{text}")
    print(
        f"harbour: {n_found} of {len(planted)} planted leaks are found, {n_lines} with their line; "
        f"{n_false} of the others are called a leak; {bare:.0f} s without checks, {checked:.0f} s with"
    )
    return len(planted) - n_found + n_false


def not_told(suite: Suite, there: Path) -> int:
    """Put a leak into a test, print what GitHub is told; return 1 if that is not the line of the leak."""
    file, behind = suite.leak_in
    if not file:
        return 0
    before = (there / file).read_text("utf-8")
    head, found, rest = before.partition(behind)
    if not found:
        print(f"  {file} has no {behind.strip()!r} any more")
        return 1
    (there / file).write_text(head + behind + LEAK + rest + KEPT, "utf-8")
    try:
        name = behind.partition("def ")[2].partition("(")[0]
        text, _seconds = pytest_of(suite, there, "-v", "--leakcheck=all", "-k", name, GITHUB_ACTIONS="true")
    finally:
        (there / file).write_text(before, "utf-8")
    line = (head + behind).count("\n") + 1
    lines = text.splitlines()
    if "= LEAKED =" in text:
        first = next(number for number, one in enumerate(lines) if "= LEAKED =" in one)
        print("\n".join(f"  | {one}" for one in lines[first : first + 24]))
    annotations = [one for one in lines if one.startswith("::error")]
    print("  a leak was put into line", line, *annotations, sep="\n  ")
    return not any(f"file={file},line={line}," in one for one in annotations)


def main() -> int:
    """Return an exit status: 1 if anything is not as brute force, one process or the line of the leak say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-k", metavar="EXPRESSION", default="", help="of pytest: only these tests")
    names = ", ".join((*SUITES, "harbour"))
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {names} (default: all)")
    wanted = parser.parse_args()
    wanted.folder.mkdir(parents=True, exist_ok=True)
    folder = wanted.folder.resolve()
    return int(
        sum(
            report_planted(folder) if name == "harbour" else report(name, folder, wanted.k)
            for name in wanted.suites or (*SUITES, "harbour")
        )
        > 0
    )


if __name__ == "__main__":
    sys.exit(main())
