"""The step with which an operator discards dead letters: it sets their state, in one commit."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import DeadLetterState
from etl_assets.contracts.spark_types import check_schema
from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS
from etl_assets.delta.write.commit import Commit, commit
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write import Write
from etl_assets.errors import CommitConflict
from etl_assets.steps.step import UPDATED, StepContext, StepReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from etl_assets.observability.dead_letters import DeadLetter

DISCARDED = "discarded"
"""Name of the commit fact with the number of dead letters discarded."""
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardDeadLetters:
    """The step. It discards only dead letters that are open when it commits; a second run changes nothing.

    The operator's reason is added to the dead letter's error, which lasts as long as the dead letter, and is
    kept with the commit.
    """

    context: StepContext
    letters: Sequence[DeadLetter]
    reason: str

    def run(self, days: Sequence[dt.date] = ()) -> StepReport:
        """Discard the dead letters; `days` are ignored.

        Raises:
            CommitConflict: other processes kept committing to dead_letters in between.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                done = self._commit()
            except CommitConflict:
                if attempt == _ATTEMPTS:
                    raise
            else:
                break
        return StepReport(
            table=DEAD_LETTERS.name,
            version=done.version,
            counts={None: Counter({UPDATED: done.updated})},
            commits=int(not done.repeated),
        )

    def _commit(self) -> Commit:
        table = self.context.table(DEAD_LETTERS.name)
        base = table.version()
        rows = self._discarded(table.read(self.context.spark, base), base + 1)
        check_schema(DEAD_LETTERS, rows.schema)
        return commit(
            table,
            Write(
                rows=rows,
                base_version=base,
                upsert=UpsertSpec(
                    merge_key=DEAD_LETTERS.merge_key, delta_partition="partition_date", partition_bound=True
                ),
                partitions={letter.partition_date.isoformat() for letter in self.letters},
                facts={DISCARDED: len(self.letters), "reason": self.reason},
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )

    def _discarded(self, stored: DataFrame, batch_id: int) -> DataFrame:
        from pyspark.sql import functions as F

        chosen = (
            F.col("partition_date").isin(sorted({letter.partition_date for letter in self.letters}))
            & F.col("dead_letter_id").isin([letter.dead_letter_id for letter in self.letters])
            & (F.col("state") == DeadLetterState.OPEN.value)
        )
        return stored.where(chosen).select(
            *(
                {
                    "state": F.lit(DeadLetterState.DISCARDED.value).alias("state"),
                    "error": F.concat_ws(" · ", "error", F.lit(f"discarded: {self.reason}")).alias("error"),
                    "batch_id": F.lit(batch_id).cast("bigint").alias("batch_id"),
                }.get(name, F.col(name))
                for name in DEAD_LETTERS.names
            )
        )
