"""What `--redact` hides, and what it leaves."""

from __future__ import annotations

from dataclasses import replace

import samples

from leaklab.model import RootPath, Status, Step
from leaklab.render.json import redacted
from leaklab.reports.check import LeakReport
from leaklab.reports.check_text import render_text
from leaklab.reports.notebook_export import render_markdown


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
