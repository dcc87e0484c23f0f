"""Captures: many tables of one database by one slot, their phases, and what dies in between."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import psycopg
import pytest
from click.testing import CliRunner

from etl_assets.captures import roll_back, table_views
from etl_assets.cli.main import cli
from etl_assets.control.capture_tables import StoredTableStates
from etl_assets.errors import SourceLost, SourceRefused, SourceUnavailable, TransitionRefused
from etl_assets.failpoints import Failpoint
from etl_assets.observability import log_checks
from etl_assets.observability.findings import Status
from etl_assets.sources.captures import log_reader
from etl_assets.sources.captures.captured_table import CapturedTable
from etl_assets.sources.captures.connect import close_readers, table_states
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.captures.spool import Spool
from etl_assets.sources.captures.table_states import change_state
from etl_assets_tests.sources.captured import Captured

_HOLD = """
import sys, time
from pathlib import Path
from etl_assets.sources.captures.spool import Spool
with Spool(folder=Path(sys.argv[1])).alone():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    yield found
    found.close()


def test_two_tables_are_copied_and_then_followed_by_one_slot(shop):
    shop.make_tables("film", "actor")
    assert shop.discover().added == ("public.actor", "public.film")
    assert set(shop.phases().values()) == {"init"}
    shop.ingest("film")
    shop.execute("UPDATE film SET title = 'two' WHERE id = 2", "DELETE FROM actor WHERE id = 1")
    shop.settle("film", "actor")
    shop.execute(
        "INSERT INTO film VALUES (9, 'nine', 9)",
        "BEGIN; DELETE FROM actor; INSERT INTO actor VALUES (7, 'seven', 7); DELETE FROM film WHERE"
        " id = 1; COMMIT",
        "UPDATE actor SET id = 8 WHERE id = 7",
    )
    for table in ("film", "actor"):
        shop.ingest(table)
        assert shop.held(table) == shop.source(table)
        assert shop.ingest(table).commits == 0
    slots = shop.session.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", [shop.name]
    )
    assert slots.fetchone() == (1,)
    assert shop.states()["film"].rows_copied == 3


def test_of_twenty_tables_one_is_in_error_and_the_others_become_ready(shop):
    names = [f"t{number:02d}" for number in range(19)]
    shop.make_tables(*names)
    shop.execute("CREATE TABLE t19 (id bigint, title varchar(20), n int)")
    found = shop.discover()
    assert (len(found.added), found.errored) == (19, ("public.t19",))
    shop.declare(max_copies=30)
    shop.settle(*names)
    error = shop.states()["t19"].error
    assert "has no primary key" in error.reason
    assert error.solution.startswith('ALTER TABLE "public"."t19" ADD PRIMARY KEY')
    for name in names:
        shop.execute(f"UPDATE {name} SET title = 'new' WHERE id = 2")
    for name in names:
        shop.ingest(name)
        assert shop.held(name) == shop.source(name)
    shop.execute("ALTER TABLE t19 ADD PRIMARY KEY (id)", "INSERT INTO t19 VALUES (1, 'one', 1)")
    assert shop.discover().added == ("public.t19",)
    shop.settle("t19")
    assert shop.held("t19") == shop.source("t19")


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param(Failpoint.SPOOL_BEFORE_STATE.value),
        pytest.param(Failpoint.SPOOL_AFTER_STATE.value, marks=pytest.mark.full),
        pytest.param(f"{Failpoint.STAGE_AFTER_WRITE}@shop_film_source", marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_AFTER_COMMIT}@shop_film_source", marks=pytest.mark.full),
        pytest.param(f"{Failpoint.CAPTURE_BEFORE_RELEASE}@public.film"),
        pytest.param(Failpoint.SOURCE_BEFORE_CONFIRM.value, marks=pytest.mark.full),
        pytest.param(Failpoint.SOURCE_AFTER_CONFIRM.value, marks=pytest.mark.full),
    ],
)
def test_a_process_killed_while_it_copies_and_follows_loses_and_doubles_nothing(shop, failpoint):
    shop.make_tables("film", "actor", rows=7)
    shop.declare(max_batch_records=3)
    shop.discover()
    shop.ingest("actor")
    shop.execute("UPDATE film SET title = 'early' WHERE id = 6")
    shop.ingest_and_die("film", failpoint)
    shop.execute("UPDATE film SET title = 'late' WHERE id = 1", "DELETE FROM film WHERE id = 7")
    shop.settle("film", "actor")
    assert shop.held("film") == shop.source("film")
    shop.execute("DELETE FROM film WHERE id = 2", "UPDATE actor SET n = 0", "INSERT INTO film VALUES (9)")
    shop.ingest_and_die("film", failpoint)
    shop.execute("UPDATE film SET id = 10 WHERE id = 9")
    for _ in range(4):
        for table in ("film", "actor"):
            shop.ingest(table)
    for table in ("film", "actor"):
        assert shop.held(table) == shop.source(table)
        ids = [(r["postgres.lsn"], r["postgres.sequence"], r["postgres.change"]) for r in shop.records(table)]
        assert len(ids) == len(set(ids))
        assert shop.ingest(table).commits == 0


