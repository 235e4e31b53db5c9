"""The leaks of a suite as the hosts of code read them: GitHub's commands, GitLab's code quality, SARIF."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leaklab.files import write_bytes
from leaklab.model import Leak
from leaklab.model.sentences import growth_sentence
from leaklab.render.words import CAUSES
from leaklab.version import __version__

_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)\b")
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True, slots=True)
class PlacedLeak:
    """A leak that fails a test.

    Attributes:
        words: What it is, one sentence.
        cause: The slug of its cause.
        fingerprint: Its own.
        file: Where it comes from; empty if no line is known.
        line: The number of that line, 0 if none is known.
    """

    words: str
    cause: str
    fingerprint: str
    file: str = ""
    line: int = 0

    @classmethod
    def of(cls, leak: Leak) -> PlacedLeak:
        """Return what is to be told of *leak*: the first of its lines."""
        place = next((match for site in leak.sites if (match := _PLACE.match(site))), None)
        file, line = ("", 0) if place is None else (place["file"], int(place["line"]))
        return cls(growth_sentence(leak), leak.cause, leak.fingerprint, file, line)

    def within(self, root: Path, test: tuple[str, int]) -> PlacedLeak:
        """Return it with the path of its file below *root*, or with that of the *test* where it has none there."""
        file = Path(self.file).resolve()
        if self.file and file.is_file() and file.is_relative_to(root):
            return replace(self, file=file.relative_to(root).as_posix())
        return replace(self, file=test[0].replace(os.sep, "/"), line=test[1])


def github_command(leak: PlacedLeak) -> str:
    """Return the command that puts *leak* on its line in a pull request."""
    return f"::error file={_escaped(leak.file)},line={max(leak.line, 1)},title=leak::{_escaped(leak.words)}"


def _escaped(text: str) -> str:
    """Return *text* as a value of a workflow command."""
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"), (":", "%3A"), (",", "%2C")):
        text = text.replace(character, code)
    return text


def code_quality(leaks: Sequence[PlacedLeak]) -> list[dict[str, Any]]:
    """Return *leaks* as GitLab's code quality report: a list of issues, one for each leak.

    Source: the format of GitLab's documentation, "Code Quality report format".
    """
    return [
        {
            "description": leak.words,
            "check_name": f"leaklab/{leak.cause}",
            "fingerprint": leak.fingerprint,
            "severity": "major",
            "location": {"path": leak.file, "lines": {"begin": max(leak.line, 1)}},
        }
        for leak in _each_once(leaks)
    ]


def sarif(leaks: Sequence[PlacedLeak]) -> dict[str, Any]:
    """Return *leaks* as one run of the Static Analysis Results Interchange Format, 2.1.0 (OASIS)."""
    once = _each_once(leaks)
    rules = sorted({leak.cause for leak in once})
    return {
        "$schema": _SARIF,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "leaklab", "version": __version__, "rules": list(map(_rule, rules))}},
                "results": [
                    {
                        "ruleId": leak.cause,
                        "ruleIndex": rules.index(leak.cause),
                        "level": "error",
                        "message": {"text": leak.words},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": leak.file, "uriBaseId": "%SRCROOT%"},
                                    "region": {"startLine": max(leak.line, 1)},
                                }
                            }
                        ],
                        "partialFingerprints": {"leaklab/v1": leak.fingerprint},
                    }
                    for leak in once
                ],
            }
        ],
    }


def _rule(cause: str) -> Mapping[str, Any]:
    return {"id": cause, "shortDescription": {"text": f"Memory leak: {CAUSES.get(cause, cause)}"}}


def _each_once(leaks: Iterable[PlacedLeak]) -> list[PlacedLeak]:
    """Return each leak once: many tests may have it, and hosts want every fingerprint once."""
    return list({leak.fingerprint: leak for leak in reversed(list(leaks))}.values())[::-1]


def write_files(leaks: Sequence[PlacedLeak], gitlab: Path | None, sarif_file: Path | None) -> None:
    """Write the files that are wanted.

    Raises:
        ReportError: if one cannot be written.
    """
    for path, content in ((gitlab, code_quality(leaks)), (sarif_file, sarif(leaks))):
        if path is not None:
            write_bytes(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
