"""The accepted records of a pipeline that follows a table say what the table has, whatever happens to it.

The followed table is written by delta-rs: no test here needs Spark.
"""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets_tests.sources import followed_tables
from etl_assets_tests.sources.followed_tables import CATEGORIES, COPY, Installation

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["deltalake", "pyarrow", "etl_assets_tests.sources.followed_tables"])


@pytest.fixture
def installation(tmp_path) -> Installation:
    return Installation.create(tmp_path, None)


def read(installation: Installation) -> None:
    """Read what is new for both pipelines, and expect their records to say what the table has."""
    for table in ("copies_source", "categories_source"):
        installation.step(table)
        assert installation.step(table).commits == 0, "a second step finds nothing new"
    assert installation.held() == installation.ratings()
    assert installation.held_with_former() == installation.ratings()
    for table in ("copies_source_rejects", "categories_source_rejects"):
        assert not installation.home.rows(table)


def test_changes_become_records_in_the_order_of_versions(installation):
    installation.store((2, "drama", 5), (1, "drama", 3))
    installation.store((3, "comedy", 4))
    read(installation)
    assert installation.records() == [(1, 3, False), (2, 5, False), (3, 4, False)]
    installation.store((1, "horror", 1))
    installation.store((2,), (4, "drama", 2))
    read(installation)
    assert installation.records()[3:] == [(2, 5, True), (1, 1, False), (4, 2, False)]
    # Where keys differ, a changed row is a record of its former values, too.
    found = installation.records("categories_source")[3:]
    assert sorted(found[:2]) == [(1, 3, True), (2, 5, True)]
    assert found[2:] == [(1, 1, False), (4, 2, False)]


def test_a_compaction_makes_no_records(installation):
    for film in range(4):
        installation.store((film, "drama", film))
    read(installation)
    installation.compact()
    read(installation)
    assert len(installation.records()) == 4


def test_a_batch_ends_with_a_version(installation):
    for name, spec in (("copies", COPY), ("categories", CATEGORIES)):
        installation.declare({**spec, "name": name, "source": {**spec["source"], "max_batch_records": 2}})
    installation.store((1, "drama", 1), (2, "drama", 2), (3, "drama", 3))
    installation.store((4, "drama", 4))
    installation.store((5, "drama", 5))
    installation.store((6, "drama", 6))
    assert installation.step("copies_source").commits == 3
    read(installation)
    batches = Counter(row["batch_id"] for row in installation.home.rows("copies_source"))
    assert sorted(batches.items()) == [(1, 3), (2, 2), (3, 1)]


@pytest.mark.parametrize("cause", ["restored", "created again", "cleaned up"])
def test_where_versions_cannot_be_compared_all_rows_are(installation, cause):
    first = installation.store((1, "drama", 1), (2, "drama", 2), (3, "drama", 3))
    read(installation)
    installation.store((1, "comedy", 5), (2,))
    read(installation)
    if cause == "restored":
        installation.put_back(first)
        changed = [(1, 5, True), (1, 1, False), (2, 2, False)]
    elif cause == "created again":
        installation.create_again()
        installation.store((3, "drama", 3), (4, "drama", 4))
        changed = [(1, 5, True), (4, 4, False)]
    else:
        installation.store((1,), (3, "drama", 9))
        installation.compact()
        installation.vacuum()
        changed = [(1, 5, True), (3, 3, True), (3, 9, False)]
    report = installation.step("categories_source")
    assert any("all rows of ratings are compared" in each for each in report.notes)
    assert sorted(installation.records("categories_source")[6:]) == sorted(changed)
    read(installation)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 40))])
def test_whatever_happens_to_the_table_is_followed(installation, seed):
    dice = random.Random(seed)
    for name, spec in (("copies", COPY), ("categories", CATEGORIES)):
        source = {**spec["source"], "max_batch_records": dice.choice([1, 3, 100])}
        installation.declare({**spec, "name": name, "source": source})
    versions = [installation.store((1, "drama", 1))]
    for _ in range(12):
        for _ in range(dice.randint(1, 3)):
            match dice.random():
                case chance if chance < 0.7:
                    films = dice.sample(range(8), dice.randint(1, 5))
                    versions.append(
                        installation.store(
                            *(
                                (film,)
                                if dice.random() < 0.3
                                else (film, dice.choice("abc"), dice.randint(1, 3))
                                for film in films
                            )
                        )
                    )
                case chance if chance < 0.8:
                    installation.compact()
                case chance if chance < 0.9:
                    installation.vacuum()
                    versions = []
                case chance if chance < 0.97 and len(set(versions)) > 1:
                    # A store that changes nothing makes no version.
                    installation.put_back(dice.choice([each for each in versions if each < versions[-1]]))
                case _:
                    installation.create_again()
                    versions = [installation.store((dice.randint(0, 7), "d", 1))]
        if dice.random() < 0.7:
            read(installation)
    read(installation)


KILLS = (
    f"{Failpoint.TABLE_BEFORE_COMMIT}@copies_source",
    f"{Failpoint.TABLE_AFTER_COMMIT}@copies_source",
    *(
        pytest.param(f"{each}@copies_source", marks=pytest.mark.full)
        for each in (
            Failpoint.STAGE_AFTER_WRITE,
            Failpoint.TABLE_DURING_COMMIT,
            Failpoint.TABLE_AFTER_SYNC,
        )
    ),
)


@pytest.mark.kill
@pytest.mark.parametrize("failpoint", KILLS)
def test_a_step_that_is_killed_reads_the_versions_again_and_once(installation, failpoint):
    installation.store((1, "drama", 1), (2, "drama", 2))
    installation.step("copies_source")
    installation.store((1, "comedy", 5), (2,), (3, "drama", 3))
    process = _processes.Process(
        target=followed_tables.run_and_die, args=(installation.home.path, "copies_source", failpoint)
    )
    process.start()
    process.join(100)
    assert process.exitcode == -9
    # The table goes on meanwhile.
    installation.store((1, "horror", 1))
    read(installation)
    assert len(installation.records()) in (5, 6)  # the first change of film 1 may be passed over


def test_a_record_that_is_too_long_is_rejected_once_by_a_run_that_is_killed_and_its_next(installation):
    installation.declare({**COPY, "source": {**COPY["source"], "max_record_bytes": 1_024}})
    installation.store((1, "x" * 2_000, 1), (2, "drama", 2))
    process = _processes.Process(
        target=followed_tables.run_and_die,
        args=(installation.home.path, "copies_source", f"{Failpoint.TABLE_BEFORE_COMMIT}@copies_source"),
    )
    process.start()
    process.join(100)
    assert process.exitcode == -9
    installation.store((1, "drama", 1))
    installation.compact()
    installation.vacuum()
    installation.step("copies_source")
    assert installation.held() == installation.ratings()
    rejects = installation.home.rows("copies_source_rejects")
    assert {row["reason"] for row in rejects} <= {"RecordTooLarge"}
