"""A pipeline that follows the table of another one has what that table has, after any of its changes.

The short form is `sources/test_followed_tables.py`, which looks at the accepted records.
"""

from __future__ import annotations

import pytest

from etl_assets_tests.sources.followed_tables import Installation

pytestmark = [pytest.mark.spark, pytest.mark.full]


@pytest.fixture
def installation(spark, tmp_path) -> Installation:
    return Installation.create(tmp_path, spark)


def follow(installation: Installation) -> None:
    """Run the pipelines that follow, and expect their tables to say what the followed one does."""
    installation.run("copies", "categories")
    assert installation.copies() == installation.ratings()
    assert installation.categories() == installation.expected_categories()


def test_new_changed_and_deleted_rows_are_followed_once(installation):
    installation.rate((1, "drama", 5), (2, "drama", 3), (3, "comedy", 4))
    follow(installation)
    assert installation.records() == [(1, 5, False), (2, 3, False), (3, 4, False)]
    # A change of the category is one of both categories, and a delete one of its last.
    installation.rate((1, "comedy", 2), (4, "horror", 1))
    installation.rate((2,))
    follow(installation)
    assert installation.records()[3:] == [(2, 3, True), (1, 2, False), (4, 1, False)]
    assert installation.categories() == [("comedy", 2, 6), ("horror", 1, 1)]
    # A row that comes back as it was is new again.
    installation.rate((2, "drama", 3))
    follow(installation)
    again = installation.run("copies", "categories")
    assert [report.commits for report in again] == [0, 0, 0, 0]
    assert not installation.home.rows("copies_source_rejects")
    assert not installation.home.rows("categories_source_rejects")
