"""The length of a container is heard beside who survives in it: limits, rates and holders belong to one container."""

from __future__ import annotations

import collections
import functools
import itertools
import random
import types

import pytest
import torch

import leaklab
from leaklab.model import Outcome

pytestmark = pytest.mark.untraced


class Thing:
    pass


def check(cell, runs=None, **variables):
    return leaklab.leakcheck(cell, namespace=variables, sites=False, runs=runs)


OTHER_QUEUES = [
    (2, 1, "newest"), (2, 1, "random"), (6, 5, "oldest"), (6, 5, "random"), (5, 2, "oldest"), (5, 2, "newest"),
]  # fmt: skip


def only_leak(report):
    (leak,) = report.leaks
    return leak


@pytest.mark.parametrize(
    ("add", "take", "end"),
    [
        (2, 1, "oldest"),
        (6, 5, "newest"),
        (5, 2, "random"),
        *(pytest.param(add, take, end, marks=pytest.mark.nightly) for add, take, end in OTHER_QUEUES),
    ],
)
def test_a_queue_that_gets_more_than_it_gives_leaks_the_difference(add, take, end):
    queue, draw = [], random.Random(3)

    def cell():
        queue.extend(Thing() for _ in range(add))
        for _ in range(take):
            queue.pop({"oldest": 0, "newest": -1, "random": draw.randrange(len(queue))}[end])

    leak = only_leak(check(cell, queue=queue, runs=60))
    assert leak.holder == "queue"
    assert leak.count_per_run == pytest.approx(add - take, rel=0.05)


def test_a_deque_between_a_producer_and_a_slower_consumer_leaks():
    backlog = collections.deque()

    def cell():
        backlog.extend(torch.zeros(10) for _ in range(4))
        for _ in range(3):
            backlog.popleft()

    leak = only_leak(check(cell, backlog=backlog, runs=24))
    assert (leak.holder, leak.count_per_run) == ("backlog", pytest.approx(1.0))


def replaced_at_random(draw):
    places = [Thing() for _ in range(20)]

    def cell():
        places[draw.randrange(20)] = Thing()

    return cell, places


def lru(draw):
    cache = collections.OrderedDict()

    def cell():
        for _ in range(2):
            key = draw.randrange(60)
            cache[key] = cache.pop(key, None) or Thing()
            if len(cache) > 24:
                cache.popitem(last=False)

    return cell, cache


def filled_at_random(draw):
    cache = {}

    def cell():
        cache.setdefault(draw.randrange(40), torch.zeros(4))

    return cell, cache


def flushed(_draw):
    rows = []

    def cell():
        rows.append(Thing())
        if len(rows) > 29:
            del rows[:20]

    return cell, rows


@pytest.mark.parametrize("make", [replaced_at_random, lru, filled_at_random, flushed])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_what_keeps_its_length_is_no_leak_whoever_survives(make, seed):
    cell, kept = make(random.Random(seed))
    report = check(cell, kept=kept)
    assert report.verdict.outcome in (leaklab.Outcome.BOUNDED, leaklab.Outcome.CLEAN), str(report)


def test_a_cache_that_fills_in_two_hundred_runs_is_no_leak():
    cache, number = {}, itertools.count()

    def cell():
        cache.setdefault(next(number) % 200, Thing())

    report = check(cell, cache=cache)
    assert report.verdict.outcome is leaklab.Outcome.BOUNDED
    assert len(report.record.runs) > 300


def test_a_limit_belongs_to_the_container_that_has_it():
    state = [[], collections.deque(maxlen=35)]

    def cell():
        for container in state:
            container.append({"a": [1]})

    report = check(cell, state=state)
    assert [leak.holder for leak in report.leaks] == ["state[0]"]
    assert [place.holder for place in report.record.bounded] == ["state[1]"]
    assert only_leak(report).n_places == 1


