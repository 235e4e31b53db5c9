"""Two snapshots and more, compared by call stack and judged."""

import math

import pytest
from snapshot_writer import KEPT, MODEL, STEP, Card, Training, snapshot, stack, write

import leaklab
from leaklab.ask.cuda import compare_cuda_snapshots, find_snapshots
from leaklab.cuda.schema import memory_of
from leaklab.errors import LeaklabError
from leaklab.model import Outcome
from leaklab.model.cuda import StackChange, StackKey
from leaklab.reports.cuda import CudaSnapshot


def opened(card, name="a.pickle", **more):
    return CudaSnapshot(memory_of(snapshot(card, **more), name))


def ladder(levels, frames=KEPT, names=None):
    """Snapshots of a program that holds so many bytes at one stack, in blocks that stay until it holds less."""
    card, unit, held, found = Card(), math.gcd(*levels), [], []
    card.alloc(4_000_000, MODEL)
    for number, level in enumerate(levels):
        while len(held) * unit < level:
            held.append(card.alloc(unit, frames))
        while len(held) * unit > level:
            card.free(held.pop())
        found.append(opened(card, names[number] if names else f"at_{number * 10}.pickle"))
    return found


def test_stacks_are_new_grown_shrunk_gone_or_the_same():
    before, after = Card(), Card()
    for frames, first, last in (("a", 0, 7), ("b", 7, 9), ("c", 9, 7), ("d", 7, 0), ("e", 7, 7)):
        for card, size in ((before, first), (after, last)):
            if size:
                card.alloc(size * 1000, stack(f"/p/{frames}.py:1 f"))
    series = compare_cuda_snapshots([opened(before, "1.pickle"), opened(after, "2.pickle")]).series
    assert {s.label[0]: (s.change, s.growth_bytes) for s in series.stacks} == {
        "a": (StackChange.NEW, 7000),
        "b": (StackChange.GROWN, 2000),
        "c": (StackChange.SHRUNK, -2000),
        "d": (StackChange.GONE, -7000),
        "e": (StackChange.SAME, 0),
    }
    assert series.growth_bytes == 0


def test_growth_of_a_stack_that_was_there_before_is_seen():
    series = compare_cuda_snapshots(ladder([2 << 20, 50 << 20])).series
    assert (series.stacks[0].label.split()[0], series.growth_bytes) == ("metrics.py:17", 48 << 20)


def test_two_snapshots_never_make_a_leak():
    comparison = compare_cuda_snapshots(ladder([1 << 20, 9 << 20]))
    assert comparison.verdict.outcome is Outcome.INCONCLUSIVE
    assert "take four or more" in comparison.verdict.reason


@pytest.mark.parametrize(
    ("levels", "outcome"),
    [
        ([100_000, 200_000, 300_000], Outcome.INCONCLUSIVE),
        ([100_000, 200_000, 300_000, 400_000], Outcome.LEAK),
        ([0, 100_000, 200_000, 300_000], Outcome.LEAK),
        ([100_000, 300_000, 500_000, 500_000], Outcome.BOUNDED),
        ([100_000, 300_000, 300_000, 300_000], Outcome.BOUNDED),
        ([100_000, 500_000, 600_000], Outcome.INCONCLUSIVE),
        ([300_000, 300_000, 300_000], Outcome.CLEAN),
        ([300_000, 200_000, 100_000], Outcome.CLEAN),
        ([100_000, 400_000, 100_000], Outcome.BOUNDED),
    ],
)
def test_ladder_is_judged_as_cells_are(levels, outcome):
    comparison = compare_cuda_snapshots(ladder(levels))
    assert comparison.verdict.outcome is outcome
    assert comparison.leaked is (outcome is Outcome.LEAK)


def test_rate_is_per_step_and_the_projection_reaches_for_the_card():
    comparison = compare_cuda_snapshots(ladder([0, 1_000_000, 2_000_000, 3_000_000]), card_bytes=106_000_896)
    verdict = comparison.verdict
    assert verdict.bytes_per_run == 100_000  # 1 MB in ten steps
    # 7 MB are live, in a segment of 20 MiB and one of 2 MiB for blocks up to 1 MiB, and one more
    reserved = comparison.series.devices[-1][0].reserved_bytes
    assert verdict.full_after_runs == (106_000_896 - reserved) // 100_000
    assert comparison.series.full_at_step == 30 + verdict.full_after_runs
    assert "every step leaves 97.7 KiB at metrics.py:17 update" in verdict.reason


