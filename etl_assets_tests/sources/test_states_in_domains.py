"""A capture whose control store is in the home folder, when that is lost, alone or with a failure domain.

The domains have the states of its tables too. Another machine takes over, in another domain, with an empty
home folder.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from etl_assets.control.capture_tables import StoredTableStates
from etl_assets.control.store import open_store
from etl_assets.errors import QuorumUnavailable, SourceUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.observability import log_checks
from etl_assets.observability.findings import Status
from etl_assets.sources.captures.connect import close_readers, table_states
from etl_assets.sources.captures.states_table import StatesTable
from etl_assets.sources.captures.table_states import CapturedTableState, change_state
from etl_assets_tests.sources.captured import Captured
from etl_assets_tests.sources.test_capture_takeover import (
    DOMAINS,
    TABLES,
    Writing,
    expect_equal,
    fail_domain,
    is_stopped,
    on_another_machine,
    unequal,
    until,
)
from etl_assets_tests.sources.topics import SURVIVED

pytestmark = pytest.mark.kill


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    """A capture of a platform with three domains, and its control store in the home folder."""
    roots = {name: str(tmp_path / "roots" / name[-1]) for name in DOMAINS}
    platform = {"domains": [{"name": name, "root": root} for name, root in roots.items()]}
    found = Captured.create(postgres_server, tmp_path / "one", platform=platform, max_batch_records=1_000)
    found.root = roots["rack/a"]
    yield found
    for home in (found.home.path, tmp_path / "one" / "home", tmp_path / "two" / "home"):
        close_readers(home)
    found.close()


def lose(shop: Captured, tmp_path, *domains: str) -> None:
    """Lose the home folder of a machine that has ended, and the roots of some domains."""
    close_readers(shop.home.path)
    shop.home.path.rename(tmp_path / "lost home")
    shop.home.path = tmp_path / "lost home"
    for name in domains:
        (tmp_path / "roots" / name).rename(tmp_path / f"lost {name}")


def in_home(shop: Captured) -> dict[str, CapturedTableState]:
    """The states that the home folder alone has."""
    store = open_store(shop.settings)
    try:
        found = StoredTableStates(store).of_capture("shop")
    finally:
        store.close()
    return {each.table.removeprefix("public."): each for each in found}


def copied(shop: Captured, table: str) -> int:
    """How many records of a table are rows of a copy: the first ones of a place in the log have these."""
    return sum(each["postgres.change"] == "upsert" for each in shop.records(table))


def test_another_machine_goes_on_after_the_loss_of_the_home_folder_and_of_a_domain(shop, tmp_path):
    shop.make_tables("film", "actor")
    shop.make_tables("staff", rows=5_000)
    shop.discover()
    shop.settle("film", "actor")
    shop.ingest("staff", max_batches=1)
    before = shop.states()
    assert 0 < before["staff"].rows_copied < 5_000
    # 1. One table is followed, another one copied; both processes die before a majority has their commits.
    shop.execute(
        "UPDATE film SET title = 'new' WHERE id = 1",
        "INSERT INTO film VALUES (9, 'nine', 9)",
        "DELETE FROM staff WHERE id < 10 OR id > 4990",
        "UPDATE staff SET n = -1 WHERE id % 1000 = 0",
    )
    confirmed = shop.confirmed()
    for table in ("film", "staff"):
        shop.ingest_and_die(table, f"{Failpoint.TABLE_AFTER_COMMIT}@shop_{table}_source")
    phases = shop.phases()
    assert phases == {"film": "ready", "actor": "ready", "staff": "data_sync"}
    # 2. The machine with its control store, and its domain, are gone.
    lose(shop, tmp_path, "a")
    other = on_another_machine(shop, tmp_path)
    assert not (other.home.path / "control.db").exists()
    assert other.states() == before
    other.discover()
    other.ingest("film")
    other.look()
    assert other.phases() == phases
    other.settle("staff")
    expect_equal(other)
    # 3. Nothing was copied twice: an update is one more record, and a delete is none of these.
    after = other.states()
    assert {each.copies for each in after.values()} == {0}
    assert (copied(other, "film"), copied(other, "actor")) == (3 + 2, 3)
    assert copied(other, "staff") <= 5_000 + 5
    # 4. What is confirmed is what a majority has.
    for _ in range(2):
        other.look()
    assert other.confirmed() > confirmed


@pytest.mark.parametrize(
    "failpoint",
    [
        Failpoint.SOURCE_BEFORE_CONFIRM.value,
        f"{Failpoint.CAPTURE_BEFORE_RELEASE}@public.film",
        f"{Failpoint.CAPTURE_BETWEEN_STORES}@public.film",
        pytest.param(Failpoint.SPOOL_BEFORE_STATE.value, marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_BEFORE_COMMIT}@shop_film_source", marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_AFTER_COMMIT}@shop_film_source", marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_BEFORE_COMMIT}@capture_states", marks=pytest.mark.full),
    ],
)
def test_a_process_that_slept_while_another_machine_took_over_is_refused(shop, tmp_path, failpoint):
    shop.make_tables(*TABLES)
    shop.discover()
    shop.settle(*TABLES)
    shop.execute("UPDATE film SET n = 10 WHERE id = 1")
    close_readers(shop.home.path)
    asleep = shop.begin("film", f"pause:{failpoint}")
    try:
        until(lambda: is_stopped(asleep.pid), "it sleeps")
        other = on_another_machine(shop, tmp_path)
        other.discover()
        shop.execute("UPDATE film SET n = 20 WHERE id = 1", "DELETE FROM film WHERE id = 2")
        expect_equal(other)
        other.look()
        before = (other.confirmed(), other.states(), other.home.rows("shop_film_source", root=other.root))
        os.kill(asleep.pid, signal.SIGCONT)
        asleep.join(60)
        # An error, unless the domains had all of its step before.
        assert asleep.exitcode in ((1, SURVIVED) if failpoint.startswith("capture.between") else (1,))
    finally:
        asleep.kill()
        asleep.join()
    close_readers(other.home.path)
    after = (other.confirmed(), other.states(), other.home.rows("shop_film_source", root=other.root))
    assert after == before
    other.look()
    assert other.states() == before[1]
    assert other.confirmed() >= before[0]  # the log of the server goes on


def test_a_former_reader_finds_out_in_its_next_session_and_confirms_nothing(shop, tmp_path):
    shop.make_tables(*TABLES)
    shop.discover()
    shop.settle(*TABLES)
    shop.look()
    reader = shop.reader  # as in a worker that goes on
    other = on_another_machine(shop, tmp_path)
    other.discover()
    shop.execute("UPDATE film SET n = 20 WHERE id = 1")
    expect_equal(other)
    other.look()
    confirmed, states = other.confirmed(), other.states()
    assert reader.spool.state() != other.reader.spool.state()
    with pytest.raises(SourceUnavailable):
        reader.look(at_once=True)  # its session was ended
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match="another home folder reads the log of the capture shop"):
            reader.look(at_once=True)
    assert (other.confirmed(), other.states()) == (confirmed, states)
    # Its next process takes over back, from where the other one was.
    close_readers(shop.home.path)
    fail_domain(shop, "rack/a")
    shop.root = other.root
    shop.execute("INSERT INTO film VALUES (5, 'five', 5)")
    expect_equal(shop)
    assert {each.copies for each in shop.states().values()} == {0}
    with pytest.raises(SourceUnavailable):
        other.look()
    with pytest.raises(SourceUnavailable, match="another home folder reads the log of the capture shop"):
        other.look()


def test_a_command_of_a_former_home_folder_is_refused(shop, tmp_path):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    other = on_another_machine(shop, tmp_path)
    other.discover()
    other.look()
    done = shop.home.call("cdc", "rollback", "shop", "public.film", "--copy")
    assert done.code == 1
    assert "another home folder reads the log of the capture shop" in done.err
    assert {each.copies for each in other.states().values()} == {0}


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("is_copied", [True, False])
def test_a_process_killed_between_the_two_stores_loses_and_doubles_nothing(
    shop, tmp_path, is_copied, is_lost
):
    shop.make_tables("film", "actor")
    shop.discover()
    shop.settle("actor", *([] if is_copied else ["film"]))
    shop.execute("UPDATE film SET n = 10 WHERE id = 1", "DELETE FROM film WHERE id = 2")
    shop.ingest_and_die("film", f"{Failpoint.CAPTURE_BETWEEN_STORES}@public.film")
    there, here = StatesTable(shop.settings.placement).read("shop"), in_home(shop)
    assert there.tables["public.film"].version == here["film"].version + 1
    if is_lost:
        lose(shop, tmp_path, "a")
        shop = on_another_machine(shop, tmp_path)
        shop.discover()
    shop.settle("film", "actor")
    shop.execute("INSERT INTO film VALUES (9, 'nine', 9)")
    for table in ("film", "actor"):
        shop.ingest(table)
        shop.ingest(table)
        assert shop.held(table) == shop.source(table)
    assert {each.copies for each in shop.states().values()} == {0}
    assert copied(shop, "actor") == 3


@pytest.mark.parametrize(
    "failpoint", ["", f"{Failpoint.CAPTURE_BETWEEN_STORES}@public.film", Failpoint.SOURCE_AFTER_CONFIRM.value]
)
def test_tables_whose_changes_only_the_lost_spool_had_are_copied_again(shop, tmp_path, failpoint):
    shop.make_tables("film", "actor")
    shop.discover()
    shop.settle("film", "actor")
    change_state(
        table_states(shop.settings), "shop", "public.film", lambda each: each.failed("a reason", "a fix")
    )
    shop.execute("DELETE FROM film WHERE id = 1", "UPDATE actor SET n = 7 WHERE id = 1")
    shop.ingest("actor")
    close_readers(shop.home.path)
    if failpoint:
        shop.try_to_die("actor", failpoint)
    for _ in range(0 if failpoint else 3):
        shop.ingest("actor")
    there = StatesTable(shop.settings.placement).read("shop")
    assert there.tables["public.film"].is_only_spooled
    assert in_home(shop)["film"].is_only_spooled is not failpoint.startswith("capture.")
    lose(shop, tmp_path, "a")
    other = on_another_machine(shop, tmp_path)
    other.discover()
    other.look()
    assert other.phases() == {"film": "init", "actor": "ready"}
    other.settle("film", "actor")
    for table in ("film", "actor"):
        assert other.held(table) == other.source(table)
    assert {name: each.copies for name, each in other.states().items()} == {"film": 1, "actor": 0}


def test_a_minority_of_domains_that_is_away_stops_nothing_and_a_majority_confirms_nothing(shop, tmp_path):
    shop.make_tables("film", "actor")
    shop.discover()
    shop.settle("film", "actor")
    # 1. One of three is away.
    (tmp_path / "roots" / "c").rename(tmp_path / "c is away")
    shop.execute("UPDATE film SET n = 10 WHERE id = 1")
    close_readers(shop.home.path)
    for _ in range(2):
        shop.ingest("film")
        shop.ingest("actor")
    assert shop.held("film") == shop.source("film")
    before, confirmed = shop.states(), shop.confirmed()
    # 2. Two of three are.
    (tmp_path / "roots" / "b").rename(tmp_path / "b is away")
    shop.execute("UPDATE film SET n = 20 WHERE id = 1")
    shop.look()  # its session goes on, and reads into the spool
    states = table_states(shop.settings)
    with pytest.raises(QuorumUnavailable, match="rack/b"):
        change_state(states, "shop", "public.film", lambda each: each.failed("why", "do"))
    for _ in range(2):
        with pytest.raises(QuorumUnavailable, match="rack/b"):
            shop.look()
    assert (in_home(shop), shop.confirmed()) == (before, confirmed)
    # 3. They are back.
    for name in ("b", "c"):
        (tmp_path / f"{name} is away").rename(tmp_path / "roots" / name)
    for name in ("rack/b", "rack/c"):
        shop.home.call("domains", "probe", name)
    if (error := shop.states()["film"].error) is not None:  # it was stored, and the answer was lost
        assert error.reason == "why"
        assert shop.home.call("cdc", "rollback", "shop", "public.film").code == 0
    for _ in range(2):
        shop.ingest("film")
        shop.ingest("actor")
    assert shop.held("film") == shop.source("film")
    assert shop.confirmed() > confirmed
    assert {each.copies for each in shop.states().values()} == {0}


def test_states_of_the_time_with_one_domain_are_in_the_others_from_the_first_look_on(
    postgres_server, shop, tmp_path
):
    domains = json.loads((shop.home.path / "platform.yaml").read_text("utf-8"))["domains"]
    platform = {"domains": domains[:1]}
    one = Captured.create(postgres_server, tmp_path / "first", platform=platform)
    one.root = shop.root
    try:
        one.make_tables("film", "actor")
        one.discover()
        one.settle("film", "actor")
        assert isinstance(table_states(one.settings), StoredTableStates)
        before = one.states()
        close_readers(one.home.path)
        path = one.home.path / "platform.yaml"
        content = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps(content | {"domains": domains}), "utf-8")
        one.execute("UPDATE film SET n = 10 WHERE id = 1")
        one.look()
        there = StatesTable(one.settings.placement).read("shop")
        assert {name.removeprefix("public."): each for name, each in there.tables.items()} == before
        assert one.ingest("film").commits > 0
        lose(one, tmp_path, "a")
        other = on_another_machine(one, tmp_path)
        other.discover()
        for table in ("film", "actor"):
            other.ingest(table)
            assert other.held(table) == other.source(table)
        assert {each.copies for each in other.states().values()} == {0}
    finally:
        one.close()


def test_a_capture_at_rest_asks_the_domains_for_nothing(shop, monkeypatch):
    shop.make_tables("film", "actor")
    shop.discover()
    shop.settle("film", "actor")
    asked: list[str] = []
    for name in ("read", "update"):
        monkeypatch.setattr(StatesTable, name, lambda *_, of=name: asked.append(of))
    for _ in range(3):
        shop.look()
        shop.discover()
        assert (shop.lag("film"), shop.lag("actor")) == (0, 0)
    assert asked == []
    assert [each.status for each in log_checks.check_captures(shop.settings)] == [Status.OK]


def test_a_control_store_on_a_server_has_the_states_alone(shop, postgres_server):
    shop.share_control_store(postgres_server)
    assert isinstance(table_states(shop.settings), StoredTableStates)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_worker_with_an_empty_home_folder_goes_on_where_a_killed_one_was(shop, tmp_path):
    shop.declare(look_interval_seconds=0.2, max_batch_records=3_000)
    shop.make_tables("film", "actor")
    shop.make_tables("staff", rows=40_000)
    writing = Writing(shop.session.info.dsn)
    first = shop.home.start("worker")
    try:
        until(lambda: shop.phases().get("film") == "ready", "film is followed", 120)
        until(lambda: shop.phases().get("actor") == "ready", "actor is followed", 120)
        writing.start()
        until(lambda: shop.states()["staff"].rows_copied > 0, "staff is being copied", 60)
    finally:
        first.sweep()
        first.process.wait()
    lose(shop, tmp_path, "a")
    other = on_another_machine(shop, tmp_path)
    second = other.home.start("worker")
    try:
        until(lambda: other.phases()["staff"] == "ready", "staff is copied", 100)
        writing.end()
        until(lambda: unequal(other) == [], "tables are equal", 60)
        assert {each.copies for each in other.states().values()} == {0}
    finally:
        second.sweep()
        second.process.wait()
