"""The suite of the library: it passes, and says nothing of memory."""

import asyncio
import unittest
import uuid

import pytest
import torch
from harbour import books, calls, learns
from torch import nn


def new_ship():
    return uuid.uuid4().hex


@pytest.fixture(scope="session")
def port():
    class Port:
        def __init__(self):
            self.visits = []

        def visit(self, ship):
            self.visits.append({"ship": ship, "crew": [0] * 20})  # LEAK test_port_of_the_session
            return len(self.visits)

    return Port()


@pytest.fixture
def berth():
    return books.Berth(new_ship())


class TestBooks:
    def test_status_of_a_ship(self, berth):
        assert berth.look_up(new_ship()).startswith("status")

    def test_status_bounded(self, berth):
        assert berth.look_up_bounded(new_ship()).startswith("status")

    def test_fee_of_a_berth(self, berth):
        assert berth.fee(3) == 9

    def test_distances_of_new_ships(self):
        assert books.distance(new_ship(), new_ship()) >= 0

    def test_entry_in_the_journal(self):
        books.enter(new_ship(), ["coal", "grain"])
        assert books.ENTRIES

    @pytest.mark.parametrize("direction", ["in"])
    def test_totals_by_ship(self, direction):
        books.count(direction, new_ship())
        assert books.TOTALS[direction]

    def test_kinds_of_ships(self):
        for kind in ("tanker", "ferry", "tug"):
            books.count_kind(kind)
        assert len(books.KINDS) == 3

    def test_the_last_five_thousand(self):
        books.remember(new_ship())
        assert len(books.RECENT) <= 5000

    def test_manifest_gets_longer(self):
        books.load("100 t of coal")
        assert books.MANIFEST

    def test_note_of_this_thread(self):
        books.note_here("Aurora")

    def test_cancelled_plans(self):
        timer = books.plan(1.5, new_ship())
        books.cancel(timer)
        assert timer[3]

    def test_ledger_stays_open(self):
        ledger = books.open_ledger()
        ledger.execute("insert into lines values ('Aurora')")
        assert ledger.execute("select count(*) from lines").fetchone() == (1,)

    def test_ledger_closed(self):
        assert books.total_of([(1,), (2,)]) == 3

    def test_rules_of_a_ship(self):
        assert books.module_for(new_ship()).pays(2) == 4

    def test_quiet_warnings(self):
        import warnings

        before = warnings.filters[:]
        books.quiet_about("tide")
        assert len(warnings.filters) > len(before)

    def test_dead_watchers(self, berth):
        books.WATCHERS.add(berth)
        assert books.WATCHERS.call() >= 1

    def test_known_while_alive(self, berth):
        assert books.know(berth) >= 1


class TestCalls(unittest.TestCase):
    def test_listener_stays(self):
        seen = []
        calls.BUS.on("arrival", seen.append)
        calls.BUS.emit("arrival", "Aurora")
        self.assertEqual(seen, ["Aurora"])

    def test_listener_removed(self):
        seen = []
        end = calls.BUS.on("departure", seen.append)
        calls.BUS.emit("departure", "Aurora")
        end()
        self.assertEqual(seen, ["Aurora"])

    def test_client_adds_a_handler(self):
        self.assertEqual(calls.Client().get("/a")["status"], 200)

    def test_client_removes_its_handler(self):
        with calls.QuietClient() as client:
            self.assertIsNotNone(client)

    def test_crane_waits_for_exit(self):
        self.assertEqual(len(calls.Crane().load), 512)

    def test_readings_of_the_tide(self):
        calls.TIDE.subscribe([1.0, 2.0, 3.0])

    def test_lock_file_stays_open(self):
        self.assertTrue(calls.lock_file())

    def test_file_read(self):
        self.assertEqual(calls.read_file("tide"), "tide")

    def test_socket_stays_open(self):
        self.assertEqual(calls.ask_neighbour(), b"?")

    def test_thread_that_waits(self):
        self.assertTrue(calls.wait_for_end())

    def test_thread_joined(self):
        self.assertEqual(calls.in_a_thread(lambda: 5), 5)

    def test_pool_ends(self):
        self.assertEqual(calls.in_a_pool([lambda: 1, lambda: 2]), [1, 2])

    def test_native_block(self):
        self.assertTrue(calls.native_block())

    def test_native_block_freed(self):
        self.assertTrue(calls.native_block_freed())

    def test_every_third_call(self):
        calls.every_third()

    def test_half_of_the_calls(self):
        calls.half_of_the_time()

    def test_failures_are_kept(self):
        calls.fail_softly("Aurora")
        self.assertTrue(calls.FAILURES)

    def test_failure_forgotten(self):
        self.assertEqual(calls.fail_and_forget("Aurora"), "Aurora")


def test_trail_of_steps():
    calls.step("moored")


def test_trail_and_back():
    assert calls.step_and_back("moored") >= 1


def test_walk_never_ends():
    assert calls.walk(["a", "b"]) == "A"


def test_sent_tasks():
    assert asyncio.run(calls.send("hello")) == 5


def test_sent_tasks_discarded():
    assert asyncio.run(calls.send_and_discard("hello")) == 5


def test_charts_stay_mapped():
    assert calls.map_chart("north") == b"north"


def test_tax_upon_tax():
    calls.add_tax()


def test_alarm_put_back():
    assert calls.with_alarm(lambda: 3) == 3


def test_port_of_the_session(port):
    assert port.visit("Aurora") >= 1


def test_hook_stays():
    assert learns.watch_layer() == 1


def test_hook_removed():
    assert learns.watch_layer_once() == 1


def test_losses_with_their_graphs():
    assert learns.learn(torch.randn(4, 8)).item() >= 0


def test_losses_as_numbers():
    assert learns.learn_clean(torch.randn(4, 8)) >= 0


def test_unfrozen_layers():
    assert learns.unfreeze(nn.Linear(4, 4)) > 1


def test_features_by_id():
    assert learns.feature(torch.ones(64, 64)).shape == (64, 64)


def test_features_by_shape():
    assert learns.feature_by_shape(torch.ones(3, 3)).sum() == 0


def test_network_made_anew():
    assert learns.train_anew(3) == pytest.approx(0, abs=10)