def test_tables_come_and_go_while_the_capture_runs(shop):
    shop.make_tables("film")
    shop.execute("CREATE TABLE audit_log (id bigint PRIMARY KEY)")
    shop.declare(exclude=["public.audit_*"])
    shop.discover()
    shop.settle("film")
    shop.make_tables("actor")
    assert shop.discover().added == ("public.actor",)
    shop.execute("UPDATE actor SET n = 5 WHERE id = 1")
    shop.settle("actor")
    assert shop.held("actor") == shop.source("actor")
    before = shop.held("film")
    shop.execute("ALTER PUBLICATION shop DROP TABLE film", "DELETE FROM film")
    assert shop.discover().left == ("public.film",)
    assert shop.discover().left == ()
    assert shop.ingest("film").commits == 0
    assert shop.held("film") == before
    shop.execute("INSERT INTO film VALUES (4, 'four', 4)", "ALTER PUBLICATION shop ADD TABLE film")
    assert shop.discover().added == ("public.film",)
    shop.settle("film")
    assert shop.held("film") == shop.source("film") == {4: ("four", 4)}
    assert shop.phases() == {"actor": "ready", "film": "ready"}


def test_a_change_that_cannot_be_kept_is_an_error_of_its_table_and_another_copy_the_way_out(shop):
    shop.make_tables("film", "actor")
    shop.execute("ALTER TABLE film ADD code bigint GENERATED ALWAYS AS IDENTITY UNIQUE")
    shop.discover()
    shop.settle("film", "actor")
    shop.execute(
        "ALTER TABLE film REPLICA IDENTITY USING INDEX film_code_key",
        "UPDATE film SET title = 'one' WHERE id = 1",
        "UPDATE actor SET title = 'one' WHERE id = 1",
        "ALTER TABLE film REPLICA IDENTITY DEFAULT",
    )
    shop.ingest("actor")
    assert shop.held("actor") == shop.source("actor")
    assert "lacks the key id" in shop.states()["film"].error.reason
    with pytest.raises(TransitionRefused, match="changes of it are missing") as refused:
        roll_back(shop.settings, "shop", "public.film")
    assert "--copy" in refused.value.fix
    roll_back(shop.settings, "shop", "public.film", copies=True)
    shop.execute("DELETE FROM film WHERE id = 3")
    shop.settle("film")
    assert shop.held("film", ("title", "n", "code")) == shop.source("film")


def test_a_table_in_error_goes_on_where_it_was_after_a_rollback(shop):
    shop.make_tables("film", "actor")
    shop.discover()
    shop.settle("film", "actor")
    shop.execute("UPDATE film SET n = 7 WHERE id = 1")
    change_state(
        table_states(shop.settings), "shop", "public.film", lambda each: each.failed("a reason", "a fix")
    )
    shop.ingest("actor")
    shop.execute("UPDATE actor SET n = 7 WHERE id = 1")
    shop.ingest("actor")
    before = shop.confirmed()
    shop.ingest("actor")
    assert shop.confirmed() != before  # the table in error does not hold the log back
    assert shop.ingest("film").commits == 0
    roll_back(shop.settings, "shop", "public.film")
    shop.ingest("film")
    assert shop.held("film") == shop.source("film")
    assert shop.states()["film"].rows_copied == 3


