"""Captures without a server: what is matched, what may be confirmed, and how states change."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from etl_assets.control.capture_tables import StoredTableStates
from etl_assets.control.store import sqlite_store
from etl_assets.errors import CommitConflict, NotFound
from etl_assets.pipelines.capture_spec import CaptureSpec
from etl_assets.sources.captures.confirmation import TableProgress, confirmable
from etl_assets.sources.captures.log_reader import CaptureReader
from etl_assets.sources.captures.mirrored_states import MirroredTableStates
from etl_assets.sources.captures.phases import FOLLOWING, TablePhase
from etl_assets.sources.captures.spool import KnownSpool, Segment, Spool, SpoolState
from etl_assets.sources.captures.table_retries import TableRetry
from etl_assets.sources.captures.table_states import CapturedTableState, change_state
from etl_assets.testing.memory_shared_states import MemorySharedStates
from etl_assets.testing.memory_table_states import MemoryTableStates

SHOP = CaptureSpec(
    name="shop",
    connection="c",
    publication="p",
    slot="s",
    tables=("public.*", "sales.item"),
    exclude=("public.a_*",),
)
FILM = CapturedTableState(
    capture="shop", table="public.film", pipeline="shop_film", oid=7, version=1, keys=("id",)
)


@pytest.fixture(params=["memory", "sqlite", "mirrored"])
def states(request, tmp_path):
    if request.param == "memory":
        yield MemoryTableStates()
        return
    store = sqlite_store(tmp_path / "control.db")
    home, shared = StoredTableStates(store), MemorySharedStates()
    mirrored = MirroredTableStates(home=home, shared=shared, folder=tmp_path)
    yield home if request.param == "sqlite" else mirrored
    store.close()


def test_patterns_match_tables_and_exclusions_win():
    names = ["public.film", "public.a_log", "sales.item", "sales.other"]
    assert [each for each in names if SHOP.matches(each)] == ["public.film", "sales.item"]
    assert SHOP.pipeline_of("public.Film-1") == "shop_film_1"
    assert SHOP.pipeline_of("sales.item") == "shop_sales_item"


def test_the_oldest_commit_is_confirmed():
    found = confirmable([TableProgress(committed_lsn=50), TableProgress(committed_lsn=70)], 90, 100)
    assert (found.lsn, found.only_spooled) == (50, frozenset())
    assert confirmable([], 90, 100).lsn == 90


def test_a_table_in_error_or_far_behind_holds_nothing_back_and_is_noted():
    tables = [
        TableProgress(committed_lsn=10, unread_lsn=30, is_held_up=True),
        TableProgress(committed_lsn=20, unread_lsn=80),
        TableProgress(committed_lsn=20, unread_lsn=85),
        TableProgress(committed_lsn=80, unread_lsn=90),
    ]
    found = confirmable(tables, 90, 60)
    assert (found.lsn, found.only_spooled) == (80, frozenset({0, 1, 2}))


def test_a_state_is_stored_once_for_each_version(states):
    assert states.put(FILM)
    assert not states.put(FILM)
    moved = change_state(
        states, "shop", "public.film", lambda each: each.to(TablePhase.DATA_SYNC, since_lsn=5)
    )
    assert states.of_capture("shop") == (moved,)
    assert (moved.version, moved.since_lsn) == (2, 5)
    failed = change_state(states, "shop", "shop_film", lambda each: each.failed("why", "do", TableRetry.NONE))
    assert states.of_capture("shop") == (failed,)
    assert failed.error is not None
    assert failed.error.before is TablePhase.DATA_SYNC
    assert states.of_capture("other") == ()
    with pytest.raises(NotFound, match="has no table"):
        change_state(states, "shop", "public.x", lambda each: each)


def test_phases_follow_each_other_only_as_documented():
    with pytest.raises(CommitConflict, match="which ready cannot follow"):
        FILM.to(TablePhase.READY)
    assert FOLLOWING.keys() == set(TablePhase)


def test_a_second_error_keeps_the_phase_before_the_first_one():
    twice = FILM.to(TablePhase.DATA_SYNC).failed("a", "b", TableRetry.NONE).failed("c", "d")
    assert twice.error is not None
    assert (twice.error.before, twice.error.needs_copy) == (TablePhase.DATA_SYNC, True)
    again = twice.copied_again(9)
    assert (again.phase, again.copies, again.error, again.since_lsn) == (TablePhase.INIT, 1, None, 9)


class DyingSpool(Spool):
    """A spool whose process dies when it removes changes."""

    def remove(self, pipeline: str, *, until_lsn: int) -> None:
        raise SystemExit(pipeline, until_lsn)


def test_a_table_is_in_error_before_its_changes_are_removed(tmp_path):
    states = MemoryTableStates()
    assert states.put(replace(FILM, phase=TablePhase.READY, since_lsn=5, released_lsn=5))
    spool = DyingSpool(folder=tmp_path)
    (tmp_path / "new").write_bytes(b"changes")
    spool.add(FILM.pipeline, [Segment(path=tmp_path / "new", end_lsn=7, rows=1)])
    server: Any = SimpleNamespace(
        asked=nullcontext,
        name="c",
        session=None,
        system=lambda: "1",
        end_lsn=lambda: 9,
        diverged=lambda timeline, lsn: None,
        timeline=lambda: 1,
        publication_oid=lambda: 1,
        expect_publication=lambda oid: None,
        slot_state=lambda: SimpleNamespace(is_usable=True, is_lost=False, confirmed_lsn=5),
        confirm=lambda lsn: None,
        messages=lambda most: (each for each in ()),
        write_message=lambda: None,
        close=lambda: None,
    )
    spool.write_state(SpoolState(system="1", end_lsn=7))
    small = SHOP.model_copy(update={"max_spool_bytes": 1})
    reader = CaptureReader(capture=small, server=server, states=states, spool=spool)
    with pytest.raises(SystemExit):
        reader.look()
    (found,) = states.of_capture("shop")
    assert found.error is not None
    assert found.error.needs_copy


def test_a_state_of_a_later_release_is_read_without_what_it_has_added():
    state = CapturedTableState(
        capture="shop", table="public.film", pipeline="shop_film", oid=5, keys=("id",), membership=("all/1",)
    )
    assert CapturedTableState.of({**json.loads(json.dumps(state.as_json())), "more": 1}) == state


def test_of_two_spools_the_one_that_was_stored_first_is_in_use(states):
    one, other = KnownSpool(id="one", system="7", timeline=1, publication=5), KnownSpool(id="other")
    assert states.spool("shop") is None
    assert states.put_spool("shop", None, one)
    assert not states.put_spool("shop", None, other)
    assert states.spool("shop") == one
    more = replace(one, timeline=2)
    assert states.put_spool("shop", one, more)
    assert states.put_spool("shop", more, other)
    assert not states.put_spool("shop", more, one)
    assert (states.spool("shop"), states.spool("rest")) == (other, None)


def test_a_history_needs_records():
    with pytest.raises(ValidationError, match="the history is made from the records"):
        CaptureSpec.model_validate(SHOP.model_dump(by_alias=True) | {"history": True, "keep_records": False})
