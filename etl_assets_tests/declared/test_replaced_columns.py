"""A reprocess that gives a declared table other columns, and fails afterwards: what it says, and what
repairs the table.
"""

from __future__ import annotations

import pytest

from etl_assets_tests.commands.home import Home
from etl_assets_tests.declared.test_installation import DAY, SECONDS, declare, ended, land

pytestmark = [pytest.mark.full, pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(3600)]

RULE = {"name": "is_small", "condition": "amount < 10", "on_violation": "drop"}
OTHER_OFFSETS = {"type": "sql", "select": "select id, amount, _offset + 1000 as _offset from input"}
"""A transform that fails only once something is rejected, which is after the table has got its columns."""
REPROCESS = ("reprocess", "--tables", "good", "--yes")


def declare_amount(home: Home, type_: str, *transforms: object) -> None:
    rules = {"type": "expectations", "rules": [RULE]}
    declare(home, "good", columns={"id": "string", "amount": type_}, transforms=[*transforms, rules])


def amounts(home: Home) -> dict[str, object]:
    return {row["id"]: row["amount"] for row in home.rows("good")}


def test_the_next_run_makes_the_rows_that_a_reprocess_with_other_columns_has_left_unmade(tmp_path):
    home = Home(path=tmp_path / "home").begin(start_date=DAY)
    declare_amount(home, "string")
    land(home, "good", "1.csv", "a,1", "b,2", "c,30")
    ended(home.call("run", seconds=SECONDS), 0)
    assert amounts(home) == {"a": "1", "b": "2"}

    # It fails after the columns were replaced: files of the old ones cannot be put back.
    declare_amount(home, "bigint", OTHER_OFFSETS)
    ended(
        home.call(*REPROCESS, seconds=SECONDS),
        1,
        "_offset is of no record",
        "rows are missing from good",
        "`etl-assets run`, makes them again",
    )
    assert amounts(home) == {}
    ended(home.call("run", seconds=SECONDS), 1, "_offset is of no record")
    declare_amount(home, "bigint")
    ended(home.call("run", seconds=SECONDS), 0)
    assert amounts(home) == {"a": 1, "b": 2}
    assert [row["original_offset"] for row in home.rows("good_rejects")] == [2]
    ended(home.call("doctor"), 0)