def test_containers_that_are_alike_are_told_as_one_with_their_number():
    sites = {f"site{i}": [] for i in range(12)}

    def cell():
        for rows in sites.values():
            rows.append(Thing())

    report = check(cell, sites=sites, runs=24)
    leak = only_leak(report)
    assert (leak.n_places, leak.count_per_run) == (12, pytest.approx(12.0))
    assert leak.holder in {f"sites['site{i}']" for i in range(12)}
    assert leak.path.steps[1].reference == leak.holder.removeprefix("sites")
    assert "12 places like `" in str(report.verdict)


def test_a_table_that_spreads_its_entries_over_many_lists_leaks_as_a_whole():
    shards, draw = [[] for _ in range(64)], random.Random(1)

    def cell():
        draw.choice(shards).append(Thing())

    leak = only_leak(check(cell, shards=shards, runs=100))
    assert leak.holder.startswith("shards[")
    assert leak.count_per_run == pytest.approx(1.0, rel=0.2)


def test_what_the_holder_itself_refers_to_is_counted_not_what_the_graph_of_it_keeps():
    history = []

    def cell():
        history.append(torch.ones(8, requires_grad=True).square().sum())

    leak = only_leak(check(cell, history=history, runs=24))
    assert (leak.holder, leak.count_per_run) == ("history", pytest.approx(1.0))


def test_the_graph_of_a_variable_made_anew_is_not_blamed_for_nodes_kept_elsewhere():
    net, kept, variables = torch.nn.Linear(8, 8), [], {}

    def cell():
        y = net(torch.randn(2, 8)).relu()
        kept.append(y)
        variables["score"] = (y @ y.T).mean()

    report = check(cell, kept=kept, variables=variables, runs=24)
    assert [leak.holder for leak in report.leaks] == ["kept"]


def test_runs_stop_long_before_they_fill_the_machine(monkeypatch):
    monkeypatch.setattr("leaklab.measure.measurement.MOST_OF_MEMORY", 0.0005)
    kept = []
    report = check(lambda: kept.append(torch.zeros(1 << 18)), kept=kept)
    assert report.leaked
    assert len(report.record.runs) < 50
    assert "the check stopped after run" in " ".join(report.notes)


@functools.lru_cache(maxsize=4)
def cached_list(_key):
    return []


@pytest.mark.parametrize(
    ("holder", "inner"),
    [
        (collections.deque([[]], maxlen=3), lambda holder: holder[0]),
        (cached_list, lambda holder: holder("key")),
    ],
    ids=["deque", "lru_cache"],
)
def test_a_list_in_a_container_that_limits_itself_leaks(holder, inner):
    leak = only_leak(check(lambda: inner(holder).append(Thing()), holder=holder, runs=24))
    assert "holder" in leak.holder
    assert leak.count_per_run == 1.0


def test_plain_records_in_a_deque_that_has_a_limit_are_bounded():
    window = collections.deque(maxlen=1000)
    report = check(lambda: window.append({"length": len(window), "text": "x" * 1000}), window=window)
    assert report.verdict.outcome == "bounded"
    assert "maxlen=1000" in report.verdict.reason


def test_all_links_of_a_chain_count():
    box = Thing()
    box.head = None

    def cell():
        link = Thing()
        link.following, box.head = box.head, link

    leak = only_leak(check(cell, box=box, runs=24))
    assert (leak.holder, leak.count_per_run) == ("box.head", 1.0)


@pytest.mark.parametrize("as_dict", [False, True])
@pytest.mark.parametrize("make", [Thing, lambda: torch.zeros(10)])
def test_a_vast_container_that_is_full_of_the_like_is_no_leak(make, as_dict):
    places = {number: make() for number in range(6_000)} if as_dict else [make() for _ in range(6_000)]
    turn = itertools.count()

    def cell():
        places[next(turn) % 6_000] = make()

    report = check(cell, places=places)
    assert report.leaks == ()
    assert [leak.holder for leak in report.check.bounded] == ["places"]


@pytest.mark.parametrize("fill", [None, torch.zeros(0)])
def test_a_vast_container_whose_places_are_empty_still_leaks(fill):
    places, turn = [fill] * 6_000, itertools.count()

    def cell():
        places[next(turn)] = torch.zeros(10)

    assert only_leak(check(cell, places=places, runs=24)).holder == "places"