def test_changes_of_a_lost_spool_that_the_server_has_forgotten_are_copied_again(shop):
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
    close_readers(shop.settings.home)
    shutil.rmtree(shop.home.path / "captured")
    shop.ingest("actor")
    assert shop.states()["film"].phase is TablePhase.INIT
    shop.settle("film", "actor")
    for table in ("film", "actor"):
        assert shop.held(table) == shop.source(table)


def test_a_slot_that_is_gone_is_an_error_until_the_tables_may_be_copied_again(shop):
    shop.make_tables("film", "actor")
    shop.discover()
    shop.settle("film", "actor")
    shop.session.execute("SELECT pg_drop_replication_slot(%s)", [shop.name])
    shop.execute("DELETE FROM film WHERE id = 1", "UPDATE actor SET n = 7 WHERE id = 1")
    for table in ("film", "actor"):
        with pytest.raises(SourceLost, match=f"the slot {shop.name} is gone"):
            shop.ingest(table)
    shop.declare(on_lost="copy")
    shop.look()
    shop.settle("film", "actor")
    for table in ("film", "actor"):
        assert shop.held(table) == shop.source(table)


def test_a_server_without_the_timeline_that_was_read_is_an_error_until_tables_may_be_copied_again(shop):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    spool = shop.reader.spool
    state = spool.state()
    assert state is not None
    assert state.timeline == 1
    spool.write_state(replace(state, timeline=2))  # as if it had been read from a promoted standby
    shop.execute("DELETE FROM film WHERE id = 1")
    with pytest.raises(SourceLost, match="read on timeline 2, which is not in the history of this server"):
        shop.ingest("film")
    shop.declare(on_lost="copy")
    shop.look()
    shop.settle("film")
    assert shop.held("film") == shop.source("film")


def test_tables_of_the_platform_are_refused_by_name(shop):
    shop.make_tables("film", "etl_assets_positions")
    with pytest.raises(SourceRefused, match="a table of the platform itself"):
        shop.discover()
    shop.declare(exclude=["public.etl_assets_*"])
    shop.discover()
    shop.execute("ALTER PUBLICATION shop ADD TABLE etl_assets_positions")
    with pytest.raises(SourceRefused, match=r"the publication shop has public\.etl_assets_positions"):
        shop.discover()


def test_other_tables_that_write_do_not_hold_the_slot(shop, monkeypatch):
    monkeypatch.setattr(log_reader, "HEARTBEAT_BYTES", 1_000)
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    shop.declare(exclude=["public.other"])
    shop.execute("CREATE TABLE other (id int)", "INSERT INTO other SELECT generate_series(1, 1000)")
    before = shop.confirmed()
    for _ in range(4):
        shop.look()
    assert shop.confirmed() != before


def test_changes_that_another_process_takes_away_meanwhile_let_the_step_be_repeated(shop, monkeypatch):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    shop.execute("UPDATE film SET title = 'new' WHERE id = 2")
    segments = Spool.segments

    def removed(spool, *given, **more):
        found = segments(spool, *given, **more)
        return tuple(replace(each, path=each.path.with_suffix(".gone")) for each in found)

    monkeypatch.setattr(Spool, "segments", removed)
    with pytest.raises(SourceUnavailable, match="taken up by another process"):
        shop.ingest("film")
    monkeypatch.undo()
    assert shop.states()["film"].error is None
    shop.ingest("film")
    assert shop.held("film") == shop.source("film")


def test_a_step_that_slept_while_another_process_went_on_is_repeated(shop, monkeypatch):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    shop.execute("UPDATE film SET title = 'new' WHERE id = 2")
    plan = CapturedTable.plan

    def late(source, positions, **limits):
        with monkeypatch.context() as others:
            others.setattr(CapturedTable, "plan", plan)
            shop.ingest("film")
        return plan(source, positions, **limits)

    with monkeypatch.context() as asleep:
        asleep.setattr(CapturedTable, "plan", late)
        with pytest.raises(SourceUnavailable, match="taken up by another process"):
            shop.ingest("film")
    assert shop.states()["film"].error is None
    assert shop.ingest("film").commits == 0
    assert shop.held("film") == shop.source("film")


