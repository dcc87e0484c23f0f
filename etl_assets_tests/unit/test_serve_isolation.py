"""What one slow table, one request or one name must not do to other requests of the HTTP server."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import threading
import time
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from etl_assets.cli.tokens import tokens
from etl_assets.cli.trace import trace
from etl_assets.errors import Unanswered
from etl_assets.mirroring.stores.circuit_breaker import ask
from etl_assets.serve import outcomes
from etl_assets.serve.app import build_app
from etl_assets.serve.commit_watch import CommitWatch, TooManyWait
from etl_assets.serve.journal import Journal
from etl_assets.serve.outcomes import NOTHING_READ, OutcomeReader
from etl_assets.serve.service import Service, now_utc
from etl_assets.serve.tokens import Tokens
from etl_assets.settings import load_settings
from etl_assets_tests.serve.server_process import PIPELINE, write_installation


@pytest.fixture
def home(tmp_path, monkeypatch):
    domains = [{"name": "local/a", "root": "a"}]
    write_installation(tmp_path, domains=domains, health={"timeout_seconds": 0.2})
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def service(home):
    settings = load_settings()
    return Service(settings=settings, journal=Journal(settings.placement(), timeout_seconds=20))


def post(service, *, content=None, headers=None, **parameters):
    _, secret = Tokens(service.settings.home).add("shop", now=now_utc())

    async def send():
        app = httpx.ASGITransport(build_app(service))
        sent: Any = {"json": {"id": 1}} if content is None else {"content": content, "headers": headers}
        authorization = {"authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(transport=app, base_url="http://x", headers=authorization) as client:
            return await client.post(f"/v1/pipelines/{PIPELINE}/events", params=parameters, **sent)

    return asyncio.run(send())


def test_a_slow_look_at_the_tables_is_waited_for_and_opens_no_breaker_of_the_journal(home, monkeypatch):
    settings = load_settings()
    root = str(settings.placement().reader().root)
    reader, look = OutcomeReader(settings.placement), outcomes._tables
    monkeypatch.setattr(outcomes, "_LOOK_SECONDS", 0.2)
    monkeypatch.setattr(outcomes, "_tables", lambda *given: time.sleep(0.5) or look(*given))
    assert reader.versions(PIPELINE) == NOTHING_READ
    # Nor does one that hangs, with the liveness probe.
    monkeypatch.setattr(outcomes, "_alive", lambda *_: time.sleep(1))
    with pytest.raises(Unanswered):
        reader.versions(PIPELINE)
    assert ask(root, lambda: "written", 5) == "written"


def test_a_body_is_not_read_if_the_memory_was_taken_while_the_tables_were_looked_at(service, monkeypatch):
    async def versions(_pipeline):
        service.bodies.held = service.settings.serve.max_waiting_bytes
        return NOTHING_READ

    monkeypatch.setattr(service.watch, "versions", versions)
    answer = post(service, ack="committed", timeout=0)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, "queue-full")


@pytest.mark.parametrize("is_compressed", [True, False])
def test_a_body_of_unknown_length_is_counted_as_it_grows_and_refused_where_memory_ends(
    service, is_compressed
):
    limit, bodies = service.settings.serve.max_waiting_bytes, service.bodies
    body = json.dumps({"id": random.Random(1).randbytes(2_000_000).hex()}).encode()
    sent = gzip.compress(body, 1) if is_compressed else body
    counted: list[int] = []

    async def parts(others: int):
        for at in range(0, len(sent), 500_000):
            counted.append(bodies.held)
            bodies.held += others if at else 0  # another body arrives meanwhile
            yield sent[at : at + 500_000]
            bodies.held -= others if at else 0

    headers = {"content-encoding": "gzip"} if is_compressed else {}
    answer = post(service, content=parts(0), headers=headers)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (413, "event-too-large")
    assert (counted[0], bodies.held) == (1 << 20, 0)
    assert counted[-1] > 3_000_000
    answer = post(service, content=parts(limit), headers=headers)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, "queue-full")
    assert answer.headers["connection"] == "close"


def test_one_client_does_not_take_all_places_of_requests_that_wait(service):
    watch = CommitWatch(service.watch._tables, max_waiting=5)
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(watch.place("default/shop"))
        with pytest.raises(TooManyWait) as refused, watch.place("default/shop"):
            pass
        assert (str(refused.value), refused.value.is_of_client) == (
            "2 requests of this client wait for their commit",
            True,
        )
        for client in ("other/shop", "default/bank", "default/bank"):
            held.enter_context(watch.place(client))
        with pytest.raises(TooManyWait) as refused, watch.place("default/news"):
            pass
        assert not refused.value.is_of_client
    with watch.place("default/shop"):
        pass
    service.watch = CommitWatch(service.watch._tables, max_waiting=2)
    with service.watch.place("default/shop"):
        answer = post(service, ack="committed", timeout=0)
        assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (429, "too-many-waits")
        assert answer.headers["retry-after"] == "1"


def test_looks_that_hang_hold_up_nothing_else():
    go_on = threading.Event()

    class Hung:
        def versions(self, pipeline):
            go_on.wait(20)
            return NOTHING_READ

        def read(self, pipeline, receipts, since):
            raise AssertionError

    async def others():
        watch = CommitWatch(Hung(), max_waiting=100)
        looks = [asyncio.create_task(watch.versions(PIPELINE)) for _ in range(100)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(5):
                assert await asyncio.to_thread(lambda: "ready") == "ready"
        finally:
            go_on.set()
            await asyncio.gather(*looks)
            watch.release_threads()

    asyncio.run(others())


def test_the_path_of_a_root_is_not_told_to_clients(service, home):
    domain = service.journal.domains[0]
    assert post(service).status_code == 202  # its root is in use
    (home / "a").rename(home / "gone")
    (home / "a").write_text("no folder", "utf-8")
    problems = str(service.journal.problems())
    answer = post(service)
    assert answer.status_code == 503
    assert domain.name in problems
    assert domain.name in answer.json()["detail"]
    assert str(home) not in problems + answer.text


def test_names_of_tokens_have_no_slash_and_the_list_says_what_each_may(home):
    run = CliRunner().invoke
    for wrong in (["a/b"], [""], [" "], ["shop", "--tenant", "a/b"], ["shop", "--tenant", ""]):
        refused = run(tokens, ["add", *wrong])
        assert refused.exit_code == 2, wrong
        assert "/" in refused.output
    assert run(tokens, ["add", "shop"]).exit_code == 0
    assert run(tokens, ["add", "desk", "--read", "--tenant", "acme"]).exit_code == 0
    sending, reading = run(tokens, ["list"]).output.splitlines()
    assert "shop: ingest" in sending
    assert "desk: read" in reading
    listed = json.loads(run(tokens, ["list", "--json"]).output)
    assert [each["client"] for each in listed] == ["shop", "desk"]


def test_trace_says_that_its_id_is_optional():
    assert "[ID]" in CliRunner().invoke(trace, ["--help"]).output.splitlines()[0]
