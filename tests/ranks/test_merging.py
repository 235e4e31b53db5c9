"""Many answers become one: who is odd, what all have, what is missing; nothing is lost, and nothing made up."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from samples import ATTACK, bounded_check, clean_check, history_leak, only

import leaklab
from leaklab.cli import main
from leaklab.model.loop import GrowingPlace, Levels, LoopState, MonitorRecord, MonitorStatus
from leaklab.model.ranks import RankRecord, RanksRecord
from leaklab.ranks.gathering import write_rank

CLEAN, LEAK, BOUNDED = clean_check(), only(history_leak()), bounded_check()
INCONCLUSIVE = replace(CLEAN, verdict=replace(CLEAN.verdict, outcome=leaklab.Outcome.INCONCLUSIVE, reason="too noisy"))


def rank(number, check=None, *, of=4, **fields):
    return RankRecord(number, of, "node", 100 + number, check=check, **fields)


def moved(check, fingerprint, n_bytes=None):
    """The same leak in another place."""
    leak = check.leaks[0]
    rate = leak.bytes_per_run if n_bytes is None else n_bytes
    leak = replace(leak, fingerprint=fingerprint, bytes_per_run=rate)
    return replace(check, leaks=(leak,), verdict=replace(check.verdict, bytes_per_run=rate))


def monitor(state, *, place=None):
    return MonitorRecord(
        MonitorStatus(name="train", step=1_200, state=state, bytes_per_step=512.0 if place else 0.0),
        Levels(),
        places=() if place is None else (place,),
    )


def growing(state):
    return GrowingPlace("f1", state, 200, 300, 512.0, leak=replace(LEAK.leaks[0], fingerprint="f1"))


def first_line(report):
    return " ".join(str(report).split("\n\n")[0].split())


def table_rows(report):
    return [row.split()[0] for row in str(report).split("\n\n")[1].splitlines()[1:] if row[2] != " "]


def test_one_leaking_rank_is_the_first_thing_told_and_the_others_are_one_row():
    report = leaklab.merge([rank(n, LEAK if n == 2 else CLEAN, of=64) for n in range(64)])
    assert first_line(report).startswith("LEAK in 1 of 64 ranks (rank 2): ")
    assert report.odd == (2,)
    assert table_rows(report) == ["2", "0-1,"]
    assert report.leaks[0].ranks == (2,)
    assert "in rank 2 only" in str(report)


def test_where_all_leak_the_same_there_is_one_row_and_nobody_is_odd():
    report = leaklab.merge([rank(n, LEAK) for n in range(4)])
    assert first_line(report).startswith("LEAK in all 4 ranks: ")
    assert report.odd == ()
    assert table_rows(report) == ["0-3"]
    assert "in all 4 ranks" in str(report)


def test_where_nobody_leaks_the_answer_is_clean():
    report = leaklab.merge([rank(n, CLEAN) for n in range(4)])
    assert first_line(report) == "CLEAN in all 4 ranks"
    assert not report.leaked
    assert report.is_proven


def test_the_rank_that_does_not_leak_is_the_odd_one_where_all_others_do():
    report = leaklab.merge([rank(n, CLEAN if n == 1 else LEAK) for n in range(4)])
    assert report.odd == (1,)
    assert table_rows(report)[0] == "1"
    assert first_line(report).startswith("LEAK in 3 of 4 ranks (ranks 0, 2-3): ")


def test_two_leaks_are_told_apart_by_their_fingerprints():
    other = moved(LEAK, "elsewhere")
    both = replace(LEAK, leaks=(*LEAK.leaks, *other.leaks))
    report = leaklab.merge([rank(0, LEAK), rank(1, both), rank(2, LEAK), rank(3, LEAK)])
    shared = {one.leak.fingerprint: one.ranks for one in report.leaks}
    assert shared == {"elsewhere": (1,), **{leak.fingerprint: (0, 1, 2, 3) for leak in LEAK.leaks}}
    assert report.odd == (1,)


def test_rates_of_one_leak_that_differ_are_told_from_where_to_where():
    report = leaklab.merge([rank(n, moved(LEAK, "same", (n + 1) * 1024.0)) for n in range(4)])
    assert table_rows(report) == ["0-3"]
    assert "1.00 KiB to 4.00 KiB a run" in str(report)


def test_a_rank_without_a_verdict_is_neither_clean_nor_passed_over():
    report = leaklab.merge([rank(n, INCONCLUSIVE if n == 3 else CLEAN) for n in range(4)])
    assert first_line(report) == "NO VERDICT no leak in 3 of 4 ranks, but rank 3 has no verdict: too noisy"
    assert not report.is_proven
    assert not report.leaked


def test_only_is_not_said_where_another_rank_proves_nothing():
    report = leaklab.merge([rank(0, LEAK), rank(1, INCONCLUSIVE), rank(2, CLEAN), rank(3, CLEAN)])
    assert "in rank 0 only" not in str(report)
    assert "in rank 0; rank 1 came to no verdict" in " ".join(str(report).split())


def test_a_place_that_is_full_in_one_rank_is_told_beside_the_leak():
    full = replace(BOUNDED, bounded=tuple(replace(leak, fingerprint="f") for leak in BOUNDED.bounded))
    report = leaklab.merge([rank(0, moved(LEAK, "f"), of=2), rank(1, full, of=2)])
    assert "in rank 0; in rank 1 it stopped growing" in " ".join(str(report).split())


def test_a_partial_check_that_found_nothing_is_no_proof():
    failed = replace(CLEAN, failure="ValueError in run 3")
    report = leaklab.merge([rank(0, CLEAN, of=2), rank(1, failed, of=2, error="ValueError: nope")])
    assert first_line(report) == "NO VERDICT no leak in 1 of 2 ranks, but rank 1 has no verdict: ValueError: nope"


def test_a_missing_rank_is_a_row_of_its_own():
    report = leaklab.merge([rank(0, CLEAN), rank(1, CLEAN), rank(3, CLEAN)])
    assert first_line(report) == "NO VERDICT no leak in 3 of 4 ranks, but rank 2 has no verdict: nothing came from it"
    assert table_rows(report) == ["2", "0-1,"]


def test_without_a_world_size_a_gap_is_said():
    report = leaklab.merge([rank(n, CLEAN, of=0) for n in (0, 3)])
    assert report.record.notes == ("there is an answer of rank 3, but none of ranks 1-2",)


def test_two_answers_of_one_rank_are_both_kept_and_the_same_twice_is_one():
    report = leaklab.merge([rank(0, CLEAN, of=1), rank(0, LEAK, of=1)])
    assert [one.rank for one in report.record.ranks] == [0, 0]
    assert report.leaked
    assert report.record.notes[0].startswith("rank 0 sent 2 different answers")
    report = leaklab.merge([rank(0, CLEAN, of=1), rank(0, CLEAN, of=1)])
    assert len(report.record.ranks) == 1
    assert "came twice" in report.record.notes[0]


def test_answers_of_groups_of_two_sizes_are_doubted():
    report = leaklab.merge([rank(0, CLEAN, of=1), rank(1, CLEAN, of=2)])
    assert "groups of 1 and 2 processes" in report.record.notes[0]


def test_exceptions_and_texts_that_are_no_records_are_rows():
    report = leaklab.merge({"a": leaklab.LeakReport(LEAK), "b": OSError("gone\naway"), "c": "{", "d": CLEAN_JSON})
    assert "b no answer OSError: gone" in " ".join(str(report).split())
    assert "c no answer what it sent cannot be used" in " ".join(str(report).split())
    assert [one.label for one in report.record.ranks] == ["a", "b", "c", "d"]
    assert report.reports.keys() == {0, 3}


CLEAN_JSON = leaklab.LeakReport(CLEAN).to_json()


def test_a_list_of_workers_is_numbered():
    report = leaklab.merge([CLEAN_JSON, leaklab.LeakReport(LEAK), CLEAN_JSON])
    assert first_line(report).startswith("LEAK in 1 of 3 workers (worker 1): ")


def test_what_is_no_answer_is_refused():
    with pytest.raises(
        TypeError, match=r"merge takes what leaklab\.remote\.check returned, reports or exceptions, not in"
    ):
        leaklab.merge([3])
    with pytest.raises(leaklab.ReportError, match="there is nothing to merge"):
        leaklab.merge([])


def test_loops_are_merged_by_their_states():
    leaking = monitor(LoopState.LEAK, place=growing(LoopState.LEAK))
    steady = monitor(LoopState.STEADY)
    report = leaklab.merge([rank(n, monitor=leaking if n == 1 else steady) for n in range(4)])
    assert first_line(report).startswith("LEAK in 1 of 4 ranks (rank 1): ")
    assert "every step" in first_line(report)
    assert "512 B a step" in str(report)
    assert report.odd == (1,)


def test_a_loop_that_grows_is_not_called_a_leak():
    grows = monitor(LoopState.GROWING, place=growing(LoopState.GROWING))
    report = leaklab.merge([rank(n, monitor=grows if n == 1 else monitor(LoopState.STEADY)) for n in range(4)])
    assert first_line(report).startswith("GROWING in 1 of 4 ranks (rank 1): ")
    assert not report.leaked
    assert not report.is_proven


def test_every_form_says_the_same_and_the_record_makes_the_round_trip(tmp_path):
    report = leaklab.merge([rank(0, LEAK), rank(1, CLEAN), rank(2, monitor=monitor(LoopState.STEADY)), rank(3)])
    assert leaklab.RanksReport.from_json(report.to_json()) == report
    for name in ("ranks.json", "ranks.html"):
        report.save(tmp_path / name)
        assert leaklab.load(tmp_path / name) == report
    frame = report.to_frame()
    assert list(frame.index) == [0, 1, 2, 3]
    assert list(frame["verdict"]) == ["leak", "clean", "steady", "no answer"]
    assert frame.loc[0, "n_leaks"] == len(LEAK.leaks)


def test_damaged_and_other_versions_are_refused_in_a_sentence():
    text = leaklab.merge([rank(0, CLEAN, of=1)]).to_json()
    for damaged, words in (
        (text[:-9], "this is not JSON, or the file is damaged"),
        (text.replace('"schema":1', '"schema":9', 1), "report of schema 9, made by a newer leaklab"),
        (text.replace('"world_size":1', '"world_size":"x"'), "was changed after leaklab wrote it"),
        (text.replace('"ranks":[', '"ranks":[3,'), "was changed after leaklab wrote it"),
        (text.replace('"leaklab ranks"', '"something"'), "not a file of leaklab"),
    ):
        with pytest.raises(leaklab.ReportError, match=words):
            leaklab.RanksReport.from_json(damaged)
    fields = json.loads(text)
    fields["ranks"][0]["check"]["schema"] = 7
    with pytest.raises(leaklab.ReportError, match="the check of rank 0 was made by another version of leaklab"):
        leaklab.RanksReport.from_json(json.dumps(fields))


def test_nothing_of_a_record_is_markup():
    hostile = replace(
        LEAK, leaks=tuple(replace(leak, holder=ATTACK, what=ATTACK, advice=ATTACK) for leak in LEAK.leaks)
    )
    record = RankRecord(0, 3, ATTACK, 1, check=hostile)
    report = leaklab.RanksReport(
        RanksRecord((record, rank(1, error=ATTACK), RankRecord(2, 3, "", 0, ATTACK)), (ATTACK,))
    )
    shown = report._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert report.to_html().count("<script") == 1  # the record that the page carries
    assert "\x1b" not in str(leaklab.merge({"\x1b[31m": CLEAN_JSON}))


def test_a_redacted_check_stays_redacted():
    from leaklab.render.json import redacted

    secret = replace(LEAK, notes=("the key 'patient 17' is new",))
    report = leaklab.merge([rank(0, redacted(secret), of=1)])
    for form in (str(report), report.to_html(), report.to_json()):
        assert "patient" not in form


def test_files_of_ranks_are_merged(tmp_path, capsys):
    for number in (0, 1, 3):
        write_rank(tmp_path, rank(number, LEAK if number == 1 else CLEAN))
    (tmp_path / "config.json").write_text("{}")
    assert main(["merge", str(tmp_path), "--html", str(tmp_path / "a.html"), "--json", str(tmp_path / "a.txt")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("LEAK  in 1 of 4 ranks (rank 1): ")
    assert "nothing came from it" in printed
    assert "these files were ignored, because they are not named rank_N.json: config.json" in printed
    assert leaklab.load(tmp_path / "a.html") == leaklab.merge(tmp_path) == leaklab.merge(tmp_path / "a.txt")
    assert main(["merge", str(tmp_path), "--fail-on-leak"]) == 1


def test_what_grows_so_far_is_no_leak_yet_and_fails_on_request(tmp_path, capsys):
    grows = monitor(LoopState.GROWING, place=growing(LoopState.GROWING))
    for number in (0, 1):
        write_rank(tmp_path, rank(number, monitor=grows, of=2))
    for options, status, words in (
        ((), 0, ""),
        (("--fail-on-leak",), 0, "which is no leak yet, and does not fail; --fail-on-growing lets it fail"),
        (("--fail-on-growing",), 1, "which fails. Whether it goes on shows at twice the steps"),
    ):
        assert main(["merge", str(tmp_path), *options]) == status
        told = capsys.readouterr().err
        assert words in told
        assert bool(told) is bool(options)
    write_rank(tmp_path, rank(1, LEAK, of=2))
    assert main(["merge", str(tmp_path), "--fail-on-growing"]) == 1
    assert "a rank leaks (--fail-on-growing)" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_its_ranks_answer(tmp_path):
    write_rank(tmp_path, rank(0, CLEAN, of=2))
    (tmp_path / "rank_1.json").write_bytes(b"\xff\xfe{")
    report = leaklab.merge(tmp_path)
    assert re.search(
        r"rank_1\.json cannot be used: .* is not a file that leaklab can open", report.record.ranks[1].error
    )
    assert not report.is_proven


def test_reports_saved_by_hand_are_merged_by_the_numbers_in_their_names(tmp_path):
    for number in (0, 1, 10):
        leaklab.LeakReport(LEAK if number == 10 else CLEAN).to_json(tmp_path / f"rank_{number}.json")
    report = leaklab.merge(tmp_path)
    assert report.odd == (10,)
    assert report.record.notes == ("there is an answer of rank 10, but none of ranks 2-9",)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "it has no .json file"),
        (("a.json", "b.json"), r"none of its files is a report of leaklab \(a.json, b.json\)"),
    ],
)
def test_a_folder_with_nothing_to_merge_is_refused(tmp_path, names, words):
    for name in names:
        (tmp_path / name).write_text("{}")
    with pytest.raises(leaklab.ReportError, match=words):
        leaklab.merge(tmp_path)


def test_a_missing_folder_is_refused(tmp_path, capsys):
    assert main(["merge", str(tmp_path / "missing")]) == 1
    assert "cannot read the folder" in capsys.readouterr().err
