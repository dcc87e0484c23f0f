"""Errands to several domains: who is waited for, and how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from etl_assets.mirroring.couriers import ThreadCouriers

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
