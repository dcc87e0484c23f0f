"""Errands to several domains: who is waited for, and how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from etl_assets.mirroring.protocol.couriers import ThreadCouriers

GRACE = 0.2


@pytest.fixture
def couriers() -> Iterator[ThreadCouriers]:
    made = ThreadCouriers(patience_seconds=2.0, grace_seconds=GRACE)
    yield made
    made.close()


@pytest.fixture
def silent() -> Iterator[Callable[[], str]]:
    """An errand that does not come back during the test."""
    end = threading.Event()

    def errand() -> str:
        assert end.wait(30)
        return "late"

    yield errand
    end.set()


def answer() -> str:
    return "answer"


def test_enough_answers_end_the_waiting(couriers, silent):
    began = time.monotonic()
    found = couriers.gather({"a": answer, "b": answer, "c": silent}, lambda answers: len(answers) == 2)
    assert found == {"a": "answer", "b": "answer"}
    assert time.monotonic() - began < GRACE


def test_when_everybody_is_to_answer_the_last_ones_get_a_short_grace(couriers, silent):
    def slow() -> str:
        time.sleep(GRACE / 2)
        return "answer"

    began = time.monotonic()
    found = couriers.gather_from_all({"a": answer, "b": slow, "c": answer, "d": silent})
    assert found == {"a": "answer", "b": "answer", "c": "answer"}
    assert GRACE <= time.monotonic() - began < 5 * GRACE


def test_the_grace_begins_when_more_than_half_have_answered(couriers, silent):
    def slow() -> str:
        time.sleep(3 * GRACE)
        return "answer"

    assert couriers.gather_from_all({"a": answer, "b": slow, "c": silent}) == {"a": "answer", "b": "answer"}


def test_nobody_is_waited_for_who_has_answered(couriers):
    began = time.monotonic()
    assert couriers.gather_from_all({"a": answer, "b": answer}) == {"a": "answer", "b": "answer"}
    assert time.monotonic() - began < GRACE


@pytest.mark.parametrize("ask", ["gather", "gather_from_all"])
def test_an_errand_that_somebody_waits_for_is_not_given_up_for_one_of_another_thread(couriers, ask):
    let_go, found = threading.Event(), {}

    def busy() -> str:
        assert let_go.wait(30)
        return "first"

    def wait_for(name: str, errand: Callable[[], str]) -> threading.Thread:
        def run() -> None:
            send = partial(couriers.gather, enough=lambda _: False)
            found[name] = (send if ask == "gather" else couriers.gather_from_all)({"a": errand})

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.05)
        return thread

    threads = [wait_for("busy", busy), wait_for("vote", lambda: "vote"), wait_for("read", lambda: "read")]
    let_go.set()
    for thread in threads:
        thread.join(10)
    assert found == {"busy": {"a": "first"}, "vote": {"a": "vote"}, "read": {"a": "read"}}


def test_an_errand_that_nobody_waits_for_and_that_was_not_begun_gives_way_to_the_next(couriers):
    let_go, done = threading.Event(), []

    def errand(name: str) -> Callable[[], str]:
        return lambda: done.append(name) or name

    def busy() -> str:
        assert let_go.wait(30)
        return "busy"

    couriers.gather({"a": busy}, lambda _: True)
    for number in range(3):
        couriers.gather({"a": errand(f"left {number}")}, lambda _: True)
    let_go.set()
    assert couriers.gather({"a": errand("waited for")}, lambda _: False) == {"a": "waited for"}
    assert done == ["waited for"]


def test_an_errand_that_nobody_waits_for_is_done_if_nothing_follows(couriers):
    done = threading.Event()
    couriers.gather({"a": lambda: time.sleep(0.05)}, lambda _: True)
    couriers.gather({"b": answer, "a": done.set}, lambda _: True)
    assert done.wait(2)