def test_a_run_ends_although_the_database_is_written_all_the_time(shop, monkeypatch):
    shop.make_tables("film", "actor")
    shop.discover()
    shop.settle("film", "actor")
    plan, plans = CapturedTable.plan, []

    def written_meanwhile(source, positions, **limits):
        plans.append(positions)
        assert len(plans) < 20
        shop.execute("UPDATE film SET n = n + 1 WHERE id = 1", "UPDATE actor SET n = n + 1 WHERE id = 1")
        return plan(source, positions, **limits)

    monkeypatch.setattr(CapturedTable, "plan", written_meanwhile)
    assert shop.ingest("film").commits < 4
    monkeypatch.undo()
    shop.ingest("film")
    assert shop.held("film") == shop.source("film")


def test_the_lag_grows_while_nobody_reads_the_log_and_only_if_there_is_something_in_it(shop):
    shop.make_tables("film", "actor")
    shop.discover()
    shop.settle("film", "actor")

    def lag(table: str) -> float:
        (found,) = (each for each in table_views(shop.settings) if each.state.pipeline.endswith(table))
        assert found.lag_seconds is not None
        return found.lag_seconds

    def has_no_lag() -> bool:
        """Whether an old look is no lag, unless the server itself wrote into its log since then."""
        while not shop.look().is_whole:
            pass
        an_hour_ago = time.time() - 3_600
        os.utime(shop.reader.spool.folder / "read_until", (an_hour_ago, an_hour_ago))
        return lag("film") == lag("actor") == 0.0

    assert any(has_no_lag() for _ in range(20))
    shop.execute("UPDATE film SET title = 'two' WHERE id = 2")
    assert lag("film") > 3_000
    shop.look()
    assert 0.0 < lag("film") < 3_000
    shop.ingest("film")
    assert any(has_no_lag() for _ in range(20))