def test_card_size_recorded_in_the_files_is_used():
    cards = {"leaklab": {"card_bytes": {"cuda:0": 200_000_000}, "step": 0}}
    found, card = [], Card()
    for number in range(4):
        card.alloc(1_000_000, KEPT)
        cards["leaklab"]["step"] = number * 5
        found.append(opened(card, f"{number}.pickle", leaklab=dict(cards["leaklab"])))
    series = compare_cuda_snapshots(found).series
    assert (series.card_bytes, series.at_steps) == (200_000_000, (0, 5, 10, 15))
    assert series.verdict.bytes_per_run == 200_000


def test_steps_are_numbered_where_the_names_do_not_tell_them():
    series = compare_cuda_snapshots(ladder([1000, 2000, 3000, 4000], names=["b", "a", "d", "c"])).series
    assert (series.names, series.at_steps, series.has_steps) == (("b", "a", "d", "c"), (0, 1, 2, 3), False)
    assert "every snapshot leaves" in series.verdict.reason


def test_growth_that_other_stacks_make_up_for_is_no_leak():
    card, found = Card(), []
    others = [card.alloc(60_000, STEP) for _ in range(5)]
    for number in range(5):
        card.alloc(50_000, KEPT)
        card.free(others.pop())
        found.append(opened(card, f"s_{number}.pickle"))
    verdict = compare_cuda_snapshots(found).verdict
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "other stacks shrink" in verdict.reason


@pytest.mark.parametrize(("n_snapshots", "outcome"), [(4, Outcome.INCONCLUSIVE), (6, Outcome.LEAK)])
def test_growth_under_ever_new_stacks_is_a_leak_once_it_is_no_warm_up(n_snapshots, outcome):
    card, found = Card(), []
    for number in range(n_snapshots):
        card.alloc(100_000, stack(f"/var/torchinductor_me/{number}/generated_{number}.py:1 call"))
        found.append(opened(card, f"s_{number}.pickle"))
    verdict = compare_cuda_snapshots(found).verdict
    assert verdict.outcome is outcome
    assert "leaves 97.7 KiB at call stacks that are new in each snapshot" in verdict.reason


def moved(frames, by, folder):
    return [
        {**f, "line": f["line"] + by, "filename": f["filename"].replace("/home/me", folder)} if f["line"] else f
        for f in frames
    ]


def test_moved_lines_and_paths_are_matched_by_function_and_said_so():
    before, after = Card(), Card()
    for frames in (MODEL, STEP, KEPT):
        before.alloc(1_000_000, frames)
        after.alloc(1_000_000, moved(frames, 3, "/data/you"))
    series = compare_cuda_snapshots([opened(before), opened(after)]).series
    assert series.key is StackKey.PROJECT
    assert [s.change for s in series.stacks] == [StackChange.SAME] * 3
    assert "100% of the bytes with a stack match that way, only 0% line by line" in series.key_reason


def test_unchanged_lines_are_compared_line_by_line():
    series = compare_cuda_snapshots(ladder([1000, 2000, 3000])).series
    assert (series.key, series.key_reason) == (
        StackKey.EXACT,
        "compared line by line: 100% of the bytes with a stack match",
    )


@pytest.mark.parametrize(("key", "n_stacks"), [("exact", 4), ("project", 2)])
def test_key_that_is_asked_for_is_used(key, n_stacks):
    before, after = Card(), Card()
    for frames in (MODEL, KEPT):
        before.alloc(1000, frames)
        after.alloc(1000, moved(frames, 1, "/home/me"))
    comparison = compare_cuda_snapshots([opened(before), opened(after)], key=key)
    assert (comparison.key.value, len(comparison.stacks)) == (key, n_stacks)
    assert "as asked" in comparison.key_reason


def test_two_lines_of_one_function_are_one_stack_by_project_and_two_by_exact():
    card = Card()
    card.alloc(1000, stack("/p/model.py:8 forward"))
    card.alloc(3000, stack("/p/model.py:9 forward"))
    read = opened(card)
    assert read.by_stack("exact")["requested_bytes"].tolist() == [3000, 1000]
    by_project = read.by_stack("project")
    assert by_project["requested_bytes"].tolist() == [4000]
    assert by_project["stack"].tolist() == ["model.py:9 forward (+1 more)"]


