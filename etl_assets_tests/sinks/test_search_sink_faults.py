"""A search engine that is killed or stopped in a delivery: each row is there once, and nothing is lost."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import SinkUnavailable
from etl_assets.sinks.search import bulk
from etl_assets.sinks.search import open as opening
from etl_assets.sinks.search.client import Patience, SearchClient, SearchServer
from etl_assets.stack.opensearch import OpenSearchServer
from etl_assets_tests.sinks.test_replays_reach_sinks import ReplayLab, Target

pytestmark = pytest.mark.kill

OLD = dict.fromkeys(range(60), "old")
NEW = dict.fromkeys(range(40, 100), "new")


class SearchLab(ReplayLab):
    """An installation whose table `films` is delivered to an index of an engine."""

    def __init__(self, home: Path, server: OpenSearchServer) -> None:
        self.server, self.index = server, f"films_{uuid.uuid4().hex[:8]}"
        connection = {"type": "search", "urls": [server.url], "write": ["films_*"], "timeout_seconds": 5}
        target = Target(connection, {"type": "search", "index": self.index}, dict, lambda _: None)
        super().__init__(home, target)

    def stored(self) -> dict[int, str]:
        """The rows that a reader of the index has."""
        client = SearchClient(SearchServer(urls=(self.server.url,)), sink="test")
        found = client.send("GET", f"/{self.index}/_search", {"size": 1_000})
        client.close()
        hits = [hit["_source"] for hit in found.body["hits"]["hits"]]
        rows = {each["film_id"]: each["title"] for each in hits}
        assert len(rows) == len(hits), "no row is there twice"
        return rows


@pytest.fixture(scope="module")
def server() -> Iterator[OpenSearchServer]:
    with OpenSearchServer() as server:
        yield server


@pytest.fixture
def lab(server: OpenSearchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SearchLab:
    """A lab with one delivery; the next one sends its rows in some requests."""
    lab = SearchLab(tmp_path / "home", server)
    lab.lab.write(OLD.items())
    lab.deliver()
    lab.lab.write(NEW.items())
    lab.lab.delete([0, 1])
    monkeypatch.setattr(bulk, "MAX_REQUEST_BYTES", 2_000)
    return lab


@pytest.fixture
def after_two_requests(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have something happen in the middle of the next delivery."""

    def arrange(happens: Callable[[], object]) -> None:
        requests: list[Any] = []

        def answered(*_: object) -> None:
            requests.append(None)
            if len(requests) == 2:
                happens()

        monkeypatch.setattr(bulk, "failpoint", answered)

    return arrange


def expect_current(lab: SearchLab, *, deliveries: int) -> None:
    """The index has the table, each delivery is recorded once, and there is nothing left to deliver."""
    assert lab.stored() == {number: title for number, title in {**OLD, **NEW}.items() if number > 1}
    versions = [row["to_version"] for row in lab.rows(lab.step)]
    assert (len(versions), versions[-1]) == (deliveries, lab.lab.table().version())
    lab.deliver()
    assert len(lab.rows(lab.step)) == deliveries


def test_an_engine_that_is_killed_in_a_delivery_and_started_again_gets_what_it_lacks(
    server, lab, after_two_requests, monkeypatch
):
    monkeypatch.setattr(opening, "Patience", partial(Patience, attempts=2))
    after_two_requests(server.kill)
    with pytest.raises(SinkUnavailable):
        lab.deliver()
    with pytest.raises(SinkUnavailable):
        lab.deliver()
    assert len(lab.rows(lab.step)) == 1, "nothing is recorded as delivered"
    server.start()
    lab.deliver()
    expect_current(lab, deliveries=2)


def test_an_engine_that_is_stopped_in_a_delivery_has_each_row_once_when_it_goes_on(
    server, lab, after_two_requests
):
    def stopped() -> None:
        server.pause()
        threading.Timer(1.5, server.resume).start()

    after_two_requests(stopped)
    began = time.monotonic()
    lab.deliver()
    assert time.monotonic() - began > 1.4
    expect_current(lab, deliveries=2)


def test_a_delivery_that_an_engine_does_not_answer_in_time_is_repeated(
    server, lab, after_two_requests, monkeypatch
):
    monkeypatch.setattr(opening, "Patience", lambda **_: Patience(timeout_seconds=1))
    after_two_requests(server.pause)
    with pytest.raises(SinkUnavailable, match="no answer within 1 s"):
        lab.deliver()
    server.resume()
    lab.deliver()
    expect_current(lab, deliveries=2)
