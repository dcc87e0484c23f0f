"""Which pipeline a thread of the worker takes next, with a clock of the test."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

import pytest

from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.worker.feed import Feed
from etl_assets.worker.turns import LOOKUP_WAIT_SECONDS, PipelineTurns, Turns, next_turn


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turns(clock: Clock) -> Turns:
    return Turns(interval_seconds=1.0, clock=clock)


def follow(turns: Turns, looks_up: Mapping[str, str] = {}, **priorities: int) -> None:
    feeds = [Feed(Pipeline(name=name, priority=priority)) for name, priority in priorities.items()]
    turns.follow(feeds, lambda name: frozenset({looks_up[name]} if name in looks_up else ()))


def take(turns: Turns) -> str:
    feed = turns.take()
    assert feed is not None
    return feed.pipeline.name


def test_the_highest_priority_comes_first_then_the_one_that_was_served_longest_ago():
    low = PipelineTurns(name="low", began=1.0)
    newer, older = (PipelineTurns(name=str(began), priority=1, began=began) for began in (5.0, 2.0))
    assert next_turn([low, newer, older], now=9.0) == older


def test_a_pipeline_that_is_not_due_yet_waits_whatever_its_priority():
    high = PipelineTurns(name="high", priority=9, due_at=10.0)
    low = PipelineTurns(name="low")
    assert next_turn([high, low], now=9.0) == low
    assert next_turn([high], now=9.0) is None


def test_a_high_priority_with_much_to_do_lets_each_other_one_have_its_turn(turns, clock):
    follow(turns, high=5, low=0, lower=-1)
    taken: list[str] = []
    for _ in range(9):
        taken.append(take(turns))
        clock.now += 2.0  # each turn takes longer than the interval: all are due again
        turns.done(taken[-1])
    assert taken == ["high", "low", "lower"] * 3


def test_one_pipeline_has_one_thread_and_a_slow_one_keeps_no_other_waiting(turns, clock):
    follow(turns, slow=1, one=0, two=0)
    assert take(turns) == "slow"
    served: Counter[str] = Counter()
    for _ in range(6):
        clock.now += 1.0
        served[name := take(turns)] += 1
        turns.done(name)
    assert served == {"one": 3, "two": 3}


def test_one_that_was_away_for_long_is_next_and_has_no_turns_to_catch_up_on(turns, clock):
    follow(turns, slow=0, one=0)
    assert take(turns) == "slow"
    for _ in range(50):
        clock.now += 2.0
        turns.done(take(turns))
    turns.done("slow")
    taken = []
    for _ in range(4):
        clock.now += 2.0
        taken.append(take(turns))
        turns.done(taken[-1])
    assert taken == ["slow", "one", "slow", "one"]


def test_a_turn_holds_back_those_that_look_values_up_in_its_tables_but_not_for_ever(turns, clock):
    follow(turns, {"orders": "customers"}, customers=1, orders=0, other=0)
    assert [take(turns), take(turns)] == ["customers", "other"]
    turns.done("other")
    clock.now += LOOKUP_WAIT_SECONDS / 2
    assert take(turns) == "other"
    clock.now += LOOKUP_WAIT_SECONDS / 2
    assert take(turns) == "orders"


def test_it_comes_as_soon_as_that_turn_has_ended(turns):
    follow(turns, {"orders": "customers"}, customers=1, orders=0)
    assert take(turns) == "customers"
    turns.done("customers")
    assert take(turns) == "orders"


def test_a_pipeline_that_is_declared_again_keeps_its_place_and_its_thread(turns, clock):
    follow(turns, one=0, two=0)
    assert take(turns) == "one"
    clock.now += 5.0
    follow(turns, one=9, two=0, three=0)
    assert [take(turns), take(turns)] == ["two", "three"]
    turns.done("one")
    assert take(turns) == "one"


def test_one_that_is_no_longer_declared_gets_no_turn_more(turns, clock):
    follow(turns, one=0)
    assert take(turns) == "one"
    follow(turns)
    turns.done("one")
    clock.now += 5.0
    assert turns.under_way == 0
    threading.Timer(0.05, turns.end).start()
    assert turns.take() is None


def test_a_thread_that_waits_is_woken_by_the_end_of_a_turn(turns, clock):
    follow(turns, {"orders": "customers"}, customers=1, orders=0)
    take(turns)
    taken: list[str] = []
    thread = threading.Thread(target=lambda: taken.append(take(turns)))
    thread.start()
    turns.done("customers")
    thread.join(10)
    assert taken == ["orders"]