@pytest.mark.parametrize(("n_added", "n_floats", "is_leak"), [(20, 64, False), (1, 3_000, True)])
def test_how_far_a_limit_is_does_not_depend_on_how_many_entries_a_run_adds(n_added, n_floats, is_leak):
    turn = itertools.count()

    @functools.lru_cache(maxsize=2_000)
    def encoded(word):
        return torch.full((n_floats,), float(word))

    def cell():
        for _ in range(n_added):
            encoded(next(turn))

    report = leaklab.leakcheck(cell, runs=40, namespace={"encoded": encoded}, sites=False)
    assert bool(report.leaks) is is_leak


class Link:
    def __init__(self, before):
        self.before = before


def ring_of_links():
    ring = collections.deque(maxlen=4)
    return ring, lambda: ring.append(Link(ring[-1] if ring else None))


def bag_under_new_keys():
    table, key = {}, itertools.count()

    def cell():
        bag = table.popitem()[1] if table else Link(())
        bag.before += (Link(None),)
        table[next(key)] = bag

    return table, cell


@pytest.mark.parametrize("make", [ring_of_links, bag_under_new_keys])
def test_a_place_that_keeps_its_length_leaks_what_collects_inside(make):
    place, cell = make()
    leak = only_leak(leaklab.leakcheck(cell, runs=24, namespace={"place": place}, sites=False, cure=False))
    assert leak.holder.startswith("place[")
    assert leak.count_per_run == pytest.approx(1.0, rel=0.1)


def test_a_window_on_the_newest_of_what_leaks_is_not_one_chain_with_it():
    """As of requests: the paths to the newest lead through the window, and those to older ones through the dict."""
    app = types.SimpleNamespace(recent=[], kept={})

    def cell():
        for _ in range(4):
            thing = Thing()
            app.recent.append(thing)
            del app.recent[:-20]  # five runs, exactly
            app.kept[len(app.kept)] = thing

    leak = only_leak(check(cell, app=app))
    assert (leak.holder, leak.n_places, leak.count_per_run) == ("app.kept", 1, 4.0)


def first_out(limit):
    hold = []

    def cell():
        hold.append(torch.zeros(16))
        if len(hold) > limit:
            hold.pop(0)

    return cell


def lowest_key_out(limit):
    hold, n_calls = {}, itertools.count()

    def cell():
        hold[next(n_calls)] = torch.zeros(16)
        while len(hold) > limit:
            del hold[min(hold)]

    return cell


def oldest_out(limit):
    hold, n_calls = collections.OrderedDict(), itertools.count()

    def cell():
        hold[next(n_calls)] = torch.zeros(16)
        if len(hold) > limit:
            hold.popitem(last=False)

    return cell


@pytest.mark.by_day(4)
@pytest.mark.parametrize("limit", [5, 8, 12])
@pytest.mark.parametrize("ring", [first_out, lowest_key_out, oldest_out])
def test_a_ring_that_the_last_run_has_filled_is_no_leak(ring, limit):
    # The warm-up and the runs add one more than fits: what was dropped is older than they are.
    report = check(ring(limit), runs=limit)
    assert report.verdict.outcome is Outcome.INCONCLUSIVE
    assert not report.leaks


def now_and_then(runs_that_add):
    hold, n_calls = [], itertools.count()

    def cell():
        if next(n_calls) in runs_that_add:
            hold.append([0] * 50)

    return cell


@pytest.mark.parametrize(
    ("runs_that_add", "words"),  # the warm-up is call 0
    [({2, 3, 5, 8}, "did not grow for 2 runs before"), ({5, 6, 8}, "3 of 11 runs left something behind")],
)
def test_what_has_rested_before_may_rest_once_more(runs_that_add, words):
    report = check(now_and_then(runs_that_add), runs=12)
    assert report.verdict.outcome is Outcome.INCONCLUSIVE
    assert words in report.verdict.reason


def test_what_was_filled_run_by_run_is_full():
    assert check(now_and_then({1, 2, 3, 4}), runs=12).verdict.outcome is Outcome.BOUNDED
