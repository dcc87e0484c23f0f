"""What clients send to a real server, and what it answers. No Spark."""

from __future__ import annotations

import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from etl_assets.contracts.envelope import AnnotatedRecord
from etl_assets.serve.tokens import Tokens
from etl_assets.sources.http.journal_lines import JournalLines
from etl_assets_tests.serve.ingest_process import ingest
from etl_assets_tests.serve.server_process import LINES, serving, write_installation

JSON = {"content-type": "application/json"}
DESCRIBED = [status_code_conformance, content_type_conformance, response_schema_conformance]
TWO_MEMBERS = gzip.compress(b'{"a": 1}\n', mtime=0) + gzip.compress(b'{"a": 2}', mtime=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("serve")
    limits = {
        "max_body_bytes": 65_536,
        "max_events_per_request": 100,
        "commit_timeout_seconds": 60,
    }
    write_installation(home, serve=limits)
    with serving(home) as started:
        yield started


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


def journal(server) -> list[str]:
    files = sorted((server.home / "data" / "journal").rglob("*.jsonl"))
    return [line for file in files for line in file.read_text("utf-8").splitlines() if line[0] != "#"]


@pytest.mark.parametrize(
    ("body", "headers", "stored"),
    [
        (b'{"id": 1,\n "film": "M"}', JSON, ['{"id": 1,  "film": "M"}']),
        (b'[{"a": 1.10}, {"a": 12345678901234567890}]', JSON, ['{"a": 1.10}', '{"a": 12345678901234567890}']),
        (b'{"a": "\\n"}\n\n{"a": 2}\r\n', LINES, ['{"a": "\\n"}', '{"a": 2}']),
        (TWO_MEMBERS, {**LINES, "content-encoding": "gzip"}, ['{"a": 1}', '{"a": 2}']),
    ],
    ids=["one object", "array", "lines", "two gzip members"],
)  # fmt: skip
def test_each_form_is_stored_as_it_was_sent(server, client, body, headers, stored):
    before = journal(server)
    answer = client.post(server.events, content=body, headers=headers)
    assert answer.status_code == 202
    assert answer.json()["events"] == len(stored)
    assert journal(server)[len(before) :] == stored
    file, line = answer.json()["position"].rsplit(":", 1)
    lines = (server.home / "data/journal/ratings" / file).read_text("utf-8").splitlines()
    assert lines[int(line) - 1] == stored[0]


BOMB = gzip.compress(b"[" + b" " * 50_000_000 + b"]", mtime=0)


@pytest.mark.parametrize(
    ("status", "kind", "body", "headers"),
    [
        (400, "malformed-json", b'{"a": ', JSON),
        (400, "malformed-json", b'{"a": 1} {"a": 2}', JSON),
        (400, "malformed-json", b'{"a": NaN}', JSON),
        (400, "malformed-json", b'{"a": ' + b"[" * 30_000, JSON),
        (400, "malformed-json", b"[{},]", JSON),
        (400, "malformed-json", b'{"a": 1} 2\n', LINES),
        (400, "not-utf-8", b'{"a": "\xff"}', JSON),
        (400, "bad-gzip", b"plain", {**JSON, "content-encoding": "gzip"}),
        (400, "bad-gzip", gzip.compress(b'{"a": 1}', mtime=0)[:-4], {**JSON, "content-encoding": "gzip"}),
        (400, "bad-key", b"{}", {**JSON, "idempotency-key": "a" * 256}),
        (413, "body-too-large", b"[" + b" " * 70_000 + b"]", JSON),
        (413, "body-too-large", BOMB, {**JSON, "content-encoding": "gzip"}),
        (413, "event-too-large", json.dumps([{}, {"a": "x" * 1_024}]).encode(), JSON),
        (413, "too-many-events", b"{}\n" * 101, LINES),
        (415, "unsupported-media-type", b"id,film", {"content-type": "text/csv"}),
        (415, "unsupported-encoding", b"{}", {**JSON, "content-encoding": "br"}),
        (422, "not-an-object", b'[{"a": 1}, 2]', JSON),
        (422, "no-events", b"[]", JSON),
        (422, "no-events", b"\n", LINES),
    ],
)
def test_what_cannot_be_taken_is_a_problem_and_nothing_of_it_is_stored(
    server, client, status, kind, body, headers
):
    before = journal(server)
    answer = client.post(server.events, content=body, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:etl-assets:problem:{kind}")
    assert answer.headers["content-type"] == "application/problem+json"
    assert journal(server) == before


def test_paths_methods_and_acks_that_do_not_exist_are_problems_too(server, client):
    unknown = client.post(server.events.replace("ratings", "other"), content=b"{}", headers=JSON)
    assert unknown.status_code == 404
    assert "ratings" in unknown.json()["detail"]
    for answer, status in (
        (client.get(f"{server.url}/nothing"), 404),
        (client.get(server.events), 405),
        (client.post(f"{server.events}?ack=done", content=b"{}", headers=JSON), 422),
        (client.post(f"{server.events}?ack=committed&timeout=-1", content=b"{}", headers=JSON), 422),
    ):
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_token_is_needed_and_a_revoked_or_expired_or_other_one_is_none(server, client):
    import datetime as dt

    now, tokens = dt.datetime.now(dt.UTC), Tokens(server.home)

    def status(secret: str) -> int:
        headers = {**JSON, "authorization": f"Bearer {secret}"}
        return client.post(server.events, content=b"{}", headers=headers).status_code

    _, other = tokens.add("other", now=now, pipelines=["elsewhere"])
    _, expired = tokens.add("old", now=now, expires_at=now - dt.timedelta(days=1))
    first, one = tokens.add("shop", now=now)
    _, two = tokens.add("shop", now=now)
    assert [status(each) for each in ("x", "eta_guess", other, expired, one, two)] == [
        401,
        401,
        403,
        401,
        202,
        202,
    ]
    tokens.revoke(first.id)
    assert [status(one), status(two)] == [401, 202]
    assert one not in (server.home / "tokens.json").read_text("utf-8")
    assert (server.home / "tokens.json").stat().st_mode & 0o077 == 0


def test_a_repeated_request_gets_the_first_answer_and_other_content_is_refused(server, client):
    headers = {**JSON, "idempotency-key": "order-1"}
    first = client.post(server.events, content=b'{"k": 1}', headers=headers)
    again = client.post(server.events, content=b'{"k": 1}', headers=headers)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    other = client.post(server.events, content=b'{"k": 2}', headers=headers)
    assert (other.status_code, other.json()["type"].rpartition(":")[2]) == (422, "key-reused")
    assert journal(server).count('{"k": 1}') == 1


def test_a_token_that_sends_too_much_is_told_when_to_come_back(tmp_path):
    write_installation(tmp_path, serve={"events_per_second": 1})
    with serving(tmp_path) as server, server.client() as client:
        assert client.post(server.events, content=b"{}\n" * 40, headers=LINES).status_code == 202
        refused = client.post(server.events, content=b"{}", headers=LINES)
    assert refused.status_code == 429
    assert 20 < int(refused.headers["retry-after"]) <= 40


def test_the_trace_context_is_kept_in_the_journal(server, client):
    context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = client.post(server.events, content=b"{}", headers={**JSON, "traceparent": context})
    file = answer.json()["position"].rpartition(":")[0]
    first = (server.home / "data/journal/ratings" / file).read_text("utf-8").splitlines()[0]
    assert json.loads(first[1:])["traceparent"] == context


def test_records_have_the_trace_context_of_their_request_and_of_no_other(tmp_path):
    traces = [f"00-{n:032x}-00f067aa0ba902b7-01" for n in (1, 2)]
    sent = [
        (traces[0], {}, 3),
        (None, {}, 2),
        (None, {"idempotency-key": "k"}, 1),
        ("00-no-trace", {}, 1),
        (traces[1], {"idempotency-key": "l"}, 2),
    ]
    # One file for all of them.
    write_installation(tmp_path, serve={"group_commit_seconds": 1})
    with serving(tmp_path) as server, ThreadPoolExecutor(len(sent)) as pool:

        def send(number: int) -> None:
            trace, headers, events = sent[number]
            given = {**LINES, **headers, **({} if trace is None else {"traceparent": trace})}
            body = b"".join(b'{"of":%d}\n' % number for _ in range(events))
            with server.client() as client:
                assert client.post(server.events, content=body, headers=given).status_code == 202

        list(pool.map(send, range(len(sent))))
        files = list((server.home / "data/journal/ratings").rglob("*.jsonl"))
    found = []
    for file in files:
        lines = JournalLines(with_traceparent=True)
        (block,) = lines.blocks(str(file), file.stat().st_size, 10)
        for _, records in lines.read(block, 1_000):
            for record in records:
                if isinstance(record, bytes) and record.strip():
                    added = record.added if isinstance(record, AnnotatedRecord) else {}
                    found.append((json.loads(record)["of"], added.get("http.headers.traceparent")))
    expected = {0: traces[0], 4: traces[1]}
    assert sorted(found, key=str) == sorted(
        ((number, expected.get(number)) for number, (_, _, n) in enumerate(sent) for _ in range(n)), key=str
    )


def test_no_request_that_the_description_allows_fails_and_no_answer_is_other_than_described(
    server, monkeypatch
):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(server.home))
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operation = schema["/v1/pipelines/{name}/events"]["POST"]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy())
    def check(case):
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {server.token}"}
        case.path_parameters = {"name": "ratings"}
        if case.query.get("ack") == "committed" and "timeout" not in case.query:
            case.query["timeout"] = 2
        conforms(case)

    def conforms(case) -> int:
        answer = case.call()
        case.validate_response(answer, checks=DESCRIBED)
        assert answer.status_code in {200, 202, 400, 409, 413, 415, 422}, answer.content
        return answer.status_code

    with ingesting():
        check()
        # What is made up seldom waits for long enough.
        made: dict[str, Any] = {
            "path_parameters": {"name": "ratings"},
            "query": {"ack": "committed"},
            "headers": {"Authorization": f"Bearer {server.token}"},
            "media_type": "application/json",
        }
        assert conforms(operation.Case(**made, body=[{"id": 1}, {"id": 1}, {"id": "1", "a": 2}, {}])) == 200
        assert conforms(operation.Case(**made, body={"id": 1, "film": "other"})) == 409
        assert conforms(operation.Case(**made, body={"film": "no id"})) == 422


@contextmanager
def ingesting():
    """Ingest what the server stores, in a thread of this process, until the block ends."""
    end = threading.Event()

    def go_on() -> None:
        while not end.is_set():
            ingest()
            end.wait(0.05)

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(go_on)
        try:
            yield
        finally:
            end.set()
        done.result(60)
