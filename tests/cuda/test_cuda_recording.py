"""Recording, against a torch whose CUDA functions are played: no device is needed, none of its own is shown."""

import pickle

import pytest
import torch
from snapshot_writer import Training

import leaklab
from leaklab.ask.cuda import live_snapshot
from leaklab.cuda import recording
from leaklab.model import Outcome


def test_recording_is_switched_on_with_python_stacks_in_a_ring_and_off_again(device, tmp_path):
    with leaklab.record_cuda(dir=tmp_path, max_events=500):
        assert device.is_on
    on, off = device.switches
    assert on == ("all", {"context": "all", "stacks": "python", "max_entries": 500})
    assert off == (None, {})


def test_recording_is_switched_off_after_an_error(device, tmp_path):
    with pytest.raises(ZeroDivisionError), leaklab.record_cuda(dir=tmp_path):
        1 / 0  # noqa: B018
    assert not device.is_on


def test_recording_of_the_user_is_left_as_it_is(device, tmp_path):
    device.is_on = True
    with leaklab.record_cuda(dir=tmp_path), recording.recorded_history() as is_ours:
        assert not is_ours
    assert device.switches == []
    assert device.is_on


def test_every_so_many_steps_write_a_file_and_the_newest_are_kept(device, tmp_path):
    with leaklab.record_cuda(every=5, keep=3, dir=tmp_path / "new" / "folder") as recorder:
        for _ in recorder.follow(range(23)):
            device.training.run(1)
    steps = [int(file.stem.rpartition("_")[2]) for file in recorder.files]
    assert steps == [10, 15, 20]
    assert sorted((tmp_path / "new" / "folder").iterdir()) == sorted(recorder.files)


def test_recorded_files_are_a_ladder_with_steps_rate_and_card(device, tmp_path):
    with leaklab.record_cuda(every=5, keep=4, dir=tmp_path) as recorder:
        for _ in range(20):
            device.training.run(1)
            recorder.step()
    comparison = leaklab.compare_cuda_snapshots(recorder.files)
    assert comparison.leaked
    assert (comparison.verdict.bytes_per_run, comparison.series.card_bytes) == (1_000_000, 80_000_000_000)


def test_recorded_files_name_their_process(device, tmp_path, monkeypatch):
    device.training = Training(kept_bytes=0, max_events=5)  # what happens between two files overflows the ring
    with leaklab.record_cuda(every=5, keep=4, dir=tmp_path) as recorder:
        for _ in recorder.follow(range(20)):
            device.training.run(1)
    assert leaklab.compare_cuda_snapshots(recorder.files).verdict.outcome is Outcome.CLEAN
    monkeypatch.setattr(recording, "_LOADED_NS", 1)
    with leaklab.record_cuda(every=5, keep=4, dir=tmp_path / "again") as again:
        for _ in again.follow(range(20)):
            device.training.run(1)
    reason = leaklab.compare_cuda_snapshots([*recorder.files, *again.files]).verdict.reason
    assert "may come from different runs: two processes recorded them" in reason


def test_recorded_file_is_one_that_the_viewer_of_torch_reads(device, tmp_path):
    with leaklab.record_cuda(every=1, dir=tmp_path) as recorder:
        file = recorder.step()
    assert file.read_bytes()[:2] == b"\x80\x04"
    taken = pickle.loads(file.read_bytes())  # noqa: S301 - written three lines above
    assert {"segments", "device_traces"} < set(taken)


def test_live_snapshot_shows_the_card_as_it_is(device):
    device.training.run(2)
    assert live_snapshot().requested_bytes == 8 * 4_000_000 + 2 * 1_000_000


def test_step_outside_the_block_is_refused(device, tmp_path):
    with pytest.raises(leaklab.SnapshotError, match="call step\\(\\) inside"):
        leaklab.record_cuda(dir=tmp_path).step()


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is said where there is no device")
def test_machine_without_cuda_says_so_in_one_sentence(tmp_path):
    for use in (live_snapshot, leaklab.record_cuda(dir=tmp_path).__enter__):
        with pytest.raises(leaklab.SnapshotError, match="recording needs a CUDA device, and torch sees none here"):
            use()


@pytest.mark.parametrize(("name", "value"), [("every", 0), ("keep", 1), ("max_events", 0)])
def test_senseless_numbers_are_refused(name, value, tmp_path):
    with pytest.raises(ValueError, match=f"{name} must be . or more, not {value}"):
        leaklab.record_cuda(**{"dir": tmp_path, name: value})


def test_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(leaklab.SnapshotError, match=r"cannot make the folder '.*folder': '.*file' is a file; give"):
        leaklab.record_cuda(dir=tmp_path / "file" / "folder")


def test_no_folder_is_made_before_something_can_be_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recorder = leaklab.record_cuda(dir=tmp_path / "new" / "folder")
    with pytest.raises(leaklab.SnapshotError, match="needs a CUDA device"), recorder:
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_real_device_gives_a_ladder_that_names_the_leaking_line(tmp_path):
    kept = []

    def step():
        kept.append(torch.ones(1_000_000, device="cuda"))

    with leaklab.record_cuda(every=4, keep=4, dir=tmp_path) as recorder:
        for _ in recorder.follow(range(16)):
            step()
    comparison = leaklab.compare_cuda_snapshots(recorder.files)
    assert comparison.leaked
    assert comparison.verdict.bytes_per_run == 4_000_000
    assert "step" in comparison.stacks.iloc[0]["stack"]
