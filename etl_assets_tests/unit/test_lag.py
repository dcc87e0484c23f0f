"""For how long a replica is behind, by one observer's own clock."""

from __future__ import annotations

from etl_assets.observability.lag import Behind, still_behind


def test_a_replica_that_stands_still_is_further_behind_with_every_look():
    found = still_behind({}, 7, {"a": 0, "b": 1}, 100.0)
    assert found == {"b": Behind(version=7, since=100.0)}
    found = still_behind(found, 9, {"a": 0, "b": 3}, 130.0)
    assert found["b"].seconds(130.0) == 30.0


def test_one_that_follows_a_busy_table_is_not_taken_for_one_that_stands_still():
    found = still_behind({}, 7, {"b": 1}, 100.0)
    found = still_behind(found, 9, {"b": 1}, 160.0)
    assert found["b"] == Behind(version=9, since=160.0), "it has version 7 by now, and lacks another one"


def test_one_that_does_not_answer_is_behind_since_it_was_first_missed_whatever_it_holds():
    found = still_behind({}, 7, {"b": None}, 100.0)
    found = still_behind(found, 7, {"b": None}, 190.0)
    assert found["b"].seconds(190.0) == 90.0
    assert still_behind(found, 7, {"b": 0}, 200.0) == {}


def test_a_clock_that_began_anew_makes_no_lag_below_zero():
    assert Behind(version=1, since=500.0).seconds(3.0) == 0.0
