"""Rows that a target rejects: from a delivery to the dead letters and back, beside a sink that is down."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from etl_assets.stack.postgres import PostgresServer
from etl_assets_tests.commands.home import BIN, SPARK
from etl_assets_tests.reference.webhook_receiver import receiver

PIPELINE = """
name: films
source: {type: files, path: "landing/*.csv", id: [film_id, title], settle_seconds: 0}
columns: {film_id: bigint, title: string}
table: {keys: [film_id]}
sinks:
  - {type: postgres, connection: down, table: dead.films, name: nowhere}
  - {type: postgres, connection: warehouse, table: dead.films}
  - {type: webhook, connection: hooks, path: "films/{film_id}"}
"""


@pytest.fixture
def hooks() -> Iterator[Any]:
    with receiver() as server:
        yield server


@pytest.fixture
def command(
    tmp_path: Path, postgres_server: PostgresServer, hooks: Any
) -> Callable[..., subprocess.CompletedProcess[str]]:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "landing").mkdir()
    warehouse = {
        "type": "postgres",
        "host": "127.0.0.1",
        "port": postgres_server.port,
        "database": "postgres",
        "user": postgres_server.user,
        "password": "${WAREHOUSE_PASSWORD}",
        "write": ["dead.*"],
    }
    connections = {
        "warehouse": warehouse,
        "down": {**warehouse, "port": 9, "connect_timeout_seconds": 2},
        "hooks": {"type": "webhook", "url": hooks.url, "write": ["films/*"]},
    }
    settings = {
        "pipelines": {"built_in": []},
        "spark": SPARK,
        "connections": connections,
        "runs": {"max_retries": 0},
    }
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "pipelines" / "films.yaml").write_text(PIPELINE)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "ETL_ASSETS_HOME": str(tmp_path),
            "WAREHOUSE_PASSWORD": postgres_server.password,
        }
        return subprocess.run(
            [BIN / "etl-assets", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    return run


# Ten commands in processes of their own, four with Spark.
@pytest.mark.timeout(900)
def test_rejected_rows_are_dead_letters_by_sink_and_are_replayed_while_another_sink_is_down(  # noqa: PLR0915 - a story, whose steps share one installation
    command: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    postgres_server: PostgresServer,
    hooks: Any,
):
    def stored() -> list[int]:
        with psycopg.connect(postgres_server.url) as session:
            return [row[0] for row in session.execute("SELECT film_id FROM dead.films ORDER BY 1").fetchall()]

    def listed(*arguments: str) -> list[dict[str, Any]]:
        done = command("dead-letters", "list", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    # 1. A database administrator has made the table, with a rule; a receiver refuses one row.
    with psycopg.connect(postgres_server.url, autocommit=True) as session:
        session.execute("CREATE SCHEMA dead")
        session.execute(
            "CREATE TABLE dead.films (film_id bigint PRIMARY KEY, title text CHECK (title <> 'forbidden'))"
        )
    hooks.mode(refused={"4": 422})
    batch = "".join(f"{key},forbidden\n" for key in range(100, 600))
    (tmp_path / "landing" / "a.csv").write_text(
        f"film_id,title\n1,Alien\n2,Brazil\n3,forbidden\n4,Dune\n{batch}"
    )
    # 2. One run, with a sink that is down: it fails, and names the sink and the next step.
    done = command("run")
    assert done.returncode != 0
    assert "films_to_nowhere: " in done.stderr
    assert "127.0.0.1:9" in done.stderr, "the target"
    assert "bring back what films_to_nowhere delivers to, then `etl-assets run`" in done.stderr
    assert stored() == [1, 2, 4]
    assert {"1", "2", "3"} <= hooks.state()["rows"].keys()
    # 3. Rows are dead letters already, with row, reason and attempts; among them a whole batch.
    found = listed("--limit", "0")
    assert len(found) == 502
    letters = {
        letter["stage"]: letter
        for letter in found
        if json.loads(letter["source_position"].partition("/")[2])["film_id"] < 100
    }
    assert letters.keys() == {"films_to_postgres", "films_to_webhook"}
    for stage, film, words in (
        ("films_to_postgres", {"film_id": 3, "title": "forbidden"}, "check constraint"),
        ("films_to_webhook", {"film_id": 4, "title": "Dune"}, "422"),
    ):
        shown = command("dead-letters", "show", letters[stage]["dead_letter_id"], "--json")
        letter = json.loads(shown.stdout)
        assert film.items() <= json.loads(letter["record"]).items()
        assert (letter["reason"], letter["attempts"], letter["state"]) == ("RefusedByTarget", 1, "open")
        assert words in letter["error"]
    # 4. Found by sink, reason and day.
    day = letters["films_to_postgres"]["partition_date"]
    options = ("--reason", "RefusedByTarget", "--day", day, "--limit", "0")
    found = listed("--stage", "films_to_postgres", *options)
    assert len(found) == 501
    assert letters["films_to_postgres"]["dead_letter_id"] in {each["dead_letter_id"] for each in found}
    assert listed("--stage", "films_to_postgres", "--day", "2020-01-01") == []
    assert listed("--stage", "films_to_webhook", "--reason", "MissingField") == []
    # 5. The history of a row has what each sink made of it.
    for film, title, outcomes in (
        (1, "Alien", {"films_to_postgres": "delivered", "films_to_webhook": "delivered"}),
        (3, "forbidden", {"films_to_postgres": "rejected", "films_to_webhook": "delivered"}),
        (4, "Dune", {"films_to_postgres": "delivered", "films_to_webhook": "rejected"}),
    ):
        history = json.loads(command("trace", json.dumps([str(film), title]), "--json").stdout)
        at_sinks = {each["stage"]: each for each in history["happenings"] if "_to_" in each["stage"]}
        assert {stage: each["outcome"] for stage, each in at_sinks.items()} == outcomes
        assert history["waiting_for"] == ["films_to_nowhere"]
        for stage, each in at_sinks.items():
            assert (each["reason"] == "RefusedByTarget") == (outcomes[stage] == "rejected")
    # 6. A target that is down: the replay stays requested, and says so.
    hooks.mode(always=503)
    webhook = letters["films_to_webhook"]["dead_letter_id"]
    done = command("dead-letters", "replay", webhook[:12])
    assert done.returncode != 0
    assert "waiting: films_to_webhook has not judged it yet; its next run does" in done.stdout
    assert "the letters stay handed in" in done.stderr
    assert "4" not in hooks.state()["rows"]
    # 7. It is up again, and gets the row with the next run. A whole batch is replayed by its sink.
    hooks.mode(refused={})
    assert command("run").returncode != 0, "one sink is down still"
    assert stored() == [1, 2, 4]
    assert listed("--stage", "films_to_webhook", "--state", "all")[0]["state"] == "replayed"
    assert "4" in hooks.state()["rows"]
    with psycopg.connect(postgres_server.url, autocommit=True) as session:
        session.execute("ALTER TABLE dead.films DROP CONSTRAINT films_title_check")
    since = ("--since", "2026-01-01", "--reason", "RefusedByTarget")
    done = command("dead-letters", "replay", "--all-open", "--sink", "postgres", *since, "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert {each["result"] for each in results} == {"replayed"}
    assert len(results) == 501
    assert stored() == [1, 2, 3, 4, *range(100, 600)]
    assert listed() == []
    # 8. Who, when, and what came of it; and there is nothing to replay twice.
    shown = command("dead-letters", "show", letters["films_to_postgres"]["dead_letter_id"], "--json")
    (replay,) = json.loads(shown.stdout)["replays"]
    assert (replay["attempt"], replay["outcome"], replay["stage"]) == (2, "replayed", "films_to_postgres")
    assert "@" in replay["by"]
    assert replay["detail"] == "delivered with version 1 of films"
    history = json.loads(command("trace", json.dumps(["3", "forbidden"]), "--json").stdout)
    of_sink = [each["outcome"] for each in history["happenings"] if each["stage"] == "films_to_postgres"]
    assert of_sink == ["rejected", "handed in", "replayed"]
    assert [each["state"] for each in history["dead_letters"]] == ["replayed"]
    again = command("dead-letters", "replay", letters["films_to_postgres"]["dead_letter_id"])
    assert "is replayed, not open" in again.stderr
