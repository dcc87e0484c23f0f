"""A sink that is down is left alone and tried once at a time, with one alert; no other sink waits for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etl_assets.errors import SinkUnavailable
from etl_assets.settings import Settings
from etl_assets.sinks.circuit_breaker import CircuitState, after_failure, read_circuits
from etl_assets.sinks.slow_sinks import read_slow_sinks
from etl_assets.steps.step import StepReport
from etl_assets.worker import deliveries, pauses
from etl_assets.worker.deliveries import Deliveries
from etl_assets.worker.step_runner import StepOutcome

DOWN = SinkUnavailable("no answer", fix="start it", sink="postgres")


def test_a_circuit_is_open_for_its_backoff_and_then_half_open():
    first = after_failure(None, "SinkUnavailable: no answer\n  fix: start it", pause_seconds=30, now=1_000.0)
    assert [first.state(now) for now in (1_000.0, 1_029.9, 1_030.0)] == [
        CircuitState.OPEN,
        CircuitState.OPEN,
        CircuitState.HALF_OPEN,
    ]
    assert first.state(999.0) is CircuitState.HALF_OPEN, "the clock was set back"
    second = after_failure(first, first.error, pause_seconds=60, now=1_030.0)
    assert second.sentence(1_050.0) == (
        "its circuit breaker is open since 1970-01-01 00:16:40 UTC after 2 failed deliveries, and a worker"
        " tries the next one in 40 s; the last error: SinkUnavailable: no answer"
    )


class Lab:
    """Deliveries to sinks that end as told."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = Settings(home=home)
        self.behind: tuple[str, ...] = ()
        self.down: set[str] = set()
        self.holding: dict[str, threading.Event] = {}
        self.tried: list[tuple[str, bool]] = []
        self.lost: list[Exception] = []
        self.removed: set[str] = set()
        monkeypatch.setattr(deliveries, "undelivered", lambda reader: self.behind)
        monkeypatch.setattr(deliveries, "declared_sinks", lambda settings: set("abcdefghijkl") - self.removed)
        self.deliveries = self.fresh()

    def fresh(self) -> Deliveries:
        return Deliveries(self.settings, self.deliver, is_leaving=lambda: False, lost=self.lost.append)

    def restart(self) -> None:
        """Replace the worker's deliveries; those under way come to nothing, as in a killed process."""
        self.deliveries._is_leaving = lambda: True
        self.deliveries = self.fresh()

    def deliver(self, table: str, repeat: bool, token: object = None) -> StepOutcome:
        self.tried.append((table, repeat))
        if table in self.holding:
            self.holding[table].wait(30)
        if table in self.down:
            return StepOutcome(began=0.0, report=None, failed={None: DOWN})
        self.behind = tuple(name for name in self.behind if name != table)
        return StepOutcome(began=0.0, report=StepReport(table=table, version=1))

    def look(self, *, wait: bool = True) -> list[tuple[str, bool]]:
        """Look once, and return the deliveries that were begun."""
        self.tried.clear()
        self.deliveries.look()
        for thread in self.deliveries.threads if wait else ():
            thread.join(30)
        return sorted(self.tried)

    @property
    def alerts(self) -> list[str]:
        file = self.settings.home / "alerts.jsonl"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [f"{each['kind']} {each['sink']}" for each in map(json.loads, lines)]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    lab = Lab(tmp_path, monkeypatch)
    yield lab
    for event in lab.holding.values():
        event.set()


def test_a_sink_that_is_down_is_tried_once_after_each_backoff_and_told_of_once(lab, monkeypatch):
    monkeypatch.setattr(pauses, "FIRST_SECONDS", 0.2)
    lab.behind, lab.down = ("a", "b"), {"a"}
    assert lab.look() == [("a", True), ("b", True)]
    assert lab.look() == [], "its circuit is open, and the other sink has everything"
    time.sleep(0.25)
    assert lab.look() == [("a", False)], "half open: one delivery without repetitions"
    assert read_circuits(lab.settings.home)["a"].failures == 2
    assert lab.alerts == ["SinkDown a"]
    lab.deliveries = lab.fresh()  # another worker tries at once, and does not tell again
    assert lab.look() == [("a", False)]
    assert lab.alerts == ["SinkDown a"]
    lab.down.clear()
    time.sleep(0.85)
    assert lab.look() == [("a", False)]
    assert read_circuits(lab.settings.home) == {}
    assert lab.alerts == ["SinkDown a", "SinkBack a"]
    lab.behind = ("a",)
    assert lab.look() == [("a", True)]


