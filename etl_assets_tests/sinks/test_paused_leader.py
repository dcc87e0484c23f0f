"""Three failure domains on two machines: a run is paused in its delivery, and another domain takes over.

Each machine has a home folder of its own; the roots of the domains are shared, as mounted disks are. What the
paused run delivers when it wakes up is refused by the target, and the rows of the other domain stay.
"""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from etl_assets_tests.commands.home import Home, Running
from etl_assets_tests.sinks.test_kafka_sink import messages

pytestmark = [pytest.mark.kill, pytest.mark.spark]

NAME = "paused_films"
SCHEMA = "paused_leader"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A sink, its connection, and a reader that knows nothing of the platform: film to version."""

    sink: dict[str, Any]
    connection: dict[str, Any]
    read: Callable[[], dict[int, int]]


@pytest.fixture
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    return {"postgres": _postgres, "kafka": _kafka, "search": _search}[request.param](
        request.getfixturevalue, monkeypatch
    )


def _postgres(fixture: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Target:
    server = fixture("postgres_server")
    monkeypatch.setenv("WAREHOUSE_PASSWORD", server.password)
    with psycopg.connect(server.url, autocommit=True) as session:
        session.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())

    def read() -> dict[int, int]:
        with psycopg.connect(server.url) as session:
            return _once(session.execute(f"SELECT film_id, version FROM {SCHEMA}.films".encode()))

    return Target(
        sink={"type": "postgres", "connection": "target", "table": f"{SCHEMA}.films"},
        connection={
            "type": "postgres",
            "host": "127.0.0.1",
            "port": server.port,
            "database": "postgres",
            "user": server.user,
            "password": "${WAREHOUSE_PASSWORD}",
            "statement_timeout_seconds": 3,
            "write": [f"{SCHEMA}.*"],
        },
        read=read,
    )


def _kafka(fixture: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Target:
    url = fixture("kafka_server").url
    topic = f"paused-{time.time_ns()}"

    def read() -> dict[int, int]:
        records = [json.loads(each.value()) for each in messages(url, topic)]
        sent = [(each["film_id"], each["version"]) for each in records]
        assert max(Counter(sent).values()) == 1, "a version of a row was sent twice"
        newest: dict[int, int] = {}
        for film, version in sent:
            assert version > newest.get(film, 0), "an older version came after a newer one"
            newest[film] = version
        return newest

    return Target(
        sink={"type": "kafka", "connection": "target", "topic": topic, "create": {"partitions": 1}},
        connection={"type": "kafka", "bootstrap_servers": [url], "write": ["paused-*"]},
        read=read,
    )


def _search(fixture: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Target:
    url = fixture("opensearch_server").url
    index = f"paused-{time.time_ns()}"

    def read() -> dict[int, int]:
        refresh = urllib.request.Request(f"{url}/{index}/_refresh", method="POST")
        urllib.request.urlopen(refresh).close()
        with urllib.request.urlopen(f"{url}/{index}/_search?size=10000") as answer:
            hits = [each["_source"] for each in json.load(answer)["hits"]["hits"]]
        return _once((each["film_id"], each["version"]) for each in hits)

    return Target(
        sink={"type": "search", "connection": "target", "index": index},
        connection={"type": "search", "urls": [url], "write": ["paused-*"]},
        read=read,
    )


def _once(rows: Any) -> dict[int, int]:
    found = list(rows)
    assert len({film for film, _ in found}) == len(found), "a row is there twice"
    return dict(found)


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Two machines, the roots of three domains that both of them mount, and a landing folder of both."""

    one: Home
    two: Home
    landing: Path

    @classmethod
    def create(cls, folder: Path, target: Target) -> Machines:
        domains = [{"name": f"local/{each}", "root": str(folder / "roots" / each)} for each in "abc"]
        spec = {
            "name": NAME,
            "source": {
                "type": "files",
                "path": str(folder / "landing" / "*.jsonl"),
                "id": ["film_id", "version"],
                "settle_seconds": 0,
            },
            "columns": {"film_id": "bigint", "version": "int"},
            "table": {"keys": ["film_id"], "sequence_by": "version"},
            "sinks": [target.sink],
        }
        homes = []
        for name in ("one", "two"):
            home = Home(path=folder / name).begin(
                pipelines={"built_in": []}, domains=domains, connections={"target": target.connection}
            )
            (home.path / "pipelines").mkdir()
            (home.path / "pipelines" / f"{NAME}.yaml").write_text(json.dumps(spec), "utf-8")
            homes.append(home)
        (folder / "landing").mkdir()
        return cls(one=homes[0], two=homes[1], landing=folder / "landing")

    def land(self, version: int, films: range) -> None:
        lines = "".join(json.dumps({"film_id": film, "version": version}) + "\n" for film in films)
        hidden = self.landing / f".{version}.jsonl"
        hidden.write_text(lines, "utf-8")
        hidden.rename(self.landing / f"{version}.jsonl")


@pytest.mark.parametrize(
    ("target", "failpoint", "films"),
    [
        pytest.param("postgres", "sink.before_delivery", 20, id="postgres before its transaction"),
        pytest.param(
            "kafka", "sink.before_target_commit", 20, id="kafka before its commit", marks=pytest.mark.full
        ),
        pytest.param(
            "search", "sink.before_delivery", 20, id="search before its request", marks=pytest.mark.full
        ),
        pytest.param(
            "postgres", "sink.before_target_commit", 20, id="postgres in it", marks=pytest.mark.full
        ),
        # More rows than one request takes.
        pytest.param("search", "search.after_request", 6_000, id="search in it", marks=pytest.mark.full),
    ],
    indirect=["target"],
)
def test_a_leader_that_was_paused_in_its_delivery_changes_nothing_when_it_wakes_up(
    target, failpoint, films, tmp_path
):
    machines = Machines.create(tmp_path, target)
    machines.land(1, range(10))
    done = machines.one.call("run")
    assert done.code == 0, done
    assert target.read() == dict.fromkeys(range(10), 1)
    machines.land(2, range(films))
    paused = machines.one.start("run", failpoint=f"pause:{failpoint}")
    try:
        wait_until_paused(paused)
        # The other machine gives the domain up, and has newer rows.
        assert machines.two.call("domains", "fail", "local/a").code == 0
        machines.land(3, range(films // 2, films + 10))
        taken_over = machines.two.call("run")
        assert taken_over.code == 0, taken_over
        newest = {film: 2 if film < films // 2 else 3 for film in range(films + 10)}
        assert target.read() == newest
        paused.send(signal.SIGCONT)
        late = paused.ended(240)
    finally:
        paused.sweep()
    assert late.code == 0, late  # its repeated step finds everything done
    assert target.read() == newest, late
    after = machines.one.call("run")
    assert "nothing to do" in after.err, after
    assert target.read() == newest


def wait_until_paused(running: Running) -> None:
    deadline = time.monotonic() + 240
    while not any(_is_stopped(pid) for pid, _ in running.members()):
        assert running.wait(0.1) is None, f"it came to no delivery\n{running.err[-4000:]}"
        assert time.monotonic() < deadline, f"it was not paused\n{running.err[-4000:]}"


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended
        return False
