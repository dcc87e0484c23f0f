"""Pipelines that follow each other's tables, by the command that a user types.

One run brings all of them up to date, also after kills between their commits, and one that fails stops only
those that follow it.
"""

from __future__ import annotations

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets_tests.commands.home import StepOutcome
from etl_assets_tests.sources.followed_tables import CATEGORIES, COPY, RATINGS, Installation

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(900)]
OF_COPIES = {
    **COPY,
    "name": "copies_of_copies",
    "source": {"type": "table", "table": "copies"},
}
FAILS = {
    **COPY,
    "transforms": [
        {
            "type": "expectations",
            "rules": [{"name": "never", "condition": "film_id < 0", "on_violation": "fail"}],
        }
    ],
}


@pytest.fixture
def installation(tmp_path) -> Installation:
    domains = [{"name": name, "root": name} for name in ("a", "b", "c")]
    found = Installation.create(
        tmp_path, None, RATINGS, COPY, CATEGORIES, OF_COPIES, domains=domains, pipelines={"built_in": []}
    )
    found.root = "a"
    return found


def run(installation: Installation, *, failpoint: str = "") -> StepOutcome:
    return installation.home.call("run", failpoint=failpoint)


def expect_up_to_date(installation: Installation) -> None:
    assert installation.copies() == installation.ratings() == installation.copies("copies_of_copies")
    assert installation.categories() == installation.expected_categories()


def test_one_run_carries_changes_through_all_pipelines_after_kills_too(installation):
    installation.land_ratings((1, "drama", 5), (2, "drama", 3), (3, "comedy", 4))
    done = run(installation)
    assert done.code == 0, done
    expect_up_to_date(installation)
    # The process dies after the commit of the followed table, and after that of the records that follow it.
    for number, failpoint in enumerate(
        (f"{Failpoint.TABLE_AFTER_COMMIT}@ratings", f"{Failpoint.TABLE_AFTER_COMMIT}@copies_source")
    ):
        installation.land_ratings((1, "comedy", number), (2,) if number else (2, "horror", 1))
        assert run(installation, failpoint=failpoint).code != 0
        done = run(installation)
        assert done.code == 0, done
        expect_up_to_date(installation)
    done = run(installation)
    assert "nothing to do" in done.err, done


def test_a_pipeline_that_fails_stops_those_that_follow_it_and_no_other(installation):
    installation.land_ratings((1, "drama", 5))
    assert run(installation).code == 0
    installation.declare(FAILS)
    installation.land_ratings((1, "comedy", 4), (2, "drama", 1))
    failed = run(installation)
    assert failed.code != 0, failed
    assert installation.categories() == installation.expected_categories()
    assert installation.copies() == installation.copies("copies_of_copies") == [(1, "drama", 5)]
    installation.declare(COPY)
    done = run(installation)
    assert done.code == 0, done
    expect_up_to_date(installation)
