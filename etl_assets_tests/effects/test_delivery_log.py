"""The log of a sink's deliveries, over the table and over its twin in memory."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from etl_assets.effects.delivery_log import DeliveryLog
from etl_assets.effects.store import EffectStore
from etl_assets.effects.table import EffectsTable
from etl_assets.errors import EffectInProgress, EffectTakenOver, Fenced
from etl_assets_tests.effects.test_store import Time, log, store, three  # noqa: F401 - fixtures

PLAN, OTHER = {"number": 1}, {"number": 2}


def of(effects: Any, process: str = "p", time: Time | None = None, **others: Any) -> DeliveryLog:
    time = time or Time()
    return DeliveryLog(store(effects, process, time, worker="delivery", **others), monotonic=time.monotonic)


def same(plan: Any) -> bool:
    return plan == PLAN


def test_a_delivery_is_continued_with_its_progress_until_another_replaces_it(log):  # noqa: F811
    first = of(log())
    claimed = first.claim(PLAN, same)
    assert (claimed.plan, claimed.result, claimed.continued, first.load()) == (PLAN, None, False, None)
    first.save({"rows": 500})
    again = of(log())
    claimed = again.claim(OTHER, same)
    assert (claimed.plan, claimed.continued, again.load()) == (PLAN, True, {"rows": 500})
    again.finish({"written": 7})
    done = of(log()).claim(OTHER, same)
    assert (done.plan, done.result) == (PLAN, {"written": 7})
    other = of(log())
    claimed = other.claim(OTHER, lambda plan: False)
    assert (claimed.plan, claimed.result, claimed.continued, other.load()) == (OTHER, None, False, None)


def test_an_owner_that_saves_is_not_replaced_and_one_that_was_replaced_cannot_save(log):  # noqa: F811
    first = of(log())
    first.claim(PLAN, same)
    time = Time()
    second = store(log(), "q", time, worker="delivery")

    def seconds_later(seconds: float) -> None:
        time.now += seconds
        first.save({"at": time.now})

    second._sleep = seconds_later  # the owner shows that it lives whenever the other one looks
    with pytest.raises(EffectInProgress):
        second.claim("delivery", lambda held: held)
    second._sleep = time.sleep
    answer = second.claim("delivery", lambda held: held)
    assert answer.held["progress"] == {"at": pytest.approx(time.now, abs=120)}
    with pytest.raises(EffectTakenOver):
        first.save({"rows": 1})
    with pytest.raises(EffectTakenOver):
        first.finish({})


def test_a_claim_is_current_for_less_than_another_process_waits_and_saving_renews_it(log):  # noqa: F811
    time = Time()
    mine = of(log(), time=time)
    mine.claim(PLAN, same)
    assert mine.is_current()
    assert not mine.is_due()
    time.now += 20
    assert (mine.is_current(), mine.is_due()) == (True, True)
    time.now += 30
    assert not mine.is_current()
    mine.save({})
    assert (mine.is_current(), mine.is_due()) == (True, False)


def test_the_table_has_one_row_for_a_sink(tmp_path):
    from etl_assets_tests.effects.test_store import effects_table, rows_of
    from etl_assets_tests.reference.tables import local_domain

    table = effects_table(local_domain(tmp_path / "data"))
    for number in range(5):
        mine = DeliveryLog(EffectStore(EffectsTable(table), sink="s", domain="local", worker="delivery"))
        mine.claim({"number": number}, lambda plan: False)
        mine.save({"rows": number})
        mine.finish({"written": number})
    (row,) = rows_of(table)
    assert (row["key"], row["state"], row["attempt"]) == ("delivery", "completed", 1)


def test_in_another_domain_a_delivery_goes_on_where_it_was(three):  # noqa: F811
    from etl_assets_tests.effects.test_store import effects_table
    from etl_assets_tests.reference.three_domains import A, B, root_of

    def in_domain(name: str, process: str) -> DeliveryLog:
        effects = EffectsTable(effects_table(three.named(name)))
        return DeliveryLog(store(effects, process, domain=name, worker="delivery"))

    first = in_domain(A, "p")
    first.claim(PLAN, same)
    first.save({"rows": 500})
    shutil.rmtree(root_of(three, A))
    second = in_domain(B, "q")
    assert second.claim(OTHER, same).plan == PLAN
    assert second.load() == {"rows": 500}
    with pytest.raises(Fenced):
        first.save({"rows": 1_000})
