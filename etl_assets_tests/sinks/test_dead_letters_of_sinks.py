"""Rows that a target rejects: from a delivery to the dead letters and back, beside a sink that is down."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

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

EVERY_FILM = [1, 2, 3, 4, *range(100, 600)]
IN_POSTGRES, IN_WEBHOOK = "films_to_postgres", "films_to_webhook"


@pytest.fixture
def hooks() -> Iterator[Any]:
    with receiver() as server:
        yield server


@dataclass(frozen=True, kw_only=True)
class Site:
    """An installation, its two targets that answer, and the commands that a user types."""

    home: Path
    server: PostgresServer
    hooks: Any

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "ETL_ASSETS_HOME": str(self.home),
            "WAREHOUSE_PASSWORD": self.server.password,
        }
        return subprocess.run(
            [BIN / "etl-assets", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def answer(self, *arguments: str) -> Any:
        """The JSON that a command prints."""
        done = self.command(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        return self.answer("dead-letters", "list", "--limit", "0", *arguments)

    def execute(self, *statements: LiteralString) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as session:
            for each in statements:
                session.execute(each)

    def in_postgres(self) -> list[int]:
        with psycopg.connect(self.server.url) as session:
            return [row[0] for row in session.execute("SELECT film_id FROM dead.films ORDER BY 1").fetchall()]

    def in_webhook(self) -> set[str]:
        return set(self.hooks.state()["rows"])


@pytest.fixture
def site(tmp_path: Path, postgres_server: PostgresServer, hooks: Any) -> Site:
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
    return Site(home=tmp_path, server=postgres_server, hooks=hooks)


# Ten commands in processes of their own, four with Spark.
@pytest.mark.timeout(900)
def test_rejected_rows_are_dead_letters_by_sink_and_are_replayed_while_another_sink_is_down(site: Site):
    run_with_rows_that_targets_refuse(site)
    letters = expect_a_dead_letter_for_each_refused_row(site)
    expect_them_found_by_sink_reason_and_day(site, letters[IN_POSTGRES])
    expect_the_history_of_a_row_to_name_each_sink(site)
    replay_while_the_target_is_down(site, letters[IN_WEBHOOK]["dead_letter_id"])
    replay_a_whole_batch_once_the_target_is_corrected(site)
    expect_each_replay_to_be_shown(site, letters[IN_POSTGRES]["dead_letter_id"])


def run_with_rows_that_targets_refuse(site: Site) -> None:
    """One run, with a sink that is down: it fails, and names the sink and the next step."""
    # A database administrator has made the table, with a rule; a receiver refuses one row.
    site.execute(
        "CREATE SCHEMA dead",
        "CREATE TABLE dead.films (film_id bigint PRIMARY KEY, title text CHECK (title <> 'forbidden'))",
    )
    site.hooks.mode(refused={"4": 422})
    batch = "".join(f"{key},forbidden\n" for key in range(100, 600))
    (site.home / "landing" / "a.csv").write_text(
        f"film_id,title\n1,Alien\n2,Brazil\n3,forbidden\n4,Dune\n{batch}"
    )
    done = site.command("run")
    assert done.returncode != 0
    assert "films_to_nowhere: " in done.stderr
    assert "127.0.0.1:9" in done.stderr, "the target"
    assert "bring back what films_to_nowhere delivers to, then `etl-assets run`" in done.stderr
    assert site.in_postgres() == [1, 2, 4]
    assert {"1", "2", "3"} <= site.in_webhook()


def expect_a_dead_letter_for_each_refused_row(site: Site) -> dict[str, dict[str, Any]]:
    """They are there already, with row, reason and attempts; return those of films 3 and 4 by their sink."""
    found = site.listed()
    assert len(found) == 502, "two rows, and a whole batch"
    letters = {
        letter["stage"]: letter
        for letter in found
        if json.loads(letter["source_position"].partition("/")[2])["film_id"] < 100
    }
    assert letters.keys() == {IN_POSTGRES, IN_WEBHOOK}
    for stage, film, words in (
        (IN_POSTGRES, {"film_id": 3, "title": "forbidden"}, "check constraint"),
        (IN_WEBHOOK, {"film_id": 4, "title": "Dune"}, "422"),
    ):
        letter = site.answer("dead-letters", "show", letters[stage]["dead_letter_id"])
        assert film.items() <= json.loads(letter["record"]).items()
        assert (letter["reason"], letter["attempts"], letter["state"]) == ("RefusedByTarget", 1, "open")
        assert words in letter["error"]
    return letters


def expect_them_found_by_sink_reason_and_day(site: Site, letter: dict[str, Any]) -> None:
    of_sink = ("--stage", IN_POSTGRES)
    found = site.listed(*of_sink, "--reason", "RefusedByTarget", "--day", letter["partition_date"])
    assert len(found) == 501
    assert letter["dead_letter_id"] in {each["dead_letter_id"] for each in found}
    assert site.listed(*of_sink, "--day", "2020-01-01") == []
    assert site.listed("--stage", IN_WEBHOOK, "--reason", "MissingField") == []


def expect_the_history_of_a_row_to_name_each_sink(site: Site) -> None:
    for film, title, outcomes in (
        (1, "Alien", {IN_POSTGRES: "delivered", IN_WEBHOOK: "delivered"}),
        (3, "forbidden", {IN_POSTGRES: "rejected", IN_WEBHOOK: "delivered"}),
        (4, "Dune", {IN_POSTGRES: "delivered", IN_WEBHOOK: "rejected"}),
    ):
        history = site.answer("trace", json.dumps([str(film), title]))
        at_sinks = {each["stage"]: each for each in history["happenings"] if "_to_" in each["stage"]}
        assert {stage: each["outcome"] for stage, each in at_sinks.items()} == outcomes
        assert history["waiting_for"] == ["films_to_nowhere"]
        for stage, each in at_sinks.items():
            assert (each["reason"] == "RefusedByTarget") == (outcomes[stage] == "rejected")


def replay_while_the_target_is_down(site: Site, letter_id: str) -> None:
    """The replay stays requested, and the command says so; the next run brings the row."""
    site.hooks.mode(always=503)
    done = site.command("dead-letters", "replay", letter_id[:12])
    assert done.returncode != 0
    assert "waiting: films_to_webhook has not judged it yet; its next run does" in done.stdout
    assert "the letters stay handed in" in done.stderr
    assert "4" not in site.in_webhook()
    site.hooks.mode(refused={})
    assert site.command("run").returncode != 0, "one sink is down still"
    assert site.in_postgres() == [1, 2, 4]
    assert site.listed("--stage", IN_WEBHOOK, "--state", "all")[0]["state"] == "replayed"
    assert "4" in site.in_webhook()


def replay_a_whole_batch_once_the_target_is_corrected(site: Site) -> None:
    site.execute("ALTER TABLE dead.films DROP CONSTRAINT films_title_check")
    narrowed = ("--sink", "postgres", "--since", "2026-01-01", "--reason", "RefusedByTarget")
    results = site.answer("dead-letters", "replay", "--all-open", *narrowed)
    assert {each["result"] for each in results} == {"replayed"}
    assert len(results) == 501
    assert site.in_postgres() == EVERY_FILM
    assert site.listed() == []


def expect_each_replay_to_be_shown(site: Site, letter_id: str) -> None:
    """Who replayed it, when, and what came of it; and there is nothing to replay twice."""
    (replay,) = site.answer("dead-letters", "show", letter_id)["replays"]
    assert (replay["attempt"], replay["outcome"], replay["stage"]) == (2, "replayed", IN_POSTGRES)
    assert "@" in replay["by"]
    assert replay["detail"] == "delivered with version 1 of films"
    history = site.answer("trace", json.dumps(["3", "forbidden"]))
    of_sink = [each["outcome"] for each in history["happenings"] if each["stage"] == IN_POSTGRES]
    assert of_sink == ["rejected", "handed in", "replayed"]
    assert [each["state"] for each in history["dead_letters"]] == ["replayed"]
    again = site.command("dead-letters", "replay", letter_id)
    assert "is replayed, not open" in again.stderr
