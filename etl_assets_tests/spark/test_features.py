"""Features that a Spark user gives a table: appends go through Delta's writer, an undo is refused until they
are taken out.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from etl_assets.contracts.arrow_types import arrow_schema
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.sql_text import delta_table
from etl_assets.delta.log.gate import Access, expect
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.content import content_of
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.delta.write.write import Write
from etl_assets.errors import FeatureUnsupported
from etl_assets_tests.reference.tables import local_domain

pytestmark = pytest.mark.spark

PARTS = TableContract(
    name="parts",
    description="A part.",
    columns=(Column("part_id", "STRING", "Its id."), Column("offset", "BIGINT", "Its place.")),
    merge_key=("part_id",),
    append_only=True,
)
TURNED_ON = {
    "deletionVectors": "delta.enableDeletionVectors",
    "rowTracking": "delta.enableRowTracking",
    "changeDataFeed": "delta.enableChangeDataFeed",
}


@pytest.fixture
def parts(spark, tmp_path):
    table = Table(name="parts", domain=local_domain(tmp_path), contract=PARTS)
    ensure_table(table)
    append(spark, table, range(50))
    return table


def append(spark, table: Table, offsets) -> None:
    rows = [{"part_id": f"p{offset}", "offset": offset} for offset in offsets]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=arrow_schema(PARTS)))
    commit(table, Write(rows=frame, base_version=table.version()))


def newest(table: Table) -> Snapshot:
    snapshot = table.snapshot()
    assert snapshot is not None
    return snapshot


def rows(spark, table: Table) -> tuple[int, int]:
    """How many rows Spark reads, by Delta and as the platform does."""
    by_delta = spark.read.format("delta").load(str(table.path)).count()
    return by_delta, table.read(spark, table.version()).count()


@pytest.mark.parametrize("feature", TURNED_ON)
def test_what_the_refusal_says_to_do_makes_an_undo_possible(spark, parts, feature):
    first = tuple(content_of(newest(parts)).values())
    target = delta_table(parts.path)
    spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('{TURNED_ON[feature]}' = 'true')")
    spark.sql(f"DELETE FROM {target} WHERE offset % 3 = 0")
    append(spark, parts, range(50, 60))
    assert rows(spark, parts) == (43, 43)
    assert newest(parts).row_count() == 43

    removed = tuple(content_of(newest(parts)).values())
    with pytest.raises(FeatureUnsupported, match=feature) as refused:
        replace_contents([Replacement(table=parts, base_version=parts.version(), removed=removed)])
    assert rows(spark, parts) == (43, 43)

    statements, _, _ = refused.value.fix.removeprefix("take it out with Spark: ").partition(
        ", or use Delta's own"
    )
    for statement in statements.replace("; ", ", ").replace(" and ", ", ").split(", "):
        spark.sql(statement.replace("…", target))
    expect("parts", newest(parts), Access.UNDO)
    removed = tuple(content_of(newest(parts)).values())
    replace_contents(
        [Replacement(table=parts, base_version=parts.version(), removed=removed, restored=first)]
    )
    assert rows(spark, parts) == (50, 50)
    append(spark, parts, range(60, 62))
    assert rows(spark, parts) == (52, 52)