def test_a_process_that_is_stopped_while_it_reads_the_log_is_named_and_holds_nothing_up_for_ever(shop):
    shop.make_tables("film")
    shop.discover()
    command = [sys.executable, "-c", _HOLD, str(shop.reader.spool.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            holder.send_signal(signal.SIGSTOP)
            shop.reader.spool.wait_seconds = 0.2
            with pytest.raises(SourceUnavailable, match=f"process {holder.pid} has held the log"):
                shop.look()
        finally:
            holder.kill()
    shop.settle("film")


def test_one_query_tells_all_idle_tables_that_there_is_nothing_to_do(shop, monkeypatch):
    names = ("film", "actor", "staff", "store", "city")
    shop.make_tables(*names)
    shop.discover()
    shop.settle(*names)
    shop.declare(look_interval_seconds=60)
    asked, of_capture = [], StoredTableStates.of_capture

    def counted(states, capture):
        asked.append(capture)
        return of_capture(states, capture)

    monkeypatch.setattr(StoredTableStates, "of_capture", counted)
    assert [shop.lag(name) for name in names] == [0] * 5
    assert len(asked) <= 3  # one for the look at the log, and one by the table that is opened first


def test_the_doctor_names_slots_that_hold_much_back_and_tables_in_error(shop, monkeypatch):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    (found,) = log_checks.check_slots(shop.settings)
    assert (found.status, found.detail.startswith("shop: the slot")) == (Status.OK, True)
    shop.execute("UPDATE film SET n = n + 1")
    monkeypatch.setattr(log_checks, "HELD_BYTES", 100)
    (found,) = log_checks.check_slots(shop.settings)
    assert (found.status, "whose disk it fills" in found.detail) == (Status.WARN, True)
    (found,) = log_checks.check_captures(shop.settings)
    assert found.detail == "shop: 1 of 1 tables are ready"
    change_state(table_states(shop.settings), "shop", "public.film", lambda each: each.failed("why", "do"))
    in_error, _ = log_checks.check_captures(shop.settings)
    assert (in_error.status, in_error.detail) == (Status.FAIL, "shop: public.film: why")
    assert in_error.fix == "do; then (manual): etl-assets cdc rollback shop public.film"
    shop.session.execute("SELECT pg_drop_replication_slot(%s)", [shop.name])
    (found,) = log_checks.check_slots(shop.settings)
    assert "does not exist" in found.detail


def test_commands_show_the_tables_and_roll_back(shop, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(shop.home.path))
    shop.make_tables("film")
    found = CliRunner().invoke(cli, ["cdc", "discover"])
    assert "shop: public.film: added" in found.output
    found = CliRunner().invoke(cli, ["cdc", "tables", "--json"])
    assert found.exit_code == 0, found.output
    shown = json.loads(found.output)[0]
    assert (shown["phase"], shown["pipeline"], shown["error"]) == ("init", "shop_film", None)
    refused = CliRunner().invoke(cli, ["cdc", "rollback", "shop", "public.film"])
    assert refused.exit_code != 0
    change_state(table_states(shop.settings), "shop", "public.film", lambda each: each.failed("why", "do"))
    found = CliRunner().invoke(cli, ["cdc", "tables"])
    assert found.exit_code == 1
    assert "why\n    fix: do" in found.output
    assert "init" in CliRunner().invoke(cli, ["cdc", "rollback", "shop", "public.film"]).output


@pytest.mark.kill
@pytest.mark.parametrize("seed", [1, *(pytest.param(each, marks=pytest.mark.full) for each in range(2, 22))])
def test_tables_equal_their_sources_after_changes_and_kills_at_random_places(shop, seed):
    rng = random.Random(seed)
    names = ("film", "actor")
    shop.make_tables(*names, rows=20)
    shop.declare(max_batch_records=7)
    shop.discover()
    places = [
        *(each.value for each in (Failpoint.SPOOL_BEFORE_STATE, Failpoint.SPOOL_AFTER_STATE)),
        *(each.value for each in (Failpoint.SOURCE_BEFORE_CONFIRM, Failpoint.SOURCE_AFTER_CONFIRM)),
        f"{Failpoint.TABLE_AFTER_COMMIT}@shop_film_source",
    ]
    with psycopg.connect(
        shop.session.info.dsn, password=os.environ["SHOP_PASSWORD"], application_name="changes"
    ) as other:
        for number in range(8):
            for session, name in ((shop.session, rng.choice(names)), (other, rng.choice(names))):
                for _ in range(rng.randrange(4)):
                    session.execute(_change(rng, name).encode())
            (other.commit if rng.random() < 0.7 else other.rollback)()
            if number in (2, 5):
                shop.try_to_die("film", rng.choice(places))
            elif number == 4:
                shop.end_other_sessions()
            with suppress(SourceUnavailable):
                shop.ingest(rng.choice(names))
    shop.settle(*names, rounds=30)
    for _ in range(30):
        if not sum(shop.ingest(name).commits for name in names):
            break
    for name in names:
        assert shop.held(name) == shop.source(name)


def _change(rng: random.Random, name: str) -> str:
    key = rng.randrange(1, 30)
    return rng.choice(
        (
            f"INSERT INTO {name} VALUES ({key}, 'new', {key}) ON CONFLICT (id) DO UPDATE SET n = {key} + 1",
            f"UPDATE {name} SET title = '{rng.random()}' WHERE id = {key}",
            f"DELETE FROM {name} WHERE id = {key}",
            f"DELETE FROM {name} WHERE id BETWEEN {key} AND {key + 3}",
        )
    )


def test_a_key_that_changes_while_the_table_is_copied_keeps_the_long_value_of_its_row(shop):
    shop.execute(
        "CREATE TABLE film (id bigint PRIMARY KEY, title text, n int)",
        "ALTER TABLE film ALTER title SET STORAGE EXTERNAL",
        "INSERT INTO film SELECT i, repeat(i::text, 3000), i FROM generate_series(1, 9) i",
    )
    shop.declare(max_batch_records=2)
    shop.discover()
    shop.ingest("film", max_batches=1)  # each run copies from a snapshot of its own
    shop.execute(
        "UPDATE film SET id = 100 WHERE id = 8",  # to behind its place, from where nothing is copied yet
        "UPDATE film SET id = 0 WHERE id = 7",  # to before what is copied
        "UPDATE film SET id = 101 WHERE id = 100",
        "UPDATE film SET n = -1 WHERE id = 6",  # lacks its value until the row is copied
    )
    shop.ingest("film", max_batches=1)
    shop.execute("UPDATE film SET id = -1 WHERE id = 9", "UPDATE film SET n = 5 WHERE id = 0")
    shop.settle("film")
    shop.load("film")
    rows = shop.home.rows("shop_film")
    held = {row["id"]: (row["title"], row["n"]) for row in rows}
    assert held == shop.source("film")
    assert set(held) == {-1, 0, 1, 2, 3, 4, 5, 6, 101}
