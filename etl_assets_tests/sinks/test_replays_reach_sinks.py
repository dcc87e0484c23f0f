"""Dead letters of sinks are replayed by the next delivery, on real servers, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import yaml

from etl_assets.failpoints import Failpoint
from etl_assets.observability.dead_letters import DeadLetter
from etl_assets.observability.submit_replays import hand_in
from etl_assets.sinks.search.client import SearchClient, SearchServer
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, step_of
from etl_assets_tests.reference.webhook_receiver import ReceiverProcess
from etl_assets_tests.sinks.test_kafka_sink import messages
from etl_assets_tests.sinks.webhook_lab import DELIVER, PIPELINE, STEP, WebhookLab

BAD = "x" * 40_000
"""A title that each of these targets refuses until it is corrected."""


class Target(NamedTuple):
    """A target that refuses bad titles.

    `connection` and `sink` are its declarations; `read` returns its titles; `correct` makes it take all
    titles, by the file of the pipeline if need be; `arrivals` returns how often each key arrived, where that
    can be seen.
    """

    connection: dict[str, Any]
    sink: dict[str, Any]
    read: Callable[[], dict[int, str]]
    correct: Callable[[Path], None]
    arrivals: Callable[[], Counter[int]] | None = None


def _postgres(request: pytest.FixtureRequest) -> Target:
    server = request.getfixturevalue("postgres_server")
    os.environ["TARGET_PASSWORD"] = server.password
    with psycopg.connect(server.url, autocommit=True) as session:
        session.execute("DROP SCHEMA IF EXISTS replayed CASCADE")
        session.execute("CREATE SCHEMA replayed")
        session.execute(
            "CREATE TABLE replayed.films (film_id bigint PRIMARY KEY, title text, _offset bigint,"
            " CONSTRAINT short CHECK (length(title) < 100))"
        )

    def read() -> dict[int, str]:
        with psycopg.connect(server.url) as session:
            return dict(session.execute("SELECT film_id, title FROM replayed.films").fetchall())

    def correct(pipeline: Path) -> None:
        with psycopg.connect(server.url, autocommit=True) as session:
            session.execute("ALTER TABLE replayed.films DROP CONSTRAINT short")

    connection = {
        "type": "postgres",
        "host": "127.0.0.1",
        "port": server.port,
        "database": "postgres",
        "user": server.user,
        "password": "${TARGET_PASSWORD}",
        "write": ["replayed.*"],
    }
    return Target(connection, {"type": "postgres", "table": "replayed.films"}, read, correct)


def _kafka(request: pytest.FixtureRequest) -> Target:
    from confluent_kafka import admin

    server = request.getfixturevalue("kafka_server")
    client = admin.AdminClient({"bootstrap.servers": server.url})
    topic = admin.NewTopic("replayed-films", 1, 1, config={"max.message.bytes": "10000"})
    client.create_topics([topic])["replayed-films"].result(30)

    def rows() -> list[tuple[int, dict[str, Any]]]:
        """Every row that arrived, in order; what is deleted has no value."""
        found = messages(server.url, "replayed-films")
        return [
            (json.loads(each.key())["film_id"], json.loads(each.value())) for each in found if each.value()
        ]

    def read() -> dict[int, str]:
        return {key: row["title"] for key, row in rows()}

    def correct(pipeline: Path) -> None:
        entry = admin.ConfigEntry(
            "max.message.bytes", "100000", incremental_operation=admin.AlterConfigOpType.SET
        )
        resource = admin.ConfigResource(
            admin.ConfigResource.Type.TOPIC, "replayed-films", incremental_configs=[entry]
        )
        client.incremental_alter_configs([resource])[resource].result(30)

    def arrivals() -> Counter[int]:
        return Counter(key for key, _ in rows())

    connection = {"type": "kafka", "bootstrap_servers": [server.url], "write": ["replayed-*"]}
    return Target(connection, {"type": "kafka", "topic": "replayed-films"}, read, correct, arrivals)


def _search(request: pytest.FixtureRequest) -> Target:
    server = request.getfixturevalue("opensearch_server")
    url = f"http://127.0.0.1:{server.port}"
    client = SearchClient(SearchServer(urls=(url,)), sink="test")
    request.addfinalizer(client.close)

    def read() -> dict[int, str]:
        found = client.send("GET", "/replayed_films/_search", {"size": 1_000})
        return {hit["_source"]["film_id"]: hit["_source"]["title"] for hit in found.body["hits"]["hits"]}

    def correct(pipeline: Path) -> None:
        spec = yaml.safe_load(pipeline.read_text())
        spec["sinks"][0]["mappings"] = {"title": {"type": "keyword", "ignore_above": 1_000}}
        pipeline.write_text(yaml.safe_dump(spec))

    connection = {"type": "search", "urls": [url], "write": ["replayed_*"]}
    sink = {"type": "search", "index": "replayed_films", "mappings": {"title": {"type": "keyword"}}}
    return Target(connection, sink, read, correct)


def _webhook(request: pytest.FixtureRequest) -> Target:
    server = ReceiverProcess()
    request.addfinalizer(server.close)
    server.mode(refused={str(key): 422 for key in range(2, 100)})

    def read() -> dict[int, str]:
        return {int(key): row["title"] for key, row in server.state()["rows"].items()}

    return Target(
        {"type": "webhook", "url": server.url, "write": ["films"]},
        {"type": "webhook", "path": "films"},
        read,
        lambda pipeline: server.mode(refused={}),
    )


REQUEST = """
import datetime as dt, json, sys
from etl_assets.observability.dead_letters import DeadLetter
from etl_assets.observability.submit_replays import hand_in
from etl_assets.settings import load_settings

