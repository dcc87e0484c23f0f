"""Questions to roots with a time limit: what hangs is given up, what is slow is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from etl_assets.errors import Unanswered
from etl_assets.mirroring.stores import circuit_breaker as time_limit
from etl_assets.mirroring.stores.circuit_breaker import Hangs, Heartbeat, ask, hanging

LIMIT, PAUSE = 0.1, 0.4


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    """A root that no other test has asked."""
    return request.node.name


class Stuck:
    """A question that hangs until it is let go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        assert self.go_on.wait(30)
        return "late"


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    question = Stuck()
    yield question
    question.go_on.set()


def wait_until_nothing_hangs(root: str) -> None:
    deadline = time.monotonic() + 5
    while hanging(root) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert hanging(root) == 0


def test_answers_and_errors_come_back(root):
    assert ask(root, lambda: 7, LIMIT) == 7
    with pytest.raises(ZeroDivisionError):
        ask(root, lambda: 1 / 0, LIMIT)


def test_calls_of_one_root_are_made_by_as_many_threads_as_are_needed_at_once(root):
    makers = [ask(root, threading.current_thread, LIMIT) for _ in range(50)]
    assert len(set(makers)) == 1
    both = threading.Barrier(2)
    with ThreadPoolExecutor(2) as callers:
        list(callers.map(lambda _: ask(root, lambda: both.wait(5), 5.0), range(2)))


def test_while_one_call_hangs_nobody_asks_the_root_and_everybody_asks_the_others(root, stuck):
    with pytest.raises(Hangs, match=r"did not answer within 0\.1 s"):
        ask(root, stuck, LIMIT)
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(Hangs, match="not asked again yet") as refused:
            ask(root, stuck, LIMIT)
        assert refused.value.asked is False
    assert time.monotonic() - began < LIMIT
    assert (stuck.asked, hanging(root)) == (1, 1)
    assert ask(f"{root} 2", lambda: 8, LIMIT) == 8


def test_a_root_is_asked_again_as_soon_as_what_hung_comes_to_its_end(root, stuck):
    with pytest.raises(Hangs):
        ask(root, stuck, LIMIT)
    stuck.go_on.set()
    wait_until_nothing_hangs(root)
    assert ask(root, lambda: 7, LIMIT) == 7


def test_a_call_that_was_broken_off_is_no_answer_and_lets_one_try(root, stuck):
    def broken_off() -> None:
        stuck()
        raise Unanswered("timed out", fix="", store=root, key="")

    with pytest.raises(Hangs):
        ask(root, broken_off, LIMIT)
    stuck.go_on.set()
    wait_until_nothing_hangs(root)
    stuck.go_on.clear()
    assert all_hang(root, stuck) == 5
    assert stuck.asked == 2


def all_hang(root: str, question: Stuck) -> int:
    """How many of five that ask at once are told that the root hangs."""

    def told(_: int) -> bool:
        try:
            ask(root, question, LIMIT)
        except Hangs:
            return True
        return False

    with ThreadPoolExecutor(5) as callers:
        return sum(callers.map(told, range(5)))


def test_after_a_pause_one_tries_and_the_next_pause_is_longer(root, stuck, monkeypatch):
    """A mount that was replaced: what hung on the old one hangs for ever."""
    monkeypatch.setattr(time_limit, "FIRST_PAUSE_SECONDS", PAUSE)
    assert all_hang(root, stuck) == 5
    time.sleep(PAUSE)
    assert (all_hang(root, stuck), stuck.asked) == (5, 6), "one more hangs"
    time.sleep(PAUSE)
    with pytest.raises(Hangs, match="not asked again yet"):
        ask(root, stuck, LIMIT)
    time.sleep(PAUSE)
    assert ask(root, lambda: 7, LIMIT) == 7
    assert ask(root, lambda: 7, LIMIT) == 7, "open again, though the old ones still hang"


def test_a_slow_call_is_waited_for_while_its_root_answers(root):
    began = time.monotonic()
    assert ask(root, lambda: time.sleep(4 * LIMIT) or "done", LIMIT, small=lambda: None) == "done"
    assert time.monotonic() - began >= 4 * LIMIT
    assert ask(root, lambda: 7, LIMIT) == 7


def test_a_call_whose_root_answers_nothing_is_given_up_within_the_limit(root, stuck):
    began = time.monotonic()
    with pytest.raises(Hangs):
        ask(root, stuck, LIMIT, small=stuck)
    assert time.monotonic() - began < 2 * LIMIT
    assert hanging(root) == 2


def test_a_call_that_takes_for_ever_is_given_up_and_the_root_stays_in_use_until_there_are_many(
    root, stuck, monkeypatch
):
    monkeypatch.setattr(time_limit, "MAX_SLOW", 2)
    for _ in range(2):
        with pytest.raises(Unanswered) as slow:
            ask(root, stuck, LIMIT, small=lambda: None, slow_seconds=2 * LIMIT)
        assert not isinstance(slow.value, Hangs)
        assert ask(root, lambda: 7, LIMIT) == 7
    with pytest.raises(Unanswered):
        ask(root, stuck, LIMIT, small=lambda: None, slow_seconds=2 * LIMIT)
    with pytest.raises(Hangs):
        ask(root, lambda: 7, LIMIT)


def test_the_time_of_whoever_brings_the_bytes_does_not_count(root):
    def brought() -> Iterator[bytes]:
        for _ in range(3):
            time.sleep(1.5 * LIMIT)
            yield b"chunk"

    pulse = Heartbeat()
    chunks = ask(root, lambda: list(pulse.of(brought())), LIMIT, pulse=pulse)
    assert chunks == [b"chunk"] * 3


def test_a_call_that_hangs_between_two_chunks_is_given_up(root, stuck):
    pulse = Heartbeat()

    def put() -> None:
        for _ in pulse.of([b"one", b"two"]):
            stuck()

    with pytest.raises(Hangs):
        ask(root, put, LIMIT, pulse=pulse)