def test_what_a_run_has_delivered_closes_the_circuit(lab):
    lab.behind, lab.down = ("a",), {"a"}
    lab.look()
    lab.behind = ()
    assert lab.look() == []
    assert lab.alerts == ["SinkDown a", "SinkBack a"]


def test_a_sink_that_is_slow_holds_up_no_other_and_is_not_delivered_to_twice_at_once(lab):
    lab.holding["slow"] = threading.Event()
    lab.behind = ("slow", "fast")
    lab.look(wait=False)
    _until(lambda: lab.behind == ("slow",))
    lab.behind = ("slow", "fast")
    lab.look(wait=False)
    _until(lambda: lab.tried == [("fast", True)])
    lab.holding["slow"].set()
    _until(lambda: not lab.deliveries.threads)
    assert lab.behind == ()


def test_threads_are_bounded_and_the_sink_served_longest_ago_is_next(lab, monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES_AT_ONCE", 2)
    served: list[str] = []
    for _ in range(3):
        lab.behind = ("a", "b", "c")
        served += [table for table, _ in lab.look()]
    assert served == ["a", "b", "a", "c", "b", "c"]


def test_sinks_that_hang_hold_up_no_other_and_are_told_of(lab, monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES_AT_ONCE", 2)
    lab.holding = {name: threading.Event() for name in "abc"}
    lab.behind = ("a", "b", "c", "d")
    assert lab.look(wait=False) == [("a", True), ("b", True)]
    assert lab.look(wait=False) == [], "all places are taken"
    monkeypatch.setattr(deliveries, "PLACE_SECONDS", 0.0)
    lab.look(wait=False)
    _until(lambda: lab.behind == ("a", "b", "c"))
    assert lab.look(wait=False) == [], "each sink has one delivery, however long it takes"
    assert lab.alerts == []
    monkeypatch.setattr(deliveries, "SLOW_SECONDS", 0.0)
    lab.look(wait=False)
    lab.look(wait=False)
    assert lab.alerts == ["SinkSlow a", "SinkSlow b", "SinkSlow c"], "once"
    lab.down = {"b"}
    for event in lab.holding.values():
        event.set()
    _until(lambda: not lab.deliveries.threads)
    assert sorted(lab.alerts[3:]) == ["SinkBack a", "SinkBack c", "SinkDown b"]


def test_a_slow_sink_is_told_of_once_until_it_is_back_also_by_another_worker(lab, monkeypatch):
    monkeypatch.setattr(deliveries, "SLOW_SECONDS", 0.0)
    lab.behind, lab.holding = ("a", "b"), {name: threading.Event() for name in "ab"}
    for _ in range(2):
        lab.restart()
        lab.look(wait=False)
        lab.look(wait=False)
        assert lab.alerts == ["SinkSlow a", "SinkSlow b"]
    # One is slow, fails, and is slow again; a run has delivered to the other one meanwhile.
    lab.down, lab.behind = {"a"}, ("a",)
    lab.holding["a"].set()
    _until(lambda: not any(thread.name == "a" for thread in lab.deliveries.threads))
    assert lab.alerts[2:] == ["SinkDown a"]
    lab.holding["a"].clear()
    lab.restart()
    lab.look(wait=False)
    lab.look(wait=False)
    assert lab.alerts[3:] == ["SinkBack b"]
    lab.down.clear()
    lab.holding["a"].set()
    _until(lambda: not lab.deliveries.threads)
    assert lab.alerts[4:] == ["SinkBack a"]
    assert read_slow_sinks(lab.settings.home) == set()


def test_a_sink_that_is_no_longer_declared_is_dropped_instead_of_opening_a_circuit(lab):
    lab.behind, lab.down, lab.removed = ("a", "b"), {"a", "b"}, {"a"}
    lab.look()
    assert lab.alerts == ["SinkDown b"]
    assert read_circuits(lab.settings.home).keys() == {"b"}
    lab.behind, lab.removed = (), {"a", "b"}
    lab.look()
    assert lab.alerts == ["SinkDown b", "SinkBack b"]
    assert "b is no longer declared" in (lab.settings.home / "alerts.jsonl").read_text("utf-8")
    assert read_circuits(lab.settings.home) == {}


def test_an_error_that_the_process_cannot_go_on_with_reaches_its_main_thread(lab):
    lab.behind = ("a",)
    error = RuntimeError("the engine is gone")

    def deliver(table: str, repeat: bool, token: object) -> StepOutcome:
        raise error

    lab.deliveries = Deliveries(lab.settings, deliver, is_leaving=lambda: False, lost=lab.lost.append)
    lab.look()
    assert lab.lost == [error]


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
