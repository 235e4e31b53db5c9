"""What annotations say of a trace, against programs that know which part of them is running."""

import random

import pytest
from snapshot_writer import MODEL, STEP, Card, snapshot

from leaklab.cuda.along_trace import spans_of
from leaklab.cuda.schema import memory_of
from leaklab.cuda.stacks import StackTable
from leaklab.cuda.trace import histories
from leaklab.reports.cuda import CudaSnapshot


class Annotated:
    """A card whose program has named parts; for each begin and end it notes how many events there were."""

    def __init__(self):
        self.card, self.annotations, self.expected, self._open = Card(), [], [], []

    def _note(self, stage, name):
        self.card._now += 3  # between two events
        entry = {"stage": stage, "name": name, "device": 0, "time_us": self.card._now}
        self.annotations.append(entry)

    def begin(self, name):
        self._note("START", name)
        self._open.append((name, len(self.card.events)))

    def end(self):
        name, first = self._open.pop()
        self._note("END", name)
        self.expected.append((first, len(self.card.events) + 1, name))

    def snapshot(self, **more):
        return CudaSnapshot(memory_of(snapshot(self.card, external_annotations=self.annotations, **more), "a.pickle"))


def history_of(read):
    (history,) = histories(read.memory, StackTable())
    return history


@pytest.mark.parametrize("seed", range(5))
def test_parts_that_nest_and_repeat_are_found_where_they_were(seed):
    rng, program, live = random.Random(seed), Annotated(), []
    for _ in range(300):
        action = rng.random()
        if action < 0.1:
            program.begin(rng.choice(["forward", "backward", "optimizer.step"]))
        elif action < 0.2 and program._open:
            program.end()
        elif live and action < 0.5:
            program.card.free(live.pop())
        else:
            live.append(program.card.alloc(rng.randrange(1, 1_000_000), MODEL))
    while program._open:
        program.end()
    read = program.snapshot()
    history = history_of(read)
    found = spans_of(history, read.memory.annotations)
    assert sorted(found) == sorted(program.expected)
    for phase in read.phases:
        own = [span for span in program.expected if span[2] == phase.name]
        levels = [history.levels[state] for first, last, _name in own for state in range(first, last)]
        assert (phase.n_times, phase.highest_bytes) == (len(own), max(levels))
        assert phase.start_bytes == history.levels[min(own)[0]]


def test_a_trace_that_has_lost_its_beginning_keeps_what_still_runs_then():
    program = Annotated()
    program.begin("over")
    program.card.alloc(1000, MODEL)
    program.end()
    program.begin("runs on")
    for _ in range(6):
        program.card.alloc(1000, STEP)
    program.card.events = program.card.events[-3:]
    program.card.alloc(1000, STEP)
    (phase,) = program.snapshot().phases
    assert (phase.name, phase.first_event, phase.highest_bytes) == ("runs on", 0, 8000)


def test_damaged_annotations_cost_nothing_but_themselves():
    program = Annotated()
    program.begin("step")
    program.card.alloc(1000, MODEL)
    program.end()
    good = list(program.annotations)
    bad = [7, None, {}, {**good[0], "name": 3}, {**good[0], "time_us": "soon"}, {**good[0], "stage": ["START"]}]
    program.annotations = [*bad, *good]
    assert [phase.name for phase in program.snapshot().phases] == ["step"]
    program.annotations = "none"
    assert program.snapshot().phases == ()


def test_the_text_tells_each_part_and_the_record_keeps_them():
    program = Annotated()
    program.begin("Optimizer.step#AdamW.step")
    address = program.card.alloc(3 << 20, MODEL)
    program.card.alloc(1 << 20, MODEL)
    program.card.free(address)
    program.end()
    read = program.snapshot()
    assert "   0 B    4.00 MiB    1.00 MiB       1  cuda:0 Optimizer.step#AdamW.step" in str(read)
    assert CudaSnapshot.from_json(read.to_json()).phases == read.phases
    assert "Annotated parts (1)" in read.to_html()


@pytest.mark.parametrize("seed", range(5))
def test_what_events_say_of_themselves_is_a_part_of_the_trace(seed):
    rng, card = random.Random(seed), Card()
    for _ in range(60):
        if rng.random() < 0.3 and card.events:
            card.free(card.alloc(1000, STEP))
        card.alloc(rng.randrange(1, 10_000), MODEL)
    words = []
    for event in card.events:
        is_mute = event["action"] != "alloc" and rng.random() < 0.5
        word = words[-1] if words and (is_mute or rng.random() < 0.7) else rng.choice(["cell 3", "cell 4", ""])
        words.append(word)
        if not is_mute:
            event["user_metadata"] = word
            event["compile_context"] = "N/A" if word else "[0/0]"
    read = CudaSnapshot(memory_of(snapshot(card), "a.pickle"))
    covered = {}
    for first, last, name in spans_of(history_of(read), ()):
        covered.setdefault(name, []).extend(range(first + 1, last))
    for text, name in (("cell 3", "marked cell 3"), ("cell 4", "marked cell 4"), ("", "compile context [0/0]")):
        told = [
            n
            for n, (event, word) in enumerate(zip(card.events, words, strict=True), 1)
            if word == text and "user_metadata" in event
        ]
        assert set(told) <= set(covered.get(name, ()))
        others = [n for n, event in enumerate(card.events, 1) if event.get("user_metadata", text) != text]
        assert not set(others) & set(covered.get(name, ()))
    assert {phase.name for phase in read.phases} == set(covered)


@pytest.mark.parametrize("value", [None, 7, [], "N/A", ""])
def test_an_event_that_says_nothing_has_no_part(value):
    card = Card()
    card.alloc(1000, MODEL)
    card.events[0] |= {"user_metadata": value if value != "N/A" else "", "compile_context": value}
    assert CudaSnapshot(memory_of(snapshot(card), "a.pickle")).phases == ()
