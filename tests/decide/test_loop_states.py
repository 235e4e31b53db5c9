"""What becomes of the growing places of a loop, check by check: growing, a leak, withdrawn, an alarm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.decide.length_readings import GrowthWitness
from leaklab.decide.loop_states import LoopStates, is_on_accelerator, per_step
from leaklab.decide.rising_level import Free, consequence_of
from leaklab.model import Check, Leak, Outcome, RootPath, Settings, Verdict
from leaklab.model.check import UNFOLLOWED_NODES, UNREAD_GRAPH
from leaklab.model.loop import ACCELERATOR, HOST, LoopState, StretchCheck

MIB = 2**20
FREE = Free(host=1_000 * MIB)


def leak(
    name="history",
    *,
    per_run=23 * 1024.0,
    unit="objects",
    cause="appended",
    what="torch.Tensor (4,) float32 cpu",
    kept=(),
):
    return Leak(
        what, RootPath("notebook variable", ()), name, cause, "", per_run, 23.0, unit, kept, f"of {name}", "grows"
    )


def stretch(first, last, *leaks, outcome=None, failure=""):
    outcome = outcome or (Outcome.LEAK if leaks else Outcome.CLEAN)
    check = Check(Settings(), Verdict(outcome, "because", 24), leaks, (), (), (), (), (), failure=failure)
    return StretchCheck(first, last, 23, check)


def states_of(changes):
    return [(change.state.value, change.is_alarm) for change in changes]


def test_what_grows_is_a_leak_only_when_it_still_does_at_twice_the_steps():
    states = LoopStates()
    assert states.state is LoopState.WARMING_UP
    assert states_of(states.take_check(stretch(200, 800, leak()), 20_000, FREE)) == [("growing", False)]
    assert states.next_look(stretch(200, 800)) == 1_600
    assert states.take_check(stretch(900, 1_500, leak()), 20_000, FREE) == [], "not yet twice as far"
    changes = states.take_check(stretch(1_700, 2_300, leak()), 20_000, FREE)
    assert states_of(changes) == [("leak", True)]
    assert changes[0].since_step == 200
    assert changes[0].bytes_per_step == pytest.approx(1024)
    assert "`history` grows by 1 tensor (1.00 KiB) every step since step 200" in changes[0].words
    assert states.next_look(stretch(1_700, 2_300)) == 9_200, "what is called a leak may still stop"


def test_what_a_later_check_does_not_find_is_withdrawn_once():
    states = LoopStates()
    states.take_check(stretch(200, 800, leak()), None, FREE)
    assert states_of(states.take_check(stretch(1_600, 2_200), None, FREE)) == [("stopped", False)]
    assert states.take_check(stretch(4_000, 4_600), None, FREE) == []
    assert states.state is LoopState.STEADY
    again = states.take_check(stretch(9_000, 9_600, leak()), None, FREE)
    assert again[0].state is LoopState.GROWING
    assert again[0].since_step == 9_000


@pytest.mark.parametrize("unknown", [{"outcome": Outcome.INCONCLUSIVE}, {"failure": "the end of the loop in run 3"}])
def test_a_check_without_a_verdict_withdraws_nothing(unknown):
    states = LoopStates()
    states.take_check(stretch(200, 800, leak()), None, FREE)
    assert states.take_check(stretch(1_600, 2_200, **unknown), None, FREE) == []
    assert states.state is LoopState.GROWING


def test_a_graph_that_grows_is_a_leak_at_once():
    changes = LoopStates().take_check(stretch(200, 800, leak(unit="graph nodes")), 1_000_000, FREE)
    assert states_of(changes) == [("leak", True)]


def test_an_alarm_waits_until_the_rate_matters():
    states = LoopStates()
    states.take_check(stretch(200, 800, leak(per_run=23.0)), None, FREE)
    states.take_check(stretch(1_600, 2_200, leak(per_run=23.0)), None, FREE)
    assert states.weigh(5_000_000, None, FREE) == [], "a byte a step takes 5 MB until the loop is twice as long"
    changes = states.weigh(12_000_000, None, FREE)
    assert states_of(changes) == [("leak", True)]
    assert states.weigh(13_000_000, None, FREE) == [], "told once"


@pytest.mark.parametrize(
    ("what", "is_there"),
    [
        ("torch.Tensor (4,) float32 cpu", False),
        ("torch.Tensor (512, 64) float32 cpu and 1 other kind", False),
        ("torch.Tensor (512, 64) float32 cuda:0 and 2 other kinds", True),
        ("torch.nn.parameter.Parameter (4,) float32 mps:0", True),
        ("torch.Tensor (4,) float32 meta", False),
        ("dict and 1 other kind", False),
    ],
)
def test_the_device_is_read_from_the_first_kind(what, is_there):
    assert is_on_accelerator(leak(what=what)) is is_there


def test_what_may_still_stop_by_itself_alarms_only_if_memory_may_end_first():
    small, large = leak(per_run=23 * 1024.0), leak(per_run=23 * MIB)
    assert states_of(LoopStates().take_check(stretch(200, 800, small), 100_000, FREE)) == [("growing", False)]
    changes = LoopStates().take_check(stretch(200, 800, large), 100_000, FREE)
    assert states_of(changes) == [("growing", True)]
    assert changes[0].full_at_step == 1_800
    assert "memory is full at step 1,800" in changes[0].words


def test_native_memory_is_a_leak_only_when_the_level_has_risen_all_along():
    states = LoopStates()
    native = leak("", unit="bytes", cause="native", what="native memory (malloc)")
    states.take_check(stretch(200, 800, native), 20_000, FREE)
    assert states.take_check(stretch(1_700, 2_300, native), 20_000, FREE) == []
    assert states.take_level(HOST, 1_500, (100, 1_000.0), 20_000, FREE) == []
    assert states_of(states.take_level(HOST, 5_000, (100, 1_000.0), 20_000, FREE)) == [("leak", True)]


def test_a_level_that_known_places_explain_says_nothing_and_one_that_rests_is_withdrawn():
    states = LoopStates()
    assert states_of(states.take_level(HOST, 900, (100, 1_000.0), 20_000, FREE)) == [("growing", False)]
    assert states.bytes_per_step == pytest.approx(1_000)
    states.take_check(stretch(1_000, 1_500, leak()), 20_000, FREE)
    assert states.bytes_per_step == pytest.approx(1_024), "a level and the place under it are counted once"
    assert states.take_level(HOST, 1_600, (100, 1_000.0), 20_000, FREE) == []
    assert {place.fingerprint for place in states.standing} == {"of history"}
    states.take_level(HOST, 1_650, (100, 9_000.0), 20_000, FREE)
    states.take_check(stretch(1_700, 1_800, leak(), leak("more", per_run=23 * 8_000.0)), 20_000, FREE)
    assert states.take_level(HOST, 1_690, None, 20_000, FREE) == [], "it goes on, by places that are known"
    assert states_of(states.take_level(ACCELERATOR, 1_700, (100, 9e6), 20_000, FREE)) == [("growing", True)]
    assert states_of(states.take_level(ACCELERATOR, 1_900, None, 20_000, FREE)) == [("stopped", False)]


def test_levels_that_stand_still_withdraw_what_would_show_in_them():
    states = LoopStates()
    states.take_check(stretch(200, 800, leak(per_run=23 * MIB)), 20_000, FREE)
    steps = np.arange(0.0, 2_000, 10)
    flat, rising = np.full(len(steps), 1e9), 1e9 + steps * MIB
    assert states.take_standstill(2_000, 800, {HOST: [(steps, flat), (steps, rising)]}, 20_000, FREE) == []
    assert states.take_standstill(2_000, 800, {HOST: []}, 20_000, FREE) == []
    changes = states.take_standstill(2_000, 800, {HOST: [(steps, flat), (steps, flat)]}, 20_000, FREE)
    assert states_of(changes) == [("stopped", False)]


def test_lines_found_before_stay_with_a_place():
    states = LoopStates()
    states.take_check(stretch(200, 800, replace(leak(), sites=("train.py:3: h.append(x)  # keeps it",))), None, FREE)
    assert states.has_all_lines
    changes = states.take_check(stretch(1_700, 2_300, leak()), None, FREE)
    assert "train.py:3: h.append(x) keeps it" in changes[0].words


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("check"), st.sets(st.integers(0, 90), max_size=12)),
            st.tuples(st.just("level"), st.one_of(st.none(), st.floats(1, 1e9))),
        ),
        max_size=30,
    )
)
def test_whatever_happens_the_table_stays_small_and_no_state_is_told_twice(events):
    states, told, step = LoopStates(), {}, 100
    for kind, what in events:
        step = int(step * 1.5) + 1
        if kind == "check":
            changes = states.take_check(stretch(step, step + 10, *(leak(str(n)) for n in what)), None, FREE)
        else:
            changes = states.take_level(HOST, step, None if what is None else (step // 2, what), None, FREE)
        for change in changes:
            assert told.get(change.fingerprint) != (change.state, change.is_alarm) or change.state is LoopState.GROWING
            told[change.fingerprint] = change.state, change.is_alarm
        assert len(states.standing) <= 65
        assert states.bytes_per_step >= 0


@given(st.floats(1, 1e9), st.integers(1, 10**6), st.one_of(st.none(), st.integers(1, 10**7)), st.floats(1, 1e12))
def test_memory_is_full_when_the_rate_says_so(rate, step, total, free):
    result = consequence_of(rate, step, total, free)
    if result.full_at_step is not None:
        assert result.full_at_step >= step
        assert (result.full_at_step - step) * rate <= free * (1 + 1e-9)
        assert total is None or result.full_at_step <= total
    else:
        assert total is not None
        assert (total - step) * rate <= free * (1 + 1e-9) or total <= step


def test_nothing_that_grows_has_no_consequence():
    result = consequence_of(0.0, 500, None, 1e9)
    assert (result.n_bytes, result.full_at_step, result.matters) == (0.0, None, False)


def test_what_every_epoch_empties_is_withdrawn_and_told_again_only_when_it_is_longer_than_ever():
    states = LoopStates()
    states.take_check(stretch(200, 800, leak()), None, FREE, {"of history": 800})
    states.take_check(stretch(1_700, 2_300, leak()), None, FREE, {"of history": 2_300})
    assert states.take_lengths(4_000, {"of history": 4_000}, None, FREE) == []
    assert states.take_lengths(5_000, {}, None, FREE) == [], "nobody knows"
    assert states_of(states.take_lengths(5_500, {"of history": 500}, None, FREE)) == [("stopped", False)]
    assert states.take_check(stretch(8_000, 8_600, leak()), None, FREE, {"of history": 3_600}) == []
    again = states.take_check(stretch(16_000, 16_600, leak()), None, FREE, {"of history": 11_600})
    assert states_of(again) == [("growing", False)]


def test_a_graph_that_has_become_too_large_to_be_read_is_still_the_place_that_was_found():
    states = LoopStates()
    graph = leak("total", cause="graph-kept")
    states.take_check(stretch(200, 800, graph), None, FREE)
    unread = leak(UNREAD_GRAPH, cause="native")
    native = leak("", unit="bytes", cause="native", what="native memory (malloc)")
    done = stretch(1_700, 2_300, unread, native, leak("other"))
    noted = replace(done, check=replace(done.check, notes=(f"20,001 {UNFOLLOWED_NODES}: too many",)))
    changes = states.take_check(noted, None, FREE)
    assert [(change.fingerprint, change.state.value) for change in changes] == [
        ("of total", "leak"),
        ("of other", "growing"),
    ]
    assert [place.leak.bytes_per_run for place in states.standing] == [pytest.approx(1024), pytest.approx(1024)]
    small = stretch(5_000, 5_600, leak("", unit="bytes", cause="native", per_run=23.0, what="native memory (malloc)"))
    noted = replace(small, check=replace(small.check, notes=noted.check.notes))
    changes = states.take_check(noted, None, FREE)
    assert ("of total", "stopped") in [(change.fingerprint, change.state.value) for change in changes], "it was let go"


def test_a_check_that_looked_at_eight_times_the_steps_tells_a_leak_and_one_under_way_growth():
    states = LoopStates()
    changes = states.take_growing([leak(per_run=1024.0)], (25, 100), None, FREE)
    assert states_of(changes) == [("growing", False)]
    assert changes[0].step == 100
    assert states_of(states.take_check(stretch(25, 201, leak()), None, FREE)) == [("leak", False)]
    assert states.standing[0].since_step == 25
    assert states_of(LoopStates().take_check(stretch(25, 199, leak()), None, FREE)) == [("growing", False)]


def test_the_end_of_the_loop_withdraws_what_is_full_and_not_what_has_gone_with_it():
    for limits, expected in ((), []), ((leak(),), [("stopped", False)]):
        states = LoopStates()
        states.take_growing([leak()], (25, 100), None, FREE)
        done = stretch(25, 150)
        done = replace(done, check=replace(done.check, bounded=limits))
        assert states_of(states.take_check(done, None, FREE, is_cut=True)) == expected


def test_what_a_check_does_not_find_stands_while_its_container_gets_longer():
    states = LoopStates()
    states.take_check(stretch(200, 800, leak()), None, FREE, {"of history": 800})
    assert states.take_check(stretch(1_600, 2_200), None, FREE, {"of history": 1_500}) == []
    assert states.take_check(stretch(3_000, 3_600), None, FREE, {"of history": 1_500}) == [], "it is longer than at 800"
    states.take_check(stretch(4_000, 4_600, leak()), None, FREE, {"of history": 1_500})
    assert states_of(states.take_check(stretch(9_000, 9_600), None, FREE, {"of history": 1_500})) == [
        ("stopped", False)
    ]


def test_what_happens_once_an_epoch_has_stopped_after_two_epochs_of_nothing():
    states = LoopStates()
    epochs = tuple(400 * (run % 6 == 0) for run in range(24))  # of 138 steps
    states.take_check(stretch(200, 752, leak(kept=epochs)), None, FREE, {"of history": 1_600})
    assert states.take_lengths(1_000, {"of history": 1_600}, None, FREE) == []
    assert states.take_check(stretch(1_100, 1_300), None, FREE, {"of history": 1_600}) == [], "shorter than two epochs"
    assert states_of(states.take_lengths(1_100, {"of history": 1_600}, None, FREE)) == [("stopped", False)]


def test_a_graph_on_an_accelerator_explains_the_rise_of_the_native_heap():
    states = LoopStates()
    graph = leak(what="torch.Tensor () float32 cuda:0", per_run=23 * 900 * 1024.0)
    states.take_check(stretch(200, 1_600, graph), 20_000, FREE)
    assert states_of(states.take_level(HOST, 1_700, (100, 17_000.0), 20_000, FREE)) == [("growing", False)]
    states.note_native(11_000.0)
    assert states.take_level(HOST, 1_800, (100, 17_000.0), 20_000, FREE) == []
    assert [place.memory for place in states.standing] == [ACCELERATOR], "one growth, told once"
    assert states_of(states.take_level(HOST, 1_900, (100, 60_000.0), 20_000, FREE)) == [("growing", True)]


@pytest.mark.parametrize(("length", "is_leak"), [(1_600, True), (1_350, False)])
def test_a_container_that_gets_longer_as_before_until_eight_times_the_steps_needs_no_other_check(length, is_leak):
    states = LoopStates()
    states.take_check(stretch(200, 800, leak()), None, FREE, {"of history": 800})
    assert states.next_look(stretch(200, 800)) == 3_200
    assert [states.next_reading(step) for step in (800, 1_200, 1_600)] == [1_200, 1_600, None]
    assert states.take_lengths(1_200, {"of history": 1_200}, None, FREE) == []
    states.take_lengths(1_600, {"of history": length}, None, FREE)
    assert (states.state is LoopState.LEAK) is is_leak


def root_of(step):
    return round(40 * step**0.5)


def pace_of(step):
    return 2 * step


SEEN = 200, 430, 798  # steps of a check: about twice, about four times


@pytest.mark.parametrize(("length_at", "is_leak"), [(pace_of, True), (root_of, False)])
def test_a_container_that_gets_longer_more_and_more_slowly_is_no_leak_however_far_it_is_followed(length_at, is_leak):
    states, seen = LoopStates(), GrowthWitness({"of history": [(step, length_at(step)) for step in SEEN]})
    states.take_check(stretch(200, 800, leak()), None, FREE, {"of history": length_at(800)}, seen)
    for step in (1_200, 1_600, 3_200, 6_400):
        states.take_lengths(step, {"of history": length_at(step)}, None, FREE)
    assert (states.state is LoopState.LEAK) is is_leak
    states.take_check(stretch(7_000, 7_600, leak()), None, FREE, {"of history": length_at(7_600)})
    assert (states.state is LoopState.LEAK) is is_leak, "found again at twice the steps"


@pytest.mark.parametrize(("length_at", "is_leak"), [(pace_of, True), (root_of, False)])
def test_what_a_check_could_not_decide_is_known_to_the_next_one(length_at, is_leak):
    states, seen = LoopStates(), GrowthWitness({"of history": [(step, length_at(step)) for step in SEEN]})
    first = stretch(200, 800, outcome=Outcome.INCONCLUSIVE)
    noted = replace(first, check=replace(first.check, noted=(leak(),)))
    assert states.take_check(noted, None, FREE, {}, seen) == []
    for first_step in (2_400, 6_400):  # what is read over so few steps seems to keep its pace
        last_step = first_step + 600
        states.take_check(stretch(first_step, last_step, leak()), None, FREE, {"of history": length_at(last_step)})
    assert (states.state is LoopState.LEAK) is is_leak


def test_many_places_told_as_one_have_no_length():
    states, several = LoopStates(), replace(leak(), n_places=3)
    seen = GrowthWitness({"of history": [(200, 10), (430, 20), (798, 24)]})  # of one of the three
    states.take_check(stretch(200, 800, several), None, FREE, {}, seen)
    states.take_check(stretch(1_700, 2_300, several), None, FREE, {}, seen)
    assert states.state is LoopState.LEAK


@pytest.mark.parametrize(
    ("lengths", "endless", "state"),
    [
        ((199, 399, 799), {"of history"}, LoopState.LEAK),
        ((199, 399, 799), set(), LoopState.GROWING),  # as a buffer that is trimmed at a thousand entries
        ((199, 399, 798), {"of history"}, LoopState.GROWING),
        ((199, 299), {"of history"}, LoopState.GROWING),
    ],
    ids=["exact and endless", "the code may end it", "not exact", "seen once"],
)
def test_as_many_in_each_step_to_four_times_the_steps_are_a_leak_where_no_code_ends_that(lengths, endless, state):
    seen = {"of history": tuple(zip((200, 400, 800), lengths, strict=False))}
    states, witness = LoopStates(), GrowthWitness(seen, frozenset(endless))
    states.take_growing([leak()], (200, 800), None, FREE, witness)
    assert states.state is LoopState.GROWING, "no check that is under way has proven anything"
    states.take_check(stretch(200, 824, leak()), None, FREE, {}, witness)
    assert states.state is state


@pytest.mark.parametrize(
    ("lengths", "since"),
    [((199, 399, 799), 1), ((150, 350, 750), 50), ((500, 700, 1_100), 200), ((150, 352, 750), 200)],
    ids=["from the first step", "from a later one", "with entries from before", "not exact"],
)
def test_growth_by_as_many_in_each_step_began_where_nothing_was_there(lengths, since):
    states = LoopStates()
    witness = GrowthWitness({"of history": tuple(zip((200, 400, 800), lengths, strict=True))})
    changes = states.take_growing([leak()], (200, 800), None, FREE, witness)
    assert f"since step {since}" in changes[0].words
    assert states.standing[0].since_step == since


def test_what_is_said_of_runs_is_said_of_steps_in_a_loop():
    advice = "Every run adds a hook: take it out when the run ends, not until backward() has run through it."
    told = per_step(replace(leak(), advice=advice), 8).advice
    assert told == "Every step adds a hook: take it out when the step ends, not until backward() has run through it."
