"""A target or the platform that is put back from a backup, with a target that is a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from etl_assets.contracts.tables import REPLAYS
from etl_assets.observability.undelivered import undelivered
from etl_assets.sinks.replay_requests import content_of_request
from etl_assets.sources.replays import row_again, submit_replays
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.written_tables import NOON
from etl_assets_tests.sinks.test_replays_reach_sinks import ReplayLab, Target


@pytest.fixture
def lab(tmp_path) -> ReplayLab:
    connection = {"type": "duckdb", "path": str(tmp_path / "m.db"), "write": ["*"]}
    sink = {"type": "duckdb", "table": "films"}
    return ReplayLab(tmp_path / "home", Target(connection, sink, dict, lambda _: None))


def request(lab: ReplayLab, letter: str) -> None:
    content = content_of_request({"film_id": 1}, NOON, "anna")
    row = row_again(NOON.date(), letter * 64, 2, content, stage=lab.step)
    submit_replays(lab.lab.settings.placement().domains[0], [row])


def taken_up(lab: ReplayLab) -> set[str]:
    """The first letters of the dead letters that have a result."""
    rows = lab.rows(f"{lab.step}_rejects")
    return {row["source_position"].rsplit("/", 1)[1][0] for row in rows}


def swap(kept: Path, place: Path) -> None:
    shutil.rmtree(place)
    shutil.copytree(kept, place)


def test_requests_after_the_platform_was_put_back_are_taken_up(lab, tmp_path):
    lab.lab.write([(1, "Alien")])
    lab.deliver()
    request(lab, "a")
    lab.deliver()
    shutil.copytree(lab.lab.home, tmp_path / "kept")
    for letter in "bcd":
        request(lab, letter)
    lab.deliver()
    assert taken_up(lab) == set("abcd")
    swap(tmp_path / "kept", lab.lab.home)
    assert taken_up(lab) == {"a"}
    for letter in "ef":
        request(lab, letter)
        lab.deliver()
    assert taken_up(lab) == set("aef")
    deliveries = len(lab.rows(lab.step))
    lab.deliver()
    assert len(lab.rows(lab.step)) == deliveries


def test_requests_after_the_table_of_replays_alone_was_put_back_are_taken_up(lab, tmp_path):
    lab.lab.write([(1, "Alien")])
    lab.deliver()
    request(lab, "a")
    replays = platform_table(REPLAYS.name, lab.lab.settings.placement().domains[0]).path
    shutil.copytree(replays, tmp_path / "kept")
    for letter in "bcd":
        request(lab, letter)
    lab.deliver()
    swap(tmp_path / "kept", replays)
    request(lab, "e")
    assert lab.step in undelivered(lab.lab.settings.placement().domains[0])
    lab.deliver()
    assert lab.step not in undelivered(lab.lab.settings.placement().domains[0])
    assert taken_up(lab) == set("abcde")
    deliveries = len(lab.rows(lab.step))
    lab.deliver()
    assert len(lab.rows(lab.step)) == deliveries, "the record went back with it"


def test_a_target_that_was_put_back_gets_everything(lab, tmp_path):
    lab.lab.write([(1, "Alien")])
    lab.deliver()
    shutil.copy(tmp_path / "m.db", tmp_path / "kept.db")
    lab.lab.write([(2, "Brazil")])
    lab.deliver()
    shutil.copy(tmp_path / "kept.db", tmp_path / "m.db")
    lab.lab.write([(3, "Casino")])
    lab.deliver()
    assert lab.rows(lab.step)[-1]["whole"] is True
    with duckdb.connect(str(tmp_path / "m.db")) as connection:
        assert len(connection.execute("SELECT * FROM films").fetchall()) == 3
