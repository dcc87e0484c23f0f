"""Work that takes long goes on, is begun once, and whoever asks later gets what it gave."""

from __future__ import annotations

import threading

import pytest

from etl_assets.replicas.long_work import LongWork


def test_work_that_is_quick_gives_its_answer_and_is_begun_anew_the_next_time():
    work, begun = LongWork(), iter("ab")
    assert [work.ask("name", lambda: next(begun), 30) for _ in range(2)] == ["a", "b"]


def test_work_that_takes_long_is_begun_once_and_handed_over_when_it_is_done():
    work, end, ended, begun = LongWork(), threading.Event(), threading.Event(), []

    def long() -> str:
        begun.append(1)
        assert end.wait(30)
        return "done"

    assert [work.ask("name", long, 0.05) for _ in range(3)] == [None] * 3
    assert work.ask("another", lambda: "quick", 30) == "quick"
    end.set()
    assert wait_for(lambda: work.ask("name", long, 30), ended) == "done"
    assert begun == [1]


def test_what_work_raises_is_raised_to_whoever_asks_for_what_became_of_it_and_once():
    work, end = LongWork(), threading.Event()

    def failing() -> str:
        assert end.wait(30)
        raise OSError("full")

    assert work.ask("name", failing, 0.05) is None
    end.set()
    with pytest.raises(OSError, match="full"):
        wait_for(lambda: work.ask("name", failing, 30), threading.Event())
    assert work.ask("name", lambda: "again", 30) == "again"


def wait_for(ask, never: threading.Event) -> str:
    for _ in range(1_000):
        if (found := ask()) is not None:
            return found
        never.wait(0.01)
    raise AssertionError("it never ended")