def test_blocks_without_a_stack_are_lines_of_their_own_by_pool_and_size():
    before, after = Card(), Card()
    for card, n_blocks in ((before, 2), (after, 5)):
        for _ in range(n_blocks):
            card.alloc(8192, [])
        card.alloc(4096, [])
    series = compare_cuda_snapshots([opened(before), opened(after)]).series
    assert [(s.label, s.growth_bytes, s.n_blocks) for s in series.stacks] == [
        ("(no stack) blocks of 8.00 KiB, small", 3 * 8192, (2, 5)),
        ("(no stack) blocks of 4.00 KiB, small", 0, (1, 1)),
    ]
    assert "no snapshot has call stacks" in series.key_reason


def test_leak_of_a_training_loop_is_found_in_its_files(tmp_path):
    training = Training(kept_bytes=3_000_000)
    files = [training.run(10).dump(tmp_path / f"snap_{training.n_steps}.pickle") for _ in range(4)]
    comparison = leaklab.compare_cuda_snapshots(files)
    assert comparison.leaked
    assert comparison.verdict.bytes_per_run == 3_000_000
    assert comparison.stacks.iloc[0]["stack"] == "metrics.py:17 update <- train.py:44 step"
    assert comparison.series.at_steps == (10, 20, 30, 40)


def test_loop_that_keeps_nothing_is_clean(tmp_path):
    training = Training(kept_bytes=0)
    files = [training.run(10).dump(tmp_path / f"snap_{training.n_steps}.pickle") for _ in range(3)]
    assert leaklab.compare_cuda_snapshots(files).verdict.outcome is Outcome.CLEAN


def test_files_are_found_by_pattern_in_the_order_of_their_numbers(tmp_path):
    for step in (100, 9, 50):
        write(tmp_path / f"snap_{step}.pickle", snapshot(Card()))
    found = find_snapshots([tmp_path / "snap_*.pickle"])
    assert [file.name for file in found] == ["snap_9.pickle", "snap_50.pickle", "snap_100.pickle"]
    with pytest.raises(LeaklabError, match="there is no file"):
        find_snapshots([tmp_path / "other_*.pickle"])


def test_one_snapshot_and_senseless_arguments_are_refused():
    one = ladder([1000])
    with pytest.raises(leaklab.SnapshotError, match="two or more snapshots, not 1"):
        compare_cuda_snapshots(one)
    with pytest.raises(ValueError, match="must be 'auto', 'exact' or 'project', not 'line'"):
        compare_cuda_snapshots(one * 2, key="line")
    with pytest.raises(ValueError, match="positive number of bytes, not 0"):
        compare_cuda_snapshots(one * 2, card_bytes=0)
    with pytest.raises(ValueError, match="must be 'exact' or 'project', not 'auto'"):
        one[0].by_stack("auto")


def test_files_of_one_name_keep_their_folders(tmp_path):
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        files.append(write(tmp_path / folder / "s.pickle", snapshot(Card())))
    names = leaklab.compare_cuda_snapshots(files).series.names
    assert names == (f"0: {files[0]}", f"1: {files[1]}")


@pytest.mark.parametrize("trace", [True, False])
def test_files_of_one_run_are_put_in_order_and_it_is_said(tmp_path, trace):
    training = Training(kept_bytes=3_000_000)
    files = [
        write(tmp_path / f"snap_{training.run(50).n_steps}.pickle", snapshot(training.card, trace=trace))
        for _ in range(4)
    ]
    comparison = leaklab.compare_cuda_snapshots(sorted(files, key=str))  # 100, 150, 200, 50
    assert comparison.series.names == ("snap_50.pickle", "snap_100.pickle", "snap_150.pickle", "snap_200.pickle")
    assert comparison.leaked
    by = "the times in their traces" if trace else "the numbers in their names"
    (note,) = [note for note in comparison.notes if "another order" in note]
    assert note.endswith(f"they are compared by {by}")


def test_numbers_that_contradict_the_times_are_not_used(tmp_path):
    training = Training(kept_bytes=3_000_000)
    files = [training.run(10).dump(tmp_path / f"{name}.pickle") for name in ("at_3", "at_1", "at_2", "at_4")]
    comparison = leaklab.compare_cuda_snapshots(files)
    assert (comparison.series.names[0], comparison.series.has_steps) == ("at_3.pickle", False)
    assert "(3, 1, 2, 4) contradict the times in their traces" in comparison.notes[0]
    assert comparison.leaked


