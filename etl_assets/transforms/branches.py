"""The transforms of a declared pipeline from the records to the last rows, where rows branch and come
together.

Rows are staged where more than one transform takes them, and before each transform that sees all rows (`sql`,
`python`): once, however many take them. What is rejected or left out until then stays behind in the staged
files, with the marks of expectations; only the rows that go on are taken from there. So each verdict on a row
is in the files of one stage.

Belongs here: the order of transforms and stages, and what becomes of a record that has rows on several
branches. Does not belong here: one transform (`declared_transforms.py`), and writing (`steps/load_table.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING

from etl_assets.pipelines.transform_inputs import OF_RECORDS
from etl_assets.transforms.declared_transforms import GOES_ON, LEFT_OUT, DeclaredTransforms
from etl_assets.transforms.typed_records import ERROR, OFFSET, REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The rows after the last transform.

    Attributes:
        rows: The rows, which are to be staged as the last stage.
        read_from: For each stage, in their order, the stages whose rows its rows are made from.
    """

    rows: DataFrame
    read_from: tuple[frozenset[int], ...]


def apply_all(
    transforms: DeclaredTransforms, records: DataFrame, stage: Callable[[DataFrame], DataFrame]
) -> Applied:
    """Apply all transforms to the records.

    Args:
        transforms: The transforms, in a session.
        records: The parsed records.
        stage: Writes rows to files, and returns them as read from there.
    """
    inputs = transforms.tables.inputs
    takers = Counter(chain.from_iterable(inputs))
    rows, stages_of = {OF_RECORDS: records}, {OF_RECORDS: frozenset[int]()}
    staged: set[int] = set()
    read_from: list[frozenset[int]] = []
    for index, sources in enumerate(inputs):
        for source in sources:
            if source not in staged and (takers[source] > 1 or not transforms.by_row(index)):
                rows[source] = _going_on(transforms, source, stage(rows[source]))
                staged.add(source)
                read_from.append(stages_of[source])
                stages_of[source] = frozenset({len(read_from) - 1})
        rows[index] = transforms.apply(index, *(rows[source] for source in sources))
        stages_of[index] = frozenset().union(*(stages_of[source] for source in sources))
    last = len(inputs) - 1
    return Applied(rows=rows[last], read_from=(*read_from, stages_of[last]))


def _going_on(transforms: DeclaredTransforms, source: int, rows: DataFrame) -> DataFrame:
    names = [column.name for column in transforms.tables.columns_after(source)]
    return rows.where(GOES_ON).select(*names, OFFSET, REASON, ERROR, LEFT_OUT)


def count_records(stages: Sequence[DataFrame], read_from: Sequence[frozenset[int]]) -> tuple[int, int]:
    """Return how many records are rejected, and how many are filtered, where a record may have several rows.

    A record is rejected if one of its rows is. It is filtered if a filter left out a row of it, and nothing
    else becomes of it: no row is rejected, reaches the end, or ends in a transform of type sql or python.

    Args:
        stages: The rows of each stage; those of the last one reach the end.
        read_from: For each stage, those whose rows its rows are made from.
    """
    from pyspark.sql import functions as F

    found = [
        rows.select(
            OFFSET,
            F.lit(number).alias("stage"),
            F.when(F.expr(GOES_ON), F.lit(number)).alias("went_on"),
            F.col(REASON).isNotNull().alias("rejected"),
            F.col(LEFT_OUT).alias("left_out"),
        )
        for number, rows in enumerate(stages)
    ]
    of_each = (
        reduce(lambda one, other: one.unionByName(other), found)
        .groupBy(OFFSET)
        .agg(
            *(F.collect_set(name).alias(name) for name in ("stage", "went_on")),
            *(F.max(name).alias(name) for name in ("rejected", "left_out")),
        )
    )
    ended = " OR ".join(_ended(number, read_from) for number in range(len(stages)))
    counted = of_each.agg(
        F.count_if("rejected").alias("rejected"),
        F.count_if(F.expr(f"left_out AND NOT rejected AND NOT ({ended})")).alias("filtered"),
    ).collect()[0]
    return counted["rejected"], counted["filtered"]


def _ended(stage: int, read_from: Sequence[frozenset[int]]) -> str:
    """Return SQL for whether a record had rows that went on from a stage, and has none in those after it."""
    after = [number for number, stages in enumerate(read_from) if stage in stages]
    numbers = ", ".join(map(str, after))
    is_gone = f" AND NOT arrays_overlap(stage, array({numbers}))" if after else ""
    return f"(array_contains(went_on, {stage}){is_gone})"