fields = json.load(sys.stdin)
fields["failed_at"] = dt.datetime.fromisoformat(fields["failed_at"])
fields["partition_date"] = dt.date.fromisoformat(fields["partition_date"])
hand_in(load_settings().placement().domains[0], [DeadLetter(**fields)], None)
"""


class ReplayLab:
    """An installation with a table and one sink, without Spark: each step is a process of its own."""

    def __init__(self, home: Path, target: Target) -> None:
        self.lab = WebhookLab(home, "http://127.0.0.1:9")
        self.step = f"films_to_{target.sink['type']}"
        settings = yaml.safe_load((home / "platform.yaml").read_text())
        settings["connections"] = {"target": target.connection}
        (home / "platform.yaml").write_text(yaml.safe_dump(settings))
        spec = yaml.safe_load(PIPELINE)
        spec["sinks"] = [{**target.sink, "connection": "target"}]
        (home / "pipelines" / "films.yaml").write_text(yaml.safe_dump(spec))

    def deliver(self, mode: ReadMode = ReadMode.INCREMENTAL) -> None:
        """Carry out the step here."""
        settings = self.lab.settings
        context = StepContext(session=_no_spark, domain=settings.placement().domains[0])
        step_of(self.step, StepArguments(settings=settings, context=context, mode=mode)).run([])

    def die(self, failpoint: str) -> None:
        """Carry it out in a process that is killed on the way."""
        done = subprocess.run(
            [sys.executable, "-c", DELIVER.replace(STEP, self.step).replace("MODE", "INCREMENTAL")],
            env={**os.environ, "ETL_ASSETS_HOME": str(self.lab.home), "ETL_ASSETS_FAILPOINT": failpoint},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, (failpoint, done.stderr)

    def request_and_die(self, letter: DeadLetter) -> None:
        """Request a replay in a process that is killed behind the commit of the request."""
        done = subprocess.run(
            [sys.executable, "-c", REQUEST],
            input=json.dumps(asdict(letter), default=str),
            env={
                **os.environ,
                "ETL_ASSETS_HOME": str(self.lab.home),
                "ETL_ASSETS_FAILPOINT": Failpoint.REPLAY_AFTER_REQUEST,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr

    def rows(self, name: str) -> list[dict[str, Any]]:
        return sorted(self.lab._rows(name), key=lambda row: row.get("_batch_id", row.get("batch_id", 0)))

    def letters(self) -> dict[int, DeadLetter]:
        """The rows that the target refused first, as the dead letters that they are, by their keys."""
        return {
            json.loads(row["record"])["film_id"]: _letter(row, attempts=1)
            for row in self.rows(f"{self.step}_rejects")
            if row["source"] == self.step
        }

    def request(self, *letters: DeadLetter) -> None:
        hand_in(self.lab.settings.placement().domains[0], letters, None)

    def results(self, letter: DeadLetter) -> list[tuple[str, int, str]]:
        """What became of each attempt: outcome, attempt, words."""
        return [
            (row["outcome"], int(row["source_position"].split(".")[1]), row["error"])
            for row in self.rows(f"{self.step}_rejects")
            if f"/{letter.dead_letter_id}." in row["source_position"]
        ]


def _no_spark() -> Any:
    raise AssertionError("a delivery needs no Spark")


def _letter(row: dict[str, Any], attempts: int) -> DeadLetter:
    names = (
        "stage",
        "reason",
        "error",
        "record",
        "record_encoding",
        "source",
        "source_position",
        "event_id",
        "trace_id",
        "failed_at",
        "partition_date",
    )
    return DeadLetter(
        dead_letter_id=row["exception_id"],
        attempts=attempts,
        state="open",
        **{name: row[name] for name in names},
    )


def dying(of: Callable[[pytest.FixtureRequest], Target], step: str) -> list[str]:
    """Where a replay is killed: in PostgreSQL everywhere, elsewhere around the commit of the target."""
    if of is _search:  # it has no commit of its own
        return [Failpoint.SEARCH_AFTER_REQUEST, f"{Failpoint.EXCEPTIONS_BEFORE_COMMIT}@{step}"]
    around = [
        Failpoint.SINK_BEFORE_TARGET_COMMIT,
        Failpoint.SINK_AFTER_TARGET_COMMIT,
        f"{Failpoint.TABLE_BEFORE_COMMIT}@{step}",
    ]
    if of is not _postgres:
        return around
    return [
        f"{Failpoint.SINK_BEFORE_DELIVERY}@{step}",
        *around,
        f"{Failpoint.EXCEPTIONS_BEFORE_COMMIT}@{step}",
        f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{step}",
        f"{Failpoint.TABLE_AFTER_COMMIT}@{step}",
    ]


GONE, CHANGED, AGAIN = 50, 51, 52


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.parametrize(
    "of", [_postgres, _webhook, *(pytest.param(each, marks=pytest.mark.full) for each in (_kafka, _search))]
)
def test_a_replay_is_delivered_once_wherever_it_is_killed(request, tmp_path, of):
    target = of(request)
    lab = ReplayLab(tmp_path / "home", target)
    places = dict(enumerate(dying(of, lab.step), start=2))
    lab.lab.write([(1, "Alien"), *((key, BAD) for key in (*places, GONE, CHANGED, AGAIN))])
    lab.deliver()
    letters = lab.letters()
    assert target.read() == {1: "Alien"}
    assert letters.keys() == {*places, GONE, CHANGED, AGAIN}
    refused_again_is_the_next_attempt(lab, letters[AGAIN])
    assert lab.letters() == letters, "no second dead letter of the row"
    target.correct(lab.lab.home / "pipelines" / "films.yaml")
    what_is_gone_or_delivered_is_settled(lab, letters, target)
    # Killed at each place, and repeated: each row is there once, and its dead letter is settled once.
    for key, place in places.items():
        lab.request_and_die(letters[key])
        lab.request(letters[key])  # two are one
        lab.die(place)
        lab.deliver()
        lab.deliver()
        assert target.read()[key] == BAD, place
        ((outcome, attempt, words),) = lab.results(letters[key])
        assert (outcome, attempt) == ("replayed", 2), place
        assert words.startswith("delivered with version "), place
    assert target.read() == {1: "Alien", CHANGED: "short"} | dict.fromkeys(places, BAD)
    if target.arrivals is not None:
        assert target.arrivals() == Counter([1, CHANGED, *places])
    # Nothing is left to do, and what is new goes on from there.
    before = len(lab.rows(lab.step))
    lab.deliver()
    assert len(lab.rows(lab.step)) == before
    lab.lab.write([(1, "Aliens")])
    lab.deliver()
    assert target.read()[1] == "Aliens"


def refused_again_is_the_next_attempt(lab: ReplayLab, letter: DeadLetter) -> None:
    """Once, also where the step is repeated."""
    lab.request(letter)
    lab.die(f"{Failpoint.TABLE_BEFORE_COMMIT}@{lab.step}")
    lab.deliver()
    ((outcome, attempt, _),) = lab.results(letter)
    assert (outcome, attempt) == ("rejected", 2)


def what_is_gone_or_delivered_is_settled(
    lab: ReplayLab, letters: Mapping[int, DeadLetter], target: Target
) -> None:
    """It is not brought back."""
    lab.lab.delete([GONE])
    lab.deliver()
    lab.lab.write([(CHANGED, "short")])
    lab.deliver()
    assert target.read() == {1: "Alien", CHANGED: "short"}
    lab.request(letters[GONE], letters[CHANGED])
    lab.deliver()
    assert target.read() == {1: "Alien", CHANGED: "short"}
    ((_, _, words),) = lab.results(letters[GONE])
    assert words == "its row is gone from films, and was delivered as deleted"
    ((_, _, words),) = lab.results(letters[CHANGED])
    assert words.startswith("a delivery before had its row of now, with version ")
