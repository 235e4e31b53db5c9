"""What is shown of snapshots: text, tables, pages, pictures, JSON, the command line."""

import json
import pickle
import re

import pytest
from matplotlib.colors import to_hex
from snapshot_writer import KEPT, MODEL, STEP, Card, Training, frame, snapshot, stack, write

import leaklab
from leaklab import cli, commandline
from leaklab.cuda.schema import memory_of
from leaklab.model.stacks import FrameNode
from leaklab.render.document import Document
from leaklab.render.writers import html_of
from leaklab.reports.cuda import CudaSnapshot
from leaklab.reports.plots import plot_icicle
from leaklab.reports.stacks import frame_outline, tree_lines

OUTSIDE = re.compile(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//|@import|url\(\s*["']?https?:""")
NOT_SURVIVING = ("<style", "<script", "<svg", "var(", "<iframe")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A ladder of a training loop that keeps 3 MB per step, with an out-of-memory event in the last file."""
    folder = tmp_path_factory.mktemp("ladder")
    training = Training(kept_bytes=3_000_000)
    found = [training.run(10).dump(folder / f"snap_{training.n_steps}.pickle") for _ in range(3)]
    training.run(10).card.oom(1 << 30, STEP, device_free=1 << 20)
    return [*found, training.dump(folder / "snap_40.pickle")]


@pytest.fixture(scope="module")
def comparison(files):
    return leaklab.compare_cuda_snapshots(files, card_bytes=10_000_000_000)


@pytest.fixture(scope="module")
def last(files):
    return leaklab.load_cuda_snapshot(files[-1])


def labels_of_live(*stacks):
    card = Card()
    for frames in stacks:
        card.alloc(1000, frames)
    return {found.label for found in CudaSnapshot(memory_of(snapshot(card), "a.pickle")).stacks}


def test_stacks_that_read_alike_say_which_outer_line_differs():
    inner = ("/home/me/a.py:1 f", "/home/me/a.py:2 g", "/home/me/a.py:3 h")
    labels = labels_of_live(
        stack(*inner, "/home/me/train.py:5 step"), stack(*inner, "/home/me/train.py:6 step"),
        stack("/home/me/a.py:1 f", "/home/me/c.py:2 alone"),
    )  # fmt: skip
    assert labels == {
        "a.py:1 f <- a.py:2 g <- ... <- train.py:5 step", "a.py:1 f <- a.py:2 g <- ... <- train.py:6 step",
        "a.py:1 f <- c.py:2 alone",
    }  # fmt: skip


def test_stacks_that_read_alike_say_what_their_line_called():
    outer = stack("/home/me/a.py:1 f", "/home/me/a.py:2 g")
    functions = ({"name": f"at::{name}(int)", "filename": "??", "line": 0} for name in ("mul", "add"))
    labels = labels_of_live(*([function, *outer] for function in functions))
    assert labels == {"a.py:1 f <- a.py:2 g (in at::mul)", "a.py:1 f <- a.py:2 g (in at::add)"}


def test_memory_that_is_free_in_pieces_only_is_told_with_the_setting_that_joins_them():
    card = Card()
    addresses = [card.alloc(10 << 20, [MODEL, KEPT][number % 2]) for number in range(64)]
    for address in addresses[::2]:
        card.free(address)
    card.oom(100 << 20, STEP, device_free=5 << 20)
    text = str(CudaSnapshot(memory_of(snapshot(card), "pieces.pickle")))
    assert "reserved      640 MiB, 320 MiB of it free, in pieces of at most 10.0 MiB" in text
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text


def test_equal_stacks_of_two_devices_are_told_apart():
    cards = Card(0), Card(1)
    for card in cards:
        card.alloc(3 << 20, MODEL)
    rows = [line for line in str(CudaSnapshot(memory_of(snapshot(*cards), "two"))).splitlines() if "1 block " in line]
    assert sum("cuda:0 " in line for line in rows) == sum("cuda:1 " in line for line in rows) == 1


def test_pages_ask_nothing_of_the_network_and_hold_nothing_that_notebooks_remove(last, comparison):
    for view in (last, comparison):
        page, fragment = view.to_html(), view._repr_mimebundle_()["text/html"]
        assert OUTSIDE.findall(page) == []
        assert [word for word in NOT_SURVIVING if word in fragment] == []
        assert page.count("data:image/png;base64,") == 2
        assert "metrics.py:17 update" in page
        assert len(page) < 400_000


def test_only_the_script_of_the_map_runs_in_a_page(last, comparison):
    page, record = last.to_html(), '<script type="application/json" data-leaklab="record">'
    assert sorted(re.findall("<script[^>]*>", page)) == [
        '<script type="application/json" data-leaklab="blocks">',
        record,
        "<script>",
    ]
    assert "default-src 'none'" in page
    assert re.findall("<script[^>]*>", comparison.to_html()) == [record]


def test_hostile_names_are_escaped_everywhere(tmp_path):
    evil = "<img src=x onerror=alert(1)>$\\frac$\ud800\u202e"
    card = Card()
    card.alloc(2000, [{**frame("/p/a.py:1 f"), "name": evil}])
    file = write(tmp_path / "a.pickle", snapshot(card))
    view = leaklab.load_cuda_snapshot(file)
    other = leaklab.compare_cuda_snapshots([view, view])
    for shown in (view, other):
        page = shown.to_html()
        assert "<img src=x" not in page
        page.encode("utf-8")
        str(shown).encode("ascii", "backslashreplace")
        assert "\u202e" not in str(shown)
        json.loads(shown.to_json())
        assert shown.plot().png()[:4] == b"\x89PNG"
    assert view.plot_stacks().png()[:4] == b"\x89PNG"
    assert len(view.by_stack()) == 1


def test_empty_snapshot_is_shown_and_drawn(tmp_path):
    empty = leaklab.load_cuda_snapshot(write(tmp_path / "a.pickle", {"segments": [], "device_traces": []}))
    assert "0 B active" in str(empty)
    assert all([empty.plot().png(), empty.plot_stacks().png(), empty.to_html(), empty.to_json()])
    same = leaklab.compare_cuda_snapshots([empty, empty])
    assert str(same).startswith("CLEAN")
    assert all([same.plot().png(), same.to_html()])


def test_text_tree_keeps_chains_at_one_depth_and_leaves_out_the_small():
    leaf = FrameNode("leaf", 60, 1, ())
    tree = FrameNode(
        "root", 1000, 3, (FrameNode("a", 995, 2, (FrameNode("b", 995, 2, (leaf,)),)), FrameNode("c", 5, 1, ()))
    )
    assert [line[14:] for line in tree_lines(tree)] == ["root", "  a", "  b", "  leaf"]


def test_very_deep_tree_is_drawn_and_written():
    node = FrameNode("bottom", 10, 1, ())
    for depth in range(900):
        node = FrameNode(f"f{depth}", 10, 1, (node,))
    markup = html_of(Document((frame_outline(node, is_open=True),)))
    assert markup.count("<details") == markup.count("</details>") > 1
    assert plot_icicle(node).png()
    assert len(list(tree_lines(node))) < 50


def test_stack_of_a_thousand_frames_is_read(tmp_path):
    card = Card()
    card.alloc(2000, stack(*(f"/p/a.py:{line} f" for line in range(1000))))
    view = leaklab.load_cuda_snapshot(write(tmp_path / "a.pickle", snapshot(card)))
    assert len(view.stacks[0].frames) == 1001
    assert all([view.to_html(), str(view)])


def test_hostile_file_ends_the_command_with_1(tmp_path, capsys):
    file = tmp_path / "a.pickle"
    file.write_bytes(pickle.dumps(print, 4))
    assert cli.main(["cuda", "show", str(file)]) == 1
    assert "refused: at byte" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "size"),
    [("10MB", 10_000_000), ("512KiB", 524_288), ("80gb", 80_000_000_000), ("7", 7), ("1.5G", 1_500_000_000)],
)
def test_sizes_are_read_as_they_are_written(word, size):
    assert cli._bytes(word) == size


@pytest.mark.parametrize("word", ["much", "-5MB", "5 parsecs", ""])
def test_senseless_size_ends_the_command_with_status_2(word, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["cuda", "diff", "a", "b", f"--card={word}"])
    assert ended.value.code == 2
    assert "a size is a number with a unit" in capsys.readouterr().err


def test_progress_bar_is_drawn_on_a_terminal_and_removed(monkeypatch, capsys):
    monkeypatch.setattr("leaklab.commandline._QUIET_SECONDS", -1.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with commandline.progress_bar("reading") as progress:
        progress(50, 100)
    drawn = capsys.readouterr().err
    assert f"reading [{'#' * 20}" in drawn
    assert drawn.endswith(" \r")


def test_no_two_bands_of_a_timeline_share_a_colour():
    card = Card()
    addresses = [card.alloc(3 << 20, MODEL) for _ in range(3)]
    card.events.clear()
    card.alloc(1 << 20, [])
    card.alloc(1 << 20, stack())
    for number in range(12):
        card.alloc(1 << 20, stack(f"/home/me/project/layer{number}.py:1 forward"))
    card.free(addresses[0])
    (axes,) = CudaSnapshot(memory_of(snapshot(card), "a.pickle")).plot().axes
    colours = [tuple(band.get_facecolor()[0]) for band in axes.collections]
    assert len(colours) > 8
    assert len(set(colours)) == len(colours)


def test_a_group_of_stacks_has_one_colour_in_all_pictures_of_a_snapshot():
    card = Card()
    card.alloc(5 << 20, MODEL)
    card.events.clear()
    card.alloc(3 << 20, stack("/home/me/project/train.py:7 step"))
    card.alloc(2 << 20, stack("/home/me/project/data.py:3 load"))
    opened = CudaSnapshot(memory_of(snapshot(card), "a.pickle"))
    (axes,) = opened.plot().axes
    bands = dict(zip((label for label, _ in opened.timelines[0].bands), axes.collections, strict=False))
    in_timeline = {label: to_hex(band.get_facecolor()[0]) for label, band in bands.items()}
    assert {"train.py:7 step", "data.py:3 load"} <= set(in_timeline)
    assert len(set(in_timeline.values())) == len(in_timeline)
    (on_map,) = re.findall(r'data-leaklab="blocks">(.*?)</script>', opened.to_html())
    given = json.loads(on_map)["colours"]
    assert {label: given[label] for label in in_timeline} == in_timeline
    (icicle,) = opened.plot_stacks().axes
    of_boxes = [to_hex(box.get_facecolor()[0]) for box in icicle.collections]
    for label in ("train.py:7 step", "data.py:3 load"):
        assert of_boxes.count(in_timeline[label]) == 1


def test_it_is_said_which_lines_grew_along_the_trace():
    card = Card()
    card.alloc(5 << 20, MODEL)
    card.events.clear()
    for _ in range(6):
        card.alloc(1 << 20, stack("/home/me/project/train.py:7 step"))
        card.free(card.alloc(4 << 20, stack("/home/me/project/model.py:8 forward")))  # comes and goes
    card.alloc(1 << 10, stack("/home/me/project/data.py:3 load"))  # too little
    opened = CudaSnapshot(memory_of(snapshot(card), "a.pickle"))
    assert "grew most along the trace train.py:7 step +6.00 MiB\n" in str(opened)
    assert "<code" in opened.to_html().partition("grew most along the trace")[2][:300]
    still = Card()
    still.alloc(5 << 20, MODEL)  # once, at the begin
    for _ in range(6):
        still.free(still.alloc(4 << 20, stack("/home/me/project/model.py:8 forward")))
    assert "grew most" not in str(CudaSnapshot(memory_of(snapshot(still), "b.pickle")))