def test_files_of_different_runs_stay_in_the_order_given():
    found = []
    for number, name in enumerate(("run_2.pickle", "run_1.pickle")):
        card = Card()
        card._top += (1 - number) << 36
        card.alloc(1_000_000 * (number + 1), KEPT)
        found.append(opened(card, name))
    series = compare_cuda_snapshots(found).series
    assert (series.names, series.notes) == (("run_2.pickle", "run_1.pickle"), ())


def test_runs_that_share_no_memory_are_no_leak():
    found = []
    for number in range(4):
        card = Card()
        card._top += number << 36
        card.alloc(1_000_000 * (number + 1), KEPT)
        found.append(opened(card, f"run_{number}.pickle", trace=False))
    comparison = compare_cuda_snapshots(found)
    assert comparison.verdict.outcome is Outcome.INCONCLUSIVE
    assert "run_0.pickle and run_1.pickle may come from different runs: they share no" in comparison.verdict.reason
    assert "a difference between runs is not a leak" in str(comparison)


def test_memory_without_addresses_is_no_leak():
    def bare(number):
        blocks = [{"size": 512, "state": "active_allocated", "frames": KEPT}] * (number + 1)
        segment = {"device": 0, "total_size": 1 << 20, "blocks": [dict(block) for block in blocks]}
        return CudaSnapshot(memory_of({"segments": [segment]}, f"s_{number}.pickle"))

    verdict = compare_cuda_snapshots([bare(number) for number in range(5)]).verdict
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "not all of them hold the addresses of their memory" in verdict.reason


MIB = 1 << 20


def by_hand(number, n_segments, live, **more):
    """A snapshot of segments of 20 MiB with one live block each."""
    segments = []
    for position in range(n_segments):
        address = 0x7F00_0000_0000 + position * 20 * MIB
        blocks = [
            {"address": address, "size": live, "requested_size": live, "state": "active_allocated", "frames": STEP},
            {"address": address + live, "size": 20 * MIB - live, "state": "inactive", "frames": []},
        ]
        segments.append(
            {"device": 0, "address": address, "total_size": 20 * MIB, "segment_type": "large", "blocks": blocks, **more}
        )
    return CudaSnapshot(memory_of({"segments": segments}, f"s_{number}.pickle"))


def test_fragmentation_that_grows_is_not_clean():
    found = [by_hand(number, 4 + 3 * number, 40 * MIB // (4 + 3 * number) // 512 * 512) for number in range(4)]
    verdict = compare_cuda_snapshots(found, card_bytes=500 * MIB).verdict
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason.startswith("reserved memory of cuda:0 grows by 60.0 MiB per step (80.0 MiB -> 140 MiB")
    assert "free memory between live blocks (40.0 MiB -> 100 MiB -> 160 MiB -> 220 MiB) does not fit" in verdict.reason
    assert verdict.reason.endswith("; the card is full after 4 more steps")


def test_a_card_on_which_more_is_reserved_than_it_has_is_full():
    comparison = compare_cuda_snapshots([by_hand(number, 4 + number, 10 * MIB) for number in range(5)], card_bytes=MIB)
    assert comparison.leaked
    assert comparison.verdict.full_after_runs == 0
    assert comparison.verdict.reason.endswith("; the card is full")
    (statement,) = comparison.series.statements
    assert statement.startswith("cuda:0 reserves 160 MiB, but the card has 1.00 MiB: the driver keeps the rest in host")
    assert statement in str(comparison)
    assert statement in comparison.to_html()
    again = type(comparison).from_json(comparison.to_json())
    assert again == comparison


def test_free_pages_of_expandable_segments_can_be_released():
    live = 512
    plain, flagged = by_hand(1, 1, live), by_hand(1, 1, live, is_expandable=True, segment_type="small")
    assert (plain.inactive_split_bytes, plain.pool_uses[0].releasable_bytes) == (20 * MIB - live, 0)
    assert flagged.pool_uses[0].releasable_bytes == 18 * MIB  # all pages of 2 MiB but the first
    assert flagged.inactive_split_bytes == 2 * MIB - live
    told = {"segments": [{"device": 0, "address": 1 << 40, "total_size": MIB, "blocks": []}]}
    by_settings = memory_of({**told, "allocator_settings": {"expandable_segments": True}}, "a")
    assert [segment.is_expandable for segment in by_settings.segments] == [True]
