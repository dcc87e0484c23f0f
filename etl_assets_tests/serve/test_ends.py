"""Servers that are killed or ended under load, and what the table has afterwards."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import threading
import time
from collections import Counter

import httpx
import pytest
from deltalake import DeltaTable

from etl_assets.serve.retention import remove_read
from etl_assets.settings import load_settings
from etl_assets_tests.serve.server_process import (
    LINES,
    PIPELINE,
    ServerProcess,
    command,
    serving,
    write_installation,
)

CLIENTS, EVENTS = 4, 20


class Load:
    """Clients that send events without end, each request under a key, and note what was acknowledged.

    A request that was not answered is sent again, under its key, to the next server.
    """

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self._numbers = itertools.count()
        self._unanswered: list[tuple[str, list[int]]] = []

    def against(self, server: ServerProcess, end: threading.Event) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._send, args=(server, end)) for _ in range(CLIENTS)]
        for each in threads:
            each.start()
        return threads

    def finish(self, server: ServerProcess) -> int:
        """Send again what was not answered; return the number of requests."""
        left, self._unanswered = self._unanswered, []
        with server.client() as client:
            for key, numbers in left:
                assert self._post(client, server, key, numbers).status_code == 202
                self.acknowledged += numbers
        return len(left)

    def _send(self, server: ServerProcess, end: threading.Event) -> None:
        with server.client() as client:
            while not end.is_set():
                numbers = [next(self._numbers) for _ in range(EVENTS)]
                try:
                    answer = self._post(client, server, f"k{numbers[0]}", numbers)
                except httpx.TransportError:
                    self._unanswered.append((f"k{numbers[0]}", numbers))
                    return
                if answer.status_code == 202:
                    self.acknowledged += numbers
                else:
                    self._unanswered.append((f"k{numbers[0]}", numbers))

    def _post(self, client: httpx.Client, server: ServerProcess, key: str, numbers: list[int]):
        body = "\n".join(f'{{"id": {number}, "film": "f"}}' for number in numbers)
        return client.post(server.events, content=body, headers={**LINES, "idempotency-key": key})


def numbers_in_table(home, monkeypatch) -> Counter[int]:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(home))
    path = load_settings().placement().domains[0].table_path(PIPELINE)
    return Counter(DeltaTable(str(path)).to_pyarrow_table(columns=["id"]).column("id").to_pylist())


@pytest.mark.spark
@pytest.mark.slow
def test_every_acknowledged_event_is_in_the_table_once_after_kills_and_an_end(tmp_path, monkeypatch):
    # Without ids every record that is read twice would be two rows: only keys and file names are at work.
    write_installation(tmp_path, with_id=False)
    load, token, sent_again = Load(), None, 0
    for end_it in ("kill", "kill", "terminate"):
        with serving(tmp_path, token) as server:
            token = server.token
            sent_again += load.finish(server)
            end = threading.Event()
            threads = load.against(server, end)
            time.sleep(1.5)
            getattr(server, end_it)()
            end.set()
            for each in threads:
                each.join(30)
    left_by_sigterm = len(load._unanswered)
    with serving(tmp_path, token) as server:
        load.finish(server)
        server.terminate()
    assert sent_again, "no kill hit a request"
    assert left_by_sigterm <= CLIENTS
    command(tmp_path, "run")
    found = numbers_in_table(tmp_path, monkeypatch)
    assert len(load.acknowledged) > 1_000
    assert found == Counter(load.acknowledged)
    # Files that were read go, and are missed by nobody.
    journal, tomorrow = tmp_path / "data" / "journal", dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    files = len(list(journal.rglob("*.jsonl")))
    assert remove_read(load_settings().placement(), PIPELINE, tomorrow) == files > 0
    assert not list(journal.rglob("*.jsonl"))
    # A killed server may leave a file that it was writing, which `run` mentions.
    assert re.search("nothing (else )?to do", command(tmp_path, "run").stderr)


def test_sigterm_answers_every_request_that_it_accepted(tmp_path):
    write_installation(tmp_path, serve={"group_commit_seconds": 1})
    with serving(tmp_path) as server, server.client() as client:
        answers: list[int] = []
        sending = threading.Thread(
            target=lambda: answers.append(
                client.post(server.events, content=b"{}", headers=LINES).status_code
            )
        )
        sending.start()
        time.sleep(0.5)
        server.terminate()
        sending.join(20)
        assert answers == [202]
    assert list((tmp_path / "data" / "journal").rglob("*.jsonl"))
