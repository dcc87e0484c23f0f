"""`ack=committed`: answers that wait for the commit of their events, against real servers. No Spark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets.worker.lease import lease
from etl_assets_tests.serve.ingest_process import ingest
from etl_assets_tests.serve.server_process import serving, write_installation

THREE_DOMAINS = [{"name": f"local/{name}", "root": name} for name in "abc"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


class Sender:
    """Sends requests that wait, each in a thread of its own."""

    def __init__(self, server) -> None:
        self.server, self._threads = server, ThreadPoolExecutor(8)

    def send(self, body, key=None, **parameters):
        return self._threads.submit(self.ask, body, key, **parameters)

    def ask(self, body, key=None, **parameters):
        headers = {} if key is None else {"idempotency-key": key}
        asked = {"ack": "committed", **parameters}
        with self.server.client() as client:
            return client.post(self.server.events, params=asked, json=body, headers=headers)

    def until_stored(self, records) -> None:
        """Wait until the journal of some domain has so many records."""
        deadline = time.monotonic() + 30
        while _stored(self.server.home) < records:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _stored(home) -> int:
    by_name = {path.name: path for path in home.rglob("journal/**/*.jsonl")}
    lines = (line for path in by_name.values() for line in path.read_text("utf-8").splitlines())
    return sum(not line.startswith("#") for line in lines)


def short(outcomes):
    return [(each["outcome"], each.get("offset")) for each in outcomes]


def test_each_event_gets_the_outcome_that_the_tables_have_and_so_does_whoever_asks_again(home):
    write_installation(home, domains=THREE_DOMAINS, serve={"write_timeout_seconds": 20})
    with serving(home) as server:
        sender = Sender(server)
        # 1. The answer comes with the commit, soon.
        first = sender.send([{"id": 1, "film": "a"}, {"id": 2, "film": "a"}], key="first")
        sender.until_stored(2)
        assert not first.done()
        ingest()
        committed = time.monotonic()
        answer = first.result(30)
        assert time.monotonic() - committed < 5
        assert answer.status_code == 200, answer.text
        assert short(answer.json()["outcomes"]) == [("accepted", 0), ("accepted", 1)]
        # 2. Several requests in one batch, each with its own outcomes, in order.
        many = sender.send(
            [
                {"id": 2, "film": "a"},
                {"id": 1, "film": "b"},
                {"film": "no id"},
                {"id": 3, "film": "a"},
                {"id": 3, "film": "a"},
                {"id": 3, "film": "b"},
            ]
        )
        sender.until_stored(8)  # so that its record 3 comes first
        duplicate = sender.send({"id": 3, "film": "a"})
        conflict = sender.send({"id": 1, "film": "b"}, key="conflict")
        listed = sender.send([{"id": 1, "film": "c"}])
        rejected = sender.send({"film": "no id"})
        assert sender.ask({"id": 4}, key="four", ack="durable").status_code == 202
        sender.until_stored(13)
        ingest()
        found = many.result(30).json()
        assert short(found["outcomes"]) == [
            ("duplicate", 1),
            ("conflict", 0),
            ("rejected", None),
            ("accepted", 2),
            ("duplicate", 2),
            ("conflict", 2),
        ]
        assert found["outcomes"][0]["position"] == found["position"]
        assert found["outcomes"][2]["reason"] == "MissingField"
        assert short(duplicate.result(30).json()["outcomes"]) == [("duplicate", 2)]
        # 3. One object is a conflict or rejected by its status; a list of one is not.
        problem = conflict.result(30)
        assert (problem.status_code, problem.json()["offset"]) == (409, 0)
        assert short(listed.result(30).json()["outcomes"]) == [("conflict", 0)]
        assert (rejected.result(30).status_code, rejected.result().json()["reason"]) == (422, "MissingField")
        # 4. Whoever asks again is answered from the tables, also for a request that did not wait.
        server.kill()
    with serving(home, server.token) as server:
        sender = Sender(server)
        again = sender.ask([{"id": 1, "film": "a"}, {"id": 2, "film": "a"}], key="first")
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json() == answer.json()
        assert sender.ask({"id": 1, "film": "b"}, key="conflict").status_code == 409
        assert short(sender.ask({"id": 4}, key="four").json()["outcomes"]) == [("accepted", 3)]


def test_without_a_commit_the_answer_says_why_and_a_place_is_free_again(home):
    write_installation(home, serve={"max_commit_waits": 1})
    with serving(home) as server, server.client() as client:
        sender = Sender(server)
        # 1. Nobody commits; then a worker that does not.
        answer = sender.ask({"id": 1}, key="one", timeout=0)
        assert answer.status_code == 202
        assert "no worker runs" in answer.json()["detail"]
        with lease(home):
            answer = sender.ask({"id": 1}, key="one", timeout=0.5)
            assert (answer.status_code, answer.headers["idempotency-replayed"]) == (202, "true")
            assert "a worker runs. " in answer.json()["detail"]
            assert str(os.getpid()) not in answer.json()["detail"]
        assert sender.ask({"id": 1}, timeout="soon").json()["type"].endswith(":bad-timeout")
        # 2. Few may wait. Others are refused before anything is stored, and need not wait.
        body = b'{"id": 2}'
        head = (
            f"POST /v1/pipelines/ratings/events?ack=committed HTTP/1.1\r\nhost: x\r\n"
            f"authorization: Bearer {server.token}\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        with socket.create_connection(("127.0.0.1", server.port)) as waiting:
            waiting.sendall(head + body)
            sender.until_stored(2)
            refused = sender.ask({"id": 3})
            assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (
                503,
                "too-many-waits",
            )
            assert refused.headers["retry-after"]
            assert client.post(server.events, json={"id": 4}).status_code == 202
        # 3. The client that waited is gone, and so is its wait.
        deadline = time.monotonic() + 20
        while (answer := sender.ask({"id": 3}, timeout=0)).status_code == 503:
            assert time.monotonic() < deadline, "it would have waited longer"
        assert answer.status_code == 202
        assert _stored(home) == 4


def test_rejects_of_a_batch_that_died_before_its_rows_are_no_outcome(home):
    write_installation(home)
    events = [{"id": 1, "film": "a"}, {"film": "no id"}]
    with serving(home) as server:
        sender = Sender(server)
        assert sender.ask(events, key="k", timeout=0).status_code == 202
        assert sender.ask(events[1], key="one", timeout=0).status_code == 202
        died = subprocess.run(
            [sys.executable, "-m", "etl_assets_tests.serve.ingest_process"],
            env={**os.environ, "ETL_ASSETS_FAILPOINT": Failpoint.EXCEPTIONS_AFTER_COMMIT.value},
            check=False,
        )
        assert died.returncode == -signal.SIGKILL
        # The rejects are there, and do not count yet.
        assert sender.ask(events, key="k", timeout=0).status_code == 202
        assert sender.ask(events[1], key="one", timeout=0).status_code == 202
        ingest()
        assert sender.ask(events[1], key="one").status_code == 422
        assert short(sender.ask(events, key="k").json()["outcomes"]) == [("accepted", 0), ("rejected", None)]


def test_sigterm_answers_those_who_wait_at_once_and_loses_nothing(home):
    write_installation(home)
    with serving(home) as server:
        sender = Sender(server)
        waiting = [sender.send({"id": number}, key=f"k{number}") for number in range(4)]
        sender.until_stored(4)
        began = time.monotonic()
        assert server.terminate() in (0, -signal.SIGTERM)
        assert time.monotonic() - began < 15, "it does not wait for a commit"
        for answer in (each.result(30) for each in waiting):
            assert answer.status_code == 202
            assert "the server ends" in answer.json()["detail"]
    assert ingest().total()["accepted"] == 4
