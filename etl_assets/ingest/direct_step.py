"""The step from a source straight into the table of its pipeline, without a table of records.

Ranges are planned, read and followed as for a table of records. Replayed dead letters come through files as
ever, of whatever day: the table has no days.

Belongs here: what differs from the ingest of ranges. Does not belong here: the work on one batch
(`direct_batch.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.ingest.direct_batch import DirectBatch
from etl_assets.ingest.range_step import IngestRanges
from etl_assets.steps.step import StepReport

if TYPE_CHECKING:
    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.sources.batch_plan import BatchPlan
    from etl_assets.sources.landing import Folders


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectLoad(IngestRanges):
    """The step.

    Attributes:
        tables: The pipeline's tables.
    """

    tables: DeclaredTables

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Load replayed dead letters, then ranges until there is no more; `days` are ignored.

        Raises:
            SourceUnavailable, SourceRefused, SourceLost: as `RangeSource` says.
        """
        replayed = sorted({day for folders in self.source.folders for day, _ in folders.days()})
        report = IngestRanges.run(self, replayed)
        return replace(report, counts={None: report.total()})

    def _write(self, plan: BatchPlan, folders: tuple[Folders, ...], staging: Path) -> StepReport:
        return DirectBatch(
            context=self.context,
            tables=self.tables,
            table=self.table,
            stage=self.stage.name_in_rejects,
            folders=folders,
            records=self.source.records,
            plan=plan,
            staging=staging,
        ).write()
