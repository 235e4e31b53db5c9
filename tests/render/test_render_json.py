"""A record as JSON and back, and what --redact hides of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import samples

from leaklab.errors import ReportError
from leaklab.model import RootPath, Status, Step
from leaklab.render.json import from_json, redacted, to_json
from leaklab.reports.check import LeakReport
from leaklab.reports.check_text import render_text
from leaklab.reports.notebook_export import render_markdown

CHECKS = {
    "leak": samples.leaky_check(cuda=True),
    "clean": samples.clean_check(),
    "failed": samples.failed_check(),
    "empty": samples.empty_check(),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_survives_the_round_trip(name):
    assert from_json(to_json(CHECKS[name])) == CHECKS[name]


def test_bytes_are_read_like_text():
    assert from_json(to_json(samples.clean_check()).encode()) == samples.clean_check()


def test_a_lone_surrogate_is_written_as_an_escape():
    check = replace(samples.clean_check(), notes=("\udc80",))
    assert from_json(to_json(check)).notes == ("\\udc80",)


def test_the_file_says_first_what_it_is():
    assert to_json(samples.clean_check()).startswith('{"format":"leaklab check",')


def test_outcomes_are_written_as_words():
    assert json.loads(to_json(samples.clean_check()))["verdict"]["outcome"] == "clean"


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), float("-inf")])
def test_a_figure_that_json_cannot_say_is_refused_with_its_place(figure):
    leak = replace(samples.hook_leak(), bytes_per_run=figure)
    with pytest.raises(ReportError, match=r"^check\.leaks\[0\]\.bytes_per_run is "):
        to_json(replace(samples.leaky_check(), leaks=(leak,)))


@pytest.mark.parametrize("damaged", ["", "{", '{"format": "leaklab check", "schema": 1', b"\xff\xfe", "\udc80"])
def test_damaged_json_is_named_so(damaged):
    with pytest.raises(ReportError, match=r"this is not JSON, or the file is damaged: .*report\.to_json"):
        from_json(damaged)


@pytest.mark.parametrize("other", ["{}", "[]", "3", '"x"', '{"format": 3}', '{"format": "notebook", "schema": 1}'])
def test_json_of_something_else_is_named_so(other):
    with pytest.raises(ReportError, match=r"not a file of leaklab: .*report\.to_json"):
        from_json(other)


def with_change(**changes) -> str:
    return json.dumps({**json.loads(to_json(samples.clean_check())), **changes})


def test_a_newer_schema_asks_for_an_upgrade():
    with pytest.raises(ReportError, match="report of schema 99, made by a newer leaklab; this one reads 1: upgrade"):
        from_json(with_change(schema=99))


def test_an_older_schema_asks_for_a_new_check():
    with pytest.raises(ReportError, match=r"report of schema 0, made by an older leaklab; .*: run the check again"):
        from_json(with_change(schema=0))


@pytest.mark.parametrize(
    "changes",
    [{"verdict": 3}, {"runs": [{}]}, {"settings": {"max_runs": 1}}, {"verdict": {"outcome": "maybe"}}],
)
def test_a_record_with_a_wrong_field_is_refused(changes):
    with pytest.raises(ReportError, match="was changed after leaklab wrote it: "):
        from_json(with_change(**changes))


def secret_check():
    steps = (
        Step("users", "dict", "3 entries", Status.EXPECTED),
        Step("[4532019]", "dict", "password 'hunter2'", Status.EXPECTED),
        Step("['iban DE02']", "list", "7 entries", Status.EXPECTED),
        Step("[3]", "torch.Tensor", "(5,) float32 cpu", Status.LEAKED, "seen at '/home/alice/x.py'"),
    )
    leak = replace(
        samples.history_leak(),
        path=RootPath("local 'batch' of fit()", steps),
        holder="users[4532019]['iban DE02']",
        holders=("users[4532019]['iban DE02']", "other['iban DE02']"),
        advice="The cell's users[4532019]['iban DE02'] isn't bounded.\n    before: save(f\"{x} DE02\")",
        sites=("/home/alice/secret project/train.py:3",),
    )
    return replace(samples.only(leak), notes=("cut off: ['iban DE0",))


def test_a_redacted_check_keeps_names_and_shapes_and_hides_what_the_data_says():
    check = redacted(secret_check())
    text = render_text(check) + LeakReport(check).to_json() + render_markdown(check)
    for secret in ("4532019", "iban", "DE0", "hunter2", "entries,", "alice", "password"):
        assert secret not in text
    leak = check.leaks[0]
    assert [step.kind for step in leak.path.steps] == ["dict", "dict", "list", "torch.Tensor"]
    assert leak.path.root == "local 'batch' of fit()"
    assert leak.path.steps[3].reference == "[3]"
    assert leak.what == "torch.Tensor (64, 128) float32 cpu"
    assert leak.fingerprint == samples.history_leak().fingerprint
    assert leak.sites == ("train.py:3",)


def test_what_is_hidden_has_the_same_number_wherever_it_stands():
    leak = redacted(secret_check()).leaks[0]
    key, word = leak.path.steps[1].reference, leak.path.steps[2].reference
    assert key != word
    assert leak.holder == f"users{key}{word}"
    assert leak.holders[1] == f"other{word}"
    assert leak.advice.startswith(f"The cell's users{key}{word} isn't bounded.\n")


def test_a_redacted_check_compares_with_an_open_one_by_its_fingerprint():
    check = samples.only(samples.history_leak())
    lines = LeakReport(check).compare(LeakReport(redacted(check))).lines
    assert [line.rsplit(": ", 1)[1] for line in lines] == ["still leaks"]
