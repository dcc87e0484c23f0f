"""States of captured tables in several failure domains and in home folders, without a server and Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contracts.tables import CAPTURE_STATES
from etl_assets.control.capture_tables import StoredTableStates
from etl_assets.control.store import sqlite_store
from etl_assets.errors import QuorumUnavailable, SourceUnavailable
from etl_assets.settings import load_settings
from etl_assets.sources.captures.mirrored_states import HomeStates, MirroredTableStates
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.captures.shared_states import CaptureChange, CaptureStates, SharedStates
from etl_assets.sources.captures.spool import KnownSpool, Spool, SpoolState
from etl_assets.sources.captures.spool_in_use import SpoolInUse
from etl_assets.sources.captures.states_table import StatesTable
from etl_assets.sources.captures.table_states import CapturedTableState, change_state
from etl_assets.steps.step import platform_table
from etl_assets.testing.memory_shared_states import MemorySharedStates
from etl_assets.testing.memory_table_states import MemoryTableStates
from etl_assets_tests.reference.three_domains import A, B, root_of, three_domains

FILM = CapturedTableState(
    capture="shop",
    table="public.film",
    pipeline="shop_film",
    oid=7,
    version=1,
    keys=("id",),
    declaration={"columns": {"id": {"type": "BIGINT"}}},
    membership=("all/1",),
)
ACTOR = replace(FILM, table="public.actor", pipeline="shop_actor", oid=8)
ONE, OTHER = KnownSpool(id="one", system="7", timeline=1, publication=5), KnownSpool(id="other", system="7")
Machines = Callable[[], SharedStates]


def following(state: CapturedTableState, **changes: object) -> CapturedTableState:
    return replace(state, version=state.version + 1, **changes)


def read_in(folder: Path, spool: KnownSpool) -> None:
    """Have a spool in a home folder."""
    (folder / "shop").mkdir(parents=True, exist_ok=True)
    Spool(folder=folder / "shop").write_state(SpoolState(system=spool.system, end_lsn=1, id=spool.id))


def home(shared: SharedStates, folder: Path, states: HomeStates | None = None) -> MirroredTableStates:
    """The states as a home folder has them, which is empty unless it has some."""
    return MirroredTableStates(
        home=states or MemoryTableStates(), shared=shared, folder=folder, wait_seconds=1
    )


@pytest.fixture
def domains(tmp_path):
    (tmp_path / "home").mkdir()
    return three_domains(tmp_path / "home")


@pytest.fixture(params=["memory", "table"])
def machines(request, tmp_path) -> Machines:
    """Gives every caller a store of its own to what all share, as every process has one."""
    if request.param == "memory":
        shared = MemorySharedStates()
        return lambda: shared
    request.getfixturevalue("domains")
    return lambda: StatesTable(load_settings().placement)


def test_what_was_stored_is_read_by_others(machines):
    one, other = machines(), machines()
    assert one.read("shop") == CaptureStates()
    stored = one.update("shop", lambda found: replace(found.having(FILM), spool=ONE))
    assert other.read("shop") == stored == CaptureStates(spool=ONE, tables={FILM.table: FILM})
    more = other.update("shop", lambda found: found.having(ACTOR).having(following(FILM)))
    assert one.read("shop") == more
    assert one.read("rest").is_empty


def test_an_error_of_the_decision_stores_nothing_and_neither_does_no_change(machines):
    states = machines()
    before = states.update("shop", lambda found: found.having(FILM))

    def refused(found: CaptureStates) -> CaptureStates:
        raise SourceUnavailable("no", fix="do", source="shop")

    with pytest.raises(SourceUnavailable):
        states.update("shop", refused)
    assert states.update("shop", lambda found: found) == states.read("shop") == before


def test_a_decision_is_made_on_what_was_stored_last_by_anybody(machines):
    one, other = machines(), machines()
    for number in range(1, 8):
        (one, other)[number % 2].update(
            "shop",
            lambda found, n=number: found.having(
                replace(FILM, version=found.version_of(FILM.table) + 1, oid=n)
            ),
        )
    assert one.read("shop").tables[FILM.table] == replace(FILM, version=7, oid=7)


def test_the_table_keeps_one_row_of_each_table_in_few_files(domains):
    states = StatesTable(load_settings().placement)
    names = [f"public.t{number}" for number in range(20)]
    for name in names:
        states.update("shop", lambda found, n=name: found.having(replace(FILM, table=n)))
    for number in range(20):
        states.update("shop", lambda found, n=number: found.having(following(found.tables[names[n % 3]])))
    table = platform_table(CAPTURE_STATES.name, domains.reader())
    snapshot = table.snapshot()
    assert snapshot is not None
    assert len(list(snapshot.add_actions())) <= 10
    assert set(StatesTable(load_settings().placement).read("shop").tables) == set(names)


def test_a_lost_domain_is_done_without_and_two_are_named(domains):
    states = StatesTable(load_settings().placement)
    states.update("shop", lambda found: found.having(FILM))
    led_by = platform_table(CAPTURE_STATES.name, domains.reader()).replication
    assert led_by is not None
    state = led_by.acknowledged()
    assert state is not None
    assert state.epoch.domain == A
    shutil.rmtree(root_of(domains, A))
    stored = states.update("shop", lambda found: found.having(following(found.tables[FILM.table])))
    assert stored.version_of(FILM.table) == 2
    assert StatesTable(load_settings().placement).read("shop") == stored
    shutil.rmtree(root_of(domains, B))
    with pytest.raises(QuorumUnavailable, match=f"{A}.*{B}"):
        states.update("shop", lambda found: found.having(following(found.tables[FILM.table])))
    with pytest.raises(QuorumUnavailable):
        StatesTable(load_settings().placement).read("shop")


def test_an_empty_home_folder_goes_on_from_what_is_shared(machines, tmp_path):
    first = home(machines(), tmp_path / "first")
    assert first.put(FILM)
    assert first.put_spool("shop", None, ONE)
    ready = following(FILM, phase=TablePhase.READY, released_lsn=9)
    assert first.put(ready)
    store = sqlite_store(tmp_path / "control.db")
    second = home(machines(), tmp_path / "second", StoredTableStates(store))
    assert second.of_capture("shop") == (ready,)
    assert second.spool("shop") == ONE
    assert StoredTableStates(store).of_capture("shop") == (ready,)
    store.close()


def test_a_former_home_folder_is_refused_until_it_takes_over_again(machines, tmp_path):
    former, new = home(machines(), tmp_path / "former"), home(machines(), tmp_path / "new")
    assert former.put(FILM)
    assert former.put_spool("shop", None, ONE)
    assert new.spool("shop") == ONE
    assert new.put_spool("shop", ONE, OTHER)
    with pytest.raises(SourceUnavailable, match="another home folder reads the log of the capture shop"):
        former.put(following(FILM, is_only_spooled=True))
    with pytest.raises(SourceUnavailable):
        former.put(ACTOR)
    assert new.of_capture("shop") == (FILM,)
    moved = change_state(new, "shop", FILM.table, lambda each: replace(each, released_lsn=9))
    assert not former.put_spool("shop", ONE, ONE), "of two machines the last one has it"
    assert former.spool("shop") == OTHER
    assert former.of_capture("shop") == (moved,)
    assert former.put_spool("shop", OTHER, ONE)
    with pytest.raises(SourceUnavailable):
        new.put(following(moved))


class LosesAnswers(MemorySharedStates):
    """Stores what it is told, and its answer is lost."""

    def update(self, capture: str, change: CaptureChange) -> CaptureStates:
        super().update(capture, change)
        self.is_down = True
        return self.read(capture)


def test_a_change_that_only_the_domains_have_is_taken_up_before_another_one(machines, tmp_path):
    shared, states = machines(), MemoryTableStates()
    first = home(shared, tmp_path, states)
    assert first.put(FILM)
    assert first.put_spool("shop", None, ONE)
    read_in(tmp_path, ONE)
    # A process died before it stored this in the home folder.
    died = following(FILM, is_only_spooled=True)
    shared.update("shop", lambda found: found.having(died))
    living = home(shared, tmp_path, states)
    assert living.of_capture("shop") == (FILM,)
    assert not living.put(following(FILM, released_lsn=9))
    assert living.of_capture("shop") == (died,)
    after = change_state(living, "shop", FILM.table, lambda each: replace(each, released_lsn=9))
    assert (after.version, after.is_only_spooled, after.released_lsn) == (3, True, 9)


def test_after_a_change_whose_answer_was_lost_the_next_look_takes_it_up(tmp_path):
    shared, states = LosesAnswers(), MemoryTableStates()
    states.put(FILM)
    states.put_spool("shop", None, ONE)
    read_in(tmp_path, ONE)
    found = home(shared, tmp_path, states)
    with pytest.raises(QuorumUnavailable):
        found.put(following(FILM, is_only_spooled=True))
    assert found.of_capture("shop") == (FILM,)
    with pytest.raises(QuorumUnavailable):
        found.refresh("shop", if_doubtful=True)
    shared.is_down = False
    home(shared, tmp_path, states).refresh("shop", if_doubtful=True)
    assert [each.is_only_spooled for each in found.of_capture("shop")] == [True]
    asked = shared.reads
    found.refresh("shop", if_doubtful=True)
    assert shared.reads == asked


def test_a_home_folder_that_does_not_read_the_log_has_no_old_states(machines, tmp_path):
    reading, waiting = home(machines(), tmp_path / "reading"), home(machines(), tmp_path / "waiting")
    reading.put(FILM)
    reading.put_spool("shop", None, ONE)
    read_in(tmp_path / "reading", ONE)
    assert waiting.of_capture("shop") == (FILM,)
    moved = change_state(reading, "shop", FILM.table, lambda each: replace(each, released_lsn=9))
    assert waiting.of_capture("shop") == (moved,)
    failed = change_state(waiting, "shop", FILM.table, lambda each: each.failed("why", "do"))
    # The one that reads hears of it with its next change.
    after = change_state(reading, "shop", FILM.table, lambda each: replace(each, released_lsn=10))
    assert (after.version, after.error, after.released_lsn) == (4, failed.error, 10)


def test_a_home_folder_of_an_earlier_release_is_taken_over_and_stays_ahead(machines, tmp_path):
    shared, states = machines(), MemoryTableStates()
    for each in (FILM, ACTOR):
        states.put(each)
    states.put_spool("shop", None, ONE)
    change_state(states, "shop", FILM.table, lambda each: replace(each, released_lsn=9))
    home(shared, tmp_path, states).refresh("shop")
    assert shared.read("shop").tables.keys() == {FILM.table, ACTOR.table}
    change_state(
        states, "shop", FILM.table, lambda each: replace(each, released_lsn=10)
    )  # it is back for a while
    after = change_state(
        home(shared, tmp_path, states), "shop", FILM.table, lambda each: replace(each, is_only_spooled=True)
    )
    assert (after.version, after.released_lsn) == (4, 10)
    assert shared.read("shop").tables[FILM.table] == after


def test_without_a_majority_nothing_is_stored_and_what_is_known_is_read(tmp_path):
    shared, states = MemorySharedStates(), MemoryTableStates()
    found = home(shared, tmp_path, states)
    found.put(FILM)
    found.put_spool("shop", None, ONE)
    shared.is_down = True
    for refused in (
        lambda: found.put(following(FILM)),
        lambda: found.put_spool("shop", ONE, OTHER),
        lambda: found.refresh("shop"),
        lambda: home(shared, tmp_path / "new").of_capture("shop"),
        lambda: home(shared, tmp_path / "new").spool("shop"),
    ):
        with pytest.raises(QuorumUnavailable):
            refused()
    assert (states.of_capture("shop"), states.spool("shop")) == ((FILM,), ONE)
    shared.is_down = False
    assert found.put(following(FILM))


def test_a_capture_that_is_known_is_read_without_asking_the_domains(tmp_path):
    shared = MemorySharedStates()
    found = home(shared, tmp_path)
    found.put(FILM)
    found.put_spool("shop", None, ONE)
    read_in(tmp_path, ONE)
    asked = shared.reads
    for _ in range(5):
        found.refresh("shop", if_doubtful=True)
        found.of_capture("shop")
        found.spool("shop")
    assert shared.reads == asked


def test_a_slow_process_does_not_bring_back_what_was_so_before(tmp_path):
    shared, states = MemorySharedStates(), MemoryTableStates()
    found = home(shared, tmp_path, states)
    found.put(FILM)

    class Slow(MemorySharedStates):
        """Another process of the home folder stores something while this one has read."""

        def read(self, capture: str) -> CaptureStates:
            seen = shared.read(capture)
            with pytest.raises(Exception, match="is being written"):
                home(shared, tmp_path, states).put(following(FILM))
            return seen

    home(Slow(), tmp_path, states).refresh("shop")
    assert states.of_capture("shop") == (FILM,)


def test_sessions_of_others_end_before_and_after_another_spool_is_put_in_use(tmp_path):
    states, ended = MemoryTableStates(), []
    states.put_spool("shop", None, ONE)

    class Server:
        session = object()

        def end_sessions_of_others(self) -> None:
            found = states.spool("shop")
            ended.append(found is not None and found.id == ONE.id)

    server: Any = Server()
    in_use = SpoolInUse(capture="shop", spool=Spool(folder=tmp_path), states=states, server=server)
    assert in_use.state() is None
    assert ended == [True, False]
