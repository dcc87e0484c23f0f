"""Captured tables in error: which are tried again by themselves, and what holds the server's log back."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from click.testing import CliRunner

from etl_assets.captures import roll_back
from etl_assets.cli.main import cli
from etl_assets.errors import SourceUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.observability import log_checks
from etl_assets.observability.findings import Status
from etl_assets.sources.captures import table_retries
from etl_assets.sources.captures.connect import close_readers, table_states
from etl_assets.sources.captures.table_states import change_state
from etl_assets_tests.sources.captured import Captured


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    yield found
    found.close()


def _until_due(shop: Captured, table: str) -> None:
    attempts = shop.states()[table].attempts
    assert attempts is not None
    time.sleep(max(0.0, attempts.next_at - time.time()))


@pytest.mark.kill
def test_a_table_that_is_locked_is_tried_again_by_itself_and_others_go_on(shop, postgres_server, monkeypatch):
    monkeypatch.setattr(table_retries, "FIRST_PAUSE_SECONDS", 0.5)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(shop.home.path))
    shop.connect(lock_timeout_seconds=1)
    shop.make_tables("film", "actor", rows=9)
    shop.declare(max_batch_records=4)
    shop.discover()
    shop.settle("actor")  # a copy would wait for the transaction that holds the lock
    with psycopg.connect(postgres_server.database_url(shop.name)) as holder:
        holder.execute("LOCK TABLE film IN ACCESS EXCLUSIVE MODE")
        for number in (1, 2):
            with pytest.raises(SourceUnavailable, match="held a lock for longer"):
                shop.ingest("film")
            state = shop.states()["film"]
            assert state.attempts is not None
            assert (state.phase, state.attempts.number) == ("errored", number)
            if number == 1:
                assert shop.ingest("film").commits == 0  # it is not due
                with closing(shop.opened("film")) as opened:
                    found = opened.lag(shop.positions("film"))
                assert (found.records, found.is_same is not None and found.is_same()) == (0, True)
                _until_due(shop, "film")
                assert found.is_same is not None
                assert not found.is_same()  # a table at rest is woken
                assert shop.lag("film") is None
        (shown,) = json.loads(CliRunner().invoke(cli, ["cdc", "tables", "--json"]).output)[1:]
        assert (shown["error"]["retry_policy"], shown["error"]["attempts"]) == ("timed", 2)
        assert shown["error"]["next_attempt_at"].startswith("20")
        assert "then (timed): by itself, attempt 3 at 20" in CliRunner().invoke(cli, ["cdc", "tables"]).output
        finding, _ = log_checks.check_captures(shop.settings)
        assert (finding.status, "attempt 3 at 20" in str(finding.fix)) == (Status.WARN, True)
        shop.execute("UPDATE actor SET title = 'new' WHERE id = 3")
        shop.ingest("actor")
        assert shop.held("actor") == shop.source("actor")
    shop.execute("UPDATE film SET title = 'new' WHERE id = 3", "DELETE FROM film WHERE id = 8")
    _until_due(shop, "film")
    shop.ingest_and_die("film", f"{Failpoint.TABLE_AFTER_COMMIT}@shop_film_source")
    shop.settle("film")
    shop.ingest("film")
    assert shop.held("film") == shop.source("film")
    assert shop.states()["film"].attempts is None


def test_retry_does_not_wait_for_the_next_attempt(shop, postgres_server, monkeypatch):
    monkeypatch.setattr(table_retries, "FIRST_PAUSE_SECONDS", 1_000.0)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(shop.home.path))
    shop.connect(lock_timeout_seconds=1)
    shop.make_tables("film")
    shop.discover()
    shop.look()  # a new slot would wait for the transaction that holds the lock
    with psycopg.connect(postgres_server.database_url(shop.name)) as holder:
        holder.execute("LOCK TABLE film IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SourceUnavailable):
            shop.ingest("film")
    assert shop.ingest("film").commits == 0
    found = CliRunner().invoke(cli, ["cdc", "retry", "shop"])
    assert (found.exit_code, found.output) == (0, "public.film: data_sync\n")
    shop.settle("film")
    assert shop.held("film") == shop.source("film")


def test_changes_that_the_server_has_forgotten_are_copied_again_also_after_the_error_has_ended(shop):
    shop.make_tables("film", "actor")
    shop.discover()
    shop.settle("film", "actor")
    change_state(
        table_states(shop.settings), "shop", "public.film", lambda each: each.failed("a reason", "a fix")
    )
    shop.execute("DELETE FROM film WHERE id = 1", "UPDATE actor SET n = 7 WHERE id = 1")
    for _ in range(3):
        shop.ingest("actor")
    assert shop.states()["film"].is_only_spooled
    roll_back(shop.settings, "shop", "public.film")
    shop.look()
    assert shop.states()["film"].is_only_spooled
    close_readers(shop.settings.home)
    shutil.rmtree(shop.home.path / "captured")
    shop.look()
    shop.settle("film", "actor")
    for table in ("film", "actor"):
        assert shop.held(table) == shop.source(table)


def test_another_table_of_the_same_name_is_copied_once_it_has_a_key(shop):
    shop.make_tables("film")
    shop.execute("CREATE PUBLICATION shop FOR ALL TABLES")
    shop.discover()
    shop.settle("film")
    shop.execute("DROP TABLE film", "CREATE TABLE film (id bigint, title varchar(40), n int)")
    assert shop.discover().errored == ("public.film",)
    assert "at the next discovery" in shop.states()["film"].ended_by()
    shop.execute("ALTER TABLE film ADD PRIMARY KEY (id)", "INSERT INTO film VALUES (7, 'seven', 7)")
    assert shop.discover().added == ("public.film",)
    shop.settle("film")
    assert shop.held("film") == shop.source("film") == {7: ("seven", 7)}
