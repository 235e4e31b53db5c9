"""Opening files: those of torch, of every age, and those made to do harm."""

import gc
import os
import pickle
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshot_writer import KEPT, MODEL, STEP, Card, Training, of_2023, snapshot, stack, write

import leaklab
from leaklab.cuda import reading
from leaklab.cuda.reading import audit, memory_ceiling, read_pickle

P4 = b"\x80\x04"


class Evil:
    def __reduce__(self):
        return os.system, ("echo evil",)


def u32(number):
    return number.to_bytes(4, "little")


HOSTILE = {
    "global": P4 + b"cos\nsystem\n.",
    "reduce": pickle.dumps(Evil(), 4),
    "stack_global": P4 + b"\x8c\x02os\x8c\x06system\x93.",
    "instance": P4 + b"(ios\nsystem\n.",
    "build": P4 + b"}}b.",
    "extension": P4 + b"\x82\x01.",
    "persistent_id": P4 + b"K\x01Q.",
    "persistent_line": P4 + b"Pname\n.",
    "out_of_band_buffer": b"\x80\x05\x97.",
    "deep_lists": P4 + b"]" * 1_000_000 + b"a" * 999_999 + b".",
    "deep_tuples": P4 + b"N" + b"\x85" * 1_000_000 + b".",
    "deep_tuple_as_key": P4 + b"}N" + b"\x85" * 1_000_000 + b"Ns.",
    "memo_bomb": P4 + b"Nr" + u32(200_000_000) + b".",
    "memo_bomb_of_protocol_0": P4 + b"Np200000000\n.",
    "sets": P4 + b"\x8f" * 1_000_000 + b".",
    "dicts": P4 + b"}" * 4_000_000 + b".",
    "long_text": P4 + b"X" + u32(2_000_000_000) + b"x.",
    "longer_text": P4 + b"\x8d" + (1 << 62).to_bytes(8, "little") + b"x.",
    "long_frame": P4 + b"\x95" + (2_000_000_000).to_bytes(8, "little") + b"x.",
    "long_bytes": b"\x80\x05\x8e" + (2_000_000_000).to_bytes(8, "little") + b"x.",
    "long_bytearray": b"\x80\x05\x96" + (2_000_000_000).to_bytes(8, "little") + b"x.",
    "truncated": pickle.dumps(snapshot(Training().run(2).card), 4)[:-300],
    "truncated_in_number": P4 + b"}\x8c\x01aJ\x01",
    "no_stop": P4 + b"]",
    "empty": b"",
    "text": b"this is no pickle",
    "protocol_0": pickle.dumps({"segments": []}, 0),
    "number": pickle.dumps(7, 4),
    "wrong_keys": pickle.dumps({"a": 1}, 4),
    "segments_of_text": pickle.dumps({"segments": "many"}, 4),
    "segment_of_list": pickle.dumps({"segments": [[]]}, 4),
    "block_without_size": pickle.dumps({"segments": [{"total_size": 1, "blocks": [{"state": "inactive"}]}]}, 4),
    "negative_size": pickle.dumps({"segments": [{"total_size": 1, "blocks": [{"state": "inactive", "size": -1}]}]}, 4),
    "list_in_itself": P4 + b"]\x94h\x00a.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused_in_one_sentence(name, tmp_path):
    file = tmp_path / "hostile.pickle"
    file.write_bytes(HOSTILE[name])
    with pytest.raises(leaklab.SnapshotError) as refused:
        leaklab.load_cuda_snapshot(file)
    (line,) = str(refused.value).splitlines()
    assert str(file) in line
    assert len(line) < 600
    assert refused.value.__suppress_context__ or refused.value.__cause__ is not None


# Without the audit the unpickler itself must refuse what would run code or reach outside.
@pytest.mark.parametrize(
    "name", ["global", "reduce", "stack_global", "instance", "build", "extension", "persistent_id", "persistent_line"]
)
def test_unpickler_refuses_by_itself_what_would_run_code(name, tmp_path):
    file = tmp_path / "hostile.pickle"
    file.write_bytes(HOSTILE[name])
    with pytest.raises(leaklab.SnapshotError):
        read_pickle(file, audited=False)


def test_refusal_names_the_opcode_and_its_place(tmp_path):
    file = tmp_path / "evil.pickle"
    file.write_bytes(HOSTILE["global"])
    with pytest.raises(leaklab.SnapshotError, match=r"at byte 2 the file holds the opcode GLOBAL"):
        leaklab.load_cuda_snapshot(file)


_IN_CHILD = r"""
import re, sys
from pathlib import Path
import leaklab
from leaklab import load_cuda_snapshot
def peak():  # of this program; ru_maxrss would begin at that of the parent
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
for path in sys.argv[1:]:
    try:
        load_cuda_snapshot(path)
    except leaklab.SnapshotError:
        print("refused")
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory of a process")
def test_hostile_files_are_refused_within_200_megabytes(tmp_path):
    for name, data in HOSTILE.items():
        (tmp_path / name).write_bytes(data)
    files = [str(tmp_path / name) for name in HOSTILE]
    done = subprocess.run([sys.executable, "-c", _IN_CHILD, *files], check=True, capture_output=True, text=True)
    *refused, kilobytes = done.stdout.split()
    assert refused == ["refused"] * len(HOSTILE)
    assert int(kilobytes) < 200_000


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_files_of_every_binary_protocol_open(protocol, tmp_path):
    taken = snapshot(Training().run(3).card)
    file = write(tmp_path / "a.pickle", taken, protocol)
    assert read_pickle(file) == taken
    assert read_pickle(file, audited=False) == taken


_LEAVES = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text()
_DATA = st.recursive(
    _LEAVES | st.tuples(st.integers(0, 1 << 40), st.integers(0, 9)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def refusal_of(data: bytes) -> str:
    """Return why *data* is refused, empty if it is not; any other error fails the test."""
    try:
        audit(data)
    except leaklab.SnapshotError as error:
        return str(error) or "refused without a word\n\n"
    return ""


@settings(max_examples=150)
@given(_DATA, st.sampled_from([2, 3, 4, 5]))
def test_audit_lets_all_data_of_a_snapshot_pass(data, protocol):
    assert refusal_of(pickle.dumps(data, protocol)) == ""


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_audit_of_any_bytes_ends_in_one_line_of_refusal_or_in_nothing(data):
    assert len(refusal_of(P4 + data).splitlines()) <= 1


def test_progress_is_told_up_to_the_end_of_the_file(tmp_path):
    file = write(tmp_path / "a.pickle", snapshot(Training().run(200).card))
    for audited in (True, False):
        told = []
        read_pickle(file, audited=audited, progress=lambda done, total, told=told: told.append((done, total)))
        assert told == sorted(told)
        assert told[-1] == (file.stat().st_size, file.stat().st_size)


def test_collector_is_as_it_was_after_a_refusal(tmp_path):
    file = tmp_path / "a.pickle"
    file.write_bytes(HOSTILE["global"])
    with pytest.raises(leaklab.SnapshotError):
        read_pickle(file, audited=False)
    assert gc.isenabled()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell what a process holds")
def test_ceiling_turns_a_large_allocation_into_an_error_and_is_lifted_again():
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_ceiling(64 << 20), pytest.raises(MemoryError):
        bytearray(1 << 30)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_giant_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 1000)
    file = write(tmp_path / "a.pickle", snapshot(Training().run(3).card))
    with pytest.raises(leaklab.SnapshotError, match=r"more than the 1,000 that are opened; record with"):
        leaklab.load_cuda_snapshot(file)


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(leaklab.SnapshotError, match="No such file"):
        leaklab.load_cuda_snapshot(tmp_path / "nowhere.pickle")
    with pytest.raises(leaklab.SnapshotError, match=r"Is a directory|Permission denied"):
        leaklab.load_cuda_snapshot(tmp_path)


def test_file_of_2023_tells_the_same_bytes_and_stacks(tmp_path):
    taken = snapshot(Training().run(5).card)
    new = leaklab.load_cuda_snapshot(write(tmp_path / "new.pickle", taken))
    old = leaklab.load_cuda_snapshot(write(tmp_path / "old.pickle", of_2023(taken)))
    assert old.active_bytes == new.active_bytes
    assert old.stacks == new.stacks
    assert [b.address for s in old.memory.segments for b in s.blocks] == [
        b.address for s in new.memory.segments for b in s.blocks
    ]
    assert old.peak is None


def test_bare_list_of_segments_is_a_snapshot(tmp_path):
    taken = snapshot(Training().run(2).card)
    file = write(tmp_path / "a.pickle", taken["segments"])
    assert leaklab.load_cuda_snapshot(file).active_bytes == sum(s["active_size"] for s in taken["segments"])


def test_empty_snapshot_holds_nothing_and_says_so(tmp_path):
    file = write(tmp_path / "a.pickle", {"segments": [], "device_traces": [[], []]})
    empty = leaklab.load_cuda_snapshot(file)
    assert (empty.active_bytes, empty.reserved_bytes, empty.devices, len(empty.by_stack())) == (0, 0, (), 0)
    assert "nothing was allocated" in empty.notes[0]


def test_unknown_keys_are_left_alone(tmp_path):
    card = Training().run(2).card
    plain = snapshot(card)
    future = snapshot(card, invention={"a": [1, 2]}, segments=[{**s, "colour": "red"} for s in plain["segments"]])
    future["device_traces"][0] = [{**event, "mood": None} for event in future["device_traces"][0]]
    one = leaklab.load_cuda_snapshot(write(tmp_path / "one.pickle", plain))
    two = leaklab.load_cuda_snapshot(write(tmp_path / "two.pickle", future))
    assert (two.stacks, two.peak) == (one.stacks, one.peak)


def test_pinned_host_memory_of_later_versions_is_a_device_of_its_own(tmp_path):
    card, host = Card(), Card()
    card.alloc(1000, MODEL)
    host.alloc(5000, STEP)
    more = snapshot(host)
    taken = snapshot(card, host_segments=more["segments"], host_traces=more["device_traces"])
    read = leaklab.load_cuda_snapshot(write(tmp_path / "a.pickle", taken))
    assert read.devices == ("cuda:0", "pinned host")
    assert read.active_bytes == 1024
    assert [stack.active_bytes for stack in read.stacks if stack.device == "pinned host"] == [5120]


def test_devices_are_told_apart(tmp_path):
    first, second = Card(0), Card(1)
    first.alloc(1000, KEPT)
    second.alloc(3000, KEPT)
    read = leaklab.load_cuda_snapshot(write(tmp_path / "a.pickle", snapshot(first, second)))
    assert read.devices == ("cuda:0", "cuda:1")
    assert {(s.device, s.requested_bytes) for s in read.stacks} == {("cuda:0", 1000), ("cuda:1", 3000)}
    assert [moment.device for moment in read.peaks] == ["cuda:0", "cuda:1"]


def test_contradiction_between_blocks_and_segments_is_said_aloud(tmp_path):
    taken = snapshot(Training().run(1).card)
    taken["segments"][0]["active_size"] += 1 << 20
    read = leaklab.load_cuda_snapshot(write(tmp_path / "a.pickle", taken))
    assert "their blocks add up to" in read.notes[0]


def test_stream_numbers_do_not_depend_on_the_pointers_of_the_process(tmp_path):
    names = []
    for pointer in (94_000_000_123, 1 << 70):
        card = Card()
        card.alloc(1000, MODEL)
        card.alloc(1000, stack("a.py:1 f"), stream=pointer, pool=(0, 3))
        read = leaklab.load_cuda_snapshot(write(tmp_path / "a.pickle", snapshot(card)))
        names.append([use.pool for use in read.pool_uses])
    assert names == [["small", "small, private pool 0.3, stream 1"]] * 2


_BLOCK = {"size": 512, "requested_size": 500, "state": "active_allocated", "address": 1 << 40, "frames": []}
_SEGMENT = {"device": 0, "address": 1 << 40, "total_size": 1 << 20, "segment_type": "small"}
_EVENT = {"action": "alloc", "addr": 1 << 40, "size": 500, "time_us": 5, "frames": []}
_BLOCKS = [_BLOCK] * 20_000
SHARED = {
    "blocks and segments": {"segments": [{**_SEGMENT, "blocks": _BLOCKS}] * 2000},
    "lists of blocks": {"segments": [{**_SEGMENT, "blocks": _BLOCKS} for _ in range(2000)]},
    "traces": {"segments": [{**_SEGMENT, "blocks": [_BLOCK]}], "device_traces": [[_EVENT]] * 20_000},
}


@pytest.mark.parametrize("name", SHARED)
def test_what_a_file_lists_again_and_again_is_counted_once(name, tmp_path):
    file = write(tmp_path / "a.pickle", SHARED[name])
    read = leaklab.load_cuda_snapshot(file)
    assert (read.active_bytes, len(read.memory.traces)) == (512, "device_traces" in SHARED[name])
    assert any("each is counted once" in note for note in read.notes)
    assert len(str(read)) < 3000


def test_twenty_thousand_devices_are_read_and_the_first_are_shown(tmp_path):
    segments = [
        {**_SEGMENT, "device": n, "address": n + 1 << 21, "blocks": [{**_BLOCK, "address": n + 1 << 21}]}
        for n in range(20_000)
    ]
    read = leaklab.load_cuda_snapshot(write(tmp_path / "a.pickle", {"segments": segments}))
    assert (len(read.devices), read.active_bytes) == (20_000, 20_000 * 512)
    text = str(read)
    assert "and 19,984 more devices" in text
    assert len(text) < 20_000
    assert leaklab.compare_cuda_snapshots([read, read]).growth_bytes == 0


def test_opening_leaves_the_garbage_of_the_user_where_it_was(tmp_path):
    class Node:
        pass

    file = write(tmp_path / "a.pickle", snapshot(Training().run(2).card))
    for load in (leaklab.load_cuda_snapshot, leaklab.load):
        gc.collect()
        node = Node()
        node.itself, seen = node, weakref.ref(node)
        view = load(file)
        del node
        assert seen() is not None
        gc.collect(1)
        assert seen() is None
        del view
