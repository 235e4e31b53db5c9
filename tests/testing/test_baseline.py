"""The file of known leaks: what is written is read, and what is wrong in it is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.errors import ReportError
from leaklab.testing import assert_no_leak
from leaklab.testing.baseline import read_baseline, stale_entries, write_baseline

NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=20).filter(
    lambda name: not name.startswith("#")
)


@given(
    st.dictionaries(NAMES, st.dictionaries(st.text("0123456789abcdef", min_size=12, max_size=12), NAMES, min_size=1))
)
def test_what_is_written_is_read(tmp_path_factory, known):
    path = tmp_path_factory.mktemp("baseline") / "known.txt"
    write_baseline(path, known)
    assert read_baseline(path) == known


def test_entries_are_stale_only_for_tests_that_were_checked():
    known = {"a": {"1": "x", "2": "y"}, "b": {"3": "z"}}
    assert stale_entries(known, {"a": {"1": ""}}) == [("a", "2")]


@pytest.mark.parametrize(
    ("text", "words"), [("    0123  x\n", "line 1 .* is a fingerprint before any test"), (None, "cannot read")]
)
def test_a_file_that_cannot_be_understood_is_refused(tmp_path, text, words):
    path = tmp_path / "known.txt"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(ReportError, match=words):
        read_baseline(path)


@pytest.mark.untraced
def test_the_assertion_fails_with_the_report_and_accepts_what_is_known():
    kept = []
    with pytest.raises(AssertionError, match="kept") as caught:
        assert_no_leak(lambda: kept.append([0]), runs=12)
    fingerprint = str(caught.value).partition("  id          ")[2].split()[0]
    assert assert_no_leak(lambda: kept.append([0]), runs=12, known=[fingerprint]).leaked
    assert not assert_no_leak(lambda: [0], runs=8).leaked
