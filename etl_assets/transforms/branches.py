"""The transforms of a declared pipeline from the records to the last rows, where rows branch and come together.

Rows are staged where more than one transform takes them, and before each transform that sees all rows (`sql`,
`python`): once, whoever takes them. What is rejected or left out until then stays behind in the staged files,
with the marks of expectations; only the rows that go on are taken from there. So each verdict on a row is in
the files of one stage.

Belongs here: the order of transforms and stages, and what becomes of a record that has rows on several
branches. Does not belong here: one transform (`declared_transforms.py`), and writing (`steps/load_table.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from etl_assets.pipelines.transform_inputs import OF_RECORDS
from etl_assets.transforms.declared_transforms import GOES_ON, LEFT_OUT, DeclaredTransforms
from etl_assets.transforms.typed_records import ERROR, OFFSET, REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def apply_all(
    transforms: DeclaredTransforms, records: DataFrame, stage: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """Return the rows after the last transform.

    Args:
        transforms: The transforms, in a session.
        records: The parsed records.
        stage: Writes rows to files, and returns them as read from there.
    """
    inputs = transforms.tables.inputs
    takers = Counter(chain.from_iterable(inputs))
    rows, staged = {OF_RECORDS: records}, set()
    for index, sources in enumerate(inputs):
        for source in sources:
            if source not in staged and (takers[source] > 1 or not transforms.by_row(index)):
                rows[source] = _going_on(transforms, source, stage(rows[source]))
                staged.add(source)
        rows[index] = transforms.apply(index, *(rows[source] for source in sources))
    return rows[len(inputs) - 1]


def _going_on(transforms: DeclaredTransforms, source: int, rows: DataFrame) -> DataFrame:
    names = [column.name for column in transforms.tables.columns_after(source)]
    return rows.where(GOES_ON).select(*names, OFFSET, REASON, ERROR, LEFT_OUT)


def count_records(stages: Sequence[DataFrame]) -> tuple[int, int]:
    """Return how many records are rejected, and how many are filtered, where a record may have several rows.

    A record is rejected if one of its rows is. It is filtered if a filter left out a row of it, no row is
    rejected, and no row reaches the end.

    Args:
        stages: The rows of each stage; those of the last one reach the end.
    """
    from pyspark.sql import functions as F

    verdicts = None
    for number, rows in enumerate(stages, 1):
        found = rows.select(
            OFFSET,
            F.col(REASON).isNotNull().alias("rejected"),
            F.col(LEFT_OUT).alias("left_out"),
            (F.expr(GOES_ON) if number == len(stages) else F.lit(False)).alias("kept"),
        )
        verdicts = found if verdicts is None else verdicts.unionByName(found)
    assert verdicts is not None
    of_each = verdicts.groupBy(OFFSET).agg(
        *(F.max(name).alias(name) for name in ("rejected", "left_out", "kept"))
    )
    counted = of_each.agg(
        F.count_if("rejected").alias("rejected"),
        F.count_if(F.expr("left_out AND NOT rejected AND NOT kept")).alias("filtered"),
    ).collect()[0]
    return counted["rejected"], counted["filtered"]
