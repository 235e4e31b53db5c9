"""The strip of a loop: what it shows, what it leaves, what it costs."""

from __future__ import annotations

import gc
import io
import threading
import time
import weakref
from dataclasses import replace

import pytest

from leaklab.heap.running import other_threads
from leaklab.model.loop import (
    ACCELERATOR,
    HOST,
    GrowingPlace,
    Levels,
    LoopState,
    MonitorRecord,
    MonitorStatus,
    StateChange,
)
from leaklab.reports.loop import consequence_words
from leaklab.strip.drawing import strip_html, strip_line, strip_svg, strip_text
from leaklab.strip.showing import Strip, show_strip

MIB = 1 << 20
GROWS = StateChange(400, LoopState.GROWING, "`log` grows by 1 tensor every step", 200, bytes_per_step=MIB)
LEAKS = StateChange(900, LoopState.LEAK, "`log` <grows> by 1 tensor every step", 200, bytes_per_step=MIB, is_alarm=True)


def levels(n: int = 10) -> Levels:
    return Levels(
        steps=tuple(range(0, 100 * n, 100)),
        seconds=tuple(float(k) for k in range(n)),
        heap_bytes=tuple(100 * MIB + k * MIB for k in range(n)),
        rss_bytes=tuple(300 * MIB + k * MIB for k in range(n)),
        accelerator_bytes=(-1,) * n,
        reserved_bytes=(-1,) * n,
    )


class Source:
    """As a monitor, with what it is given."""

    def __init__(self) -> None:
        self.step = 0
        self.changes: tuple[StateChange, ...] = ()

    @property
    def status(self) -> MonitorStatus:
        self.step += 1
        return MonitorStatus(name="epoch", step=self.step, seconds=1.0, heap_bytes=5, rss_bytes=7)

    @property
    def record(self) -> MonitorRecord:
        return MonitorRecord(self.status, levels(), self.changes)


class Face:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.n_samples = 0
        self.fails = False

    def sample(self, _status: MonitorStatus) -> None:
        self.n_samples += 1
        if self.fails:
            raise OSError

    def news(self, record: MonitorRecord) -> None:
        self.told.append(f"news {len(record.changes)}")

    def clear_line(self) -> None:
        self.told.append("cleared")

    def finish(self, record: MonitorRecord | None) -> None:
        self.told.append("finished" if record is not None else "finished without a record")


def until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_samples_go_on_until_it_is_closed_and_each_change_is_told_once():
    source, face = Source(), Face()
    strip = Strip(source, face, period=0.01, share=1)
    until(lambda: face.n_samples >= 3)
    source.changes = (GROWS,)
    until(lambda: face.told)
    n_seen = face.n_samples
    until(lambda: face.n_samples > n_seen + 3)
    strip.close()
    strip.close()
    assert face.told == ["news 1", "finished"]
    assert not strip.is_live


def test_the_source_is_not_kept_alive_and_the_thread_ends_with_it():
    source, face = Source(), Face()
    strip, gone = Strip(source, face, period=0.01, share=1), weakref.ref(source)
    until(lambda: face.n_samples)
    del source
    until(lambda: not strip.is_live)
    gc.collect()
    assert gone() is None
    assert face.told == ["finished without a record"]
    strip.close()
    assert len(face.told) == 1


def test_a_front_end_that_is_gone_ends_the_strip_and_not_the_loop():
    source, face = Source(), Face()
    face.fails = True
    strip = Strip(source, face, period=0.01, share=1)
    until(lambda: not strip.is_live)
    assert face.n_samples == 5
    strip.close()


def test_nothing_grows_and_nothing_is_collected_while_samples_are_taken():
    source, face = Source(), Face()
    strip = Strip(source, face, period=0.0001, share=1)
    try:
        until(lambda: face.n_samples > 200)
        gc.collect()
        collections = [one["collections"] for one in gc.get_stats()]
        before, n_before = len(gc.get_objects()), face.n_samples
        until(lambda: face.n_samples > n_before + 2000)
        assert abs(len(gc.get_objects()) - before) < 50
        assert [one["collections"] for one in gc.get_stats()][2] == collections[2]
    finally:
        strip.close()


def test_its_thread_is_none_of_the_users():
    wake = threading.Event()
    users = threading.Thread(target=wake.wait, name="of the user")
    source, face = Source(), Face()
    strip = Strip(source, face, period=0.001, share=1)
    users.start()
    try:
        until(lambda: face.n_samples)
        names = [set(other_threads().values()) for _ in range(200)]
    finally:
        wake.set()
        users.join()
        strip.close()
    assert all("of the user" in found and "leaklab strip" not in found for found in names)


