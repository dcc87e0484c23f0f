"""Tables that are laid out by the hour, day or month of a time have one row per key, also where its time
changes.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from etl_assets.errors import ContractError
from etl_assets.steps.step import ReadMode
from etl_assets_tests.reference.declared_pipeline import PEOPLE, Declared, declared

pytestmark = pytest.mark.spark


def person(id_: str, at: str | None, age: int = 30) -> dict[str, Any]:
    return {"id": id_, "age": age, "country": "de", "updated_at": at}


def laid_out(people: Declared, by: str, **table: Any) -> Declared:
    spec = {**PEOPLE["table"], **table, "partition_by": {"column": "updated_at", "by": by}}
    return replace(people, spec=declared(table=spec))


def parts(pipeline: Declared) -> dict[str, Any]:
    column = pipeline.tables.table.delta_partition[0]
    return {row["id"]: (row[column], row["age"]) for row in pipeline.rows()}


def test_a_row_moves_with_its_time_and_is_never_there_twice(spark, tmp_path):
    people = Declared(root=tmp_path / "data", session=lambda: spark)
    hours = laid_out(people, "hour")
    hours.accept(
        [
            person("a", "2026-01-31T05:00:00Z"), person("b", "2026-01-31T05:59:59.999999Z"), person("c",
            None),
            person("d", "2026-01-31T06:30:00+01:30"), person("e", "2026-02-01T00:00:00Z"),
        ]
    )  # fmt: skip
    hours.load()
    assert parts(hours) == {
        "a": ("2026-01-31T05", 30),
        "b": ("2026-01-31T05", 30),
        "c": (None, 30),
        "d": ("2026-01-31T05", 30),
        "e": ("2026-02-01T00", 30),
    }
    snapshot = hours.context.table("people").snapshot()
    assert snapshot is not None
    assert snapshot.partition_columns() == ("updated_at_hour",)
    folders = {path.parent.name for path in hours.context.table("people").path.rglob("*.parquet")}
    assert folders == {
        "updated_at_hour=2026-01-31T05",
        "updated_at_hour=2026-02-01T00",
        "updated_at_hour=__HIVE_DEFAULT_PARTITION__",
    }
    # Newer times, in other hours, and an older one, which changes nothing.
    hours.accept(
        [
            person("a", "2026-02-01T00:00:01Z", 1),
            person("c", "2026-02-02T07:00:00Z", 2),
            person("e", "2026-01-01T00:00:00Z", 3),
        ]
    )
    total = hours.load().total()
    assert (total["inserted"], total["updated"]) == (0, 2)
    moved = {
        "a": ("2026-02-01T00", 1),
        "b": ("2026-01-31T05", 30),
        "c": ("2026-02-02T07", 2),
        "d": ("2026-01-31T05", 30),
        "e": ("2026-02-01T00", 30),
    }
    assert parts(hours) == moved
    hours.load(ReadMode.WHOLE)
    assert parts(hours) == moved
    read = people.session().read.format("delta").load(str(hours.context.table("people").path))
    assert {row["id"] for row in read.where("updated_at_hour >= '2026-02'").collect()} == {"a", "c", "e"}

    # Days are dates and months texts; tables that are there keep their layout.
    days, months = laid_out(people, "day", name="days"), laid_out(people, "month", name="months")
    for pipeline in (days, months):
        pipeline.load()
    assert parts(days)["b"] == (dt.date(2026, 1, 31), 30)
    assert (parts(months)["b"], parts(months)["a"]) == (("2026-01", 30), ("2026-02", 1))
    hours.accept([person("f", "2026-03-01T00:00:00Z")])
    with pytest.raises(
        ContractError, match="laid out by updated_at_hour, and updated_at_day is declared"
    ) as refused:
        laid_out(people, "day").load()
    assert "etl-assets reprocess --tables people" in refused.value.fix
