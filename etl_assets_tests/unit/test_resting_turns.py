"""Turns of pipelines that are copied, which have threads of their own, and of pipelines that rest."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from etl_assets.sources.ranges import Lag
from etl_assets.worker.feed import Feed
from etl_assets.worker.turns import REST_SECONDS, Turns


@dataclass
class _Pipeline:
    name: str
    priority: int = 0


@dataclass
class _Found:
    lag: Lag | None
    unreadable: Mapping[dt.date, str] = field(default_factory=dict)
    left: int = 0


@dataclass
class _Followed:
    now: float = 0.0
    feeds: dict[str, Feed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.turns = Turns(interval_seconds=1.0, clock=lambda: self.now)
        for name in ("film", "actor"):
            pipeline: Any = _Pipeline(name)
            self.feeds[name] = Feed(pipeline)
        self.turns.follow(self.feeds.values(), lambda name: frozenset())


@pytest.fixture
def followed(monkeypatch) -> _Followed:
    monkeypatch.setattr("etl_assets.worker.turns._IDLE_SECONDS", 0.001)
    return _Followed()


def test_threads_of_copies_take_pipelines_that_are_copied_and_no_others(followed):
    followed.feeds["actor"].is_copying = True
    assert followed.turns.take(copies=True) is followed.feeds["actor"]
    assert followed.turns.take(copies=True) is None
    assert followed.turns.take() is followed.feeds["film"]
    assert followed.turns.take() is None


def test_a_pipeline_that_rests_has_its_next_turn_once_it_is_woken(followed):
    feed = followed.turns.take()
    feed.rests = True
    followed.turns.done(feed.pipeline.name)
    followed.now = 2.0
    assert followed.turns.resting() == [feed]
    assert followed.turns.take() is not feed
    assert followed.turns.take() is None
    followed.turns.wake([feed.pipeline.name])
    assert followed.turns.take() is feed


def test_a_pipeline_that_rests_is_looked_at_after_a_while_anyway(followed):
    feed = followed.turns.take()
    feed.rests = True
    followed.turns.done(feed.pipeline.name)
    assert followed.turns.take() is not feed
    followed.now = REST_SECONDS
    assert followed.turns.take() is feed


def test_one_that_is_woken_during_its_turn_does_not_rest_after_it(followed):
    feed = followed.turns.take()
    followed.turns.wake([feed.pipeline.name])
    feed.rests = True
    followed.turns.done(feed.pipeline.name)
    assert followed.turns.resting() == []
    followed.now = 1.0
    assert followed.turns.take() is followed.feeds["actor"]
    assert followed.turns.take() is feed


def test_all_can_be_woken_those_at_rest_and_those_at_work(followed):
    resting, working = followed.turns.take(), followed.turns.take()
    resting.rests = True
    followed.turns.done(resting.pipeline.name)
    followed.turns.wake_all()
    working.rests = True
    followed.turns.done(working.pipeline.name)
    followed.now = 1.0
    assert {id(followed.turns.take()), id(followed.turns.take())} == {id(resting), id(working)}


def test_one_that_rests_is_looked_at_when_declarations_are_taken_up(followed):
    feed = followed.turns.take()
    feed.rests = True
    followed.turns.done(feed.pipeline.name)
    again = [Feed(each.pipeline) for each in followed.feeds.values()]
    followed.turns.follow(again, lambda name: frozenset())
    followed.now = 1.0
    taken = [followed.turns.take(), followed.turns.take()]
    assert {each.pipeline.name for each in taken} == {"film", "actor"}


@pytest.mark.parametrize("more", [{"unreadable": {dt.date(2026, 1, 1): "no right"}}, {"left": 3}])
def test_one_whose_last_look_was_not_whole_does_not_rest(more):
    pipeline: Any = _Pipeline("film")
    found: Any = _Found(Lag(records=0, oldest=None, is_same=lambda: True))
    assert Feed(pipeline, found=found).says_when
    assert not Feed(pipeline, found=replace(found, **more)).says_when


@pytest.mark.parametrize(
    ("is_same", "left_behind", "has_news"),
    [
        (lambda: True, False, False),
        (lambda: False, False, True),
        (None, False, True),
        (lambda: True, True, True),
    ],
)
def test_a_pipeline_has_news_when_its_source_says_so_or_days_were_left_behind(is_same, left_behind, has_news):
    pipeline: Any = _Pipeline("film")
    found: Any = _Found(Lag(records=0, oldest=None, is_same=is_same))
    feed = Feed(pipeline, found=found)
    if left_behind:
        feed.leave_behind([dt.date(2026, 1, 1)])
    assert feed.has_news is has_news