def test_looks_that_cost_much_are_far_apart():
    class DearFace(Face):
        def sample(self, status: MonitorStatus) -> None:
            super().sample(status)
            began = time.thread_time()
            while time.thread_time() - began < 0.01:
                pass

    source, face = Source(), DearFace()
    strip = Strip(source, face, period=0.01, share=0.02)
    time.sleep(2)
    strip.close()
    assert 2 <= face.n_samples <= 20


def test_where_nobody_looks_there_is_no_thread(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.StringIO())
    n_threads = threading.active_count()
    strip = show_strip(Source())
    assert not strip.is_live
    assert threading.active_count() == n_threads
    strip.clear_line()
    strip.close()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_is_written_anew_and_taken_away(monkeypatch):
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    source = Source()
    strip = show_strip(source)
    until(lambda: out.getvalue().count("\r") >= 1)
    strip.clear_line()
    strip.close()
    assert "\n" not in out.getvalue()
    assert "leaklab: step 1  warming up  heap 5 B  process 7 B" in out.getvalue()
    assert out.getvalue().endswith(" \r")


def test_the_line_says_what_it_leads_to():
    status = MonitorStatus(
        step=1200, total_steps=5000, state=LoopState.LEAK, is_alarm=True, bytes_per_step=MIB, full_at_step=4000,
        heap_bytes=2 * MIB, rss_bytes=3 * MIB, accelerator_bytes=MIB,
    )  # fmt: skip
    assert strip_line(status) == (
        "leaklab: step 1,200 of 5,000  ALARM, leak  +1.00 MiB per step  memory full at step 4,000  heap 2.00 MiB  "
        "process 3.00 MiB  accelerator 1.00 MiB"
    )


def test_the_picture_has_the_levels_the_steps_and_the_changes():
    svg = strip_svg(levels(), (GROWS, LEAKS))
    assert svg.count("<polyline") == 2, "what is not known is not drawn"
    assert "`log` &lt;grows&gt; by 1 tensor" in svg
    assert svg.count("<circle") == 2
    assert [step for step in ("0", "200", "400", "600", "800") if f">{step}</text>" in svg] == [
        "0",
        "200",
        "400",
        "600",
        "800",
    ]
    assert ">+9.00 MiB</text>" in svg


@pytest.mark.parametrize("n", [0, 1])
def test_one_look_makes_no_picture_but_a_text(n):
    record = MonitorRecord(MonitorStatus(step=3), levels(n))
    assert strip_svg(record.levels, ()) == ""
    assert "nothing is known yet at step 3" in strip_text(record)
    assert "nothing is known yet at step 3" in strip_html(record)


def test_the_text_draws_the_levels():
    text = strip_text(MonitorRecord(MonitorStatus(step=900), levels(4)))
    assert "  native heap            ▁▃▆█ 100 MiB -> 103 MiB" in text
    assert "  process (resident)" in text


def test_what_stays_has_the_report_folded_and_no_script():
    html = strip_html(MonitorRecord(MonitorStatus(step=900, state=LoopState.LEAK), levels(), (LEAKS,)))
    assert "<details" in html
    assert "<script" not in html
    assert "data:image/svg+xml;base64," in html
    assert "&lt;grows&gt;" in html


@pytest.mark.parametrize(("kept", "is_told"), [(62_800.0, True), (400_000.0, False)])
def test_a_process_that_grows_faster_than_what_is_kept_is_told_beside_the_forecast(kept, is_told):
    grown = replace(levels(40), rss_bytes=tuple(300 * MIB + 50 * MIB * k for k in range(40)))  # 0.5 MiB a step
    status = MonitorStatus(step=3_900, state=LoopState.GROWING, bytes_per_step=kept, full_at_step=10**6)
    place = GrowingPlace("of log", LoopState.GROWING, 200, 800, kept, HOST)
    words = consequence_words(MonitorRecord(status, grown, places=(place,)))
    assert ("; but the process (resident) grows by 512 KiB every step: " in words) is is_told
    assert "at this pace memory lasts for more than 390,000 steps" in words
    of_card = MonitorRecord(status, grown, places=(replace(place, memory=ACCELERATOR),))
    of_nobody = MonitorRecord(status, replace(grown, rss_bytes=(-1,) * 40), places=(place,))
    assert "resident" not in consequence_words(of_card) + consequence_words(of_nobody)
